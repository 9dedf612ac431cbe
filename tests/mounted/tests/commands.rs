//! `lfs`, `lctl` and the native example against a running file system: their output and exit
//! status.

use std::fs;
use std::path::Path;
use std::process::{Command, Output};
use std::time::{Duration, Instant};

use mounted::{Up, kill, nacre_bin};

fn run(words: &[&str]) -> Output {
    Command::new(nacre_bin()).args(words).output().expect("nacre starts")
}

fn stdout(words: &[&str]) -> String {
    let output = run(words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

fn text(path: &Path) -> String {
    path.to_str().expect("a path in UTF-8").to_owned()
}

#[test]
fn lfs_tells_fids_paths_stripes_and_targets() {
    let mut up = Up::new("lfs");
    let (mount, dir, file) = (text(up.mount()), text(&up.at("wide")), text(&up.at("wide/file")));
    fs::create_dir(&dir).expect("a directory");
    stdout(&["lfs", "setstripe", "-c", "3", "-S", "256K", "-i", "1", &dir]);
    fs::write(&file, vec![1; 1 << 20]).expect("written");

    let fid = stdout(&["lfs", "path2fid", &file]);
    assert!(fid.starts_with("[0x2000") && fid.trim_end().ends_with(']'), "{fid}");
    assert_eq!(stdout(&["lfs", "fid2path", &mount, fid.trim()]).trim(), file);
    assert_eq!(stdout(&["lfs", "getstripe", "-c", &file]).trim(), "3");
    assert_eq!(stdout(&["lfs", "getstripe", "-S", &file]).trim(), "262144");
    assert_eq!(stdout(&["lfs", "getstripe", "-i", &file]).trim(), "1");
    let whole = stdout(&["lfs", "getstripe", &file]);
    for line in
        ["lmm_stripe_count:  3", "lmm_stripe_size:   262144", "lmm_stripe_offset: 1", "obdidx"]
    {
        assert!(whole.contains(line), "'{line}' is not in:\n{whole}");
    }
    let osts = stdout(&["lfs", "osts", &mount]);
    assert!((0..4).all(|index| osts.contains(&format!("testfs-OST000{index}_UUID"))), "{osts}");
    assert!(stdout(&["lfs", "mdts", &mount]).contains("testfs-MDT0000_UUID"));
    let df = stdout(&["lfs", "df", &mount]);
    assert!(df.contains("testfs-OST0003_UUID") && df.contains("filesystem_summary"), "{df}");

    let missing = run(&["lfs", "path2fid", &text(&up.at("nowhere"))]);
    assert!(
        !missing.status.success()
            && String::from_utf8_lossy(&missing.stderr).contains("No such file")
    );
    let outside = run(&["lfs", "getstripe", "/etc/passwd"]);
    assert!(!outside.status.success(), "/etc/passwd has no stripes");
    let existing = run(&["lfs", "setstripe", "-c", "2", &file]);
    assert!(!existing.status.success(), "a file with data keeps its layout");
    up.stop();
}

#[test]
fn lctl_reads_sets_lists_and_refuses() {
    let mut up = Up::new("lctl");
    fs::write(up.at("f"), "x").expect("written");
    let name = "ost.OSS.ost_io.nrs_policies";
    assert!(stdout(&["lctl", "get_param", name]).contains(&format!("{name}=")));
    assert!(!stdout(&["lctl", "get_param", "-n", name]).contains(name));
    assert!(stdout(&["lctl", "list_param", "ost.OSS.*"]).contains("ost.OSS.ost_io"));
    assert_eq!(stdout(&["lctl", "get_param", "-N", "mdt.*"]), "mdt.testfs-MDT0000\n");
    assert!(stdout(&["lctl", "dl"]).contains("testfs-MDT0000"));
    let nid = up.address();
    let nid = nid.split(":/").next().expect("a NID");
    assert!(run(&["lctl", "ping", nid]).status.success());
    let address = nid.strip_suffix("@tcp").expect("the only net");
    assert!(stdout(&["lctl", "ping", address]).contains(&format!("12345-{nid}\n")));
    for (words, wanted) in [
        (["get_param", "no.such.name"], "No such file or directory"),
        (["set_param", "version=1"], "read-only"),
        (["ping", "127.0.0.99@tcp"], "127.0.0.99@tcp"),
    ] {
        let output = run(&["lctl", words[0], words[1]]);
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(!output.status.success() && stderr.contains(wanted), "{words:?}: {stderr}");
    }
    up.stop();
}

#[test]
fn tools_answer_for_the_daemons_that_live_and_name_the_one_that_does_not() {
    let mut up = Up::new("answer");
    let ost = up.server("OST0001");
    let set = run(&["lctl", "set_param", "--of", "testfs-OST0001", "at_max=500"]);
    assert!(set.status.success(), "{}", String::from_utf8_lossy(&set.stderr));
    let told = stdout(&["lctl", "get_param", "at_max"]);
    assert!(told.contains("testfs-OST0001: at_max=500\n"), "{told}");
    assert!(told.contains("MGS,testfs-MDT0000,testfs-OST0000"), "{told}");
    kill(ost, libc::SIGSTOP);
    let start = Instant::now();
    let output = Command::new(nacre_bin())
        .args(["lctl", "get_param", "at_max"])
        .env("NACRE_ANSWER_WAIT", "2")
        .output()
        .expect("nacre starts");
    let took = start.elapsed();
    kill(ost, libc::SIGCONT);
    let told = String::from_utf8_lossy(&output.stdout);
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(told.contains("at_max=600") && !told.contains("500"), "{told}");
    assert!(said.contains(&format!("testfs-OST0001 (process {ost})")), "{said}");
    assert_eq!(output.status.code(), Some(libc::ETIMEDOUT));
    assert!(took < Duration::from_secs(20), "{took:?}");
    up.stop();
}

#[test]
fn the_native_example_works_without_a_mount() {
    let mut up = Up::new("native");
    fs::write(up.at("beside"), "1234").expect("written");
    let hello = nacre_bin().with_file_name("examples").join("hello");
    assert!(hello.exists(), "{}: cargo build --profile ci -p client --examples", hello.display());
    let output = Command::new(hello).arg(up.address()).output().expect("it starts");
    let printed = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    assert!(
        printed.starts_with("hello, world\n")
            && printed.contains("hello.txt")
            && printed.contains("beside"),
        "{printed}"
    );
    assert!(!up.at("hello.txt").exists(), "the example removes its file");
    up.stop();
}

#[test]
fn refusals_say_things_once_and_wrong_usage_is_2() {
    let mut up = Up::new("refusals");
    let scratch = mounted::Scratch::new("refusals-work");
    let dir = text(&scratch.path().join("mgs"));
    let lost = run(&["format", "--fsname", "other", "--ost", "--index", "0", &dir]);
    assert_eq!(lost.status.code(), Some(2), "it names no MGS");
    assert!(run(&["format", "--mgs", &dir]).status.success());
    let address = up.address();
    let taken = address.split(":/").next().expect("NID:/fsname");
    let served = run(&["serve", &dir, "--listen", taken]);
    let said = String::from_utf8_lossy(&served.stderr).into_owned();
    assert_eq!(said.matches("cannot listen").count(), 1, "{said}");

    let files = ["a", "b"].map(|name| text(&up.at(name)));
    let pool = run(&["lfs", "setstripe", "-p", "flash", &files[0]]);
    assert_eq!(pool.status.code(), Some(libc::EINVAL));
    files.iter().for_each(|file| fs::write(file, "x").expect("write"));
    let yaml = stdout(&["lfs", "getstripe", "-y", &files[0], &files[1]]);
    assert_eq!(yaml.matches("---\nlmm_path: ").count(), 2, "{yaml}");

    let inodes = stdout(&["lfs", "df", "-i", &text(up.mount())]);
    let summary =
        inodes.lines().find(|line| line.starts_with("filesystem_summary")).expect("a sum");
    let free: u64 = summary.split_whitespace().nth(3).and_then(|n| n.parse().ok()).expect("IFree");
    let told = rustix::fs::statvfs(up.mount()).expect("the servers live").f_ffree;
    // other programs use the disk meanwhile
    assert!(told.abs_diff(free) < free / 10, "df -i tells {told}, lfs df -i {free}");
    up.stop();
}
