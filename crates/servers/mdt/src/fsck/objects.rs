//! The objects of an OST, as a check sees them.

use std::collections::BTreeMap;

use types::Fid;

/// An object, or a record of one.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Object {
    /// The file for which it was made, zero if its record does not say so.
    pub file: Fid,
    /// Number of the store of the file's MDT, zero if its record does not say so.
    pub store: u64,
    /// The lowest generation of a layout that may use it.
    pub layout_version: u32,
    /// False: there is a record and no object.
    pub is_there: bool,
    /// None: unknown, because the OST was not asked for it.
    pub bytes: Option<u64>,
}

/// All objects of an OST or of an MDT's data target.
#[derive(Clone, Debug, Default)]
pub struct OstImage {
    /// Index, as layouts name it.
    pub index: u32,
    pub objects: BTreeMap<Fid, Object>,
}
