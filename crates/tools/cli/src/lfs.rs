//! `lfs`: layouts, space, identifiers, as any user on a client.

mod df;
mod getstripe;
mod ids;
mod setstripe;
mod targets;

use std::path::PathBuf;

use clap::{Parser, Subcommand};

use crate::Failed;

/// Lustre's user tool, for a mounted Nacre file system.
#[derive(Debug, Parser)]
#[command(
    name = "lfs",
    version,
    infer_long_args = true,
    arg_required_else_help = true,
    after_help = "Exit status: 0, or the first error's number; 2 for wrong usage.\n\nExamples:\n  lfs setstripe -c 4 -S 1m DIR    new files in DIR go over four OSTs\n  lfs getstripe FILE              where the bytes of FILE are\n  lfs df -h /mnt/nacre            space of each target"
)]
pub struct Args {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Create a file with a layout, or set a directory's default.
    Setstripe(setstripe::Args),
    /// Show layouts.
    Getstripe(getstripe::Args),
    /// Show space or inodes of each target.
    Df(df::Args),
    /// Show FIDs of paths.
    #[command(name = "path2fid")]
    Path2fid(ids::Path2fid),
    /// Show paths of FIDs.
    #[command(name = "fid2path")]
    Fid2path(ids::Fid2path),
    /// List the OSTs of a file system.
    Osts {
        /// Any path in the file system; the first mount without it.
        path: Option<PathBuf>,
    },
    /// List the MDTs of a file system.
    Mdts {
        /// Any path in the file system; the first mount without it.
        path: Option<PathBuf>,
    },
}

/// Does what the arguments say.
pub fn run(args: Args) -> Result<(), Failed> {
    match args.command {
        Command::Setstripe(args) => setstripe::run(&args),
        Command::Getstripe(args) => getstripe::run(&args),
        Command::Df(args) => df::run(&args),
        Command::Path2fid(args) => ids::path2fid(&args),
        Command::Fid2path(args) => ids::fid2path(&args),
        Command::Osts { path } => targets::run(targets::Kind::Osts, path.as_deref()),
        Command::Mdts { path } => targets::run(targets::Kind::Mdts, path.as_deref()),
    }
}
