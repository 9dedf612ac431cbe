//! A graph of waits: which caller waits for which lock, answer or notification of one kernel.
//!
//! ```text
//!  caller --> lock --> its holders, and earlier ones in its queue
//!  caller --> answer of the daemon --> notification that the daemon's work on it awaits
//!  notification --> lock
//! ```
//! Each party waits for all that its edges lead to. So the members of a circle wait for ever, and
//! the run fails when the circle closes.
//!
//! Waits of the daemon for a server or another mount are not in the graph. A wait that goes through
//! another task of the daemon is not either.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::fmt;
use std::future::poll_fn;
use std::rc::Rc;
use std::sync::Arc;

use env::LocalFuture;
use tokio::sync::{Mutex, OwnedMutexGuard, OwnedRwLockReadGuard, OwnedRwLockWriteGuard, RwLock};

use crate::Who;

/// A member of the graph.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Party {
    /// By its thread.
    Caller(u32),
    /// By the number of its request.
    Answer(u64),
    /// By its number.
    Notification(u64),
}

impl From<Who> for Party {
    fn from(who: Who) -> Party {
        Party::Caller(who.thread)
    }
}

impl fmt::Display for Party {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Party::Caller(thread) => write!(f, "caller {thread}"),
            Party::Answer(request) => write!(f, "the answer to request {request}"),
            Party::Notification(number) => write!(f, "notification {number}"),
        }
    }
}

/// A lock of the kernel, by the node id of its inode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Lock {
    Inode(u64),
    Page(u64),
    /// The turn to look a name up.
    Name(u64, Vec<u8>),
}

impl fmt::Display for Lock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Lock::Inode(node) => write!(f, "the lock of inode {node}"),
            Lock::Page(node) => write!(f, "the page of inode {node}"),
            Lock::Name(dir, name) => {
                write!(f, "the turn of '{}' in inode {dir}", String::from_utf8_lossy(name))
            }
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Shared,
    Alone,
}

#[derive(Debug)]
enum For {
    Lock(Lock, Mode),
    Party(Party),
}

impl fmt::Display for For {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            For::Lock(lock, Mode::Shared) => write!(f, "{lock}, shared"),
            For::Lock(lock, Mode::Alone) => write!(f, "{lock}, alone"),
            For::Party(party) => write!(f, "{party}"),
        }
    }
}

struct Wait {
    number: u64,
    party: Party,
    target: For,
}

struct Hold {
    number: u64,
    party: Party,
    lock: Lock,
    mode: Mode,
}

/// Pure. Numbers rise, so an earlier wait for a lock is before a later one in its queue.
#[derive(Default)]
struct Graph {
    last: u64,
    waits: Vec<Wait>,
    holds: Vec<Hold>,
}

impl Graph {
    fn number(&mut self) -> u64 {
        self.last += 1;
        self.last
    }

    fn wait(&mut self, party: Party, target: For) -> u64 {
        let number = self.number();
        self.waits.push(Wait { number, party, target });
        number
    }

    fn hold(&mut self, party: Party, lock: Lock, mode: Mode) -> u64 {
        let number = self.number();
        self.holds.push(Hold { number, party, lock, mode });
        number
    }

    /// A wait or a hold is over.
    fn remove(&mut self, number: u64) {
        self.waits.retain(|wait| wait.number != number);
        self.holds.retain(|hold| hold.number != number);
    }

    /// Nothing waits for the party any more.
    fn ended(&mut self, party: Party) {
        self.waits.retain(|wait| !matches!(wait.target, For::Party(of) if of == party));
    }

    /// All for which a party waits, each of them.
    fn blockers(&self, party: Party) -> Vec<Party> {
        let mut blockers = Vec::new();
        for wait in self.waits.iter().filter(|wait| wait.party == party) {
            match &wait.target {
                For::Party(of) => blockers.push(*of),
                For::Lock(lock, mode) => blockers.extend(self.before(wait.number, lock, *mode)),
            }
        }
        blockers
    }

    /// Holders of a lock that exclude a wait for it, and the waits that are before it in the queue.
    fn before(&self, number: u64, lock: &Lock, mode: Mode) -> Vec<Party> {
        let excludes =
            |hold: &&Hold| hold.lock == *lock && (mode == Mode::Alone || hold.mode == Mode::Alone);
        let is_ahead = |wait: &&Wait| {
            let is_of_lock = matches!(&wait.target, For::Lock(of, _) if of == lock);
            is_of_lock && wait.number < number
        };
        let holders = self.holds.iter().filter(excludes).map(|hold| hold.party);
        holders.chain(self.waits.iter().filter(is_ahead).map(|wait| wait.party)).collect()
    }

    /// The members of a circle through `party`, each with what it waits for.
    fn circle(&self, party: Party) -> Option<Vec<String>> {
        let (mut path, mut seen) = (vec![party], BTreeSet::new());
        self.leads_back(party, party, &mut path, &mut seen)
            .then(|| path.iter().flat_map(|member| self.described(Some(*member))).collect())
    }

    fn leads_back(
        &self,
        at: Party,
        start: Party,
        path: &mut Vec<Party>,
        seen: &mut BTreeSet<Party>,
    ) -> bool {
        for next in self.blockers(at) {
            if next == start {
                return true;
            }
            if seen.insert(next) {
                path.push(next);
                if self.leads_back(next, start, path, seen) {
                    return true;
                }
                path.pop();
            }
        }
        false
    }

    /// Waits of a party, or of all.
    fn described(&self, of: Option<Party>) -> Vec<String> {
        let waits = self.waits.iter().filter(|wait| of.is_none_or(|party| wait.party == party));
        waits.map(|wait| format!("{} waits for {}", wait.party, wait.target)).collect()
    }
}

/// The graph of one kernel. Clones are the same.
#[derive(Clone, Default)]
pub(crate) struct Waits(Rc<Inner>);

#[derive(Default)]
struct Inner {
    graph: RefCell<Graph>,
    /// The request whose work runs.
    worked_on: Cell<Option<u64>>,
    notifications: Cell<u64>,
}

/// A wait or a hold, until it is dropped.
pub(crate) struct Mark {
    waits: Waits,
    number: u64,
}

impl Drop for Mark {
    fn drop(&mut self) {
        self.waits.0.graph.borrow_mut().remove(self.number);
    }
}

/// A lock that is held.
pub(crate) struct Locked<G> {
    pub(crate) guard: G,
    _hold: Mark,
}

impl Waits {
    /// # Panics
    /// The wait closes a circle.
    fn begin(&self, party: Party, target: For) -> Mark {
        let (number, circle) = {
            let mut graph = self.0.graph.borrow_mut();
            (graph.wait(party, target), graph.circle(party))
        };
        let mark = Mark { waits: self.clone(), number };
        if let Some(members) = circle {
            panic!("a circle of waits: {}", members.join("; "));
        }
        mark
    }

    fn hold<G>(&self, party: Party, lock: Lock, mode: Mode, guard: G) -> Locked<G> {
        let number = self.0.graph.borrow_mut().hold(party, lock, mode);
        Locked { guard, _hold: Mark { waits: self.clone(), number } }
    }

    pub(crate) async fn shared(
        &self,
        party: impl Into<Party>,
        lock: Lock,
        of: &Arc<RwLock<()>>,
    ) -> Locked<OwnedRwLockReadGuard<()>> {
        let party = party.into();
        let wait = self.begin(party, For::Lock(lock.clone(), Mode::Shared));
        let guard = of.clone().read_owned().await;
        drop(wait);
        self.hold(party, lock, Mode::Shared, guard)
    }

    pub(crate) async fn alone(
        &self,
        party: impl Into<Party>,
        lock: Lock,
        of: &Arc<RwLock<()>>,
    ) -> Locked<OwnedRwLockWriteGuard<()>> {
        let party = party.into();
        let wait = self.begin(party, For::Lock(lock.clone(), Mode::Alone));
        let guard = of.clone().write_owned().await;
        drop(wait);
        self.hold(party, lock, Mode::Alone, guard)
    }

    pub(crate) async fn mutex<T>(
        &self,
        party: impl Into<Party>,
        lock: Lock,
        of: &Arc<Mutex<T>>,
    ) -> Locked<OwnedMutexGuard<T>> {
        let party = party.into();
        let wait = self.begin(party, For::Lock(lock.clone(), Mode::Alone));
        let guard = of.clone().lock_owned().await;
        drop(wait);
        self.hold(party, lock, Mode::Alone, guard)
    }

    /// A caller waits for the answer to its request.
    pub(crate) fn for_answer(&self, who: Who, request: u64) -> Mark {
        self.begin(who.into(), For::Party(Party::Answer(request)))
    }

    /// A request is answered; its work may go on.
    pub(crate) fn answered(&self, request: u64) {
        self.0.graph.borrow_mut().ended(Party::Answer(request));
    }

    /// The daemon's work on a request: a notification that it awaits delays the answer.
    pub(crate) fn working(
        &self,
        request: u64,
        mut work: LocalFuture<'static, ()>,
    ) -> LocalFuture<'static, ()> {
        let waits = self.clone();
        Box::pin(poll_fn(move |cx| {
            let outer = waits.0.worked_on.replace(Some(request));
            let polled = work.as_mut().poll(cx);
            waits.0.worked_on.set(outer);
            polled
        }))
    }

    /// A new notification.
    pub(crate) fn notification(&self) -> Party {
        let number = self.0.notifications.get() + 1;
        self.0.notifications.set(number);
        Party::Notification(number)
    }

    /// The outcome of a notification. The daemon's work on a request waits for it where it polls
    /// this.
    pub(crate) fn outcome<T: 'static>(
        &self,
        notification: Party,
        mut outcome: LocalFuture<'static, T>,
    ) -> LocalFuture<'static, T> {
        let (waits, mut wait) = (self.clone(), None);
        Box::pin(poll_fn(move |cx| {
            let polled = outcome.as_mut().poll(cx);
            if polled.is_ready() {
                wait = None;
            } else if wait.is_none() {
                let answer = waits.0.worked_on.get().map(Party::Answer);
                wait = answer.map(|answer| waits.begin(answer, For::Party(notification)));
            }
            polled
        }))
    }

    /// All waits, for people.
    pub(crate) fn described(&self) -> Vec<String> {
        self.0.graph.borrow().described(None)
    }
}

#[cfg(test)]
mod tests {
    use super::Mode::{Alone, Shared};
    use super::Party::{Answer, Caller, Notification};
    use super::*;

    const DIR: Lock = Lock::Inode(1);
    const FILE: Lock = Lock::Inode(7);
    const PAGE: Lock = Lock::Page(7);

    #[test]
    fn two_callers_that_lock_in_opposite_orders_are_a_circle() {
        let mut graph = Graph::default();
        graph.hold(Caller(1), DIR, Alone);
        graph.hold(Caller(2), FILE, Alone);
        graph.wait(Caller(1), For::Lock(FILE, Alone));
        assert_eq!(graph.circle(Caller(1)), None, "the other one goes on");
        let last = graph.wait(Caller(2), For::Lock(DIR, Shared));
        let members = graph.circle(Caller(2)).expect("each waits for the other");
        assert_eq!(
            members,
            [
                "caller 2 waits for the lock of inode 1, shared",
                "caller 1 waits for the lock of inode 7, alone"
            ]
        );
        graph.remove(last);
        assert_eq!(graph.circle(Caller(1)), None);
    }

    #[test]
    fn a_shared_lock_is_waited_for_only_behind_a_caller_that_wants_it_alone() {
        let mut graph = Graph::default();
        graph.hold(Caller(1), DIR, Shared);
        let again = graph.wait(Caller(1), For::Lock(DIR, Shared));
        assert_eq!(graph.circle(Caller(1)), None);
        graph.remove(again);
        graph.wait(Caller(2), For::Lock(DIR, Alone));
        graph.wait(Caller(1), For::Lock(DIR, Shared));
        assert!(graph.circle(Caller(1)).is_some(), "the queue is in order");
    }

    #[test]
    fn an_answer_that_waits_for_a_notification_about_its_callers_page_is_a_circle() {
        let mut graph = Graph::default();
        graph.hold(Caller(1), PAGE, Alone);
        graph.wait(Caller(1), For::Party(Answer(5)));
        graph.wait(Notification(3), For::Lock(PAGE, Alone));
        assert_eq!(graph.circle(Notification(3)), None, "the READ does not wait for it");
        graph.wait(Answer(5), For::Party(Notification(3)));
        let members = graph.circle(Answer(5)).expect("the READ waits for it");
        assert_eq!(members.len(), 3, "{members:?}");
        graph.ended(Answer(5));
        assert_eq!(graph.circle(Answer(5)), None, "it was answered");
    }

    #[test]
    fn a_wait_beside_a_circle_is_not_in_it() {
        let mut graph = Graph::default();
        graph.hold(Caller(1), DIR, Alone);
        graph.wait(Caller(1), For::Lock(DIR, Alone));
        graph.wait(Caller(2), For::Lock(DIR, Alone));
        assert_eq!(graph.circle(Caller(1)).map(|members| members.len()), Some(1));
        assert_eq!(graph.circle(Caller(2)), None);
        assert_eq!(graph.described(None).len(), 2);
    }
}
