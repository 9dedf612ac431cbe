//! `mdt.*.som_*`: sizes of files that no client writes any more.

use params::parse_within;
use target::Leaves;

use crate::target::Mdt;

/// Largest `som_scrub_rate`.
const RATE_MAX: u64 = 10_000_000;

/// Registers them.
pub(super) fn register(leaves: &Leaves<'_, Mdt>) {
    leaves.set(
        "som_repair",
        |mdt| u8::from(mdt.engine.state.borrow().som.config.repair).to_string(),
        |mdt, value| {
            let is_on = parse_within(value, 0, 1)? == 1;
            mdt.engine.state.borrow_mut().som.config.repair = is_on;
            mdt.engine.state.borrow().som.wake();
            Ok(())
        },
    );
    leaves.set(
        "som_scrub_rate",
        |mdt| mdt.engine.state.borrow().som.config.scrub_rate.to_string(),
        |mdt, value| {
            let rate = parse_within(value, 0, RATE_MAX)?;
            mdt.engine.state.borrow_mut().som.config.scrub_rate = rate;
            mdt.engine.state.borrow().som.wake();
            Ok(())
        },
    );
    leaves.typed("som_status", |mdt| Some(mdt.engine.state.borrow().som.status()));
    leaves.read("som_scrub_status", |mdt| mdt.engine.state.borrow().som.scrub_status());
}
