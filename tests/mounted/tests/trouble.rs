//! Tools and logs say which server, client or mount is silent, without waiting for it.

use std::fs;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use mounted::{Stopped, Up, daemon_of, is_dead, kill, nacre_bin, posix, until};

/// The most that a tool may take beside a silent server. It asks all servers at once and waits for
/// a few seconds.
const TOOL_SECONDS: &str = "30";

/// Runs a tool outside the mount; it is killed where it hangs.
fn tool(args: &[&str]) -> Output {
    command(args).output().expect("timeout starts")
}

fn command(args: &[&str]) -> Command {
    let mut command = Command::new("timeout");
    command.args(["-s", "KILL", TOOL_SECONDS]).arg(nacre_bin()).args(args).current_dir("/");
    command
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn path(path: &Path) -> &str {
    path.to_str().expect("a path of text")
}

#[test]
fn a_check_names_a_silent_mdt_and_touches_no_file_of_the_mount() {
    let mut up = Up::new("trouble-check");
    let stopped = Stopped::new(up.server("MDT0000"));
    // a look at the mount's root would wait for the stopped MDT
    let checked = tool(&["lfs", "check", "mdts", path(up.mount())]);
    assert_eq!(checked.status.code(), Some(libc::ETIMEDOUT), "{checked:?}");
    let said = text(&checked.stderr);
    assert!(said.contains("check 'testfs-MDT0000'"), "{said}");
    let others = tool(&["lfs", "check", "osts", path(up.mount())]);
    assert!(others.status.success(), "{others:?}");
    assert_eq!(text(&others.stdout).lines().filter(|line| line.ends_with(" active.")).count(), 4);
    drop(stopped);
    let whole = tool(&["lfs", "check", "all", path(up.mount())]);
    assert!(whole.status.success(), "{whole:?}");
    up.stop();
}

#[test]
fn the_space_of_other_mounts_is_shown_beside_a_dead_one() {
    let mut up = Up::new("trouble-df");
    let dead = up.second_mount(23);
    kill(daemon_of(&dead), libc::SIGKILL);
    until("the mount is dead", || is_dead(&dead));
    let behind = up.second_mount(24);
    let lines = [up.mount(), &behind].map(|mount| format!("{}[OST:3]", path(mount)));
    let shown = tool(&["lfs", "df"]);
    let (out, err) = (text(&shown.stdout), text(&shown.stderr));
    assert!(lines.iter().all(|line| out.contains(line)), "{out}{err}");
    assert!(err.contains(path(&dead)) && !shown.status.success(), "{err}");
    for (words, line) in [
        (&["lfs", "osts"][..], "3: testfs-OST0003_UUID ACTIVE"),
        (&["lfs", "check", "osts"][..], "testfs-OST0003 active."),
    ] {
        let shown = command(words).env("NACRE_ANSWER_WAIT", "10").output().expect("timeout starts");
        let (out, err) = (text(&shown.stdout), text(&shown.stderr));
        assert!(out.lines().filter(|there| *there == line).count() >= 2, "{words:?}: {out}{err}");
        assert!(err.contains(path(&dead)) && !shown.status.success(), "{words:?}: {err}");
    }
    up.stop();
    up.fsck();
}

#[test]
fn the_space_of_other_mounts_is_shown_beside_stopped_ones() {
    let mut up = Up::new("trouble-df-stopped");
    let mounts = [26, 27, 28, 29].map(|last| up.second_mount(last));
    let daemons = mounts.each_ref().map(|dir| daemon_of(dir));
    let own_space = format!("{}[OST:3]", path(up.mount()));
    let stopped = daemons.map(Stopped::new);
    // One wait of 4 s, or of 10 s if daemons ask their servers. A wait for each mount is longer
    // than the bound, which a busy machine keeps.
    for (words, own, seconds) in [
        (&["lfs", "df"][..], own_space, 25),
        (&["lfs", "getname"][..], path(up.mount()).to_owned(), 15),
        (&["lfs", "osts"][..], "3: testfs-OST0003_UUID ACTIVE".to_owned(), 15),
        (&["lfs", "check", "all"][..], "testfs-OST0003 active.".to_owned(), 25),
    ] {
        let start = Instant::now();
        let shown = command(words).env("NACRE_ANSWER_WAIT", "4").output().expect("timeout starts");
        assert!(start.elapsed() < Duration::from_secs(seconds), "{words:?}: {:?}", start.elapsed());
        let (out, err) = (text(&shown.stdout), text(&shown.stderr));
        assert!(out.contains(&own), "{words:?}: {out}{err}");
        assert_eq!(shown.status.code(), Some(libc::ETIMEDOUT), "{words:?}: {err}");
        for (dir, pid) in mounts.iter().zip(daemons) {
            let is_named =
                |line: &str| line.contains(path(dir)) && line.contains(&format!("(process {pid})"));
            assert!(err.lines().any(is_named), "{words:?}: {err}");
        }
    }
    drop(stopped);
    up.stop();
}

#[test]
fn the_log_of_a_recovering_server_counts_the_clients_that_are_back() {
    let mut up = Up::new("trouble-log");
    let second = up.second_mount(25);
    fs::write(second.join("f"), "x").expect("the MDT knows this client");
    let stopped = Stopped::new(daemon_of(&second));
    up.kill_server("MDT0000");
    let logs = up.data().join("log");
    let client = format!(":{} (", path(&second)); // between its host and the seconds that are left
    let names_it = |line: &str| {
        let behind = line.split_once("recovery: 1 of 2 clients are back, ").map(|(_, rest)| rest);
        let awaited = behind.and_then(|rest| rest.split_once("; it waits for "));
        line.contains("MDT0000") && awaited.is_some_and(|(_, names)| names.contains(&client))
    };
    let said = || {
        let files = fs::read_dir(&logs).expect("logs").flatten();
        files
            .map(|file| fs::read_to_string(file.path()).unwrap_or_default())
            .any(|text| text.lines().any(names_it))
    };
    until("a line that names the stopped client", said);
    drop(stopped);
    fs::write(up.at("g"), "y").expect("recovery ends");
    up.stop();
}

#[test]
fn users_who_hold_connections_to_control_sockets_keep_no_administrator_out() {
    const NOBODY: u32 = 65_534;
    let mut up = Up::new("trouble-askers");
    let run = std::env::var_os("NACRE_RUN").map_or_else(|| "/run/nacre".into(), PathBuf::from);
    let entries = fs::read_dir(run).expect("a run directory").map(|entry| entry.expect("an entry"));
    let of_a_daemon = |path: &PathBuf| path.to_string_lossy().ends_with(".sock");
    let sockets: Vec<PathBuf> = entries.map(|entry| entry.path()).filter(of_a_daemon).collect();
    let silent: Vec<UnixStream> = posix::as_effective_user(NOBODY, || {
        let connect = |socket: &PathBuf| UnixStream::connect(socket).ok();
        sockets.iter().flat_map(|socket| (0..40).filter_map(move |_| connect(socket))).collect()
    });
    assert!(silent.len() > 5 * 40, "servers and a mount: {sockets:?}");
    let asked = tool(&["lctl", "get_param", "version"]);
    drop(silent);
    assert!(asked.status.success(), "{asked:?}");
    up.stop();
}

/// The log of the mount at `dir`.
fn log_of_mount(dir: &Path) -> PathBuf {
    let run = std::env::var_os("NACRE_RUN").map_or_else(|| "/run/nacre".into(), PathBuf::from);
    run.join(format!("mount-{}.log", path(dir).trim_matches('/').replace('/', "-")))
}

/// The MGS has no files and no locks of a mount that its restart could end.
#[test]
fn the_log_of_a_mount_says_that_a_server_is_lost_and_back() {
    let mut up = Up::new("trouble-lost");
    let mount = up.second_mount(28);
    fs::write(mount.join("f"), "x").expect("the mount is connected");
    let log = log_of_mount(&mount);
    let text = || fs::read_to_string(&log).expect("the mount has a log");
    for (server, name) in [("MDT0000", "testfs-MDT0000"), ("MGS", "MGS")] {
        let begin = format!("connection to {name} at ");
        let is_said = |line: &str, words: &str| line.contains(&begin) && line.contains(words);
        let said = |words: &str| text().lines().any(|line| is_said(line, words));
        assert!(!said(" lost: "), "it was there");
        up.kill_server(server);
        until("a line about the lost server", || said(" lost: operations that need it wait"));
        until("a line about its return", || said(" restored after "));
    }
    fs::write(mount.join("g"), "y").expect("the servers are back");
    assert!(!text().contains("evicted"), "no session had anything to lose: {}", text());
    up.stop();
}

/// The connection is idle: the MDT asks an OST for its room when it chose OSTs by old figures, and
/// no other request is under way.
#[test]
fn the_log_of_an_mdt_says_that_an_ost_is_lost_and_back() {
    let mut up = Up::new("trouble-idle");
    until("an answer of the OST to the MDT", || {
        // a choice needs no connection, so a striped file shows none
        assert_eq!(up.tool(&["lfs", "setstripe", "-c", "-1", "f"]), "");
        fs::remove_file(up.at("f")).expect("it was made");
        up.param("obdfilter.testfs-OST0001.exports").contains("MDT0000")
            && up.param("obdfilter.testfs-OST0001.stats").contains("statfs")
    });
    let log = up.data().join("log/testfs-MDT0000.log");
    let said = |words: &str| {
        let text = fs::read_to_string(&log).expect("the MDT has a log");
        let begin = "connection to testfs-OST0001 at ";
        text.lines().any(|line| line.contains(begin) && line.contains(words))
    };
    assert!(!said(" lost: "), "it was there");
    up.kill_server("OST0001");
    until("a line about the lost server", || said(" lost: operations that need it wait"));
    until("a line about its return", || said(" restored after "));
    up.stop();
}
