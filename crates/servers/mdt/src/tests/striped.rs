//! Directories whose shards are all on this MDT: their operations have records.

use std::rc::Rc;

use layout::dir::{Asked, HASH_CRUSH2, HASH_OVERSTRIPED};
use types::{Errno, Fid};
use wire::Opcode;
use wire::attr::S_IFDIR;
use wire::body::CreateReq;

use super::rig::Rig;

fn mkdir(rig: &mut Rig, name: &str) -> Result<(), Errno> {
    let hash = HASH_CRUSH2 | HASH_OVERSTRIPED;
    let asked = Asked { count: 2, index: 0, hash, mdts: vec![0, 0], ..Asked::default() };
    let body =
        CreateReq { parent: Fid::ROOT.into(), mode: S_IFDIR | 0o755, ..CreateReq::default() };
    let bufs: [&[u8]; 4] = [name.as_bytes(), &[], &[], &asked.encode()];
    rig.call(Opcode::MdtCreate, &body, &bufs).map(drop)
}

#[test]
fn an_operation_that_a_full_store_refuses_is_not_under_way() {
    let mut rig = Rig::new();
    rig.engine.mdt_list = Rc::new(|| vec![0]);
    rig.store.full.set(true);
    assert_eq!(mkdir(&mut rig, "d"), Err(Errno::ENOSPC));
    assert!(rig.engine.state.borrow().crossed.is_idle(), "the mark may pass it");
    rig.store.full.set(false);
    assert_eq!(mkdir(&mut rig, "d"), Ok(()));
    assert!(!rig.engine.state.borrow().crossed.is_idle(), "it has a record");
}
