//! Which requests other clients wait for. They overtake regular requests
//! ([`service::Target::is_awaited`]).
//!
//! - **Recalls.** A change waits until a client gives up what it caches. That client's kernel
//!   forgets a name only under the lock of the name's directory. A caller there keeps this lock
//!   until its own request in the directory is answered. A client that has kept a change of
//!   attributes gives the file up when the change is executed.
//! - **The file's own lock.** A client holds it for one append, truncate or migration. It gives the
//!   lock back once its requests about the file are answered. Applications hold the other kinds of
//!   locks for as long as they like, so these hurry no request.

use ldlm::grants::HolderId;
use types::Fid;
use wire::Request;

use super::rows::{Data, Holds};
use crate::locks::Wanted;
use crate::target::Mdt;

impl Holds {
    fn of(request: &Request) -> &'static Holds {
        super::row(request.opcode()).map_or(&Holds::Nothing, |row| &row.holds)
    }
}

/// Whether another client waits for what this session asks.
pub(crate) fn is_awaited(mdt: &Mdt, session: u64, request: &Request) -> bool {
    let state = mdt.engine.state.borrow();
    let is_hurried = |fid: Fid| state.grants.called.is_hurried(HolderId(session), fid);
    directories(request).into_iter().flatten().chain(changed(request)).any(is_hurried)
        || file(request).is_some_and(|fid| mdt.locks.is_awaited(session, fid))
}

/// A request begins to wait for a lock: requests of the holders overtake, where they are awaited
/// from now on.
pub(super) fn hurry(mdt: &Mdt, wanted: &Wanted) {
    for holder in mdt.locks.hurried_by(&wanted.request) {
        assert!(holder != wanted.request.owner.session, "no session hurries itself");
        if let Some(session) = mdt.exports.session(holder) {
            mdt.exports.promote_awaited(&session);
        }
    }
}

/// Directories that the caller's kernel keeps locked until the request is answered. Those of
/// listings are left out, because their service has no high-priority head.
fn directories(request: &Request) -> [Option<Fid>; 2] {
    match Holds::of(request) {
        Holds::Dir(dir) => [Some(dir(request)), None],
        Holds::Dirs(dirs) => {
            let (from, to) = dirs(request);
            [Some(from), Some(to)]
        }
        Holds::Nothing | Holds::File(_) => [None, None],
    }
}

/// The file whose attributes a request changes.
fn changed(request: &Request) -> Option<Fid> {
    matches!(Data::of(request), Data::Cuts(_)).then(|| file(request)).flatten()
}

/// The file of a request that a client may send while it holds the file's own lock.
fn file(request: &Request) -> Option<Fid> {
    match Holds::of(request) {
        Holds::File(file) => Some(file(request)),
        Holds::Nothing | Holds::Dir(_) | Holds::Dirs(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use wire::body::{
        CreateReq, FidReq, LayoutReq, LinkReq, LookupReq, ReaddirReq, RenameReq, SetattrReq,
        SetxattrReq, UnlinkReq,
    };
    use wire::{Attr, Opcode, encode_body};
    use zerocopy::{Immutable, IntoBytes};

    use super::*;

    const X: Fid = Fid { seq: 0x400, oid: 7, ver: 0 };
    const Y: Fid = Fid { seq: 0x400, oid: 8, ver: 0 };

    fn request(opcode: Opcode, body: &(impl IntoBytes + Immutable)) -> Request {
        Request::new(opcode, vec![encode_body(body)])
    }

    #[test]
    fn a_request_in_a_directory_names_it() {
        let (parent, new_parent) = (X.into(), Y.into());
        let lookup = LookupReq { parent, ..LookupReq::default() };
        let create = CreateReq { parent, ..CreateReq::default() };
        let link = LinkReq { parent, fid: Y.into(), ..LinkReq::default() };
        let unlink = UnlinkReq { parent, ..UnlinkReq::default() };
        let rename = RenameReq { parent, new_parent, ..RenameReq::default() };
        for request in [
            request(Opcode::MdtLookup, &lookup),
            request(Opcode::MdtCreate, &create),
            request(Opcode::MdtLink, &link),
            request(Opcode::MdtUnlink, &unlink),
        ] {
            assert_eq!(directories(&request), [Some(X), None], "{:?}", request.opcode());
            assert_eq!(file(&request), None);
        }
        assert_eq!(directories(&request(Opcode::MdtRename, &rename)), [Some(X), Some(Y)]);
        let list = ReaddirReq { fid: X.into(), ..ReaddirReq::default() };
        assert_eq!(directories(&request(Opcode::MdtReaddir, &list)), [None, None]);
    }

    #[test]
    fn a_request_about_a_file_names_it() {
        let fid = X.into();
        let look = FidReq { fid, ..FidReq::default() };
        let attr = Attr::default().with_fid(X);
        for request in [
            request(Opcode::MdtGetattr, &look),
            request(Opcode::MdtGetxattr, &look),
            request(Opcode::MdtSetattr, &SetattrReq { attr, ..SetattrReq::default() }),
            request(Opcode::MdtSetxattr, &SetxattrReq { fid, ..SetxattrReq::default() }),
            request(Opcode::MdtLayout, &LayoutReq { fid, ..LayoutReq::default() }),
        ] {
            assert_eq!(file(&request), Some(X), "{:?}", request.opcode());
            assert_eq!(directories(&request), [None, None]);
            let is_change = request.opcode() == Opcode::MdtSetattr;
            assert_eq!(changed(&request), is_change.then_some(X));
        }
        assert_eq!(file(&request(Opcode::MdtSync, &look)), None);
    }
}
