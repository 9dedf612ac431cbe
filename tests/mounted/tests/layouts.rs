//! Layouts as users set them: `lfs setstripe`, `lustre.lov` by setfattr, tar, and an open that
//! delays the layout.

use std::fs::{self, OpenOptions};
use std::os::unix::fs::{FileExt, OpenOptionsExt};
use std::path::Path;
use std::process::{Command, Output};

use mounted::cut::Disk;
use mounted::{Scratch, Up, nacre_bin};

/// The kernel takes O_NOCTTY off a create and passes FASYNC on (Lustre: `O_LOV_DELAY_CREATE` is
/// both).
const O_LOV_DELAY_CREATE: i32 = libc::O_NOCTTY | libc::O_ASYNC;

fn lfs(up: &Up, words: &[&str]) -> Output {
    Command::new(nacre_bin())
        .arg("lfs")
        .args(words)
        .current_dir(up.mount())
        .output()
        .expect("nacre starts")
}

fn good(up: &Up, words: &[&str]) -> String {
    let output = lfs(up, words);
    assert!(output.status.success(), "lfs {words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn refused(up: &Up, words: &[&str], part: &str) {
    let output = lfs(up, words);
    let stderr = String::from_utf8_lossy(&output.stderr);
    assert!(
        !output.status.success() && stderr.contains(part),
        "lfs {words:?}: '{part}' is not in: {stderr}"
    );
}

/// OSTs of a file's stripes, in order.
fn osts(up: &Up, path: &str) -> Vec<u64> {
    let shown = good(up, &["getstripe", "--json", path]);
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let objects = value[0]["lmm_objects"].as_array().expect("a list");
    objects.iter().map(|object| object["l_ost_idx"].as_u64().expect("an index")).collect()
}

fn sh(dir: &Path, command: &str) -> String {
    let output =
        Command::new("sh").args(["-ec", command]).current_dir(dir).output().expect("sh starts");
    assert!(output.status.success(), "{command}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Hexadecimal, as `setfattr` takes it.
fn lov(path: &Path) -> String {
    let dir = path.parent().expect("a parent");
    let shown = sh(
        dir,
        &format!(
            "getfattr --only-values -n lustre.lov {} | od -An -v -tx1 | tr -d ' \\n'",
            path.display()
        ),
    );
    format!("0x{shown}")
}

#[test]
fn a_list_of_osts_is_what_a_file_gets() {
    let mut up = Up::new("ostlist");
    good(&up, &["setstripe", "-o", "2,0,3", "-S", "64K", "listed"]);
    assert_eq!(fs::metadata(up.at("listed")).expect("it is there").len(), 0);
    assert_eq!(osts(&up, "listed"), [2, 0, 3]);
    fs::write(up.at("listed"), vec![7; 300 << 10]).expect("written");
    assert_eq!(
        (osts(&up, "listed"), fs::read(up.at("listed")).expect("read")),
        (vec![2, 0, 3], vec![7; 300 << 10])
    );
    fs::create_dir(up.at("d")).expect("a directory");
    good(&up, &["setstripe", "-o", "1-3", "d"]);
    fs::write(up.at("d/f"), "x").expect("written");
    assert_eq!(osts(&up, "d/f"), [1, 2, 3]);
    for (words, part) in [
        (["setstripe", "-o", "0,9", "bad"], "OST index 9 does not exist"),
        (["setstripe", "-o", "0,9", "d"], "OST index 9 does not exist"),
        (["setstripe", "-i", "9", "bad"], "OST index 9 does not exist"),
        (["setstripe", "-o", "1,2", "listed"], "stripe already set"),
    ] {
        refused(&up, &words, part);
    }
    assert!(!up.at("bad").exists());
    for (words, file, count) in
        [(["setstripe", "-o", "1,1"], "twice", 2), (["setstripe", "-C", "9"], "over", 9)]
    {
        let [command, option, value] = words;
        good(&up, &[command, option, value, "-S", "64K", file]);
        let bytes: Vec<u8> = (0..700_000_u32).map(|at| (at >> 7) as u8).collect();
        fs::write(up.at(file), &bytes).expect("written");
        assert_eq!(osts(&up, file).len(), count, "{file}");
        assert_eq!(good(&up, &["getstripe", "-L", file]).trim(), "raid0,overstriped");
        assert!(fs::read(up.at(file)).expect("read") == bytes, "{file}");
        fs::remove_file(up.at(file)).expect("removed");
    }
    up.stop();
}

#[test]
fn a_layout_may_come_after_the_name_and_before_the_data() {
    let mut up = Up::new("delay");
    let delayed = |name: &str| {
        let mut open = OpenOptions::new();
        open.read(true).write(true).create_new(true).custom_flags(O_LOV_DELAY_CREATE);
        open.open(up.at(name)).expect("made")
    };
    let told = delayed("told");
    assert!(good(&up, &["getstripe", "told"]).contains("has no stripe info"));
    good(&up, &["setstripe", "-o", "3,1", "told"]);
    told.write_all_at(&vec![5; 3 << 20], 0).expect("written");
    assert_eq!(osts(&up, "told"), [3, 1]);
    assert_eq!(fs::read(up.at("told")).expect("read"), vec![5; 3 << 20]);
    let written = delayed("written");
    written.write_all_at(b"data", 4096).expect("written without being told");
    assert_eq!(osts(&up, "written").len(), 1);
    drop((told, written));
    assert_eq!(fs::metadata(up.at("written")).expect("it is there").len(), 4100);
    drop(delayed("empty"));
    assert!(good(&up, &["getstripe", "empty"]).contains("has no stripe info"));
    assert_eq!(fs::read(up.at("empty")).expect("read"), b"");
    let cut = delayed("cut");
    cut.set_len(1 << 20).expect("cut");
    assert_eq!(
        (fs::metadata(up.at("cut")).expect("there").len(), osts(&up, "cut").len()),
        (1 << 20, 1)
    );
    up.stop();
}

#[test]
fn lustre_lov_is_set_as_it_was_read() {
    let mut up = Up::new("lov");
    let mount = up.mount().to_owned();
    good(&up, &["setstripe", "-c", "3", "-S", "128K", "-i", "1", "model"]);
    sh(&mount, "mknod fresh p && rm fresh && mkdir dir");
    let value = lov(&up.at("model"));
    drop(
        OpenOptions::new()
            .write(true)
            .create_new(true)
            .custom_flags(O_LOV_DELAY_CREATE)
            .open(up.at("fresh"))
            .expect("made"),
    );
    sh(&mount, &format!("setfattr -n lustre.lov -v {value} fresh"));
    assert_eq!(good(&up, &["getstripe", "-c", "fresh"]).trim(), "3");
    assert_eq!(good(&up, &["getstripe", "-S", "fresh"]).trim(), "131072");
    sh(&mount, &format!("setfattr -n trusted.lov -v {value} dir && echo x > dir/f"));
    assert_eq!(osts(&up, "dir/f").len(), 3);
    assert!(
        sh(&mount, "getfattr -d -m lustre dir/f").contains("lustre.lov="),
        "listed for those who copy"
    );

    fs::write(up.at("old"), "data").expect("written");
    let before = lov(&up.at("old"));
    sh(&mount, &format!("setfattr -n lustre.lov -v {value} old"));
    assert_eq!(
        (lov(&up.at("old")), fs::read(up.at("old")).expect("read")),
        (before, b"data".to_vec())
    );

    sh(&mount, "setfattr -x lustre.lov dir && echo x > dir/g");
    assert_eq!(osts(&up, "dir/g").len(), 1);
    let short = Command::new("setfattr")
        .args(["-n", "lustre.lov", "-v", "0xd00bd10b", "dir"])
        .current_dir(&mount)
        .output();
    assert!(!short.expect("setfattr starts").status.success(), "a value shorter than its header");
    up.stop();
}

#[test]
fn tar_and_cp_carry_layouts() {
    let mut up = Up::new("tar");
    let mount = up.mount().to_owned();
    good(&up, &["setstripe", "-c", "4", "-S", "256K", "wide"]);
    fs::write(up.at("wide"), vec![9; 1 << 20]).expect("written");
    sh(
        &mount,
        "tar --xattrs --xattrs-include='lustre.*' -cf a.tar wide && mkdir out && tar --xattrs --xattrs-include='lustre.*' -C out -xf a.tar",
    );
    assert_eq!(osts(&up, "out/wide").len(), 4);
    assert_eq!(good(&up, &["getstripe", "-S", "out/wide"]).trim(), "262144");
    assert_eq!(fs::read(up.at("out/wide")).expect("read"), vec![9; 1 << 20]);
    sh(&mount, "cp -a wide copy && cmp wide copy");
    up.stop();
}

/// OSTs of 192 MiB of which one is nearly full.
fn with_a_full_ost(name: &str) -> (Disk, Disk, Up) {
    let scratch = Scratch::new(name);
    let full = Disk::new(&scratch, "data/testfs-OST0000", 192);
    let empty = Disk::new(&scratch, "data/testfs-OST0001", 192);
    let up = Up::with(scratch, None, &["--osts", "2"]);
    up.set("lod.*.qos_maxage", "1");
    (full, empty, up)
}

/// Files of one stripe on each OST, of `count` new ones.
fn spread(up: &Up, prefix: &str, count: usize) -> [usize; 2] {
    let mut uses = [0; 2];
    for number in 0..count {
        let name = format!("{prefix}{number}");
        fs::write(up.at(&name), "").expect("made");
        uses[osts(up, &name)[0] as usize] += 1;
    }
    uses
}

#[test]
fn new_files_go_where_there_is_room() {
    let (mut full, mut empty, mut up) = with_a_full_ost("qos");
    assert_eq!(spread(&up, "even", 20), [10, 10], "balanced: one after the other");
    good(&up, &["setstripe", "-i", "0", "big"]);
    fs::write(up.at("big"), vec![1; 100 << 20]).expect("there is room");
    settle(&up, "a");
    let uneven = spread(&up, "uneven", 60);
    assert!(
        uneven[1] >= 35 && uneven[0] >= 3,
        "more where there is more room, and some beside: {uneven:?}"
    );
    up.set("lod.*.qos_threshold_rr", "100%");
    assert_eq!(spread(&up, "off", 20), [10, 10]);
    assert_eq!(up.param("lod.*.qos_threshold_rr").trim(), "100%");
    // To the brim: it gets nothing new, and what names it is refused.
    good(&up, &["setstripe", "-i", "0", "rest"]);
    let rest = OpenOptions::new().write(true).open(up.at("rest")).expect("opened");
    let mut at = 0;
    while rest.write_all_at(&[2; 64 << 10], at).is_ok() {
        at += 64 << 10;
    }
    settle(&up, "b");
    assert_eq!(spread(&up, "brim", 10), [0, 10]);
    refused(&up, &["setstripe", "-o", "0,1", "no"], "Remote I/O error");
    good(&up, &["setstripe", "-i", "0", "elsewhere"]);
    assert_eq!(osts(&up, "elsewhere"), [1], "a start that cannot be is replaced");
    drop(rest);
    fs::remove_file(up.at("rest")).expect("removed");
    fs::remove_file(up.at("big")).expect("removed");
    let start = std::time::Instant::now();
    for turn in 0.. {
        if spread(&up, &format!("back{turn}-"), 4)[0] > 0 {
            break;
        }
        assert!(start.elapsed() < mounted::PATIENCE, "an OST with room again gets files again");
        std::thread::sleep(std::time::Duration::from_millis(500));
    }
    up.stop();
    full.unmount();
    empty.unmount();
}

#[test]
fn a_file_goes_on_where_there_is_room() {
    const PIECE: usize = 1 << 20;
    let (mut full, mut empty, mut up) = with_a_full_ost("extended");
    let line = "setstripe -E 1G -i 0 -z 64M -E -1 -i 1 grows";
    good(&up, &line.split(' ').collect::<Vec<_>>());
    settle(&up, "e");
    let file = OpenOptions::new().write(true).open(up.at("grows")).expect("opened");
    for piece in 0..200 {
        if piece % 64 == 60 {
            settle(&up, &format!("e{piece}")); // the MDT counts with the OST's latest report
        }
        let done = file.write_all_at(&vec![piece as u8; PIECE], (piece * PIECE) as u64);
        done.unwrap_or_else(|error| panic!("MiB {piece}: {error}"));
    }
    file.sync_all().expect("durable");
    let shown = good(&up, &["getstripe", "--json", "grows"]);
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let parts = value[0]["components"].as_array().expect("components");
    let on = |part: usize| parts[part]["lmm_objects"][0]["l_ost_idx"].as_u64();
    assert_eq!((parts.len(), on(0), on(1)), (2, Some(0), Some(1)), "{shown}");
    assert_eq!(parts[1]["lcme_extent.e_end"], "EOF", "{shown}");
    let ends: u64 =
        parts[0]["lcme_extent.e_end"].as_str().and_then(|end| end.parse().ok()).expect("an end");
    assert!(ends == 64 << 20 || ends == 128 << 20, "steps of 64 MiB: {shown}");
    let read = fs::read(up.at("grows")).expect("read");
    assert!(read.chunks(PIECE).zip(0..).all(|(piece, at)| piece.iter().all(|byte| *byte == at)));
    drop(file);
    up.stop();
    full.unmount();
    empty.unmount();
}

/// How often each OST has told its space.
fn told(up: &Up) -> [u64; 2] {
    [0, 1].map(|ost| {
        let stats = up.param(&format!("obdfilter.testfs-OST000{ost}.stats"));
        let line = stats.lines().find(|line| line.split_whitespace().next() == Some("statfs"));
        line.and_then(|line| line.split_whitespace().nth(1)?.parse().ok()).unwrap_or(0)
    })
}

/// Until the MDT has asked the OSTs again: it does when somebody chose by figures that are older
/// than a second. It asks once more only when it has all answers, of which a busy OST may be late
/// with one.
fn settle(up: &Up, name: &str) {
    let (before, start) = (told(up), std::time::Instant::now());
    let is_settled = || told(up).iter().zip(before).all(|(now, before)| *now >= before + 2);
    for turn in 0.. {
        if turn >= 4 && is_settled() {
            return;
        }
        assert!(start.elapsed() < mounted::PATIENCE, "the MDT does not ask the OSTs");
        fs::write(up.at(&format!("settle-{name}{turn}")), "").expect("made");
        std::thread::sleep(std::time::Duration::from_millis(1_100));
    }
}
