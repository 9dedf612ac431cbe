//! Handles of files that are open for reading, as clients state them to an MDT that restarted. No
//! replay brings these back, because such an open is not a change.
//!
//! A client states them after its replays and before it is done. Until the recovery ends, no file
//! without a name goes. So a file that one client has open stays, whatever another one replays.
//!
//! Permissions are not asked for, because the mode may have changed since the open. Of a handle
//! that its client cannot have had, or has closed, nothing is taken. The same holds where the file
//! is gone, or if the seal of a directory's handle is not this store's ([`crate::handle_seal`]). A
//! handle without a seal is from an older client or an older MDT. It keeps its directory, which its
//! client lists only if the mode allows that. The client need not hear of all this: its next
//! request with the handle is refused.

use osd::{StoreError, Table, View};
use target::Decided;
use types::{ClientId, Fid};
use wire::body::OpenWord;

use super::open::{open_file, wants_write};
use crate::engine::Engine;
use crate::handle_seal::seal;
use crate::opens::OpenFile;
use crate::record::Inode;
use crate::state::State;

/// Opens the handles that a client states in a session. Repeating it changes nothing.
pub(crate) fn take(
    engine: &Engine,
    (client, session): (ClientId, u64),
    stated: &[OpenWord],
) -> Decided<()> {
    if engine.config.bugs.forget_open_replay() {
        return Ok(());
    }
    let view = engine.store.meta().running()?;
    for open in stated.iter().filter(|open| !wants_write(open.open_flags)) {
        let Some(inode) = inode_of(&*view, open.fid.into())? else { continue };
        let mut state = engine.state.borrow_mut();
        let is_sound = !inode.attr.is_dir() || is_sealed(&state, client, open);
        if is_sound && may_be_open(&state, (client, session), open) {
            let file = open_file(&inode, open.open_flags, false, (client, session));
            let lists = file.lists && open.seal != 0;
            state.opens.open(open.handle, OpenFile { lists, ..file }, None, None);
        }
    }
    Ok(())
}

/// Whether the seal of a directory's handle is right, or missing.
fn is_sealed(state: &State, client: ClientId, open: &OpenWord) -> bool {
    let right = || seal(state.hash_key, open.handle, (open.fid.into(), client));
    open.seal == 0 || open.seal == right()
}

/// Whether an earlier run can have given this handle, its client has not closed it, and there is
/// room for it.
fn may_be_open(state: &State, (client, session): (ClientId, u64), open: &OpenWord) -> bool {
    let opens = &state.opens;
    let has_room = || opens.get(open.handle).is_some() || !opens.are_too_many(session);
    opens.may_have_been(open.handle, open.fid.into(), client)
        && !state.closed.contains(&open.handle)
        && has_room()
}

/// The file of a handle. One whose record is damaged counts as gone, and keeps no other from being
/// taken.
fn inode_of(view: &dyn View, fid: Fid) -> Result<Option<Inode>, StoreError> {
    match view.get(Table::Inodes, &fid.to_key()) {
        Ok(stored) => Ok(stored.and_then(|stored| Inode::decode(&stored))),
        Err(StoreError::Damaged { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}
