//! A value that one task leaves for another on the same thread. It is tokio's oneshot without the
//! atomics.

use std::cell::RefCell;
use std::future::Future;
use std::pin::Pin;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

/// Who will leave the value. Dropped without: the other side learns that it never comes.
pub(crate) struct Promise<T>(Rc<RefCell<Slot<T>>>);

/// Who waits for it: resolves to the value, or to nothing if it never comes.
pub(crate) struct Awaited<T>(Rc<RefCell<Slot<T>>>);

enum Slot<T> {
    Empty(Option<Waker>),
    Full(T),
    Over,
}

/// Both ends.
pub(crate) fn promise<T>() -> (Promise<T>, Awaited<T>) {
    let slot = Rc::new(RefCell::new(Slot::Empty(None)));
    (Promise(Rc::clone(&slot)), Awaited(slot))
}

impl<T> Promise<T> {
    /// Leaves the value; nobody may be there any more.
    pub(crate) fn keep(self, value: T) {
        self.settle(Slot::Full(value));
    }

    fn settle(&self, slot: Slot<T>) {
        let before = std::mem::replace(&mut *self.0.borrow_mut(), slot);
        assert!(matches!(before, Slot::Empty(_)), "a promise is settled once");
        if let Slot::Empty(Some(waker)) = before {
            waker.wake();
        }
    }
}

impl<T> Drop for Promise<T> {
    fn drop(&mut self) {
        let broken = matches!(*self.0.borrow(), Slot::Empty(_));
        if broken {
            self.settle(Slot::Over);
        }
    }
}

impl<T> Future for Awaited<T> {
    type Output = Option<T>;

    fn poll(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<T>> {
        let mut slot = self.0.borrow_mut();
        if let Slot::Empty(waker) = &mut *slot {
            if !waker.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
                *waker = Some(cx.waker().clone());
            }
            return Poll::Pending;
        }
        match std::mem::replace(&mut *slot, Slot::Over) {
            Slot::Full(value) => Poll::Ready(Some(value)),
            _ => Poll::Ready(None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::task::Wake;

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn a_value_wakes_who_waits_once_and_a_broken_promise_too() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let mut cx = Context::from_waker(&waker);
        let (promise, mut awaited) = super::promise();
        assert_eq!(Pin::new(&mut awaited).poll(&mut cx), Poll::Pending);
        promise.keep(7);
        assert_eq!(Pin::new(&mut awaited).poll(&mut cx), Poll::Ready(Some(7)));
        assert_eq!(Pin::new(&mut awaited).poll(&mut cx), Poll::Ready(None));
        assert_eq!(count.0.load(Ordering::Relaxed), 1);

        let (promise, mut awaited) = super::promise::<u32>();
        assert_eq!(Pin::new(&mut awaited).poll(&mut cx), Poll::Pending);
        drop(promise);
        assert_eq!(Pin::new(&mut awaited).poll(&mut cx), Poll::Ready(None));
        assert_eq!(count.0.load(Ordering::Relaxed), 2);

        let (promise, awaited) = super::promise();
        drop(awaited);
        promise.keep(7); // nobody minds
    }
}
