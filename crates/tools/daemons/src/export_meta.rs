//! `nacre export-meta`: writes all records of an MDT that is served here into one file.

use std::path::PathBuf;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use ctl::progress::{Progress, Unit, human};
use ctl::{Ask, Export, Reply, ask, everywhere};

/// What to export and where to.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the MDT.
    pub target: String,
    pub file: PathBuf,
}

/// Between questions.
const ASKED_EVERY: Duration = Duration::from_millis(50);

/// Exports, and says on a terminal how far it is.
pub fn run(options: &Options) -> Result<()> {
    let file = std::path::absolute(&options.file)?;
    let path = file.to_str().context("the name of the file is not UTF-8")?.to_owned();
    let socket =
        server_of(&options.target).with_context(|| crate::objects::not_here(&options.target))?;
    let begin = Ask::ExportMeta { target: options.target.clone(), path };
    let mut export = answer(ask::ask(&socket, &begin)?)?;
    let progress = Progress::new(&options.target, Unit::Count("records"));
    while !export.is_done {
        std::thread::sleep(ASKED_EVERY);
        export = answer(ask::ask(&socket, &Ask::ExportState { number: export.number })?)?;
        progress.show(export.records, export.records_in_all, &human(export.bytes, 1_024));
    }
    drop(progress);
    if let Some(failure) = export.failure {
        bail!("{}: {}", options.target, failure.text);
    }
    let (records, bytes) = (export.records, export.bytes);
    ctl::say!("{}: {records} records, {bytes} bytes, in {}", options.target, file.display());
    Ok(())
}

fn answer(reply: Reply) -> Result<Export> {
    match reply {
        Reply::Export(export) => Ok(export),
        _ => bail!("the daemon answered another question: is it of another version?"),
    }
}

/// The socket of the daemon that serves this target.
pub(crate) fn server_of(target: &str) -> Option<PathBuf> {
    everywhere::ask_all(&Ask::Who).into_iter().find_map(|(daemon, who)| {
        let Ok(Reply::Who(who)) = who else { return None };
        who.targets.iter().any(|name| name == target).then_some(daemon.socket)
    })
}
