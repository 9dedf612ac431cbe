//! Locks that this client holds, so that it can state them again to an MDT that restarted.
//!
//! Invariant: ranges of one owner on one file and of one kind do not overlap.
//!
//! Pure.

use std::collections::BTreeMap;

use endpoint::Call;
use types::Fid;
use wire::body::{LockFlags, LockReq};
use wire::{Opcode, encode_body};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Range {
    start: u64,
    end: u64,
    mode: u32,
    pid: u32,
}

/// All locks held, by file, kind and owner.
#[derive(Debug, Default)]
pub(crate) struct Held(BTreeMap<(Fid, u32, u64), Vec<Range>>);

impl Held {
    /// `request` was granted: it replaces what its owner held there.
    pub(crate) fn granted(&mut self, request: &LockReq) {
        let ranges = self.0.entry(key(request)).or_default();
        cut(ranges, request.start, request.end);
        ranges.push(Range {
            start: request.start,
            end: request.end,
            mode: request.mode,
            pid: request.pid,
        });
        ranges.sort_unstable_by_key(|range| range.start);
    }

    /// The range of `request` is given back.
    pub(crate) fn released(&mut self, request: &LockReq) {
        let key = key(request);
        if let Some(ranges) = self.0.get_mut(&key) {
            cut(ranges, request.start, request.end);
            if ranges.is_empty() {
                self.0.remove(&key);
            }
        }
    }

    /// What the owner of `request` holds within its range, by place: requests that take as much.
    pub(crate) fn within(&self, request: &LockReq) -> Vec<LockReq> {
        let ranges = self.0.get(&key(request)).map_or(&[][..], Vec::as_slice);
        let within = ranges.iter().map(|range| LockReq {
            mode: range.mode,
            start: range.start.max(request.start),
            end: range.end.min(request.end),
            pid: range.pid,
            flags: LockFlags::empty(),
            wait_ms: 0,
            cookie: 0,
            ..*request
        });
        within.filter(|part| part.start < part.end).collect()
    }

    /// An MDT has forgotten them.
    pub(crate) fn lose(&mut self, mdt: u32) {
        self.0.retain(|(fid, ..), _| fid.mdt_index() != mdt);
    }

    /// One request for each range of files of an MDT.
    pub(crate) fn restate(&self, mdt: u32) -> Vec<Call> {
        self.requests()
            .filter(|request| Fid::from(request.fid).mdt_index() == mdt)
            .map(|request| Call::new(Opcode::MdtLock, vec![encode_body(&request)]).repeatable())
            .collect()
    }

    fn requests(&self) -> impl Iterator<Item = LockReq> + '_ {
        self.0.iter().flat_map(|((fid, kind, owner), ranges)| {
            ranges.iter().map(|range| LockReq {
                fid: (*fid).into(),
                kind: *kind,
                mode: range.mode,
                start: range.start,
                end: range.end,
                owner: *owner,
                pid: range.pid,
                flags: LockFlags::RESTATE,
                ..LockReq::default()
            })
        })
    }
}

fn key(request: &LockReq) -> (Fid, u32, u64) {
    (request.fid.into(), request.kind, request.owner)
}

/// Takes `[start, end)` out of the ranges.
fn cut(ranges: &mut Vec<Range>, start: u64, end: u64) {
    let mut left = Vec::with_capacity(ranges.len() + 1);
    for range in ranges.drain(..) {
        if range.start < start {
            left.push(Range { end: range.end.min(start), ..range });
        }
        if range.end > end {
            left.push(Range { start: range.start.max(end), ..range });
        }
    }
    *ranges = left;
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::body::lock::{EXCLUSIVE, POSIX, SHARED};

    fn request(start: u64, end: u64, mode: u32) -> LockReq {
        LockReq { kind: POSIX, mode, start, end, owner: 7, ..LockReq::default() }
    }

    fn text(held: &Held) -> String {
        let mode = |mode| if mode == SHARED { 'r' } else { 'w' };
        held.requests()
            .map(|r| format!("{}{}-{}", mode(r.mode), r.start, r.end))
            .collect::<Vec<_>>()
            .join(" ")
    }

    #[test]
    fn a_later_lock_of_the_same_owner_replaces_the_range() {
        let mut held = Held::default();
        held.granted(&request(0, 100, SHARED));
        held.granted(&request(40, 60, EXCLUSIVE));
        assert_eq!(text(&held), "r0-40 w40-60 r60-100");
        held.released(&request(50, 80, 0));
        assert_eq!(text(&held), "r0-40 w40-50 r80-100");
        held.granted(&request(0, u64::MAX, EXCLUSIVE));
        assert_eq!(text(&held), format!("w0-{}", u64::MAX));
        held.released(&request(0, u64::MAX, 0));
        assert_eq!((text(&held), held.0.len()), (String::new(), 0));
    }

    #[test]
    fn what_is_held_within_a_range_is_cut_to_it() {
        let mut held = Held::default();
        held.granted(&request(0, 10, SHARED));
        held.granted(&request(20, 40, EXCLUSIVE));
        let within = |start, end| -> Vec<(u64, u64, u32)> {
            let parts = held.within(&request(start, end, EXCLUSIVE));
            parts.iter().map(|part| (part.start, part.end, part.mode)).collect()
        };
        assert_eq!(within(5, 30), [(5, 10, SHARED), (20, 30, EXCLUSIVE)]);
        assert_eq!(within(10, 20), []);
        assert!(held.within(&LockReq { owner: 8, ..request(0, 100, 0) }).is_empty());
    }

    #[test]
    fn owners_do_not_touch_each_other() {
        let mut held = Held::default();
        held.granted(&request(0, 10, SHARED));
        held.released(&LockReq { owner: 8, ..request(0, 10, 0) });
        assert_eq!(text(&held), "r0-10");
        assert!(held.restate(0).iter().all(|call| call.opcode == Opcode::MdtLock));
    }
}
