//! Locks of applications: the grant core of `ldlm`, and the requests that wait for its answers.
//!
//! A lock belongs to a session. A session that ends loses its own locks, but not those of the
//! client's next session.
//!
//! Locks are in memory only; clients restate them after a restart. A waiting request gives its
//! worker slot back. It is answered "still waiting" after the time that the client asked for. It
//! keeps its place for a while, so that the client can ask again with the same cookie. A client
//! that can be called ([`LockFlags::CALL`]) is answered at once, and [`calls`] lets it know when to
//! ask again.

mod calls;
mod places;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use env::Env;
use ldlm::{Conflict, Enqueued, Kind, LockRequest, LockSpace, Mode, Owner, WaitId};
use tokio::sync::{Notify, oneshot};
use types::{Errno, Extent, Fid, Span};
use wire::body::{LockFlags, LockRep, LockReq, lock as codes};

use crate::limits::{DEAD_CLIENT_CHECK, LOCK_WAIT_MS_MAX};
use places::{GONE_AT_ONCE, Places};

/// All locks of the target.
pub(crate) struct Locks {
    env: Env,
    /// How long an abandoned place is kept.
    place: Span,
    /// Waits have their turn, and their clients are to be called.
    turned: Rc<Notify>,
    inner: RefCell<Inner>,
}

#[derive(Default)]
struct Inner {
    space: LockSpace,
    answers: BTreeMap<WaitId, oneshot::Sender<()>>,
    /// Of waits without a request.
    places: Places,
    turned: Rc<Notify>,
}

impl Inner {
    /// Tells those who are granted now, and has those called that have their turn.
    fn wake(&mut self, granted: Vec<WaitId>) {
        for wait in granted {
            if let Some(answer) = self.answers.remove(&wait) {
                // Nobody there: the request was abandoned this very moment; whoever comes back
                // finds the lock held.
                let _ = answer.send(());
            }
        }
        if self.space.has_turns() {
            self.turned.notify_one();
        }
    }
}

/// The requests of a session are not answered.
fn forget(answers: &mut BTreeMap<WaitId, oneshot::Sender<()>>, session: u64) {
    let own: Vec<WaitId> = answers.range(WaitId::all_of(session)).map(|(wait, _)| *wait).collect();
    for wait in own {
        answers.remove(&wait);
    }
}

/// What a request asks of the lock space, checked.
pub(crate) struct Wanted {
    pub(crate) request: LockRequest,
    pub(crate) unlock: bool,
    pub(crate) flags: LockFlags,
    pub(crate) wait: Span,
}

impl Wanted {
    /// From the wire.
    pub(crate) fn decode(body: &LockReq, session: u64) -> Result<Wanted, Errno> {
        let kind = match body.kind {
            codes::FLOCK => Kind::Flock,
            codes::POSIX => Kind::Posix,
            codes::FILE => Kind::File,
            _ => return Err(Errno::EINVAL),
        };
        let mode = match body.mode {
            codes::SHARED => Mode::Shared,
            codes::EXCLUSIVE | codes::UNLOCK => Mode::Exclusive,
            _ => return Err(Errno::EINVAL),
        };
        let extent = match kind {
            Kind::Posix => Extent::new(body.start, body.end).ok_or(Errno::EINVAL)?,
            _ => Extent::ALL,
        };
        let request = LockRequest {
            resource: Fid::from(body.fid),
            kind,
            owner: Owner { session, id: body.owner },
            extent,
            mode,
            pid: body.pid,
            cookie: body.cookie,
        };
        let wait = Span::millis(u64::from(body.wait_ms.min(LOCK_WAIT_MS_MAX)));
        Ok(Wanted { request, unlock: body.mode == codes::UNLOCK, flags: body.flags, wait })
    }

    /// Whether it only asks.
    pub(crate) fn is_test(&self) -> bool {
        self.has(LockFlags::TEST)
    }

    /// Whether it may stand in line.
    pub(crate) fn waits(&self) -> bool {
        self.has(LockFlags::WAIT)
    }

    fn has(&self, flag: LockFlags) -> bool {
        self.flags.contains(flag)
    }
}

/// What a lock request comes to.
pub(crate) enum Locked {
    /// This is the answer.
    Now(LockRep),
    /// Wait for it.
    Later(Parked),
    /// It waits, and its client is called.
    Called,
}

/// A request in line. Dropped, it leaves its place for whoever asks again.
pub(crate) struct Parked {
    locks: Rc<Locks>,
    request: LockRequest,
    span: Span,
    answer: Option<oneshot::Receiver<()>>,
}

impl Locks {
    pub(crate) fn new(env: &Env, place: Span) -> Rc<Locks> {
        let inner = Inner::default();
        let turned = inner.turned.clone();
        Rc::new(Locks { env: env.clone(), place, turned, inner: RefCell::new(inner) })
    }

    /// Asks, tests or gives back. `restate`: locks are taken without a question.
    pub(crate) fn ask(self: &Rc<Self>, wanted: &Wanted, restate: bool) -> Result<Locked, Errno> {
        let request = wanted.request;
        if wanted.unlock && !wanted.is_test() {
            self.unlock(wanted)?;
            return Ok(Locked::Now(state(codes::GRANTED)));
        }
        let mut inner = self.inner.borrow_mut();
        if wanted.has(LockFlags::TEST) {
            return Ok(Locked::Now(
                inner
                    .space
                    .test(&request)
                    .map_or(state(codes::GRANTED), |conflict| told(&conflict)),
            ));
        }
        if wanted.has(LockFlags::RESTATE) && restate {
            let has_room = inner.space.restate(request);
            let granted = Locked::Now(state(codes::GRANTED));
            return if has_room { Ok(granted) } else { Err(Errno::ENOLCK) };
        }
        inner.places.take_up(request.wait_id());
        let (outcome, granted) = inner.space.enqueue(request, wanted.has(LockFlags::WAIT));
        inner.wake(granted);
        match outcome {
            Enqueued::Granted => {
                assert!(!inner.space.is_waiting(request.wait_id()), "a granted lock waits no more");
                inner.answers.remove(&request.wait_id());
                Ok(Locked::Now(state(codes::GRANTED)))
            }
            Enqueued::Refused => Ok(Locked::Now(state(codes::REFUSED))),
            Enqueued::Deadlock => Err(Errno::EDEADLK),
            Enqueued::Full => Err(Errno::ENOLCK),
            Enqueued::Waiting if wanted.has(LockFlags::CALL) => {
                inner.answers.remove(&request.wait_id()); // of a request before it
                inner.space.leave_to_be_called(request.wait_id());
                drop(inner);
                self.keep_place(request.wait_id());
                Ok(Locked::Called)
            }
            Enqueued::Waiting => {
                let (tell, answer) = oneshot::channel();
                // a resend takes the place of the request before it
                inner.answers.insert(request.wait_id(), tell);
                let parked = Parked {
                    locks: self.clone(),
                    request,
                    span: wanted.wait,
                    answer: Some(answer),
                };
                Ok(Locked::Later(parked))
            }
        }
    }

    /// Gives a lock back. With a cookie it ends that wait, if it still is one, and nothing that is
    /// held goes: an owner that no longer waits may hold other locks of the range. ENOLCK where it
    /// would leave more ranges than a session may have.
    fn unlock(&self, wanted: &Wanted) -> Result<(), Errno> {
        let request = wanted.request;
        let mut inner = self.inner.borrow_mut();
        let is_waiting = inner.space.is_waiting(request.wait_id());
        if request.cookie != 0 && !is_waiting {
            return Ok(());
        }
        let granted = if is_waiting {
            inner.answers.remove(&request.wait_id());
            inner.places.take_up(request.wait_id());
            inner.space.cancel(request.wait_id())
        } else if inner.space.splits_beyond(&request) {
            return Err(Errno::ENOLCK);
        } else {
            inner.space.unlock(request.resource, request.kind, request.owner, request.extent)
        };
        inner.wake(granted);
        Ok(())
    }

    /// Files that a session has locked.
    pub(crate) fn files_of(&self, session: u64) -> Vec<Fid> {
        self.inner.borrow().space.resources_of(session)
    }

    /// What a session waits for it does not get.
    pub(crate) fn end_waits(&self, session: u64) {
        let mut inner = self.inner.borrow_mut();
        forget(&mut inner.answers, session);
        inner.places.forget(session);
        let granted = inner.space.end_waits(session);
        inner.wake(granted);
    }

    /// What a session holds of one file goes.
    pub(crate) fn drop_file(&self, session: u64, file: Fid) {
        self.drop_held(|space| space.drop_file(session, file));
    }

    /// Everything of a session goes.
    pub(crate) fn drop_session(&self, session: u64) {
        self.end_waits(session);
        self.drop_held(|space| space.drop_session(session));
    }

    fn drop_held(&self, drop: impl FnOnce(&mut LockSpace) -> Vec<WaitId>) {
        let mut inner = self.inner.borrow_mut();
        let held = if planted::ON { inner.space.held_ranges() } else { 0 };
        let granted = drop(&mut inner.space);
        if planted::ON && inner.space.held_ranges() < held {
            planted::reached("mdt: a session ended with locks held");
        }
        inner.wake(granted);
    }

    /// For whom `request` waits, or was refused.
    pub(crate) fn sessions_in_the_way(&self, request: &LockRequest) -> BTreeSet<u64> {
        self.inner.borrow().space.sessions_in_the_way(request)
    }

    /// Whether another session waits for the file's own lock, which this session holds.
    pub(crate) fn is_awaited(&self, session: u64, file: Fid) -> bool {
        let inner = self.inner.borrow();
        inner.space.waiters() > 0 && inner.space.is_awaited(session, file, Kind::File)
    }

    /// Whether another session than this one holds the file's own lock: it may be cutting the
    /// objects.
    pub(crate) fn is_file_held_by_another(&self, session: u64, file: Fid) -> bool {
        self.inner.borrow().space.is_held_by_another(session, file, Kind::File)
    }

    /// Sessions whose requests are awaited from now on, because `request` is the first that waits
    /// for the file's own lock.
    pub(crate) fn hurried_by(&self, request: &LockRequest) -> BTreeSet<u64> {
        match request.kind {
            Kind::File => self.inner.borrow().space.held_up_first_by(request),
            Kind::Flock | Kind::Posix => BTreeSet::new(),
        }
    }

    /// Ranges held and requests in line.
    pub(crate) fn counts(&self) -> (usize, usize) {
        let inner = self.inner.borrow();
        (inner.space.held_ranges(), inner.space.waiters())
    }

    /// Nobody awaits the answer any more; the place goes in a while.
    fn abandon(self: &Rc<Self>, wait: WaitId) {
        {
            let mut inner = self.inner.borrow_mut();
            if !inner.space.is_waiting(wait) {
                return;
            }
            inner.answers.remove(&wait);
            inner.space.leave(wait);
        }
        self.keep_place(wait);
    }

    /// The place of a wait goes in a while, unless its client asks again.
    fn keep_place(self: &Rc<Self>, wait: WaitId) {
        let until = self.env.now() + self.place;
        let needs_sweeper = self.inner.borrow_mut().places.keep(wait, until);
        if needs_sweeper {
            self.env.spawn("mdt_lock_places", self.clone().sweep());
        }
    }

    /// Ends waits whose places go, until no place is kept. Each is kept for as long as the others,
    /// so none goes before one that was kept earlier.
    async fn sweep(self: Rc<Self>) {
        loop {
            let next = self.inner.borrow_mut().places.first_due();
            let Some(next) = next else { return };
            self.env.sleep_until(next).await;
            let mut gone = 0;
            while gone < GONE_AT_ONCE && self.end_one() {
                gone += 1;
            }
            if gone == GONE_AT_ONCE {
                env::yield_now().await;
            }
        }
    }

    /// Ends a wait whose place goes now, if there is one.
    fn end_one(&self) -> bool {
        let mut inner = self.inner.borrow_mut();
        let Some(wait) = inner.places.pop(self.env.now()) else { return false };
        let granted = inner.space.cancel(wait);
        inner.wake(granted);
        true
    }
}

impl Parked {
    /// Waits for the lock, but not for ever; `blocked_by` is told now and then who is in the way.
    pub(crate) async fn answer(mut self, blocked_by: impl Fn(u64)) -> LockRep {
        let env = self.locks.env.clone();
        let until = env.now() + self.span;
        loop {
            let check = until.min(env.now() + DEAD_CLIENT_CHECK);
            let answer = self.answer.as_mut().expect("taken only when this is over");
            match env.timeout_at(check, answer).await {
                Some(Ok(())) => {
                    self.answer = None;
                    return state(codes::GRANTED);
                }
                Some(Err(_)) => {
                    self.answer = None; // cancelled, or another request took this one's place
                    return state(codes::WAITING);
                }
                None => {
                    self.locks.sessions_in_the_way(&self.request).into_iter().for_each(&blocked_by)
                }
            }
            if env.now() >= until {
                return state(codes::WAITING);
            }
        }
    }
}

impl Drop for Parked {
    fn drop(&mut self) {
        if self.answer.is_some() {
            self.locks.abandon(self.request.wait_id());
        }
    }
}

/// What a client hears that is called later.
pub(crate) fn called_later() -> LockRep {
    LockRep { calls: 1, ..state(codes::WAITING) }
}

fn state(state: u32) -> LockRep {
    LockRep { state, ..LockRep::default() }
}

fn told(conflict: &Conflict) -> LockRep {
    LockRep {
        state: codes::REFUSED,
        mode: if conflict.mode == Mode::Shared { codes::SHARED } else { codes::EXCLUSIVE },
        start: conflict.extent.start(),
        end: conflict.extent.end(),
        pid: conflict.pid,
        ..LockRep::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn exclusive(session: u64, cookie: u64) -> Wanted {
        let body = LockReq {
            fid: Fid::new(1, 1).into(),
            kind: codes::FLOCK,
            mode: codes::EXCLUSIVE,
            flags: LockFlags::WAIT,
            cookie,
            wait_ms: 10_000,
            ..LockReq::default()
        };
        Wanted::decode(&body, session).expect("a correct request")
    }

    #[test]
    fn a_waiter_reports_the_holder_and_is_granted_after_it() {
        let sim = env_sim::Sim::new(1, env_sim::SimConfig::default());
        let node = sim.node("mdt", types::Nid::default());
        let env = node.env();
        let locks = Locks::new(&env, Span::secs(1));
        let took = sim.block_on(&node, async move {
            assert!(matches!(
                locks.ask(&exclusive(1, 1), false),
                Ok(Locked::Now(rep)) if rep.state == codes::GRANTED
            ));
            let Ok(Locked::Later(parked)) = locks.ask(&exclusive(2, 2), false) else {
                panic!("it is held")
            };
            let start = env.now();
            let dead_at = start + Span::secs(3);
            let rep = parked
                .answer(|session| {
                    if env.now() >= dead_at {
                        locks.drop_session(session)
                    }
                })
                .await;
            assert_eq!((rep.state, locks.counts()), (codes::GRANTED, (1, 0)));
            env.now() - start
        });
        assert!(took <= Span(Span::secs(3).0 + DEAD_CLIENT_CHECK.0), "{took:?}");
    }

    /// The same of a client that can be called.
    fn called(session: u64) -> Wanted {
        Wanted { flags: LockFlags::WAIT | LockFlags::CALL, ..exclusive(session, 1) }
    }

    #[test]
    fn a_client_that_asks_again_and_again_costs_one_place_and_one_task() {
        let sim = env_sim::Sim::new(1, env_sim::SimConfig::default());
        let node = sim.node("mdt", types::Nid::default());
        let env = node.env();
        let locks = Locks::new(&env, Span::secs(1));
        sim.block_on(&node, async move {
            assert!(matches!(locks.ask(&exclusive(1, 1), false), Ok(Locked::Now(_))));
            for _ in 0..1_000 {
                assert!(matches!(locks.ask(&called(2), false), Ok(Locked::Called)));
                assert!(Rc::strong_count(&locks) <= 2, "a task has a handle of its own");
                env.sleep(Span::millis(1)).await;
            }
            env.sleep(Span::millis(900)).await;
            assert_eq!(locks.counts(), (1, 1), "it asked less than a second ago");
            env.sleep(Span::millis(200)).await;
            assert_eq!((locks.counts(), Rc::strong_count(&locks)), ((1, 0), 1));
            assert!(matches!(locks.ask(&called(2), false), Ok(Locked::Called)));
            env.sleep(Span::millis(1_100)).await;
            assert_eq!(locks.counts(), (1, 0), "another task has ended this wait");
        });
    }

    #[test]
    fn a_wait_that_is_called_has_its_turn_for_a_while() {
        let sim = env_sim::Sim::new(1, env_sim::SimConfig::default());
        let node = sim.node("mdt", types::Nid::default());
        let env = node.env();
        let locks = Locks::new(&env, Span::secs(1));
        sim.block_on(&node, async move {
            let is_granted = |wanted: &Wanted| match locks.ask(wanted, false) {
                Ok(Locked::Now(rep)) => rep.state == codes::GRANTED,
                Ok(Locked::Called) => false,
                _ => panic!("it is answered at once"),
            };
            let turns = || -> Vec<u64> {
                let turns = locks.inner.borrow_mut().space.take_turns();
                turns.iter().map(|turn| turn.owner.session).collect()
            };
            assert!(is_granted(&exclusive(1, 1)));
            assert!(!is_granted(&called(2)) && !is_granted(&called(3)));
            locks.drop_session(1);
            assert_eq!(turns(), [2]);
            env.sleep(Span::millis(700)).await;
            assert!(!is_granted(&called(3)) && turns().is_empty(), "2 is before it");
            env.sleep(Span::millis(500)).await;
            assert_eq!(turns(), [3], "2 has not asked again");
            assert!(is_granted(&called(3)));
            assert_eq!(locks.counts(), (1, 0));
        });
    }

    /// `fcntl` of one owner.
    fn posix(mode: u32, start: u64, end: u64) -> Wanted {
        let fid = Fid::new(1, 1).into();
        let body = LockReq { fid, kind: codes::POSIX, mode, start, end, ..LockReq::default() };
        Wanted::decode(&body, 1).expect("a correct request")
    }

    #[test]
    fn a_refused_unlock_leaves_the_lock_as_it_was() {
        let sim = env_sim::Sim::new(1, env_sim::SimConfig::default());
        let locks = Locks::new(&sim.node("mdt", types::Nid::default()).env(), Span::secs(1));
        let ask = |wanted: &Wanted| locks.ask(wanted, false).map(|_| ());
        assert_eq!(ask(&posix(codes::EXCLUSIVE, 0, u64::MAX)), Ok(()));
        let refused = (0..).map(|n| ask(&posix(codes::UNLOCK, 2 * n + 1, 2 * n + 2)));
        let refused = refused.take_while(Result::is_ok).count();
        let held = locks.counts().0;
        assert_eq!(held, refused + 1);
        assert!(held * ldlm::RANGE_BYTES <= ldlm::HELD_BYTES_OF_SESSION_MAX, "{held}");
        let hole = 2 * held as u64 - 1;
        assert_eq!(ask(&posix(codes::UNLOCK, hole, hole + 1)), Err(Errno::ENOLCK));
        assert_eq!(ask(&posix(codes::EXCLUSIVE, 1, 2)), Err(Errno::ENOLCK));
        assert_eq!(locks.counts().0, held);
        assert_eq!(ask(&posix(codes::UNLOCK, 0, u64::MAX)), Ok(()));
        assert_eq!(locks.counts(), (0, 0));
    }
}
