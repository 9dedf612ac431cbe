//! Removes components from a file that may be open on any client. The objects of these components
//! first refuse the current layout. So every client that uses this layout asks the MDT, and no
//! client writes to objects that are about to go.
//!
//! ```text
//! lock EX - the objects refuse this generation - MDT: the components go, a later generation - unlock
//! ```
//! If the client dies in between, its objects still refuse the layout. The next client that meets
//! them gets a later generation for the layout.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use layout::{FileLayout, lov};
use types::{Errno, Fid, TargetId};
use wire::Opcode;
use wire::body::{Claim, ObjectRange, OstRaiseReq, SetxattrReq};
use zerocopy::IntoBytes;

use super::glimpse::range;
use super::keep::Reshaping;
use super::place;
use crate::client::Inner;
use crate::join::try_join;
use crate::limits::{BATCH_RPCS_MAX, LAYOUTS_TRIED_MAX, RAISE_BATCH_MAX};
use crate::xattr::LOV_DEL;
use crate::{Ctx, Error, Result};

impl Inner {
    /// Takes away the component that `value` names, and all behind it. Runs to its end once begun.
    pub(crate) async fn cut_components(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        value: Bytes,
    ) -> Result<()> {
        let _is_under_way = self.inodes.get(fid).map(|inode| Reshaping::begin(&inode));
        self.flush_file(fid).await;
        let lock = self.lock_file(ctx, fid).await?;
        let done = self.cut_components_locked(ctx, fid, value, lock.claim).await;
        lock.unlock().await.and(done)
    }

    /// The MDT refuses a layout that has changed since the objects were told (EAGAIN).
    async fn cut_components_locked(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        value: Bytes,
        claim: Claim,
    ) -> Result<()> {
        let refused = |errno| Error::local(errno, "component-del").about(fid);
        let named =
            lov::composite::inspect(&value).ok().and_then(|shown| shown.entries.first()?.id.into());
        let named: u32 = named.ok_or_else(|| refused(Errno::EINVAL))?;
        for _ in 0..LAYOUTS_TRIED_MAX {
            let stat = self.stat_exact(ctx, fid, 0).await?;
            let layout = stat.layout.ok_or_else(|| refused(Errno::ENODATA))?;
            let first = layout.first_stripe_of(named).ok_or_else(|| refused(Errno::EINVAL))?;
            let next =
                layout.generation().checked_add(1).ok_or_else(|| refused(Errno::EOVERFLOW))?;
            self.raise(ctx, fid, &layout, first, next, claim).await?;
            self.under_lease(fid, claim).await?;
            let body = SetxattrReq { fid: fid.into(), refused: next, ..SetxattrReq::default() };
            match self.set_attribute(ctx, body, LOV_DEL, value.clone()).await {
                Err(error) if error.errno() == Errno::EAGAIN => {}
                done => return done.map(drop),
            }
        }
        Err(refused(Errno::EBUSY))
    }

    /// The objects from `first` on are used under a layout of `version` or later.
    pub(super) async fn raise(
        self: &Rc<Self>,
        ctx: &Ctx,
        fid: Fid,
        layout: &FileLayout,
        first: u32,
        version: u32,
        claim: Claim,
    ) -> Result<()> {
        let body = OstRaiseReq { parent: fid.into(), claim, layout_version: version, lent: 0 };
        self.raise_as(ctx, layout, first, (&body, Bytes::new())).await
    }

    /// The objects from `first` on hear this; `more` is buffer 2, empty: there is none.
    pub(super) async fn raise_as(
        self: &Rc<Self>,
        ctx: &Ctx,
        layout: &FileLayout,
        first: u32,
        (body, more): (&OstRaiseReq, Bytes),
    ) -> Result<()> {
        let (fid, claim) = (Fid::from(body.parent), body.claim);
        let mut by_ost: BTreeMap<TargetId, Vec<ObjectRange>> = BTreeMap::new();
        for stripe in first..layout.stripes() {
            by_ost.entry(place(layout, stripe).1).or_default().push(range(layout, stripe));
        }
        let mut calls: Vec<LocalFuture<'_, Result<()>>> = Vec::new();
        for (ost, objects) in &by_ost {
            for batch in objects.chunks(RAISE_BATCH_MAX) {
                let call = self.call(ctx, Opcode::OstRaise, body);
                let call = call.buf(Bytes::copy_from_slice(batch.as_bytes()));
                let call = if more.is_empty() { call } else { call.buf(more.clone()) };
                let told = self.ask_claiming(*ost, (fid, claim), call);
                calls.push(Box::pin(async move { told.await.map(drop) }));
            }
        }
        try_join(calls, BATCH_RPCS_MAX).await.map(drop).map_err(|error| error.about(fid))
    }
}
