//! Targets and mounts: parameters that are one number, recovery, the scrub, and statistics in
//! Lustre's form.

use params::ParamTree;
use types::{Counter, CounterTable, Detail};

use crate::families::{self, Family};
use crate::text::Exposition;
use crate::{jobs, lines, part, values};

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

/// Lines `NAME: NUMBER` of parameters that have several: last part of the parameter's name, the
/// line's name.
const LINES: &[(&str, &str, &Family)] = &[
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

/// Statistics files in Lustre's form: pattern, component.
const STATS: &[(&str, &str)] = &[
    ("obdfilter.*.stats", "ost"),
    ("mdt.*.md_stats", "mdt"),
    ("mdt_data.*.stats", "mdt_data"),
    ("llite.*.stats", "client"),
    ("llite.*.md_stats", "client"),
];

/// The same for what each job did.
const JOBS: &[(&str, &str)] = &[
    ("obdfilter.*.job_stats", "ost"),
    ("mdt.*.job_stats", "mdt"),
    ("mdt_data.*.job_stats", "mdt_data"),
];

/// All but the jobs.
pub(crate) fn add(out: &mut Exposition, params: &ParamTree) {
    for (base, component) in COMPONENTS {
        for (leaf, family) in NUMBERS {
            for (target, value) in values(params, base, leaf) {
                if let Ok(value) = value.trim().parse() {
                    out.add(family, &[("component", component), ("target", &target)], value);
                }
            }
        }
        for (leaf, line, family) in LINES {
            for (target, text) in values(params, base, leaf) {
                if let Some(value) = field(&text, line).and_then(|value| value.parse().ok()) {
                    out.add(family, &[("component", component), ("target", &target)], value);
                }
            }
        }
        for (target, status) in values(params, base, "recovery_status") {
            recovery(out, component, &target, &status);
        }
        for (target, status) in values(params, base, "scrub_status") {
            let is_damaged = field(&status, "status") == Some("damaged");
            let labels = [("component", *component), ("target", &target)];
            out.add(families::DAMAGED, &labels, f64::from(is_damaged));
        }
        for (target, servers) in values(params, base, "waiting_on") {
            let count = servers.lines().filter(|line| !line.trim().is_empty()).count();
            let labels = [("component", *component), ("target", &target)];
            out.add(families::AWAITED, &labels, count as f64);
        }
    }
    for (pattern, component) in STATS {
        for (name, table) in params.tables(pattern) {
            statistics(out, component, part(&name, 1), &table);
        }
    }
}

/// Statistics of each job.
pub(crate) fn add_jobs(out: &mut Exposition, params: &ParamTree) {
    for (pattern, component) in JOBS {
        for (name, table) in params.tables(pattern) {
            jobs::add(out, component, part(&name, 1), &table);
        }
    }
}

/// The value of a line `NAME: VALUE`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.lines().find_map(|line| line.trim().strip_prefix(name)?.strip_prefix(": "))
}

/// The lines of `recovery_status`. A target that is gone has none.
fn recovery(out: &mut Exposition, component: &str, target: &str, status: &str) {
    let labels = [("component", component), ("target", target)];
    let state = match field(status, "status") {
        Some("COMPLETE") => 0.0,
        Some("WAITING") => 1.0,
        Some("RECOVERING") => 2.0,
        _ => return,
    };
    out.add(families::RECOVERY, &labels, state);
    for (name, family) in [
        ("time_remaining", families::RECOVERY_REMAINING),
        ("queued_requests", families::RECOVERY_QUEUED),
        ("replayed_requests", families::RECOVERY_REPLAYED),
    ] {
        if let Some(value) = field(status, name).and_then(|text| text.parse().ok()) {
            out.add(family, &labels, value);
        }
    }
    let pair = |name| {
        let (some, all) = field(status, name)?.split_once('/')?;
        Some((some.parse::<f64>().ok()?, all.parse::<f64>().ok()?))
    };
    let mut clients = |state, count| {
        let labels = [labels[0], labels[1], ("state", state)];
        out.add(families::RECOVERY_CLIENTS, &labels, count);
    };
    if let Some((connected, known)) = pair("connected_clients") {
        clients("known", known);
        clients("connected", connected);
    }
    if let Some((completed, _)) = pair("completed_clients") {
        clients("completed", completed);
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
    use super::*;

    #[test]
    fn the_states_of_a_recovery_are_numbers() {
        let scraped = |status: &str| {
            let mut out = Exposition::default();
            recovery(&mut out, "mdt", "fs-MDT0000", status);
            let text = out.finish();
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
        let clients = "connected_clients: 3/4\ncompleted_clients: 1/4\n";
        for (word, state) in [("COMPLETE", "0"), ("WAITING", "1"), ("RECOVERING", "2")] {
            let status = format!("status: {word}\ntime_remaining: 7\n{clients}waiting_for: a, b\n");
            assert_eq!(scraped(&status), some([state, "4", "3", "1"]), "{word}");
        }
        assert_eq!(scraped(""), [None, None, None, None], "its target is gone");
        let text = "status: RECOVERING\nconnected_clients: x/y\ncompleted_clients: 2\n";
        assert_eq!(scraped(text), [Some("2".to_owned()), None, None, None]);
    }
}
