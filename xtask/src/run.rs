//! Runs other programs. The command is shown, its output passes through, and its failure is an
//! error.

use std::process::Command;

use anyhow::{Context, Result, bail};

/// Runs `program` with `args` and `envs` in the workspace root.
pub(crate) fn run(program: &str, args: &[&str], envs: &[(&str, &str)]) -> Result<()> {
    eprintln!("+ {program} {}", args.join(" "));
    let mut command = Command::new(program);
    command.args(args).current_dir(root()).envs(envs.iter().copied());
    let status = command.status().with_context(|| format!("{program} did not start"))?;
    if status.success() {
        Ok(())
    } else {
        bail!("{program} {} ended with {status}", args.join(" "))
    }
}

/// Runs `program` and returns what it printed.
pub(crate) fn output(program: &str, args: &[&str]) -> Result<String> {
    let output = Command::new(program)
        .args(args)
        .current_dir(root())
        .output()
        .with_context(|| format!("{program} did not start"))?;
    if !output.status.success() {
        bail!(
            "{program} {} ended with {}: {}",
            args.join(" "),
            output.status,
            String::from_utf8_lossy(&output.stderr)
        );
    }
    Ok(String::from_utf8(output.stdout)?)
}

/// The tree that `cargo xtask` was called in. A target directory that several trees share may have
/// this program from another one; cargo says at run time which it is.
pub(crate) fn root() -> std::path::PathBuf {
    let said = std::env::var_os("CARGO_MANIFEST_DIR").map(std::path::PathBuf::from);
    let here = said.unwrap_or_else(|| env!("CARGO_MANIFEST_DIR").into());
    here.parent().expect("xtask is a folder of the workspace").to_path_buf()
}
