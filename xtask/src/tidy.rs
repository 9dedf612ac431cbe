//! Rules that no compiler and no lint checks: the arrows, and one file here per rule.

mod asserts;
mod bounds;
mod cells;
mod circles;
mod columns;
mod commands;
mod commits;
mod dependencies;
mod doctests;
mod documents;
mod functions;
mod imperative;
mod links;
mod monitoring;
mod openings;
mod parameters;
mod paths;
mod prose;
mod references;
mod sentences;
mod sizes;
mod targets;
mod tree;
mod words;

use anyhow::{Result, bail};

use crate::arrows;
use tree::Tree;

/// A rule: looks at the tree and adds a line for each place that breaks it.
type Rule = fn(&Tree, &mut Vec<String>) -> Result<()>;

const RULES: &[Rule] = &[
    commands::look,
    commits::look,
    doctests::look,
    imperative::look,
    documents::look,
    openings::look,
    sizes::look,
    functions::look,
    circles::look,
    asserts::look,
    bounds::look,
    words::look,
    prose::look,
    sentences::look,
    references::look,
    columns::look,
    cells::look,
    links::look,
    paths::look,
    parameters::look,
    dependencies::look,
    monitoring::look,
    targets::look,
];

/// `cargo xtask tidy`.
pub(crate) fn tidy() -> Result<()> {
    arrows::check()?;
    let tree = Tree::read()?;
    let mut wrong = Vec::new();
    for rule in RULES {
        rule(&tree, &mut wrong)?;
    }
    if wrong.is_empty() { Ok(()) } else { bail!("not tidy:\n  {}", wrong.join("\n  ")) }
}
