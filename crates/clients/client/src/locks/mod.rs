//! Locks: flock and fcntl for applications, and the file's own lock for append and truncate. The
//! MDT grants them.
//!
//! A wait is a chain of requests with one cookie. The MDT holds each request back for a few seconds
//! at most, and the cookie keeps the waiter's place in the queue. A waiter that gives up sends an
//! unlock with the cookie. If a lock is granted after its waiter has gone, the client releases it.

mod held;

use std::cell::Cell;
use std::rc::Rc;

use types::{Errno, Fid};
use wire::Opcode;
use wire::body::{Claim, LockFlags, LockRep, LockReq, lock};

pub(crate) use held::Held;

use crate::client::{Client, Inner, mdt_of};
use crate::{Ctx, Error, LockConflict, LockKind, LockMode, LockSpec, Result, limits};

impl Client {
    /// Takes, changes or gives back a lock of an application. With `spec.wait` it waits until the
    /// lock is free; dropping the future ends the wait.
    ///
    /// # Errors
    /// EAGAIN if it is not free and `spec.wait` is not set; EDEADLK (fcntl); ENOLCK.
    pub async fn lock(&self, ctx: &Ctx, fid: Fid, spec: LockSpec) -> Result<()> {
        let mut request = request(ctx, fid, &spec)?;
        if spec.mode == LockMode::Unlock {
            return self.0.unlock(ctx, request).await;
        }
        request.cookie = self.0.next_number();
        self.0.acquire(ctx, request, spec.wait).await
    }

    /// Who stands in the way of a lock (F_GETLK); nobody if it could be had.
    ///
    /// # Errors
    /// ENOENT if the file is no more.
    pub async fn test_lock(
        &self,
        ctx: &Ctx,
        fid: Fid,
        spec: LockSpec,
    ) -> Result<Option<LockConflict>> {
        let request = LockReq { flags: LockFlags::TEST, ..request(ctx, fid, &spec)? };
        let reply = self
            .0
            .ask(mdt_of(fid), self.0.call(ctx, Opcode::MdtLock, &request).repeatable())
            .await?
            .reply;
        let found: LockRep = reply.body();
        let mode = if found.mode == lock::SHARED { LockMode::Shared } else { LockMode::Exclusive };
        let conflict = LockConflict { mode, start: found.start, end: found.end, pid: found.pid };
        Ok((found.state == NOT_GRANTED).then_some(conflict))
    }
}

const NOT_GRANTED: u32 = 0;
const GRANTED: u32 = 1;

fn request(ctx: &Ctx, fid: Fid, spec: &LockSpec) -> Result<LockReq> {
    let (start, end) = match spec.kind {
        LockKind::Flock => (0, u64::MAX),
        LockKind::Posix => (spec.start, spec.end),
    };
    if start >= end {
        return Err(Error::local(Errno::EINVAL, "lock").about(fid));
    }
    Ok(LockReq {
        fid: fid.into(),
        kind: if spec.kind == LockKind::Flock { lock::FLOCK } else { lock::POSIX },
        mode: match spec.mode {
            LockMode::Shared => lock::SHARED,
            LockMode::Exclusive => lock::EXCLUSIVE,
            LockMode::Unlock => lock::UNLOCK,
        },
        start,
        end,
        owner: spec.owner,
        pid: ctx.pid,
        ..LockReq::default()
    })
}

/// Where a wait stands, shared by the waiter and the task that asks on its behalf.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stage {
    Asking,
    Granted,
    /// The waiter has gone.
    GivenUp,
}

/// Ends the wait, or gives the lock back, when the waiter goes before it has its answer.
struct Waiter {
    inner: Rc<Inner>,
    ctx: Ctx,
    request: LockReq,
    stage: Rc<Cell<Stage>>,
    answered: bool,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let (inner, ctx, request) = (self.inner.clone(), self.ctx.clone(), self.request);
        let granted = self.stage.replace(Stage::GivenUp) == Stage::Granted;
        self.inner.env.spawn("lock given up", async move {
            // With the cookie it ends the wait; without it, it gives back what is held.
            let request = if granted { LockReq { cookie: 0, ..request } } else { request };
            if let Err(error) = inner.unlock(&ctx, request).await {
                tracing::debug!("a lock wait could not be ended: {error}");
            }
        });
    }
}

impl Inner {
    /// Takes a lock. The asking runs in a task of its own, so that no grant is ever lost on the
    /// way.
    async fn acquire(self: &Rc<Self>, ctx: &Ctx, request: LockReq, wait: bool) -> Result<()> {
        let stage = Rc::new(Cell::new(Stage::Asking));
        let mut waiter = Waiter {
            inner: self.clone(),
            ctx: ctx.clone(),
            request,
            stage: stage.clone(),
            answered: false,
        };
        let (inner, ctx) = (self.clone(), ctx.clone());
        let outcome = self
            .run("lock", async move { inner.ask_until_granted(&ctx, request, wait, &stage).await })
            .await;
        waiter.answered = true;
        outcome
    }

    async fn ask_until_granted(
        self: &Rc<Self>,
        ctx: &Ctx,
        request: LockReq,
        wait: bool,
        stage: &Cell<Stage>,
    ) -> Result<()> {
        let fid = Fid::from(request.fid);
        loop {
            let place = if wait { self.lock_waits.try_acquire().ok() } else { None };
            let wait_ms = if place.is_some() { limits::LOCK_WAIT_MS } else { 0 };
            let asked = LockReq { flags: LockFlags::WAIT.when(wait), wait_ms, ..request };
            let call = self.call(ctx, Opcode::MdtLock, &asked);
            let reply = self.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply;
            let found: LockRep = reply.body();
            if found.state == GRANTED {
                self.held.borrow_mut().granted(&request);
            }
            match (found.state, stage.get()) {
                (GRANTED, Stage::GivenUp) => {
                    return self.unlock(ctx, LockReq { cookie: 0, ..request }).await;
                }
                (GRANTED, _) => {
                    stage.set(Stage::Granted);
                    return Ok(());
                }
                // The waiter has sent the unlock that ends the wait.
                (_, Stage::GivenUp) => return Ok(()),
                (NOT_GRANTED, _) if !wait => {
                    return Err(Error::local(Errno::EAGAIN, "lock").about(fid));
                }
                _ => {}
            }
            if place.is_none() {
                self.env.sleep(limits::LOCK_POLL).await;
            }
        }
    }

    /// Gives a range back, or with a cookie ends that wait. ENOLCK: it would leave two ranges of
    /// one, and the MDT has no room for them; all is held as before.
    async fn unlock(self: &Rc<Self>, ctx: &Ctx, request: LockReq) -> Result<()> {
        let fid = Fid::from(request.fid);
        let request =
            LockReq { mode: lock::UNLOCK, flags: LockFlags::empty(), wait_ms: 0, ..request };
        let call = self.call(ctx, Opcode::MdtUnlock, &request);
        let answer = self.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid));
        let is_kept = matches!(&answer, Err(error) if error.errno() == Errno::ENOLCK);
        if request.cookie == 0 && !is_kept {
            self.held.borrow_mut().released(&request);
        }
        answer.map(|_| ())
    }

    /// Waits until the MDT has heard of this client within its lease: a lock that `claim`'s session
    /// took is held still. Asked before each change under such a lock. EIO where the session is
    /// over.
    pub(crate) async fn under_lease(self: &Rc<Self>, fid: Fid, claim: Claim) -> Result<()> {
        let mdt = self.remote(mdt_of(fid));
        loop {
            if mdt.claim() != claim {
                return Err(Error::local(Errno::EIO, "lock").about(fid));
            }
            if mdt.is_leased() {
                return Ok(());
            }
            self.env.sleep(limits::LEASE_LOOK).await;
        }
    }

    /// The file's own lock, exclusive: one append or truncate at a time over all clients.
    pub(crate) async fn lock_file(self: &Rc<Self>, ctx: &Ctx, fid: Fid) -> Result<FileLock> {
        let request = LockReq {
            fid: fid.into(),
            kind: lock::FILE,
            mode: lock::EXCLUSIVE,
            end: u64::MAX,
            owner: self.next_number(),
            pid: ctx.pid,
            cookie: self.next_number(),
            ..LockReq::default()
        };
        let claim = self.claim(fid);
        self.acquire(ctx, request, true).await?;
        let mut lock = FileLock {
            inner: self.clone(),
            ctx: ctx.clone(),
            request: LockReq { cookie: 0, ..request },
            claim,
            held: true,
        };
        if claim.session != 0 && claim != self.claim(fid) {
            return Err(Error::local(Errno::EIO, "lock").about(fid)); // of which session is it?
        }
        lock.claim = self.claim(fid);
        Ok(lock)
    }
}

/// The file's own lock, held. Given back by [`FileLock::unlock`], or in the background when
/// dropped.
pub(crate) struct FileLock {
    inner: Rc<Inner>,
    ctx: Ctx,
    request: LockReq,
    /// Of the session that holds it: what OSTs are told of changes under it.
    pub(crate) claim: Claim,
    held: bool,
}

impl FileLock {
    pub(crate) async fn unlock(mut self) -> Result<()> {
        self.held = false;
        self.inner.unlock(&self.ctx, self.request).await
    }
}

impl Drop for FileLock {
    fn drop(&mut self) {
        if !self.held {
            return;
        }
        let (inner, ctx, request) = (self.inner.clone(), self.ctx.clone(), self.request);
        self.inner.env.spawn("unlock", async move {
            if let Err(error) = inner.unlock(&ctx, request).await {
                tracing::debug!("a file lock could not be given back: {error}");
            }
        });
    }
}
