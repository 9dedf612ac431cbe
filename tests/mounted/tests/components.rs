//! Progressive layouts on a mount. Components get their objects as a file grows, and other mounts
//! see the data written into them. A restarted server keeps the objects that it gave.

use std::fs::{self, File, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::Command;

use mounted::{Up, nacre_bin};

const MIB: u64 = 1 << 20;

/// What `lfs` says, and whether it succeeded.
fn lfs(dir: &Path, line: &str) -> (bool, String) {
    let output = Command::new(nacre_bin())
        .arg("lfs")
        .args(line.split_whitespace())
        .current_dir(dir)
        .output()
        .expect("nacre starts");
    let text = [output.stdout, output.stderr].concat();
    (output.status.success(), String::from_utf8(text).expect("text"))
}

fn good(dir: &Path, line: &str) -> String {
    let (ok, text) = lfs(dir, line);
    assert!(ok, "lfs {line}: {text}");
    text
}

fn refused(dir: &Path, line: &str, part: &str) {
    let (ok, text) = lfs(dir, line);
    assert!(!ok && text.contains(part), "lfs {line}: '{part}' is not in: {text}");
}

/// Objects of each component.
fn objects(dir: &Path, file: &str) -> Vec<usize> {
    let shown = good(dir, &format!("getstripe --json {file}"));
    let value: serde_json::Value = serde_json::from_str(&shown).expect("JSON");
    let parts = value[0]["components"].as_array().expect("components").iter();
    parts.map(|part| part["lmm_objects"].as_array().expect("a list").len()).collect()
}

fn open(path: &Path) -> File {
    OpenOptions::new()
        .read(true)
        .write(true)
        .create(true)
        .truncate(false)
        .open(path)
        .expect("opens")
}

fn read(file: &File) -> Vec<u8> {
    let mut all = vec![0; 4 << 20];
    let len = file.read_at(&mut all, 0).expect("reads");
    all.truncate(len);
    all
}

fn bytes(len: u64, seed: u64) -> Vec<u8> {
    (0..len).map(|at| (at.wrapping_mul(seed | 1) >> 7) as u8).collect()
}

#[test]
fn a_file_gets_objects_as_it_grows() {
    let mut up = Up::new("components");
    let other = up.second_mount(201);
    let here = up.mount().to_owned();
    fs::create_dir(here.join("dir")).expect("made");
    good(&here, "setstripe -E 1M -c 1 -E 4M -c 2 -S 64K -E -1 -c 4 -S 1M dir");
    let shown = good(&here, "getstripe -d dir");
    assert!(shown.contains("lcm_entry_count:   3\n"), "{shown}");
    let raw = good(&here, "getstripe -d -R dir");
    assert!(raw.contains("lcm_entry_count:   3\n"), "{raw}");
    let system = good(&here, "getstripe -D dir");
    assert!(system.contains("stripe_count:  1 stripe_size:   1048576 "), "{system}");

    let file = open(&here.join("dir/f"));
    assert_eq!(objects(&here, "dir/f"), [1, 0, 0]);
    let there = File::open(other.join("dir/f")).expect("opens");
    file.write_all_at(&bytes(MIB, 3), 0).expect("room");
    assert_eq!(objects(&here, "dir/f"), [1, 0, 0]);
    assert_eq!(there.read_at(&mut [0; 10], 2 * MIB).expect("reads"), 0, "behind the end");
    file.write_all_at(&bytes(MIB, 5), 2 * MIB).expect("room");
    assert_eq!(objects(&here, "dir/f"), [1, 2, 0]);
    let mut whole = vec![1; 4 * MIB as usize];
    let len = there.read_at(&mut whole, 0).expect("reads");
    let want = [bytes(MIB, 3), vec![0; MIB as usize], bytes(MIB, 5)].concat();
    assert!(len > 0 && whole[..len] == want[..len], "an open handle sees a new component");
    assert!(fs::read(other.join("dir/f")).expect("reads") == want);

    file.set_len(10 * MIB).expect("room");
    assert_eq!(objects(&here, "dir/f"), [1, 2, 4]);
    assert_eq!(fs::metadata(other.join("dir/f")).expect("there").len(), 10 * MIB);
    file.set_len(MIB / 2).expect("cut");
    assert!(fs::read(other.join("dir/f")).expect("reads") == want[..MIB as usize / 2]);
    assert_eq!(objects(&here, "dir/f"), [1, 2, 4], "what was made stays");
    let inside = good(&here, "find dir --component-count 3 --component-flags init -c 4");
    assert_eq!(inside, "dir/f\n");
}

#[test]
fn a_component_grows_in_steps() {
    let mut up = Up::new("components-steps");
    let other = up.second_mount(203);
    let here = up.mount().to_owned();
    fs::create_dir(here.join("dir")).expect("made");
    good(&here, "setstripe -E 1M -S 64K -z 128K -E -1 -S 64K -z 256K dir");
    let flags = |file: &str| good(&here, &format!("getstripe --component-flags {file}"));
    let ends = |file: &str| good(&here, &format!("getstripe -E {file}"));
    let file = open(&here.join("dir/f"));
    let there = File::open(other.join("dir/f")).expect("opens");
    assert_eq!(flags("dir/f"), "init\nextension\n0\nextension\n");
    let shown = |ends: &[&str]| ends.iter().map(|end| format!("{end}\n")).collect::<String>();
    assert_eq!(ends("dir/f"), shown(&["131072", "1048576", "1048576", "EOF"]));
    let content = bytes(600_000, 3);
    file.write_all_at(&content, 0).expect("room");
    assert_eq!(ends("dir/f"), shown(&["655360", "1048576", "1048576", "EOF"]));
    assert!(read(&there) == content, "an open handle sees what the component got");
    assert_eq!(fs::metadata(other.join("dir/f")).expect("there").len(), 600_000);
    file.set_len(2 * MIB).expect("room");
    assert_eq!(ends("dir/f"), shown(&["1048576", "2097152", "EOF"]));
    assert_eq!(good(&here, "getstripe -z dir/f"), "262144\n");
    assert_eq!(good(&here, "find dir -z 128K"), "dir\n", "the first component is whole");
    fs::write(here.join("yaml"), good(&here, "getstripe -y dir/f")).expect("room");
    good(&here, "setstripe --yaml yaml g");
    good(&here, "setstripe --copy dir/f h");
    assert_eq!(ends("g"), ends("h"));
    good(&here, "migrate -E 256K -c 1 -E -1 -z 64M dir/f");
    let want = [&content[..], &vec![0; 2 * MIB as usize - 600_000]].concat();
    assert!(fs::read(other.join("dir/f")).expect("reads") == want);
    assert_eq!(ends("dir/f"), shown(&["262144", "68157440", "EOF"]));
    refused(&here, "setstripe -z 64M i", "needs a component");
    refused(&here, "setstripe -E 64K -L mdt -z 64K -E -1 i", "Data-on-MDT");
}

#[test]
fn appends_go_behind_what_lies_in_components_that_were_not_there() {
    let mut up = Up::new("components-append");
    let other = up.second_mount(202);
    let here = up.mount().to_owned();
    good(&here, "setstripe -E 64K -E 256K -E -1 f");
    let append = |path: &Path| OpenOptions::new().append(true).open(path).expect("opens");
    let (mut one, mut two) = (append(&here.join("f")), append(&other.join("f")));
    let record = |number: u64| bytes(100_000, 3 + 2 * number);
    for round in 0..4 {
        let file = if round % 2 == 0 { &mut one } else { &mut two };
        file.write_all(&record(round)).expect("room");
    }
    let want: Vec<u8> = (0..4).flat_map(record).collect();
    assert!(fs::read(here.join("f")).expect("reads") == want);
    assert!(fs::read(other.join("f")).expect("reads") == want);
}

#[test]
fn a_server_that_dies_keeps_what_it_gave() {
    let mut up = Up::new("components-kill");
    let here = up.mount().to_owned();
    good(&here, "setstripe -E 64K -E 1M -c 2 -E -1 -c 4 f");
    let file = open(&here.join("f"));
    let want = bytes(3 * MIB, 9);
    file.write_all_at(&want, 0).expect("room");
    let before = good(&here, "getstripe -v f");
    up.kill_server("MDT0000");
    assert!(fs::read(here.join("f")).expect("reads") == want);
    assert_eq!(good(&here, "getstripe -v f"), before, "the same objects");
    file.write_all_at(&want, 3 * MIB).expect("room");
    file.sync_all().expect("durable");
    assert!(fs::read(here.join("f")).expect("reads") == [&want[..], &want[..]].concat());
    fs::remove_file(here.join("f")).expect("gone");
    drop(file);
    up.stop();
}

#[test]
fn what_is_no_layout_is_refused_and_a_file_ends_where_its_last_component_does() {
    let up = Up::new("components-end");
    let here = up.mount().to_owned();
    refused(&here, "setstripe -E 64K -c 1 -E 64K f", "starts at 65536");
    refused(&here, "setstripe -E 1M -E -1 -L mdt f", "first component only");
    refused(&here, "setstripe -E 1M -S 2M f", "not a multiple of its stripe size");
    refused(&here, "setstripe -N 2 f", "mirrors");
    good(&here, "setstripe -E 128K -c 1 f");
    refused(&here, "setstripe -E 1M f", "stripe already set");
    let file = open(&here.join("f"));
    file.write_all_at(&bytes(128 << 10, 3), 0).expect("it has a place");
    let no_place = |done: io::Result<()>| {
        assert_eq!(done.err().and_then(|e| e.raw_os_error()), Some(libc::ENODATA))
    };
    no_place(file.write_all_at(b"x", 128 << 10));
    no_place(file.set_len((128 << 10) + 1));
    assert_eq!(fs::read(here.join("f")).expect("reads"), bytes(128 << 10, 3));
}

#[test]
fn components_come_and_go_and_layouts_are_copied() {
    let mut up = Up::new("components-change");
    let there = up.second_mount(202);
    let here = up.mount().to_owned();
    good(&here, "setstripe -E 128K -c 1 f");
    good(&here, "setstripe --component-add -E 1M -c 2 -E -1 -c 4 f");
    let file = open(&here.join("f"));
    file.write_all_at(&bytes(2 * MIB, 3), 0).expect("room");
    assert_eq!(objects(&here, "f"), [1, 2, 4]);
    let (elsewhere, whole) = (open(&there.join("f")), bytes(2 * MIB, 3));
    assert!(read(&elsewhere) == whole, "it is open on both mounts");
    good(&here, "setstripe --component-del -I 3 f");
    assert!(fs::read(here.join("f")).expect("reads") == whole[..MIB as usize]);
    assert!(read(&elsewhere) == whole[..MIB as usize], "what went is nowhere");
    for file in [&file, &elsewhere] {
        let behind = file.write_all_at(b"behind", MIB + 5).map_err(|error| error.raw_os_error());
        assert_eq!(behind, Err(Some(libc::ENODATA)));
    }
    good(&here, "setstripe --component-add -E -1 -c 1 f");
    file.write_all_at(b"anew", MIB).expect("there is a component");
    assert_eq!(read(&elsewhere)[MIB as usize..], *b"anew");
    drop((file, elsewhere));
    good(&here, "setstripe --component-del -I 4 f");
    good(&here, "setstripe --component-add -E -1 -c 1 f");
    refused(&here, "setstripe --component-add -E -1 f", "cannot add components");
    good(&here, "setstripe --component-del --component-flags ^init f");
    assert_eq!(objects(&here, "f"), [1, 2]);
    refused(&here, "setstripe --component-del -I 1 f", "cannot take components");

    good(&here, "setstripe --copy f g");
    let parts = |file: &str| good(&here, &format!("getstripe -E {file}"));
    assert_eq!(parts("g"), parts("f"));
    assert_eq!(objects(&here, "g"), [1, 0]);
    fs::write(here.join("yaml"), good(&here, "getstripe -y g")).expect("room");
    good(&here, "setstripe --yaml yaml h");
    assert_eq!((parts("h"), objects(&here, "h")), (parts("g"), vec![1, 0]));
}
