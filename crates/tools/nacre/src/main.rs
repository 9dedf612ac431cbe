//! The one binary: every tool of Nacre, by subcommand or by the name of the executable.
//!
//! Links to it named `lfs`, `lctl`, `lst`, `mkfs.nacre`, `mount.nacre` and `umount.nacre` are those
//! tools; `nacre lfs …` works too.

mod allocator;
mod args;
mod pages;
mod usage;

use std::ffi::{OsStr, OsString};
use std::path::Path;
use std::process::ExitCode;

/// Messages, records and tasks are allocated and freed by the ten thousand a second (decision
/// 0004).
#[global_allocator]
static ALLOCATOR: allocator::Mimalloc = allocator::Mimalloc;

fn main() -> ExitCode {
    daemons::panics::end_the_process();
    let typed = by_name(std::env::args_os().collect());
    match usage::parse::<args::Nacre>(args::declared(), &spelled(typed.clone()), &typed) {
        Ok(nacre) => nacre.run(),
        Err(refusal) => {
            ctl::say!("{refusal}");
            let is_fsck = typed.get(1).is_some_and(|word| word == "fsck");
            ExitCode::from(if is_fsck { daemons::fsck::WRONG_USAGE } else { args::WRONG_USAGE })
        }
    }
}

/// The command line as if it had been given to `nacre`: a link's name becomes the subcommand.
fn by_name(mut args: Vec<OsString>) -> Vec<OsString> {
    let called =
        args.first().map(|path| Path::new(path).file_name().unwrap_or_default().to_os_string());
    let subcommand = match called.as_deref().and_then(|name| name.to_str()) {
        Some("lfs") => "lfs",
        Some("lctl") => "lctl",
        Some("lst") => "lst",
        Some("mkfs.nacre") => "format",
        Some("mount.nacre" | "mount.fuse.nacre") => "mount",
        Some("umount.nacre" | "umount.fuse.nacre") => "umount",
        _ => return args,
    };
    let mut all = vec!["nacre".into(), subcommand.into()];
    let is_helper = |name: &str| {
        called.as_deref().is_some_and(|called| called.to_string_lossy().starts_with(name))
    };
    let as_helper: fn(&OsStr) -> Option<OsString> = match subcommand {
        "mount" if is_helper("mount.") => mount_helper,
        "umount" if is_helper("umount.") => umount_helper,
        _ => |arg| Some(arg.to_owned()),
    };
    all.extend(args.drain(..).skip(1).filter_map(|arg| as_helper(&arg)));
    all
}

/// What mount(8) hands to its helper: `-f` mounts nothing there, and how much it says, whether it
/// keeps a table and how it takes unknown options is its own.
fn mount_helper(arg: &OsStr) -> Option<OsString> {
    match arg.to_str() {
        Some("-f") => Some("--fake".into()),
        Some("-v" | "-n" | "-s") => None,
        _ => Some(arg.to_owned()),
    }
}

/// What umount(8) hands to its helper.
fn umount_helper(arg: &OsStr) -> Option<OsString> {
    match arg.to_str() {
        Some("-v" | "-n" | "-r") => None,
        _ => Some(arg.to_owned()),
    }
}

/// `lfs find` is written as find(1) has it: with one dash, and `!`.
fn spelled(args: Vec<OsString>) -> Vec<OsString> {
    match args.get(1) {
        Some(tool) if tool == "lfs" => [&args[..2], &cli::lfs::spelled(&args[2..])].concat(),
        _ => args,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(line: &str) -> String {
        let args = spelled(by_name(line.split_whitespace().map(OsString::from).collect()));
        args.iter().skip(1).map(|arg| arg.to_string_lossy()).collect::<Vec<_>>().join(" ")
    }

    #[test]
    fn a_link_is_the_tool_of_its_name() {
        assert_eq!(check("/usr/bin/lfs df -h"), "lfs df -h");
        assert_eq!(check("/usr/sbin/lst add_group g 10.0.0.1@tcp"), "lst add_group g 10.0.0.1@tcp");
        assert_eq!(check("mkfs.nacre --mgs d"), "format --mgs d");
        assert_eq!(check("/sbin/mount.nacre a:/b c -o ro"), "mount a:/b c -o ro");
        assert_eq!(
            check("/sbin/mount.nacre a:/b c -s -f -n -v -o ro"),
            "mount a:/b c --fake -o ro"
        );
        assert_eq!(check("nacre mount -f a:/b c"), "mount -f a:/b c");
        assert_eq!(check("/sbin/umount.nacre c -n -l -v"), "umount c -l");
        assert_eq!(check("/sbin/umount.fuse.nacre c -f -r"), "umount c -f");
        assert_eq!(check("./nacre up"), "up");
        assert_eq!(check("lfs find . ! -name -x"), "lfs find . --not --name -x");
        assert_eq!(check("nacre lfs getstripe -r ."), "lfs getstripe -r .");
    }
}
