//! Runs a command line as a user at a terminal would, and keeps what it prints.

use std::ffi::OsString;
use std::fmt;
use std::fs;
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Names of the tools that the binary is.
const LINKS: &[&str] =
    &["nacre", "lfs", "lctl", "lst", "mkfs.nacre", "mount.nacre", "umount.nacre"];

/// How a command ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ended {
    /// Both streams in their order, without empty lines at the end.
    pub output: String,
    pub status: i32,
}

impl fmt::Display for Ended {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if !self.output.is_empty() {
            writeln!(f, "{}", self.output)?;
        }
        if self.status == 0 { Ok(()) } else { writeln!(f, "[{}]", self.status) }
    }
}

/// A directory to work in, with the binary on the path under all its names.
pub struct Shell {
    dir: PathBuf,
    work: PathBuf,
    masks: Vec<(String, String)>,
    left_out: Vec<String>,
    envs: Vec<(String, OsString)>,
}

impl Shell {
    /// In a fresh directory below `dir`, where `binary` is each of the tools. Outputs show the
    /// directory as `DIR`.
    ///
    /// # Panics
    /// The directory cannot be made.
    #[must_use]
    pub fn new(dir: &Path, binary: &Path) -> Shell {
        let (bin, work) = (dir.join("bin"), dir.join("work"));
        for dir in [&bin, &work] {
            fs::create_dir_all(dir).expect("a directory");
        }
        for name in LINKS {
            symlink(binary, bin.join(name)).expect("a link");
        }
        let masks = vec![(work.display().to_string(), "DIR".to_owned())];
        Shell { dir: dir.to_owned(), work, masks, left_out: Vec::new(), envs: Vec::new() }
    }

    /// Commands work in this directory.
    #[must_use]
    pub fn work(&self) -> &Path {
        &self.work
    }

    /// With a variable for each command.
    #[must_use]
    pub fn env(mut self, name: &str, value: impl Into<OsString>) -> Shell {
        self.envs.push((name.to_owned(), value.into()));
        self
    }

    /// Shows `text` as `name` in outputs.
    #[must_use]
    pub fn mask(mut self, text: &str, name: &str) -> Shell {
        self.masks.insert(0, (text.to_owned(), name.to_owned()));
        self
    }

    /// Leaves lines with this beginning out of outputs: only a slow machine prints them.
    #[must_use]
    pub fn without(mut self, beginning: &str) -> Shell {
        self.left_out.push(beginning.to_owned());
        self
    }

    /// `program` in this directory, with these variables and tools.
    pub(crate) fn command(&self, program: &str) -> Command {
        let path = std::env::var("PATH").unwrap_or_default();
        let mut command = Command::new(program);
        command
            .current_dir(&self.work)
            .env("PATH", format!("{}:{path}", self.dir.join("bin").display()))
            .envs(self.envs.iter().map(|(name, value)| (name, value)))
            .env_remove("LST_SESSION")
            .env("LC_ALL", "C");
        command
    }

    pub(crate) fn masks(&self) -> &[(String, String)] {
        &self.masks
    }

    /// Runs a line in `sh`.
    ///
    /// # Panics
    /// `sh` does not start.
    #[must_use]
    pub fn run(&self, line: &str) -> Ended {
        let output = self
            .command("sh")
            .args(["-c", &format!("exec 2>&1\n{line}")])
            .stdin(Stdio::null())
            .output()
            .expect("sh starts");
        let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
        for (from, to) in &self.masks {
            text = text.replace(from, to);
        }
        let is_left_out = |line: &&str| self.left_out.iter().any(|begin| line.starts_with(begin));
        let lines = text.lines().map(str::trim_end).filter(|line| !is_left_out(line));
        let lines: Vec<&str> = lines.collect();
        Ended {
            output: lines.join("\n").trim_end().to_owned(),
            status: output.status.code().unwrap_or(-1),
        }
    }
}
