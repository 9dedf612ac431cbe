//! Several executors in one process: their targets serve, survive kills together, and are shown as
//! those of one process.

use std::fs;
use std::io::{Read as _, Write as _};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::time::Duration;

use mounted::line::good;
use mounted::nodes::{ADDRESSES, Nodes, Shape};
use mounted::{Scratch, nacre_bin};

const METRICS: &str = "127.0.248.1:9171";
const FILE_BYTES: usize = 3 << 20;

/// Names of a process's threads.
fn threads(pid: u32) -> Vec<String> {
    let tasks = fs::read_dir(format!("/proc/{pid}/task")).expect("it lives").flatten();
    let name = |task: fs::DirEntry| fs::read_to_string(task.path().join("comm"));
    tasks.filter_map(|task| Some(name(task).ok()?.trim().to_owned())).collect()
}

fn scrape() -> String {
    let mut stream = TcpStream::connect(METRICS).expect("the endpoint listens");
    stream.set_read_timeout(Some(Duration::from_secs(10))).expect("a timeout");
    stream.write_all(b"GET /metrics HTTP/1.1\r\nHost: nacre\r\n\r\n").expect("it reads");
    let mut answer = String::new();
    stream.read_to_string(&mut answer).expect("it answers and closes");
    answer
}

/// Writes below a directory of each MDT, over both OSTs.
fn write(mount: &Path, round: u8) {
    for dir in ["near", "far"] {
        for number in 0..20 {
            let path = mount.join(format!("{dir}/{round}.{number}"));
            fs::write(path, vec![round; FILE_BYTES]).expect("written");
        }
    }
}

fn check(mount: &Path, round: u8) {
    for dir in ["near", "far"] {
        for number in 0..20 {
            let path = mount.join(format!("{dir}/{round}.{number}"));
            let bytes = fs::read(path).expect("it is there");
            assert!(bytes == vec![round; FILE_BYTES], "{dir}/{round}.{number}");
        }
    }
}

#[test]
fn two_executors_of_a_killed_process_lose_nothing() {
    let scratch = Scratch::new("executors");
    let mount = scratch.path().join("mnt");
    let mut nodes = Nodes::format(scratch.path());
    let args = ["--metrics", METRICS];
    nodes.start(Shape::OneProcess, &args);
    let [pid] = nodes.processes()[..] else { panic!("one process") };
    assert!(threads(pid).contains(&"executor-1".to_owned()), "{:?}", threads(pid));
    nodes.mount(&mount);
    good(&mount, "lfs mkdir -i 0 near");
    good(&mount, "lfs mkdir -i 1 far");
    good(&mount, "lfs setstripe -c 2 near");
    good(&mount, "lfs setstripe -c 2 far");

    write(&mount, 1);
    nodes.kill();
    nodes.start(Shape::OneProcess, &args);
    write(&mount, 2);
    check(&mount, 1);
    // names cross from an executor to the other one
    fs::rename(mount.join("near/1.0"), mount.join("far/moved")).expect("renamed");
    fs::rename(mount.join("far/moved"), mount.join("near/1.0")).expect("renamed");

    // every target answers, wherever it is
    let names = good(&mount, "lctl get_param -N obdfilter.testfs-OST*.degraded");
    assert_eq!(names.lines().count(), 2, "{names}");
    good(&mount, "lctl set_param obdfilter.testfs-OST*.degraded=1");
    let values = good(&mount, "lctl get_param -n obdfilter.testfs-OST*.degraded");
    assert_eq!(values, "1\n1\n");
    good(&mount, "lctl set_param obdfilter.testfs-OST*.degraded=0");
    let nids = good(&mount, "lctl list_nids");
    assert!(ADDRESSES.iter().all(|at| nids.contains(at)), "{nids}");
    let text = scrape();
    for (target, executor) in [("OST0000", 0), ("OST0001", 1), ("MDT0000", 0), ("MDT0001", 1)] {
        let labels = format!("target=\"testfs-{target}\",executor=\"{executor}\"}}");
        assert!(text.contains(&labels), "{labels} is not in\n{text}");
    }
    assert_eq!(text.matches("# TYPE lustre_health_check ").count(), 1);

    nodes.unmount();
    assert!(nodes.stop().iter().all(std::process::ExitStatus::success));
    // the same targets in two processes: nothing on disk says how they were served
    nodes.start(Shape::TwoProcesses, &[]);
    nodes.mount(&mount);
    check(&mount, 1);
    check(&mount, 2);
    nodes.unmount();
    assert!(nodes.stop().iter().all(std::process::ExitStatus::success));
    nodes.fsck();
}

#[test]
fn an_up_divides_its_targets_among_executors() {
    let scratch = Scratch::new("executors-up");
    let up = |script: &str| {
        let mut command = Command::new(nacre_bin());
        command.args(["up", "--executors", "2", "--mdts", "2", "--osts", "2", "--data"]);
        command.arg(scratch.path().join("data")).arg("--mount").arg(scratch.path().join("mnt"));
        let done = command.args(["--run", script]).output().expect("nacre starts");
        let said = String::from_utf8_lossy(&done.stderr).into_owned();
        assert!(done.status.success(), "{script}: {said}");
        said
    };
    let said = up("mkdir a b c d && for dir in a b c d; do seq 1000 > $dir/file; done");
    let at = |name: &str| {
        let line = said.lines().find(|line| line.trim_start().starts_with(name));
        line.and_then(|line| line.split_whitespace().nth(1)).expect("a line").to_owned()
    };
    assert_eq!(at("MGS"), at("testfs-OST0000"));
    assert_eq!(at("testfs-MDT0001"), at("testfs-OST0001"));
    assert_ne!(at("testfs-MDT0000"), at("testfs-MDT0001"));
    up("for dir in a b c d; do test $(wc -l < $dir/file) = 1000; done && rm -r a b c d");
}
