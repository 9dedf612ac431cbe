//! Real programs on the mount while every server is killed in turn.

use std::fs;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use mounted::{Up, shell};

/// Each program meets at least this many kills: it runs again, in a fresh directory, until it has.
const KILLS_MIN: usize = 3;
/// Runs of a program at most, should it be faster than the kills.
const RUNS_MAX: usize = 50;
/// Pause after the first kill, and by how much each next one is longer. On a busy machine recovery
/// may take as long as the first pauses, and the program would not go on.
const PAUSE: Duration = Duration::from_millis(1_200);
const PAUSE_GROWS: Duration = Duration::from_millis(100);

/// Runs `script` in directories of the mount while servers die, one after the other. Output that is
/// compared comes through an assignment, which keeps the program's status; `[ ]` loses it.
fn under_kills(name: &str, script: &str) {
    let mut up = Up::new(name);
    let (done, kills) = (AtomicBool::new(false), AtomicUsize::new(0));
    let mut runs = 0;
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let outcome = std::panic::catch_unwind(|| {
                (1..=RUNS_MAX).find(|run| {
                    let dir = up.at(&format!("run{run}"));
                    fs::create_dir(&dir).expect("a directory");
                    shell(&dir, script);
                    kills.load(Ordering::SeqCst) >= KILLS_MIN
                })
            });
            done.store(true, Ordering::SeqCst);
            outcome
        });
        let victims = ["MDT0000", "OST0000", "MGS", "OST0001", "OST0002", "OST0003"];
        std::thread::sleep(Duration::from_millis(300));
        let mut pause = PAUSE;
        while !done.load(Ordering::SeqCst) {
            up.kill_server(victims[kills.load(Ordering::SeqCst) % victims.len()]);
            kills.fetch_add(1, Ordering::SeqCst);
            std::thread::sleep(pause);
            pause += PAUSE_GROWS;
        }
        match running.join().expect("the script's thread") {
            Ok(last) => runs = last.unwrap_or(RUNS_MAX),
            Err(panic) => std::panic::resume_unwind(panic),
        }
    });
    let kills = kills.into_inner();
    println!("{name}: {kills} kills in {runs} runs");
    assert!(kills >= KILLS_MIN, "{kills} kills in {runs} runs");
    up.stop();
}

#[test]
fn git_clones_a_repository_and_finds_it_whole() {
    let origin = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = format!(
        "export GIT_CONFIG_GLOBAL=$PWD/gitconfig; \
         git config --global safe.directory '*'; git config --global user.name n; git config --global user.email e; \
         git clone -q --no-hardlinks --single-branch 'file://{origin}' clone; \
         cd clone; git fsck --strict; changed=$(git status --short); [ -z \"$changed\" ]; \
         mine=$(git rev-parse HEAD); origins=$(git -C '{origin}' rev-parse HEAD); \
         [ \"$mine\" = \"$origins\" ]; \
         git checkout -q -b other; echo x > new; git add new; git commit -qm new; git fsck --strict"
    );
    under_kills("git", &script);
}

#[test]
fn tar_unpacks_what_it_packed() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates");
    let script = format!(
        "tar -C {source}/.. -cf tree.tar crates docs; mkdir out; tar -C out -xf tree.tar; \
         (cd {source}/.. && find crates docs -type f -print0 | sort -z | xargs -0 sha256sum) > sums; (cd out && sha256sum --quiet -c ../sums)"
    );
    under_kills("tar", &script);
}

#[test]
fn cargo_builds_a_crate() {
    let script = "cargo init -q --name hello --vcs none hello; cd hello; \
        for i in $(seq 40); do echo \"pub fn f$i() -> u32 { $i }\" >> src/lib.rs; done; \
        CARGO_TARGET_DIR=target cargo build -q --offline; ./target/debug/hello; CARGO_TARGET_DIR=target cargo test -q --offline >/dev/null";
    under_kills("cargo", script);
}

#[test]
fn sqlite_keeps_its_database() {
    let script = "sqlite3 db.sqlite 'CREATE TABLE t(a,b)'; \
        for i in $(seq 60); do sqlite3 -bail db.sqlite \"PRAGMA synchronous=FULL; \
        BEGIN; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<50) \
        INSERT INTO t SELECT x, hex(randomblob(50)) FROM c; COMMIT;\"; done; \
        [ \"$(sqlite3 db.sqlite 'PRAGMA integrity_check')\" = ok ]; [ \"$(sqlite3 db.sqlite 'SELECT count(*) FROM t')\" = 3000 ]";
    under_kills("sqlite", script);
}

#[test]
fn rsync_copies_once_and_finds_nothing_to_do_twice() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates");
    let script = format!(
        "rsync -a {source}/ copy/; again=$(rsync -ai --checksum {source}/ copy/); [ -z \"$again\" ]; \
         diff -r {source} copy"
    );
    under_kills("rsync", &script);
}
