//! The output of `nacre fsck`.

use std::collections::BTreeSet;
use std::io::Write;

use anyhow::Result;
use mdt::fsck::{self, Finding, Mend, System};
use serde_json::{Value, json};
use types::{Fid, FsName, TargetId, printable};

use super::{CLEAN, LEFT, REPAIRED};

/// What became of a breach.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// It is there.
    Found,
    Repaired,
    /// A repair was tried, or is not possible.
    Left,
}

impl State {
    fn word(self) -> &'static str {
        match self {
            State::Found => "found",
            State::Repaired => "repaired",
            State::Left => "left",
        }
    }
}

struct Line {
    finding: Finding,
    /// Of its file.
    path: Option<Vec<u8>>,
    state: State,
    /// Why it was not repaired.
    why: Option<String>,
}

/// Everything that a check found.
pub(super) struct Report {
    fsname: FsName,
    mdts: usize,
    osts: usize,
    inodes: usize,
    entries: usize,
    objects: usize,
    /// Operations of several MDTs that are not done.
    operations: usize,
    clients: usize,
    absent: BTreeSet<u32>,
    lines: Vec<Line>,
}

impl Report {
    pub(super) fn new(fsname: FsName, system: &System<'_>, found: &[Finding]) -> Report {
        let mut report = Report {
            fsname,
            mdts: system.images().iter().filter(|image| !image.is_forgotten()).count(),
            osts: system.osts().iter().filter(|ost| TargetId::ost(ost.index).is_ost()).count(),
            inodes: system.images().iter().map(fsck::Image::inodes).sum(),
            entries: system.images().iter().map(fsck::Image::entries).sum(),
            objects: system.osts().iter().map(|ost| ost.objects.len()).sum(),
            operations: fsck::left(system.images()).len(),
            clients: system.clients(),
            absent: system.absent_osts(),
            lines: Vec::new(),
        };
        found.iter().for_each(|finding| report.add(finding, system, State::Found));
        report
    }

    fn add(&mut self, finding: &Finding, system: &System<'_>, state: State) {
        let path = system.path(finding.fid).filter(|path| !path.is_empty());
        self.lines.push(Line { finding: finding.clone(), path, state, why: None });
    }

    /// The end of a repair, or of a look.
    pub(super) fn settle(
        &mut self,
        system: &System<'_>,
        (done, failed): (&[Finding], &[(Finding, String)]),
        now: &[Finding],
    ) {
        let is_same =
            |one: &Finding, other: &Finding| (one.rule, &one.text) == (other.rule, &other.text);
        if done.is_empty() && failed.is_empty() {
            return;
        }
        for finding in done.iter().chain(now) {
            if !self.lines.iter().any(|line| is_same(&line.finding, finding)) {
                self.add(finding, system, State::Repaired);
            }
        }
        for line in &mut self.lines {
            let is_left = now.iter().any(|finding| is_same(finding, &line.finding));
            line.state = if is_left { State::Left } else { State::Repaired };
            let failed = failed.iter().find(|(it, _)| is_same(it, &line.finding));
            line.why = failed.map(|(_, why)| why.clone()).filter(|_| is_left);
        }
    }

    /// The exit status.
    pub(super) fn status(&self) -> u8 {
        match &self.lines[..] {
            [] => CLEAN,
            lines if lines.iter().all(|line| line.state == State::Repaired) => REPAIRED,
            _ => LEFT,
        }
    }

    /// A line for each breach.
    pub(super) fn text(&self, out: &mut dyn Write) -> Result<()> {
        for line in &self.lines {
            let (finding, state) = (&line.finding, line.state.word());
            let (rule, target) = (finding.rule.name(), self.target(finding));
            write!(out, "{state} {rule} {target}: {}", printable(&finding.text))?;
            if let Some(path) = &line.path {
                write!(out, " (/{})", path.escape_ascii())?;
            }
            match (&line.why, &finding.mend, line.state) {
                (Some(why), ..) => write!(out, "; not repaired: {}", printable(why))?,
                (None, Some(mend), State::Repaired) => write!(out, "; done: {}", mend.text())?,
                (None, Some(mend), _) if mend.gives_up_bytes() => {
                    write!(out, "; --repair --zero-lost: {}", mend.text())?;
                }
                (None, Some(mend), _) => write!(out, "; --repair: {}", mend.text())?,
                (None, None, State::Repaired) => {}
                (None, None, _) => write!(out, "; no repair")?,
            }
            writeln!(out)?;
        }
        Ok(())
    }

    /// One object.
    pub(super) fn json(&self, out: &mut dyn Write) -> Result<()> {
        let findings: Vec<Value> = self.lines.iter().map(|line| self.json_of(line)).collect();
        let value = json!({
            "fsname": self.fsname.to_string(),
            "status": self.status(),
            "mdts": self.mdts,
            "osts": self.osts,
            "inodes": self.inodes,
            "names": self.entries,
            "objects": self.objects,
            "operations": self.operations,
            "clients": self.clients,
            "osts_not_checked": self.absent_names(),
            "findings": findings,
        });
        Ok(writeln!(out, "{value:#}")?)
    }

    fn json_of(&self, line: &Line) -> Value {
        let finding = &line.finding;
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        json!({
            "state": line.state.word(),
            "rule": finding.rule.name(),
            "target": self.target(finding),
            "fid": finding.fid.to_string(),
            "path": line.path.as_ref().map(|path| format!("/{}", text(path))),
            "directory": finding.name.as_ref().map(|(dir, _)| dir.to_string()),
            "name": finding.name.as_ref().map(|(_, name)| text(name)),
            "text": finding.text,
            "repair": finding.mend.as_ref().map(Mend::text),
            "why": line.why,
        })
    }

    fn target(&self, finding: &Finding) -> String {
        match (finding.ost, finding.fid) {
            (Some(ost), _) => TargetId::ost(ost).name(self.fsname),
            (None, Fid::ZERO) => self.fsname.to_string(),
            (None, fid) => TargetId::mdt(fid.mdt_index()).name(self.fsname),
        }
    }

    fn absent_names(&self) -> Vec<String> {
        self.absent.iter().map(|ost| TargetId::ost(*ost).name(self.fsname)).collect()
    }

    /// Says on stderr how it is.
    pub(super) fn summary(&self, repairs: bool) {
        let Report { fsname, mdts, osts, inodes, entries, objects, .. } = self;
        ctl::say!(
            "{fsname}: {mdts} MDTs, {osts} OSTs: {inodes} inodes, {entries} names, {objects} objects"
        );
        if self.operations > 0 {
            ctl::say!(
                "{} records of operations of several MDTs: the next start completes them",
                self.operations
            );
        }
        if self.clients > 0 {
            ctl::say!(
                "{} clients have not left: they may bring back files, so objects of the last files \
                 are not checked",
                self.clients
            );
        }
        for name in self.absent_names() {
            ctl::say!("{name}: not here, so its objects are not checked");
        }
        let count = |state| self.lines.iter().filter(|line| line.state == state).count();
        let (found, repaired, left) =
            (count(State::Found), count(State::Repaired), count(State::Left));
        let is_mended = |mend: &Mend| !mend.gives_up_bytes();
        let has_mend = |line: &&Line| line.finding.mend.as_ref().is_some_and(is_mended);
        let can = self.lines.iter().filter(has_mend).count();
        match (found, repaired, left) {
            (0, 0, 0) => ctl::say!("{fsname}: nothing is wrong"),
            (0, repaired, left) => ctl::say!("{fsname}: {repaired} repaired, {left} left"),
            (found, ..) if repairs => ctl::say!("{fsname}: {found} left"),
            (found, ..) => {
                ctl::say!("{fsname}: {found} found; --repair mends {can} of them");
            }
        }
    }
}
