//! The parameter tree of a node, and the shell patterns that select from it.
//!
//! A name is a dotted path (`ost.OSS.ost_io.threads_max`), spelled as Lustre spells it. A leaf of
//! [`ParamTree`] has a reader and, if it can be changed, a writer. A [`Pattern`] has one shell glob
//! for each part of the path; [`glob`] is one such glob over bytes.
//!
//! Pure: the tree uses no socket and no file.

pub mod glob;
mod pattern;
mod shown;
mod tree;

pub use pattern::{Pattern, PatternError};
pub use shown::{Fields, Lines, Verdict};
pub use tree::{
    PARAM_VALUE_BYTES_MAX, PARAMS_MAX, Param, ParamError, ParamName, ParamRefusal, ParamTree,
    parse_within,
};
