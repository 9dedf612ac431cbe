//! Closes the open handles of an ended session: all of them, or those of one file.

use types::{ClientId, Fid};

use crate::engine::Engine;
use crate::opens::Cutter;
use crate::state::State;

impl Engine {
    /// Closes what a session has open, a writer that is gone may have written anything; says which
    /// files those were.
    pub(crate) fn close_session(&self, client: ClientId, session: u64) -> Vec<Fid> {
        let mut state = self.state.borrow_mut();
        let handles = state.opens.of_session(client, session);
        let (fids, mut dirty) = close(&mut state, handles);
        dirty.extend(state.opens.cuts_ended(Cutter { client, session }));
        dirty.into_iter().for_each(|fid| state.som.found(fid));
        fids
    }

    /// The same of one file; says whether the session had it open.
    pub(crate) fn close_file(&self, client: ClientId, session: u64, fid: Fid) -> bool {
        let mut state = self.state.borrow_mut();
        let mut handles = state.opens.of_session(client, session);
        handles.retain(|handle| state.opens.get(*handle).is_some_and(|open| open.fid == fid));
        let (fids, dirty) = close(&mut state, handles);
        dirty.into_iter().for_each(|fid| state.som.found(fid));
        state.opens.lock_ended(session, fid);
        !fids.is_empty()
    }
}

/// Closes handles of clients that are gone. Returns their files, and those that may have been
/// written.
fn close(state: &mut State, handles: Vec<u64>) -> (Vec<Fid>, Vec<Fid>) {
    let (mut fids, mut dirty) = (Vec::new(), Vec::new());
    for handle in handles {
        let open = state.opens.get(handle);
        fids.extend(open.map(|open| open.fid));
        dirty.extend(open.filter(|open| open.write).map(|open| open.fid));
        state.opens.close(handle, true, false);
    }
    fids.sort_unstable();
    fids.dedup();
    (fids, dirty)
}
