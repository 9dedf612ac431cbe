//! The process of a daemon: the metrics that Prometheus's client libraries have, from `/proc`.

use std::fs;

use crate::families;
use crate::text::Exposition;

/// Ticks of a second in `/proc`: the same on every architecture of Linux.
const TICKS: f64 = 100.0;

/// A part that cannot be read has no series.
pub(crate) fn add(out: &mut Exposition) {
    let read = |name: &str| fs::read_to_string(name).unwrap_or_default();
    let now = Process {
        stat: &read("/proc/self/stat"),
        status: &read("/proc/self/status"),
        limits: &read("/proc/self/limits"),
        of_machine: &read("/proc/stat"),
    };
    // one of them is that of the directory that is read
    let open = fs::read_dir("/proc/self/fd").map(|open| open.count().saturating_sub(1)).ok();
    for (family, value) in [
        (families::PROCESS_CPU, now.cpu_seconds()),
        (families::PROCESS_START, now.start_seconds()),
        (families::PROCESS_RESIDENT, now.bytes("VmRSS:")),
        (families::PROCESS_VIRTUAL, now.bytes("VmSize:")),
        (families::PROCESS_THREADS, now.status("Threads:")),
        (families::PROCESS_FDS, open.map(|open| open as f64)),
        (families::PROCESS_FDS_MAX, now.fds_max()),
    ] {
        if let Some(value) = value {
            out.add_of_process(family, &[], value);
        }
    }
    let (name, pid) = now.name_and_pid();
    out.add_of_process(families::PROCESS_INFO, &[("name", name), ("pid", pid)], 1.0);
}

/// Texts of `/proc`.
struct Process<'a> {
    stat: &'a str,
    status: &'a str,
    limits: &'a str,
    of_machine: &'a str,
}

impl Process<'_> {
    fn name_and_pid(&self) -> (&str, &str) {
        let (head, _) = self.stat.rsplit_once(')').unwrap_or_default();
        let (pid, name) = head.split_once(" (").unwrap_or_default();
        (name, pid)
    }

    /// Field `at` of `stat`, from 1 as in proc(5): of those behind the name.
    fn field(&self, at: usize) -> Option<f64> {
        let (_, fields) = self.stat.rsplit_once(')')?;
        fields.split_whitespace().nth(at.checked_sub(3)?)?.parse().ok()
    }

    /// In user mode and in the kernel.
    fn cpu_seconds(&self) -> Option<f64> {
        Some((self.field(14)? + self.field(15)?) / TICKS)
    }

    /// Since 1970.
    fn start_seconds(&self) -> Option<f64> {
        let booted = self.of_machine.lines().find_map(|line| line.strip_prefix("btime "))?;
        Some(booted.trim().parse::<f64>().ok()? + self.field(22)? / TICKS)
    }

    fn status(&self, name: &str) -> Option<f64> {
        let value = self.status.lines().find_map(|line| line.strip_prefix(name))?;
        value.split_whitespace().next()?.parse().ok()
    }

    fn bytes(&self, name: &str) -> Option<f64> {
        Some(self.status(name)? * 1_024.0)
    }

    /// The soft limit.
    fn fds_max(&self) -> Option<f64> {
        let limit = self.limits.lines().find_map(|line| line.strip_prefix("Max open files"))?;
        limit.split_whitespace().next()?.parse().ok()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_of_proc_are_understood() {
        let process = Process {
            stat: "42 (a b) c) S 1 42 42 0 -1 4194304 9 0 0 0 150 50 0 0 20 0 8 0 1250 99 7",
            status: "Name:\tnacre\nVmSize:\t    2000 kB\nVmRSS:\t       3 kB\nThreads:\t8\n",
            limits: "Limit  Soft Limit  Hard Limit  Units\nMax open files   1024  4096  files\n",
            of_machine: "cpu 1 2\nbtime 1700000000\n",
        };
        assert_eq!(process.name_and_pid(), ("a b) c", "42"));
        assert_eq!(process.cpu_seconds(), Some(2.0));
        assert_eq!(process.start_seconds(), Some(1_700_000_012.5));
        assert_eq!(
            (process.bytes("VmRSS:"), process.bytes("VmSize:")),
            (Some(3_072.0), Some(2_048_000.0))
        );
        assert_eq!((process.status("Threads:"), process.fds_max()), (Some(8.0), Some(1_024.0)));
        let none = Process { stat: "", status: "", limits: "", of_machine: "" };
        assert_eq!(
            (none.name_and_pid(), none.cpu_seconds(), none.fds_max()),
            (("", ""), None, None)
        );
    }

    #[test]
    fn this_process_has_every_metric_without_the_label_of_an_executor() {
        let mut out = Exposition::of(Some(1));
        add(&mut out);
        let text = out.finish().to_string();
        for family in families::ALL.iter().filter(|family| family.name.starts_with("process_")) {
            assert!(text.contains(&format!("\n{} ", family.name)), "{}: {text}", family.name);
        }
        let pid = std::process::id();
        assert!(text.contains(&format!(",pid=\"{pid}\"}} 1\n")), "{text}");
    }
}
