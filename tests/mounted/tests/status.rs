//! `nacre status`, `nacre top` and `nacre doctor` on a machine that runs a file system.

use std::fs::File;
use std::io::{Read, Write};
use std::process::{Child, Command, Output, Stdio};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use mounted::{PATIENCE, Scratch, Up, kill, nacre_bin, until as await_that, wait_bounded};
use rustix::pty::OpenptFlags;
use rustix::termios::Winsize;
use serde_json::Value;

/// Runs a tool outside the mount. It waits this many seconds for a silent daemon.
fn run(words: &[&str], wait: &str) -> Output {
    let mut command = Command::new(nacre_bin());
    command.args(words).env("NACRE_ANSWER_WAIT", wait).current_dir("/");
    command.output().expect("nacre starts")
}

fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned()
}

fn json(output: &Output) -> Value {
    serde_json::from_slice(&output.stdout).expect("a document")
}

/// Asks until the status has this exit code and these words.
fn until(code: i32, words: &str) -> String {
    let start = Instant::now();
    loop {
        let output = run(&["status"], "30");
        let shown = text(&output);
        if output.status.code() == Some(code) && shown.contains(words) {
            return shown;
        }
        assert!(start.elapsed() < PATIENCE, "not {code} with '{words}': {output:?}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// The words of the first line that begins with `first`.
fn row<'a>(shown: &'a str, first: &str) -> Vec<&'a str> {
    let words = |line: &'a str| line.split_whitespace().collect::<Vec<_>>();
    let found = shown.lines().map(words).find(|words| words.first() == Some(&first));
    found.unwrap_or_else(|| panic!("no line begins with '{first}':\n{shown}"))
}

#[test]
fn a_lost_and_a_silent_server_are_named() {
    let args = ["--osts", "2", "--crashes-max", "1"];
    let mut up = Up::with(Scratch::new("status"), None, &args);
    let shown = until(0, "all well");
    for (name, role) in [("MGS", "MGS"), ("testfs-MDT0000", "MDT"), ("testfs-OST0001", "OST")] {
        assert_eq!(row(&shown, name)[1..3], [role, "up"], "{shown}");
    }
    let dir = up.mount().to_str().expect("text").to_owned();
    assert_eq!(row(&shown, &dir)[1], "testfs");
    assert_eq!(row(&shown, "ost_io")[1..3], ["fifo", "fifo"], "{shown}");
    up.set("ost.OSS.ost_io.nrs_policies", "crrn");
    let all = json(&run(&["status", "--json"], "30"));
    assert_eq!(
        (&all["verdict"], all["targets"].as_array().map(Vec::len)),
        (&"well".into(), Some(5))
    );
    let services = all["services"].as_array().expect("a list");
    let io = services.iter().find(|service| service["name"] == "ost_io").expect("a service");
    assert_eq!((&io["regular"], &io["high_priority"]), (&"crrn".into(), &"crrn".into()));
    assert_eq!(io["servers"].as_array().map(Vec::len), Some(2));
    assert_eq!(all["clients"].as_array().map(Vec::len), Some(1), "{all}");

    up.kill_server("OST0001");
    let shown = until(3, "has no connection to testfs-OST0001 at ");
    assert!(shown.starts_with("degraded: 1 trouble\n"), "{shown}");
    assert_eq!(row(&shown, "testfs-OST0000")[2], "up", "{shown}");
    assert_ne!(row(&shown, "testfs-OST0001")[2], "up", "{shown}");

    let pid = up.server("OST0000");
    kill(pid, libc::SIGSTOP);
    let silent = run(&["status"], "1");
    kill(pid, libc::SIGCONT);
    assert_eq!(silent.status.code(), Some(3), "{silent:?}");
    let line = format!("testfs-OST0000 (process {pid}): the daemon has not answered for 1 s");
    assert!(text(&silent).contains(&line), "{}", text(&silent));

    up.stop();
    let ended = run(&["status"], "30");
    assert_eq!(ended.status.code(), Some(4), "{ended:?}");
    assert!(text(&ended).starts_with("nothing runs here"), "{}", text(&ended));
}

#[test]
fn a_machine_is_judged_check_by_check() {
    let mut up = Up::with(Scratch::new("doctor"), None, &["--osts", "1"]);
    let data = up.data().to_str().expect("text").to_owned();
    let output = run(&["doctor", "--data", &data, "--json"], "30");
    let report = json(&output);
    let expected = if report["verdict"] == "bad" { 3 } else { 0 };
    assert_eq!(output.status.code(), Some(expected), "{report}");
    let checks = report["checks"].as_array().expect("a list");
    let check = |name: &str| {
        let found = checks.iter().find(|check| check["name"] == name);
        found.unwrap_or_else(|| panic!("no check is called '{name}': {report}"))
    };
    for name in ["kernel", "/dev/fuse", "wall clock"] {
        assert_ne!(check(name)["verdict"], "bad", "the tests need it: {report}");
    }
    let port = check("port");
    assert_eq!(port["verdict"], "warn", "the servers listen there: {report}");
    let finding = port["finding"].as_str().expect("text");
    assert!(finding.starts_with("988 is taken at 127.0."), "{finding}");
    for name in ["file system", "mount options", "free space", "O_DIRECT", "fallocate"] {
        assert!(check(name)["finding"].is_string(), "{report}");
    }
    let left = std::fs::read_dir(&data).expect("the data").flatten();
    let names: Vec<_> = left.map(|entry| entry.file_name()).collect();
    assert!(!names.iter().any(|name| name.to_string_lossy().contains("doctor")), "{names:?}");

    let shown = run(&["doctor", "--data", &format!("{data}/nowhere")], "30");
    assert_eq!(shown.status.code(), Some(3), "{shown:?}");
    let shown = text(&shown);
    assert!(shown.lines().any(|line| line.starts_with("bad   storage")), "{shown}");
    assert!(shown.contains("change: mkdir -p DIR"), "{shown}");
    up.stop();
}

/// A command of ours in a terminal of its own.
struct Terminal {
    keys: File,
    /// All that was written to it.
    written: Arc<Mutex<String>>,
    command: Child,
}

impl Terminal {
    fn run(words: &[&str]) -> Terminal {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let keys = rustix::pty::openpt(flags).expect("a terminal");
        rustix::pty::unlockpt(&keys).expect("it is ours");
        let size = Winsize { ws_row: 50, ws_col: 120, ws_xpixel: 0, ws_ypixel: 0 };
        rustix::termios::tcsetwinsize(&keys, size).expect("it is ours");
        let screen = rustix::pty::ioctl_tiocgptpeer(&keys, flags).expect("its other end");
        let screen = || Stdio::from(screen.try_clone().expect("a descriptor"));
        // without --ctty it would take the size of the terminal that the tests run in
        let mut command = Command::new("setsid");
        command.args(["--ctty", "--wait"]).arg(nacre_bin()).args(words).current_dir("/");
        command.env("TERM", "xterm").stdin(screen()).stdout(screen()).stderr(screen());
        let (keys, written) = (File::from(keys), Arc::<Mutex<String>>::default());
        let (mut output, all) = (keys.try_clone().expect("a descriptor"), Arc::clone(&written));
        std::thread::spawn(move || {
            let mut bytes = [0; 4_096];
            // EIO when the command has ended
            while let Ok(length @ 1..) = output.read(&mut bytes) {
                let text = String::from_utf8_lossy(&bytes[..length]);
                all.lock().expect("no panic").push_str(&text);
            }
        });
        Terminal { keys, written, command: command.spawn().expect("setsid starts") }
    }

    fn has(&self, text: &str) -> bool {
        self.written.lock().expect("no panic").contains(text)
    }
}

#[test]
fn a_live_view_shows_the_targets_of_a_running_file_system_until_q() {
    let mut up = Up::with(Scratch::new("top"), None, &["--osts", "1"]);
    let mut terminal = Terminal::run(&["top", "--interval", "1"]);
    await_that("the alternate screen", || terminal.has("\u{1b}[?1049h"));
    for text in ["[1 start]", "WAIT", "TARGET", "testfs-MDT0000", "testfs-OST0000"] {
        await_that(text, || terminal.has(text));
    }
    let nodes = up.param("mdt.*.export_stats");
    assert!(nodes.contains("- nid:") && nodes.contains("req_waittime:"), "{nodes}");
    terminal.keys.write_all(b"q").expect("it reads keys");
    let status = wait_bounded(&mut terminal.command).expect("top ends");
    assert!(status.success(), "{status}");
    await_that("the former screen", || terminal.has("\u{1b}[?1049l"));
    up.stop();
}

#[test]
fn a_live_view_needs_a_terminal() {
    let output = run(&["top"], "30");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("top needs a terminal"), "{said}");
}
