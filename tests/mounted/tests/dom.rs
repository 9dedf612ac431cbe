//! Data on the MDT, on a mount. Small files lie beside their inodes and on no OST. They move to
//! OSTs when they grow, and are removed with their names. A killed MDT loses no synced data. The
//! data target is not presented as an OST.

use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Output};
use std::time::Instant;

use mounted::{PATIENCE, Up, nacre_bin};

const DATA: &str = "testfs-DOM0000";
const BORDER: usize = 64 << 10;

fn nacre(dir: &Path, words: &[&str]) -> Output {
    Command::new(nacre_bin()).args(words).current_dir(dir).output().expect("nacre starts")
}

fn good(dir: &Path, line: &str) -> String {
    let done = nacre(dir, &line.split_whitespace().collect::<Vec<_>>());
    let error = String::from_utf8_lossy(&done.stderr);
    assert!(done.status.success(), "{line}: {error}");
    String::from_utf8(done.stdout).expect("text")
}

fn bytes(len: usize, seed: usize) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed | 1) >> 7) as u8).collect()
}

/// Objects of a target.
fn objects(up: &Up, name: &str) -> Vec<String> {
    let listed = good(up.mount(), &format!("list-objects {name}"));
    let lines = listed.lines().filter(|line| !line.contains(" end "));
    lines.map(|line| line.split(' ').nth(1).expect("an object").to_owned()).collect()
}

fn on_osts(up: &Up) -> usize {
    (0..4).map(|ost| objects(up, &format!("testfs-OST{ost:04}")).len()).sum()
}

fn wait_for(what: &str, mut is_so: impl FnMut() -> bool) {
    let start = Instant::now();
    while !is_so() {
        assert!(start.elapsed() < PATIENCE, "{what}");
        std::thread::sleep(std::time::Duration::from_millis(50));
    }
}

/// A directory whose files begin at the MDT.
fn dom_dir(up: &Up) -> std::path::PathBuf {
    let dir = up.at("dom");
    fs::create_dir(&dir).expect("made");
    good(up.mount(), "lfs setstripe -E 64K -L mdt -E -1 -c 2 -S 64K dom");
    dir
}

/// Bytes that were written to the data target.
fn written(up: &Up) -> u64 {
    let stats = up.param(&format!("mdt_data.{DATA}.stats"));
    let line = stats.lines().find(|line| line.starts_with("write_bytes"));
    line.and_then(|line| line.split_whitespace().last()?.parse().ok()).unwrap_or(0)
}

#[test]
fn small_files_lie_beside_their_inodes() {
    let mut up = Up::new("dom");
    let dir = dom_dir(&up);
    assert_eq!(objects(&up, DATA), [""; 0]);
    let names: Vec<_> = (0..8).map(|number| dir.join(format!("f{number}"))).collect();
    for (number, name) in names.iter().enumerate() {
        let mut file = File::create(name).expect("made");
        file.write_all(&bytes(5_000 * number, number)).expect("room");
        file.sync_all().expect("durable");
    }
    let fid = |name: &Path| up.tool(&["lfs", "path2fid", &name.to_string_lossy()]);
    let mut fids: Vec<_> = names[1..].iter().map(|name| fid(name).trim().to_owned()).collect();
    let mut found = objects(&up, DATA);
    fids.sort();
    found.sort();
    assert_eq!(found, fids, "an object has the FID of its file");
    assert_eq!(on_osts(&up), 0);
    assert!(written(&up) >= 5_000 * 28, "{}", written(&up));
    let queued = up.param("mds.MDS.mdt_io.stats");
    assert!(queued.contains("req_waittime"), "{queued}");

    let other = up.second_mount(201).join("dom");
    let read = |name: &str| fs::read(other.join(name)).expect("reads");
    for number in 0..8 {
        assert!(read(&format!("f{number}")) == bytes(5_000 * number, number), "{number}");
    }

    let file = OpenOptions::new().read(true).write(true).open(&names[7]).expect("opens");
    let more = bytes(200_000, 9);
    file.write_all_at(&more, 35_000).expect("room");
    let want = [bytes(35_000, 7), more].concat();
    assert!(read("f7") == want, "it grew past the border");
    assert_eq!(on_osts(&up), 2);
    for len in [BORDER + 1, BORDER, 100, 0] {
        file.set_len(len as u64).expect("cut");
        assert!(read("f7") == want[..len], "{len}");
    }
    file.set_len(1 << 20).expect("longer");
    assert!(read("f7") == vec![0; 1 << 20]);
    drop(file);

    fs::remove_dir_all(&dir).expect("gone");
    wait_for("objects stay", || objects(&up, DATA).is_empty() && on_osts(&up) == 0);
    up.stop();
}

/// How often the MDT did this.
fn done(up: &Up, operation: &str) -> u64 {
    let stats = up.param("mdt.testfs-MDT0000.md_stats");
    let line = stats.lines().find(|line| line.split_whitespace().next() == Some(operation));
    line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
}

/// Of all mounts together.
fn counted(up: &Up, name: &str) -> u64 {
    let counts = up.param(&format!("llite.*.{name}"));
    counts.lines().map(|count| count.trim().parse::<u64>().expect("a number")).sum()
}

#[test]
fn a_small_file_is_read_with_two_requests() {
    const FILES: usize = 20;
    let mut up = Up::new("dom-open");
    let dir = dom_dir(&up);
    let other = up.second_mount(202).join("dom");
    let before = done(&up, "close");
    for number in 0..FILES {
        fs::write(dir.join(format!("f{number}")), bytes(4_096, number)).expect("room");
    }
    wait_for("closes", || done(&up, "close") >= before + FILES as u64);
    // the directory is not granted for a second after its layout was set
    std::thread::sleep(std::time::Duration::from_millis(1_200));
    let count = |up: &Up| ["getattr", "open"].map(|operation| done(up, operation));
    let [looked, opened] = count(&up);
    for number in 0..FILES {
        // `fs::read` also asks for the birth time, which the client does not know of an open file
        let file = File::open(other.join(format!("f{number}"))).expect("opens");
        let mut found = vec![0; 4_096];
        file.read_exact_at(&mut found, 0).expect("reads");
        assert!(found == bytes(4_096, number), "{number}");
    }
    let [looks, opens] = count(&up);
    assert_eq!(opens - opened, FILES as u64);
    assert!(looks - looked <= FILES as u64 + 5, "{looked} to {looks}: also of the directories");
    let [hits, misses] = ["hits", "misses"].map(|name| format!("read_on_open_{name}"));
    assert!(counted(&up, &hits) >= FILES as u64 && counted(&up, &misses) == 0);

    // a handle that has bytes of its open sees what is written elsewhere
    let held = File::open(other.join("f0")).expect("opens");
    let read = || {
        let mut found = vec![0; 4_096];
        held.read_exact_at(&mut found, 0).expect("reads");
        found
    };
    assert!(read() == bytes(4_096, 0));
    let writer = OpenOptions::new().write(true).open(dir.join("f0")).expect("opens");
    for round in 1..5 {
        writer.write_all_at(&bytes(4_096, 50 + round), 0).expect("room");
        assert!(read() == bytes(4_096, 50 + round), "{round}");
    }
    drop(writer);
    assert!(fs::read(other.join("f0")).expect("reads") == bytes(4_096, 54));

    up.set("llite.*.read_on_open", "0");
    let before = counted(&up, &hits);
    assert!(fs::read(other.join("f1")).expect("reads") == bytes(4_096, 1));
    assert_eq!(counted(&up, &hits), before);
    drop(held);
    up.stop();
}

#[test]
fn a_killed_mdt_loses_nothing_that_was_synced() {
    let mut up = Up::new("dom-kill");
    let dir = dom_dir(&up);
    for round in 0..4 {
        for number in 0..12 {
            if number == 6 {
                up.kill_server("MDT0000");
            }
            let mut file = File::create(dir.join(format!("{round}-{number}"))).expect("made");
            file.write_all(&bytes(9_000, round * 12 + number)).expect("room");
            if number % 2 == 0 {
                file.sync_all().expect("durable");
            }
        }
    }
    let check = |up: &Up| {
        for round in 0..4 {
            for number in 0..12 {
                let found = fs::read(up.at(&format!("dom/{round}-{number}"))).expect("reads");
                assert!(found == bytes(9_000, round * 12 + number), "{round}-{number}");
            }
        }
    };
    check(&up);
    up.stop();
    up.start_again(&[]);
    check(&up);
    assert_eq!((objects(&up, DATA).len(), on_osts(&up)), (48, 0));

    // a machine that dies keeps what was synced
    let mut file = OpenOptions::new().append(true).open(dir.join("0-0")).expect("opens");
    file.write_all(b"more").expect("room");
    file.sync_all().expect("durable");
    drop(file);
    up.kill_everything();
    up.start_again(&[]);
    let found = fs::read(dir.join("0-0")).expect("reads");
    assert!(found == [&bytes(9_000, 0)[..], b"more"].concat());
    let log = fs::read_to_string(up.data().join("log/testfs-MDT0000.log")).expect("a log");
    assert!(!log.contains("waits for testfs-MDT0000"), "for the run before, which is dead: {log}");
    let unnamed = good(up.mount(), "unnamed testfs-MDT0000");
    assert_eq!(unnamed, "", "no object without a name");
    up.stop();
}

#[test]
fn the_place_for_data_is_no_ost() {
    let mut up = Up::new("dom-no-ost");
    let here = up.mount().to_owned();
    for line in ["lfs osts", "lfs df", "lfs mdts", "lfs check all", "lfs pool_list testfs"] {
        let done = nacre(&here, &line.split_whitespace().collect::<Vec<_>>());
        let text = String::from_utf8_lossy(&done.stdout).into_owned();
        assert!(!text.contains("DOM"), "{line}: {text}");
    }
    let connected = || good(&here, "lctl dl").contains("testfs-DOM0000-mdc_data");
    assert!(!connected(), "nobody has a file there");
    good(&here, "lfs setstripe -c -1 wide");
    fs::write(here.join("wide"), b"x").expect("room");
    assert!(good(&here, "lfs getstripe -c wide").contains('4'));
    assert!(good(&here, "lctl dl").contains(&format!("mdt_data {DATA}")));
    let forgotten = nacre(&here, &["forget", DATA]);
    assert_eq!(forgotten.status.code(), Some(1));

    let setting = "lod.testfs-MDT0000-mdtlov.dom_stripesize";
    assert_eq!(up.param(setting).trim(), "1048576");
    up.set(setting, "100000");
    assert_eq!(up.param(setting).trim(), "65536", "whole units");
    assert!(up.try_set(&[(setting, "2G")]).is_err());
    good(&here, "lfs setstripe -E 1M -L mdt -E -1 -c 1 short");
    assert!(good(&here, "lfs getstripe -E short").contains("65536"));
    fs::write(here.join("short"), b"x").expect("room");
    assert!(connected());
    up.set(setting, "0");
    good(&here, "lfs setstripe -E 1M -L mdt -E -1 -c 1 none");
    fs::write(here.join("none"), b"x").expect("room");
    assert_eq!(objects(&up, DATA).len(), 1, "off: on an OST");

    // lost data are told, and nothing is made in their place
    up.stop();
    let data = up.target("MDT0000").join("data");
    fs::rename(&data, up.data().join("elsewhere")).expect("it was there");
    let serve = nacre(&up.target("MDT0000"), &["serve", ".", "--listen", "127.0.250.9@tcp"]);
    let text = String::from_utf8_lossy(&serve.stderr).into_owned();
    assert!(!serve.status.success() && text.contains("data"), "{text}");
    assert!(!data.exists());
    fs::rename(up.data().join("elsewhere"), &data).expect("back");
    up.start_again(&[]);
    assert_eq!(fs::read(up.at("short")).expect("reads"), b"x");
    up.stop();
}
