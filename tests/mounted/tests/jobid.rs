//! Jobs of a mount's callers in the servers' counters. `jobid_var` and `jobid_name` are set while
//! mounted.

use std::collections::BTreeMap;
use std::process::Command;

use mounted::{Up, nacre_bin};

const MIB: u64 = 1 << 20;

fn lctl(words: &[&str]) -> std::process::Output {
    Command::new(nacre_bin()).arg("lctl").args(words).output().expect("nacre starts")
}

fn set(pair: &str) {
    let output = lctl(&["set_param", pair]);
    assert!(output.status.success(), "{pair}: {}", String::from_utf8_lossy(&output.stderr));
}

fn get(name: &str) -> String {
    let output = lctl(&["get_param", "-n", name]);
    assert!(output.status.success(), "{name}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// `dd` of whole MiB into a new file, on the servers' disks when it ends. Returns its process id.
fn dd(up: &Up, name: &str, mib: u64, job: Option<(&str, &str)>) -> u32 {
    let mut command = Command::new("dd");
    command.args(["if=/dev/zero", "bs=1M", "conv=fsync", "status=none"]);
    command.arg(format!("count={mib}")).arg(format!("of={}", up.at(name).display()));
    for var in ["SLURM_JOB_ID", "PBS_JOBID"] {
        command.env_remove(var);
    }
    command.envs(job);
    let mut child = command.spawn().expect("dd starts");
    let pid = child.id();
    assert!(child.wait().expect("our child").success(), "dd of {name}");
    pid
}

/// Bytes written per job, over all OSTs, and the servers' own text for a failure's message.
fn written() -> (BTreeMap<String, u64>, String) {
    let text = get("obdfilter.*.job_stats");
    let (mut jobs, mut job) = (BTreeMap::new(), String::new());
    for line in text.lines() {
        if let Some(name) = line.strip_prefix("- job_id:") {
            job = name.trim().to_owned();
        } else if let Some(row) = line.trim().strip_prefix("write_bytes:") {
            let sum = row.split("sum:").nth(1).expect("a sum");
            let sum: u64 = sum
                .trim()
                .trim_end_matches('}')
                .split(',')
                .next()
                .expect("it")
                .trim()
                .parse()
                .expect("a number");
            *jobs.entry(job.clone()).or_default() += sum;
        }
    }
    (jobs, text)
}

#[test]
fn servers_count_what_each_job_wrote() {
    let mut up = Up::new("jobid");
    assert_eq!(get("jobid_var").trim(), "disable");
    dd(&up, "unlabelled", 2, Some(("SLURM_JOB_ID", "4711")));
    let (jobs, text) = written();
    assert!(jobs.is_empty(), "labels are off:\n{text}");

    set("jobid_var=SLURM_JOB_ID");
    dd(&up, "slurm", 5, Some(("SLURM_JOB_ID", "4711")));
    dd(&up, "other", 3, Some(("SLURM_JOB_ID", "4712")));
    // not in a job: by command and user
    dd(&up, "login", 1, None);
    let (jobs, text) = written();
    assert_eq!(jobs.get("4711"), Some(&(5 * MIB)), "{text}");
    assert_eq!(jobs.get("4712"), Some(&(3 * MIB)), "{text}");
    assert_eq!(jobs.get("dd.0"), Some(&MIB), "{text}");
    let names = get("mdt.*.job_stats");
    assert!(names.contains("4711") && names.contains("dd.0"), "MDTs count jobs too:\n{names}");

    set("jobid_name=%j:%e:%g:%p");
    let pid = dd(&up, "named", 2, Some(("SLURM_JOB_ID", "4713")));
    let (jobs, text) = written();
    assert_eq!(jobs.get(&format!("4713:dd:0:{pid}")), Some(&(2 * MIB)), "{text}");

    set("jobid_var=procname_uid");
    set("obdfilter.*.job_stats=clear");
    dd(&up, "procname", 4, Some(("SLURM_JOB_ID", "4714")));
    let (jobs, text) = written();
    assert_eq!(jobs.get("dd.0"), Some(&(4 * MIB)), "{text}");
    assert!(!jobs.keys().any(|job| job.contains("471")), "{text}");

    set("jobid_var=session");
    set("jobid_this_session=nightly build");
    dd(&up, "session", 1, None);
    assert_eq!(written().0.get("nightly?build"), Some(&MIB));

    set("jobid_var=disable");
    set("obdfilter.*.job_stats=clear");
    dd(&up, "silent", 2, Some(("SLURM_JOB_ID", "4711")));
    let (jobs, text) = written();
    assert!(jobs.is_empty(), "labels are off again:\n{text}");

    for wrong in ["jobid_name=%x", "jobid_var=A B", "jobid_name="] {
        assert!(!lctl(&["set_param", wrong]).status.success(), "{wrong} is refused");
    }
    assert_eq!(get("jobid_name").trim(), "%j:%e:%g:%p", "what is refused changes nothing");
    up.stop();
}
