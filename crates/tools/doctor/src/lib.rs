//! `nacre doctor`: checks of this machine, with a reason and a command for each fault.
//!
//! | step | module |
//! |---|---|
//! | looks at the machine | [`facts`] |
//! | reads the kernel's tables | `tables` |
//! | judges each fact | [`judge`] |
//!
//! Only [`facts`] and [`run`] touch the operating system.

pub mod facts;
pub mod judge;
mod tables;

use std::fmt::Write as _;
use std::io::{ErrorKind, Write};
use std::path::PathBuf;

use anyhow::{Context, Result};
use serde::Serialize;

/// Exit status where a check is bad. 1 and 2 are every command's failure and wrong usage.
const BAD: u8 = 3;

/// Options of `nacre doctor`.
#[derive(Clone, Debug)]
pub struct Options {
    /// As JSON.
    pub json: bool,
    /// The directory in which targets are or shall be.
    pub data: Option<PathBuf>,
    /// The port of servers.
    pub port: u16,
}

/// The outcome of a check, from good to bad.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Verdict {
    Ok,
    /// Nacre works, with a loss that the check names.
    Warn,
    /// Nacre does not work, or does not keep its promises.
    Bad,
}

impl Verdict {
    fn word(self) -> &'static str {
        match self {
            Verdict::Ok => "ok",
            Verdict::Warn => "warn",
            Verdict::Bad => "bad",
        }
    }
}

/// The result of one check.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Check {
    pub name: &'static str,
    pub verdict: Verdict,
    pub finding: String,
    /// The command to type or the change to make, where something can be better.
    pub change: Option<String>,
    /// The reason for the change.
    pub why: Option<String>,
}

impl Check {
    fn ok(name: &'static str, finding: impl Into<String>) -> Check {
        Check { name, verdict: Verdict::Ok, finding: finding.into(), change: None, why: None }
    }

    fn warn(name: &'static str, finding: impl Into<String>) -> Check {
        Check { verdict: Verdict::Warn, ..Check::ok(name, finding) }
    }

    fn bad(name: &'static str, finding: impl Into<String>) -> Check {
        Check { verdict: Verdict::Bad, ..Check::ok(name, finding) }
    }

    fn change(self, change: impl Into<String>, why: impl Into<String>) -> Check {
        Check { change: Some(change.into()), why: Some(why.into()), ..self }
    }
}

/// All checks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The worst of them.
    pub verdict: Verdict,
    pub checks: Vec<Check>,
}

impl Report {
    /// Of these checks.
    #[must_use]
    pub fn new(checks: Vec<Check>) -> Report {
        let verdict = checks.iter().map(|check| check.verdict).max().unwrap_or(Verdict::Ok);
        Report { verdict, checks }
    }

    fn exit_status(&self) -> u8 {
        if self.verdict == Verdict::Bad { BAD } else { 0 }
    }

    /// For people.
    fn text(&self) -> String {
        let mut out = String::new();
        let width = self.checks.iter().map(|check| check.name.len()).max().unwrap_or(0);
        for Check { name, verdict, finding, change, why } in &self.checks {
            let _ = writeln!(out, "{:<4}  {name:<width$}  {finding}", verdict.word());
            for (word, text) in [("why", why), ("change", change)] {
                if let Some(text) = text {
                    let _ = writeln!(out, "{:width$}        {word}: {text}", "");
                }
            }
        }
        let count =
            |verdict: Verdict| self.checks.iter().filter(|check| check.verdict == verdict).count();
        let (warn, bad) = (count(Verdict::Warn), count(Verdict::Bad));
        let _ = writeln!(out, "\n{} checks: {warn} warn, {bad} bad", self.checks.len());
        out
    }
}

/// Looks, judges and prints. Returns the exit status.
pub fn run(options: &Options) -> Result<u8> {
    let facts = facts::gather(options.data.as_deref(), options.port);
    let report = Report::new(judge::all(&facts));
    let text = if options.json {
        format!("{}\n", serde_json::to_string_pretty(&report)?)
    } else {
        report.text()
    };
    let mut out = std::io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => {}
        done => done.context("stdout")?,
    }
    Ok(report.exit_status())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_says_what_to_change_and_why() {
        let checks = vec![
            Check::ok("CPUs", "8"),
            Check::warn("clock", "nothing sets it")
                .change("timedatectl set-ntp true", "times differ"),
        ];
        let report = Report::new(checks);
        assert_eq!(
            report.text(),
            "ok    CPUs   8\n\
             warn  clock  nothing sets it\n             why: times differ\n             \
             change: timedatectl set-ntp true\n\n2 checks: 1 warn, 0 bad\n"
        );
        assert_eq!((report.verdict, report.exit_status()), (Verdict::Warn, 0));
        let bad = Report::new(vec![Check::bad("kernel", "old"), Check::ok("CPUs", "8")]);
        assert_eq!((bad.verdict, bad.exit_status()), (Verdict::Bad, 3));
    }

    /// Scripts read these keys.
    #[test]
    fn the_keys_of_the_json_stay() {
        let report = Report::new(vec![Check::bad("kernel", "old").change("a", "b")]);
        let text = serde_json::to_string(&report).expect("plain values");
        assert_eq!(
            text,
            "{\"verdict\":\"bad\",\"checks\":[{\"name\":\"kernel\",\"verdict\":\"bad\",\
             \"finding\":\"old\",\"change\":\"a\",\"why\":\"b\"}]}"
        );
    }
}
