//! `cargo xtask asan`: AddressSanitizer over the unit tests of the crates that hold `unsafe` code.
//!
//! The sanitizer is a flag of unstable compilers; `RUSTC_BOOTSTRAP` makes the stable one accept it.
//! The standard library is not instrumented, so its own accesses are not checked. LMDB's C code is,
//! because its compiler gets the same flag.

use anyhow::Result;

use crate::run;

/// Crates whose `unsafe` code has tests beside it.
const CRATES: &[&str] = &["osd-disk", "fusedev", "env-os"];
const TARGET: &str = "x86_64-unknown-linux-gnu";
/// Of its own: nothing is compiled anew for the other builds.
const DIR: &str = "target/asan";

/// Runs the tests; a report of the sanitizer fails its test's program.
pub(crate) fn asan() -> Result<()> {
    let mut args = vec!["test", "--profile", "ci", "--target", TARGET, "--target-dir", DIR];
    args.extend(CRATES.iter().flat_map(|name| ["-p", *name]));
    args.push("--lib");
    let envs = [
        ("RUSTC_BOOTSTRAP", "1"),
        ("RUSTFLAGS", "-Zsanitizer=address -Cdebuginfo=line-tables-only"),
        ("CFLAGS_x86_64_unknown_linux_gnu", "-fsanitize=address -fno-omit-frame-pointer -g1"),
        ("ASAN_OPTIONS", "detect_leaks=1:abort_on_error=0:halt_on_error=1"),
    ];
    run::run("cargo", &args, &envs)
}
