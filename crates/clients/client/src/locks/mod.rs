//! Locks: flock and fcntl for applications, and the file's own lock for append and truncate. The
//! MDT grants them.
//!
//! A wait is a chain of requests with one cookie. The MDT holds each request back for a few seconds
//! at most, and the cookie keeps the waiter's place in the queue. A waiter that gives up sends an
//! unlock with the cookie, which ends the wait and touches nothing that is held. If a lock is
//! granted after its waiter has gone, the client restores what its owner held before.
//!
//! The MDT holds back a few requests of a client. It answers further ones at once, and calls the
//! client when the lock is free. The waiter then asks again, and the reply grants the lock. It also
//! asks again after [`limits::LOCK_ASK_AGAIN`], because a call may be lost.

mod held;
mod turns;

use std::cell::Cell;
use std::rc::Rc;

use futures_lite::future::or;
use tokio::sync::mpsc;
use types::{Errno, Fid, Span};
use wire::Opcode;
use wire::body::{Claim, LockFlags, LockRep, LockReq, lock};

pub(crate) use held::Held;
pub(crate) use turns::Turns;

use crate::client::{Client, Inner, mdt_of};
use crate::{Ctx, Error, LockConflict, LockKind, LockMode, LockSpec, Result, limits};

impl Client {
    /// Takes, changes or gives back a lock of an application. With `spec.wait` it waits until the
    /// lock is free; dropping the future ends the wait.
    ///
    /// # Errors
    /// EAGAIN if it is not free and `spec.wait` is not set; EDEADLK (fcntl); ENOLCK.
    pub async fn lock(&self, ctx: &Ctx, fid: Fid, spec: LockSpec) -> Result<()> {
        self.take_lock(ctx, fid, spec, mpsc::channel(1).0).await
    }

    /// [`Client::lock`], given up when `given_up` completes. The answer then comes after the MDT
    /// has forgotten the wait, if that answers within [`limits::LOCK_GIVE_UP`]: nothing stands in
    /// line for this caller any more, and its owner holds what it held before.
    ///
    /// # Errors
    /// EINTR if it was given up; those of [`Client::lock`].
    pub async fn lock_until(
        &self,
        ctx: &Ctx,
        fid: Fid,
        spec: LockSpec,
        given_up: impl Future<Output = ()>,
    ) -> Result<()> {
        let (under_way, mut all_ended) = mpsc::channel(1);
        let taking = async { Some(self.take_lock(ctx, fid, spec, under_way).await) };
        let interrupted = async {
            given_up.await;
            None
        };
        if let Some(answer) = or(taking, interrupted).await {
            return answer;
        }
        self.0.env.timeout(limits::LOCK_GIVE_UP, all_ended.recv()).await;
        Err(Error::local(Errno::EINTR, "lock").about(fid))
    }

    async fn take_lock(
        &self,
        ctx: &Ctx,
        fid: Fid,
        spec: LockSpec,
        under_way: UnderWay,
    ) -> Result<()> {
        let mut request = request(ctx, fid, &spec)?;
        if spec.mode == LockMode::Unlock {
            // runs to its end: what is given back must not be stated again after a restart
            let (inner, ctx) = (self.0.clone(), ctx.clone());
            return self.0.run("unlock", async move { inner.unlock(&ctx, request).await }).await;
        }
        request.cookie = self.0.next_number();
        self.0.acquire(ctx, request, spec.wait, under_way).await
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

/// How the asking for a lock ended.
enum Asked {
    Granted,
    /// The waiter has gone, and the lock was granted all the same.
    GrantedLate,
    /// The waiter has gone.
    GivenUp,
}

/// Held by everything that may still change what an owner holds; nothing is ever sent on it.
type UnderWay = mpsc::Sender<()>;

/// Ends the wait, or restores what was held, when the waiter goes before it has its answer.
struct Waiter {
    inner: Rc<Inner>,
    ctx: Ctx,
    request: LockReq,
    before: Vec<LockReq>,
    stage: Rc<Cell<Stage>>,
    answered: bool,
    under_way: UnderWay,
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if self.answered {
            return;
        }
        let (inner, ctx, request) = (self.inner.clone(), self.ctx.clone(), self.request);
        let before = std::mem::take(&mut self.before);
        let granted = self.stage.replace(Stage::GivenUp) == Stage::Granted;
        self.inner.turns.call(Fid::from(request.fid).mdt_index(), request.cookie);
        let under_way = self.under_way.clone();
        self.inner.env.spawn("lock given up", async move {
            let ended = match granted {
                true => inner.restore(&ctx, request, &before).await,
                false => inner.unlock(&ctx, request).await, // the cookie ends the wait
            };
            if let Err(error) = ended {
                tracing::debug!("a lock wait could not be ended: {error}");
            }
            drop(under_way);
        });
    }
}

impl Inner {
    /// Takes a lock. The asking runs in a task of its own, so that no grant is ever lost on the
    /// way.
    async fn acquire(
        self: &Rc<Self>,
        ctx: &Ctx,
        request: LockReq,
        wait: bool,
        under_way: UnderWay,
    ) -> Result<()> {
        let stage = Rc::new(Cell::new(Stage::Asking));
        // taking an flock in another mode gives the old one up first
        let is_flock = request.kind == lock::FLOCK;
        let before = if is_flock { Vec::new() } else { self.held.borrow().within(&request) };
        let mut waiter = Waiter {
            inner: self.clone(),
            ctx: ctx.clone(),
            request,
            before: before.clone(),
            stage: stage.clone(),
            answered: false,
            under_way: under_way.clone(),
        };
        let (inner, ctx) = (self.clone(), ctx.clone());
        let asking = async move {
            let _under_way = under_way;
            let outcome = inner.ask_until_granted(&ctx, request, wait, &stage).await?;
            match outcome {
                Asked::Granted => Ok(()),
                Asked::GrantedLate => inner.restore(&ctx, request, &before).await,
                // the unlock of the waiter may have come to the MDT first
                Asked::GivenUp => inner.unlock(&ctx, request).await,
            }
        };
        let outcome = self.run("lock", asking).await;
        waiter.answered = true;
        outcome
    }

    async fn ask_until_granted(
        self: &Rc<Self>,
        ctx: &Ctx,
        request: LockReq,
        wait: bool,
        stage: &Cell<Stage>,
    ) -> Result<Asked> {
        let fid = Fid::from(request.fid);
        let turn = self.turns.begin(fid.mdt_index(), request.cookie);
        let mut pause = limits::LOCK_POLL;
        loop {
            let place = if wait { self.lock_waits.try_acquire().ok() } else { None };
            let wait_ms = if place.is_some() { limits::LOCK_WAIT_MS } else { 0 };
            let may_call = LockFlags::CALL.when(wait && place.is_none());
            let asked =
                LockReq { flags: LockFlags::WAIT.when(wait) | may_call, wait_ms, ..request };
            let call = self.call(ctx, Opcode::MdtLock, &asked);
            let reply = self.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply;
            let found: LockRep = reply.body();
            if found.state == GRANTED {
                self.held.borrow_mut().granted(&request);
            } else if request.kind == lock::FLOCK {
                self.held.borrow_mut().released(&request);
            }
            match (found.state, stage.get()) {
                (GRANTED, Stage::GivenUp) => return Ok(Asked::GrantedLate),
                (GRANTED, _) => {
                    stage.set(Stage::Granted);
                    return Ok(Asked::Granted);
                }
                (_, Stage::GivenUp) => return Ok(Asked::GivenUp),
                (NOT_GRANTED, _) if !wait => {
                    return Err(Error::local(Errno::EAGAIN, "lock").about(fid));
                }
                _ => {}
            }
            if place.is_none() {
                if found.calls == 1 {
                    self.env.timeout(limits::LOCK_ASK_AGAIN, turn.come()).await;
                } else {
                    self.env.sleep(pause).await;
                    pause = Span(pause.0 * 2).min(limits::LOCK_POLL_MAX);
                }
                if stage.get() == Stage::GivenUp {
                    return Ok(Asked::GivenUp);
                }
            }
        }
    }

    /// A lock was granted that nobody waits for any more: its owner gets what it held `before`, and
    /// nothing else of the range. What cannot be had at once stays as it was granted.
    async fn restore(
        self: &Rc<Self>,
        ctx: &Ctx,
        request: LockReq,
        before: &[LockReq],
    ) -> Result<()> {
        let fid = Fid::from(request.fid);
        let mut free_from = request.start;
        for part in before {
            let asked = LockReq { cookie: self.next_number(), ..*part };
            let call = self.call(ctx, Opcode::MdtLock, &asked);
            let reply = self.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply;
            if reply.body::<LockRep>().state == GRANTED {
                self.held.borrow_mut().granted(part);
            }
            self.unlock_between(ctx, request, free_from, part.start).await?;
            free_from = part.end;
        }
        self.unlock_between(ctx, request, free_from, request.end).await
    }

    async fn unlock_between(
        self: &Rc<Self>,
        ctx: &Ctx,
        request: LockReq,
        start: u64,
        end: u64,
    ) -> Result<()> {
        if start >= end {
            return Ok(());
        }
        self.unlock(ctx, LockReq { start, end, cookie: 0, ..request }).await
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
        self.acquire(ctx, request, true, mpsc::channel(1).0).await?;
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
