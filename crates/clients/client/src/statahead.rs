//! Names that are asked for before a kernel looks them up, and files whose size is found out then.
//!
//! ```text
//!  LOOKUP f10 -- pattern --> f11 .. f26 in one request --> names and attributes under grants
//!  LOOKUP f11 -- on its way: waits for that request ------> answered from the grant
//! ```
//! An answer that was asked ahead is used only under a grant. A name that the MDT calls back
//! meanwhile, or does not grant, is looked up again. So a file that is being written gains nothing
//! but its name. **AGL** asks the objects of dirty files that nothing seems to write any more. It
//! offers their size to the MDT, which grants their attributes from then on.
//!
//! [`series`] decides which names are asked for. Lustre: `statahead.c`.

mod series;
mod state;

use std::rc::Rc;

use types::Fid;

use self::series::Ahead;
pub use self::series::Stats as StataheadStats;
pub(crate) use self::state::Statahead;
use crate::client::{Client, Inner};
use crate::grants::Gift;
use crate::{Ctx, limits};

impl Client {
    /// Names that are asked ahead at most; zero: none are.
    #[must_use]
    pub fn statahead_max(&self) -> u32 {
        self.0.statahead.max.get()
    }

    /// Sets that, up to [`limits::STATAHEAD_MAX`].
    pub fn set_statahead_max(&self, names: u32) {
        self.0.statahead.max.set(names.min(limits::STATAHEAD_MAX));
    }

    /// Whether objects of files are asked ahead too.
    #[must_use]
    pub fn statahead_agl(&self) -> bool {
        self.0.statahead.agl.get()
    }

    /// Whether they are from now on.
    pub fn set_statahead_agl(&self, is_on: bool) {
        self.0.statahead.agl.set(is_on);
    }

    /// What was asked ahead, and how it was used.
    #[must_use]
    pub fn statahead_stats(&self) -> StataheadStats {
        self.0.statahead.series.borrow().stats
    }

    /// Counts from zero again.
    pub fn clear_statahead_stats(&self) {
        self.0.statahead.series.borrow_mut().stats = StataheadStats::default();
    }
}

impl Inner {
    /// A kernel looks a name up: asks for those that it is likely to look up next. Says whether the
    /// answer about this one is on its way. `is_known`: it is answered without a request.
    pub(crate) fn look_ahead_of(
        self: &Rc<Self>,
        ctx: &Ctx,
        dir: Fid,
        name: &[u8],
        is_known: bool,
    ) -> bool {
        let max = self.statahead.max.get();
        if max == 0 || !self.grants.has_kernel() {
            return false;
        }
        let now = self.env.now();
        let step = self.statahead.series.borrow_mut().looked_up((dir, name), is_known, max, now);
        if let Some(ahead) = step.ahead {
            let (inner, ctx) = (self.clone(), ctx.clone());
            self.env.spawn("statahead", async move { inner.run_ahead(&ctx, ahead).await });
        }
        step.waits
    }

    async fn run_ahead(self: Rc<Self>, ctx: &Ctx, ahead: Ahead) {
        let agl = self.statahead.agl.get();
        let asked = self.ask_ahead(ctx, (ahead.dir, &ahead.names), agl).await;
        let stats = asked.unwrap_or_else(|error| {
            tracing::debug!(%error, "names are not asked ahead");
            Vec::new()
        });
        // a lookup believes no other answer
        let of_use = stats.iter().filter(|stat| stat.name_lease == Gift::Called).count();
        self.statahead.series.borrow_mut().answered(&ahead, of_use);
        self.statahead.answered.notify_waiters(); // no lookup waits for an OST
        let calls = &self.statahead.agl_calls;
        if !agl || calls.get() >= limits::AGL_IN_FLIGHT {
            return;
        }
        calls.set(calls.get() + 1);
        match self.settle_quiet(ctx, stats).await {
            Ok(files) => self.statahead.series.borrow_mut().stats.agl_total += files as u64,
            Err(error) => tracing::debug!(%error, "objects are not asked ahead"),
        }
        calls.set(calls.get() - 1);
    }

    /// Returns when no answer about a name is on its way, which may be as long as a server is away.
    pub(crate) async fn arrived(&self, dir: Fid, name: &[u8]) {
        loop {
            let answered = self.statahead.answered.notified();
            if !self.statahead.series.borrow().is_under_way(dir, name) {
                return;
            }
            answered.await;
        }
    }
}
