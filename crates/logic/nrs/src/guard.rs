//! A call into a policy that returns even if the policy panics.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::Broken;

#[cfg(not(panic = "unwind"))]
compile_error!("a profile that aborts on a panic would let a broken policy end its server");

thread_local! {
    /// Guarded calls that this thread is in.
    static DEPTH: Cell<u32> = const { Cell::new(0) };
}

/// Whether this thread is inside a call whose panic ends nothing but a policy. Asked by a process's
/// panic hook, which ends the process otherwise.
#[must_use]
pub fn in_guarded_call() -> bool {
    DEPTH.get() > 0
}

/// What `call` returns, or what it panicked with.
#[inline]
pub(crate) fn guarded<T>(call: impl FnOnce() -> T) -> Result<T, Broken> {
    DEPTH.set(DEPTH.get() + 1);
    // Sound to go on after: a policy that panicked in a call that may change it is never called
    // again, and the queue's own fields are out of its reach.
    let outcome = catch_unwind(AssertUnwindSafe(call));
    DEPTH.set(DEPTH.get() - 1);
    outcome.map_err(|panic| {
        let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
        Broken::new(
            text.or_else(|| panic.downcast_ref::<String>().cloned())
                .unwrap_or_else(|| "it panicked".to_owned()),
        )
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_known_that_a_call_is_guarded_and_that_it_is_over() {
        assert!(!in_guarded_call());
        let nested =
            guarded(|| (in_guarded_call(), guarded(|| panic!("{}", "inner")), in_guarded_call()));
        assert_eq!(nested, Ok((true, Err::<(), Broken>(Broken::new("inner")), true)));
        assert!(!in_guarded_call());
        assert_eq!(guarded(|| panic!("outer")), Err::<(), Broken>(Broken::new("outer")));
        assert!(!in_guarded_call());
    }
}
