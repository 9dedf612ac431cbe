//! `cargo xtask fuzz [TARGET ...] [--hours N]`: libFuzzer with coverage, through cargo-bolero.
//!
//! A target is a folder `__fuzz__/TEST` beside the source file of its test, and holds the stored
//! corpus. A `::` in the test's name is `__` there. The search starts from seeds and stored corpus.
//! Inputs that reach new code go to `target/fuzz/corpus`. An input that fails goes to
//! `__fuzz__/TEST/crashes`, where `cargo test` repeats it.

use std::collections::BTreeSet;
use std::path::Path;
use std::process::{Command, Stdio};

use anyhow::{Context, Result, bail};

use crate::run::{output, root, run};

const FOUND: &str = "target/fuzz/corpus";
const TOOLS: &str = "target/tools/bin";
/// All targets together, where the command line names no time.
const HOURS: f64 = 1.0;
const INSTALL: &str = "cargo install cargo-bolero --version 0.13.5 --locked \
                       --no-default-features --features libfuzzer --root target/tools";

/// A test that libFuzzer can drive.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Target {
    package: String,
    /// As `cargo test` names it.
    test: String,
    /// Its folder in the tree.
    folder: String,
}

impl Target {
    /// From a file below a folder `__fuzz__`. Folders of packages have the name of the package.
    fn of(file: &str) -> Option<Target> {
        let (before, after) = file.split_once("/__fuzz__/")?;
        let (name, _) = after.split_once('/')?;
        let (package, _) = before.split_once("/src").or_else(|| before.split_once("/tests"))?;
        let package = package.rsplit('/').next()?.to_owned();
        let folder = format!("{before}/__fuzz__/{name}");
        Some(Target { package, test: name.replace("__", "::"), folder })
    }

    /// `frame` of the crate `fuzz`, else `mdt::tests::hostile::handlers`.
    fn name(&self) -> String {
        match self.package.as_str() {
            "fuzz" => self.test.clone(),
            package => format!("{package}::{}", self.test),
        }
    }
}

/// Runs the targets in turn, each for its share of the time.
pub(crate) fn fuzz(args: &[String]) -> Result<()> {
    let (wanted, hours) = parse(args)?;
    let targets = chosen(&wanted)?;
    require_tools()?;
    let secs = (hours * 3_600.0 / targets.len() as f64).ceil() as u64;
    for target in &targets {
        eprintln!("== {}, {secs} s", target.name());
        search(target, secs)
            .with_context(|| format!("a failing input is in {}/crashes", target.folder))?;
    }
    Ok(())
}

fn parse(args: &[String]) -> Result<(Vec<&str>, f64)> {
    let (mut targets, mut hours) = (Vec::new(), HOURS);
    let mut words = args.iter().map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "--hours" => {
                let value = words.next().context("--hours wants a number")?;
                hours = value.parse().with_context(|| format!("--hours {value}: not a number"))?;
            }
            name if !name.starts_with('-') => targets.push(name),
            other => {
                bail!("'{other}' is not understood: cargo xtask fuzz [TARGET ...] [--hours N]")
            }
        }
    }
    if hours > 0.0 && hours.is_finite() {
        Ok((targets, hours))
    } else {
        bail!("--hours wants a number above zero")
    }
}

/// Those of these names, all without any.
fn chosen(wanted: &[&str]) -> Result<Vec<Target>> {
    let files = output("git", &["ls-files", "--cached", "--others", "--exclude-standard"])?;
    let all: BTreeSet<Target> = files.lines().filter_map(Target::of).collect();
    let names: Vec<_> = all.iter().map(Target::name).collect();
    if let Some(unknown) = wanted.iter().find(|wanted| !names.iter().any(|name| name == *wanted)) {
        bail!("no target is called '{unknown}'; there are:\n  {}", names.join("\n  "));
    }
    let is_wanted = |target: &Target| wanted.is_empty() || wanted.contains(&&*target.name());
    Ok(all.into_iter().filter(is_wanted).collect())
}

fn require_tools() -> Result<()> {
    let path = std::env::var("PATH").unwrap_or_default();
    let starts = |program: &str, args: &[&str]| {
        let mut command = Command::new(program);
        command.args(args).stdout(Stdio::null()).stderr(Stdio::null());
        command.env("PATH", tools_path(&path)).status().is_ok_and(|status| status.success())
    };
    if !starts("cargo", &["bolero", "--version"]) {
        bail!("cargo-bolero is missing; install it with\n  {INSTALL}");
    }
    if !starts("c++", &["--version"]) {
        bail!("a C++ compiler is missing: it builds libFuzzer (Debian: apt install g++)");
    }
    Ok(())
}

fn tools_path(path: &str) -> String {
    format!("{}:{path}", root().join(TOOLS).display())
}

fn search(target: &Target, secs: u64) -> Result<()> {
    let name = target.name();
    let found = root().join(FOUND).join(&name);
    std::fs::create_dir_all(&found)?;
    let text = |path: &Path| path.to_string_lossy().into_owned();
    let kept = text(&root().join(&target.folder).join("corpus"));
    let (found, seeds) = (text(&found), text(&root().join(FOUND)));
    let secs = format!("{secs}s");
    let path = tools_path(&std::env::var("PATH").unwrap_or_default());
    let mut args = vec!["bolero", "test", &target.test, "--package", &target.package];
    args.extend(["--sanitizer", "NONE", "-T", &secs, "--corpus-dir", &found, "-E", &kept]);
    run("cargo", &args, &[("PATH", &path), ("NACRE_FUZZ_SEEDS", &seeds)])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_handlers_of_servers_are_searched_by_one_command() {
        let words = "mdt::tests::hostile::handlers ost::handlers --hours 2";
        let args: Vec<String> = words.split(' ').map(str::to_owned).collect();
        let (wanted, hours) = parse(&args).expect("understood");
        let chosen = chosen(&wanted).expect("there they are");
        let folders: Vec<_> = chosen.iter().map(|target| &target.folder[..]).collect();
        let of = |path: &str| format!("crates/servers/{path}/__fuzz__");
        let [mdt, ost] = ["mdt/src/tests", "ost/tests"].map(of);
        assert_eq!(folders, [format!("{mdt}/tests__hostile__handlers"), format!("{ost}/handlers")]);
        assert_eq!(hours, 2.0);
        assert!(super::chosen(&["nothing"]).is_err());
    }

    #[test]
    fn targets_are_named_by_their_folders() {
        let name = |file| Target::of(file).map(|target| target.name());
        assert_eq!(name("fuzz/src/__fuzz__/frame/corpus/cut").as_deref(), Some("frame"));
        let mdt = "crates/servers/mdt/src/tests/__fuzz__/tests__hostile__start/corpus/1";
        assert_eq!(name(mdt).as_deref(), Some("mdt::tests::hostile::start"));
        let ost = "crates/servers/ost/tests/__fuzz__/handlers/corpus/1";
        assert_eq!(name(ost).as_deref(), Some("ost::handlers"));
        for target in ["mgt::handlers", "selftest::handlers"] {
            assert_eq!(chosen(&[target]).expect("it is there").len(), 1, "{target}");
        }
        assert_eq!(name("fuzz/src/lib.rs"), None);
    }
}
