//! Errors of opening a target's directory.

use std::path::{Path, PathBuf};

/// Why a target's storage cannot be opened; the text names the place.
#[derive(Debug, thiserror::Error)]
pub enum DiskError {
    /// A call of the operating system failed.
    #[error("{}: {what}: {error}", path.display())]
    Io {
        path: PathBuf,
        what: &'static str,
        /// Why it failed; part of the text, so not told again as a cause.
        error: std::io::Error,
    },
    /// There is no target here.
    #[error("{}: no target here: run `nacre format` first", .0.display())]
    NotFormatted(PathBuf),
    /// There is one already.
    #[error("{}: holds {name} already: formatting would destroy it (use --reformat to do so)", path.display())]
    Formatted { path: PathBuf, name: String },
    /// Somebody serves it.
    #[error("{}: this target is in use by another process; nacre status names it", .0.display())]
    InUse(PathBuf),
    /// The superblock cannot be read.
    #[error("{}: superblock: {why}", path.display())]
    Superblock {
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// The target has been served, and a part of it is gone.
    #[error(
        "{}: {name} has been served, but {} {} missing or empty. Is its disk mounted here? Mount it, or restore the part. \
         Only if it is lost for good: `nacre serve --reset-empty` starts without it",
        path.display(), listed(missing), if missing.len() == 1 { "is" } else { "are" }
    )]
    Lost { path: PathBuf, name: String, missing: Vec<PathBuf> },
    #[error("{}: record store: {why}", path.display())]
    Records { path: PathBuf, why: String },
}

impl DiskError {
    pub(crate) fn io(path: &Path, what: &'static str) -> impl FnOnce(std::io::Error) -> DiskError {
        let path = path.to_owned();
        move |error| DiskError::Io { path, what, error }
    }
}

fn listed(paths: &[PathBuf]) -> String {
    paths.iter().map(|path| path.display().to_string()).collect::<Vec<_>>().join(" and ")
}
