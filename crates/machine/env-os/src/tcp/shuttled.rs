//! The bridge's crossing under shuttle, which draws the order in which threads run.

#[path = "crossing.rs"]
#[allow(clippy::duplicate_mod, reason = "over other locks")]
mod crossing;

mod sync {
    pub(super) use shuttle::sync::atomic::{AtomicBool, Ordering};
    pub(super) use shuttle::sync::{Mutex, MutexGuard};
    pub(super) use std::sync::{Arc, PoisonError};
}

use std::collections::VecDeque;
use std::future::poll_fn;
use std::sync::Arc;

use bytes::Bytes;
use shuttle::future::block_on;
use shuttle::{check_random, thread};
use wire::{Frame, FrameKind};

use crossing::{Crossing, lock};

/// Orders that each test looks at.
const ORDERS: usize = 500;
const FRAMES: u64 = 4;

fn frame(id: u64) -> Frame {
    Frame::new(FrameKind::BulkData, id, Bytes::new())
}

#[test]
fn frames_reach_the_executor_in_order_and_then_the_end() {
    let look = || {
        let crossing = Arc::new(Crossing::default());
        let theirs = Arc::clone(&crossing);
        let lnd = thread::spawn(move || {
            for id in 0..FRAMES {
                block_on(theirs.hand_over(VecDeque::from([frame(id)]), 2));
            }
            theirs.end();
        });
        let mut came = Vec::new();
        loop {
            let mut batch = VecDeque::new();
            block_on(poll_fn(|cx| crossing.poll_in(cx, &mut batch)));
            if batch.is_empty() {
                break;
            }
            came.extend(batch.into_iter().map(|frame| frame.id));
        }
        assert_eq!(came, (0..FRAMES).collect::<Vec<_>>());
        lnd.join().expect("no panic");
    };
    check_random(look, ORDERS);
}

#[test]
fn frames_reach_the_wire_in_order_and_then_the_hang_up() {
    let look = || {
        let crossing = Arc::new(Crossing::default());
        let theirs = Arc::clone(&crossing);
        let lnd = thread::spawn(move || {
            let mut went = Vec::new();
            while let Some(frames) = block_on(poll_fn(|cx| theirs.poll_out(cx))) {
                went.extend(frames.into_iter().map(|frame| frame.id));
            }
            went
        });
        for id in 0..FRAMES {
            lock(&crossing.out).frames.push_back(frame(id));
            crossing.wake_out();
        }
        crossing.hang_up();
        assert!(crossing.is_over());
        assert_eq!(lnd.join().expect("no panic"), (0..FRAMES).collect::<Vec<_>>());
    };
    check_random(look, ORDERS);
}
