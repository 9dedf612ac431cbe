//! Several machines, set up with the command lines of `docs/operations.md`, each in the network and
//! mount namespaces of its machine.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use mounted::{PATIENCE, Scratch, nacre_bin};

/// The lines of the section: machine and command.
fn lines() -> Vec<(String, String)> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/operations.md");
    let text = std::fs::read_to_string(path).expect("the page");
    let section = text.split("\n## Several machines\n").nth(1).expect("the section");
    let block = section.split("```").nth(1).expect("its block");
    let lines: Vec<_> = block
        .lines()
        .filter_map(|line| line.split_once("# "))
        .map(|(host, command)| (host.to_owned(), command.trim().to_owned()))
        .collect();
    assert!((5..=10).contains(&lines.len()), "{lines:?}");
    lines
}

/// A bridge that all machines are on.
const SWITCH: &str = "ip link add several type bridge && ip link set several up";
/// The life of a machine: directories of its own, then nothing until its standard input ends.
const LIFE: &str = r#"
    ip link set lo up
    for dir in /srv /mnt /run; do mkdir -p $dir; mount -t tmpfs none $dir; done
    echo up; read -r _ || true"#;

/// A machine of its own: network, mounts, processes. It ends with this.
struct Host {
    life: Child,
    pid: u32,
    path: PathBuf,
    /// What runs in the background there.
    serving: Vec<Child>,
}

impl Host {
    fn new(name: &str, address: &str, path: &Path) -> Host {
        let mut life = Command::new("unshare")
            .args(["--net", "--mount", "--propagation", "private", "sh", "-euc", LIFE])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .expect("unshare starts");
        let mut ready = [0; 3];
        let out = life.stdout.as_mut().expect("piped");
        std::io::Read::read_exact(out, &mut ready).expect("the machine is up");
        let host = Host { pid: life.id(), life, path: path.to_owned(), serving: Vec::new() };
        let link = format!(
            "ip link add p-{name} type veth peer name eth0 netns {} && ip link set p-{name} master several up",
            host.pid
        );
        done(&Command::new("sh").args(["-euc", &link]).output().expect("sh starts"), &link);
        let up = format!("ip addr add {address}/24 dev eth0; ip link set eth0 up");
        done(&host.command(&up).output().expect("nsenter starts"), &up);
        host
    }

    fn command(&self, line: &str) -> Command {
        let path = format!("{}:{}", self.path.display(), std::env::var("PATH").expect("a PATH"));
        let mut command = Command::new("nsenter");
        command
            // a mount namespace is entered at its own root, which need not be that of this test
            .args(["--net", "--mount", "--root", "-t", &self.pid.to_string(), "sh", "-euc"])
            .arg(line)
            .env("PATH", path)
            .env_remove("NACRE_RUN");
        command
    }

    fn run(&mut self, line: &str) -> String {
        match line.strip_suffix('&') {
            Some(daemon) => {
                let daemon = format!("exec {daemon}"); // so that a signal reaches it
                let child = self.command(&daemon).stdin(Stdio::null()).spawn();
                self.serving.push(child.expect("nsenter starts"));
                String::new()
            }
            None => done(&self.command(line).output().expect("nsenter starts"), line),
        }
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        for child in &mut self.serving {
            mounted::kill(child.id(), libc::SIGTERM);
            let _it_has_ended = mounted::wait_bounded(child);
        }
        drop(self.life.stdin.take());
        let _it_has_ended = mounted::wait_bounded(&mut self.life);
    }
}

fn done(output: &Output, what: &str) -> String {
    let error = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{what}: {}: {error}", output.status);
    String::from_utf8_lossy(&output.stdout).into_owned()
}

#[test]
fn the_page_of_several_machines_holds_line_by_line() {
    let scratch = Scratch::new("several");
    std::os::unix::fs::symlink(nacre_bin(), scratch.path().join("nacre")).expect("a link");
    done(&Command::new("sh").args(["-euc", SWITCH]).output().expect("sh starts"), SWITCH);
    let mut hosts = BTreeMap::new();
    let mut last = String::new();
    for (name, line) in lines() {
        // servers say their own address; the others only have one
        let count = hosts.len() + 1;
        let host = hosts
            .entry(name.clone())
            .or_insert_with(|| Host::new(&name, &format!("10.20.0.{count}"), scratch.path()));
        println!("{name}# {line}");
        last = host.run(&line);
    }
    let client = hosts.get_mut("client").expect("the page has one");
    // all lines come at once here: the mount may be older than an OST
    let start = Instant::now();
    while !(last.contains("work-OST0000") && last.contains("work-OST0001")) {
        assert!(start.elapsed() < PATIENCE, "lfs df: {last}");
        std::thread::sleep(Duration::from_millis(200));
        last = client.run("nacre lfs df /mnt");
    }
    client.run("dd if=/dev/urandom of=/mnt/file bs=1M count=8 status=none");
    let striped = client.run("nacre lfs getstripe -c /mnt/file");
    assert_eq!(striped.trim(), "1");
    // the machine of the MDT asks the OSTs of other machines
    let mut objects = 0;
    for (disk, ost) in [("disk1", "work-OST0000"), ("disk2", "work-OST0001")] {
        let line = format!("nacre list-objects {ost}");
        let mut list = |host: &str| hosts.get_mut(host).expect("the page has it").run(&line);
        let own = list(disk);
        assert_eq!(list("meta"), own);
        objects += own.lines().count() - 1; // the last one counts them
    }
    assert!(objects > 0, "the file has one");
    let client = hosts.get_mut("client").expect("the page has one");
    let start = Instant::now();
    client.run("nacre umount /mnt");
    assert!(start.elapsed() < PATIENCE);
}
