//! The xattrs that say on which MDTs a directory is: `lustre.lmv` has the shards of a striped one,
//! `lustre.dmv` the default for new subdirectories.

use std::path::Path;

use layout::dir::{Asked, DirError, Stripes};
use types::Errno;

use crate::{Failed, lov};

/// Shards of a striped directory; a plain one has none.
pub(crate) const STRIPES: &str = "lustre.lmv";

/// Set only: has the names of a directory move to the MDTs that are named.
pub(crate) const MIGRATE: &str = "lustre.lmv.migrate";

/// Set only: moves an inode to the MDT that is named, under another FID.
pub(crate) const INODE_MIGRATE: &str = "lustre.inode.migrate";

/// How many names of a directory have moved to other shards, and how many are left.
const MOVES: &str = "lustre.lmv.moves";

/// Default of a directory for new subdirectories.
pub(crate) const DEFAULT: &str = "lustre.dmv";

/// The shards of the directory at `path`; none of a plain one.
pub(crate) fn stripes(path: &Path, command: &str) -> Result<Option<Stripes>, Failed> {
    read(path, STRIPES, Stripes::decode, command)
}

/// The default for new directories in the one at `path`.
pub(crate) fn default(path: &Path, command: &str) -> Result<Option<Asked>, Failed> {
    read(path, DEFAULT, Asked::decode, command)
}

/// Names of the directory at `path` that have moved, and names that are left, while they move.
pub(crate) fn moves(path: &Path) -> Option<(u64, u64)> {
    let value = lov::get(path, MOVES).ok()??;
    let text = std::str::from_utf8(&value).ok()?;
    let (moved, left) = text.split_once(' ')?;
    Some((moved.parse().ok()?, left.parse().ok()?))
}

fn read<T>(
    path: &Path,
    name: &str,
    decode: impl Fn(&[u8]) -> Result<T, DirError>,
    command: &str,
) -> Result<Option<T>, Failed> {
    let shown = path.display().to_string();
    let value = match lov::get(path, name) {
        // a link or a device: it has no such attribute
        Err(error) if Failed::number(&error) == Errno::EOPNOTSUPP => None,
        value => value.map_err(|error| Failed::io(&error, command, &shown))?,
    };
    let wrong =
        |error: DirError| Failed::new(error.errno().raw(), format!("{command}: {shown}: {error}"));
    value.map(|value| decode(&value)).transpose().map_err(wrong)
}
