//! Disks that are not mounted when `up` starts: known targets are never formatted again, and
//! existing targets serve.

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use mounted::{Scratch, nacre_bin};

const OST: &str = "testfs-OST0001";
const MDT: &str = "testfs-MDT0000";

fn up(scratch: &Scratch, args: &[&str], run: &str) -> (Output, String) {
    let mut command = Command::new(nacre_bin());
    command.arg("up").arg("--data").arg(scratch.path().join("data"));
    command.arg("--mount").arg(scratch.path().join("mnt")).args(args);
    if !args.contains(&"--osts") {
        command.args(["--osts", "2"]);
    }
    command.args(["--mdts", "1"]);
    let output = command.args(["--run", run]).stdin(Stdio::null()).output().expect("nacre starts");
    let text = String::from_utf8_lossy(&output.stderr).into_owned();
    (output, text)
}

fn entries(dir: &Path) -> usize {
    fs::read_dir(dir).expect("a directory").count()
}

/// Takes the target's disk away; the mount point stays, empty.
fn unmount(scratch: &Scratch, target: &Path) {
    fs::rename(target, scratch.path().join("disk")).expect("it was there");
    fs::create_dir(target).expect("its mount point");
}

fn mount(scratch: &Scratch, target: &Path) {
    fs::remove_dir(target).expect("nothing was made there");
    fs::rename(scratch.path().join("disk"), target).expect("it comes back");
}

#[test]
fn a_disk_that_is_not_mounted_is_named_and_the_others_serve() {
    for args in [&[][..], &["--separate"]] {
        let scratch = Scratch::new("disks");
        let data = scratch.path().join("data");
        let make = format!(
            "for i in 0 1; do {0} lfs setstripe -c 1 -i $i f$i; echo $i > f$i; done",
            nacre_bin().display()
        );
        let (output, text) = up(&scratch, args, &make);
        assert!(output.status.success(), "{text}");
        let told = text.lines().filter(|line| line.contains("a new file system in"));
        assert_eq!(told.count(), 1, "{text}");
        assert!(!text.contains("formatted"), "{text}");

        let ost = data.join(OST);
        for has_note in [true, false] {
            if !has_note {
                fs::remove_file(data.join("up.json")).expect("a note");
            }
            unmount(&scratch, &ost);
            let (output, text) = up(&scratch, args, "cat f0 && mkdir d && rmdir d");
            assert!(output.status.success() && output.stdout == b"0\n", "{text}");
            let wanted = format!("{OST} is not there: is its disk mounted at {}?", ost.display());
            assert!(text.contains(&wanted), "{text}");
            assert!(!text.contains("new file system") && !text.contains("new targets"), "{text}");
            mount(&scratch, &ost);
        }
        fs::rename(ost.join("records"), ost.join("aside")).expect("records");
        let (output, text) = up(&scratch, args, "cat f0");
        assert!(output.status.success() && text.contains("records/data.mdb is missing"), "{text}");
        fs::rename(ost.join("aside"), ost.join("records")).expect("back");

        for target in [MDT, "MGS"] {
            unmount(&scratch, &data.join(target));
            let (output, text) = up(&scratch, args, "true");
            assert_eq!(output.status.code(), Some(1), "{text}");
            assert!(text.contains(&format!("{target} is not there: is its disk")), "{text}");
            mount(&scratch, &data.join(target));
        }
        let (output, text) = up(&scratch, args, "cat f0 f1");
        assert!(output.status.success() && output.stdout == b"0\n1\n", "{text}");
        let (output, text) = up(&scratch, &[args, &["--osts", "3"]].concat(), "cat f0 f1");
        assert!(output.status.success() && text.contains("new targets in"), "it grows: {text}");
        assert!(data.join("testfs-OST0002/nacre-super").exists());
    }
}

#[test]
fn a_path_that_does_not_exist_is_an_error_and_makes_nothing() {
    let scratch = Scratch::new("disks-typo");
    let nowhere = scratch.path().join("nowhere");
    let nowhere = nowhere.to_str().expect("text");
    let (output, text) = up(&scratch, &["--device-dir", nowhere], "true");
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("--device-dir {nowhere}: no such directory")), "{text}");
    let mut command = Command::new(nacre_bin());
    command.arg("up").arg("--data").arg(scratch.path().join("data"));
    command.args(["--mount", &format!("{nowhere}/mnt"), "--run", "true"]);
    let output = command.stdin(Stdio::null()).output().expect("nacre starts");
    let text = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{text}");
    assert!(text.contains(&format!("{nowhere} is not a directory")), "{text}");
    assert_eq!(entries(scratch.path()), 0, "nothing was made");
}
