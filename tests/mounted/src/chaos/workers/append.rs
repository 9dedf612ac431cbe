//! Logs: records appended one after the other, by one writer or by both mounts at once.

use std::fs::{self, File};
use std::io::{ErrorKind, Read, Seek, SeekFrom, Write};
use std::path::Path;
use std::sync::{Arc, Mutex};

use super::ledger::{Ledger, Told, record};
use super::{Worker, all_servers, pause, with_ost};
use crate::chaos::chance::Chance;
use crate::chaos::found::{Found, Kind};
use crate::chaos::life::{Life, Over};
use crate::chaos::times::{Nodes, mount, name};

/// Ledgers by path.
type Ledgers = std::collections::BTreeMap<String, Ledger>;
pub(super) type Shared = Arc<Mutex<Ledgers>>;

pub(super) struct Append {
    index: usize,
    servers: Nodes,
    /// Directory and the sort of log.
    dir: &'static str,
    is_private: bool,
    ledgers: Shared,
    chance: Chance,
}

impl Append {
    /// A log of its own for each life.
    pub(super) fn private(index: usize, chance: Chance) -> Append {
        let ledgers = Shared::default();
        Append { index, servers: with_ost(0), dir: "private", is_private: true, ledgers, chance }
    }

    /// One log for all, on one server.
    pub(super) fn shared(index: usize, ledgers: Shared, chance: Chance) -> Append {
        Append { index, servers: with_ost(1), dir: "shared", is_private: false, ledgers, chance }
    }

    /// One log for all, in pieces over all servers.
    pub(super) fn spread(index: usize, ledgers: Shared, chance: Chance) -> Append {
        Append { index, servers: all_servers(), dir: "spread", is_private: false, ledgers, chance }
    }

    fn path(&self, life: usize) -> String {
        let name = name(mount(self.index));
        if self.is_private {
            format!("{}/{name}-{life}", self.dir)
        } else {
            format!("{}/log", self.dir)
        }
    }

    /// Mostly lines, now and then more than a request carries inline.
    fn len(&mut self) -> usize {
        let len = match self.chance.below(32) {
            0 => self.chance.between(66_000, 200_000),
            1..=3 => self.chance.between(5_000, 60_000),
            _ => self.chance.between(60, 500),
        };
        len as usize
    }

    fn tell(&self, path: &str, change: impl FnOnce(&mut Ledger)) {
        let mut ledgers = self.ledgers.lock().expect("no panic holds it");
        change(ledgers.entry(path.to_owned()).or_default());
    }

    fn one(&mut self, own: &mut Own<'_, '_>) -> Result<(), Over> {
        let number = own.number;
        let bytes = record(&own.writer, number, self.len());
        own.number += 1;
        self.tell(&own.path, |ledger| ledger.set(&own.writer, number, Told::Unknown));
        let file = &mut own.file;
        let written = own.life.call("append", &own.life.at(&own.path), || file.write(&bytes))?;
        if written != bytes.len() {
            let text = format!("{}: {written} of {} bytes were appended", own.path, bytes.len());
            return Err(own.life.wrong(Kind::Torn, text));
        }
        self.tell(&own.path, |ledger| ledger.set(&own.writer, number, Told::Acked));
        own.len += bytes.len() as u64;
        if self.chance.one_in(6) {
            self.sync(own)?;
        }
        if self.is_private && self.chance.one_in(8) {
            own.look_through_the_other(&bytes)?;
        }
        Ok(())
    }

    fn sync(&self, own: &Own<'_, '_>) -> Result<(), Over> {
        own.life.call("fsync of a log", &own.life.at(&own.path), || own.file.sync_all())?;
        self.tell(&own.path, |ledger| ledger.synced(&own.writer));
        Ok(())
    }
}

/// What a life has.
struct Own<'a, 'run> {
    life: &'a Life<'run>,
    file: File,
    path: String,
    writer: String,
    number: u64,
    /// Of what it appended.
    len: u64,
}

impl Own<'_, '_> {
    /// A private log ends with what was appended last, at every mount.
    fn look_through_the_other(&self, last: &[u8]) -> Result<(), Over> {
        let path = self.life.other(&self.path);
        let tail = self.life.call_other("read of the other's log", &path, || {
            let mut file = File::open(&path)?;
            let len = file.seek(SeekFrom::End(0))?;
            file.seek(SeekFrom::Start(len.saturating_sub(last.len() as u64)))?;
            let mut tail = Vec::new();
            file.read_to_end(&mut tail)?;
            Ok((len, tail))
        });
        match tail {
            Some((len, tail)) if len != self.len || tail != last => {
                let text = format!(
                    "{}: {len} bytes at the other mount instead of {}, end is right: {}",
                    self.path,
                    self.len,
                    tail == last
                );
                Err(self.life.wrong(Kind::Wrong, text))
            }
            _ => Ok(()),
        }
    }
}

impl Worker for Append {
    fn place(&self) -> (usize, Nodes) {
        (self.index, self.servers)
    }

    fn live(&mut self, life: &Life<'_>) -> Result<(), Over> {
        let path = self.path(life.number);
        let at = life.at(&path);
        let open = || File::options().append(true).create(true).open(&at);
        let file = life.call("open of a log", &at, open)?;
        let writer = format!("{}{}", name(mount(self.index)), life.number);
        let mut own = Own { life, file, path, writer, number: 0, len: 0 };
        while life.goes_on() {
            self.one(&mut own)?;
            pause(&mut self.chance);
        }
        self.sync(&own)
    }

    fn verify(&self, fresh: &Path, found: &Found) {
        let ledgers = std::mem::take(&mut *self.ledgers.lock().expect("no panic holds it"));
        for (path, ledger) in &ledgers {
            match fs::read(fresh.join(path)) {
                Ok(bytes) => ledger.verify(path, &bytes, found),
                Err(_) if !ledger.has_synced() => found.count("logs that went with their mount", 1),
                Err(error) if error.kind() == ErrorKind::NotFound => {
                    found.at_the_end(Kind::Lost, format!("{path} was fsynced and is not there"));
                }
                Err(error) => found.at_the_end(Kind::Lost, format!("{path} was fsynced: {error}")),
            }
        }
    }
}
