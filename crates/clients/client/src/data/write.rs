//! Writing: one request per run of an object, in parallel. A write is acknowledged when every OST
//! has acknowledged its requests.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::Bulk;
use env::{LocalFuture, join_bounded};
use layout::FileLayout;
use types::{Errno, Extent, Instant, TargetId, Timespec};
use wire::Opcode;
use wire::body::{IoFlags, OstAttr, OstIoReq};

use super::group::{Run, runs_of};
use super::left::Left;
use super::newer::Tries;
use super::order::DataChange;
use super::set_id::drop_set_id;
use super::{OFFSET_MAX, keep, layout_for_write, place};
use crate::client::mdt_of;
use crate::flags::{O_DIRECT, O_DSYNC};
use crate::handle::Open;
use crate::{Error, Result};

/// Writes all of `data` at `offset`; O_DSYNC and O_DIRECT of `flags` count, not those of the open.
pub(crate) async fn write(
    open: &Rc<Open>,
    flags: u32,
    offset: u64,
    mut data: Bytes,
) -> Result<usize> {
    let len = data.len();
    if keep::keep(open, flags, offset, &mut data).await? {
        return Ok(len);
    }
    let _is_under_way = keep::Reshaping::begin(&open.inode);
    keep::flush(&open.inner, &open.inode).await;
    write_tried(open, flags, offset, data, Tries::new()).await
}

/// A run of writes that were acknowledged before.
pub(super) struct Sending {
    pub(super) extent: Extent,
    pub(super) data: Bytes,
    pub(super) mtime: Timespec,
    pub(super) left: Left,
    /// Room that it takes at each OST, until an OST has used it or may have done so.
    pub(super) room: RefCell<BTreeMap<TargetId, u64>>,
    /// Until when it waits for its turn, on a soft mount.
    pub(super) until: Option<Instant>,
}

/// Sends such a run. ENOSPC where not all of it found room.
pub(super) async fn write_kept(open: &Rc<Open>, sending: &Sending) -> Result<()> {
    let Sending { extent, data, mtime, until, .. } = sending;
    let mut tries = Tries::new();
    loop {
        let layout = layout_for_write(open, extent.end()).await?;
        let change = DataChange::begin(&open.inode, *extent);
        take_turn(open, &change, *until).await?;
        let write = Write {
            change: &change,
            open,
            layout: &layout,
            flags: 0,
            extent: *extent,
            left: &sending.left,
            data,
            mtime: *mtime,
            room: Some(&sending.room),
        };
        let sent = write.send().await;
        drop(change); // others may wait for it with the file's lock
        match sent {
            Err(error) if error.is_old_layout() => {
                Box::pin(tries.again(open, &layout, error)).await?; // rare and large
            }
            Ok(written) if written < data.len() => {
                return Err(Error::local(Errno::ENOSPC, "write").about(open.inode.fid));
            }
            done => return done.map(drop),
        }
    }
}

/// The same, again under a newer layout where one is refused.
pub(super) async fn write_tried(
    open: &Rc<Open>,
    flags: u32,
    offset: u64,
    data: Bytes,
    mut tries: Tries,
) -> Result<usize> {
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
    let extent = end.and_then(|end| Extent::new(offset, end));
    let extent = extent.ok_or_else(|| Error::local(Errno::EFBIG, "write").about(open.inode.fid))?;
    let left = Left::all(extent);
    loop {
        let layout = layout_for_write(open, extent.end()).await?;
        match write_under(open, &layout, flags, (extent, &left), &data).await {
            Err(error) => Box::pin(tries.again(open, &layout, error)).await?, // rare and large
            done => return done,
        }
    }
}

/// What was refused has no place among the changes under way: others may wait for those with the
/// file's lock.
async fn write_under(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    flags: u32,
    (extent, left): (Extent, &Left),
    data: &Bytes,
) -> Result<usize> {
    drop_set_id(open).await?;
    let change = DataChange::begin(&open.inode, extent);
    take_turn(open, &change, open.inner.give_up_at()).await?;
    open.wrote.set(true);
    let write = Write {
        change: &change,
        open,
        layout,
        flags,
        extent,
        left,
        data,
        mtime: open.inode.stamp(open.inner.env.wall()),
        room: None,
    };
    let written = match write.send().await {
        Err(error)
            if error.errno() == Errno::ENOSPC
                && Box::pin(open.inner.make_room(&open.ctx)).await =>
        {
            Box::pin(write.send()).await?
        }
        done => done?,
    };
    if flags & O_DSYNC != 0 && !open.inode.is_mdt_synced() {
        let (fid, layout_version) = (open.inode.fid, open.inode.layout_version());
        Box::pin(open.inner.sync_mdt(&open.ctx, mdt_of(fid), fid)).await?;
        open.inode.mdt_synced(layout_version);
    }
    Ok(written)
}

/// Writes all of `data` by a layout that is not the file's yet, stamped with `mtime`.
pub(super) async fn write_copy(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    extent: Extent,
    data: &Bytes,
    mtime: Timespec,
) -> Result<()> {
    let change = DataChange::begin(&open.inode, extent);
    take_turn(open, &change, open.inner.give_up_at()).await?;
    let left = &Left::all(extent);
    let write =
        Write { change: &change, open, layout, flags: 0, extent, left, data, mtime, room: None };
    let mut written = write.send().await;
    let is_full = |written: &Result<usize>| match written {
        Ok(written) => *written < data.len(),
        Err(error) => error.errno() == Errno::ENOSPC,
    };
    if is_full(&written) && open.inner.make_room(&open.ctx).await {
        written = write.send().await;
    }
    if is_full(&written) {
        return Err(Error::local(Errno::ENOSPC, "migrate").about(open.inode.fid));
    }
    written.map(drop)
}

/// Returns when no earlier change of the same bytes is under way. A soft mount does not wait long:
/// the earlier one may be of a caller that has given up.
async fn take_turn(open: &Open, change: &DataChange, until: Option<Instant>) -> Result<()> {
    let Some(until) = until else {
        change.turn().await;
        return Ok(());
    };
    let in_time = Box::pin(open.inner.env.timeout_at(until, change.turn())).await;
    in_time.ok_or_else(|| Error::local(Errno::ETIMEDOUT, "write").about(open.inode.fid))
}

struct Write<'w> {
    change: &'w Rc<DataChange>,
    open: &'w Rc<Open>,
    layout: &'w Rc<FileLayout>,
    flags: u32,
    extent: Extent,
    /// What of it was not executed by an earlier try.
    left: &'w Left,
    data: &'w Bytes,
    mtime: Timespec,
    /// Room that OSTs have reserved for it.
    room: Option<&'w RefCell<BTreeMap<TargetId, u64>>>,
}

impl Write<'_> {
    async fn send(&self) -> Result<usize> {
        let config = &self.open.inner.config;
        let runs = runs_of(self.layout, self.left.extents(), u64::from(config.rpc_bytes));
        let rooms = match self.room {
            Some(room) => shares(self.layout, &runs, &mut room.borrow_mut()),
            None => vec![0; runs.len()],
        };
        let results = if let [run] = &runs[..] {
            vec![self.send_run(run, rooms[0]).await]
        } else {
            let writes = runs.iter().zip(&rooms).map(|(run, room)| {
                let write: LocalFuture<'_, Result<()>> = Box::pin(self.send_run(run, *room));
                write
            });
            join_bounded(writes.collect(), config.data_rpcs_in_flight.max(1) as usize).await
        };
        if results.iter().any(Result::is_err) {
            let executed = runs.iter().zip(&results).filter(|(_, result)| result.is_ok());
            executed.for_each(|(run, _)| self.left.executed(&run.parts));
            if let Some(room) = self.room {
                take_back(self.layout, &runs, &rooms, &results, &mut room.borrow_mut());
            }
        }
        outcome(self.extent, &runs, results).map_err(|error| error.about(self.open.inode.fid))
    }

    async fn send_run(&self, run: &Run, room: u64) -> Result<()> {
        let Write { change, open, layout, flags, extent, data, mtime, room: reserved, .. } = *self;
        let (object, ost) = place(layout, run.stripe);
        let slice = |offset: u64, len: u64| {
            data.slice((offset - extent.start()) as usize..(offset - extent.start() + len) as usize)
        };
        let parts = run.parts.iter().map(|part| slice(part.file_offset, part.len)).collect();
        let durable = flags & O_DSYNC != 0;
        let direct = flags & O_DIRECT != 0;
        let attr = open.attr.borrow().to_owned();
        let claim = open.claim;
        let body = OstIoReq {
            object: object.into(),
            parent: open.inode.fid.into(),
            offset: run.object_offset,
            length: run.len as u32, // at most rpc_bytes
            flags: IoFlags::SYNC.when(durable)
                | IoFlags::DIRECT.when(direct)
                | IoFlags::RESERVED.when(reserved.is_some()),
            room,
            mtime: mtime.sec,
            mtime_nsec: mtime.nsec,
            layout_version: layout.generation(),
            uid: attr.uid,
            gid: attr.gid,
            claim,
        };
        let call =
            open.call(Opcode::OstWrite, &body).bulk(Bulk::Source(parts)).sync(durable).hold(change);
        let watch = Watch::new(open, change);
        let answer = open.inner.ask_claiming(ost, (open.inode.fid, claim), call).await?;
        watch.answered(run.stripe, answer.reply.body());
        Ok(())
    }
}

/// The room that each request says: what its own bytes need, as they come in any order. The first
/// one to an OST says what is left. Room at other OSTs stays.
fn shares(layout: &FileLayout, runs: &[Run], room: &mut BTreeMap<TargetId, u64>) -> Vec<u64> {
    let share = |run: &Run| {
        let left = room.entry(place(layout, run.stripe).1).or_default();
        let own = keep::room_of(run.object_offset, run.len).min(*left);
        *left -= own;
        own
    };
    let mut shares: Vec<u64> = runs.iter().map(share).collect();
    for (run, share) in runs.iter().zip(&mut shares) {
        *share += room.remove(&place(layout, run.stripe).1).unwrap_or(0);
    }
    shares
}

/// Requests that were refused have used no room: those of the next try say it.
fn take_back(
    layout: &FileLayout,
    runs: &[Run],
    rooms: &[u64],
    results: &[Result<()>],
    room: &mut BTreeMap<TargetId, u64>,
) {
    for ((run, bytes), result) in runs.iter().zip(rooms).zip(results) {
        if result.as_ref().is_err_and(Error::is_refusal) {
            *room.entry(place(layout, run.stripe).1).or_default() += bytes;
        }
    }
}

/// Bytes before the first that was not written; the error itself where there are none. A refusal
/// has changed nothing, so its caller may try again. An error that is no refusal comes first: a
/// server may have executed the request, or may do so later.
fn outcome(extent: Extent, runs: &[Run], results: Vec<Result<()>>) -> Result<usize> {
    let mut end = extent.end();
    let mut errors = Vec::new();
    for (run, result) in runs.iter().zip(results) {
        if let Err(error) = result {
            end = end.min(run.parts[0].file_offset);
            errors.push(error);
        }
    }
    match errors.into_iter().min_by_key(Error::is_refusal) {
        // Only a full target is told as a short write: the caller's next write gets the error.
        // Every other one might never come back, and must not be swallowed.
        Some(error)
            if end > extent.start() && matches!(error.errno(), Errno::ENOSPC | Errno::EDQUOT) => {}
        Some(error) => return Err(error),
        None => {}
    }
    Ok((end - extent.start()) as usize)
}

/// A write under way: given up before its answer, it leaves the objects to be asked.
struct Watch<'a> {
    open: &'a Open,
    change: &'a DataChange,
    generation: Option<u64>,
}

impl Watch<'_> {
    fn new<'a>(open: &'a Open, change: &'a DataChange) -> Watch<'a> {
        Watch { open, change, generation: open.inode.with_view(|view| view.write_begins()) }
    }

    fn answered(mut self, stripe: u32, object: OstAttr) {
        if let Some(generation) = self.generation.take() {
            self.open.inode.with_view(|view| view.wrote(stripe, object, generation));
        }
    }
}

impl Drop for Watch<'_> {
    fn drop(&mut self) {
        if self.generation.is_some() {
            self.change.give_up();
        }
    }
}

#[cfg(test)]
mod tests {
    use endpoint::CallError;

    use super::*;
    use crate::data::group::runs;
    use crate::limits::ROOM_OF_RUN;
    use crate::testing::layout;

    #[test]
    fn each_request_says_the_room_of_its_own_bytes() {
        const UNIT: u64 = crate::limits::ROOM_UNIT;
        const MIB: u64 = 1 << 20;
        let layout = layout(1);
        let runs = runs(&layout, Extent::new(100, MIB + 100).expect("not empty"), MIB);
        let ost = place(&layout, 0).1;
        let said = |bytes| shares(&layout, &runs, &mut BTreeMap::from([(ost, bytes)]));
        let (first, second) = (keep::room_of(100, MIB - 100), keep::room_of(MIB, 100));
        assert_eq!((first, second), (MIB + ROOM_OF_RUN, UNIT + ROOM_OF_RUN));
        let all = first + second;
        assert_eq!(said(all), [first, second]);
        assert_eq!(said(all + 7), [first + 7, second]);
        assert_eq!(said(first + 1), [first, 1]);
        assert_eq!(shares(&layout, &runs, &mut BTreeMap::new()), [0, 0]);
    }

    #[test]
    fn the_room_of_what_was_refused_is_there_for_the_next_try() {
        let layout = layout(2);
        let runs = runs(&layout, Extent::new(0, 1 << 17).expect("not empty"), 1 << 20);
        let [first, second] = [0, 1].map(|stripe| place(&layout, stripe).1);
        let elsewhere = TargetId::ost(99);
        let mut room = BTreeMap::from([(first, 10), (second, 20), (elsewhere, 30)]);
        let rooms = shares(&layout, &runs, &mut room);
        assert_eq!((&rooms[..], room.len()), (&[10, 20][..], 1));
        let refused = Err(Error::local(Errno::ENOSPC, "ost_write"));
        let late = Err(Error::call(&CallError::TimedOut, second, "ost_write"));
        take_back(&layout, &runs, &rooms, &[refused, late], &mut room);
        assert_eq!(room, BTreeMap::from([(first, 10), (elsewhere, 30)]));
    }

    #[test]
    fn a_full_target_makes_a_short_write_not_an_error() {
        let layout = layout(2);
        let extent = Extent::new(100, 1 << 17).expect("not empty");
        let runs = runs(&layout, extent, 1 << 20);
        let failed = |errno| Err(Error::local(errno, "ost_write"));
        assert_eq!(outcome(extent, &runs, vec![Ok(()), Ok(())]), Ok((1 << 17) - 100));
        assert_eq!(
            outcome(extent, &runs, vec![Ok(()), failed(Errno::ENOSPC)]),
            Ok((1 << 16) - 100)
        );
        assert_eq!(
            outcome(extent, &runs, vec![failed(Errno::ENOSPC), Ok(())]),
            Err(Error::local(Errno::ENOSPC, "ost_write"))
        );
        assert_eq!(
            outcome(extent, &runs, vec![Ok(()), failed(Errno::EIO)]),
            Err(Error::local(Errno::EIO, "ost_write"))
        );
        let evicted = || Error::call(&CallError::Evicted, TargetId::ost(1), "ost_write");
        let both = vec![failed(Errno::ENOSPC), Err(evicted())];
        assert_eq!(outcome(extent, &runs, both), Err(evicted()), "it may be executed");
    }
}
