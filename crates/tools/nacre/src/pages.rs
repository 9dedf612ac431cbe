//! Completions and manual pages, made from the declarations.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes completions for `command`, called `name`, to stdout.
pub(crate) fn completion(
    shell: clap_complete::Shell,
    command: &mut clap::Command,
    name: &str,
) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, name, &mut text);
    std::io::stdout().write_all(&text).context("stdout")
}

/// Writes a page for each of `commands` and for each of their subcommands into `dir`.
pub(crate) fn man(dir: &Path, commands: Vec<clap::Command>) -> Result<()> {
    let shown = || dir.display().to_string();
    fs::create_dir_all(dir).with_context(shown)?;
    for command in commands {
        clap_mangen::generate_to(command.version(env!("CARGO_PKG_VERSION")), dir)
            .with_context(shown)?;
    }
    Ok(())
}
