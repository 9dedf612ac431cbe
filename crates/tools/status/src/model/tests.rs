//! Tests of the status: states of targets, troubles, and the keys of the JSON.

use ctl::Who;

use super::*;

fn daemon(name: &str) -> Daemon {
    Daemon { name: name.into(), pid: 12, socket: "/run/a".into() }
}

fn who(kind: &str, mount: Option<&str>) -> Who {
    Who { kind: kind.into(), mount: mount.map(str::to_owned), ..Who::default() }
}

fn answer(name: &str, who: Who, params: &[(&str, &str)]) -> Answered {
    let params = params.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
    Answered { daemon: daemon(name), heard: Ok(Heard { who, params: params.collect() }) }
}

const FIFO: &str = "\nregular_requests:\n  - name: fifo\n    state: started\n    fallback: yes\n    \
    queued: 3\n    active: 1\n\n";
const CRRN: &str = "\nregular_requests:\n  - name: fifo\n    state: started\n    fallback: yes\n    \
    queued: 0\n    active: 0\n\n  - name: crrn\n    state: started\n    fallback: no\n    queued: 2\n    \
    active: 0\n\n";

const COMPLETE: &str = "status: COMPLETE\ntime_remaining: 0\nconnected_clients: 1/1\n";

const CLIENT: &str = "00000007 0x3 127.0.0.11@tcp node1:/mnt\n";

fn ost(name: &str, recovery: &str, free: &str, policies: &str) -> Answered {
    let base = format!("obdfilter.{name}");
    let named = |leaf: &str| format!("{base}.{leaf}");
    let all = [
        (named("recovery_status"), recovery),
        (named("exports"), CLIENT),
        (named("mntdev"), "/srv/ost"),
        (named("kbytestotal"), "1000000"),
        (named("kbytesavail"), free),
        (named("filestotal"), "5000"),
        (named("filesfree"), "4000"),
        ("ost.OSS.ost_io.nrs_policies".to_owned(), policies),
        ("health_check".to_owned(), "healthy"),
        ("version".to_owned(), "0.1.0"),
    ];
    let all: Vec<(&str, &str)> = all.iter().map(|(name, value)| (name.as_str(), *value)).collect();
    answer(name, who("server", None), &all)
}

fn mdt() -> Answered {
    let who = Who { osts: vec!["t-OST0000".into(), "t-OST0007".into()], ..who("server", None) };
    let params = [
        ("mdt.t-MDT0000.recovery_status", COMPLETE),
        ("mdt.t-MDT0000.exports", CLIENT),
        ("health_check", "healthy"),
    ];
    answer("t-MDT0000", who, &params)
}

/// A mount of OST0000 to OST0002 with connections in these states.
fn client(states: [&str; 3], active: &str) -> Answered {
    let mut params = vec![
        ("llite.t-0a.waiting_on".to_owned(), "OST0001 (reconnecting for 3 s)".to_owned()),
        ("llite.t-0a.lost".to_owned(), "0".to_owned()),
        ("health_check".to_owned(), "NOT HEALTHY\nOST0001 (reconnecting for 3 s)".to_owned()),
    ];
    for (index, state) in states.iter().enumerate() {
        let base = format!("osc.t-OST000{index}-osc-0a");
        let import =
            format!("import:\n    connection:\n        current_connection: 10.0.0.{index}@tcp\n");
        params.push((format!("{base}.state"), (*state).to_owned()));
        params.push((format!("{base}.import"), import));
        let is_active = if index == 2 { active } else { "1" };
        params.push((format!("{base}.active"), is_active.to_owned()));
    }
    let params: Vec<(&str, &str)> =
        params.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    answer("client-t-0a", who("client", Some("/mnt")), &params)
}

fn table() -> Vec<MountAt> {
    let daemon = Some(daemon("client-t-0a"));
    vec![MountAt { dir: "/mnt".into(), fsname: "t".into(), daemon }]
}

fn states(status: &Status) -> Vec<(&str, &str)> {
    status.targets.iter().map(|target| (target.name.as_str(), target.state.as_str())).collect()
}

#[test]
fn a_targets_states_are_letters_and_no_troubles() {
    let mut ost = ost("t-OST0000", COMPLETE, "500000", FIFO);
    let Ok(heard) = &mut ost.heard else { panic!("it answered") };
    for (leaf, value) in [("no_create", "1"), ("degraded", "1"), ("readonly", "0")] {
        heard.params.insert(format!("obdfilter.t-OST0000.{leaf}"), value.to_owned());
    }
    let status = status(&[mdt(), ost], &[]);
    assert_eq!(
        status.targets.iter().map(|target| &target.letters[..]).collect::<Vec<_>>()[..2],
        ["", "DN"]
    );
    assert_eq!(status.verdict, Verdict::Well);
}

#[test]
fn nothing_is_not_well() {
    let status = status(&[], &[]);
    assert_eq!((status.verdict, status.verdict.exit_status()), (Verdict::Nothing, 4));
}

#[test]
fn a_whole_file_system_is_well() {
    let answers =
        [mdt(), ost("t-OST0000", COMPLETE, "500000", FIFO), client(["FULL", "FULL", "NEW"], "1")];
    let status = status(&answers, &table());
    assert_eq!(status.troubles, [""; 0]);
    assert_eq!((status.verdict, status.verdict.exit_status()), (Verdict::Well, 0));
    let expected = [
        ("t-MDT0000", "up"),
        ("t-OST0000", "up"),
        ("t-OST0001", "up"),
        ("t-OST0002", "new"),
        ("t-OST0007", "not here"),
    ];
    assert_eq!(states(&status), expected);
    assert_eq!(status.targets[1].space.map(|space| space.kib_free), Some(500_000));
    assert_eq!((status.targets[1].sessions, status.targets[2].sessions), (Some(1), None));
    assert_eq!(status.targets[2].at, "10.0.0.1@tcp");
    assert_eq!(status.clients.len(), 1, "each client once");
    assert_eq!(status.daemons[1].version, "0.1.0");
}

#[test]
fn mdts_know_one_another_and_are_no_clients() {
    let mdts = vec!["t-MDT0000".to_owned(), "t-MDT0001".to_owned()];
    let who = Who { mdts, ..who("server", None) };
    let servers = "00000008 0x4 10.0.0.2@tcp t-MDT0001 at 10.0.0.2@tcp\n\
        00000009 0x5 10.0.0.3@tcp MGS t-MDT0002 t-OST0000 at 10.0.\n";
    let exports = format!("{CLIENT}{servers}");
    let params = [
        ("mdt.t-MDT0000.recovery_status", COMPLETE),
        ("mdt.t-MDT0000.exports", exports.as_str()),
        ("health_check", "healthy"),
    ];
    let status = status(&[answer("t-MDT0000", who, &params)], &[]);
    assert_eq!(states(&status), [("t-MDT0000", "up"), ("t-MDT0001", "not here")]);
    assert_eq!(status.targets[1].role, "MDT");
    let names: Vec<_> = status.clients.iter().map(|client| client.name.as_str()).collect();
    assert_eq!(names, ["node1:/mnt"]);
}

#[test]
fn a_lost_connection_names_the_target_and_the_mount() {
    let answers = [client(["FULL", "DISCONN", "FULL"], "0")];
    let status = status(&answers, &table());
    assert_eq!((status.verdict, status.verdict.exit_status()), (Verdict::Degraded, 3));
    let expected = [
        "/mnt has no connection to t-OST0001 at 10.0.0.1@tcp (DISCONN)",
        "t-OST0002 is out of use (active=0): calls that need it fail with EIO",
    ];
    assert_eq!(status.troubles, expected);
    let shown = [("t-OST0000", "up"), ("t-OST0001", "disconn"), ("t-OST0002", "inactive")];
    assert_eq!(states(&status), shown);
    assert_eq!(status.mounts[0].waiting_on, ["OST0001 (reconnecting for 3 s)"]);
}

#[test]
fn a_recovery_says_for_whom_it_waits() {
    let recovering = "status: RECOVERING\ntime_remaining: 9\nconnected_clients: 1/2\n\
        waiting_for: node1:/mnt (9 s)\n";
    let waiting = "status: WAITING\ntime_remaining: 0\nconnected_clients: 0/2\n";
    let answers =
        [ost("t-OST0000", recovering, "500000", FIFO), ost("t-OST0001", waiting, "500000", FIFO)];
    let status = status(&answers, &[]);
    let expected = [
        "t-OST0000 is in recovery: 1 of 2 clients are back, 9 s left; it waits for node1:/mnt (9 s)",
        "t-OST0001 is in recovery: no client has come back yet",
    ];
    assert_eq!(status.troubles, expected);
    assert_eq!(states(&status), [("t-OST0000", "recovering"), ("t-OST0001", "waiting")]);
    assert_eq!(status.targets[0].recovery.as_ref().map(|recovery| recovery.known), Some(2));
}

#[test]
fn silence_illness_and_full_disks_are_troubles() {
    let silent = Answered {
        daemon: daemon("t-OST0003"),
        heard: Err("the daemon has not answered for 2 s".into()),
    };
    let mut ill = mdt();
    if let Ok(heard) = &mut ill.heard {
        let text = "NOT HEALTHY\nt-MDT0000: a write failed".to_owned();
        heard.params.insert("health_check".to_owned(), text);
    }
    let answers = [silent, ill, ost("t-OST0000", COMPLETE, "999", FIFO)];
    let status = status(&answers, &[]);
    let expected = [
        "t-OST0003 (process 12): the daemon has not answered for 2 s",
        "t-MDT0000 (process 12) is not healthy: t-MDT0000: a write failed",
        "t-OST0000 is full: less than 0.1 % of its space, or fewer than 32 objects, are free",
    ];
    assert_eq!(status.troubles, expected);
    assert_eq!(status.daemons[0].silence.as_deref(), Some("the daemon has not answered for 2 s"));
}

#[test]
fn a_mount_without_its_daemon_is_named_and_one_elsewhere_is_shown() {
    let dead = MountAt { dir: "/dead".into(), fsname: "t".into(), daemon: None };
    let status = status(&[client(["FULL", "FULL", "FULL"], "1")], &[dead]);
    assert_eq!(status.troubles, ["/dead: no daemon serves this mount; umount(8) removes it"]);
    let dirs: Vec<&str> = status.mounts.iter().map(|mount| mount.dir.as_str()).collect();
    assert_eq!(dirs, ["/dead", "/mnt"]);
}

#[test]
fn servers_with_equal_policies_share_a_line() {
    let answers = [
        ost("t-OST0000", COMPLETE, "500000", FIFO),
        ost("t-OST0001", COMPLETE, "500000", CRRN),
        ost("t-OST0002", COMPLETE, "500000", FIFO),
    ];
    let status = status(&answers, &[]);
    let shown: Vec<_> = status
        .services
        .iter()
        .map(|service| (service.regular.as_str(), service.queued, service.servers.len()))
        .collect();
    assert_eq!(shown, [("crrn", 2, 1), ("fifo", 6, 2)]);
}

/// Scripts read these keys.
#[test]
fn the_keys_of_the_json_stay() {
    let recovering = "status: RECOVERING\ntime_remaining: 9\nconnected_clients: 1/2\n";
    let answers =
        [ost("t-OST0000", recovering, "500000", FIFO), client(["FULL", "FULL", "FULL"], "1")];
    let value = serde_json::to_value(status(&answers, &table())).expect("plain values");
    let keys = |value: &serde_json::Value| {
        let object = value.as_object().expect("an object");
        object
            .keys()
            .cloned()
            .collect::<BTreeSet<String>>()
            .into_iter()
            .collect::<Vec<_>>()
            .join(" ")
    };
    assert_eq!(keys(&value), "clients daemons mounts services targets troubles verdict");
    assert_eq!(keys(&value["daemons"][0]), "kind name pid silence version");
    let target = &value["targets"][0];
    assert_eq!(keys(target), "at daemon letters name recovery role sessions space state");
    assert_eq!(keys(&target["space"]), "files_free files_total kib_free kib_total");
    assert_eq!(keys(&target["recovery"]), "connected known seconds_left status waiting_for");
    assert_eq!(keys(&value["services"][0]), "active high_priority name queued regular servers");
    assert_eq!(keys(&value["mounts"][0]), "daemon dir fsname lost waiting_on");
    let mdt = serde_json::to_value(status(&[mdt()], &[])).expect("plain values");
    assert_eq!(keys(&mdt["clients"][0]), "id name nid");
    assert_eq!(mdt["verdict"], "well");
}
