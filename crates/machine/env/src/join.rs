//! Several futures at once.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use crate::LocalFuture;

/// The results of all `futures`, in the order given. They go on side by side. Dropping it drops
/// them all.
pub async fn join_all<T>(futures: Vec<LocalFuture<'_, T>>) -> Vec<T> {
    join_bounded(futures, usize::MAX).await
}

/// The results of all `futures`, in the order given. At most `limit` of them are under way at once.
/// Dropping it drops them all.
pub async fn join_bounded<T>(futures: Vec<LocalFuture<'_, T>>, limit: usize) -> Vec<T> {
    assert!(limit > 0, "nothing would ever run");
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut waiting: VecDeque<_> = futures.into_iter().enumerate().collect();
    let mut running: Vec<(usize, LocalFuture<'_, T>)> =
        Vec::with_capacity(limit.min(waiting.len()));
    poll_fn(|cx| {
        loop {
            running.retain_mut(|(index, future)| match future.as_mut().poll(cx) {
                Poll::Ready(value) => {
                    results[*index] = Some(value);
                    false
                }
                Poll::Pending => true,
            });
            if waiting.is_empty() || running.len() >= limit {
                return if running.is_empty() { Poll::Ready(()) } else { Poll::Pending };
            }
            // Newcomers are polled in the next turn of the loop; the others are polled once more,
            // which does no harm.
            let room = (limit - running.len()).min(waiting.len());
            running.extend(waiting.drain(..room));
        }
    })
    .await;
    results.into_iter().map(|value| value.expect("every future has ended")).collect()
}

#[cfg(test)]
mod tests {
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::task::{Context, Waker};

    use tokio::sync::oneshot;

    use super::*;

    #[test]
    fn futures_go_on_side_by_side_and_results_keep_their_order() {
        let (gates, futures): (Vec<_>, Vec<_>) = (0..3)
            .map(|_| {
                let (gate, opened) = oneshot::channel::<u32>();
                let future: LocalFuture<'static, u32> =
                    Box::pin(async move { opened.await.expect("the gate opens") });
                (gate, future)
            })
            .unzip();
        let mut joined = Box::pin(join_all(futures));
        let mut cx = Context::from_waker(Waker::noop());
        for (number, gate) in gates.into_iter().enumerate().rev() {
            assert!(joined.as_mut().poll(&mut cx).is_pending());
            gate.send(number as u32).expect("it waits");
        }
        assert_eq!(joined.as_mut().poll(&mut cx), Poll::Ready(vec![0, 1, 2]));
    }

    #[test]
    fn at_most_so_many_are_under_way_and_results_keep_their_order() {
        let under_way = Rc::new(Cell::new(0));
        let mut gates = Vec::new();
        let started = Rc::new(RefCell::new(Vec::new()));
        let futures = (0..5)
            .map(|number| {
                let (open, gate) = oneshot::channel::<()>();
                gates.push(Some(open));
                let (under_way, started) = (under_way.clone(), started.clone());
                let future: LocalFuture<'static, u32> = Box::pin(async move {
                    under_way.set(under_way.get() + 1);
                    started.borrow_mut().push(number);
                    gate.await.expect("the gate opens");
                    under_way.set(under_way.get() - 1);
                    number
                });
                future
            })
            .collect();
        let mut joined = Box::pin(join_bounded(futures, 2));
        let mut cx = Context::from_waker(Waker::noop());
        for open in [1, 0, 2, 4, 3] {
            assert!(joined.as_mut().poll(&mut cx).is_pending());
            assert!(under_way.get() <= 2);
            gates[open].take().expect("opened once").send(()).expect("it waits");
        }
        assert_eq!(joined.as_mut().poll(&mut cx), Poll::Ready(vec![0, 1, 2, 3, 4]));
        assert_eq!(*started.borrow(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn no_futures_are_done_at_once() {
        let mut joined = Box::pin(join_all(Vec::<LocalFuture<'_, ()>>::new()));
        assert!(joined.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
