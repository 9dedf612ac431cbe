//! The output of `lfs getstripe` for one path.

use std::path::PathBuf;

use layout::lov::composite::LovComposite;
use layout::lov::{Lov, LovAny};
use types::Fid;

use super::fields::Fallback;

/// One path's answer.
pub(super) struct Shown {
    pub(super) path: PathBuf,
    pub(super) is_dir: bool,
    pub(super) layout: Option<LovAny>,
    /// For what a directory's default leaves open.
    pub(super) fallback: Fallback,
    /// If somebody wants to know.
    pub(super) fid: Option<Fid>,
}

impl Shown {
    /// The striping that stands for all.
    pub(super) fn lov(&self) -> Option<&Lov> {
        self.layout.as_ref().and_then(LovAny::last)
    }

    /// Index of its MDT.
    pub(super) fn mdt(&self) -> u32 {
        self.fid.map_or(0, Fid::mdt_index)
    }

    /// The components, if there are some.
    pub(super) fn components(&self) -> Option<&LovComposite> {
        self.layout.as_ref().and_then(LovAny::components)
    }

    /// A striping of it, as a directory's default where it is one.
    pub(super) fn with(&self, lov: Lov) -> Shown {
        Shown {
            path: self.path.clone(),
            is_dir: self.is_dir,
            layout: Some(LovAny::Plain(lov)),
            fallback: self.fallback,
            fid: self.fid,
        }
    }
}
