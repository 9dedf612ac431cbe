//! A call into a policy that comes back whatever the policy does.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Broken;

/// What `call` returns, or what it panicked with. Where panics abort the process (the release profile), they still do:
/// there the built-in policies answer `Broken` instead.
#[inline]
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Broken> {
    // Sound to go on after: a policy that panicked is never called again, and the queue's own fields are out of its reach.
    catch_unwind(AssertUnwindSafe(call)).map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Broken(text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_else(|| "it panicked".to_owned()))
    })
}
