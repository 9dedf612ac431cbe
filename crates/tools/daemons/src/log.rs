//! Log lines on stderr; `NACRE_LOG` sets the level (error, warn, info, debug, trace).

use std::fs::OpenOptions;
use std::path::Path;

use anyhow::{Context, Result};
use tracing::level_filters::LevelFilter;

/// Starts logging to stderr; the first call of a process counts.
pub(crate) fn init(default: LevelFilter) {
    let (level, wrong) = level(default);
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(std::io::stderr)
        .log_internal_errors(false) // its own complaint about stderr would panic
        .with_target(false);
    // there already: an embedded daemon logs where its host does
    let _ = subscriber.with_ansi(false).try_init();
    complain(wrong);
}

/// Starts logging to a file.
pub(crate) fn init_file(default: LevelFilter, path: &Path) -> Result<()> {
    let (level, wrong) = level(default);
    let file = OpenOptions::new()
        .create(true)
        .append(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    let subscriber = tracing_subscriber::fmt()
        .with_max_level(level)
        .with_writer(file)
        .log_internal_errors(false)
        .with_target(false);
    let _ = subscriber.with_ansi(false).try_init();
    complain(wrong);
    Ok(())
}

/// The level, and the text that is none.
fn level(default: LevelFilter) -> (LevelFilter, Option<String>) {
    let Ok(text) = std::env::var("NACRE_LOG") else { return (default, None) };
    match text.parse() {
        Ok(level) => (level, None),
        Err(_) => (default, Some(text)),
    }
}

fn complain(wrong: Option<String>) {
    if let Some(text) = wrong {
        tracing::warn!("NACRE_LOG={text} is no level: error, warn, info, debug or trace");
    }
}
