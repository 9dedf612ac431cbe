//! Small writes that a mount's daemon acknowledges before it sends them. Another mount sees them,
//! and a daemon that is killed loses nothing that was synced.

use std::fs::{self, File};
use std::io::Write;
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc;
use std::time::{Duration, Instant, SystemTime};

use mounted::{Up, posix};

/// What a record of a log has.
const RECORD: usize = 100;
/// Daemons that are killed.
const KILLS: u64 = 30;
/// So many of them append at the same time.
const AT_ONCE: usize = 3;
/// Mounts whose daemons are killed while each of them appends and syncs.
const MOUNTS: usize = 5;
/// Last byte of the first one's address.
const FIRST_MOUNT: u8 = 43;
/// What a killed daemon may lose: writes of its last second, and those that are under way. On a
/// busy machine it is more, by the time that the daemon and the servers were late ([`Log::late`]).
const LOST_MAX: Duration = Duration::from_secs(2);
/// A daemon dies when its log is this old, or a little older. The beginning of the log is then
/// older than what it may lose.
const KILLED_AT_MS: u64 = 3_000;

#[test]
fn what_is_acknowledged_is_seen_by_another_mount_at_once() {
    let mut up = Up::new("kept-seen");
    let other = up.second_mount(43);
    for round in 0..20_u8 {
        let name = format!("f{round}");
        let mut file = File::create(up.at(&name)).expect("room");
        file.write_all(&[round; 4_000]).expect("room");
        let there = other.join(&name);
        match round % 3 {
            0 => assert_eq!(fs::metadata(&there).expect("it is there").len(), 4_000),
            1 => assert_eq!(fs::read(&there).expect("it is there"), [round; 4_000]),
            _ => File::options()
                .append(true)
                .open(&there)
                .and_then(|mut file| file.write_all(b"end"))
                .expect("room"),
        }
        file.write_all(b"more").expect("room");
        drop(file);
        assert!(fs::metadata(&there).expect("it is there").len() >= 4_000);
    }
    let kept = up.param("llite.*.writeback_stats");
    assert!(kept.lines().any(|line| line.starts_with("writes: ") && line != "writes: 0"), "{kept}");
    up.set("llite.*.writeback", "0");
    up.stop();
}

/// As `cp -a` and `tar` set them, while the file is open.
#[test]
fn attributes_of_a_new_file_are_seen_by_another_mount_at_once() {
    let mut up = Up::new("kept-attributes");
    let other = up.second_mount(43);
    for round in 0..20_u32 {
        let name = format!("f{round}");
        let mut file = File::create(up.at(&name)).expect("room");
        file.write_all(b"content").expect("room");
        let time = SystemTime::UNIX_EPOCH + Duration::from_secs(1_000_000 + u64::from(round));
        let mode = 0o600 + round % 8;
        file.set_modified(time).expect("its owner may");
        file.set_permissions(fs::Permissions::from_mode(mode)).expect("its owner may");
        let look = |dir: &Path| {
            let found = fs::metadata(dir.join(&name)).expect("it is there");
            (found.mode() & 0o7777, found.modified().expect("a time"), found.len())
        };
        if round % 3 == 0 {
            assert_eq!(look(&other), (mode, time, 7), "round {round}");
        }
        if round % 3 == 1 {
            assert_eq!(look(up.mount()), (mode, time, 7), "round {round}");
        }
        drop(file);
        assert_eq!(look(&other), (mode, time, 7), "round {round}");
        assert_eq!(look(up.mount()), (mode, time, 7), "round {round}");
    }
    let kept = up.param("llite.*.writeback_stats");
    let is_some = |line: &str| line.starts_with("setattrs: ") && line != "setattrs: 0";
    assert!(kept.lines().any(is_some), "{kept}");
    up.stop();
}

/// Appends with a sync now and then, until the daemon dies. Every synced record is there, and what
/// is there is a prefix of what was written.
#[test]
fn a_killed_daemon_loses_nothing_that_was_synced() {
    let mut up = Up::new("kept-killed");
    let rounds: Vec<_> = (0..mounted::count(5, 30) as u64).collect();
    for rounds in rounds.chunks(MOUNTS) {
        let mounts: Vec<_> = (FIRST_MOUNT..).zip(rounds).collect();
        let mounts: Vec<_> =
            mounts.into_iter().map(|(last, round)| (up.second_mount(last), *round)).collect();
        // all are there before the first daemon dies: what it held keeps others waiting
        let logs = mounts.iter().map(|(dir, round)| {
            let path = dir.join(format!("log{round}"));
            File::options().create(true).append(true).open(path).expect("room")
        });
        let logs: Vec<_> = logs.collect();
        std::thread::scope(|scope| {
            for ((dir, round), log) in mounts.iter().zip(logs) {
                let whole = up.at(&format!("log{round}"));
                scope.spawn(move || loses_nothing_synced(dir, *round, log, &whole));
            }
        });
    }
    up.stop();
    up.fsck();
}

/// Appends to `log`, on the mount `dir`, until its daemon is killed. Then reads `path`, the same
/// file on another mount.
fn loses_nothing_synced(dir: &Path, round: u64, mut log: File, path: &Path) {
    let daemon = mounted::daemon_of(dir);
    let killer = std::thread::spawn(move || {
        std::thread::sleep(Duration::from_millis(300 + 70 * (round % 10)));
        mounted::kill(daemon, libc::SIGKILL);
    });
    let (mut written, mut synced) = (0, 0);
    for record in 0_u32.. {
        if log.write_all(&record_of(record)).is_err() {
            break;
        }
        written += 1;
        if record % 50 == 49 {
            if log.sync_data().is_err() {
                break;
            }
            synced = written;
        }
    }
    killer.join().expect("it kills");
    drop(log);
    let start = Instant::now();
    let found = fs::read(path).expect("it is there");
    assert!(start.elapsed() < Duration::from_secs(60), "a dead client is waited for too long");
    let whole = found.len() / RECORD;
    assert!((synced..=written + 1).contains(&whole), "{synced} <= {whole} <= {written}");
    let is_right = |(record, bytes): (u32, &[u8])| bytes == record_of(record);
    assert!((0..).zip(found.chunks_exact(RECORD)).all(is_right), "round {round}");
}

/// A log that was appended to until its daemon was killed.
struct Log {
    /// When each record was acknowledged.
    written: Vec<Instant>,
    /// The first so many are synced.
    synced: usize,
    killed: Instant,
    /// The longest time in which the daemon acknowledged nothing, and the slowest answer of a
    /// server.
    late: Duration,
}

/// The slowest answer of all servers until `is_over`: each is asked for its space, again and again.
fn slowest_answer(mount: &Path, is_over: &AtomicBool) -> Duration {
    let mut slowest = Duration::ZERO;
    while !is_over.load(Ordering::Relaxed) {
        let start = Instant::now();
        posix::statvfs(mount).expect("they live");
        slowest = slowest.max(start.elapsed());
        std::thread::sleep(Duration::from_millis(50));
    }
    slowest
}

/// Appends a record each millisecond, so that a run is sent by its age alone, until the daemon of
/// `dir` dies: so long after the first record was acknowledged. `syncs`: with a sync now and then.
fn append_until_killed(dir: &Path, name: &str, after: Duration, syncs: bool) -> Log {
    let daemon = mounted::daemon_of(dir);
    let (begun, has_begun) = mpsc::channel();
    let killer = std::thread::spawn(move || {
        let _the_first_may_fail = has_begun.recv();
        std::thread::sleep(after);
        let now = Instant::now();
        mounted::kill(daemon, libc::SIGKILL);
        now
    });
    let mut file = File::options().create(true).append(true).open(dir.join(name)).expect("room");
    let (mut written, mut synced) = (Vec::new(), 0);
    for record in 0_u32.. {
        if file.write_all(&record_of(record)).is_err() {
            break;
        }
        written.push(Instant::now());
        let _it_is_awaited_once = begun.send(());
        if syncs && record % 300 == 299 {
            if file.sync_data().is_err() {
                break;
            }
            synced = written.len();
        }
        std::thread::sleep(Duration::from_millis(1));
    }
    drop(begun);
    let killed = killer.join().expect("it kills");
    let next = written.iter().skip(1).chain([&killed]);
    let gaps = written.iter().zip(next).map(|(one, next)| next.saturating_duration_since(*one));
    let late = gaps.max().unwrap_or_default();
    Log { written, synced, killed, late }
}

#[test]
fn thirty_killed_daemons_lose_a_second_of_unsynced_writes_at_most() {
    let mut up = Up::new("kept-thirty");
    // a directory each: a create does not wait until the MDT gives up the client before
    let name = |round: u64| format!("round{round}/log");
    (0..KILLS).for_each(|round| fs::create_dir(up.at(&format!("round{round}"))).expect("room"));
    let mut logs = Vec::new();
    for first in (0..KILLS).step_by(AT_ONCE) {
        let rounds = first..KILLS.min(first + AT_ONCE as u64);
        let mounts: Vec<_> = (FIRST_MOUNT..).zip(rounds).collect();
        let mounts: Vec<_> =
            mounts.into_iter().map(|(last, round)| (up.second_mount(last), round)).collect();
        let is_over = AtomicBool::new(false);
        std::thread::scope(|scope| {
            let asking = scope.spawn(|| slowest_answer(up.mount(), &is_over));
            let started: Vec<_> = mounts
                .iter()
                .map(|(dir, round)| {
                    let after = Duration::from_millis(KILLED_AT_MS + 70 * (round % 10));
                    let name = name(*round);
                    scope.spawn(move || append_until_killed(dir, &name, after, round % 2 == 1))
                })
                .collect();
            let ended: Vec<_> = started.into_iter().map(|log| log.join()).collect();
            is_over.store(true, Ordering::Relaxed);
            let late = asking.join().expect("it asks");
            let ended = ended.into_iter().map(|log| log.expect("it appends"));
            logs.extend(ended.map(|log| Log { late: log.late + late, ..log }));
        });
        for (dir, _) in &mounts {
            mounted::until("the mount of a killed daemon says so", || mounted::is_dead(dir));
        }
    }
    let (mut lost, mut oldest, mut shown) = (0, Duration::ZERO, 0);
    for (round, log) in (0..).zip(&logs) {
        let found = fs::read(up.at(&name(round))).expect("it is there");
        let whole = found.len() / RECORD;
        let (may_lose, late) = (LOST_MAX + log.late, log.late);
        let old = log.written.iter().filter(|at| **at + may_lose < log.killed).count();
        let (synced, written) = (log.synced, log.written.len());
        shown += usize::from(old > 0);
        assert!(whole >= synced, "round {round}: {whole} records, and {synced} were synced");
        assert!(whole >= old, "round {round}: {whole} records, and {old} were old, late: {late:?}");
        assert!(whole <= written + 1, "round {round}: {whole} records of {written}");
        let is_right = |(record, bytes): (u32, &[u8])| bytes == record_of(record);
        assert!((0..).zip(found.chunks_exact(RECORD)).all(is_right), "round {round}");
        lost += written.saturating_sub(whole);
        let first_lost = log.written.get(whole);
        oldest = oldest.max(first_lost.map_or(Duration::ZERO, |at| log.killed - *at));
    }
    println!("kept-thirty: {lost} records lost, the oldest {oldest:?} old; {shown} rounds count");
    assert!(lost > 0, "no write was kept when its daemon was killed");
    assert!(shown > 0, "all daemons were killed too early to show anything");
    up.stop();
    up.fsck();
}

fn record_of(record: u32) -> Vec<u8> {
    record.to_le_bytes().repeat(RECORD / 4)
}
