//! kill -9 of every kind of server under acknowledged and unsynced work: no error, no loss, a
//! bounded pause.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use fusedev::Channel;
use mounted::work::{Seen, Worker};
use mounted::{Scratch, Up, count, figure, full, nacre_bin, posix, range, until};

/// Longest pause that an application may see when a server is killed, in the check of a release.
const PAUSE_MAX: Duration = Duration::from_secs(5);
/// The same on a busy machine: a call ends at most 16 s after its servers are back
/// (docs/semantics.md).
const PAUSE_MAX_BUSY: Duration = Duration::from_secs(16);

/// A dead client is evicted after its lease (10 s) and a tenth, at a look each second; then its
/// locks are free. A client that is in no other client's way is evicted after 150 s.
const LEASE_MAX: Duration = Duration::from_secs(13);
/// The same on a busy machine.
const LEASE_MAX_BUSY: Duration = Duration::from_secs(30);

/// Kills `victims` in turn, `kills` times, under three workloads; checks everything through a mount
/// that comes later.
fn survive_kills(name: &str, victims: &[&str], kills: usize) {
    survive_kills_of(Up::new(name), name, victims, kills);
}

fn survive_kills_of(mut up: Up, name: &str, victims: &[&str], kills: usize) {
    let workers: Vec<_> =
        (1..=3).map(|seed| Worker::start(up.at(&format!("work-{seed}")), seed)).collect();
    let lock = File::create(up.at("lock")).expect("a file to lock");
    posix::flock(&lock, libc::LOCK_EX).expect("a lock held through every kill");
    std::thread::sleep(Duration::from_millis(300));
    for round in 0..kills {
        let victim = victims[round % victims.len()];
        up.kill_server(victim);
        // long enough to come back, short enough that much is uncommitted when the next one dies
        std::thread::sleep(Duration::from_millis(900 + (round as u64 * 137) % 600));
    }
    let seen: Vec<Seen> = workers.into_iter().map(Worker::finish).collect();
    let fresh = up.second_mount(31);
    let rival = File::open(fresh.join("lock")).expect("open");
    assert!(
        posix::flock(&rival, libc::LOCK_EX | libc::LOCK_NB).is_err(),
        "a lock was lost when its server died"
    );
    for one in &seen {
        one.check(up.mount(), up.mount());
        one.check(up.mount(), &fresh);
    }
    let pause = seen.iter().map(|one| one.pause).max().expect("three workloads");
    let operations: usize = seen.iter().map(|one| one.operations).sum();
    println!("{name}: {kills} kills, {operations} operations acknowledged");
    let title = format!("{name}: longest pause of an application over {kills} kills");
    figure(&format!("{name}/pause"), &title, "s", pause.as_secs_f64());
    let most = if full() { PAUSE_MAX } else { PAUSE_MAX_BUSY };
    assert!(pause <= most, "an application waited {pause:?}");
    drop((lock, rival));
    up.stop();
}

#[test]
fn mdt_kills_lose_nothing() {
    survive_kills("kill-mdt", &["MDT0000"], count(3, 30));
}

/// The workers' directories are spread over four MDTs: most changes of names concern two of them.
#[test]
fn kills_of_four_mdts_lose_nothing() {
    let name = "kill-mdts";
    let args = ["--crashes-max", "1000", "--mdts", "4"];
    let up = Up::with(Scratch::new(name), None, &args);
    for worker in 1..=3 {
        drop(up.tool(&["lfs", "mkdir", "-c", "4", &format!("work-{worker}")]));
    }
    let victims = ["MDT0001", "MDT0003", "MDT0000", "MDT0002"];
    survive_kills_of(up, name, &victims, count(4, 30));
}

#[test]
fn ost_kills_lose_nothing() {
    survive_kills("kill-ost", &["OST0000", "OST0001", "OST0002", "OST0003"], count(4, 30));
}

#[test]
fn mgs_kills_lose_nothing() {
    survive_kills("kill-mgs", &["MGS"], count(3, 30));
}

#[test]
fn kills_of_all_kinds_in_turn_lose_nothing() {
    survive_kills("kill-all-kinds", &["MDT0000", "OST0001", "MGS", "OST0003"], count(4, 30));
}

/// The client daemon dies: its mount goes, the others and everything it had acknowledged stay.
#[test]
fn a_killed_client_harms_nobody() {
    for transport in mounted::transports() {
        killed_clients_over(transport);
    }
}

fn killed_clients_over(transport: Channel) {
    let mut up = Up::over(transport, "kill-client");
    for round in 0..count(2, 30) {
        let dir = up.second_mount(41);
        let name = format!("from-{round}");
        fs::write(dir.join(&name), vec![round as u8; 200_000]).expect("write");
        let locked = File::open(dir.join(&name)).expect("open");
        posix::flock(&locked, libc::LOCK_EX).expect("lock");
        // Another mount's question for the size waits until the OSTs have what is kept. So the
        // file has its objects, and its bytes are none that a killed daemon may lose.
        assert_eq!(fs::metadata(up.at(&name)).expect("stat").len(), 200_000);
        let known = objects(&up);
        let held =
            OpenOptions::new().write(true).create_new(true).open(dir.join("held")).expect("create");
        held.write_all_at(&[7; 300_000], 0).and_then(|()| held.sync_all()).expect("write");
        let of_held: Vec<_> =
            objects(&up).into_iter().filter(|object| !known.contains(object)).collect();
        assert!(!of_held.is_empty(), "the open file has an object");
        fs::remove_file(dir.join("held")).expect("unlink");
        let daemon = mounted::daemon_of(&dir);
        mounted::kill(daemon, libc::SIGKILL);
        until("a dead client's mount says so", || mounted::is_dead(&dir));
        drop((locked, held));
        assert_eq!(
            fs::read(up.at(&name)).expect("what was acknowledged"),
            vec![round as u8; 200_000]
        );
        let rival = File::open(up.at(&name)).expect("open");
        let start = Instant::now();
        while posix::flock(&rival, libc::LOCK_EX | libc::LOCK_NB).is_err() {
            assert!(start.elapsed() < LEASE_MAX_BUSY, "a dead client's lock stayed");
            std::thread::sleep(Duration::from_millis(50));
        }
        // with the MDT's next commit and the destroys that follow it
        until("a dead client's unlinked file goes", || {
            !of_held.iter().any(|object| object.exists())
        });
    }
    up.stop();
    up.fsck();
}

/// A client daemon stands still with its connections up: others wait for its lease, no longer.
#[test]
fn a_stopped_client_keeps_its_lock_for_its_lease() {
    let mut up = Up::new("stop-client");
    let dir = up.second_mount(41);
    fs::write(dir.join("file"), "content").expect("write");
    let locked = File::open(dir.join("file")).expect("open");
    posix::flock(&locked, libc::LOCK_EX).expect("lock");
    let rival = File::open(up.at("file")).expect("open");
    std::thread::sleep(LEASE_MAX);
    posix::flock(&rival, libc::LOCK_EX | libc::LOCK_NB).expect_err("heartbeats keep the lock");
    let daemon = mounted::daemon_of(&dir);
    mounted::kill(daemon, libc::SIGSTOP);
    let start = Instant::now();
    posix::flock(&rival, libc::LOCK_EX).expect("lock");
    let waited = start.elapsed();
    mounted::kill(daemon, libc::SIGCONT);
    assert!(waited < LEASE_MAX_BUSY, "waited for {waited:?}");
    drop(locked);
    assert_eq!(fs::read(dir.join("file")).expect("it is back"), b"content");
    up.stop();
}

/// All objects of all OSTs.
fn objects(up: &Up) -> Vec<PathBuf> {
    let entries = |dir: PathBuf| {
        let entries = fs::read_dir(dir).expect("a directory of objects");
        entries.map(|entry| entry.expect("readdir").path())
    };
    (0..4)
        .flat_map(|index| entries(up.target(&format!("OST000{index}")).join("objects")))
        .flat_map(entries)
        .collect()
}

/// What the write itself asks for: O_SYNC of the open, RWF_DSYNC of one write, `sync` of the mount.
#[test]
fn writes_that_shall_be_durable_survive_the_death_of_everything() {
    const BEHIND: u64 = 1 << 20;
    let mut up = Up::new("kill-durable");
    for (options, durable) in [("", true), ("sync", false)] {
        up.stop();
        up.fsck();
        up.start_again(&["-o", options, "--commit-interval-ms", "60000"]); // nothing becomes durable by itself
        let dir = up.at(&format!("durable-{options}"));
        fs::create_dir(&dir).expect("mkdir");
        let dir_name = dir.to_str().expect("a name");
        let parts = ["-E", "512K", "-c", "1", "-E", "-1", "-c", "1", dir_name];
        assert_eq!(up.tool(&[&["lfs", "setstripe"], &parts[..]].concat()), "");
        let paths: Vec<_> = (0..10).map(|index| dir.join(index.to_string())).collect();
        for (index, path) in paths.iter().enumerate() {
            let by_open = durable && index < 3;
            let flags = if by_open { libc::O_SYNC } else { 0 };
            let file = OpenOptions::new()
                .write(true)
                .create_new(true)
                .custom_flags(flags)
                .open(path)
                .expect("create");
            let text = vec![index as u8; 70_000];
            // the second one where the file has no object so far
            for offset in [0, BEHIND] {
                let written = if durable && !by_open {
                    range::write_durable(&file, &text, offset)
                } else {
                    file.write_at(&text, offset)
                };
                assert_eq!(written.expect("write"), text.len());
            }
        }
        up.kill_everything();
        up.start_again(&[]);
        for (index, path) in paths.iter().enumerate() {
            let text = vec![index as u8; 70_000];
            let bytes = fs::read(path).expect("durable");
            assert!(bytes.starts_with(&text), "{}", path.display());
            assert_eq!(bytes.get(BEHIND as usize..), Some(&text[..]), "{}", path.display());
        }
    }
    up.stop();
}

/// Everything dies at once; what was fsynced is there, the names too, and `up` comes back quickly.
#[test]
fn fsynced_files_survive_the_death_of_everything() {
    let mut up = Up::new("kill-everything");
    for round in 0..count(3, 10) {
        let mut synced = Vec::new();
        for index in 0..20 {
            let path = up.at(&format!("synced-{round}-{index}"));
            let mut file = File::create(&path).expect("create");
            file.write_all(&vec![index; 70_000]).expect("write");
            file.sync_all().expect("fsync");
            synced.push((path, index));
        }
        up.kill_everything();
        let start = Instant::now();
        up.start_again(&[]);
        println!("kill-everything: mounted again after {:?}", start.elapsed());
        for (path, index) in synced {
            assert_eq!(fs::read(&path).expect("fsynced"), vec![index; 70_000]);
        }
    }
    up.stop();
    up.fsck();
    up.start_again(&[]);
    assert!(up.at("synced-0-0").exists());
    up.stop();
}

/// The layouts of a file that moves while servers and clients die.
const SHAPES: [&str; 3] =
    ["-c 4 -S 64K", "-E 64K -L mdt -E -1 -c 2 -S 128K", "-E 1M -c 1 -E 4M -c 2 -E -1 -c 4"];

/// Where its bytes are.
const TARGETS: &[&str] = &["OST0000", "OST0001", "OST0002", "OST0003", "DOM0000"];

/// The file that moves has so many parts, each with one number in all its words.
const PARTS: usize = 512;
const PART: usize = 64 << 10;

fn part(number: u64) -> Vec<u8> {
    number.to_le_bytes().repeat(PART / 8)
}

/// A file that moves, with zeros.
fn movable(up: &Up) -> File {
    let mut options = OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(up.at("f")).expect("made");
    file.write_all_at(&vec![0; PARTS * PART], 0).and_then(|()| file.sync_all()).expect("room");
    file
}

/// `lfs migrate` of the file below a mount.
fn migrate(mount: &Path, shape: &str) -> Command {
    let mut command = Command::new(nacre_bin());
    command.args(["lfs", "migrate"]).args(shape.split_whitespace()).arg("f").current_dir(mount);
    command
}

/// Threads beside end when this is dropped, also where the test fails.
struct Ends<'a>(&'a AtomicBool);

impl Drop for Ends<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

/// Writes parts of the file until the end; what each of them has.
fn overwrite(file: &File, ends: &AtomicBool) -> Vec<u64> {
    let mut written = vec![0; PARTS];
    for number in 1_u64.. {
        if ends.load(Ordering::SeqCst) {
            break;
        }
        let at = (number as usize).wrapping_mul(37) % PARTS;
        file.write_all_at(&part(number), (at * PART) as u64).expect("a write never fails");
        written[at] = number;
        std::thread::sleep(Duration::from_millis(1));
    }
    written
}

#[test]
fn kills_amid_migrations_change_no_byte() {
    let mut up = Up::new("kill-migrations");
    let file = movable(&up);
    let (ends, moves) = (AtomicBool::new(false), AtomicU64::new(0));
    let mount = up.mount().to_owned();
    let written = std::thread::scope(|scope| {
        let end = Ends(&ends);
        let writer = scope.spawn(|| overwrite(&file, &ends));
        let mover = scope.spawn(|| {
            for shape in SHAPES.iter().cycle() {
                if ends.load(Ordering::SeqCst) {
                    return;
                }
                let done = migrate(&mount, shape).output().expect("nacre starts");
                let said = String::from_utf8_lossy(&done.stderr);
                assert!(done.status.success(), "{shape}: {said}");
                moves.fetch_add(1, Ordering::SeqCst);
            }
        });
        let victims = ["MDT0000", "OST0001", "OST0003"];
        for round in 0..count(6, 30) {
            up.kill_server(victims[round % victims.len()]);
            std::thread::sleep(Duration::from_millis(900 + (round as u64 * 137) % 600));
        }
        drop(end);
        mover.join().expect("no migration fails because of a server's death");
        writer.join().expect("no write fails")
    });
    let moves = moves.into_inner();
    println!("kill-migrations: {moves} migrations");
    assert!(moves > 0, "the file never moved");
    let fresh = up.second_mount(31);
    let whole = fs::read(fresh.join("f")).expect("reads");
    assert_eq!(whole.len(), PARTS * PART);
    for (at, (there, number)) in whole.chunks(PART).zip(&written).enumerate() {
        assert!(there == part(*number), "part {at} is not that of write {number}");
    }
    drop(file);
    fs::remove_file(up.at("f")).expect("unlink");
    until("no object is left", || up.objects(TARGETS) == Some(0));
    up.stop();
}

#[test]
fn a_client_that_dies_amid_a_migration_leaves_the_file_whole() {
    let mut up = Up::new("kill-mover");
    let file = movable(&up);
    let mut written = vec![0; PARTS];
    for round in 0..count(3, 20) {
        let dir = up.second_mount(41);
        let locked = File::create(dir.join("lock")).expect("create");
        posix::flock(&locked, libc::LOCK_EX).expect("lock");
        let mut moving = migrate(&dir, SHAPES[round % SHAPES.len()]);
        let mut moving = moving.stderr(Stdio::null()).spawn().expect("nacre starts");
        std::thread::sleep(Duration::from_millis(20 + 70 * (round as u64 % 5)));
        mounted::kill(mounted::daemon_of(&dir), libc::SIGKILL);
        mounted::wait_bounded(&mut moving).expect("the command ends with its daemon");
        until("the dead client's mount says so", || mounted::is_dead(&dir));
        drop(locked);
        // whatever pass the client was in, others go on
        let (at, number) = (round * 31 % PARTS, round as u64 + 1);
        file.write_all_at(&part(number), (at * PART) as u64).expect("writes go on");
        written[at] = number;
        let want: Vec<u8> = written.iter().flat_map(|number| part(*number)).collect();
        assert!(fs::read(up.at("f")).expect("reads") == want, "round {round}");
        // the client is evicted because of its lock, and its copy goes with it
        let rival = File::open(up.at("lock")).expect("open");
        until("a dead client's lock goes", || {
            posix::flock(&rival, libc::LOCK_EX | libc::LOCK_NB).is_ok()
        });
        let done = migrate(up.mount(), "-c 1").output().expect("nacre starts");
        let said = String::from_utf8_lossy(&done.stderr);
        assert!(done.status.success(), "it moves on: {said}");
        assert!(fs::read(up.at("f")).expect("reads") == want, "round {round}");
    }
    drop(file);
    fs::remove_file(up.at("f")).expect("unlink");
    until("no object is left", || up.objects(TARGETS) == Some(0));
    up.stop();
    up.fsck();
}
