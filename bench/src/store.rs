//! Results of a run, stored per commit: `target/bench/COMMIT-SCALE/PART.json`.

use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use crate::row::PartResult;

pub(crate) struct Store {
    dir: PathBuf,
}

impl Store {
    pub(crate) fn open(commit: &str, scale: &str) -> Result<Store> {
        let dir = root().join(format!("target/bench/{commit}-{scale}"));
        fs::create_dir_all(&dir).with_context(|| dir.display().to_string())?;
        Ok(Store { dir })
    }

    pub(crate) fn dir(&self) -> &Path {
        &self.dir
    }

    pub(crate) fn has(&self, part: &str) -> bool {
        self.file(part).exists()
    }

    /// Written aside and renamed: a run that is stopped leaves no half result.
    pub(crate) fn keep(&self, result: &PartResult) -> Result<()> {
        let aside = self.dir.join("aside");
        fs::write(&aside, serde_json::to_string_pretty(result)?)?;
        Ok(fs::rename(&aside, self.file(&result.part))?)
    }

    /// Results of those of `parts` that have one.
    pub(crate) fn all(&self, parts: &[&str]) -> Result<Vec<PartResult>> {
        parts
            .iter()
            .filter(|name| self.has(name))
            .map(|name| {
                let file = self.file(name);
                let text = fs::read_to_string(&file)?;
                serde_json::from_str(&text).with_context(|| file.display().to_string())
            })
            .collect()
    }

    fn file(&self, part: &str) -> PathBuf {
        self.dir.join(format!("{part}.json"))
    }
}

/// The workspace root.
pub(crate) fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .expect("bench is a folder of the workspace")
        .to_path_buf()
}
