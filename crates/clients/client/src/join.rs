//! Several requests at once, with a bound on the number under way.

use env::{LocalFuture, join_bounded};

/// The values, or the first error in order.
pub(crate) async fn try_join<T, E>(
    futures: Vec<LocalFuture<'_, Result<T, E>>>,
    limit: usize,
) -> Result<Vec<T>, E> {
    join_bounded(futures, limit).await.into_iter().collect()
}
