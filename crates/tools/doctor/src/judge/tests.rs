//! Tests of verdicts: a good machine passes every check, and each fault is found.

use super::*;
use crate::Verdict::{self, Bad, Ok as Fine, Warn};

fn fuse() -> Fuse {
    Fuse {
        device: Ok(()),
        is_there: true,
        helper: Some("/usr/bin/fusermount3".into()),
        user_allow_other: true,
        max_user_bgreq: Some(49_051),
        enable_uring: Some(true),
        max_pages: Some(1_024),
    }
}

fn limits() -> Limits {
    Limits { nofile: Some(65_536), nofile_hard: None, memlock: Some(8 << 20), pids: None }
}

fn free_port() -> Port {
    Port { number: 988, taken: Ok(()), listeners: Vec::new(), first_unprivileged: 1_024 }
}

fn disk() -> Storage {
    Storage {
        dir: "/srv/ost0".into(),
        kind: "ext4".into(),
        source: "/dev/sda1".into(),
        options: vec!["rw".into(), "relatime".into()],
        has_journal: Some(true),
        bytes: 100 << 30,
        bytes_free: 60 << 30,
        files: 6_000_000,
        files_free: 5_000_000,
        write: Ok(()),
        direct: Ok(()),
        allocate: Ok(()),
        punch: Ok(()),
    }
}

fn good() -> Facts {
    Facts {
        kernel: "6.12.1-amd64".into(),
        is_root: false,
        fuse: fuse(),
        limits: limits(),
        io_uring: Ok(()),
        port: free_port(),
        clock: Clock { now: 1_780_000_000, is_synchronised: Some(true) },
        memory: Memory { total: 16 << 20, available: 8 << 20 },
        cpus: 8,
        storage: Some(Ok(disk())),
    }
}

fn failed() -> Tried {
    Err("Operation not supported".into())
}

/// The verdict, and whether the check says what to change and why, as all do that are not fine.
fn verdict(check: Check) -> Verdict {
    assert_eq!(check.change.is_some(), check.why.is_some(), "{check:?}");
    assert!(check.verdict == Fine || check.change.is_some(), "{check:?}");
    check.verdict
}

#[test]
fn a_good_machine_has_nothing_to_change() {
    for check in all(&good()) {
        assert_eq!((check.verdict, &check.change), (Fine, &None), "{check:?}");
    }
    assert_eq!(all(&good()).len(), 23);
    assert_eq!(all(&Facts { storage: None, ..good() }).len(), 16);
    let missing = Facts { storage: Some(Err("/srv: No such file".into())), ..good() };
    let last = all(&missing).pop().expect("a check");
    assert!(last.finding.starts_with("/srv"), "{last:?}");
    assert_eq!(verdict(last), Bad);
}

#[test]
fn kernels_are_judged_by_their_version() {
    let all = ["4.19.0", "5.4.0-1", "6.1.0-18-amd64", "6.6", "6.18.44-fc-v669", "10.0", "odd"];
    let expected = [Bad, Warn, Warn, Fine, Fine, Fine, Warn];
    assert_eq!(all.map(|release| verdict(kernel(release))), expected);
}

#[test]
fn fuse_needs_its_device_and_an_ordinary_user_the_helper() {
    let missing = Fuse { device: failed(), is_there: false, ..fuse() };
    let closed = Fuse { device: failed(), ..fuse() };
    assert!(device(&missing).change.is_some_and(|change| change.contains("modprobe fuse")));
    assert!(device(&closed).change.is_some_and(|change| change.contains("chmod")));
    assert_eq!([verdict(device(&missing)), verdict(device(&closed))], [Bad, Bad]);
    let bare = Fuse {
        helper: None,
        user_allow_other: false,
        max_user_bgreq: Some(12),
        enable_uring: Some(false),
        max_pages: Some(256),
        ..fuse()
    };
    assert_eq!([true, false].map(|is_root| verdict(helper(&bare, is_root))), [Fine, Bad]);
    assert_eq!([true, false].map(|is_root| verdict(other_users(&bare, is_root))), [Fine, Warn]);
    assert_eq!([true, false].map(|is_root| verdict(background(&bare, is_root))), [Fine, Warn]);
    assert_eq!(verdict(transport(&bare)), Fine);
    assert!(transport(&bare).change.is_some() && requests(&bare).change.is_some());
    let old = Fuse { max_user_bgreq: None, enable_uring: None, max_pages: None, ..fuse() };
    assert_eq!(verdict(background(&old, false)), Fine);
    assert!(transport(&old).change.is_none() && requests(&old).change.is_none());
    assert_eq!([verdict(io_uring(&Ok(()))), verdict(io_uring(&failed()))], [Fine, Warn]);
}

#[test]
fn small_limits_are_warned_of() {
    let small = Limits {
        nofile: Some(1_024),
        memlock: Some(64 << 10),
        pids: Some(100),
        nofile_hard: Some(4_096),
    };
    assert_eq!([verdict(nofile(&small)), verdict(nofile(&limits()))], [Warn, Fine]);
    assert_eq!(nofile(&small).finding, "1024 (hard: 4096)");
    let locked = |release: &str, is_root| verdict(memlock(&small, release, is_root));
    let found = [locked("5.10.0", false), locked("5.10.0", true), locked("6.1.0", false)];
    assert_eq!(found, [Warn, Fine, Fine]);
    assert_eq!([verdict(pids(&small)), verdict(pids(&limits()))], [Warn, Fine]);
}

#[test]
fn a_taken_port_names_its_listeners() {
    let at = "127.0.0.2:988".parse().expect("an address");
    let taken = Port { taken: failed(), listeners: vec![at], ..free_port() };
    assert_eq!(port(&taken, true).finding, "988 is taken at 127.0.0.2:988");
    assert_eq!(verdict(port(&taken, true)), Warn);
    let refused = Port { taken: failed(), ..free_port() };
    assert_eq!(port(&refused, false).finding, "988 is for root; yours begin at 1024");
    assert!(port(&refused, true).finding.starts_with("988 cannot be taken"));
    assert_eq!([true, false].map(|is_root| verdict(port(&refused, is_root))), [Warn, Warn]);
}

#[test]
fn a_clock_is_sane_and_kept() {
    let wall = |now| verdict(wall_clock(&Clock { now, is_synchronised: None }));
    assert_eq!([wall(0), wall(1_780_000_000), wall(5_000_000_000)], [Bad, Fine, Bad]);
    let kept = |is_synchronised| verdict(synchronised(&Clock { now: 0, is_synchronised }));
    assert_eq!([kept(Some(true)), kept(Some(false)), kept(None)], [Fine, Warn, Fine]);
}

#[test]
fn memory_and_cpus_are_enough() {
    let with = |mib: u64| verdict(memory(&Memory { total: 8 << 20, available: mib << 10 }));
    assert_eq!([with(511), with(512), with(2_047), with(2_048)], [Bad, Warn, Warn, Fine]);
    assert_eq!([1, 2].map(|count| verdict(cpus(count))), [Warn, Fine]);
}

#[test]
fn local_file_systems_are_good_and_remote_ones_bad() {
    let on = |kind_of: &str| verdict(kind(&Storage { kind: kind_of.into(), ..disk() }));
    let expected =
        [("xfs", Fine), ("tmpfs", Warn), ("btrfs", Warn), ("overlay", Warn), ("nfs4", Bad)];
    for (name, expected) in expected {
        assert_eq!(on(name), expected, "{name}");
    }
    assert_eq!(on("fuse.nacre"), Bad);
    let with = |has_journal| verdict(journal(&Storage { has_journal, ..disk() }));
    assert_eq!([with(Some(false)), with(Some(true)), with(None)], [Bad, Fine, Fine]);
    assert_eq!(verdict(journal(&Storage { kind: "ext2".into(), ..disk() })), Bad);
}

#[test]
fn options_that_lose_acknowledged_work_are_bad() {
    let with = |option: &str| {
        let storage = Storage { options: vec!["rw".into(), option.into()], ..disk() };
        verdict(options(&storage))
    };
    let expected = [
        ("noatime", Fine),
        ("ro", Bad),
        ("nobarrier", Bad),
        ("barrier=0", Bad),
        ("data=writeback", Warn),
        ("data=ordered", Fine),
        ("journal_async_commit", Warn),
        ("sync", Warn),
    ];
    for (option, expected) in expected {
        assert_eq!(with(option), expected, "{option}");
    }
    assert_eq!(verdict(options(&Storage { write: failed(), ..disk() })), Bad);
}

#[test]
fn room_is_judged_by_the_rules_of_placement() {
    let with = |mib: u64| verdict(space(&Storage { bytes_free: mib << 20, ..disk() }));
    assert_eq!([with(100), with(103), with(10_239), with(10_240)], [Bad, Warn, Warn, Fine]);
    assert_eq!(space(&disk()).finding, "61440 of 102400 MiB (60.0 %)");
    let files = |files, files_free| verdict(inodes(&Storage { files, files_free, ..disk() }));
    assert_eq!([files(0, 0), files(50_000, 9_999), files(50_000, 10_000)], [Fine, Warn, Fine]);
}

#[test]
fn storage_should_do_direct_io_and_must_allocate() {
    assert_eq!(verdict(direct(&Storage { direct: failed(), ..disk() })), Warn);
    assert_eq!(verdict(ranges(&Storage { punch: failed(), ..disk() })), Warn);
    let neither = Storage { allocate: failed(), punch: failed(), ..disk() };
    assert_eq!(verdict(ranges(&neither)), Bad);
}
