//! The executor: tasks of all nodes in one thread, a seeded choice among the ready, timers in
//! virtual nanoseconds.
//!
//! No outside code is called (no wake of a foreign waker, no drop of a future) while state is
//! borrowed. A dropped future closes links and removes timers, which calls this module again.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::future::Future;
use std::panic::AssertUnwindSafe;
use std::pin::Pin;
use std::rc::Rc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, Wake, Waker};

use env::LocalFuture;
use types::{Instant, Span};

use crate::Rng;
use crate::watch::Watch;

/// Ids of tasks that were woken. Behind a lock because `Waker` must be `Sync`; nobody ever
/// contends.
type Woken = Arc<Mutex<Vec<u64>>>;

struct TaskWaker {
    id: u64,
    queued: AtomicBool,
    woken: Woken,
}

impl Wake for TaskWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        if !self.queued.swap(true, Ordering::Relaxed) {
            self.woken.lock().unwrap_or_else(PoisonError::into_inner).push(self.id);
        }
    }
}

struct Entry {
    node: usize,
    name: &'static str,
    /// Absent while it is being polled.
    future: Option<LocalFuture<'static, ()>>,
    waker: Arc<TaskWaker>,
    /// Aborted while it was being polled.
    dead: bool,
}

/// What happens when a timer expires.
pub(crate) enum Event {
    Wake(Waker),
    Call(Box<dyn FnOnce()>),
}

type TimerKey = (Instant, u64);

/// Sees the end of a run step.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    /// A task was polled or a timer fired.
    Ran,
    /// Nothing to do before the limit; the clock stands there now.
    Limit,
    /// Nothing to do at all.
    Idle,
}

pub(crate) struct Executor {
    seed: u64,
    now: Cell<Instant>,
    rng: RefCell<Rng>,
    tasks: RefCell<BTreeMap<u64, Entry>>,
    next_id: Cell<u64>,
    woken: Woken,
    ready: RefCell<Vec<u64>>,
    /// Nodes that stand still, each with its tasks that are ready.
    paused: RefCell<BTreeMap<usize, Vec<u64>>>,
    timers: RefCell<BTreeMap<TimerKey, Event>>,
    next_timer: Cell<u64>,
    hash: Cell<u64>,
    polls: Cell<u64>,
    /// Shortest and longest time of a poll.
    poll_takes: (Span, Span),
    pub(crate) watch: Arc<Watch>,
    node_names: RefCell<Vec<String>>,
}

impl Executor {
    pub(crate) fn new(
        seed: u64,
        rng: Rng,
        poll_takes: (Span, Span),
        watch: Arc<Watch>,
    ) -> Executor {
        assert!(poll_takes.0 > Span::ZERO, "time passes in a run that never sleeps");
        Executor {
            seed,
            now: Cell::new(Instant(1_000_000_000)),
            rng: RefCell::new(rng),
            tasks: RefCell::default(),
            next_id: Cell::new(1),
            woken: Woken::default(),
            ready: RefCell::default(),
            paused: RefCell::default(),
            timers: RefCell::default(),
            next_timer: Cell::new(0),
            hash: Cell::new(0xcbf2_9ce4_8422_2325),
            polls: Cell::new(0),
            poll_takes,
            watch,
            node_names: RefCell::default(),
        }
    }

    pub(crate) fn now(&self) -> Instant {
        self.now.get()
    }

    pub(crate) fn polls(&self) -> u64 {
        self.polls.get()
    }

    pub(crate) fn hash(&self) -> u64 {
        self.hash.get()
    }

    /// Mixes `value` into the trace hash.
    pub(crate) fn trace(&self, value: u64) {
        self.hash
            .set((self.hash.get() ^ value).wrapping_mul(0x0000_0100_0000_01b3).rotate_left(23));
    }

    pub(crate) fn add_node(&self, name: &str) -> usize {
        self.watch.add_node(name);
        let mut names = self.node_names.borrow_mut();
        names.push(name.to_owned());
        names.len() - 1
    }

    pub(crate) fn node_name(&self, node: usize) -> String {
        self.node_names.borrow()[node].clone()
    }

    pub(crate) fn spawn(
        &self,
        node: usize,
        name: &'static str,
        future: LocalFuture<'static, ()>,
    ) -> u64 {
        let id = self.next_id.get();
        self.next_id.set(id + 1);
        let waker =
            Arc::new(TaskWaker { id, queued: AtomicBool::new(false), woken: self.woken.clone() });
        waker.wake_by_ref();
        self.tasks
            .borrow_mut()
            .insert(id, Entry { node, name, future: Some(future), waker, dead: false });
        id
    }

    pub(crate) fn abort(&self, id: u64) {
        let dropped = {
            let mut tasks = self.tasks.borrow_mut();
            match tasks.get_mut(&id) {
                Some(entry) if entry.future.is_none() => {
                    entry.dead = true;
                    None
                }
                Some(_) => tasks.remove(&id),
                None => None,
            }
        };
        drop(dropped);
    }

    /// Drops all tasks of `node`; what their destructors spawn there goes too.
    pub(crate) fn abort_node(&self, node: usize) {
        loop {
            let ids: Vec<u64> = {
                let tasks = self.tasks.borrow();
                tasks
                    .iter()
                    .filter(|(_, entry)| entry.node == node && !entry.dead)
                    .map(|(id, _)| *id)
                    .collect()
            };
            if ids.is_empty() {
                return;
            }
            for id in ids {
                self.abort(id);
            }
        }
    }

    pub(crate) fn add_timer(&self, at: Instant, event: Event) -> TimerKey {
        let key = (at, self.next_timer.get());
        self.next_timer.set(key.1 + 1);
        self.timers.borrow_mut().insert(key, event);
        key
    }

    pub(crate) fn remove_timer(&self, key: TimerKey) {
        let event = self.timers.borrow_mut().remove(&key);
        drop(event);
    }

    /// Everything that is alive, for the message of a run that is stuck.
    pub(crate) fn describe_tasks(&self) -> String {
        let names = self.node_names.borrow();
        let mut counts: BTreeMap<(&str, &str), usize> = BTreeMap::new();
        let tasks = self.tasks.borrow();
        for entry in tasks.values() {
            *counts.entry((&names[entry.node], entry.name)).or_default() += 1;
        }
        counts
            .iter()
            .map(|((node, name), count)| format!("{node}/{name} x{count}"))
            .collect::<Vec<_>>()
            .join(", ")
    }

    /// One poll of one task, or the next timers.
    pub(crate) fn step(&self, limit: Instant) -> Step {
        self.fire_due();
        self.collect_woken();
        if let Some(id) = self.choose() {
            self.poll(id);
            return Step::Ran;
        }
        let next = self.timers.borrow().keys().next().map(|key| key.0);
        match next {
            None => Step::Idle,
            Some(at) if at > limit => {
                self.set_now(self.now().max(limit));
                Step::Limit
            }
            Some(at) => {
                self.set_now(self.now().max(at));
                Step::Ran
            }
        }
    }

    pub(crate) fn set_now(&self, now: Instant) {
        assert!(now >= self.now.get(), "virtual time does not run backwards");
        self.now.set(now);
        self.watch.now.store(now.0, Ordering::Relaxed);
    }

    fn fire_due(&self) {
        loop {
            let event = {
                let mut timers = self.timers.borrow_mut();
                match timers.first_entry() {
                    Some(first) if first.key().0 <= self.now.get() => first.remove(),
                    _ => return,
                }
            };
            match event {
                Event::Wake(waker) => waker.wake(),
                Event::Call(call) => call(),
            }
        }
    }

    fn collect_woken(&self) {
        self.ready
            .borrow_mut()
            .append(&mut self.woken.lock().unwrap_or_else(PoisonError::into_inner));
    }

    fn choose(&self) -> Option<u64> {
        let mut ready = self.ready.borrow_mut();
        while !ready.is_empty() {
            let index = self.rng.borrow_mut().index(ready.len());
            let id = ready.swap_remove(index);
            let mut paused = self.paused.borrow_mut();
            if paused.is_empty() {
                return Some(id);
            }
            let node = self.tasks.borrow().get(&id).map(|entry| entry.node);
            let Some(held) = node.and_then(|node| paused.get_mut(&node)) else { return Some(id) };
            held.push(id);
        }
        None
    }

    /// No task of `node` runs until it is resumed.
    pub(crate) fn pause(&self, node: usize) {
        self.paused.borrow_mut().entry(node).or_default();
    }

    /// Its tasks run on, late.
    pub(crate) fn resume(&self, node: usize) {
        let held = self.paused.borrow_mut().remove(&node);
        self.ready.borrow_mut().extend(held.into_iter().flatten());
    }

    fn poll(&self, id: u64) {
        let (mut future, waker, node, name) = {
            let mut tasks = self.tasks.borrow_mut();
            let Some(entry) = tasks.get_mut(&id) else { return };
            entry.waker.queued.store(false, Ordering::Relaxed);
            let future = entry.future.take().expect("a task is polled by one poll at a time");
            (future, Waker::from(entry.waker.clone()), entry.node, entry.name)
        };
        self.watch.set_node(node);
        self.trace(id ^ (self.now().0 << 16));
        self.polls.set(self.polls.get() + 1);
        let mut cx = Context::from_waker(&waker);
        let polled = std::panic::catch_unwind(AssertUnwindSafe(|| future.as_mut().poll(&mut cx)));
        // a poll takes a little time, so that time passes in a run that never sleeps; the time of
        // all nodes, as if they shared one core
        let (least, most) = self.poll_takes;
        let cost = self.rng.borrow_mut().span(least, most);
        self.set_now(self.now() + cost);
        match polled {
            Ok(polled) => self.after_poll(id, future, polled),
            Err(panic) => {
                let text = panic_text(&*panic);
                std::mem::forget(future); // its destructors may rely on what the panic broke
                let node = self.node_names.borrow()[node].clone();
                panic!(
                    "seed {}: task '{name}' of node '{node}' panicked at {} ns: {text}",
                    self.seed,
                    self.now().0
                );
            }
        }
    }

    fn after_poll(&self, id: u64, future: LocalFuture<'static, ()>, polled: Poll<()>) {
        let finished = {
            let mut tasks = self.tasks.borrow_mut();
            let entry = tasks.get_mut(&id).expect("an entry outlives its poll");
            if polled.is_ready() || entry.dead {
                let entry = tasks.remove(&id);
                Some((entry, future))
            } else {
                entry.future = Some(future);
                None
            }
        };
        drop(finished);
    }

    /// Drops everything that tasks and timers hold.
    pub(crate) fn clear(&self) {
        loop {
            let tasks = std::mem::take(&mut *self.tasks.borrow_mut());
            let timers = std::mem::take(&mut *self.timers.borrow_mut());
            if std::thread::panicking() {
                // a second panic in some destructor would abort before the first one is shown
                std::mem::forget((tasks, timers));
                return;
            }
            if tasks.is_empty() && timers.is_empty() {
                return;
            }
            drop((tasks, timers));
        }
    }
}

fn panic_text(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no message".to_owned())
}

/// Completes at its instant.
pub(crate) struct Sleep {
    executor: Rc<Executor>,
    until: Instant,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(crate) fn new(executor: Rc<Executor>, until: Instant) -> Sleep {
        Sleep { executor, until, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        if let Some(key) = self.timer.take() {
            self.executor.remove_timer(key);
        }
        if self.executor.now() >= self.until {
            return Poll::Ready(());
        }
        let key = self.executor.add_timer(self.until, Event::Wake(cx.waker().clone()));
        self.timer = Some(key);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer.take() {
            self.executor.remove_timer(key);
        }
    }
}
