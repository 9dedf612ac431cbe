//! An MDT's background tasks.

pub(crate) mod answered;
pub(crate) mod destroy;
pub(crate) mod fence;
pub(crate) mod mdts;
pub(crate) mod moves;
pub(crate) mod orphans;
pub(crate) mod ranges;
pub(crate) mod root;
pub(crate) mod spaces;
