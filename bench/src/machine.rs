//! The machine and the commit that a figure belongs to.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use serde::{Deserialize, Serialize};

/// Load average above which a run is called busy.
const LOAD_QUIET: f64 = 0.5;

/// Where and of what a run was made.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(crate) struct Machine {
    pub(crate) commit: String,
    /// The tree differed from the commit.
    pub(crate) is_dirty: bool,
    pub(crate) cpu: String,
    pub(crate) cpus: usize,
    pub(crate) memory_gib: u64,
    pub(crate) kernel: String,
    /// Load average of the last minute when the run began.
    pub(crate) load: f64,
}

impl Machine {
    pub(crate) fn look() -> Result<Machine> {
        let cpuinfo = fs::read_to_string("/proc/cpuinfo")?;
        let meminfo = fs::read_to_string("/proc/meminfo")?;
        let loadavg = fs::read_to_string("/proc/loadavg")?;
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease")?;
        Ok(Machine {
            commit: output("git", &["rev-parse", "--short=10", "HEAD"])?,
            is_dirty: !output("git", &["status", "--porcelain"])?.is_empty(),
            cpu: field(&cpuinfo, "model name").unwrap_or("unknown processor").to_owned(),
            cpus: cpuinfo.lines().filter(|line| line.starts_with("processor")).count(),
            memory_gib: kib(field(&meminfo, "MemTotal")).div_ceil(1 << 20),
            kernel: kernel.trim().to_owned(),
            load: loadavg
                .split(' ')
                .next()
                .and_then(|word| word.parse().ok())
                .context("/proc/loadavg")?,
        })
    }

    /// Whether figures of both can stand in one table.
    pub(crate) fn is_like(&self, other: &Machine) -> bool {
        let kind = |one: &Machine| (one.cpu.clone(), one.cpus, one.memory_gib, one.kernel.clone());
        kind(self) == kind(other)
    }

    /// One line for the head of a table.
    pub(crate) fn line(&self) -> String {
        let Machine { commit, cpu, cpus, memory_gib, kernel, load, .. } = self;
        let dirty = if self.is_dirty { " with changes" } else { "" };
        format!(
            "Commit {commit}{dirty}; {cpus} CPUs ({cpu}), {memory_gib} GiB, Linux {kernel}; load {load:.1} at the start."
        )
    }

    pub(crate) fn warn_of_load(&self) {
        if self.load > LOAD_QUIET {
            eprintln!(
                "load is {:.1}: other work on this machine will show in the figures",
                self.load
            );
        }
    }
}

/// CPU time of the whole machine since it started, in seconds.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct CpuTime {
    busy: f64,
    /// Waits for disks are part of it.
    idle: f64,
    /// What other machines took.
    stolen: f64,
}

impl CpuTime {
    pub(crate) fn now() -> Result<CpuTime> {
        CpuTime::of(&fs::read_to_string("/proc/stat")?).context("/proc/stat has a line of the CPU")
    }

    /// From the first line: `cpu USER NICE SYSTEM IDLE IOWAIT IRQ SOFTIRQ STEAL ...`.
    fn of(stat: &str) -> Option<CpuTime> {
        let words = stat.lines().next()?.strip_prefix("cpu ")?.split_whitespace();
        let ticks: Vec<f64> = words.map(|word| word.parse::<f64>().ok()).collect::<Option<_>>()?;
        let sum = |fields: &[usize]| -> Option<f64> {
            let each = fields.iter().map(|field| ticks.get(*field).copied());
            Some(each.sum::<Option<f64>>()? / TICKS_PER_SECOND)
        };
        Some(CpuTime { busy: sum(&[0, 1, 2, 5, 6])?, idle: sum(&[3, 4])?, stolen: sum(&[7])? })
    }

    /// Seconds of work since this time.
    pub(crate) fn busy_until(self, now: CpuTime) -> f64 {
        now.busy - self.busy
    }

    /// The idle part of the time since this one.
    pub(crate) fn idle_until(self, now: CpuTime) -> f64 {
        let idle = now.idle - self.idle;
        let all = idle + self.busy_until(now) + now.stolen - self.stolen;
        if all > 0.0 { idle / all } else { 0.0 }
    }
}

/// The kernel's unit of accounts in `/proc`.
const TICKS_PER_SECOND: f64 = 100.0;

/// What a program prints, without the last line's end.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String> {
    let output =
        Command::new(program).args(args).output().with_context(|| format!("{program} starts"))?;
    ensure!(
        output.status.success(),
        "{program} {}: {}",
        args.join(" "),
        String::from_utf8_lossy(&output.stderr).trim()
    );
    Ok(String::from_utf8(output.stdout)?.trim().to_owned())
}

/// Value of the first line `name : value`.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    let line = text.lines().find(|line| line.starts_with(name))?;
    line.split_once(':').map(|(_, value)| value.trim())
}

fn kib(value: Option<&str>) -> u64 {
    value.and_then(|text| text.split(' ').next()?.parse().ok()).unwrap_or(0)
}

/// A number of KiB from `/proc/PID/status`.
pub(crate) fn status_kib(pid: u32, name: &str) -> Result<u64> {
    let text = fs::read_to_string(format!("/proc/{pid}/status"))?;
    Ok(kib(field(&text, name)))
}

/// CPU time that a process has used, in seconds.
pub(crate) fn process_cpu(pid: u32) -> Result<f64> {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat"))?;
    used(&stat).with_context(|| format!("/proc/{pid}/stat has its CPU time"))
}

/// From `PID (NAME) STATE ...`, in which user and system time are the 12th and 13th words behind
/// the name.
fn used(stat: &str) -> Option<f64> {
    let (_, behind) = stat.rsplit_once(')')?;
    let mut words = behind.split_whitespace().skip(11);
    let mut ticks = || words.next()?.parse::<f64>().ok();
    Some((ticks()? + ticks()?) / TICKS_PER_SECOND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found_by_name() {
        let text = "processor\t: 0\nmodel name\t: A CPU\nMemTotal:       24601960 kB\n";
        assert_eq!(field(text, "model name"), Some("A CPU"));
        assert_eq!(kib(field(text, "MemTotal")), 24_601_960);
        assert_eq!(field(text, "bogomips"), None);
    }

    #[test]
    fn work_idle_and_stolen_time_are_apart() {
        let stat = "cpu  100 0 50 700 100 10 20 5 30 0\ncpu0 1 2 3\n";
        let time = CpuTime::of(stat).expect("well formed");
        assert_eq!(time, CpuTime { busy: 1.8, idle: 8.0, stolen: 0.05 });
        let later = CpuTime::of("cpu  100 0 75 770 105 10 20 5 30 0").expect("well formed");
        assert!((time.idle_until(later) - 0.75).abs() < 1e-9);
        assert_eq!(time.idle_until(time), 0.0);
        assert_eq!(CpuTime::of("cpu  1 2"), None);
        let now = CpuTime::now().expect("proc is mounted");
        assert!(now.busy_until(CpuTime::now().expect("proc is mounted")) >= 0.0);
    }

    #[test]
    fn own_memory_is_above_nothing() {
        assert!(status_kib(std::process::id(), "RssAnon").expect("proc is mounted") > 0);
    }

    #[test]
    fn a_process_has_user_and_system_time() {
        let stat = "7 (a ) b) S 1 7 7 0 -1 4194560 1033 0 0 0 250 50 0 0 20 0 5 0 100";
        assert_eq!(used(stat), Some(3.0));
        assert_eq!(used("7 (a) S 1"), None);
        assert!(process_cpu(std::process::id()).expect("proc is mounted") >= 0.0);
    }
}
