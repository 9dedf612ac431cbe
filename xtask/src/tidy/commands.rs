//! `.ci/run` is the README's two commands.

use anyhow::Result;

use super::tree::Tree;
use crate::readme;

pub(super) fn look(_tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    readme::check(wrong)
}
