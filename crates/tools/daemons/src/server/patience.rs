//! Starts the servers of an `up` while the servers of the previous, killed `up` still end.

use std::rc::Rc;

use anyhow::Result;
use env::Env;
use osd_disk::DiskError;
use types::Span;

use super::{Server, ServerOptions};

/// Between attempts.
const PAUSE: Span = Span::millis(200);
/// How long a target's lock may be held by servers of an `up` that was killed a moment ago.
const LOCK_WAIT: Span = Span::secs(10);

/// Servers of an `up` that was killed may still be committing: their locks are waited for.
pub(crate) async fn start(env: &Env, options: &ServerOptions) -> Result<Rc<Server>> {
    let until = env.now() + LOCK_WAIT;
    loop {
        match Server::start(env, options).await {
            Err(error) if is_in_use(&error) && env.now() < until => env.sleep(PAUSE).await,
            other => return other,
        }
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref::<DiskError>(), Some(DiskError::InUse(_))))
}
