//! Reading: one request per run of an object, in parallel. Short runs are filled with zeros up to
//! the file's size.
//!
//! The client asks for the size only if a run came back short, and only from the objects that did
//! not just answer. If a run was short although the file continues behind it, the client reads the
//! run once more. A write may have been acknowledged between this run's answer and the others, and
//! this read must show its bytes. A missing object that must exist is EIO (`exist`).
//!
//! Bytes that came with the open of a small file need no request (`on_open`).

use std::rc::Rc;

use bytes::Bytes;
use endpoint::Bulk;
use env::LocalFuture;
use layout::{FileLayout, StripeSet};
use types::{Errno, Extent};
use wire::Opcode;
use wire::body::{IoFlags, OstAttr, OstIoReq};

use super::glimpse::{Objects, Question};
use super::group::{Run, runs};
use super::newer::{Tries, check_told};
use super::{OFFSET_MAX, keep, place, read_on_open};
use crate::handle::Open;
use crate::join::try_join;
use crate::{Error, Result, flags};

/// What an OST returned for a run.
#[derive(Clone)]
struct Got {
    data: Bytes,
    object: OstAttr,
}

/// Up to `len` bytes from `offset`, in the pieces in which they came.
pub(crate) async fn read(open: &Rc<Open>, offset: u64, len: usize) -> Result<Vec<Bytes>> {
    if open.flags & flags::O_NOATIME == 0 {
        open.inode
            .access
            .borrow_mut()
            .read(open.inner.access_times.get().reads, open.inner.env.wall());
    }
    let end = offset.saturating_add(len as u64).min(OFFSET_MAX);
    let Some(extent) = Extent::new(offset, end) else { return Ok(Vec::new()) };
    keep::flush(&open.inner, &open.inode).await;
    if let Some(pieces) = read_on_open::read(open, extent) {
        return Ok(pieces);
    }
    let mut tries = Tries::new();
    loop {
        let Some(layout) = open.layout_for_read().await? else { return Ok(Vec::new()) };
        match read_newest(open, &layout, extent, len).await {
            Err(error) => tries.again(open, &layout, error).await?,
            done => return done,
        }
    }
}

/// By `layout`, or by the newest one where that has no objects.
async fn read_newest(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    extent: Extent,
    len: usize,
) -> Result<Vec<Bytes>> {
    let pieces = read_under(open, layout, extent).await?;
    let bytes: usize = pieces.iter().map(Bytes::len).sum();
    let is_blind = open.inner.config.bugs.believe_holes();
    if layout.is_whole() || is_blind || (bytes == len && !layout.misses(extent.end())) {
        return Ok(pieces);
    }
    // where this layout has no objects yet, somebody may have written meanwhile
    let newest = open.newest_layout().await?.unwrap_or_else(|| layout.clone());
    if newest.generation() == layout.generation() {
        return Ok(pieces);
    }
    read_under(open, &newest, extent).await
}

/// What `layout` has of `extent`.
pub(super) async fn read_under(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    extent: Extent,
) -> Result<Vec<Bytes>> {
    let runs = runs(layout, extent, u64::from(open.inner.config.rpc_bytes));
    let mut got = fetch(open, layout, &runs).await?;
    check_current(open, layout, &got).await?;
    let is_full = got.iter().zip(&runs).all(|(got, run)| got.data.len() as u64 == run.len);
    if is_full && !layout.misses(extent.end()) && extent.end() <= layout.end() {
        return Ok(assemble(extent.start(), extent.end(), &runs, got));
    }
    let mut size = size_after(open, layout, extent.end(), &runs, &got).await?;
    let again: Vec<_> =
        (0..runs.len()).filter(|index| misses(&runs[*index], &got[*index], size)).collect();
    // Of one run too: its bytes may have come between its answer and that about the size.
    if !again.is_empty() {
        let once_more: Vec<_> = again.iter().map(|index| runs[*index].clone()).collect();
        let fresh = fetch(open, layout, &once_more).await?;
        check_current(open, layout, &fresh).await?;
        for (index, fresh) in again.into_iter().zip(fresh) {
            size =
                size.max(layout.file_size(&sizes(layout, &[(runs[index].stripe, fresh.object)])));
            got[index] = fresh;
        }
    }
    Ok(assemble(extent.start(), extent.end().min(size), &runs, got))
}

/// An object that is not there may have gone with the layout that named it: then the file's bytes
/// are elsewhere. While the MDT grants the file's attributes or its writes, no other client gives
/// it a layout.
async fn check_current(open: &Rc<Open>, layout: &FileLayout, got: &[Got]) -> Result<()> {
    let fid = open.inode.fid;
    let is_missing = got.iter().any(|got| got.object.exists == 0);
    let grants = open.inner.grants.of(fid);
    if !is_missing || grants.believed(fid).is_some() || grants.may_write(fid) {
        return Ok(());
    }
    match open.ask_layout().await? {
        Some(newest) if newest.generation() != layout.generation() => {
            Err(Error::local(Errno::ESTALE, "ost_read").about(fid))
        }
        _ => Ok(()),
    }
}

/// Whether the file has bytes that the run should have brought and did not.
fn misses(run: &Run, got: &Got, size: u64) -> bool {
    let mut left = got.data.len() as u64;
    for part in &run.parts {
        if left < part.len {
            return part.file_offset + left < size;
        }
        left -= part.len;
    }
    false
}

/// The file's size, at least whether it reaches `end`.
async fn size_after(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    end: u64,
    runs: &[Run],
    got: &[Got],
) -> Result<u64> {
    let mut objects = Objects::new();
    for (run, got) in runs.iter().zip(got) {
        objects.insert(run.stripe, got.object);
    }
    let known: Vec<_> = objects.iter().map(|(stripe, object)| (*stripe, *object)).collect();
    let seen = layout.file_size(&sizes(layout, &known));
    let stripes: Vec<_> =
        (0..layout.stripes()).filter(|stripe| !objects.contains_key(stripe)).collect();
    if seen >= end || stripes.is_empty() {
        return Ok(seen);
    }
    let question = Question { layout: layout.clone(), stripes };
    let found = open
        .inner
        .glimpse(&open.ctx, &[question])
        .await
        .map_err(|error| error.about(open.inode.fid))?;
    check_told(layout, &found[0])?;
    let missing = found[0].iter().filter(|(_, object)| object.exists == 0);
    let missing: StripeSet = missing.map(|(stripe, _)| *stripe).collect();
    let lost = missing.common(&open.inode.stripes_of(layout));
    open.inner.check_lost(&open.ctx, open.inode.fid, layout, lost).await?;
    let found: Vec<_> = found[0].iter().map(|(stripe, object)| (*stripe, *object)).collect();
    Ok(seen.max(layout.file_size(&sizes(layout, &found))))
}

fn sizes(layout: &FileLayout, objects: &[(u32, OstAttr)]) -> Vec<Option<u64>> {
    let mut sizes = vec![None; layout.stripes() as usize];
    for (stripe, object) in objects.iter().filter(|(_, object)| object.exists != 0) {
        sizes[*stripe as usize] = Some(object.size);
    }
    sizes
}

async fn fetch(open: &Rc<Open>, layout: &Rc<FileLayout>, runs: &[Run]) -> Result<Vec<Got>> {
    if let [run] = runs {
        return Ok(vec![fetch_run(open, layout, run).await?]);
    }
    let reads: Vec<LocalFuture<'_, Result<Got>>> =
        runs.iter().map(|run| Box::pin(fetch_run(open, layout, run)) as _).collect();
    try_join(reads, open.inner.config.data_rpcs_in_flight.max(1) as usize).await
}

async fn fetch_run(open: &Rc<Open>, layout: &FileLayout, run: &Run) -> Result<Got> {
    let must_exist =
        !open.inner.config.bugs.forget_must_exist() && open.inode.must_exist(run.stripe);
    match fetch_object(open, layout, run, must_exist).await {
        Err(error) if must_exist && error.errno() == Errno::EIO => {
            let lost: StripeSet = [run.stripe].into_iter().collect();
            let still_lost = open.inner.still_lost(&open.ctx, open.inode.fid, &lost).await?;
            match still_lost.is_empty() {
                true => fetch_object(open, layout, run, false).await,
                false => Err(error),
            }
        }
        fetched => fetched,
    }
}

async fn fetch_object(
    open: &Rc<Open>,
    layout: &FileLayout,
    run: &Run,
    must_exist: bool,
) -> Result<Got> {
    let (object, ost) = place(layout, run.stripe);
    let claim = open.claim;
    let body = OstIoReq {
        object: object.into(),
        parent: open.inode.fid.into(),
        offset: run.object_offset,
        length: run.len as u32, // at most rpc_bytes
        flags: IoFlags::DIRECT.when(open.flags & flags::O_DIRECT != 0)
            | IoFlags::MUST_EXIST.when(must_exist),
        layout_version: layout.generation(),
        claim,
        ..OstIoReq::default()
    };
    let call = open.call(Opcode::OstRead, &body).bulk(Bulk::Sink(run.len as usize));
    let answer = open
        .inner
        .ask_claiming(ost, (open.inode.fid, claim), call)
        .await
        .map_err(|error| error.about(open.inode.fid))?;
    let mut data = answer.data;
    data.truncate(run.len as usize);
    Ok(Got { data, object: answer.reply.body() })
}

/// Pieces as one; a single one is not copied.
pub(crate) fn joined(mut pieces: Vec<Bytes>) -> Bytes {
    if pieces.len() == 1 { pieces.remove(0) } else { pieces.concat().into() }
}

/// The runs' bytes in the order of the file, from `start` to `end`; what they do not have is zeros.
fn assemble(start: u64, end: u64, runs: &[Run], got: Vec<Got>) -> Vec<Bytes> {
    let mut pieces: Vec<(u64, Bytes)> = Vec::with_capacity(runs.len());
    for (run, got) in runs.iter().zip(got) {
        let mut data = got.data;
        for part in &run.parts {
            let mut piece = data.split_to(data.len().min(part.len as usize));
            piece.truncate(end.saturating_sub(part.file_offset) as usize);
            if !piece.is_empty() {
                pieces.push((part.file_offset, piece));
            }
        }
    }
    pieces.sort_unstable_by_key(|(offset, _)| *offset);
    let mut whole = Vec::with_capacity(pieces.len() + 1);
    let mut at = start;
    for (offset, piece) in pieces {
        fill(&mut whole, at, offset);
        at = offset + piece.len() as u64;
        whole.push(piece);
    }
    fill(&mut whole, at, end);
    whole
}

/// Zeros from `at` to `until`.
fn fill(whole: &mut Vec<Bytes>, at: u64, until: u64) {
    if at < until {
        whole.push(Bytes::from(vec![0; (until - at) as usize]));
    }
}

impl Open {
    /// Nothing where the file has no layout: then it has no bytes either.
    pub(super) async fn layout_for_read(self: &Rc<Self>) -> Result<Option<Rc<FileLayout>>> {
        if let Some(layout) = self.inode.layout() {
            return Ok(Some(layout));
        }
        self.ask_layout().await
    }

    /// The layout by the MDT's word of now, unless no other can come.
    pub(super) async fn newest_layout(self: &Rc<Self>) -> Result<Option<Rc<FileLayout>>> {
        match self.inode.layout().filter(|layout| layout.is_whole()) {
            Some(layout) => Ok(Some(layout)),
            None => self.ask_layout().await,
        }
    }

    async fn ask_layout(self: &Rc<Self>) -> Result<Option<Rc<FileLayout>>> {
        let stat = self.inner.stat(&self.ctx, self.inode.fid, self.handle).await?;
        self.inode.see(&stat);
        Ok(self.inode.layout())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::layout;

    fn got(len: usize, fill: u8) -> Got {
        Got { data: Bytes::from(vec![fill; len]), object: OstAttr::default() }
    }

    #[test]
    fn stretches_land_where_they_belong_and_gaps_are_zeros() {
        let start = (1 << 16) - 2;
        let runs = runs(&layout(2), Extent::new(start, start + 5).expect("not empty"), 1 << 20);
        let whole = assemble(start, start + 5, &runs, vec![got(2, 1), got(3, 2)]);
        assert_eq!(whole, [vec![1, 1], vec![2, 2, 2]], "as they came");
        let hole = assemble(start, start + 5, &runs, vec![got(1, 1), got(2, 2)]);
        assert_eq!(&joined(hole)[..], [1, 0, 2, 2, 0]);
        let cut = assemble(start, start + 3, &runs, vec![got(2, 1), got(3, 2)]);
        assert_eq!(&joined(cut)[..], [1, 1, 2]);
        assert!(assemble(start, start - 1, &runs, vec![got(0, 1), got(0, 2)]).is_empty());
    }

    #[test]
    fn a_short_run_misses_bytes_only_inside_the_file() {
        let runs = runs(&layout(2), Extent::new(0, 1 << 18).expect("not empty"), 1 << 20);
        assert_eq!(runs.len(), 2);
        let short = got(1 << 16, 1);
        assert!(misses(&runs[0], &short, (1 << 17) + 1));
        assert!(!misses(&runs[0], &short, 1 << 17));
        assert!(!misses(&runs[0], &got(1 << 17, 1), u64::MAX));
    }
}
