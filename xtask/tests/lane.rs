//! A lane reports its program's leftovers, also after a failure, and ends processes that hang.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// Seconds for a program that ends, also on a busy machine.
const PATIENCE: u32 = 60;
/// Seconds within which a program that hangs has begun to.
const HANGS_BY_THEN: u32 = 6;

/// Exit status of a lane that ends after so many seconds, what it found left, and what it said.
fn lane(name: &str, limit: u32, script: &str) -> (Option<i32>, String, String) {
    let dir = std::env::temp_dir().join(format!("xtask-lane-{name}-{}", std::process::id()));
    fs::create_dir_all(dir.join("tmp")).expect("a directory");
    let mut command = Command::new("unshare");
    command
        .args(["--net", "--mount", "--pid", "--fork", "--kill-child", "--mount-proc"])
        .arg(PathBuf::from(env!("CARGO_BIN_EXE_xtask")))
        .args(["inside-lane", &limit.to_string()])
        .arg(&dir)
        .args(["sh", "-c", script])
        .env("TMPDIR", dir.join("tmp"))
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    let mut child = command.spawn().expect("unshare starts");
    let alive = child.stdin.take();
    let output = child.wait_with_output().expect("it ends");
    drop(alive);
    let left = fs::read_to_string(dir.join("left")).unwrap_or_default();
    fs::remove_dir_all(&dir).expect("the directory");
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    (output.status.code(), left, said)
}

#[test]
fn a_program_that_leaves_nothing_passes() {
    let (status, left, said) =
        lane("clean", PATIENCE, "ip -brief address show lo | grep -q 127.0.0.1");
    assert_eq!((status, left.as_str()), (Some(0), ""), "{said}");
}

#[test]
fn a_process_that_stays_is_told_and_ended() {
    let (status, left, _) = lane("process", PATIENCE, "setsid sleep 4711 & exit 0");
    assert!(status == Some(123) && left.contains("sleep 4711"), "{status:?} {left}");
}

#[test]
fn leftovers_of_a_failed_program_are_told_too() {
    let script = "mkdir /run/m; mount -t tmpfs none /run/m; echo x > $TMPDIR/file; exit 3";
    let (status, left, _) = lane("failed", PATIENCE, script);
    assert!(status == Some(1) && left.contains("mount none /run/m"), "{status:?} {left}");
    assert!(left.contains("scratch ") && left.contains("/file"), "{left}");
}

#[test]
fn a_program_that_hangs_is_ended_with_all_that_it_started() {
    let script = "echo x > $TMPDIR/file; sleep 4712 & sleep 4713";
    let (status, left, said) = lane("hang", HANGS_BY_THEN, script);
    assert_eq!(status, Some(124), "{said}");
    assert!(said.contains("sleep 4712") && said.contains("sleep 4713"), "{said}");
    assert!(left.contains("scratch ") && left.contains("/file"), "{left}");
    let still = fs::read_dir("/proc").expect("proc").flatten().any(|entry| {
        let words = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        words.starts_with(b"sleep\x004712") || words.starts_with(b"sleep\x004713")
    });
    assert!(!still, "a process of the lane lives on");
}
