//! The obstacles between an operation and its success, and the response to each.

use std::cell::Cell;
use std::rc::Rc;

use env_sim::{Sim, SimConfig};
use osd::StoreError;
use osd::mem::{MemDisk, MemDiskConfig, MemMeta};
use target::{OpError, Store};
use types::{Errno, Instant, Nid, Span};

/// How it ended.
#[derive(Debug, PartialEq, Eq)]
struct End {
    outcome: Result<(), Errno>,
    commits: u32,
    is_over: bool,
}

fn end(outcome: Result<(), Errno>, commits: u32) -> End {
    End { outcome, commits, is_over: false }
}

/// What an attempt meets, of an operation that began then.
type Obstacle = fn(Instant) -> OpError;

/// An operation that meets `obstacles` in this order, and how long it took.
fn persist(obstacles: &[Obstacle]) -> (End, Span) {
    let obstacles = obstacles.to_vec();
    let sim = Sim::new(1, SimConfig::default());
    let node = sim.node("server", Nid::default());
    let (env, disk) = (node.env(), MemDisk::new(MemDiskConfig::default()));
    sim.block_on(&node, async move {
        let store = Store::new("testfs-OST0000".to_owned(), Rc::new(MemMeta::open(&env, &disk)));
        let (start, commits, met) = (env.now(), Cell::new(0), Cell::new(0));
        let commit = async || {
            commits.set(commits.get() + 1);
            Ok(())
        };
        let attempt = || match obstacles.get(met.replace(met.get() + 1)) {
            Some(obstacle) => Err(obstacle(start)),
            None => Ok(()),
        };
        let outcome = store.persist(&env, commit, attempt).await;
        let is_over = store.failure().has_happened();
        (End { outcome, commits: commits.get(), is_over }, env.now() - start)
    })
}

fn full(_: Instant) -> OpError {
    StoreError::Full.into()
}

fn busy(_: Instant) -> OpError {
    StoreError::Busy.into()
}

fn refused(_: Instant) -> OpError {
    Errno::EPERM.into()
}

fn failed(_: Instant) -> OpError {
    StoreError::Failed("torn".to_owned()).into()
}

fn commit_first(_: Instant) -> OpError {
    OpError::CommitFirst
}

fn leased(start: Instant) -> OpError {
    OpError::LeasedUntil(start + Span::millis(30))
}

#[test]
fn a_full_store_is_committed_twice_before_it_refuses() {
    assert_eq!(persist(&[full, full]).0, end(Ok(()), 2));
    assert_eq!(persist(&[full, busy, full, full]).0, end(Err(Errno::ENOSPC), 2));
}

#[test]
fn a_commit_and_a_lease_are_waited_for() {
    assert_eq!(persist(&[commit_first, busy]).0, end(Ok(()), 1));
    let (ended, took) = persist(&[leased]);
    assert_eq!(ended, end(Ok(()), 0));
    assert!(took >= Span::millis(30), "{took:?}");
}

#[test]
fn a_refusal_ends_the_attempt_and_a_failed_store_the_target() {
    assert_eq!(persist(&[refused]).0, end(Err(Errno::EPERM), 0));
    let over = End { is_over: true, ..end(Err(Errno::EIO), 0) };
    assert_eq!(persist(&[failed]).0, over);
}
