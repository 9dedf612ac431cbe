//! `lfs find`, `lfs getname`, `lfs check`, and the output that scripts parse from these and the
//! other commands.

use std::fs;
use std::os::unix::fs::{PermissionsExt, chown, symlink};
use std::path::Path;
use std::process::{Command, Output};

use mounted::{Up, kill, nacre_bin};

fn nacre(dir: &Path, words: &[&str]) -> Output {
    Command::new(nacre_bin()).args(words).current_dir(dir).output().expect("nacre starts")
}

fn good(dir: &Path, words: &[&str]) -> String {
    let output = nacre(dir, words);
    assert!(output.status.success(), "{words:?}: {}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).expect("text")
}

/// What a line of predicates finds below `.`, sorted, without `./`.
fn found(dir: &Path, predicates: &str) -> Vec<String> {
    let words: Vec<&str> =
        ["lfs", "find", "."].into_iter().chain(predicates.split_whitespace()).collect();
    let mut names: Vec<String> =
        good(dir, &words).lines().map(|line| line.trim_start_matches("./").to_owned()).collect();
    names.sort();
    names
}

fn tree(up: &Up) {
    let dir = up.mount();
    fs::create_dir_all(up.at("sub/deep")).expect("directories");
    good(dir, &["lfs", "setstripe", "-o", "0,2", "-S", "128K", "two.dat"]);
    good(dir, &["lfs", "setstripe", "-o", "3", "sub/one.dat"]);
    good(dir, &["lfs", "setstripe", "-c", "3", "sub/deep"]);
    fs::write(up.at("two.dat"), vec![1; 2 << 20]).expect("written");
    fs::write(up.at("sub/deep/wide"), vec![1; 100]).expect("written");
    symlink("two.dat", up.at("link")).expect("a link");
    chown(up.at("sub/one.dat"), Some(4321), Some(5432)).expect("owned");
    fs::set_permissions(up.at("two.dat"), fs::Permissions::from_mode(0o600)).expect("mode");
    fs::set_permissions(up.at("sub/one.dat"), fs::Permissions::from_mode(0o644)).expect("mode");
    for (when, name) in [
        ("10 days ago", "sub/one.dat"),
        ("2 minutes ago", "sub/deep/wide"),
        ("1 minute ago", "two.dat"),
    ] {
        let touched = Command::new("touch").args(["-d", when, name]).current_dir(dir).status();
        assert!(touched.expect("touch starts").success());
    }
}

#[test]
fn files_are_found_by_name_attributes_and_layout() {
    let mut up = Up::new("find");
    tree(&up);
    let dir = up.mount().to_owned();
    let check = |predicates: &str, names: &[&str]| {
        assert_eq!(found(&dir, predicates), names, "{predicates}")
    };
    check("", &[".", "link", "sub", "sub/deep", "sub/deep/wide", "sub/one.dat", "two.dat"]);
    check("-name *.dat", &["sub/one.dat", "two.dat"]);
    check("-type d", &[".", "sub", "sub/deep"]);
    check("-type l", &["link"]);
    check("! -type d ! -name *.dat", &["link", "sub/deep/wide"]);
    check("-type f -size +1M", &["two.dat"]);
    check("-type f -size 2M", &["two.dat"]);
    check("-type f -size -1k", &["sub/one.dat"]);
    check("-type f -mtime +9", &["sub/one.dat"]);
    check("-type f -mtime -1", &["sub/deep/wide", "two.dat"]);
    check("-type f -ctime -1h -atime -1", &["sub/deep/wide", "two.dat"]);
    check("-uid 4321", &["sub/one.dat"]);
    check("-gid 5432 -user 4321", &["sub/one.dat"]);
    check("-type f -user root -group root", &["sub/deep/wide", "two.dat"]);
    check("-maxdepth 1 -name *.dat", &["two.dat"]);
    check("-mindepth 2 -type f", &["sub/deep/wide", "sub/one.dat"]);
    check("-type f -stripe-count 2", &["two.dat"]);
    check("-c +1", &["sub/deep", "sub/deep/wide", "two.dat"]);
    check("-type f --stripe-size 128K", &["two.dat"]);
    check("--ost 2 -name *.dat", &["two.dat"]);
    check("-O testfs-OST0003_UUID -name *.dat", &["sub/one.dat"]);
    check("-i 3 -type f -name *.dat", &["sub/one.dat"]);
    check("-mdt 0 -type l", &["link"]);
    check("-mdt 1", &[]);
    check("-empty", &["sub/one.dat"]);
    check("-type d ! -empty", &[".", "sub", "sub/deep"]);
    check("-perm 600", &["two.dat"]);
    check("-type f -perm -g+r", &["sub/deep/wide", "sub/one.dat"]);
    check("-type f ! -perm /044", &["two.dat"]);
    check("-type f -newer sub/one.dat", &["sub/deep/wide", "two.dat"]);
    check("-type f -newer sub/deep/wide", &["two.dat"]);
    check("-type f -anewer two.dat", &[]);
    check("-name one.dat -cnewer sub/one.dat", &["sub/one.dat"]);
    check("-L raid0 -type f", &["sub/deep/wide", "sub/one.dat", "two.dat"]);

    assert_eq!(
        good(&dir, &["lfs", "find", "two.dat", "sub", "-name", "*.dat", "-print0"]),
        "two.dat\0sub/one.dat\0"
    );
    let json: serde_json::Value =
        serde_json::from_str(&good(&dir, &["lfs", "find", ".", "-uid", "4321", "--json"]))
            .expect("JSON");
    assert_eq!((&json[0]["path"], &json[0]["uid"]), (&"./sub/one.dat".into(), &4321.into()));
    let missing = nacre(&dir, &["lfs", "find", "nowhere", "two.dat"]);
    assert_eq!(missing.status.code(), Some(2), "the first error's number");
    assert_eq!(missing.stdout, b"two.dat\n", "and the others all the same");
    up.stop();
}

#[test]
fn a_mount_tells_its_name_and_who_answers() {
    let mut up = Up::new("check");
    let dir = up.mount().to_owned();
    let (name, instance) =
        (good(&dir, &["lfs", "getname", "."]), good(&dir, &["lfs", "getname", "-i", "."]));
    assert_eq!(name, format!("testfs-{} {}\n", instance.trim(), dir.display()));
    assert_eq!(good(&dir, &["lfs", "getname", "-n", "."]), "testfs\n");
    assert_eq!(good(&dir, &["lfs", "getname", "-u", "."]), instance, "as servers show it");
    assert!(good(&dir, &["lctl", "get_param", "-n", "mdt.*.exports"]).contains(instance.trim()));
    assert!(good(&dir, &["lctl", "get_param", "-N", "llite.*.fstype"]).contains(instance.trim()));
    let all = good(&dir, &["lfs", "check", "all", "."]);
    for line in ["testfs-MDT0000 active.", "testfs-OST0003 active.", "MGC127."] {
        assert!(all.contains(line), "'{line}' is not in {all}");
    }
    assert_eq!(good(&dir, &["lfs", "check", "osts", "."]).lines().count(), 4);
    assert_eq!(good(&dir, &["lfs", "check", "mdts", "."]), "testfs-MDT0000 active.\n");

    let mgs = up.server("MGS");
    kill(mgs, libc::SIGSTOP);
    let silent = nacre(&dir, &["lfs", "check", "mgts", "."]);
    kill(mgs, libc::SIGCONT);
    let stderr = String::from_utf8_lossy(&silent.stderr);
    assert!(!silent.status.success() && stderr.contains("error: check 'MGC127."), "{stderr}");
    up.stop();
}

#[test]
fn scripts_read_json_and_yaml_of_one_content() {
    let mut up = Up::new("forms");
    let dir = up.mount().to_owned();
    fs::write(up.at("f"), "x").expect("written");
    let fid = good(&dir, &["lfs", "path2fid", "f"]);
    for words in [
        &["lfs", "df", "."][..],
        &["lfs", "osts", "."],
        &["lfs", "mdts", "."],
        &["lfs", "check", "all", "."],
        &["lfs", "getname", "."],
        &["lfs", "find", ".", "-name", "f"],
        &["lfs", "path2fid", "f"],
        &["lfs", "fid2path", ".", fid.trim()],
        &["lfs", "getstripe", "f"],
        &["lctl", "dl"],
        &["lctl", "get_param", "version"],
        &["lctl", "list_param", "lod.*.*"],
    ] {
        let json = good(&dir, &[words, &["--json"]].concat());
        let value: serde_json::Value = serde_json::from_str(&json)
            .unwrap_or_else(|error| panic!("{words:?}: {error}: {json}"));
        assert!(!value.as_array().is_some_and(Vec::is_empty), "{words:?} says nothing");
        let yaml = good(&dir, &[words, &["-y"]].concat());
        assert!(!yaml.is_empty() && !yaml.starts_with(['{', '[']), "{words:?}: {yaml}");
    }
    assert_eq!(
        good(&dir, &["lctl", "get_param", "-y", "version"]),
        format!("version: \"{}\"\n", env!("CARGO_PKG_VERSION"))
    );
    let paths: serde_json::Value =
        serde_json::from_str(&good(&dir, &["lfs", "fid2path", "--json", ".", fid.trim()]))
            .expect("JSON");
    assert_eq!(paths[0]["fid"], fid.trim());
    up.stop();
}
