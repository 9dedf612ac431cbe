//! Clients that the MDT has given up, and that an OST may still take writes from.

use layout::Striping;
use target::Decided;
use types::Fid;
use wire::SizeState;

use crate::fences::Fences;
use crate::record::Inode;
use crate::tx::Tx;

/// What a client that the MDT has given up may still write to a file, as far as that is not known.
/// Only its OSTs know then what the file has, once they refuse that client.
pub(crate) fn is_unfenced(fences: &Fences, tx: &Tx<'_>, fid: Fid) -> Decided<bool> {
    if !fences.is_unsure() {
        return Ok(false);
    }
    let is_written =
        |inode: &Inode| inode.attr.is_file() && inode.attr.size_state() == SizeState::Dirty;
    let Some(inode) = tx.before(fid)?.filter(is_written) else { return Ok(false) };
    let record = tx.layout_record(&inode)?;
    let osts: Vec<u32> = match Striping::decode(fid, &record) {
        Ok(Striping::Layout(layout)) => layout.osts().collect(),
        _ => Vec::new(),
    };
    Ok(fences.is_unsure_of(&osts))
}
