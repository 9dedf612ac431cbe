//! `nacre status`: the state of all daemons of this machine and of their file systems, on one
//! screen or as JSON.
//!
//! | step | module |
//! |---|---|
//! | asks the daemons for parameters, through their control sockets | [`ask`] |
//! | or asks daemons of any machine for metrics | [`scrape`] |
//! | reads the text of one parameter | [`read`] |
//! | makes one [`Status`] of all answers, and finds troubles | [`model`] |
//! | prints it | `screen` |
//!
//! Only [`ask`], [`scrape`] and [`run`] touch the operating system.

pub mod ask;
pub mod model;
pub mod read;
pub mod scrape;
mod screen;

use std::io::{ErrorKind, IsTerminal, Write};
use std::time::Duration;

use anyhow::{Context, Result};

pub use model::{Status, Verdict};

/// Moves the cursor to the upper left corner and clears the terminal.
const CLEAR: &str = "\x1b[H\x1b[2J";

/// Options of `nacre status`.
#[derive(Clone, Debug, Default)]
pub struct Options {
    /// As JSON.
    pub json: bool,
    /// Ask again after each pause of this length, until the command is interrupted.
    pub watch: Option<Duration>,
    /// Ask the daemons that answer Prometheus at these addresses, in place of this machine's.
    pub from: Vec<String>,
}

fn look(from: &[String]) -> Status {
    if from.is_empty() {
        return model::status(&ask::ask(model::PATTERNS), &ask::mounts());
    }
    model::status(&scrape::ask(from), &[])
}

/// Prints the state, once or again and again. Returns the exit status.
pub fn run(options: &Options) -> Result<u8> {
    let clears = std::io::stdout().is_terminal() && !options.json;
    loop {
        let status = look(&options.from);
        let text = text(options, clears, &status)?;
        let mut out = std::io::stdout().lock();
        match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
            Err(error) if error.kind() == ErrorKind::BrokenPipe => {
                return Ok(status.verdict.exit_status());
            }
            done => done.context("stdout")?,
        }
        drop(out);
        let Some(pause) = options.watch else { return Ok(status.verdict.exit_status()) };
        std::thread::sleep(pause);
    }
}

/// One answer: a document, a line of JSON for each look of a watch, or a screen.
fn text(options: &Options, clears: bool, status: &Status) -> Result<String> {
    Ok(match (options.json, options.watch) {
        (true, None) => format!("{}\n", serde_json::to_string_pretty(status)?),
        (true, Some(_)) => format!("{}\n", serde_json::to_string(status)?),
        (false, None) => screen::screen(status),
        (false, Some(_)) if clears => format!("{CLEAR}{}", screen::screen(status)),
        (false, Some(_)) => format!("{}\n", screen::screen(status)),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_watch_prints_a_line_of_json_for_each_look() {
        let nothing = model::status(&[], &[]);
        let shown = |json, watch, clears| {
            text(&Options { json, watch, from: Vec::new() }, clears, &nothing)
                .expect("plain values")
        };
        let pause = Some(Duration::from_secs(1));
        assert_eq!(shown(true, pause, false).matches('\n').count(), 1);
        assert!(shown(true, None, false).starts_with("{\n  \"verdict\": \"nothing\""));
        assert!(shown(false, pause, true).starts_with(CLEAR));
        assert!(shown(false, pause, false).ends_with("\n\n"));
        assert_eq!(shown(false, None, true), shown(false, None, false));
    }
}
