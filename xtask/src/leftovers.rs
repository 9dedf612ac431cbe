//! What a test run must not leave on a machine: mounts, loop devices, namespaces, processes.

use std::fs;

use anyhow::{Result, bail};

use crate::run;

/// The state of the machine that tests may change, as sorted lines.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Machine(Vec<String>);

impl Machine {
    pub(crate) fn now() -> Machine {
        let mut lines = Vec::new();
        let mounts = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
        lines.extend(
            mounts.lines().filter(|line| is_ours(line)).map(|line| format!("mount {line}")),
        );
        if let Ok(loops) = run::output("losetup", &["-a"]) {
            lines.extend(loops.lines().map(|line| format!("loop {line}")));
        }
        for entry in fs::read_dir("/run/netns").into_iter().flatten().flatten() {
            lines.push(format!("namespace {}", entry.file_name().to_string_lossy()));
        }
        lines.extend(processes());
        lines.sort();
        Machine(lines)
    }

    /// Fails where something is there that was not there `before`.
    pub(crate) fn compare(before: &Machine) -> Result<()> {
        let mut extra = Vec::new();
        for _ in 0..50 {
            extra = Machine::now().0.into_iter().filter(|line| !before.0.contains(line)).collect();
            if extra.is_empty() {
                return Ok(());
            }
            std::thread::sleep(std::time::Duration::from_millis(100));
        }
        bail!("left behind on the machine:\n  {}", extra.join("\n  "))
    }
}

fn is_ours(line: &str) -> bool {
    line.contains(" fuse.nacre ")
        || line.contains("/dev/loop")
        || (line.contains(" fuse") && !line.contains("fusectl"))
}

fn processes() -> Vec<String> {
    let mut found = Vec::new();
    for entry in fs::read_dir("/proc").into_iter().flatten().flatten() {
        let Ok(pid) = entry.file_name().to_string_lossy().parse::<u32>() else { continue };
        let command = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let words: Vec<_> = command.split(|byte| *byte == 0).map(String::from_utf8_lossy).collect();
        let program = words
            .first()
            .map(|word| word.rsplit('/').next().unwrap_or("").to_owned())
            .unwrap_or_default();
        if program == "nacre" {
            found.push(format!("process {pid} {}", words.join(" ")));
        }
    }
    found
}
