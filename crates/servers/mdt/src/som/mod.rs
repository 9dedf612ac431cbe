//! Sizes of DIRTY files that no client writes any more. The MDT asks the objects itself and records
//! the size, so that no later `stat` asks an OST. "SOM" is Lustre's word: size on MDT.
//!
//! ```text
//!  a session has ended, and its --.
//!  fences are told                |
//!  a close leaves a file DIRTY ---+--> queue --> look --> objects of --> judge --> record
//!  the scrub, while the MDT has --'      ^                many files       |
//!  little to do: all inodes in turn      '-- later, or left to the scrub --'
//! ```
//! - [`queue`]: the files, and when each is tried.
//! - [`judge`]: whether a size may be recorded, and which. Pure.
//! - [`ask`]: the question to the OSTs.
//! - [`record`]: the look at the file, and the change.
//! - [`scrub`], [`scrubbing`]: find files that no queue knows, for example after a restart.
//!
//! All that a client had written is durable when the size is recorded. An OST acknowledges a fence
//! only after a commit, and a client that lives replays its writes to a restarted OST. An OST that
//! recovers answers no question.
//!
//! Lustre: lazy size on MDT (`mdt_som.c`), which `stat` does not use.

mod ask;
mod files;
mod judge;
mod queue;
mod record;
mod scrub;
pub(crate) mod scrubbing;

use std::rc::Rc;

use ldlm::{Kind, LockRequest, Mode, Owner};
use types::{Errno, Extent, Fid, Span};
use wire::body::OstAttr;

#[cfg(test)]
pub(crate) use self::{judge::Verdict as SizeVerdict, record::Looked as SizeLooked};

use self::ask::Away;
pub(crate) use self::files::Som;
use self::judge::{Asked, Verdict};
use self::queue::Waiting;
use self::record::Looked;
use crate::locks::Locks;
use crate::target::Mdt;

/// Files whose objects are asked for together.
const FILES_AT_ONCE: usize = 256;

/// Files that are looked at, or recorded, before others get their turn.
const FILES_IN_A_TURN: usize = 16;

/// Objects that are asked for together, but for those of one file: 16 vectors and some.
const OBJECTS_AT_ONCE: usize = 16_384;

/// Pause after such a question: requests of clients get in between.
const ROUND_PAUSE: Span = Span::millis(10);

/// How often it is looked whether recovery is over.
const RECOVERY_LOOK: Span = Span::secs(1);

impl Locks {
    /// Whether a client holds the file's own lock, as for a truncate, or is about to.
    fn is_locked(&self, fid: Fid) -> bool {
        let request = LockRequest {
            resource: fid,
            kind: Kind::File,
            owner: Owner { session: u64::MAX, id: 0 }, // no client's
            extent: Extent::ALL,
            mode: Mode::Shared,
            pid: 0,
            cookie: 0,
        };
        !self.sessions_in_the_way(&request).is_empty()
    }
}

/// Repairs files for as long as the instance runs.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    let wanted = mdt.engine.state.borrow().som.wanted.clone();
    let mut away = Away::default();
    while !mdt.is_stopped() {
        let now = mdt.env.now();
        let next = mdt.engine.state.borrow_mut().som.next(now);
        match next {
            None => wanted.notified().await,
            Some(due) if due > now => {
                let _another = mdt.env.timeout_at(due, wanted.notified()).await;
            }
            Some(_) if mdt.exports.is_recovering() => mdt.env.sleep(RECOVERY_LOOK).await,
            Some(_) => {
                round(&mdt, &mut away).await;
                mdt.env.sleep(ROUND_PAUSE).await;
            }
        }
    }
}

/// Tries some files.
async fn round(mdt: &Rc<Mdt>, away: &mut Away) {
    let now = mdt.env.now();
    let taken = mdt.engine.state.borrow_mut().som.queue.take(now, FILES_AT_ONCE);
    let (mut files, mut objects) = (Vec::<(Waiting, Asked)>::new(), 0);
    for (at, waiting) in taken.into_iter().enumerate() {
        if at % FILES_IN_A_TURN == FILES_IN_A_TURN - 1 {
            env::yield_now().await;
        }
        if objects >= OBJECTS_AT_ONCE {
            mdt.engine.state.borrow_mut().som.queue.put_back(waiting, now);
            continue;
        }
        match mdt.look_at_size(waiting.fid).await {
            Ok(Looked::Ask(asked)) => {
                objects += asked.layout.as_ref().map_or(0, |layout| layout.stripes() as usize);
                files.push((waiting, asked));
            }
            Ok(Looked::Over(verdict)) => mdt.size_ended(waiting, verdict),
            Err(errno) => mdt.size_failed(waiting, errno),
        }
    }
    let layouts: Vec<_> = files.iter().map(|(_, asked)| asked.layout.as_ref()).collect();
    let answers = ask::objects(mdt, &layouts, away).await;
    for (at, ((waiting, asked), objects)) in files.iter().zip(answers).enumerate() {
        if at % FILES_IN_A_TURN == FILES_IN_A_TURN - 1 {
            env::yield_now().await;
        }
        let Some(objects) = objects else {
            mdt.size_ended(*waiting, Verdict::Later);
            continue;
        };
        match mdt.settle_size(waiting.fid, asked, &objects).await {
            Ok(verdict) => mdt.size_ended(*waiting, verdict),
            Err(errno) => mdt.size_failed(*waiting, errno),
        }
    }
}

impl Mdt {
    async fn look_at_size(&self, fid: Fid) -> Result<Looked, Errno> {
        self.persist(|| self.engine.look_at_size(fid, self.locks.is_locked(fid))).await
    }

    async fn settle_size(
        &self,
        fid: Fid,
        asked: &Asked,
        objects: &[OstAttr],
    ) -> Result<Verdict, Errno> {
        let settle = || {
            let is_locked = self.locks.is_locked(fid);
            let next = || self.exports.next_own();
            self.engine.settle_size(fid, (asked, objects), is_locked, &next)
        };
        self.persist(settle).await
    }

    fn size_ended(&self, waiting: Waiting, verdict: Verdict) {
        let now = self.env.now();
        tracing::debug!(target: "mdt", fid = %waiting.fid, ?verdict, "a file without a writer");
        self.engine.state.borrow_mut().som.ended(waiting, verdict, now);
    }

    fn size_failed(&self, waiting: Waiting, errno: Errno) {
        tracing::debug!(target: "mdt", fid = %waiting.fid, %errno, "a size is not recorded");
        self.size_ended(waiting, Verdict::Later);
    }
}
