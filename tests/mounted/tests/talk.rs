//! The command lines of the talk "DoM, DNE and PFL working together" (LUG 2018) that need one MDT.
//! They run as they are typed there, on a mount with pools. `mdts.rs` has those that need several
//! MDTs.

use std::fs;

use mounted::Up;
use mounted::line::{good, nacre};

const MIB: usize = 1 << 20;
const EOF: &str = "EOF";

/// A component: end, pattern, pool, stripes and their size.
type Part = (&'static str, &'static str, &'static str, u64, u64);

/// Options of `lfs setstripe`, and the components of a file that is made in the directory.
const LINES: &[(&str, [Part; 2])] = &[
    (
        "-E 64K -L mdt -E -1 -p testfs.disk -c 1 -S 1m",
        [("65536", "mdt", "", 0, 64 << 10), (EOF, "raid0", "disk", 1, 1 << 20)],
    ),
    (
        "-E 1M -L mdt -E -1 -p testfs.disk -c 1 -S 1m",
        [("1048576", "mdt", "", 0, 1 << 20), (EOF, "raid0", "disk", 1, 1 << 20)],
    ),
    (
        "-E 64K -p testfs.flash -c 1 -S 64K -E -1 -p testfs.disk -c 1 -S 1m",
        [("65536", "raid0", "flash", 1, 64 << 10), (EOF, "raid0", "disk", 1, 1 << 20)],
    ),
    (
        "-E 4M -p testfs.flash -c 1 -S 1m -E -1 -p testfs.disk -c 1 -S 1m",
        [("4194304", "raid0", "flash", 1, 1 << 20), (EOF, "raid0", "disk", 1, 1 << 20)],
    ),
];

/// The OSTs of a pool.
fn members(pool: &str) -> [u64; 2] {
    if pool == "flash" { [0, 1] } else { [2, 3] }
}

fn check_layout(up: &Up, file: &str, line: &str, wanted: &[Part; 2]) {
    let shown = good(up, &format!("lfs getstripe --json {file}"));
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let parts = value[0]["components"].as_array().expect("components");
    assert_eq!(parts.len(), wanted.len(), "{line}: {shown}");
    for (part, (end, pattern, pool, count, size)) in parts.iter().zip(wanted) {
        let texts = ["lcme_extent.e_end", "lmm_pattern", "lmm_pool", "lcme_flags"];
        let texts = texts.map(|name| part[name].as_str().unwrap_or_default());
        assert_eq!(texts, [*end, *pattern, *pool, "init"], "{line}: {shown}");
        let numbers = ["lmm_stripe_count", "lmm_stripe_size"].map(|name| part[name].as_u64());
        assert_eq!(numbers, [Some(*count), Some(*size)], "{line}: {shown}");
        let objects = part["lmm_objects"].as_array().expect("a list");
        assert_eq!(objects.len() as u64, *count, "{line}: {shown}");
        for object in objects {
            let ost = object["l_ost_idx"].as_u64().expect("an index");
            assert!(members(pool).contains(&ost), "{line}: {shown}");
        }
    }
}

/// Names of pools have the file system's name before them, or not. A bracket stands for the targets
/// that exist.
fn make_pools(up: &Up) {
    good(up, "lctl pool_new testfs.flash");
    good(up, "lctl pool_new disk");
    good(up, "lctl pool_add testfs.flash testfs-OST000[0-1]");
    good(up, "lctl pool_add disk OST000[2-7]");
    for name in ["testfs.flash", "testfs.disk"] {
        let ost = if name.ends_with("flash") { 0 } else { 2 };
        let all = format!("Pool: {name}\ntestfs-OST000{ost}_UUID\ntestfs-OST000{}_UUID\n", ost + 1);
        assert_eq!(good(up, &format!("lfs pool_list {name}")), all);
    }
    let none = nacre(up, "lctl pool_add testfs.disk OST000[4-7]");
    let said = String::from_utf8_lossy(&none.stderr);
    assert!(!none.status.success() && said.contains("no OST of testfs"), "{said}");
}

#[test]
fn the_lines_of_the_talk_lay_out_files_as_typed() {
    let mut up = Up::new("talk");
    make_pools(&up);
    let content: Vec<u8> = (0..6 * MIB).map(|at| (at.wrapping_mul(77) >> 9) as u8).collect();
    for (number, (line, wanted)) in LINES.iter().enumerate() {
        let short = line.replace("testfs.", "");
        for (spelled, line) in [("long", *line), ("short", short.as_str())] {
            let (dir, file) = (format!("{spelled}{number}"), format!("{spelled}{number}/f"));
            fs::create_dir(up.at(&dir)).expect("made");
            assert_eq!(good(&up, &format!("lfs setstripe {line} {dir}")), "", "{line}");
            fs::write(up.at(&file), &content).expect("room");
            assert!(fs::read(up.at(&file)).expect("reads") == content, "{line}");
            check_layout(&up, &file, line, wanted);
            // a file by itself
            let file = format!("{spelled}{number}-f");
            good(&up, &format!("lfs setstripe {line} {file}"));
            fs::write(up.at(&file), &content).expect("room");
            check_layout(&up, &file, line, wanted);
        }
    }
    let unknown = nacre(&up, "lfs setstripe -E 64K -L mdt -E -1 -p testfs.gone -c 1 d");
    let said = String::from_utf8_lossy(&unknown.stderr);
    assert!(!unknown.status.success() && said.contains("there is no pool"), "{said}");
    up.stop();
}

#[test]
fn the_limit_of_the_talk_is_set_at_the_mdts_that_exist() {
    let mut up = Up::new("talk-limit");
    assert_eq!(good(&up, "lctl conf_param testfs-MDT000[0-3].lod.dom_stripesize=4M"), "");
    let shown = "lod.testfs-MDT0000-mdtlov.dom_stripesize=4194304\n";
    let name = "lctl get_param lod.*.dom_stripesize";
    mounted::until("the MDT has the limit", || good(&up, name) == shown);
    let none = nacre(&up, "lctl conf_param testfs-MDT000[4-7].lod.dom_stripesize=4M");
    assert_eq!(none.status.code(), Some(libc::ENOENT), "{none:?}");
    good(&up, "lfs setstripe -E 4M -L mdt -E -1 -c 1 -S 1m f");
    assert_eq!(good(&up, "lfs getstripe -E f"), "4194304\nEOF\n");
    let dom = "    lcme_extent.e_end:   4194304\n      lmm_pattern:       mdt\n";
    assert_eq!(good(&up, "lfs getstripe -I1 -L -E f"), dom);
    up.stop();
}
