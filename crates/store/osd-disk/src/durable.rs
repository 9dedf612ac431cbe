//! Names that a crash does not take back.

use std::fs::File;
use std::path::Path;

use crate::DiskError;

/// Makes the names in `dir` durable.
pub(crate) fn sync_dir(dir: &Path) -> Result<(), DiskError> {
    File::open(dir).and_then(|dir| dir.sync_all()).map_err(DiskError::io(dir, "cannot be synced"))
}
