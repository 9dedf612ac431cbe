//! Pool and flights under shuttle, which draws the order in which threads run.
//!
//! The files are compiled a second time here, over shuttle's locks and threads. A thread that waits
//! for ever is a deadlock. Shuttle reports it with the schedule that shows it.

#[path = "flight.rs"]
#[allow(clippy::duplicate_mod, reason = "over other locks")]
mod flight;
#[path = "pool.rs"]
#[allow(clippy::duplicate_mod, reason = "over other locks")]
mod pool;

mod sync {
    pub(super) use shuttle::sync::{Arc, Condvar, Mutex, MutexGuard};
    pub(super) use shuttle::thread::{Builder, JoinHandle};
    pub(super) use std::sync::PoisonError;
}

use shuttle::future::block_on;
use shuttle::sync::atomic::{AtomicUsize, Ordering};
use shuttle::{check_random, thread};
use types::{Errno, Fid};

use flight::Flights;
use pool::Pool;
use sync::Arc;

/// Orders that each test looks at.
const ORDERS: usize = 500;
const MIB: u64 = 1 << 20;

fn object() -> Fid {
    Fid::new(1, 1)
}

#[test]
fn a_pool_that_is_dropped_has_done_what_was_posted() {
    let look = || {
        let (pool, done) = (Pool::new(2).expect("threads"), Arc::new(AtomicUsize::new(0)));
        for _ in 0..3 {
            let done = done.clone();
            pool.post(move || _ = done.fetch_add(1, Ordering::SeqCst));
        }
        drop(pool);
        assert_eq!(done.load(Ordering::SeqCst), 3);
    };
    check_random(look, ORDERS);
}

#[test]
fn a_thread_more_comes_for_a_job_that_another_one_waits_for() {
    let look = || {
        let (pool, gone) = (Pool::new(1).expect("a thread"), Arc::new(AtomicUsize::new(0)));
        pool.set_most(2);
        let theirs = gone.clone();
        pool.post(move || {
            while theirs.load(Ordering::SeqCst) == 0 {
                thread::yield_now();
            }
        });
        pool.post(move || _ = gone.fetch_add(1, Ordering::SeqCst));
    };
    check_random(look, ORDERS);
}

#[test]
fn jobs_of_two_threads_are_all_answered() {
    let look = || {
        let pool = Arc::new(Pool::new(1).expect("threads"));
        let theirs = pool.clone();
        let other = thread::spawn(move || block_on(theirs.run(|| Ok(1))));
        let ours = block_on(pool.run(|| Err::<u32, _>(Errno::EIO)));
        assert_eq!((ours, other.join().expect("no panic")), (Err(Errno::EIO), Ok(1)));
    };
    check_random(look, ORDERS);
}

#[test]
fn a_write_that_lands_wakes_who_waits_for_it_whenever_that_is() {
    let look = || {
        let flights = Arc::new(Flights::default());
        let landed = Arc::new(AtomicUsize::new(0));
        let flight = block_on(flights.begin(object(), 0, MIB, 8));
        let theirs = landed.clone();
        let pool = thread::spawn(move || {
            theirs.store(1, Ordering::SeqCst);
            drop(flight);
        });
        block_on(flights.clear(object(), 0, MIB));
        assert_eq!(landed.load(Ordering::SeqCst), 1, "it waited for nothing");
        pool.join().expect("no panic");
    };
    check_random(look, ORDERS);
}

#[test]
fn a_sync_hears_of_a_write_that_was_lost_while_it_waited() {
    let look = || {
        let flights = Arc::new(Flights::default());
        let flight = block_on(flights.begin(object(), 0, MIB, 8));
        let pool = thread::spawn(move || flight.lose(Errno::EIO));
        assert_eq!(block_on(flights.all()), Err(Errno::EIO));
        pool.join().expect("no panic");
    };
    check_random(look, ORDERS);
}

#[test]
fn writers_of_one_range_go_one_after_the_other() {
    let look = || {
        let flights = Arc::new(Flights::default());
        let inside = Arc::new(AtomicUsize::new(0));
        let one = |flights: Arc<Flights>, inside: Arc<AtomicUsize>| {
            move || {
                let flight = block_on(flights.begin(object(), 0, MIB, 8));
                assert_eq!(inside.fetch_add(1, Ordering::SeqCst), 0, "two at once");
                inside.fetch_sub(1, Ordering::SeqCst);
                drop(flight);
            }
        };
        let other = thread::spawn(one(flights.clone(), inside.clone()));
        one(flights, inside)();
        other.join().expect("no panic");
    };
    check_random(look, ORDERS);
}
