//! Large writes that are answered before the device has them.
//!
//! ```text
//!  room in the file (size grows) -> answer -> O_DIRECT write -> noted as dirty -> landed
//! ```
//!
//! Invariants
//! - Any access to a range waits until the writes under way there have landed. So no caller can
//!   see that they are late.
//! - A sync waits for every write begun before it, so no write is reported durable that is not.
//! - Room is allocated before the answer, so a full device is reported to the writer. After that
//!   only the device itself can fail. Then every later call fails, and so does the next sync, as
//!   when the kernel cannot write a page back.
//!
//! Each write that lands wakes all that wait, because it may be the last one in the way of several.
//! They are few: handlers that have a worker slot, and the commit.

use std::collections::BTreeMap;
use std::pin::pin;

use tokio::sync::Notify;
use types::{Errno, Fid};

use super::sync::{Arc, Mutex, MutexGuard, PoisonError};

#[derive(Default)]
struct State {
    begun: u64,
    under_way: BTreeMap<u64, (Fid, u64, u64)>, // object, start, end
    lost: Option<Errno>,
}

impl State {
    fn touches(&self, object: Fid, start: u64, end: u64) -> bool {
        self.under_way
            .values()
            .any(|(other, from, to)| *other == object && *from < end && start < *to)
    }
}

/// Writes under way in one store.
#[derive(Default)]
pub(super) struct Flights {
    state: Mutex<State>,
    landed: Notify,
}

/// One of them; it lands when this is dropped.
pub(super) struct Flight {
    number: u64,
    flights: Arc<Flights>,
}

impl Flights {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn until(&self, holds: impl Fn(&State) -> bool) {
        loop {
            let mut landed = pin!(self.landed.notified());
            landed.as_mut().enable();
            if holds(&self.lock()) {
                return;
            }
            landed.await;
        }
    }

    /// The error of a write that was answered and did not reach the device.
    pub(super) fn lost(&self) -> Result<(), Errno> {
        self.lock().lost.map_or(Ok(()), Err)
    }

    /// Completes when nothing is under way in `[start, end)` of `object`.
    pub(super) async fn clear(&self, object: Fid, start: u64, end: u64) {
        self.until(|state| !state.touches(object, start, end)).await;
    }

    /// Completes when everything begun before has landed.
    pub(super) async fn all(&self) -> Result<(), Errno> {
        let begun = self.lock().begun;
        self.until(|state| state.under_way.range(..begun).next().is_none()).await;
        self.lost()
    }

    /// Begins a write of `[start, end)` when nothing else is there and fewer than `at_once` are
    /// under way.
    pub(super) async fn begin(
        self: &Arc<Self>,
        object: Fid,
        start: u64,
        end: u64,
        at_once: usize,
    ) -> Flight {
        loop {
            self.until(|state| {
                state.under_way.len() < at_once && !state.touches(object, start, end)
            })
            .await;
            let mut state = self.lock();
            // Between the look and this nobody else of this thread was polled; the pool only takes
            // away.
            if state.under_way.len() < at_once && !state.touches(object, start, end) {
                let number = state.begun;
                state.begun += 1;
                state.under_way.insert(number, (object, start, end));
                return Flight { number, flights: self.clone() };
            }
        }
    }
}

impl Flight {
    /// It was answered, and the device has not taken it.
    pub(super) fn lose(&self, error: Errno) {
        tracing::error!(%error, "a write that was answered did not reach the device");
        self.flights.lock().lost.get_or_insert(error);
    }
}

impl Drop for Flight {
    fn drop(&mut self) {
        self.flights.lock().under_way.remove(&self.number);
        self.flights.landed.notify_waiters();
    }
}
