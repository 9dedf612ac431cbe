//! The effect of a panic. A broken invariant of ours ends the process, because recovery is tested
//! and half a node is not. A policy that panics ends only itself: the scheduler takes its requests
//! back, and the node goes on.

use std::panic;

/// From now on a panic of any thread or task aborts the process once it has been reported, whoever
/// would have caught it; but for one inside a guarded call of a policy, which unwinds into the
/// scheduler.
pub fn end_the_process() {
    let report = panic::take_hook();
    panic::set_hook(Box::new(move |info| {
        report(info);
        if !nrs::in_guarded_call() {
            std::process::abort();
        }
    }));
}
