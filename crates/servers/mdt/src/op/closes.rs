//! closes of several files: each is what [`super::close`] does, and all are one change.
//!
//! Transaction: all of them, with one place in history and one stored reply, which has a record for
//! each close. So a resend gets the answers of the first time, and after a crash either all are
//! done or none is. A replay repeats each close by its own record. A close that was refused is
//! refused again.
//!
//! A handle that is not known is an error of its own close (EBADF). Some closes cannot go with
//! others. Two of one file cannot, because the second depends on the first. One that has to wait
//! for an operation of several MDTs cannot, because all others would wait too. Nor can files go
//! together that have no name and very many records ([`CLOSES_CHANGES_MAX`]). On a full store no
//! closes can, because their stored reply would take much of the reserve. Then nothing is done
//! (EAGAIN), and the caller sends each close by itself.

use std::collections::BTreeSet;

use layout::StripeSet;
use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::body::{AttrRep, CLOSES_MAX, CloseReq, closes as closes_of};
use wire::stats::{self, StatRecord};
use wire::{Reply, Request};

use super::close::close_one;
use crate::limits::CLOSES_CHANGES_MAX;
use crate::op::{Answer, ClosedAnswer, Op};
use crate::tx::Finished;

/// The handle that the stored reply of a single close says is closed.
pub(crate) fn handle(reply: &Reply) -> Vec<u64> {
    vec![reply.body::<AttrRep>().handle]
}

/// The same of several closes; zero where one was refused.
pub(crate) fn handles(reply: &Reply) -> Vec<u64> {
    let records = stats::decode(&reply.buf(1), CLOSES_MAX).unwrap_or_default();
    records.iter().map(|record| record.rep.handle).collect()
}

impl Answer {
    /// What a request with several closes answers.
    pub(crate) fn closed_files(&mut self) -> &mut [StatRecord] {
        match self {
            Answer::Closed(answer) => &mut answer.files,
            Answer::Attr(_) | Answer::Page(_) | Answer::Many(_) | Answer::Bufs(_) => &mut [],
        }
    }

    /// The files that such an answer tells of, with their new versions from now on.
    pub(crate) fn closed_after(&mut self, done: &Finished) -> Vec<Fid> {
        let told = self.closed_files().iter_mut().filter(|record| record.errno == 0);
        let versioned = told.map(|StatRecord { rep, .. }| {
            let fid = rep.attr.fid();
            rep.attr.version = done.version(fid).unwrap_or(rep.attr.version);
            fid
        });
        versioned.collect()
    }
}

pub(crate) fn closes(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let asked = closes_of(op.request).ok_or(Errno::EINVAL)?;
    if has_two_of_a_file(op, &asked) {
        return Err(Errno::EAGAIN.into());
    }
    let first = match op.replay {
        Some(_) => Some(first_answers(op.request, asked.len())?),
        None => None,
    };
    let mut files = Vec::with_capacity(asked.len());
    for (at, body) in asked.iter().enumerate() {
        let first = first.as_ref().map(|first| &first[at]);
        files.push(one(op, body, first)?);
        if op.replay.is_none() && op.tx.set.changes.len() > CLOSES_CHANGES_MAX {
            return Err(Errno::EAGAIN.into());
        }
    }
    let reserved = &op.state.crossed.reserved;
    if op.replay.is_none() && reserved.hinders(None, &op.tx.decides, &op.tx.changes) {
        planted::reached("mdt: closes had to go one by one");
        return Err(Errno::EAGAIN.into());
    }
    assert_eq!(files.len(), asked.len(), "each close is answered");
    Ok(Answer::Closed(ClosedAnswer { files }))
}

fn has_two_of_a_file(op: &Op<'_, '_>, asked: &[CloseReq]) -> bool {
    let mut seen = BTreeSet::new();
    let mut files = asked.iter().filter_map(|close| op.state.opens.get(close.handle));
    files.any(|open| !seen.insert(open.fid))
}

/// What the first run answered, as a replay brings it back.
fn first_answers(request: &Request, count: usize) -> Decided<Vec<StatRecord>> {
    let bytes = request.replay_buf(1).unwrap_or_default();
    let first = stats::decode(&bytes, CLOSES_MAX).filter(|first| first.len() == count);
    Ok(first.ok_or(Errno::EINVAL)?)
}

/// One close. What is wrong with it alone is its own answer.
fn one(op: &mut Op<'_, '_>, body: &CloseReq, first: Option<&StatRecord>) -> Decided<StatRecord> {
    if let Some(first) = first.filter(|first| first.errno != 0) {
        return Ok(refused(first.errno));
    }
    op.replay = first.map(|first| first.rep);
    match close_one(op, body, &StripeSet::from(body.stripes)) {
        Ok(Some((inode, handle))) => {
            let rep = AttrRep {
                attr: inode.attr,
                handle,
                write_epoch: op.state.opens.write_epoch(inode.fid()),
                mtime_set: inode.mtime_set.sec,
                mtime_set_nsec: inode.mtime_set.nsec,
                stripes: inode.stripes.first_part(),
                ..AttrRep::default()
            };
            Ok(StatRecord { rep, ..StatRecord::default() })
        }
        Ok(None) => Ok(StatRecord::default()),
        // what else is wrong may have to do with what others are doing
        Err(OpError::Refused(errno)) if errno == Errno::EBADF || first.is_some() => {
            Ok(refused(errno.raw().unsigned_abs()))
        }
        Err(OpError::Refused(_)) => Err(Errno::EAGAIN.into()),
        Err(error) => Err(error),
    }
}

fn refused(errno: u32) -> StatRecord {
    StatRecord { errno, ..StatRecord::default() }
}

/// The files that a request names.
pub(crate) fn files(request: &Request) -> Vec<Fid> {
    let asked = closes_of(request).unwrap_or_default();
    asked.into_iter().map(|close| close.fid.into()).collect()
}

/// The file of a close.
pub(crate) fn file(request: &Request) -> Vec<Fid> {
    vec![request.body::<CloseReq>().fid.into()]
}
