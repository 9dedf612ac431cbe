//! Which calls wait for large writes under way, and which do not.

use std::pin::pin;
use std::sync::Arc;

use types::{Errno, Fid};

use super::flight::Flights;
use crate::testdir::wait;

const MIB: u64 = 1 << 20;

fn is_ready(wait: impl Future<Output = ()>) -> bool {
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    pin!(wait).poll(&mut cx).is_ready()
}

#[test]
fn only_who_touches_the_range_waits() {
    let flights = Arc::<Flights>::default();
    let (one, two) = (Fid::new(1, 1), Fid::new(1, 2));
    let flight = wait(flights.begin(one, MIB, 2 * MIB, 8));
    assert!(
        is_ready(flights.clear(one, 0, MIB)) && is_ready(flights.clear(one, 2 * MIB, u64::MAX))
    );
    assert!(is_ready(flights.clear(two, 0, u64::MAX)));
    assert!(!is_ready(flights.clear(one, 2 * MIB - 1, 2 * MIB)));
    drop(flight);
    assert!(is_ready(flights.clear(one, 0, u64::MAX)));
}

#[test]
fn a_sync_waits_for_what_was_begun_and_hears_of_what_was_lost() {
    let flights = Arc::<Flights>::default();
    let first = wait(flights.begin(Fid::new(1, 1), 0, MIB, 8));
    {
        let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
        let mut all = pin!(flights.all());
        assert!(all.as_mut().poll(&mut cx).is_pending());
        let _later = wait(flights.begin(Fid::new(1, 1), MIB, 2 * MIB, 8));
        first.lose(Errno::EIO);
        drop(first);
        assert_eq!(all.as_mut().poll(&mut cx), std::task::Poll::Ready(Err(Errno::EIO)));
    }
    assert_eq!(flights.lost(), Err(Errno::EIO));
}

#[test]
fn no_more_than_so_many_are_under_way() {
    let flights = Arc::<Flights>::default();
    let begin = |at: u64| flights.begin(Fid::new(1, 1), at * MIB, (at + 1) * MIB, 2);
    let _flights = (wait(begin(0)), wait(begin(1)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    assert!(pin!(begin(2)).poll(&mut cx).is_pending());
}
