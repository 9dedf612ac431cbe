//! Wrong inputs to a running file system: parameters, rules, layouts, pools, mounts. Each error
//! names the thing, the reason and the way out. Command lines that need no file system are in
//! `crates/tools/nacre/tests/wrong.rs`.
//!
//! `NACRE_UPDATE=1 cargo xtask mounted wrong` writes what is printed now; review the diff.

use std::fs;
use std::path::Path;

use mounted::{Scratch, Up, nacre_bin};
use transcript::{Part, Shell, check_file, has_way_out, parse};

/// Commands that prepare the next ones.
const PREPARES: &str = "set_param -n";

#[test]
fn each_refusal_names_the_thing_the_reason_and_the_way_out() {
    let mut up = Up::new("wrong");
    let scratch = Scratch::new("wrong-work");
    fs::write(up.at("file"), "bytes").expect("written");
    fs::create_dir(up.at("dir")).expect("a directory");
    let address = up.address();
    let mgs = address.split(":/").next().expect("NID:/FSNAME");
    let shown = |path: &Path| path.display().to_string();
    let net = mgs.rsplit_once('.').expect("an address").0.to_owned();
    let shell = Shell::new(scratch.path(), &nacre_bin())
        .env("M", up.mount())
        .env("D", up.data())
        .env("S", &address)
        .mask(&net, "NET")
        .mask(up.tool(&["lfs", "getname", "-i", &shown(up.mount())]).trim(), "INSTANCE")
        .mask(&format!("process {}", up.server("MGS")), "process PID")
        .mask(&shown(up.data()), "DATA")
        .mask(&shown(up.mount()), "MNT");
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/wrong/mounted.txt");
    assert!(check_file(&path, &shell) >= 45);
    let text = fs::read_to_string(&path).expect("read");
    for part in parse(&text) {
        let Part::Step { command, ended } = part else { continue };
        let prepares = command.contains(PREPARES);
        assert_eq!(ended.status == 0, prepares, "{command}: {ended}");
        assert!(prepares || has_way_out(&ended.output), "{command}: no way out: {ended}");
        assert!(!ended.output.contains("os error"), "{command}: a number of the system");
    }
    up.stop();
}
