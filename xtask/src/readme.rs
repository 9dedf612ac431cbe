//! The README's promises to a newcomer: packages to install, and two commands.

use std::fs;

use anyhow::{Context, Result, bail};

use crate::run;

/// The commands of the README's first block, without their comments.
pub(crate) fn commands() -> Result<Vec<String>> {
    let text = fs::read_to_string(run::root().join("README.md"))?;
    let section = text.split("## Two commands").nth(1).context("the README has two commands")?;
    let block = section.split("```").nth(1).context("they are in a block")?;
    let lines = block.lines().map(|line| line.split("  #").next().unwrap_or_default().trim());
    let commands: Vec<_> = lines.filter(|line| !line.is_empty()).map(str::to_owned).collect();
    if commands.len() == 2 { Ok(commands) } else { bail!("the README has two commands") }
}

/// What the README wants installed before them.
pub(crate) fn packages() -> Result<String> {
    let text = fs::read_to_string(run::root().join("README.md"))?.replace('\n', " ");
    let packages = text.split("`apt-get install ").nth(1).and_then(|rest| rest.split('`').next());
    packages.map(str::to_owned).context("the README names packages: `apt-get install ...`")
}

/// `.ci/run` is the two commands and nothing else.
pub(crate) fn check(wrong: &mut Vec<String>) -> Result<()> {
    let script = fs::read_to_string(run::root().join(".ci/run"))?;
    let around = ["set -euo pipefail", "cd \"$(dirname \"$0\")/..\""];
    let lines: Vec<&str> = script
        .lines()
        .map(str::trim)
        .filter(|line| !line.is_empty() && !line.starts_with('#') && !around.contains(line))
        .collect();
    if lines != commands()? {
        wrong.push(format!(".ci/run: not the README's two commands, but {lines:?}"));
    }
    Ok(())
}
