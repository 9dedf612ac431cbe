//! Records that cannot be read.

use osd::Table;
use types::{Errno, Fid};
use wire::Opcode;
use wire::attr::S_IFREG;
use wire::body::{FidReq, SetxattrReq, UnlinkReq};

use super::rig::Rig;
use crate::keys;

#[test]
fn a_file_stays_whole_while_an_attribute_of_it_cannot_be_read() {
    let mut rig = Rig::new();
    let file = rig.create(Fid::ROOT, "file", S_IFREG | 0o644, None).expect("room").attr.fid();
    let body = SetxattrReq { fid: file.into(), ..SetxattrReq::default() };
    rig.call(Opcode::MdtSetxattr, &body, &[b"user.one", b"1"]).expect("room");
    rig.call(Opcode::MdtSetxattr, &body, &[b"user.two", b"2"]).expect("room");
    let before = rig.store.running.borrow().clone();
    *rig.store.damaged.borrow_mut() = Some((Table::Xattrs, keys::xattr(file, b"user.two")));
    let unlink = UnlinkReq { parent: Fid::ROOT.into(), ..UnlinkReq::default() };
    for _ in 0..2 {
        let gone = rig.call(Opcode::MdtUnlink, &unlink, &[b"file"]);
        assert_eq!(gone.map(|_| ()), Err(Errno::EIO));
    }
    assert!(*rig.store.running.borrow() == before, "nothing was changed");
    let get = FidReq { fid: file.into(), ..FidReq::default() };
    let other = rig.call(Opcode::MdtGetxattr, &get, &[b"user.one"]).expect("it can be read");
    assert_eq!(&other.buf(1)[..], b"1");

    *rig.store.damaged.borrow_mut() = None;
    rig.call(Opcode::MdtUnlink, &unlink, &[b"file"]).expect("it can be read again");
    assert_eq!(rig.store.table(Table::Xattrs), []);
}
