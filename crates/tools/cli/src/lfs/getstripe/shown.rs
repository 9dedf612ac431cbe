//! What `lfs getstripe` shows of one path.

use std::path::PathBuf;

use layout::lov::Lov;

/// One path's answer.
pub(super) struct Shown {
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    pub(super) lov: Option<Lov>,
    pub(super) fid: Option<String>,
}
