//! Figures that a test or an example writes itself: with `NACRE_FIGURES=FILE` it appends one line
//! of JSON per figure.

use std::fs;
use std::path::PathBuf;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use mounted::{Figure, Scratch, nacre_bin};

use crate::row::{Bound, Row};
use crate::store::root;

/// Runs `cargo` with `args` in the workspace root and collects the figures.
pub(super) fn of_cargo(args: &[&str], bound: fn(&str) -> Option<Bound>) -> Result<Vec<Row>> {
    let scratch = Scratch::new("figures");
    let file = scratch.path().join("figures.jsonl");
    let run_dir = scratch.path().join("run"); // tools ask all daemons of one, the bed's too
    fs::create_dir(&run_dir)?;
    let command = format!("cargo {}", args.join(" "));
    eprintln!("+ {command}");
    let status = Command::new(env!("CARGO"))
        .args(args)
        .current_dir(root())
        .env("NACRE_FULL", "1")
        .env("NACRE_FIGURES", &file)
        .env("NACRE_RUN", &run_dir)
        .status()?;
    ensure!(status.success(), "{command} ended with {status}");
    let text = fs::read_to_string(&file).with_context(|| format!("{command} wrote no figures"))?;
    rows(&text, &command, bound)
}

/// Builds an example of a package, as the binary under test was built; its path.
pub(super) fn example(package: &str, name: &str) -> Result<PathBuf> {
    let dir = nacre_bin().parent().context("a directory")?.to_owned();
    let profile = dir.file_name().and_then(|name| name.to_str()).context("a profile")?;
    let args = ["build", "--quiet", "--profile", profile, "-p", package, "--example", name];
    let status = Command::new(env!("CARGO")).args(args).current_dir(root()).status()?;
    ensure!(status.success(), "cargo {} ended with {status}", args.join(" "));
    Ok(dir.join("examples").join(name))
}

fn rows(text: &str, command: &str, bound: fn(&str) -> Option<Bound>) -> Result<Vec<Row>> {
    let row = |line: &str| {
        let figure: Figure = serde_json::from_str(line).with_context(|| line.to_owned())?;
        anyhow::Ok(Row {
            bound: bound(&figure.id),
            id: figure.id,
            title: figure.title,
            unit: figure.unit,
            ours: vec![figure.value],
            limit: Vec::new(),
            cpu: None,
            idle: None,
            command: command.to_owned(),
        })
    };
    text.lines().map(row).collect()
}

#[cfg(test)]
mod tests_of_figures {
    use super::*;

    #[test]
    fn a_line_is_a_row() {
        let text = r#"{"id":"a/b","title":"t","unit":"ms","value":3.5}"#;
        let rows = rows(text, "cargo test", |_| Some(Bound::AtMost(4.0))).expect("well formed");
        assert_eq!((rows[0].id.as_str(), rows[0].is_reached()), ("a/b", Some(true)));
        assert!(super::rows("{}", "", |_| None).is_err());
    }
}
