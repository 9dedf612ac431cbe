//! The hash of the checked tree, committed or not. Seeds are drawn from it.

use std::path::Path;
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, bail};

use crate::run;

/// What no seed depends on: a commit of documents alone draws the seeds of the commit before it.
const DOCUMENTS: &[&str] = &["docs", "*.md"];

/// Hash of the files as they are now, without documents and what git ignores. A check before a
/// commit draws the same seeds as the check of that commit. Outside of a git checkout it is a fixed
/// text.
pub(crate) fn hash() -> String {
    /// Two threads of one process ask at once in tests: git refuses an index that another writes.
    static ASKED: AtomicU64 = AtomicU64::new(0);
    let name = (std::process::id(), ASKED.fetch_add(1, Ordering::Relaxed));
    let index = std::env::temp_dir().join(format!("nacre-index-{}-{}", name.0, name.1));
    let hash = write(&index);
    let _was_never_made = std::fs::remove_file(&index);
    hash.unwrap_or_else(|error| {
        eprintln!("xtask: seeds do not depend on the tree: {error:#}");
        "no tree".to_owned()
    })
}

/// A number from it.
pub(crate) fn seed() -> u64 {
    let of = |byte: u8| char::from(byte).to_digit(16).map_or(u64::from(byte), u64::from);
    hash().bytes().take(12).fold(0, |seed, byte| seed << 4 ^ of(byte))
}

/// The index of the checkout is not touched.
fn write(index: &Path) -> Result<String> {
    git(index, &["read-tree", "HEAD"])?;
    git(index, &["add", "--all"])?;
    let without = ["rm", "-r", "--cached", "--force", "--quiet", "--ignore-unmatch", "--"];
    git(index, &[&without, DOCUMENTS].concat())?;
    Ok(git(index, &["write-tree"])?.trim().to_owned())
}

fn git(index: &Path, args: &[&str]) -> Result<String> {
    let mut command = Command::new("git");
    command.args(["-c", "safe.directory=*"]).args(args);
    command.current_dir(run::root()).env("GIT_INDEX_FILE", index);
    let output = command.output().context("git did not start")?;
    if !output.status.success() {
        bail!("git {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr).trim());
    }
    Ok(String::from_utf8(output.stdout)?)
}

#[cfg(test)]
mod tests {
    use super::hash;

    #[test]
    fn the_same_files_have_the_same_hash() {
        assert_eq!(hash(), hash());
    }

    #[test]
    fn threads_that_ask_at_once_get_the_same_hash() {
        let asked = std::array::from_fn::<_, 6, _>(|_| std::thread::spawn(hash));
        let alone = hash();
        for asker in asked {
            assert_eq!(asker.join().unwrap(), alone);
        }
    }
}
