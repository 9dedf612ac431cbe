//! Targets and mounts: parameters that are one number, recovery, the scrub, and statistics in
//! Lustre's form.

use params::{Fields, Lines, ParamTree, Verdict};
use ptlrpc::{Progress, RecoveryPhase, RecoveryStatus};
use types::{Counter, CounterTable, Detail};

use crate::families::{self, Family};
use crate::text::Exposition;
use crate::{clients, jobs, lines, values};

/// Parameters that are one number each: last part of the name (the part before is the target).
const NUMBERS: &[(&str, &Family)] = &[
    ("kbytestotal", families::CAPACITY),
    ("kbytesfree", families::FREE),
    ("kbytesavail", families::AVAILABLE),
    ("filestotal", families::INODES),
    ("filesfree", families::INODES_FREE),
    ("num_exports", families::EXPORTS),
    ("evictions", families::EVICTIONS),
    ("callback_timeouts", families::CALLBACK_TIMEOUTS),
    ("dirty_data_bytes", families::DIRTY),
    ("last_committed", families::COMMITTED),
    ("open_handles", families::OPEN_HANDLES),
    ("locks_held", families::LOCKS_HELD),
    ("locks_waiting", families::LOCKS_WAITING),
    ("leases_held", families::LEASES_HELD),
    ("lease_waits", families::LEASE_WAITS),
    ("grants_held", families::GRANTS_HELD),
    ("grants_recalled", families::GRANTS_RECALLED),
    ("grant_waits", families::GRANT_WAITS),
    ("grants_expelled", families::GRANTS_EXPELLED),
    ("grant_hits", families::GRANT_HITS),
    ("lock_count", families::LOCK_COUNT),
    ("lost", families::LOST),
    ("writeback_bytes", families::KEPT_BYTES),
];

/// Parameters that are several numbers: last part of the parameter's name, the number's name.
const FIELDS: &[(&str, &str, &Family)] = &[
    ("writeback_stats", "writes", families::KEPT_WRITES),
    ("writeback_stats", "bytes", families::KEPT_WRITTEN),
    ("writeback_stats", "runs", families::KEPT_RUNS),
    ("writeback_stats", "no_room", families::KEPT_REFUSED),
    ("som_status", "repaired", families::SIZES_REPAIRED),
    ("som_status", "queued", families::SIZES_QUEUED),
    ("opencache_stats", "resting", families::RESTING),
    ("opencache_stats", "opens", families::REOPENS),
    ("statahead_stats", "statahead total", families::AHEAD_SERIES),
    ("statahead_stats", "statahead wrong", families::AHEAD_WRONG),
    ("statahead_stats", "fname_total", families::AHEAD_NAMES),
    ("statahead_stats", "agl total", families::AHEAD_SIZES),
    ("statahead_stats", "hit_total", families::AHEAD_HITS),
    ("statahead_stats", "miss_total", families::AHEAD_MISSES),
];

/// Parameter of a target's kind, and lustre_exporter's word for its component.
const COMPONENTS: &[(&str, &str)] = &[
    ("obdfilter", "ost"),
    ("mdt", "mdt"),
    ("mdt_data", "mdt_data"),
    ("mgs", "mgs"),
    ("llite", "client"),
    ("ldlm.namespaces", "ldlm"),
];

/// Where a mount has its sessions with targets.
const IMPORTS: &[&str] = &["mdc", "mdc_data", "osc"];

/// Statistics files in Lustre's form: base, leaf, component.
const STATS: &[(&str, &str, &str)] = &[
    ("obdfilter", "stats", "ost"),
    ("mdt", "md_stats", "mdt"),
    ("mdt_data", "stats", "mdt_data"),
    ("llite", "stats", "client"),
    ("llite", "md_stats", "client"),
];

/// What each client node and each job did (`export_stats`, `job_stats`): base, component.
const SHARES: &[(&str, &str)] = &[("obdfilter", "ost"), ("mdt", "mdt"), ("mdt_data", "mdt_data")];

/// All but the client nodes and jobs.
pub(crate) fn add(out: &mut Exposition, params: &ParamTree) {
    for (base, component) in COMPONENTS {
        numbers(out, params, base, component);
        for (target, status) in values::<RecoveryStatus>(params, base, "recovery_status") {
            recovery(out, component, &target, &status);
        }
        for (target, scrub) in values::<Verdict>(params, base, "scrub_status") {
            let labels = [("component", *component), ("target", &target)];
            out.add(families::DAMAGED, &labels, f64::from(!scrub.is_well));
        }
        for (target, servers) in values::<Lines>(params, base, "waiting_on") {
            let labels = [("component", *component), ("target", &target)];
            // a server that answers while it waits for another client is not awaited
            let awaited = servers.0.iter().filter(|line| !line.contains("(waits for "));
            out.add(families::AWAITED, &labels, awaited.count() as f64);
        }
    }
    for base in IMPORTS {
        for (target, state) in values::<Verdict>(params, base, "state") {
            let labels = [("component", "client"), ("target", target.as_str())];
            out.add(families::IMPORT_UP, &labels, f64::from(state.is_well));
        }
    }
    for (base, leaf, component) in STATS {
        for (target, table) in values::<CounterTable>(params, base, leaf) {
            statistics(out, component, &target, &table);
        }
    }
}

/// Parameters that are numbers.
fn numbers(out: &mut Exposition, params: &ParamTree, base: &str, component: &str) {
    for (leaf, family) in NUMBERS {
        for (target, value) in values::<u64>(params, base, leaf) {
            out.add(family, &[("component", component), ("target", &target)], value as f64);
        }
    }
    for (leaf, field, family) in FIELDS {
        for (target, fields) in values::<Fields>(params, base, leaf) {
            if let Some(value) = fields.get(field) {
                out.add(family, &[("component", component), ("target", &target)], value as f64);
            }
        }
    }
}

/// Statistics of each client node and each job.
pub(crate) fn add_shares(out: &mut Exposition, params: &ParamTree) {
    for (base, component) in SHARES {
        for (target, table) in values::<CounterTable>(params, base, "export_stats") {
            clients::add(out, component, &target, &table);
        }
    }
    for (base, component) in SHARES {
        for (target, table) in values::<CounterTable>(params, base, "job_stats") {
            jobs::add(out, component, &target, &table);
        }
    }
}

fn recovery(out: &mut Exposition, component: &str, target: &str, status: &RecoveryStatus) {
    let labels = [("component", component), ("target", target)];
    let state = match status.phase {
        RecoveryPhase::Complete => 0.0,
        RecoveryPhase::Waiting => 1.0,
        RecoveryPhase::Recovering => 2.0,
    };
    for (family, value) in [
        (families::RECOVERY, state),
        (families::RECOVERY_REMAINING, status.remaining_secs as f64),
        (families::RECOVERY_QUEUED, status.queued as f64),
        (families::RECOVERY_REPLAYED, status.replayed as f64),
    ] {
        out.add(family, &labels, value);
    }
    let Progress { connected, completed, clients } = status.progress;
    for (state, count) in [("known", clients), ("connected", connected), ("completed", completed)] {
        let labels = [labels[0], labels[1], ("state", state)];
        out.add(families::RECOVERY_CLIENTS, &labels, count as f64);
    }
}

/// Families of transfers in one direction: samples, smallest, largest, bytes.
type Transfers = [&'static Family; 4];

const READS: Transfers =
    [families::READS, families::READ_MIN, families::READ_MAX, families::READ_BYTES];
const WRITES: Transfers =
    [families::WRITES, families::WRITE_MIN, families::WRITE_MAX, families::WRITE_BYTES];

fn statistics(out: &mut Exposition, component: &str, target: &str, table: &CounterTable) {
    let labels = [("component", component), ("target", target)];
    for line in lines(table) {
        let Counter { samples, min, max, sum, .. } = line.counter;
        let [count, smallest, largest, bytes] = match line.name {
            "read_bytes" => READS,
            "write_bytes" => WRITES,
            operation => {
                let labels = [labels[0], labels[1], ("operation", operation)];
                out.add(families::STATS, &labels, samples as f64);
                continue;
            }
        };
        out.add(count, &labels, samples as f64);
        if line.detail >= Detail::Sum {
            out.add(smallest, &labels, min as f64);
            out.add(largest, &labels, max as f64);
            out.add(bytes, &labels, sum as f64);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Transno;

    use super::*;

    #[test]
    fn the_states_of_a_recovery_are_numbers() {
        let scraped = |phase| {
            let status = RecoveryStatus {
                phase,
                remaining_secs: 7,
                progress: Progress { connected: 3, completed: 1, clients: 4 },
                replayed: 0,
                queued: 0,
                next: Transno(1),
                waits_for: "a, b".to_owned(),
            };
            let mut out = Exposition::default();
            recovery(&mut out, "mdt", "fs-MDT0000", &status);
            let text = out.finish().to_string();
            let line = |name: &str| {
                text.lines()
                    .find_map(|line| line.strip_prefix(name)?.rsplit(' ').next())
                    .map(str::to_owned)
            };
            let clients = |state: &str| {
                let label = format!("component=\"mdt\",target=\"fs-MDT0000\",state=\"{state}\"");
                line(&format!("nacre_recovery_clients{{{label}}}"))
            };
            let state = line("nacre_recovery_state{");
            [state, clients("known"), clients("connected"), clients("completed")]
        };
        let some = |values: [&str; 4]| values.map(|value| Some(value.to_owned()));
        for (phase, state) in [
            (RecoveryPhase::Complete, "0"),
            (RecoveryPhase::Waiting, "1"),
            (RecoveryPhase::Recovering, "2"),
        ] {
            assert_eq!(scraped(phase), some([state, "4", "3", "1"]), "{phase:?}");
        }
    }

    #[test]
    fn a_target_that_is_gone_has_no_series() {
        let params = ParamTree::new();
        params.register_typed("mdt.fs-MDT0000.recovery_status", || Ok(None::<RecoveryStatus>));
        params.register_typed("mdt.fs-MDT0000.num_exports", || Ok(None::<u64>));
        let mut out = Exposition::default();
        add(&mut out, &params);
        assert!(!out.finish().to_string().contains("fs-MDT0000"));
    }
}
