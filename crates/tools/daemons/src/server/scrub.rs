//! Parameters of the scrub, which checks all pages of a target's records while they are served.

use std::rc::Rc;
use std::time::Duration;

use osd_disk::{DiskMeta, Scrub, ScrubPhase};
use params::{ParamTree, Verdict, parse_within};
use target::Leaves;

/// Largest rate that can be set, MiB/s.
const MIBPS_MAX: u32 = 100_000;
/// Largest time that can be set, seconds: a year.
const SECONDS_MAX: u64 = 31_536_000;

/// Registers what can be seen and set of it, with names that begin with `base`.
pub(super) fn register(params: &ParamTree, base: String, disk: &Rc<DiskMeta>) {
    let leaves = Leaves::new(params, base, disk);
    leaves.typed("scrub_status", |disk| Some(status(disk)));
    leaves.set(
        "scrub_mibps",
        |disk| disk.scrub().mibps.to_string(),
        |disk, value| {
            let mibps = parse_within(value, 0, MIBPS_MAX)?;
            disk.set_scrub(Scrub { mibps, ..disk.scrub() });
            Ok(())
        },
    );
    leaves.set(
        "scrub_interval",
        |disk| disk.scrub().interval.as_secs().to_string(),
        |disk, value| {
            let interval = Duration::from_secs(parse_within(value, 1, SECONDS_MAX)?);
            disk.set_scrub(Scrub { interval, ..disk.scrub() });
            Ok(())
        },
    );
    leaves.set(
        "scrub_patience",
        |disk| disk.scrub().patience.as_secs().to_string(),
        |disk, value| {
            let patience = Duration::from_secs(parse_within(value, 0, SECONDS_MAX)?);
            disk.set_scrub(Scrub { patience, ..disk.scrub() });
            Ok(())
        },
    );
}

fn status(disk: &DiskMeta) -> Verdict {
    let state = disk.scrub_state();
    let phase = match state.phase {
        ScrubPhase::Waiting => "waiting",
        ScrubPhase::WaitingForIdle => "waiting for idle",
        ScrubPhase::Running => "running",
        ScrubPhase::Off => "off",
        ScrubPhase::Damaged => "damaged",
    };
    let ended = state.last_ended.map_or_else(|| "never".to_owned(), |at| at.to_string());
    let text = format!(
        "status: {phase}\npages_checked: {}\npasses: {}\nlast_ended: {ended}\nlast_pages: {}\n\
         last_seconds: {}\nlast_waited_for_idle: {}\n",
        state.pages,
        state.passes,
        state.last_pages,
        state.last_took.as_secs(),
        state.last_waited.as_secs(),
    );
    Verdict { is_well: state.phase != ScrubPhase::Damaged, text }
}
