//! Refusals by permissions that may be old. A client that may keep writes of a file may also keep a
//! new mode of it. So the mode that this MDT has is not the last word.

use ldlm::grants::{Bits, ChangeId, HolderId, Want};
use target::OpError;
use types::{Errno, Fid};
use wire::{Opcode, Request};

use super::Caller;
use crate::grants::Grants;
use crate::record::Inode;
use crate::tx::Tx;

/// Whether a request that only reads may be refused because of the mode of its file.
pub(crate) fn reads_by_mode(request: &Request) -> bool {
    request.opcode() == Opcode::MdtGetxattr
}

/// Whether another client may keep attributes of a file by which `error` was decided. The request
/// is parked then, and decided anew when that client has sent them.
pub(crate) fn may_be_old(
    error: &OpError,
    caller: &Caller<'_>,
    tx: &Tx<'_>,
    grants: &mut Grants,
) -> bool {
    let is_by_mode = matches!(error, OpError::Refused(Errno::EACCES | Errno::EPERM));
    if !is_by_mode || caller.replay || caller.change == ChangeId(0) {
        return false;
    }
    let holder = HolderId(caller.session);
    let is_kept = |fid: &Fid| grants.called.is_held_by_another(holder, *fid, Bits::WRITE);
    let files = tx.looked_at().filter(|inode| inode.attr.is_file()).map(Inode::fid);
    let wants: Vec<Want> =
        files.filter(is_kept).map(|fid| Want { fid, bits: Bits::WRITE }).collect();
    if wants.is_empty() {
        return false;
    }
    !grants.begin(caller.change, caller.session, || wants, caller.heard, caller.clock)
}
