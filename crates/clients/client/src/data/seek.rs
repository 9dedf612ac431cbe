//! SEEK_DATA and SEEK_HOLE: asks every object from the first of its bytes behind the offset. The
//! answer that is first in the file wins. A missing or short object is a hole up to the end of the
//! file. The end of the file counts as a hole.

use std::rc::Rc;

use env::LocalFuture;
use layout::{FileLayout, StripeSet};
use types::Errno;
use wire::Opcode;
use wire::body::{OstSeekRep, OstSeekReq};

use super::keep::flush;
use super::newer::Tries;
use super::{OFFSET_MAX, place};
use crate::handle::Open;
use crate::join::try_join;
use crate::{Error, Result, SeekFor, limits};

/// First data or hole of the file at or behind `offset`.
pub(crate) async fn seek(open: &Rc<Open>, what: SeekFor, offset: u64) -> Result<u64> {
    flush(&open.inner, &open.inode).await;
    let mut tries = Tries::new();
    loop {
        let Some(layout) = open.newest_layout().await?.filter(|_| offset < OFFSET_MAX) else {
            return Err(refused(open)); // there are no bytes without a layout, nor so far out
        };
        match seek_under(open, &layout, what, offset).await {
            Err(error) => tries.again(open, &layout, error).await?,
            done => return done,
        }
    }
}

fn refused(open: &Open) -> Error {
    Error::local(Errno::ENXIO, "seek").about(open.inode.fid)
}

pub(super) async fn seek_under(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    what: SeekFor,
    offset: u64,
) -> Result<u64> {
    let objects: Vec<LocalFuture<'_, Result<OstSeekRep>>> = (0..layout.stripes())
        .map(|stripe| Box::pin(ask(open, layout, what, stripe, offset)) as _)
        .collect();
    let objects = try_join(objects, limits::BATCH_RPCS_MAX)
        .await
        .map_err(|error| error.about(open.inode.fid))?;
    let lost = open.inode.stripes_of(layout).without(&there(&objects));
    open.inner.check_lost(&open.ctx, open.inode.fid, layout, lost).await?;
    answer(layout, &objects, what, offset).ok_or_else(|| refused(open))
}

async fn ask(
    open: &Rc<Open>,
    layout: &FileLayout,
    what: SeekFor,
    stripe: u32,
    offset: u64,
) -> Result<OstSeekRep> {
    let (object, ost) = place(layout, stripe);
    let claim = open.claim;
    let body = OstSeekReq {
        object: object.into(),
        offset: layout.object_offset(stripe, offset),
        what: u32::from(what == SeekFor::Hole),
        parent: open.inode.fid.into(),
        claim,
        layout_version: layout.generation(),
    };
    let call = open.call(Opcode::OstSeek, &body);
    Ok(open.inner.ask_claiming(ost, (open.inode.fid, claim), call).await?.reply.body())
}

/// Stripes that have an object.
fn there(objects: &[OstSeekRep]) -> StripeSet {
    let there = objects.iter().zip(0u32..).filter(|(object, _)| object.exists != 0);
    there.map(|(_, stripe)| stripe).collect()
}

/// The file's answer; nothing where `offset` is at or behind the end, or no data follows.
fn answer(layout: &FileLayout, objects: &[OstSeekRep], what: SeekFor, offset: u64) -> Option<u64> {
    let sizes: Vec<_> =
        objects.iter().map(|object| (object.exists != 0).then_some(object.size)).collect();
    let size = layout.file_size(&sizes);
    if offset >= size {
        return None;
    }
    let places = objects.iter().zip(0..).filter_map(|(object, stripe)| {
        let from = layout.object_offset(stripe, offset);
        let found = match what {
            SeekFor::Data => (object.offset != u64::MAX).then_some(object.offset)?,
            SeekFor::Hole if object.offset == u64::MAX => from.max(object.size),
            SeekFor::Hole => object.offset,
        };
        layout.file_offset(stripe, found)
    });
    let first = places.min();
    match what {
        SeekFor::Data => first.filter(|first| *first < size),
        SeekFor::Hole => Some(first.unwrap_or(size).min(size)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::layout;

    const S: u64 = 1 << 16;

    fn object(offset: u64, size: u64) -> OstSeekRep {
        OstSeekRep { offset, size, exists: 1, ..OstSeekRep::default() }
    }

    #[test]
    fn the_first_object_in_the_file_wins() {
        let two = layout(2);
        let data = [object(S, 2 * S), object(0, S)];
        assert_eq!(answer(&two, &data, SeekFor::Data, 0), Some(S));
        let holes = [object(2 * S, 2 * S), object(S, S)];
        assert_eq!(answer(&two, &holes, SeekFor::Hole, 0), Some(3 * S));
    }

    #[test]
    fn a_missing_or_short_object_is_a_hole_within_the_file() {
        let two = layout(2);
        let missing = [object(10, 10), OstSeekRep { offset: u64::MAX, ..OstSeekRep::default() }];
        assert_eq!(
            answer(&two, &missing, SeekFor::Hole, 0),
            Some(10),
            "the end of the file is a hole"
        );
        let short = [object(10, 10), object(5, 5)];
        assert_eq!(answer(&two, &short, SeekFor::Hole, 0), Some(10));
        let behind =
            |found| [OstSeekRep { offset: u64::MAX, ..OstSeekRep::default() }, object(found, 5)];
        assert_eq!(answer(&two, &behind(5), SeekFor::Hole, 7), Some(7));
        assert_eq!(answer(&two, &behind(0), SeekFor::Data, 7), Some(S));
    }

    #[test]
    fn behind_the_end_there_is_neither() {
        let one = layout(1);
        assert_eq!(answer(&one, &[object(u64::MAX, 10)], SeekFor::Data, 10), None);
        assert_eq!(answer(&one, &[object(u64::MAX, 10)], SeekFor::Hole, 10), None);
        assert_eq!(answer(&one, &[object(u64::MAX, 10)], SeekFor::Data, 5), None);
    }
}
