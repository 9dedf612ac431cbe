//! Completions and manual pages, made from the declarations.

use std::fs;
use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result};

/// Writes completions to stdout.
pub(crate) fn completion(shell: clap_complete::Shell, command: &mut clap::Command) -> Result<()> {
    let mut text = Vec::new();
    clap_complete::generate(shell, command, "nacre", &mut text);
    std::io::stdout().write_all(&text).context("stdout")
}

/// Writes a page for `nacre` and for each subcommand into `dir`.
pub(crate) fn man(dir: &Path, command: clap::Command) -> Result<()> {
    fs::create_dir_all(dir).with_context(|| dir.display().to_string())?;
    clap_mangen::generate_to(command.version(env!("CARGO_PKG_VERSION")), dir).with_context(|| dir.display().to_string())
}
