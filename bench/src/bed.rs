//! The file system under test and the directory that it is compared with.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

use anyhow::{Context, Result, ensure};
use mounted::{Scratch, Up, nacre_bin};
use serde::de::DeserializeOwned;

use crate::disk::Disk;
use crate::scale::Scale;

/// `nacre up --separate` and ext4, both on one disk. Fields are dropped in this order.
pub(crate) struct Bed {
    up: Up,
    disk: Disk,
    older: Option<PathBuf>,
    talk: Option<u64>,
}

impl Bed {
    /// `older` is another binary to compare with, where there is one. `talk` is the number of files
    /// of part `talk`.
    pub(crate) fn make(scale: Scale, older: Option<PathBuf>, talk: Option<u64>) -> Result<Bed> {
        let disk = Disk::make(scale.disk_gib)?;
        fs::create_dir_all(disk.dir().join("ext4"))?;
        let up = Up::with(Scratch::new("bench"), Some(disk.dir().join("nacre")), &[]);
        Ok(Bed { up, disk, older, talk })
    }

    pub(crate) fn up(&self) -> &Up {
        &self.up
    }

    /// The binary of an older commit.
    pub(crate) fn older(&self) -> Option<&Path> {
        self.older.as_deref()
    }

    /// Files on four MDTs in part `talk`.
    pub(crate) fn talk(&self) -> Option<u64> {
        self.talk
    }

    /// A directory on the mount.
    pub(crate) fn ours(&self) -> &Path {
        self.up.mount()
    }

    /// A directory of the ext4 below.
    pub(crate) fn limit(&self) -> PathBuf {
        self.disk.dir().join("ext4")
    }

    /// A fresh directory on the same ext4, for targets of a file system of its own.
    pub(crate) fn fresh(&self, name: &str) -> PathBuf {
        self.disk.dir().join(name)
    }
}

/// Runs a benchmark of the binary under test; it prints one JSON value.
pub(crate) fn nacre<T: DeserializeOwned>(args: &[&str]) -> Result<T> {
    nacre_of(&nacre_bin(), args)
}

/// The same with a binary of choice.
pub(crate) fn nacre_of<T: DeserializeOwned>(binary: &Path, args: &[&str]) -> Result<T> {
    let text = text_of(binary, args)?;
    serde_json::from_str(&text).with_context(|| format!("nacre {}: {text}", args.join(" ")))
}

/// The same, where it prints one JSON value per line.
pub(crate) fn nacre_lines<T: DeserializeOwned>(args: &[&str]) -> Result<Vec<T>> {
    let text = text_of(&nacre_bin(), args)?;
    let line = |line: &str| serde_json::from_str(line).with_context(|| line.to_owned());
    text.lines().filter(|text| !text.is_empty()).map(line).collect()
}

fn text_of(binary: &Path, args: &[&str]) -> Result<String> {
    eprintln!("+ {} {}", binary.display(), args.join(" "));
    let output = Command::new(binary).args(args).stderr(Stdio::inherit()).output()?;
    ensure!(output.status.success(), "nacre {} ended with {}", args.join(" "), output.status);
    Ok(String::from_utf8(output.stdout)?)
}

/// Arguments as a shell takes them.
pub(crate) fn quoted(args: &[&str]) -> String {
    let word = |arg: &&str| match arg.contains(['*', '[', '?', ' ']) {
        true => format!("'{arg}'"),
        false => (*arg).to_owned(),
    };
    args.iter().map(word).collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests_of_words {
    use super::quoted;

    #[test]
    fn patterns_are_quoted() {
        assert_eq!(
            quoted(&["--device", "OST000[01]:flash", "-c"]),
            "--device 'OST000[01]:flash' -c"
        );
    }
}
