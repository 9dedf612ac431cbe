//! One mount's kernel never uses cached state that another mount has already changed.

use std::fs;
use std::io::{self, Write};
use std::os::unix::fs::{DirEntryExt, MetadataExt, PermissionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

use mounted::posix::{getxattr, setxattr};
use mounted::{Stopped, Up, count, daemon_of, until};

/// A directory each, since what two clients were after is not believed for a while.
const ROUNDS: (usize, usize) = (25, 400);

/// So many looks in a row ask the MDT for nothing, of so many at most.
const QUIET: usize = 6;
const LOOKS: usize = 4 * QUIET;

const ACCESS: &str = "system.posix_acl_access";
const LABEL: &str = "security.selinux";

/// Something that the second mount does to `f`, and what the first must see at once.
struct Case {
    name: &'static str,
    change: fn(&Path) -> io::Result<()>,
    check: fn(&Path) -> bool,
}

const CASES: &[Case] = &[
    Case {
        name: "chmod",
        change: |dir| fs::set_permissions(dir.join("f"), fs::Permissions::from_mode(0o600)),
        check: |dir| fs::metadata(dir.join("f")).is_ok_and(|meta| meta.mode() & 0o777 == 0o600),
    },
    Case {
        name: "unlink",
        change: |dir| fs::remove_file(dir.join("f")),
        check: |dir| {
            fs::metadata(dir.join("f")).is_err_and(|error| error.kind() == io::ErrorKind::NotFound)
        },
    },
    Case {
        name: "rename over",
        change: |dir| {
            fs::write(dir.join("g"), b"longer than before")?;
            fs::rename(dir.join("g"), dir.join("f"))
        },
        check: |dir| fs::metadata(dir.join("f")).is_ok_and(|meta| meta.len() == 18),
    },
    Case {
        name: "append",
        change: |dir| fs::File::options().append(true).open(dir.join("f"))?.write_all(b"more"),
        check: |dir| {
            fs::metadata(dir.join("f")).is_ok_and(|meta| meta.len() == 8)
                && fs::read(dir.join("f")).is_ok_and(|data| data == b"4 bymore")
        },
    },
    Case {
        name: "truncate",
        change: |dir| fs::File::options().write(true).open(dir.join("f"))?.set_len(1),
        check: |dir| fs::metadata(dir.join("f")).is_ok_and(|meta| meta.len() == 1),
    },
    Case {
        name: "link",
        change: |dir| fs::hard_link(dir.join("f"), dir.join("g")),
        check: |dir| fs::metadata(dir.join("f")).is_ok_and(|meta| meta.nlink() == 2),
    },
    Case {
        name: "create beside it",
        change: |dir| fs::create_dir(dir.join("d")),
        check: |dir| {
            fs::metadata(dir).is_ok_and(|meta| meta.nlink() == 3)
                && fs::read_dir(dir).is_ok_and(|names| names.count() == 2)
        },
    },
    Case {
        name: "move the directory",
        change: |dir| fs::rename(dir, dir.with_extension("moved")),
        check: |dir| {
            fs::metadata(dir.join("f")).is_err()
                && fs::metadata(dir.with_extension("moved").join("f")).is_ok()
        },
    },
    Case {
        name: "access list",
        change: |dir| setxattr(&dir.join("f"), ACCESS, &owner_only(), 0),
        check: |dir| {
            fs::metadata(dir.join("f")).is_ok_and(|meta| meta.mode() & 0o777 == 0o640)
                && getxattr(&dir.join("f"), ACCESS).is_ok()
        },
    },
];

/// `user::rw-,user:7:r--,group::r--,mask::r--,other::---` as the kernel keeps it.
fn owner_only() -> Vec<u8> {
    let mut acl = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in [
        (1_u16, 6_u16, u32::MAX),
        (2, 4, 7),
        (4, 4, u32::MAX),
        (0x10, 4, u32::MAX),
        (0x20, 0, u32::MAX),
    ] {
        acl.extend([tag.to_le_bytes(), perm.to_le_bytes()].concat());
        acl.extend(id.to_le_bytes());
    }
    acl
}

fn number(up: &Up, name: &str) -> u64 {
    let line = up.param(&format!("mdt.testfs-MDT0000.{name}"));
    line.rsplit('=')
        .next()
        .and_then(|value| value.trim().parse().ok())
        .unwrap_or_else(|| panic!("{line} is not a number"))
}

/// A thread that takes up an answer later than this makes names and attributes that cannot be
/// invalidated stale (docs/semantics.md).
const LATE: Duration = Duration::from_millis(10);
/// The kernel keeps them for this long from then on.
const KEPT: Duration = Duration::from_millis(20);

/// Everything is believed that can be.
fn look(dir: &Path) {
    let stat = |path: &Path| assert!(fs::metadata(path).is_ok(), "it is there");
    let list = || {
        for entry in fs::read_dir(dir).expect("it can be listed") {
            entry.and_then(|entry| entry.metadata()).expect("it is there");
        }
    };
    let file = dir.join("f");
    let calls: [&dyn Fn(); 4] = [&|| stat(&file), &|| stat(&file), &|| stat(dir), &list];
    let took = calls.map(|call| {
        let begun = Instant::now();
        call();
        begun.elapsed()
    });
    if took.iter().any(|took| *took > LATE) {
        std::thread::sleep(KEPT); // a busy machine
    }
}

/// Requests of one kind that the MDT has served.
fn served(up: &Up, what: &str) -> u64 {
    counted(&up.param("mdt.testfs-MDT0000.md_stats"), what)
}

/// The count of one kind in statistics.
fn counted(stats: &str, what: &str) -> u64 {
    let line = stats.lines().find(|line| line.split_whitespace().next() == Some(what));
    line.and_then(|line| line.split_whitespace().nth(1)).map_or(0, |count| {
        count.parse().unwrap_or_else(|_| panic!("{count} is not a number of requests"))
    })
}

#[test]
fn a_listing_with_attributes_asks_for_pages_not_for_files() {
    const FILES: u64 = 300;
    const TRIES: usize = 20;
    let mut up = Up::new("listing");
    let dir = up.at("d");
    fs::create_dir(&dir).expect("a directory");
    for number in 0..FILES {
        fs::write(dir.join(format!("f{number}")), b"4 by").expect("a file");
    }
    // A busy machine may be too slow for a lease once.
    let least = (0..TRIES).map(|_| {
        let before = served(&up, "getattr");
        for entry in fs::read_dir(&dir).expect("it can be listed") {
            let meta = entry.and_then(|entry| entry.metadata()).expect("it is there");
            assert_eq!((meta.len(), meta.is_file()), (4, true));
        }
        served(&up, "getattr") - before
    });
    let least = least.min().expect("tries");
    assert!(least < FILES / 4, "{least} questions about files for a listing of {FILES}");
    up.stop();
}

/// What `ls -l` does. Returns how many files the directory has.
fn list_long(dir: &Path) -> u64 {
    let mut files = 0;
    for entry in fs::read_dir(dir).expect("it can be listed") {
        let entry = entry.expect("it is there");
        assert!(entry.metadata().expect("it is there").is_file());
        assert!(getxattr(&entry.path(), ACCESS).is_err(), "it has no access list");
        files += 1;
    }
    files
}

/// Whether the kernel keeps names for longer than a listing takes.
fn keeps_names(up: &Up) -> bool {
    let release = fs::read_to_string("/proc/sys/kernel/osrelease").expect("proc is mounted");
    let mut numbers = release.split('.').map_while(|part| part.parse::<u32>().ok());
    let version = (numbers.next().unwrap_or(0), numbers.next().unwrap_or(0));
    version >= (6, 16) && up.param("llite.*.transport").trim() == "classic"
}

#[test]
fn a_listing_that_is_repeated_asks_the_mdt_for_nothing() {
    const FILES: u64 = 300;
    const TRIES: usize = 20;
    let mut up = Up::new("relisting");
    let dir = up.at("d");
    fs::create_dir(&dir).expect("a directory");
    for number in 0..FILES {
        fs::write(dir.join(format!("f{number}")), b"4 by").expect("a file");
    }
    let kinds = ["readdir", "getattr", "getxattr"];
    let of_mdt = || kinds.iter().map(|what| served(&up, what)).sum::<u64>();
    let of_kernel = |what| counted(&up.param("llite.*.stats"), what);
    let counts = || [of_mdt(), of_kernel("getxattr"), of_kernel("readdirplus")];
    // The first listings set access times and bring access lists. A busy machine may be too slow
    // for what the kernel keeps.
    let asked: Vec<[u64; 3]> = (0..TRIES)
        .map(|_| {
            let before = counts();
            assert_eq!(list_long(&dir), FILES);
            let after = counts();
            std::array::from_fn(|at| after[at] - before[at])
        })
        .collect();
    let least = [0, 1, 2].map(|at| asked.iter().map(|asked| asked[at]).min());
    assert_eq!(least[0], Some(0), "each listing asks the MDT: {asked:?}");
    assert!(least[1] == Some(0) || !keeps_names(&up), "each asks for lists: {asked:?}");
    assert!(least[2] == Some(0) || !keeps_names(&up), "each asks for names: {asked:?}");
    let far = up.second_mount(56).join("d");
    fs::write(far.join("far"), b"4 by").expect("a file");
    assert_eq!([list_long(&dir), list_long(&dir)], [FILES + 1; 2]);
    fs::rename(far.join("far"), far.join("f7")).expect("it replaces another");
    assert_eq!([list_long(&dir), list_long(&dir)], [FILES; 2]);
    fs::remove_file(dir.join("f8")).expect("it is there");
    assert_eq!([list_long(&dir), list_long(&dir)], [FILES - 1; 2]);
    up.stop();
}

#[test]
fn labels_and_lists_are_not_supported_where_they_are_not_wanted() {
    let mut up = Up::new("labels");
    let labelled = up.second_mount_with(53, "seclabel");
    let bare = up.second_mount_with(54, "noacl,32bitapi");
    let errno =
        |dir: &Path, name| getxattr(&dir.join("f"), name).err().and_then(|e| e.raw_os_error());
    fs::write(up.at("f"), b"x").expect("a file");
    assert_eq!(errno(up.mount(), LABEL), Some(libc::EOPNOTSUPP), "ls -l need not ask again");
    assert_eq!(errno(&labelled, LABEL), Some(libc::ENODATA));
    setxattr(&labelled.join("f"), LABEL, b"a label", 0).expect("labels are kept here");
    assert_eq!(getxattr(&labelled.join("f"), LABEL).expect("it has one"), b"a label");
    assert_eq!(errno(up.mount(), ACCESS), Some(libc::ENODATA));
    assert_eq!(errno(&bare, ACCESS), Some(libc::EOPNOTSUPP));
    // the number of a stat and of a listing, one with at most 32 bits there
    let numbers = |dir: &Path| {
        let listed = fs::read_dir(dir).expect("a directory").next().expect("a file");
        (fs::metadata(dir.join("f")).expect("stat").ino(), listed.expect("its entry").ino())
    };
    let (long, short) = (numbers(up.mount()), numbers(&bare));
    assert_eq!((long.0, short.0), (long.1, short.1));
    assert!(long.0 > u64::from(u32::MAX) && short.0 <= u64::from(u32::MAX), "{long:?} {short:?}");
    up.stop();
}

#[test]
fn the_target_of_a_symbolic_link_is_asked_for_once() {
    let mut up = Up::new("targets");
    let link = up.at("link");
    std::os::unix::fs::symlink("elsewhere", &link).expect("a link");
    let target = || fs::read_link(&link).expect("it is there");
    assert_eq!(target(), Path::new("elsewhere"));
    let asked = || counted(&up.param("llite.*.stats"), "readlink");
    assert_eq!(asked(), 1);
    // Tests beside this one may make the kernel drop what it keeps.
    let is_kept = |_: u32| {
        let before = asked();
        assert!((0..5).all(|_| target() == Path::new("elsewhere")));
        asked() == before
    };
    assert!((0..5).any(is_kept), "it is asked for again and again");
    up.stop();
}

#[test]
fn grants_are_counted_and_bounded_under_the_names_of_lustre() {
    let mut up = Up::new("lru");
    let of_mdt = |name: &str| format!("ldlm.namespaces.*-mdc-*.{name}");
    let shown = |name: &str| up.param(&of_mdt(name)).trim().to_owned();
    let held = || shown("lock_count").parse::<u64>().expect("a number");
    fs::create_dir(up.at("d")).expect("a directory");
    // the kernel keeps what it knows of a new directory for a while
    until("two grants are held", || {
        assert!(up.mount().is_dir() && up.at("d").is_dir());
        held() >= 2
    });
    assert_eq!([shown("lru_size"), shown("lru_max_age")], ["131072", "600000"]);
    until("they are dropped", || {
        up.set(&of_mdt("lru_size"), "clear");
        held() <= 1 // the root may be looked at meanwhile
    });
    assert_eq!(shown("lru_size"), "131072", "only what was held is dropped");
    up.set(&of_mdt("lru_size"), "16");
    up.set(&of_mdt("lru_max_age"), "1000");
    assert_eq!([shown("lru_size"), shown("lru_max_age")], ["16", "1000"]);
    up.set(&of_mdt("lru_size"), "0");
    assert_eq!(shown("lru_size"), "131072", "the default again");
    up.stop();
}

/// All that the second mount may change, in directories below `kind`; how long each change took.
fn change_all(up: &Up, second: &Path, kind: &str) -> Vec<Duration> {
    fs::create_dir(up.at(kind)).expect("a directory");
    let mut took = Vec::new();
    for round in 0..count(ROUNDS.0, ROUNDS.1) {
        for (number, case) in CASES.iter().enumerate() {
            let name = format!("{kind}/{round}.{number}");
            let (here, there) = (up.at(&name), second.join(&name));
            fs::create_dir(&here).expect("a directory");
            fs::write(here.join("f"), b"4 by").expect("a file");
            look(&here);
            look(&there);
            look(&here);
            let begun = Instant::now();
            (case.change)(&there).unwrap_or_else(|error| panic!("{}: {error}", case.name));
            took.push(begun.elapsed());
            assert!(
                (case.check)(&here),
                "round {round}: after '{}' the first mount sees what was before ({kind})",
                case.name
            );
        }
    }
    took.sort_unstable();
    took
}

#[test]
fn a_change_on_one_mount_is_seen_on_the_other_at_once() {
    let mut up = Up::new("leases");
    up.set("mdt.*.grants", "timed");
    let second = up.second_mount(51);
    change_all(&up, &second, "timed");
    let waits = number(&up, "lease_waits");
    assert!(waits > 0, "no change ever waited: nothing was leased");
    up.stop();
}

#[test]
fn what_is_called_back_is_believed_until_another_mount_changes_it() {
    let mut up = Up::new("recalls");
    let second = up.second_mount(55);
    fs::write(up.at("f"), b"x").expect("a file");
    let took = change_all(&up, &second, "called");
    eprintln!("changes by the other mount: half of them in {:?}", took[took.len() / 2]);
    assert!(number(&up, "grants_recalled") > 0 && number(&up, "grant_waits") > 0);
    // Looks are further apart than what is believed by time alone lasts. What the kernel knows of a
    // new file holds for a while, and then the client asks once.
    let asked_again = || {
        let before = served(&up, "getattr");
        std::thread::sleep(Duration::from_millis(300));
        fs::metadata(up.at("f")).expect("it is there");
        served(&up, "getattr") - before
    };
    let mut asked = Vec::new();
    while !asked.ends_with(&[0; QUIET]) {
        assert!(asked.len() < LOOKS, "the client asks again and again: {asked:?}");
        asked.push(asked_again());
    }
    assert_eq!(number(&up, "grants_expelled"), 0);
    up.stop();
}

#[test]
fn taking_over_files_waits_for_one_lease_not_for_each() {
    let mut up = Up::new("takeover");
    up.set("mdt.*.grants", "timed");
    let second = up.second_mount(52);
    const FILES: usize = 200;
    fs::create_dir(up.at("d")).expect("a directory");
    let before = number(&up, "lease_waits");
    let mut slowest = Duration::ZERO;
    for number in 0..FILES {
        fs::write(up.at(&format!("d/{number}")), b"for the other").expect("a file");
        let start = Instant::now();
        fs::remove_file(second.join(format!("d/{number}"))).expect("the other takes it");
        slowest = slowest.max(start.elapsed());
    }
    let waits = number(&up, "lease_waits") - before;
    eprintln!("{FILES} files taken over: {waits} waits, the slowest took {slowest:?}");
    assert!((1..=FILES as u64 / 20).contains(&waits), "{waits} waits for {FILES} files");
    up.set("mdt.*.grants", "none");
    fs::create_dir(up.at("e")).expect("a directory");
    fs::metadata(up.at("e")).expect("it is there");
    std::thread::sleep(Duration::from_millis(60));
    fs::metadata(up.at("e")).expect("it is there");
    assert_eq!(number(&up, "leases_held"), 0, "leases are switched off");
    up.stop();
}

/// A lease and a tenth of it, for which a change waits where a mount is frozen; and what a busy
/// machine adds.
const FROZEN_MAX: Duration = Duration::from_secs(11 + 5);

#[test]
fn a_frozen_mount_delays_a_chmod_and_an_unlink_by_its_lease() {
    let mut up = Up::new("frozen-mount");
    let second = up.second_mount(57);
    let daemon = daemon_of(&second);
    for case in CASES.iter().filter(|case| ["chmod", "unlink"].contains(&case.name)) {
        let (here, there) = (up.at(case.name), second.join(case.name));
        fs::create_dir(&here).expect("a directory");
        fs::write(here.join("f"), b"4 by").expect("a file");
        look(&there);
        let frozen = Stopped::new(daemon);
        let begun = Instant::now();
        (case.change)(&here).unwrap_or_else(|error| panic!("{}: {error}", case.name));
        let took = begun.elapsed();
        drop(frozen);
        eprintln!("{}: {took:?}", case.name);
        assert!(took < FROZEN_MAX, "{} took {took:?}", case.name);
        assert!((case.check)(&there), "{}: the mount that was frozen sees it", case.name);
    }
    assert!(number(&up, "grants_expelled") > 0, "the changes waited for the frozen mount");
    up.stop();
}
