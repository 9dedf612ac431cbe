//! The network's self-test between processes, in a network namespace of its own.
//!
//! The addresses are on that namespace's loopback; namespace, processes and run directory end with
//! the test, however it ends.

use std::fs;
use std::os::unix::fs::symlink;
use std::process::{Command, Stdio};

use mounted::{Scratch, Up, nacre_bin};

/// Nodes of the canonical script: seven servers, each a process; two processes with 127 clients
/// each.
const NODES: &str = r#"
for last in 8 10 12 13 14 15 16; do ip addr add 10.0.0.$last/32 dev lo; done
for last in $(seq 1 254); do ip addr add 10.0.1.$last/32 dev lo; done
for last in 8 10 12 13 14 15 16; do node "10.0.0.$last@tcp"; done
node '10.0.1.[1-253/2]@tcp'
node '10.0.1.[2-254/2]@tcp'
"#;

/// Runs `script` behind `setup` with `lst` and `lctl` on the path; what it printed to stdout and
/// stderr.
fn in_namespace(name: &str, setup: &str, script: &str) -> (String, String) {
    let scratch = Scratch::new(name);
    let (bin, run) = (scratch.path().join("bin"), scratch.path().join("run"));
    fs::create_dir_all(&bin).and_then(|()| fs::create_dir_all(&run)).expect("directories");
    for link in ["nacre", "lst", "lctl"] {
        symlink(nacre_bin(), bin.join(link)).expect("a link");
    }
    let script_path = scratch.path().join("script.sh");
    fs::write(&script_path, script).expect("a script");
    let whole = format!(
        r#"
set -eu
ip link set lo up
count=0
node() {{
    count=$((count + 1))
    : > "$NACRE_RUN/ready.$count"
    nacre lst-node --insecure --nid "$@" > "$NACRE_RUN/ready.$count" 2> "$NACRE_RUN/node.$count.log" &
    for _ in $(seq 600); do grep -q ready "$NACRE_RUN/ready.$count" && return; sleep 0.1; done
    cat "$NACRE_RUN/node.$count.log" >&2; exit 9
}}
{setup}
set +e
bash {}
status=$?
for _ in $(seq 600); do pgrep -f 'lst-consol[e]' > /dev/null || break; sleep 0.1; done
if pgrep -f 'lst-consol[e]' > /dev/null || ls "$NACRE_RUN"/lst/*.sock 2> /dev/null; then echo 'a console is left' >&2; exit 8; fi
exit $status
"#,
        script_path.display()
    );
    // a process namespace too: with its first process everything in it ends
    let output = Command::new("unshare")
        .args(["--net", "--pid", "--fork", "--kill-child", "--mount-proc", "bash", "-c", &whole])
        .env("NACRE_RUN", &run)
        .env("PATH", format!("{}:{}", bin.display(), std::env::var("PATH").unwrap_or_default()))
        .stdin(Stdio::null())
        .output()
        .expect("unshare starts");
    let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
    let (out, err) = (text(&output.stdout), text(&output.stderr));
    assert!(output.status.success(), "{script}\nended with {}\n{out}\n{err}", output.status);
    (out, err)
}

/// Numbers behind `title` in the lines that begin with `start`.
fn numbers(out: &str, start: &str, title: &str) -> Vec<f64> {
    let lines = out.lines().filter(|line| line.starts_with(start));
    lines
        .filter_map(|line| line.split(title).nth(1)?.split_whitespace().next()?.parse().ok())
        .collect()
}

#[test]
fn the_canonical_script_runs_over_processes() {
    let (out, err) = in_namespace("lst-canonical", NODES, include_str!("lst-canonical.sh"));
    println!("{out}");
    let lines: Vec<&str> = out.lines().collect();
    assert_eq!(lines[0], "SESSION: rw FEATURES: 1 TIMEOUT: 300 FORCE: No");
    assert_eq!(lines[1], "10.0.0.[8,10,12-16]@tcp are added to session");
    assert_eq!(
        lines[4..7],
        ["Test was added successfully", "Test was added successfully", "bulk_rw is running now"]
    );
    assert_eq!(lines.last(), Some(&"session is ended"));
    assert!(err.lines().all(|line| line.contains("Terminated")), "{err}");
    let blocks = out.matches("[LNet Rates of servers]").count();
    // each comes after 5 s, and after the answers of all servers, which are busy
    assert!(blocks >= 2, "{blocks} blocks in 30 s");
    for (start, least) in [("[R] ", 1.0), ("[W] ", 1.0)] {
        for value in numbers(&out, start, "Min: ") {
            assert!(value >= 0.01 * least, "every server carries load: {out}");
        }
    }
    // servers send what readers read: more bytes leave than come
    assert!(numbers(&out, "[W] ", "Avg: ").last() > numbers(&out, "[R] ", "Avg: ").last());
}

#[test]
fn a_planted_corruption_is_found() {
    let script = r"
set -eu
export LST_SESSION=7
lst new_session corrupt
lst add_group servers 10.0.0.1@tcp
lst add_group clients 10.0.0.2@tcp
lst add_test --from clients --to servers --loop 100 brw read check=simple size=1M
lst add_test --from clients --to servers --loop 100 brw write check=full size=4K
lst add_test --from clients --to servers --loop 100 brw read check=crc size=64K
lst run batch
for _ in $(seq 600); do lst query batch | grep -q stopped && break; sleep 0.1; done
lst query batch
lst show_error clients servers
lctl set_param lst.corrupt_every=10
lst run batch
for _ in $(seq 600); do lst query batch | grep -q stopped && break; sleep 0.1; done
lst show_error --session clients servers
lst end_session
";
    for crc in ["", " --no-bulk-crc"] {
        let setup = format!(
            "for last in 1 2; do ip addr add 10.0.0.$last/32 dev lo; node 10.0.0.$last@tcp{crc}; done"
        );
        let (out, _) = in_namespace("lst-corrupt", &setup, script);
        let (before, behind) =
            out.split_once("lst.corrupt_every=10").unwrap_or_else(|| panic!("{out}"));
        assert!(
            before.contains("batch [0] is stopped\nclients:\nTotal 0 error nodes in clients\n"),
            "{out}"
        );
        // 300 transfers, one in ten of each sender
        assert!(
            behind.contains("12345-10.0.0.2@tcp: [Session 30 brw errors, 0 ping errors]"),
            "{out}"
        );
        assert!(behind.contains("Total 1 error nodes in clients"), "{out}");
    }
}

#[test]
fn sessions_exclude_each_other_and_percentiles_are_told() {
    let script = r"
set -u
export LST_SESSION=1
lst new_session one
lst new_session again || echo refused $?
lst add_group all 127.0.0.[61-62]@tcp
lst add_group a 127.0.0.61@tcp; lst add_group b 127.0.0.62@tcp
LST_SESSION=2 lst new_session two
LST_SESSION=2 lst add_group mine 127.0.0.61@tcp
LST_SESSION=2 lst list_group mine
LST_SESSION=2 lst end_session
lst add_test --concurrency 4 --from a --to b ping
lst run
lst stat --rpc --delay 1 --count 2 a
lst query --all batch
lst ping
lst stop
lst show_session
lst add_group far 127.0.0.63@tcp
lst list_group --unknown far
lst run none || echo refused $?
lst end_session
lst show_session || echo gone $?
LST_SESSION= lst show_session || echo invalid $?
";
    let (out, err) = in_namespace("lst-session", "node '127.0.0.[61-62]@tcp'", script);
    assert!(out.contains("refused 17") && err.contains("already exists"), "{out}\n{err}");
    assert!(out.contains("\t0\t1\t0\t0\t1\tmine"), "busy in session one: {out}");
    assert!(
        err.contains("failed on 12345-127.0.0.61@tcp: ") && err.contains("it is in session one"),
        "{err}"
    );
    assert!(out.contains("[Test RPCs of a]\n[ping] "), "{out}");
    assert!(numbers(&out, "[ping] ", "p99 ").iter().all(|us| *us > 0.0), "{out}");
    assert!(out.contains("12345-127.0.0.61@tcp [Active]: Running"), "{out}");
    assert!(out.contains("\t12345-127.0.0.62@tcp: Active [session: one id: "), "{out}");
    assert!(
        out.contains("Batch is stopped") && out.contains("KEY: 1 FEATURES: 1 NODES: 2"),
        "{out}"
    );
    assert!(out.contains("\t12345-127.0.0.63@tcp: Unknown\nTotal 1 nodes [ far ]"), "{out}");
    assert!(
        out.contains("refused 2") && out.contains("gone 2") && out.contains("invalid 22"),
        "{out}"
    );
    assert!(err.contains("Can't find env LST_SESSION or value is not valid"), "{err}");
}

#[test]
fn servers_and_mounts_take_part() {
    let mut up = Up::new("lst");
    let second = up.second_mount(78);
    let listed = up.tool(&["lctl", "list_nids"]);
    let server = listed
        .lines()
        .find(|line| line.contains("127.0.") && line.contains('@'))
        .expect("a server")
        .to_owned();
    let (nid, port) = match server.split_once(':') {
        Some((addr, rest)) => (format!("{addr}@tcp"), rest.trim_end_matches("@tcp").to_owned()),
        None => (server.clone(), "988".to_owned()),
    };
    let lst = |args: &[&str]| {
        let mut command = Command::new(nacre_bin());
        command.arg("lst").args(args).env("LST_SESSION", "4711");
        let output = command.output().expect("nacre starts");
        assert!(output.status.success(), "{args:?}: {}", String::from_utf8_lossy(&output.stderr));
        String::from_utf8_lossy(&output.stdout).into_owned()
    };
    lst(&["new_session", "--force", "--port", &port, "daemons"]);
    lst(&["add_group", "servers", &nid]);
    lst(&["add_group", "mounts", "127.0.0.78@tcp"]);
    let counts = lst(&["list_group", "servers", "mounts"]);
    assert_eq!(counts.matches("\t1\t0\t0\t0\t1\t").count(), 2, "{counts}");
    lst(&[
        "add_test",
        "--from",
        "mounts",
        "--to",
        "servers",
        "--loop",
        "50",
        "brw",
        "write",
        "check=crc",
        "size=64K",
    ]);
    lst(&["run"]);
    lst(&["stop"]);
    assert!(lst(&["show_error", "mounts"]).contains("Total 0 error nodes"));
    lst(&["end_session"]);
    fs::write(second.join("after"), b"the file system is as it was").expect("written");
}
