//! Real programs on the mount while every server is killed in turn.

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use mounted::{Up, shell};

/// Runs `script` in the mount while servers die, one after the other, until it has ended.
fn under_kills(name: &str, script: &str) {
    let mut up = Up::new(name);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let running = scope.spawn(|| {
            let outcome = std::panic::catch_unwind(|| shell(up.mount(), script));
            done.store(true, Ordering::SeqCst);
            outcome
        });
        let victims = ["MDT0000", "OST0000", "MGS", "OST0001", "OST0002", "OST0003"];
        let mut kills = 0;
        while !done.load(Ordering::SeqCst) {
            std::thread::sleep(Duration::from_millis(1_200));
            if !done.load(Ordering::SeqCst) {
                up.kill_server(victims[kills % victims.len()]);
                kills += 1;
            }
        }
        println!("{name}: {kills} kills");
        if let Err(panic) = running.join().expect("the script's thread") {
            std::panic::resume_unwind(panic);
        }
    });
    up.stop();
}

#[test]
fn git_clones_a_repository_and_finds_it_whole() {
    let origin = concat!(env!("CARGO_MANIFEST_DIR"), "/../..");
    let script = format!(
        "git -c safe.directory='*' clone -q --no-hardlinks 'file://{origin}' clone || \
         {{ mkdir clone; cd clone; git init -q; cp -r {origin}/crates .; git add .; git -c user.name=n -c user.email=e commit -qm x; cd ..; }}
         cd clone; git fsck --strict; git status --short | wc -l; \
         git checkout -q -b other; echo x > new; git add new; git -c user.name=n -c user.email=e commit -qm new; git fsck"
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
    let script = "for i in $(seq 60); do sqlite3 db.sqlite \"PRAGMA synchronous=FULL; CREATE TABLE IF NOT EXISTS t(a,b); \
        BEGIN; INSERT INTO t SELECT value, hex(randomblob(50)) FROM generate_series(1,50); COMMIT;\" 2>/dev/null || \
        sqlite3 db.sqlite \"CREATE TABLE IF NOT EXISTS t(a,b); BEGIN; WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x+1 FROM c WHERE x<50) \
        INSERT INTO t SELECT x, hex(randomblob(50)) FROM c; COMMIT;\"; done; \
        [ \"$(sqlite3 db.sqlite 'PRAGMA integrity_check')\" = ok ]; [ \"$(sqlite3 db.sqlite 'SELECT count(*) FROM t')\" = 3000 ]";
    under_kills("sqlite", script);
}

#[test]
fn rsync_copies_once_and_finds_nothing_to_do_twice() {
    let source = concat!(env!("CARGO_MANIFEST_DIR"), "/../../crates");
    let script = format!(
        "rsync -a {source}/ copy/; [ -z \"$(rsync -ai --checksum {source}/ copy/)\" ]; diff -r {source} copy"
    );
    under_kills("rsync", &script);
}
