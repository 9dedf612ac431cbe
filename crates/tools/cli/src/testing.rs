//! Command lines for tests.

use std::ffi::OsString;

use clap::{Args, Command};

/// The arguments in `words`, of which the first is the command's name.
pub(crate) fn parse<A: Args>(
    words: impl IntoIterator<Item = impl Into<OsString> + Clone>,
) -> Result<A, clap::Error> {
    A::from_arg_matches(&A::augment_args(Command::new("test")).try_get_matches_from(words)?)
}
