//! The `lustre.lov` xattr of a path.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use layout::lov::{self, LovAny};
use types::Errno;

use crate::Failed;

/// Name of the xattr.
pub(crate) const XATTR: &str = "lustre.lov";

/// A text about it.
const WHY: &str = "lustre.lov.why";

/// What fills it where it leaves something open.
const DEFAULT: &str = "lustre.lov.default";

/// Largest value that the kernel hands out (XATTR_SIZE_MAX).
const VALUE_BYTES_MAX: usize = 65_536;

/// The layout of `path`, or the default of a directory, its own or the root's; nothing where there
/// is none.
pub(crate) fn of(path: &Path, command: &str) -> Result<Option<LovAny>, Failed> {
    let shown = path.display();
    let value = read(path).map_err(|error| match error.raw_os_error() {
        Some(errno) if errno == Errno::EOPNOTSUPP.raw() => Failed::new(
            errno,
            format!("{command}: '{shown}' is not in a Nacre file system: {}; nacre status lists the mounts", Errno::EOPNOTSUPP),
        ),
        _ => Failed::io(&error, command, &shown.to_string()),
    })?;
    let wrong = |error| Failed::new(Errno::EINVAL.raw(), format!("{command}: {shown}: {error}"));
    value.map(|value| lov::inspect_any(&value)).transpose().map_err(wrong)
}

/// Which defaults and pools decide where files go, as a text.
pub(crate) fn why(path: &Path) -> io::Result<String> {
    let text = get(path, WHY)?.unwrap_or_default();
    Ok(String::from_utf8_lossy(&text).into_owned())
}

/// The striping that fills what the default of the directory `path` leaves open; nothing where its
/// MDT does not say.
pub(crate) fn fallback(path: &Path) -> Option<lov::Lov> {
    let value = get(path, DEFAULT).ok().flatten()?;
    lov::inspect(&value).ok()
}

/// Whether the directory `path` has a default of its own.
pub(crate) fn has_own(path: &Path) -> io::Result<bool> {
    let mut names = vec![0; VALUE_BYTES_MAX];
    let len = rustix::fs::listxattr(c_path(path)?.as_c_str(), names.as_mut_slice())?;
    names.truncate(len);
    Ok(names.split(|byte| *byte == 0).any(|name| name == XATTR.as_bytes()))
}

/// The value of the xattr of `path`; nothing where there is no layout.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    get(path, XATTR)
}

/// The value of an xattr of `path`.
pub(crate) fn get(path: &Path, name: &str) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match rustix::fs::getxattr(c_path(path)?.as_c_str(), name, value.as_mut_slice()) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value).filter(|value| !value.is_empty()))
        }
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}
