//! Objects.
use std::path::Path;
use std::rc::Rc;
use crate::DiskError;

/// How to open.
#[derive(Clone, Debug)]
pub struct ObjOptions {
    /// Threads for blocking calls.
    pub threads: usize,
    /// Descriptors held open at most (`object_fds_max`).
    pub fds_max: usize,
}

impl Default for ObjOptions {
    fn default() -> ObjOptions {
        ObjOptions { threads: 16, fds_max: 4_096 }
    }
}

/// Objects as files.
pub struct DiskObjects;

impl DiskObjects {
    /// Opens (makes) the objects in `dir`, a target's directory.
    pub fn open(_dir: &Path, _options: &ObjOptions) -> Result<Rc<DiskObjects>, DiskError> { unimplemented!() }
}
