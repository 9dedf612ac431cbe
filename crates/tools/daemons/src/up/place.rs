//! The data directory of an `up`: targets, logs, and state for the next `up`.
//!
//! ```text
//!  DATA/up.lock            one `up` at a time
//!  DATA/up.json            block of addresses last used; ids of embedded clients that may still be known to servers;
//!                          the targets that there are, which are never formatted again; whether it was never
//!                          mounted. Its user alone reads it
//!  DATA/log/NAME.log       one per server, and up.log
//!  DATA/pid/NAME           process of each server of a living `up --separate`, for scripts
//!  DATA/MGS, DATA/testfs-MDT0000, DATA/testfs-OST0000 …   targets (or in --device-dir)
//! ```

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io::{ErrorKind, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, anyhow, bail, ensure};
use serde::{Deserialize, Serialize};
use types::{ClientId, FsName, TargetId, TargetKind};

use super::address::Block;
use super::known;
use super::options::Options;
use super::plan::{self, Plan};
use crate::format;
use crate::log::LOG_BYTES_MAX;
use crate::targets::{self, TargetDir};

/// Ids of dead clients kept at most: each `up` that was killed before its mount stood adds one.
const CLIENTS_MAX: usize = 64;

/// What the next `up` must know.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct State {
    /// The block 127.0.N.x last used.
    pub(super) net: Option<u8>,
    /// Embedded clients, hexadecimal; the last one is the living one.
    pub(super) clients: Vec<String>,
    /// Targets that this file system has had.
    #[serde(default)]
    pub(super) targets: Vec<Known>,
    /// It was made new, and no `up` has mounted it: its root has no defaults yet.
    #[serde(default)]
    pub(super) is_unmounted: bool,
}

/// A target that was here.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Known {
    pub(super) name: String,
    /// Kind and index, as on the wire.
    pub(super) id: u32,
    /// Where it was last; none where only the MGS knows of it.
    pub(super) dir: Option<PathBuf>,
}

impl State {
    /// What the `up` before this one left. One that cannot be read might have said what must not be
    /// formatted.
    pub(super) fn read(path: &Path) -> Result<State> {
        match fs::read(path) {
            Ok(text) => serde_json::from_slice(&text).with_context(|| path.display().to_string()),
            Err(error) if error.kind() == ErrorKind::NotFound => Ok(State::default()),
            Err(error) => Err(error).with_context(|| path.display().to_string()),
        }
    }

    /// Where its targets are. Those that the MGS has forgotten are nowhere, as their disks may be
    /// gone.
    pub(super) fn dirs(&self) -> Vec<PathBuf> {
        let is_there = |known: &Known| known.dir.as_ref().is_none_or(|dir| dir.is_dir());
        let left = if self.targets.iter().all(is_there) { None } else { self.left_by_mgs() };
        let is_left = |known: &&Known| {
            !TargetId::from_u32(known.id).is_some_and(|target| is_forgotten(target, &left))
        };
        self.targets.iter().filter(is_left).filter_map(|known| known.dir.clone()).collect()
    }

    /// What the MGS of this place still knows, if it can be asked.
    fn left_by_mgs(&self) -> Option<BTreeSet<TargetId>> {
        let mgs = targets::open(&self.dir_of(TargetId::MGT)?).ok()??;
        let (fsname, _) = self.targets.iter().find_map(|known| known.name.rsplit_once('-'))?;
        known::left_by_mgs(&[mgs], fsname.parse().ok()?)
    }

    fn dir_of(&self, target: TargetId) -> Option<PathBuf> {
        self.targets
            .iter()
            .find(|known| known.id == target.to_u32())
            .and_then(|known| known.dir.clone())
    }
}

/// A prepared data directory, locked.
pub(super) struct Place {
    data: PathBuf,
    /// Those that are served.
    pub(super) targets: Vec<TargetDir>,
    /// Targets that are known and cannot be served: why, a line each.
    pub(super) missing: Vec<String>,
    /// An MDT is among them.
    pub(super) misses_mdt: bool,
    /// Nothing was there before.
    pub(super) is_new: bool,
    pub(super) state: State,
    _lock: File,
}

impl Place {
    /// How many OSTs are served.
    pub(super) fn osts(&self) -> u32 {
        self.count(TargetKind::Ost)
    }

    /// How many MDTs are served.
    pub(super) fn mdts(&self) -> u32 {
        self.count(TargetKind::Mdt)
    }

    fn count(&self, kind: TargetKind) -> u32 {
        let those = self.targets.iter().filter(|target| target.superblock.target.kind == kind);
        u32::try_from(those.count()).expect("targets are bounded")
    }

    /// Makes the data directory, and targets that no `up` and no MGS has known; finds the others.
    pub(super) fn prepare(options: &Options) -> Result<Place> {
        let data = std::path::absolute(&options.data)?;
        let base = match &options.device_dir {
            Some(dir) => {
                ensure!(
                    dir.is_dir(),
                    "--device-dir {0}: no such directory: mount its disks, or mkdir {0}",
                    dir.display()
                );
                std::path::absolute(dir)?
            }
            None => data.clone(),
        };
        for part in ["log", "pid"] {
            fs::create_dir_all(data.join(part)).map_err(|error| {
                let data = data.display();
                anyhow!("--data {data}: cannot be made: {error}; name a directory on a disk")
            })?;
        }
        let lock = lock(&data)?;
        let state = State::read(&data.join("up.json"))?;
        let targets = targets::find_in(&base)?;
        let mut place = Place {
            data,
            targets,
            missing: Vec::new(),
            misses_mdt: false,
            is_new: false,
            state,
            _lock: lock,
        };
        place.find_targets(&base, options)?;
        place.save()?;
        Ok(place)
    }

    fn find_targets(&mut self, base: &Path, options: &Options) -> Result<()> {
        if let Some(fsname) = targets::fsname_of(&self.targets) {
            ensure!(
                fsname == options.fsname,
                "{} holds the file system {fsname}: say --fsname {fsname}",
                base.display()
            );
        }
        let found = self.targets.iter().map(|target| target.superblock.target).collect();
        let mut known = known::noted(&self.state.targets, &self.targets);
        let mdts = plan::mdts_wanted(options.mdts, known.union(&found));
        let wanted: Vec<TargetId> = std::iter::once(TargetId::MGT)
            .chain((0..mdts).map(TargetId::mdt))
            .chain((0..options.osts.unwrap_or(plan::OSTS)).map(TargetId::ost))
            .collect();
        for line in plan::kept(options.mdts, options.osts, &found) {
            ctl::say!("nacre up: {line}");
        }
        let mut plan = Plan::new(&wanted, &known, &found);
        if !plan.make.is_empty() {
            known.extend(known::by_mgs(&self.targets, options.fsname)?);
            plan = Plan::new(&wanted, &known, &found);
        }
        let ask = || known::left_by_mgs(&self.targets, options.fsname);
        let left = if plan.missing.is_empty() { None } else { ask() };
        let (forgotten, missing): (Vec<TargetId>, Vec<TargetId>) =
            plan.missing.into_iter().partition(|target| is_forgotten(*target, &left));
        for target in missing {
            let name = target.name(options.fsname);
            let dir = self.state.dir_of(target).unwrap_or_else(|| base.join(&name));
            let why = format!("{name} is not there: is its disk mounted at {}?", dir.display());
            self.miss(target, why)?;
        }
        self.set_aside_broken()?;
        self.make(base, options, &plan.make)?;
        self.note(options.fsname, &known, &forgotten);
        Ok(())
    }

    /// A target that lacks a part is not served; the others are.
    fn set_aside_broken(&mut self) -> Result<()> {
        let mut whole = Vec::new();
        for target in std::mem::take(&mut self.targets) {
            match targets::check_parts(&target) {
                Ok(()) => whole.push(target),
                Err(error) => self.miss(target.superblock.target, error.to_string())?,
            }
        }
        self.targets = whole;
        Ok(())
    }

    /// A target that is known cannot be served. Nothing is made in its place.
    fn miss(&mut self, target: TargetId, why: String) -> Result<()> {
        ensure!(!plan::is_needed_to_mount(target), "{why} Nothing is formatted in its place");
        self.misses_mdt |= target.kind == TargetKind::Mdt;
        self.missing.push(why);
        Ok(())
    }

    /// Formats targets that are new.
    fn make(&mut self, base: &Path, options: &Options, new: &[TargetId]) -> Result<()> {
        if new.is_empty() {
            return Ok(());
        }
        self.is_new = self.targets.is_empty();
        if self.is_new {
            self.state.is_unmounted = true;
            self.save()?; // before anything is there: this `up` may end before the mount stands
        }
        // The MGS's address belongs to this machine's block, which may change: servers are told at
        // each start.
        let mgs = vec![types::NidAddr {
            nid: types::Nid::tcp(Block::ip_of(0, super::address::MGS)),
            port: options.port,
        }];
        for target in new {
            format::make(&format::Options {
                fsname: options.fsname,
                targets: vec![*target],
                mgs: mgs.clone(),
                reformat: false,
                dir: base.join(target.name(options.fsname)),
            })?;
        }
        let names: Vec<_> = new.iter().map(|target| target.name(options.fsname)).collect();
        let what = if self.is_new { "a new file system" } else { "new targets" };
        ctl::say!("nacre up: {what} in {}: {}", base.display(), names.join(" "));
        let served = targets::find_in(base)?;
        self.targets
            .extend(served.into_iter().filter(|target| new.contains(&target.superblock.target)));
        self.targets.sort_by_key(|target| target.superblock.target);
        Ok(())
    }

    /// Every target that is known by now, for the next `up`. One that is forgotten is nowhere.
    fn note(&mut self, fsname: FsName, known: &BTreeSet<TargetId>, forgotten: &[TargetId]) {
        let mut note = |id: TargetId, dir: Option<PathBuf>| {
            let name = id.name(fsname);
            let last = self.state.dir_of(id).filter(|_| !forgotten.contains(&id));
            let dir = dir.or(last);
            self.state.targets.retain(|other| other.id != id.to_u32());
            self.state.targets.push(Known { name, id: id.to_u32(), dir });
        };
        known.iter().for_each(|id| note(*id, None));
        for target in &self.targets {
            note(target.superblock.target, Some(target.dir.clone()));
        }
        self.state.targets.sort_by_key(|known| known.id);
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
        self.state.clients.push(format!("{id:x}"));
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

    /// The servers have struck the earlier clients out: they need not be remembered. The root has
    /// its defaults.
    pub(super) fn mounted(&mut self) -> Result<()> {
        let living = self.state.clients.len().saturating_sub(1);
        self.state.clients.drain(..living);
        self.state.is_unmounted = false;
        self.save()
    }

    /// On a full disk the old state stays: files can be deleted only through a mount.
    fn save(&self) -> Result<()> {
        let path = self.data.join("up.json");
        let mut text = serde_json::to_vec_pretty(&self.state).context("state")?;
        text.push(b'\n');
        match write_private(&path, &text) {
            Err(error) if is_full(&error) && path.exists() => {
                let path = path.display();
                ctl::say!("nacre up: {path} stays as it was: {error}; delete files, or add a disk");
                Ok(())
            }
            written => written.with_context(|| path.display().to_string()),
        }
    }
}

fn is_full(error: &std::io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOSPC | libc::EDQUOT))
}

/// Replaces a file, durably. No other user reads it: the number of the living client is in it, and
/// who knows that number can take the client's place.
fn write_private(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("json.new");
    if let Err(error) = fs::remove_file(&fresh)
        && error.kind() != ErrorKind::NotFound
    {
        return Err(error);
    }
    let mut file = File::options().write(true).create_new(true).mode(0o600).open(&fresh)?;
    file.write_all(bytes)?;
    file.sync_all()?;
    fs::rename(&fresh, path)
}

/// Whether the MGS, which was asked, knows an OST or an MDT no longer (`nacre forget`). It is not
/// missed then, and not made again either.
fn is_forgotten(target: TargetId, left: &Option<BTreeSet<TargetId>>) -> bool {
    let is_known = left.as_ref().is_none_or(|left| left.contains(&target));
    !is_known && !plan::is_needed_to_mount(target)
}

fn lock(data: &Path) -> Result<File> {
    let path = data.join("up.lock");
    let file = File::create(&path).with_context(|| path.display().to_string())?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => {
            bail!(
                "{}: another nacre up runs on this data directory; use that one, or another --data",
                data.display()
            )
        }
        Err(error) => Err(error).with_context(|| path.display().to_string()),
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn a_target_that_the_mgs_has_forgotten_is_not_missed() {
        let left = Some(BTreeSet::from([TargetId::mdt(0), TargetId::ost(0)]));
        assert!(is_forgotten(TargetId::ost(1), &left));
        assert!(!is_forgotten(TargetId::ost(0), &left), "its disk is away");
        assert!(!is_forgotten(TargetId::ost(1), &None), "the MGS cannot be asked");
        assert!(!is_forgotten(TargetId::MGT, &left), "the MGS does not tell of itself");
        assert!(is_forgotten(TargetId::mdt(1), &left) && !is_forgotten(TargetId::mdt(0), &left));
        let none = Some(BTreeSet::from([TargetId::ost(0)]));
        assert!(!is_forgotten(TargetId::mdt(0), &none), "it has the root");
    }

    #[test]
    fn a_full_disk_is_told_from_other_errors() {
        let check = |errno| is_full(&std::io::Error::from_raw_os_error(errno));
        assert!(check(libc::ENOSPC) && check(libc::EDQUOT));
        assert!(!check(libc::EIO) && !check(libc::EROFS));
    }

    /// One that serves nothing.
    fn place(data: &Path, state: State) -> Place {
        Place {
            data: data.to_owned(),
            targets: Vec::new(),
            missing: Vec::new(),
            misses_mdt: false,
            is_new: false,
            state,
            _lock: File::open("/dev/null").expect("it is there"),
        }
    }

    #[test]
    fn a_forgotten_ost_is_nowhere() {
        let osts = [0, 1].map(TargetId::ost);
        let known = |id: TargetId| Known {
            name: format!("testfs-{id}"),
            id: id.to_u32(),
            dir: Some(format!("/d/{id}").into()),
        };
        let state = State { targets: osts.map(known).into(), ..State::default() };
        let mut place = place(Path::new("/d"), state);
        assert_eq!(place.state.dirs().len(), 2, "no MGS can be asked");
        let fsname = "testfs".parse().expect("a name");
        place.note(fsname, &BTreeSet::from(osts), &[osts[1]]);
        assert_eq!(place.state.dirs(), [PathBuf::from("/d/OST0000")]);
        assert_eq!(place.state.targets.len(), 2, "it is not made again");
    }

    #[test]
    fn no_other_user_reads_which_client_lives() {
        let dir = std::env::temp_dir().join(format!("nacre-place-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let (path, left) = (dir.join("up.json"), dir.join("up.json.new"));
        for old in [&path, &left] {
            fs::write(old, "of an earlier version").expect("written");
        }
        write_private(&path, b"{}").expect("written");
        let mode = fs::metadata(&path).expect("it is there").permissions().mode();
        assert_eq!((mode & 0o777, fs::read(&path).ok()), (0o600, Some(b"{}".to_vec())));
        assert!(!left.exists());
        fs::remove_dir_all(&dir).expect("it is ours");
    }

    #[test]
    fn the_state_is_read_as_it_was_written() {
        let known = Known { name: "testfs-OST0001".into(), id: 7, dir: Some("/d".into()) };
        let state = State {
            net: Some(3),
            clients: vec![format!("{:x}", ClientId(5))],
            targets: vec![known],
            is_unmounted: true,
        };
        let data = std::env::temp_dir().join(format!("nacre-state-{}", std::process::id()));
        fs::create_dir_all(&data).expect("a directory");
        let (place, path) = (place(&data, state), data.join("up.json"));
        place.save().expect("written");
        assert_eq!(State::read(&path).ok(), Some(place.state));
        let text = fs::read_to_string(&path).expect("it is there");
        assert!(text.ends_with("}\n"), "its last line is whole: {text}");
        fs::remove_dir_all(&data).expect("it is ours");
        let older = serde_json::from_str::<State>(r#"{"net":3,"clients":[]}"#).expect("JSON");
        assert_eq!(older, State { net: Some(3), ..State::default() });
    }
}
