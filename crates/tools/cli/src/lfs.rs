//! `lfs`: layouts, space, identifiers, for any user on a client.

mod check;
mod df;
mod find;
mod getdirstripe;
mod getname;
mod getsom;
mod getstripe;
mod ids;
mod migrate;
mod pool;
mod setdirstripe;
mod setstripe;
mod targets;

use std::ffi::OsString;

use clap::{Parser, Subcommand};

use crate::Failed;

/// Lustre's user tool, for a mounted Nacre file system.
#[derive(Debug, Parser)]
#[command(
    name = "lfs",
    display_name = "lfs",
    version,
    infer_long_args = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0, or the first error's number; 2 for wrong usage.\n\nExamples:\n  lfs setstripe -c 4 -S 1m DIR    new files in DIR go over four OSTs\n  lfs getstripe FILE              where the bytes of FILE are\n  lfs mkdir -i 2 DIR              a directory on another MDT\n  lfs df -h /mnt/nacre            space of each target"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a file with a layout, or set a directory's default.
    Setstripe(setstripe::Args),
    /// Move bytes of files to other objects, or names to other MDTs, while others use them.
    Migrate(migrate::Args),
    /// Show layouts.
    Getstripe(getstripe::Args),
    /// Make directories on chosen MDTs, or set where new ones go.
    Mkdir(setdirstripe::Args),
    /// The same as mkdir, by its other name.
    Setdirstripe(setdirstripe::Args),
    /// Show on which MDTs directories are.
    Getdirstripe(getdirstripe::Args),
    /// Show space or inodes of each target.
    #[command(
        after_help = "Letters behind a target are its states: D degraded, R read-only, S no space, I no inodes,\nN no_create: an OST gets no new files, an MDT no new directories.\n\nExamples:\n  lfs df -h                    each target of all mounts\n  lfs df -i /mnt/nacre         objects in place of bytes\n  lfs df -p flash /mnt/nacre"
    )]
    Df(df::Args),
    /// Show FIDs of paths.
    #[command(name = "path2fid", after_help = "Example:\n  lfs path2fid /mnt/nacre/file")]
    Path2fid(ids::Path2fid),
    /// Show paths of FIDs.
    #[command(
        name = "fid2path",
        after_help = "Examples:\n  lfs fid2path testfs '[0x200010400:0x2:0x0]'\n  lfs fid2path /mnt/nacre '[0x200010400:0x2:0x0]'"
    )]
    Fid2path(ids::Fid2path),
    /// List the OSTs of a file system.
    #[command(after_help = "Example:\n  lfs osts /mnt/nacre")]
    Osts(targets::Args),
    /// List the MDTs of a file system.
    #[command(after_help = "Example:\n  lfs mdts /mnt/nacre")]
    Mdts(targets::Args),
    /// List pools of OSTs, or the OSTs of one.
    #[command(name = "pool_list")]
    PoolList(pool::Args),
    /// Find files by name, attributes and layout.
    Find(find::Args),
    /// Show which client of which file system a mount is.
    #[command(after_help = "Example:\n  lfs getname /mnt/nacre")]
    Getname(getname::Args),
    /// Print what the MDT knows of the size of files.
    #[command(after_help = "Example:\n  lfs getsom /mnt/nacre/file")]
    Getsom(getsom::Args),
    /// Ask servers whether they answer.
    Check(check::Args),
}

/// Does what the arguments say.
pub fn run(args: Args) -> Result<(), Failed> {
    match args.command {
        Command::Setstripe(args) => setstripe::run(&args),
        Command::Migrate(args) => migrate::run(&args),
        Command::Getstripe(args) => getstripe::run(&args),
        Command::Mkdir(args) => setdirstripe::run(&args, "lfs mkdir"),
        Command::Setdirstripe(args) => setdirstripe::run(&args, "lfs setdirstripe"),
        Command::Getdirstripe(args) => getdirstripe::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Path2fid(args) => ids::path2fid(&args),
        Command::Fid2path(args) => ids::fid2path(&args),
        Command::Osts(args) => targets::run(targets::Kind::Osts, &args),
        Command::Mdts(args) => targets::run(targets::Kind::Mdts, &args),
        Command::PoolList(args) => pool::list(&args),
        Command::Find(args) => find::run(&args),
        Command::Getname(args) => getname::run(&args),
        Command::Getsom(args) => getsom::run(&args),
        Command::Check(args) => check::run(&args),
    }
}

/// A command line of `lfs`, from the subcommand on, as clap takes it: options of `find` and
/// `getstripe` have a spelling of their own.
#[must_use]
pub fn spelled(words: &[OsString]) -> Vec<OsString> {
    let Some((command, rest)) = words.split_first() else { return Vec::new() };
    let rest = match command.to_str() {
        Some("find") => find::spelled(rest),
        Some("getstripe") => getstripe::spelled(rest),
        _ => rest.to_vec(),
    };
    [vec![command.clone()], rest].concat()
}
