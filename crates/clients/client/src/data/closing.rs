//! Closes that wait for others at their MDT.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};

use tokio::sync::oneshot;
use types::{Fid, Instant, Xid};
use wire::body::{CLOSES_MAX, CloseReq};

use crate::grants::Scope;
use crate::stat::Stat;
use crate::{Ctx, Result};

/// A close as it is sent.
pub(crate) struct ReadyClose {
    pub(crate) body: CloseReq,
    /// Stripes from 64 on that have an object, as they are sent. With some it is sent alone.
    pub(crate) more_stripes: Vec<u8>,
    /// The request that opened.
    pub(crate) open: Xid,
    pub(crate) ctx: Ctx,
    pub(crate) projid: u32,
    /// What it changes of what is cached; nothing: it changes nothing.
    pub(crate) scope: Option<Scope>,
}

impl ReadyClose {
    pub(super) fn fid(&self) -> Fid {
        self.body.fid.into()
    }

    pub(super) fn mdt(&self) -> u32 {
        self.fid().mdt_index()
    }

    /// Whether servers treat both as requests of the same caller.
    pub(super) fn has_caller_of(&self, other: &ReadyClose) -> bool {
        (&self.ctx.creds, self.ctx.jobid, self.projid)
            == (&other.ctx.creds, other.ctx.jobid, other.projid)
    }
}

/// One that waits, and its caller.
pub(super) struct Waiting {
    pub(super) ready: ReadyClose,
    pub(super) since: Instant,
    pub(super) done: oneshot::Sender<Result<Stat>>,
}

/// Closes at one MDT.
#[derive(Default)]
pub(super) struct Line {
    /// Requests whose end lets the next ones go.
    pub(super) under_way: u32,
    pub(super) waiting: VecDeque<Waiting>,
}

impl Line {
    /// The first one that waits, and those that can go with it.
    pub(super) fn take(&mut self) -> Vec<Waiting> {
        let mut together: Vec<Waiting> = self.waiting.pop_front().into_iter().collect();
        let mut left = VecDeque::new();
        while together.len() < CLOSES_MAX
            && let Some(next) = self.waiting.pop_front()
        {
            let goes = |with: &Waiting| {
                next.ready.has_caller_of(&with.ready) && next.ready.fid() != with.ready.fid()
            };
            if together.iter().all(goes) { together.push(next) } else { left.push_back(next) }
        }
        left.append(&mut self.waiting);
        self.waiting = left;
        together
    }
}

/// Closes of one mount, by the MDT.
#[derive(Default)]
pub(crate) struct Closes(RefCell<BTreeMap<u32, Line>>);

impl Closes {
    pub(super) fn at<T>(&self, mdt: u32, work: impl FnOnce(&mut Line) -> T) -> T {
        work(self.0.borrow_mut().entry(mdt).or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Files and callers of closes that wait; how many go with each request, and the files of the
    /// first one.
    fn check(waiting: &[(u32, u32)], sent: &[usize], first: &[u32]) {
        let mut line = Line::default();
        for (file, caller) in waiting {
            let fid = Fid::new(0x2_0000_0401, *file);
            let ready = ReadyClose {
                body: CloseReq { fid: fid.into(), ..CloseReq::default() },
                more_stripes: Vec::new(),
                open: Xid(1),
                ctx: Ctx::user(*caller, 1),
                projid: 0,
                scope: None,
            };
            let done = oneshot::channel().0;
            line.waiting.push_back(Waiting { ready, since: Instant::default(), done });
        }
        let mut taken = Vec::new();
        while !line.waiting.is_empty() {
            taken.push(line.take().iter().map(|of| of.ready.fid().oid).collect::<Vec<_>>());
        }
        assert_eq!(taken.iter().map(Vec::len).collect::<Vec<_>>(), sent);
        assert_eq!(taken[0], first);
    }

    #[test]
    fn closes_of_one_caller_and_different_files_go_together() {
        check(&[(1, 7)], &[1], &[1]);
        check(&[(1, 7), (2, 7), (3, 7)], &[3], &[1, 2, 3]);
        check(&[(1, 7), (1, 7), (2, 7)], &[2, 1], &[1, 2]);
        check(&[(1, 7), (2, 8), (3, 7), (4, 8)], &[2, 2], &[1, 3]);
    }

    #[test]
    fn one_request_has_so_many_at_most() {
        let waiting: Vec<(u32, u32)> = (1..=2 * CLOSES_MAX as u32 + 1).map(|at| (at, 7)).collect();
        let first: Vec<u32> = (1..=CLOSES_MAX as u32).collect();
        check(&waiting, &[CLOSES_MAX, CLOSES_MAX, 1], &first);
    }
}
