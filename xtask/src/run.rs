//! Running other programs: the command is shown, its output passes through, its failure is ours.

use std::process::Command;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

/// Runs `program` with `args` and `envs` in the workspace root.
pub(crate) fn run(program: &str, args: &[&str], envs: &[(&str, &str)]) -> Result<()> {
    eprintln!("+ {program} {}", args.join(" "));
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).envs(envs.iter().copied());
    let status = command.status().with_context(|| format!("{program} did not start"))?;
    if status.success() {
        Ok(())
    } else {
        bail!("{program} {} ended with {status}", args.join(" "))
    }
}

/// As [`run`], but what has not ended after `limit` is ended with all its descendants, and that is
/// a failure: a test that hangs shall not take the report of the others with it.
pub(crate) fn run_within(
    limit: Duration,
    program: &str,
    args: &[&str],
    envs: &[(&str, &str)],
) -> Result<()> {
    eprintln!("+ {program} {}", args.join(" "));
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).envs(envs.iter().copied());
    let mut child = command.spawn().with_context(|| format!("{program} did not start"))?;
    let start = Instant::now();
    while start.elapsed() < limit {
        if let Some(status) = child.try_wait()? {
            return if status.success() {
                Ok(())
            } else {
                bail!("{program} {} ended with {status}", args.join(" "))
            };
        }
        std::thread::sleep(LOOK);
    }
    let family = descendants(child.id());
    for (pid, name) in &family {
        eprintln!("still runs after {} s: {pid} {name}", limit.as_secs());
    }
    for signal in ["-TERM", "-KILL"] {
        for (pid, _) in &family {
            let _already_gone = Command::new("kill").args([signal, &pid.to_string()]).output();
        }
        std::thread::sleep(GRACE);
    }
    child.wait()?;
    bail!("{program} {} did not end within {} s", args.join(" "), limit.as_secs())
}

/// How often a program with a limit is looked at.
const LOOK: Duration = Duration::from_millis(100);
/// What a process that is asked to end has for it: servers write, mounts are detached.
const GRACE: Duration = Duration::from_secs(10);

/// `root` and what descends from it, with their command lines, parents first.
fn descendants(root: u32) -> Vec<(u32, String)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids: Vec<u32> =
        entries.filter_map(|entry| entry.file_name().to_str()?.parse().ok()).collect();
    let parent = |pid: u32| {
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        stat.rsplit(')').next()?.split_whitespace().nth(1)?.parse::<u32>().ok()
    };
    let parents: Vec<(u32, u32)> =
        pids.into_iter().filter_map(|pid| Some((pid, parent(pid)?))).collect();
    let mut found = vec![root];
    let mut at = 0;
    while at < found.len() {
        let next = found[at];
        found.extend(parents.iter().filter(|(_, parent)| *parent == next).map(|(pid, _)| *pid));
        at += 1;
    }
    let line = |pid: u32| {
        std::fs::read_to_string(format!("/proc/{pid}/cmdline"))
            .unwrap_or_default()
            .replace('\0', " ")
    };
    found.into_iter().map(|pid| (pid, line(pid))).collect()
}

/// Runs `program` and returns what it printed.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .with_context(|| format!("{program} did not start"))?;
    if !output.status.success() {
        bail!(
            "{program} {} ended with {}: {}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

pub(crate) fn root() -> std::path::PathBuf {
    let here = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    here.parent().expect("xtask is a folder of the workspace").to_path_buf()
}
