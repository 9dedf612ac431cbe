//! Looks at a DIRTY file, and records the size that its objects have.
//!
//! Transaction: size, blocks and times of the inode, and which stripes have an object. It has a
//! place in history and is in no client's. A crash takes it along with everything after it, and
//! then the file is DIRTY again.
//!
//! No grant is called back. Only the client that made a DIRTY file may hold its attributes, and it
//! goes on to ask the objects for the size.

use ldlm::grants::{Bits, HolderId};
use target::Decided;
use types::{ClientId, Fid, Timespec, Transno};
use wire::body::OstAttr;

use super::judge::{self, Around, Asked, Verdict};
use crate::effect::Effect;
use crate::engine::Engine;
use crate::opens::Cutter;
use crate::share::ShareKey;
use crate::state::State;
use crate::tx::Tx;

/// Stands for no client, and for no session.
const NOBODY: Cutter = Cutter { client: ClientId(u128::MAX), session: u64::MAX };
const NO_SESSION: HolderId = HolderId(u64::MAX);

/// What a look at a file comes to.
#[derive(Debug)]
pub(crate) enum Looked {
    /// Its objects are to be asked.
    Ask(Asked),
    /// They are not.
    Over(Verdict),
}

impl Around {
    /// `is_locked`: a client holds the file's own lock.
    fn of(state: &State, fid: Fid, is_locked: bool) -> Around {
        let State { opens, fences, grants, crossed, .. } = state;
        let is_reserved = || crossed.reserved.hinders(None, &[], &[ShareKey::Inode(fid)]);
        let is_held = is_locked
            || fences.is_unsure()
            || opens.is_cut_by_another(fid, NOBODY)
            || grants.called.is_held_by_another(NO_SESSION, fid, Bits::WRITE)
            || is_reserved();
        Around { writers: opens.writers(fid), epoch: opens.write_epoch(fid), is_held }
    }
}

impl Engine {
    /// Looks at a file that may be DIRTY.
    pub(crate) fn look_at_size(&self, fid: Fid, is_locked: bool) -> Decided<Looked> {
        let view = self.store.meta().running()?;
        let state = self.state.borrow();
        let mut tx = Tx::new(&*view, &state.here(), Timespec::default());
        let inode = tx.find_here(fid)?;
        let around = Around::of(&state, fid, is_locked);
        if let Some(verdict) = judge::look(inode.as_ref(), &around) {
            return Ok(Looked::Over(verdict));
        }
        let Some(inode) = inode else { return Ok(Looked::Over(Verdict::Settled)) };
        let layout = tx.layout(&inode)?;
        let layout_version = inode.attr.layout_version;
        Ok(Looked::Ask(Asked { epoch: around.epoch, layout_version, layout }))
    }

    /// Records the size of a file that `objects` add up to, in stripe order, unless something came
    /// in between. `next` draws its place in history.
    pub(crate) fn settle_size(
        &self,
        fid: Fid,
        (asked, objects): (&Asked, &[OstAttr]),
        is_locked: bool,
        next: &dyn Fn() -> Transno,
    ) -> Decided<Verdict> {
        let view = self.store.meta().running()?;
        let mut guard = self.state.borrow_mut();
        let state = &mut *guard;
        let mut tx = Tx::new(&*view, &state.here(), Timespec::default());
        let inode = tx.find_here(fid)?;
        let around = Around::of(state, fid, is_locked);
        let verdict = judge::judge(inode.as_ref(), &around, asked, objects);
        let (Verdict::Known(found), Some(mut inode)) = (&verdict, inode) else {
            return Ok(verdict);
        };
        found.record(&mut inode);
        tx.changes.push(ShareKey::Inode(fid));
        tx.put(inode);
        tx.effects.push(Effect::Cleaned(fid));
        let transno = next();
        assert!(!transno.is_none(), "a change has its place in history");
        let done = tx.finish(transno);
        drop(view);
        self.apply_by_itself(state, done, transno, None)?;
        planted::reached("mdt: the size of a file without a writer was found out");
        Ok(verdict)
    }
}
