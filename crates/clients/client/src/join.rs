//! Runs several futures at once, with a bound on the number under way.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::task::Poll;

use env::LocalFuture;

/// Runs `futures`, at most `limit` of them under way; results in the order given. Dropping it drops
/// them all.
pub(crate) async fn join_bounded<T>(futures: Vec<LocalFuture<'_, T>>, limit: usize) -> Vec<T> {
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

/// The values, or the first error in order.
pub(crate) async fn try_join<T, E>(
    futures: Vec<LocalFuture<'_, Result<T, E>>>,
    limit: usize,
) -> Result<Vec<T>, E> {
    join_bounded(futures, limit).await.into_iter().collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::{Cell, RefCell};
    use std::rc::Rc;
    use std::task::{Context, Waker};
    use tokio::sync::oneshot;

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
            gates[open].take().expect("opened once").send(()).expect("somebody waits");
        }
        assert_eq!(joined.as_mut().poll(&mut cx), Poll::Ready(vec![0, 1, 2, 3, 4]));
        assert_eq!(*started.borrow(), [0, 1, 2, 3, 4]);
    }

    #[test]
    fn nothing_to_do_ends_at_once() {
        let mut joined = Box::pin(join_bounded(Vec::<LocalFuture<'_, ()>>::new(), 1));
        assert!(joined.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
