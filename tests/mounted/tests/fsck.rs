//! `nacre fsck` on a real file system. It is clean while it is served and when it is stopped.
//! Damage in the stores is found and repaired, and the next start serves the repaired stores.

use std::fs;
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};
use std::sync::atomic::{AtomicBool, Ordering};

use mounted::{Scratch, Up, nacre_bin};
use osd::{MetaStore, Table, WriteSet};
use osd_disk::{DiskMeta, MetaOptions};
use serde_json::Value;
use types::Fid;

/// Bytes of a file.
const BYTES: usize = 70_000;

fn fsck(data: &Path, more: &[&str]) -> Output {
    let mut command = Command::new(nacre_bin());
    command.arg("fsck").arg("--data").arg(data).args(more).output().expect("nacre starts")
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

/// The rules that are broken, once each.
fn rules(data: &Path, more: &[&str], status: i32) -> Vec<String> {
    let done = fsck(data, &[more, &["--json"]].concat());
    let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(status), "{said}");
    let value: Value = serde_json::from_slice(&done.stdout).expect("JSON");
    let findings = value["findings"].as_array().expect("a list");
    let name = |finding: &Value| finding["rule"].as_str().expect("a rule").to_owned();
    let mut all: Vec<String> = findings.iter().map(name).collect();
    all.sort();
    all.dedup();
    all
}

fn fid(up: &Up, path: &str) -> Fid {
    let shown = up.tool(&["lfs", "path2fid", &up.at(path).to_string_lossy()]);
    shown.trim().parse().expect("a FID")
}

/// Runs a tool on a path, which prints nothing.
fn quiet(up: &Up, words: &[&str], path: &str) {
    let path = up.at(path).to_string_lossy().into_owned();
    assert_eq!(up.tool(&[words, &[&path[..]]].concat()), "");
}

fn content(name: &str) -> Vec<u8> {
    name.bytes().chain(*b";").cycle().take(BYTES).collect()
}

fn write(up: &Up, name: &str) {
    let mut file = fs::File::create(up.at(name)).expect("create");
    file.write_all(&content(name)).expect("write");
    file.sync_all().expect("its objects are there");
}

/// Tells workers to end, also where a check fails.
struct Ended<'a>(&'a AtomicBool);

impl Drop for Ended<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Changes records of a target that is stopped.
fn damage(dir: &Path, mut change: impl FnMut(Table, &[u8], &[u8]) -> Option<Option<Vec<u8>>>) {
    let meta = DiskMeta::open(dir, &MetaOptions::default()).expect("opens");
    let mut set = WriteSet::new();
    {
        let view = meta.running().expect("ready");
        for table in Table::ALL {
            view.scan(table, &[0], &mut |key, value| {
                if let Some(new) = change(table, key, value) {
                    set.changes.push((table, key.to_vec(), new));
                }
                true
            })
            .expect("reads");
        }
    }
    assert!(!set.changes.is_empty(), "something is changed");
    env_os::run(env_os::OsConfig::default(), |_env| async move {
        osd::apply(&*meta, &set).await.expect("room");
        meta.commit().await.expect("durable");
    });
}

/// Behind the head of an entry's record.
fn is_named(value: &[u8], name: &str) -> bool {
    value.get(24..) == Some(name.as_bytes())
}

/// Objects of an OST.
fn objects(up: &Up, ost: &str) -> Vec<PathBuf> {
    let dirs = fs::read_dir(up.target(ost).join("objects")).expect("objects");
    let dirs = dirs.map(|dir| dir.expect("readdir").path());
    dirs.flat_map(|dir| fs::read_dir(dir).expect("a directory of objects"))
        .map(|object| object.expect("readdir").path())
        .collect()
}

#[test]
fn damage_of_two_mdts_is_found_and_repaired() {
    let mut up = Up::with(Scratch::new("fsck"), None, &["--mdts", "2"]);
    let mount = up.mount().to_path_buf();
    quiet(&up, &["lfs", "setdirstripe", "-d"], "."); // the test says where directories are
    fs::create_dir_all(up.at("dir/sub")).expect("mkdir");
    quiet(&up, &["lfs", "mkdir", "-i", "1"], "far");
    quiet(&up, &["lfs", "mkdir", "-c", "2"], "wide");
    for name in ["dir/entry", "dir/nameless", "dir/count", "dir/sub/deep", "far/gone", "far/kept"] {
        write(&up, name);
    }
    (0..8).for_each(|number| write(&up, &format!("wide/{number}")));
    quiet(&up, &["lfs", "migrate", "-c", "2"], "far/kept"); // it has objects of another file
    let before = objects(&up, "OST0001");
    quiet(&up, &["lfs", "setstripe", "-c", "1", "-i", "1"], "lost");
    write(&up, "lost");
    let lost_object = objects(&up, "OST0001").into_iter().find(|it| !before.contains(it));
    let names = ["dir/nameless", "dir/count", "far/gone", "dir/sub"];
    let [nameless, count, gone, sub] = names.map(|name| fid(&up, name));
    assert_eq!((gone.mdt_index(), sub.mdt_index()), (1, 0));

    let data = up.data().to_path_buf();
    assert_eq!(rules(&data, &[], 0), Vec::<String>::new(), "it is served");
    let refused = fsck(&data, &["--repair"]);
    assert_eq!(refused.status.code(), Some(8));
    assert!(text(&refused.stderr).contains("a repair needs a stopped"), "{refused:?}");
    up.stop();
    up.fsck();

    damage(&up.target("MDT0000"), |table, key, value| {
        let of = |fid: Fid| key.starts_with(&fid.to_key());
        let is_gone = match table {
            Table::Dirents => is_named(value, "entry") || is_named(value, "nameless"),
            Table::Links => of(nameless),
            Table::Inodes if of(count) => {
                let mut inode = value.to_vec();
                inode[28] = 9; // the link count
                return Some(Some(inode));
            }
            Table::Inodes => of(sub),
            _ => false,
        };
        is_gone.then_some(None)
    });
    damage(&up.target("MDT0001"), |table, key, _| {
        let is_gone = matches!(table, Table::Inodes | Table::Layouts);
        (is_gone && key.starts_with(&gone.to_key())).then_some(None)
    });
    fs::remove_file(lost_object.expect("an object")).expect("removed");

    let found = rules(&data, &[], 4);
    for rule in ["dangling-name", "link-count", "lost-name", "lost-object", "nameless"] {
        assert!(found.iter().any(|it| it == rule), "{rule} is not in {found:?}");
    }
    assert_eq!(rules(&data, &[], 4), found, "a look changes nothing");
    rules(&data, &["--repair"], 4);
    assert_eq!(rules(&data, &[], 4), ["lost-object"], "its bytes are gone");
    rules(&data, &["--repair", "--zero-lost"], 1);
    up.fsck();

    up.start_again(&[]);
    for name in ["dir/entry", "dir/count", "dir/sub/deep", "far/kept", "wide/3"] {
        assert!(fs::read(up.at(name)).expect("read") == content(name), "{name}");
    }
    assert!(!up.at("far/gone").exists() && !up.at("dir/nameless").exists());
    for (fid, name) in [(nameless, "dir/nameless"), (gone, "far/gone")] {
        let found = format!(".nacre/lost+found/{:#x}:{:#x}:0x0", fid.seq, fid.oid);
        assert!(fs::read(mount.join(&found)).expect("read") == content(name), "{found}");
        fs::remove_file(mount.join(&found)).expect("unlink");
    }
    let there = fs::read(up.at("lost")).expect("its bytes were given up");
    assert_eq!(there.len(), BYTES);
    assert!(there.iter().all(|byte| *byte == 0));
    write(&up, "dir/after");
    fs::remove_dir_all(up.at("dir")).expect("removed");
    fs::remove_dir_all(up.at("wide")).expect("removed");
    up.stop();
    up.fsck();
}

#[test]
fn copies_of_targets_are_checked_in_place_of_the_targets() {
    let mut up = Up::with(Scratch::new("fsckcopies"), None, &["--mdts", "2", "--osts", "2"]);
    quiet(&up, &["lfs", "mkdir", "-i", "1"], "far");
    (0..4).for_each(|number| write(&up, &format!("far/{number}")));
    let looks = ["one", "two"].map(|name| up.data().with_extension(name));
    for dir in &looks {
        fs::create_dir(dir).expect("made");
        for ost in ["OST0000", "OST0001", "DOM0000", "DOM0001"] {
            let list = up.tool(&["list-objects", &format!("testfs-{ost}")]);
            fs::write(dir.join(format!("{ost}.objects")), list).expect("written");
        }
        for mdt in ["MDT0000", "MDT0001"] {
            let to = dir.join(format!("{mdt}.export")).to_string_lossy().into_owned();
            let _silent = up.tool(&["export-meta", &format!("testfs-{mdt}"), "-o", &to]);
        }
    }
    let [one, two] = looks.map(|dir| dir.to_string_lossy().into_owned());
    let mut command = Command::new(nacre_bin());
    let done = command.args(["fsck", "--copies", &one, "--copies", &two]).output();
    let done = done.expect("nacre starts");
    let said = format!("{}{}", text(&done.stdout), text(&done.stderr));
    assert_eq!(done.status.code(), Some(0), "{said}");
    assert!(said.contains("testfs: 2 MDTs, 2 OSTs"), "{said}");
    up.stop();
}

#[test]
fn what_mdts_can_mend_is_repaired_while_they_serve() {
    let mut up = Up::with(Scratch::new("fsckmend"), None, &["--mdts", "2"]);
    quiet(&up, &["lfs", "setdirstripe", "-d"], "."); // the test says where directories are
    fs::create_dir_all(up.at("dir/sub")).expect("mkdir");
    write(&up, "dir/count");
    quiet(&up, &["lfs", "mkdir", "-i", "1"], "dir/away");
    write(&up, "dir/away/kept");
    let [count, sub] = ["dir/count", "dir/sub"].map(|name| fid(&up, name));
    up.stop();
    damage(&up.target("MDT0000"), |table, key, value| {
        let of = |fid: Fid| key.starts_with(&fid.to_key());
        if table == Table::Inodes && of(count) {
            let mut inode = value.to_vec();
            inode[28] = 9; // the link count
            return Some(Some(inode));
        }
        let is_lost = table == Table::Dirents && is_named(value, "away");
        (is_lost || (table == Table::Inodes && of(sub))).then_some(None)
    });
    up.start_again(&[]);
    let data = up.data().to_path_buf();
    let found = rules(&data, &[], 4);
    for rule in ["dangling-name", "link-count", "lost-name"] {
        assert!(found.iter().any(|it| it == rule), "{rule} is not in {found:?}");
    }
    assert_eq!(rules(&data, &["--repair", "--live"], 1), found);
    assert_eq!(rules(&data, &[], 0), Vec::<String>::new());
    assert_eq!(fs::metadata(up.at("dir/count")).expect("stat").nlink(), 1);
    assert!(!up.at("dir/sub").exists());
    assert!(fs::read(up.at("dir/away/kept")).expect("read") == content("dir/away/kept"));
    fs::remove_dir_all(up.at("dir")).expect("removed");
    up.stop();
    up.fsck();
}

#[test]
fn a_file_system_that_works_shows_no_breach_to_a_live_check() {
    let mut up = Up::with(Scratch::new("fscklive"), None, &["--mdts", "2"]);
    let is_over = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for worker in 0..2 {
            let (up, is_over) = (&up, &is_over);
            scope.spawn(move || {
                let dir = up.at(&format!("work{worker}"));
                let index = worker.to_string();
                quiet(up, &["lfs", "mkdir", "-i", &index], &format!("work{worker}"));
                for turn in 0.. {
                    if is_over.load(Ordering::Relaxed) {
                        return;
                    }
                    let (one, other) =
                        (dir.join(format!("f{}", turn % 7)), dir.join(format!("g{}", turn % 5)));
                    fs::write(&one, content("work")).expect("write");
                    fs::rename(&one, &other).expect("rename");
                    if turn % 3 == 0 {
                        fs::remove_file(&other).expect("unlink");
                    }
                }
            });
        }
        let _ended = Ended(&is_over);
        for _ in 0..3 {
            assert_eq!(rules(up.data(), &[], 0), Vec::<String>::new());
        }
    });
    up.stop();
    up.fsck();
}
