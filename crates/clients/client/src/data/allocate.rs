//! fallocate: allocates space, punches holes and writes zeros under the file's EX lock. Without the
//! lock, a concurrent truncate could leave objects that belong to no file.
//!
//! ```text
//! lock EX - each object its share of the range - unlock
//! ```
//! A range of the file is one range of each object. If the file may grow, all objects get their
//! space first and the size changes last. A full OST must leave the size as it was. Once begun, the
//! call runs to its end. It makes this client's knowledge of the objects stale, so the close asks
//! for their attributes. The close also waits for a change whose caller was killed.

use std::rc::Rc;

use env::LocalFuture;
use layout::FileLayout;
use types::{Errno, Extent, Timespec};
use wire::Opcode;
use wire::body::{OstFallocateReq, fallocate};

use super::keep::{Reshaping, flush};
use super::newer::Tries;
use super::order::LockedChange;
use super::{OFFSET_MAX, layout_for_write, place};
use crate::handle::Open;
use crate::join::try_join;
use crate::{Error, Result, limits};

/// A range of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Share {
    stripe: u32,
    offset: u64,
    length: u64,
}

/// Changes `length` bytes from `offset` as `mode` says.
pub(crate) async fn allocate(open: &Rc<Open>, mode: u32, offset: u64, length: u64) -> Result<()> {
    let refused = |errno| Error::local(errno, "fallocate").about(open.inode.fid);
    if !fallocate::is_known(mode) {
        return Err(refused(Errno::EOPNOTSUPP));
    }
    if length == 0 {
        return Err(refused(Errno::EINVAL));
    }
    let end = offset.checked_add(length).filter(|end| *end <= OFFSET_MAX);
    let extent =
        end.and_then(|end| Extent::new(offset, end)).ok_or_else(|| refused(Errno::EFBIG))?;
    let _may_grow = Reshaping::begin(&open.inode);
    flush(&open.inner, &open.inode).await;
    let _is_under_way = LockedChange::begin(&open.inode);
    let behind = if mode & fallocate::PUNCH_HOLE == 0 { end.unwrap_or(0) } else { 0 };
    layout_for_write(open, behind).await?;
    super::set_id::drop_set_id(open).await?;
    open.wrote.set(true);
    let lock = open.inner.lock_file(&open.ctx, open.inode.fid).await?;
    let done = match open.check_lost("fallocate") {
        Ok(()) => allocate_newest(open, behind, mode, extent).await,
        Err(error) => Err(error),
    };
    lock.unlock().await.and(done)
}

/// Under the layout that nobody changes while the lock is held.
async fn allocate_newest(open: &Rc<Open>, behind: u64, mode: u32, extent: Extent) -> Result<()> {
    let mut tries = Tries::locked();
    loop {
        let layout = layout_for_write(open, behind).await?;
        // other clients may have got places for bytes of a hole since this one asked
        let layout = match mode & fallocate::PUNCH_HOLE {
            0 => layout,
            _ => open.newest_layout().await?.unwrap_or(layout),
        };
        match allocate_locked(open, &layout, mode, extent).await {
            Err(error) => tries.again(open, &layout, error).await?,
            done => return done,
        }
    }
}

async fn allocate_locked(
    open: &Rc<Open>,
    layout: &Rc<FileLayout>,
    mode: u32,
    extent: Extent,
) -> Result<()> {
    open.inode.with_view(|view| view.reshaped(layout.stripes()));
    let shares = shares(layout, extent);
    let now = open.inode.stamp(open.inner.env.wall());
    if mode & fallocate::KEEP_SIZE == 0 && shares.len() > 1 {
        send(open, layout, fallocate::ALLOCATE | fallocate::KEEP_SIZE, &shares, now).await?;
    }
    send(open, layout, mode, &shares, now).await
}

/// The same change of a range by a layout that is not the file's yet, stamped with `mtime`.
pub(super) async fn reshape(
    open: &Rc<Open>,
    layout: &FileLayout,
    mode: u32,
    extent: Extent,
    mtime: Timespec,
) -> Result<()> {
    send(open, layout, mode, &shares(layout, extent), mtime).await
}

/// What the range is in each object that it touches.
fn shares(layout: &FileLayout, extent: Extent) -> Vec<Share> {
    let share = |stripe| {
        let offset = layout.object_offset(stripe, extent.start());
        Share { stripe, offset, length: layout.object_offset(stripe, extent.end()) - offset }
    };
    (0..layout.stripes()).map(share).filter(|share| share.length > 0).collect()
}

async fn send(
    open: &Rc<Open>,
    layout: &FileLayout,
    mode: u32,
    shares: &[Share],
    now: Timespec,
) -> Result<()> {
    match send_all(open, layout, mode, shares, now).await {
        Err(error) if error.errno() == Errno::ENOSPC && open.inner.make_room(&open.ctx).await => {
            send_all(open, layout, mode, shares, now).await
        }
        done => done,
    }
}

async fn send_all(
    open: &Rc<Open>,
    layout: &FileLayout,
    mode: u32,
    shares: &[Share],
    now: Timespec,
) -> Result<()> {
    let calls = shares.iter().map(|share| {
        let call: LocalFuture<'_, Result<()>> = Box::pin(send_one(open, layout, mode, *share, now));
        call
    });
    try_join(calls.collect(), limits::BATCH_RPCS_MAX)
        .await
        .map_err(|error| error.about(open.inode.fid))?;
    Ok(())
}

async fn send_one(
    open: &Rc<Open>,
    layout: &FileLayout,
    mode: u32,
    share: Share,
    now: Timespec,
) -> Result<()> {
    let (object, ost) = place(layout, share.stripe);
    let claim = open.claim;
    let body = OstFallocateReq {
        object: object.into(),
        parent: open.inode.fid.into(),
        offset: share.offset,
        length: share.length,
        mtime: now.sec,
        mtime_nsec: now.nsec,
        mode,
        claim,
        layout_version: layout.generation(),
        reserved: 0,
    };
    open.inner.under_lease(open.inode.fid, claim).await?;
    let call = open.call(Opcode::OstFallocate, &body);
    open.inner.ask_claiming(ost, (open.inode.fid, claim), call).await.map(|_| ())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::layout;

    /// The pieces of the extent, those of one object put together.
    fn joined(layout: &FileLayout, extent: Extent) -> Vec<Share> {
        let mut joined: Vec<Share> = Vec::new();
        for piece in layout.pieces(extent) {
            match joined.iter_mut().find(|share| share.stripe == piece.stripe) {
                Some(share) => {
                    assert_eq!(share.offset + share.length, piece.object_offset);
                    share.length += piece.len;
                }
                None => joined.push(Share {
                    stripe: piece.stripe,
                    offset: piece.object_offset,
                    length: piece.len,
                }),
            }
        }
        joined.sort_by_key(|share| share.stripe);
        joined
    }

    #[test]
    fn the_shares_are_the_pieces_joined() {
        const EDGES: [u64; 9] = [0, 1, 65_535, 65_536, 65_537, 131_072, 200_000, 327_680, 1 << 20];
        for stripes in 1..6 {
            for start in EDGES {
                for len in EDGES.iter().skip(1) {
                    let (layout, extent) =
                        (layout(stripes), Extent::new(start, start + len).expect("not empty"));
                    assert_eq!(
                        shares(&layout, extent),
                        joined(&layout, extent),
                        "{stripes} {start}+{len}"
                    );
                }
            }
        }
    }
}
