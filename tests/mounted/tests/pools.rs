//! Pools of OSTs, created by an administrator and requested by users.

use std::fs;
use std::process::{Command, Output};

use mounted::{Up, nacre_bin};

fn run(up: &Up, line: &str) -> Output {
    Command::new(nacre_bin())
        .args(line.split_whitespace())
        .current_dir(up.mount())
        .output()
        .expect("nacre starts")
}

/// What a command says on both outputs, and whether it succeeded.
fn said(up: &Up, line: &str) -> (bool, String) {
    let output = run(up, line);
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

fn good(up: &Up, line: &str) -> String {
    let (ok, text) = said(up, line);
    assert!(ok, "{line}: {text}");
    text
}

fn refused(up: &Up, line: &str, part: &str) {
    let (ok, text) = said(up, line);
    assert!(!ok && text.contains(part), "{line}: '{part}' is not in: {text}");
}

/// OSTs and pool of a file.
fn layout(up: &Up, file: &str) -> (Vec<u64>, String) {
    let shown = good(up, &format!("lfs getstripe --json {file}"));
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let objects = value[0]["lmm_objects"].as_array().expect("a list");
    let mut osts: Vec<u64> =
        objects.iter().map(|object| object["l_ost_idx"].as_u64().expect("an index")).collect();
    osts.sort_unstable();
    (osts, value[0]["lmm_pool"].as_str().unwrap_or_default().to_owned())
}

#[test]
fn files_keep_to_the_pool_that_they_ask_for() {
    let mut up = Up::new("pools");
    assert_eq!(good(&up, "lctl pool_new testfs.flash"), "Pool testfs.flash created\n");
    refused(&up, "lctl pool_new testfs.flash", "is there already");
    refused(&up, "lctl pool_new testfs.none", "a pool's name");
    refused(&up, "lfs setstripe -p flash early", "has no OSTs yet");
    let added = good(&up, "lctl pool_add testfs.flash OST[0-1,8-f]");
    assert_eq!(
        added,
        "OST testfs-OST0000_UUID added to pool testfs.flash\n\
         OST testfs-OST0001_UUID added to pool testfs.flash\n"
    );
    refused(&up, "lctl pool_add testfs.flash OST[8-f]", "no OST of testfs");
    refused(&up, "lctl pool_add flash testfs-OST0001_UUID", "in pool testfs.flash already");
    good(&up, "lctl pool_new disk");
    good(&up, "lctl pool_add disk 2-3");
    assert_eq!(
        good(&up, "lfs pool_list testfs"),
        "Pools from testfs:\ntestfs.disk\ntestfs.flash\n"
    );
    let members = "Pool: testfs.flash\ntestfs-OST0000_UUID\ntestfs-OST0001_UUID\n";
    assert_eq!(good(&up, "lfs pool_list testfs.flash"), members);
    assert_eq!(good(&up, "lctl pool_list testfs.flash"), members);

    good(&up, "lfs setstripe -p testfs.flash -c -1 wide");
    assert_eq!(layout(&up, "wide"), (vec![0, 1], "flash".to_owned()));
    fs::create_dir_all(up.mount().join("dir/sub")).expect("directories");
    good(&up, "lfs setstripe -p disk -c 2 dir");
    fs::write(up.mount().join("dir/file"), "data").expect("a file");
    assert_eq!(layout(&up, "dir/file"), (vec![2, 3], "disk".to_owned()));
    good(&up, "lfs setstripe -p none -c -1 dir/any");
    assert_eq!(layout(&up, "dir/any"), (vec![0, 1, 2, 3], String::new()));
    good(&up, "lfs setstripe -E 1M -c 1 -E -1 -c 2 dir/parts");
    assert_eq!(good(&up, "lfs getstripe -p dir/parts"), "disk\n", "the directory's");
    refused(&up, "lfs setstripe -p gone file", "there is no pool 'gone'");
    refused(&up, "lfs setstripe -p other.flash file", "there is no pool 'other.flash'");
    refused(&up, "lfs setstripe -p flash -o 0,2 file", "OST index 2 is not in pool 'flash'");
    let shown = good(&up, "lfs df -p flash");
    assert!(shown.contains("OST0001") && shown.contains("MDT0000") && !shown.contains("OST0002"));

    let why = good(&up, "lfs getstripe --why dir");
    assert!(
        why.contains("a new file gets             2 stripes of 1048576 bytes in pool disk\n"),
        "{why}"
    );
    assert!(why.contains("pool disk                   2 OSTs, "), "{why}");

    // from 0 % of its room on: always
    good(&up, "lctl set_param lod.*.pool.disk.spill_threshold_pct=0");
    good(&up, "lctl set_param lod.*.pool.disk.spill_target=flash");
    fs::write(up.mount().join("dir/spilled"), "data").expect("a file");
    assert_eq!(layout(&up, "dir/spilled"), (vec![0, 1], "flash".to_owned()));
    let why = good(&up, "lfs getstripe --why dir/spilled");
    let same = "this file                   as a new file beside it would have\n";
    assert!(why.contains(same), "{why}");
    assert!(why.contains("it was made by              the directory's default, "), "{why}");
    assert!(why.contains("; a pool was filling up, so objects are in another one\n"), "{why}");
    good(&up, "lctl set_param lod.*.pool.disk.spill_threshold_pct=100");
    let why = good(&up, "lfs getstripe --why dir/spilled");
    assert!(why.contains("other than a new file beside it would have (pool): "), "{why}");

    up.stop();
    up.start_again(&[]);
    assert_eq!(good(&up, "lfs pool_list testfs.flash"), members, "it is durable");
    good(&up, "lfs setstripe -p flash after");
    let (osts, pool) = layout(&up, "after");
    assert!(osts[0] < 2 && pool == "flash", "{osts:?}");
    refused(&up, "lctl pool_destroy testfs.flash", "has members");
    good(&up, "lctl pool_remove testfs.flash OST0000 OST0001");
    good(&up, "lctl pool_destroy testfs.flash");
    assert_eq!(layout(&up, "wide"), (vec![0, 1], "flash".to_owned()), "data stays where it is");
    refused(&up, "lfs setstripe -p flash new", "there is no pool 'flash'");
}
