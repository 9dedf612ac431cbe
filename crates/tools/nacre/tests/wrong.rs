//! Wrong command lines: each error names the thing, the reason and the way out. No file system
//! runs; those that need one are in `tests/mounted/tests/wrong.rs`.
//!
//! `NACRE_UPDATE=1 cargo test -p nacre` writes what is printed now; review the diff.

use std::path::Path;

use transcript::{Part, Shell, check_file, has_way_out, parse};

fn check(name: &str) -> usize {
    let dir = std::env::temp_dir().join(format!("nacre-wrong-{name}-{}", std::process::id()));
    std::fs::create_dir_all(&dir).expect("a directory");
    let shell = Shell::new(&dir, Path::new(env!("CARGO_BIN_EXE_nacre")))
        .env("NACRE_RUN", dir.join("run"))
        .mask("Temporary failure in name resolution", "Name or service not known")
        .without("nacre mount: no answer from "); // where the mount takes longer than 3 s
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong").join(name);
    let count = check_file(&path, &shell);
    std::fs::remove_dir_all(&dir).expect("removed");
    let text = std::fs::read_to_string(&path).expect("read");
    for part in parse(&text) {
        let Part::Step { command, ended } = part else { continue };
        assert!(ended.status != 0, "{command}: succeeds");
        assert!(!ended.output.contains("os error"), "{command}: a number of the system");
        assert!(has_way_out(&ended.output), "{command}: no way out:\n{}", ended.output);
    }
    count
}

#[test]
fn wrong_lines_of_nacre() {
    assert!(check("nacre.txt") >= 70);
}

#[test]
fn wrong_lines_of_lfs() {
    assert!(check("lfs.txt") >= 40);
}

#[test]
fn wrong_lines_of_lctl_and_lst() {
    assert!(check("lctl.txt") + check("lst.txt") >= 25);
}
