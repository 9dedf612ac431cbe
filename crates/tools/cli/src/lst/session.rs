//! `lst new_session`: starts a console, a process of its own, in the background.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::net::UnixStream;

use anyhow::{Context, Result, bail};
use ctl::background::{self, First};
use ctl::{ask, rundir};
use lst::command::{Command, NewSession};
use types::Errno;

use crate::Failed;

/// Lines of a console's log that are shown when it does not start.
const LOG_LINES_SHOWN: usize = 5;

/// Starts the console of `session` and prints the session's line.
pub(super) fn begin(session: &NewSession) -> Result<(), Failed> {
    let length = session.name.chars().count();
    if length == 0 || length > lst::limits::NAME_CHARS_MAX {
        return Err(Failed::new(
            Errno::EINVAL.raw(),
            format!("Name size is limited to {}", lst::limits::NAME_CHARS_MAX),
        ));
    }
    let line = start(session).map_err(|error| {
        Failed::new(Errno::EEXIST.raw(), format!("Failed to create session: {error:#}"))
    })?;
    crate::out::print(&line);
    Ok(())
}

fn start(session: &NewSession) -> Result<String> {
    let (socket, log) = rundir::console(session.key)?;
    if UnixStream::connect(&socket).is_ok() {
        if !session.force {
            bail!("session of LST_SESSION={} already exists", session.key);
        }
        ask::console(session.key, &Command::EndSession)
            .context("the older session does not end")?;
    }
    let file = File::create(&log).with_context(|| log.display().to_string())?;
    match background::start(&arguments(session), file)? {
        First::Line(line) => Ok(line),
        First::Ended(status) => bail!(
            "no session: the console ended ({status}):\n{}",
            background::log_tail(&log, 0, LOG_LINES_SHOWN)
        ),
    }
}

fn arguments(session: &NewSession) -> Vec<OsString> {
    let timeout_secs = session.timeout.as_millis() / 1_000;
    let mut arguments: Vec<OsString> = vec!["lst-console".into()];
    for (option, value) in [
        ("--key", session.key.to_string()),
        ("--name", session.name.clone()),
        ("--timeout", timeout_secs.to_string()),
        ("--port", session.port.to_string()),
    ] {
        arguments.extend([option.into(), value.into()]);
    }
    if session.force {
        arguments.push("--force".into());
    }
    if let Some(nid) = session.nid {
        arguments.extend(["--nid".into(), nid.to_string().into()]);
    }
    arguments
}
