//! The end of an instance whose storage failed.
//!
//! Invariants
//! - The first reason is kept; later ones are consequences.
//! - An instance that has failed answers no request, because its answer may be wrong. Clients send
//!   their requests again to the next instance.

use std::cell::RefCell;
use std::rc::Rc;

use env::LocalFuture;
use osd::StoreError;
use tokio::sync::Notify;
use types::Errno;

/// See the head of the file.
pub struct Failure {
    /// Of the target, in the log.
    name: String,
    reason: RefCell<Option<String>>,
    told: Notify,
}

impl Failure {
    /// Nothing has failed yet.
    #[must_use]
    pub fn new(name: String) -> Rc<Failure> {
        Rc::new(Failure { name, reason: RefCell::default(), told: Notify::new() })
    }

    /// The storage is not to be trusted any more.
    pub fn fail(&self, reason: &str) {
        if self.has_happened() {
            return;
        }
        tracing::warn!(target_id = %self.name, reason, "the storage failed: this instance ends");
        *self.reason.borrow_mut() = Some(reason.to_owned());
        self.told.notify_waiters();
    }

    /// What a caller is told of `error`. A store that failed ends the instance.
    pub fn note(&self, error: &StoreError) -> Errno {
        if let StoreError::Failed(reason) = error {
            self.fail(reason);
        }
        error.errno()
    }

    /// Whether the instance is over.
    #[must_use]
    pub fn has_happened(&self) -> bool {
        self.reason.borrow().is_some()
    }

    /// The reason as an error, if the instance is over.
    pub fn check(&self) -> Result<(), StoreError> {
        self.reason.borrow().clone().map_or(Ok(()), |reason| Err(StoreError::Failed(reason)))
    }

    /// Completes with the reason once the instance is over.
    pub fn happened(self: &Rc<Self>) -> LocalFuture<'static, String> {
        let failure = Rc::clone(self);
        Box::pin(async move {
            loop {
                let told = failure.told.notified();
                if let Some(reason) = failure.reason.borrow().clone() {
                    return reason;
                }
                told.await;
            }
        })
    }

    /// Gives `answer` back while the instance is trusted, and never completes afterwards.
    pub async fn unless_over<T>(&self, answer: T) -> T {
        if self.has_happened() {
            std::future::pending::<()>().await;
        }
        answer
    }
}

#[cfg(test)]
mod tests {
    use std::task::{Context, Poll, Waker};

    use super::*;

    #[test]
    fn the_first_reason_ends_the_instance_and_silences_it() {
        let failure = Failure::new("testfs-OST0001".to_owned());
        let mut happened = failure.happened();
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(happened.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(failure.note(&StoreError::Full), Errno::ENOSPC);
        assert!(!failure.has_happened() && failure.check().is_ok());
        assert_eq!(failure.note(&StoreError::Failed("first".into())), Errno::EIO);
        failure.fail("second");
        assert_eq!(failure.check(), Err(StoreError::Failed("first".into())));
        assert_eq!(happened.as_mut().poll(&mut cx), Poll::Ready("first".into()));
        let mut late = failure.happened();
        assert_eq!(late.as_mut().poll(&mut cx), Poll::Ready("first".into()));
        let mut answer = std::pin::pin!(failure.unless_over(7));
        assert_eq!(answer.as_mut().poll(&mut cx), Poll::Pending);
    }
}
