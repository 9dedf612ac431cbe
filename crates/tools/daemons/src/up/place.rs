//! The data directory of an `up`: targets, logs, and what one `up` leaves for the next.
//!
//! ```text
//!  DATA/up.lock            one `up` at a time
//!  DATA/up.json            block of addresses last used; ids of embedded clients that may still be known to servers
//!  DATA/log/NAME.log       one per server, and up.log
//!  DATA/pid/NAME           process of each server of a living `up --separate`, for scripts
//!  DATA/MGS, DATA/testfs-MDT0000, DATA/testfs-OST0000 …   targets (or in --device-dir)
//! ```

use std::fs::{self, File};
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use serde::{Deserialize, Serialize};
use types::{ClientId, TargetId, TargetKind};

use super::address::Block;
use super::options::Options;
use crate::format;
use crate::targets::{self, TargetDir};

/// Ids of dead clients kept at most: each `up` that was killed before its mount stood adds one.
const CLIENTS_MAX: usize = 64;

/// A log that has grown so far is put aside when its server starts.
const LOG_BYTES_MAX: u64 = 64 << 20;

/// What the next `up` must know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The block 127.0.N.x last used.
    pub(super) net: Option<u8>,
    /// Embedded clients, hexadecimal; the last one is the living one.
    pub(super) clients: Vec<String>,
}

/// A prepared data directory, locked.
pub(super) struct Place {
    data: PathBuf,
    pub(super) targets: Vec<TargetDir>,
    pub(super) state: State,
    _lock: File,
}

impl Place {
    /// How many OSTs there are.
    pub(super) fn osts(&self) -> u32 {
        let osts =
            self.targets.iter().filter(|target| target.superblock.target.kind == TargetKind::Ost);
        u32::try_from(osts.count()).expect("targets are bounded")
    }

    /// Makes what is missing: directories, targets.
    pub(super) fn prepare(options: &Options) -> Result<Place> {
        let data = std::path::absolute(&options.data)?;
        fs::create_dir_all(data.join("log")).with_context(|| data.display().to_string())?;
        fs::create_dir_all(data.join("pid")).with_context(|| data.display().to_string())?;
        let lock = lock(&data)?;
        let state =
            fs::read(data.join("up.json")).ok().and_then(|text| serde_json::from_slice(&text).ok());
        let base = match &options.device_dir {
            Some(dir) => std::path::absolute(dir)?,
            None => data.clone(),
        };
        let targets = format_missing(&base, options)?;
        Ok(Place { data, targets, state: state.unwrap_or_default(), _lock: lock })
    }

    pub(super) fn log_dir(&self) -> PathBuf {
        self.data.join("log")
    }

    /// Where the process of a server is noted.
    pub(super) fn pid(&self, name: &str) -> PathBuf {
        self.data.join("pid").join(name)
    }

    /// Log of a server.
    pub(super) fn log(&self, name: &str) -> PathBuf {
        let path = self.log_dir().join(format!("{name}.log"));
        if fs::metadata(&path).is_ok_and(|metadata| metadata.len() > LOG_BYTES_MAX) {
            let _ = fs::rename(&path, path.with_extension("log.old"));
        }
        path
    }

    /// Notes the id of this run's client; those of earlier runs, which are dead.
    pub(super) fn new_client(&mut self, id: ClientId, block: &Block) -> Result<Vec<ClientId>> {
        let parse = |text: &String| u128::from_str_radix(text, 16).ok().map(ClientId);
        let dead: Vec<ClientId> = self.state.clients.iter().filter_map(parse).collect();
        self.state.clients.push(id.to_string());
        let surplus = self.state.clients.len().saturating_sub(CLIENTS_MAX);
        self.state.clients.drain(..surplus);
        self.state.net = Some(block.net());
        self.save()?;
        Ok(dead)
    }

    pub(super) fn client(&self) -> ClientId {
        let last = self.state.clients.last().and_then(|text| u128::from_str_radix(text, 16).ok());
        ClientId(last.expect("the id of this run was noted when it began"))
    }

    /// The servers have struck the earlier clients out: they need not be remembered.
    pub(super) fn mounted(&mut self) -> Result<()> {
        let living = self.state.clients.len().saturating_sub(1);
        self.state.clients.drain(..living);
        self.save()
    }

    fn save(&self) -> Result<()> {
        let (path, fresh) = (self.data.join("up.json"), self.data.join("up.json.new"));
        let text = serde_json::to_vec_pretty(&self.state).context("state")?;
        let write = || -> std::io::Result<()> {
            fs::write(&fresh, &text)?;
            File::open(&fresh)?.sync_all()?;
            fs::rename(&fresh, &path)
        };
        write().with_context(|| path.display().to_string())
    }
}

fn lock(data: &Path) -> Result<File> {
    let path = data.join("up.lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!("{}: another `nacre up` runs on this data directory", data.display())
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

/// All targets of the file system: those that are there, and those that were missing.
fn format_missing(base: &Path, options: &Options) -> Result<Vec<TargetDir>> {
    fs::create_dir_all(base).with_context(|| base.display().to_string())?;
    let there = targets::find_in(base)?;
    if let Some(fsname) = targets::fsname_of(&there) {
        ensure!(
            fsname == options.fsname,
            "{} holds the file system {fsname}: say --fsname {fsname}",
            base.display()
        );
    }
    let wanted = std::iter::once(TargetId::MGT)
        .chain((0..options.mdts).map(TargetId::mdt))
        .chain((0..options.osts).map(TargetId::ost));
    for target in
        wanted.filter(|target| there.iter().all(|found| found.superblock.target != *target))
    {
        let dir = base.join(target.name(options.fsname));
        // The MGS's address belongs to this machine's block, which may change: servers are told at
        // each start.
        let mgs = vec![types::NidAddr {
            nid: types::Nid::tcp(Block::ip_of(0, super::address::MGS)),
            port: options.port,
        }];
        format::run(&format::Options {
            fsname: options.fsname,
            targets: vec![target],
            mgs,
            reformat: false,
            dir,
        })?;
    }
    targets::find_in(base)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_state_is_read_as_it_was_written() {
        let state = State { net: Some(3), clients: vec![ClientId(5).to_string()] };
        let text = serde_json::to_string(&state).expect("JSON");
        assert_eq!(serde_json::from_str::<State>(&text).ok(), Some(state));
    }
}
