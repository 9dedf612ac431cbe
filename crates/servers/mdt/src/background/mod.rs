//! What an MDT does by itself.

pub(crate) mod commit;
pub(crate) mod destroy;
