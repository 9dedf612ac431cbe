//! Several futures at once.

use std::future::poll_fn;
use std::task::Poll;

use crate::LocalFuture;

/// The results of all `futures`, in the order given. They go on side by side. Dropping it drops
/// them all.
pub async fn join_all<T>(futures: Vec<LocalFuture<'_, T>>) -> Vec<T> {
    let mut results: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    let mut running: Vec<(usize, LocalFuture<'_, T>)> = futures.into_iter().enumerate().collect();
    poll_fn(|cx| {
        running.retain_mut(|(index, future)| match future.as_mut().poll(cx) {
            Poll::Ready(value) => {
                results[*index] = Some(value);
                false
            }
            Poll::Pending => true,
        });
        if running.is_empty() { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
    results.into_iter().map(|value| value.expect("every future has ended")).collect()
}

#[cfg(test)]
mod tests {
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
    fn no_futures_are_done_at_once() {
        let mut joined = Box::pin(join_all(Vec::<LocalFuture<'_, ()>>::new()));
        assert!(joined.as_mut().poll(&mut Context::from_waker(Waker::noop())).is_ready());
    }
}
