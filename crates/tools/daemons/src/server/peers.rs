//! A server's knowledge of its peers: the MGS's configuration in the endpoint's [`Directory`], and
//! the OSTs in it. A copy is on disk for the time when the MGS is away.

use std::cell::RefCell;
use std::path::{Path, PathBuf};
use std::rc::Rc;

use endpoint::{Directory, Registration};
use mdt::OstAt;
use tokio::sync::watch;
use types::{FsName, Nid, NidAddr, TargetId, TargetKind};
use wire::config::{self, FsConfig, TargetInfo};

use crate::targets::{self, TargetDir};

/// Name of the kept configuration in a target's directory.
const FILE: &str = "peers";

/// A server's peers.
pub(crate) struct Peers {
    fsname: Option<FsName>,
    directory: Rc<Directory>,
    /// Address of this node.
    own: Nid,
    osts: RefCell<Vec<OstAt>>,
    keep_in: Vec<PathBuf>,
    waiting: watch::Sender<usize>,
    /// What has registered, for who watches over it.
    registered: RefCell<Vec<Registration>>,
    awaited: Awaited,
    known: watch::Sender<Awaited>,
}

/// Numbers of targets that an MDT must know before it counts as registered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Awaited {
    pub mdts: u32,
    pub osts: u32,
}

impl Awaited {
    fn of(config: &FsConfig) -> Awaited {
        let ids = || config.targets.iter().filter_map(|info| TargetId::from_u32(info.id));
        let count = |those: usize| u32::try_from(those).unwrap_or(u32::MAX);
        Awaited {
            mdts: count(ids().filter(|id| id.kind == TargetKind::Mdt).count()),
            osts: count(ids().filter(|id| id.is_ost()).count()),
        }
    }

    /// Whether as many are known.
    fn are_among(self, known: Awaited) -> bool {
        known.mdts >= self.mdts && known.osts >= self.osts
    }
}

/// What a server is told of its peers when it starts.
pub(crate) struct Told<'a> {
    /// Where the MGS is, if not where the targets were told when they were formatted.
    pub(super) mgs: &'a [NidAddr],
    /// Where this node listens.
    pub(super) addr: NidAddr,
    /// An MDT counts as registered only when it knows this many targets.
    pub(super) awaited: Awaited,
}

impl Peers {
    /// Of a node with these targets, listening at `addr`.
    pub(super) fn new(found: &[TargetDir], told: &Told<'_>) -> Peers {
        let formatted =
            found.iter().map(|target| target.superblock.mgs.clone()).find(|mgs| !mgs.is_empty());
        let mgs =
            if told.mgs.is_empty() { formatted.unwrap_or_default() } else { told.mgs.to_vec() };
        let keeps = found.iter().filter(|target| !target.superblock.target.is_dom());
        let keep_in: Vec<_> = keeps.map(|target| target.dir.join(FILE)).collect();
        let config = found
            .iter()
            .filter_map(|target| kept_in(&target.dir))
            .max_by_key(|config| config.version);
        let others =
            found.iter().filter(|target| target.superblock.target.kind != TargetKind::Mgt).count();
        let has_mdt = found.iter().any(|target| target.superblock.target.kind == TargetKind::Mdt);
        let here = found.iter().map(|target| target.superblock.target).collect();
        let directory = Directory::new(mgs).serving(here, told.addr, config.unwrap_or_default());
        let peers = Peers {
            awaited: if has_mdt { told.awaited } else { Awaited::default() },
            known: watch::channel(Awaited::default()).0,
            fsname: targets::fsname_of(found),
            directory: Rc::new(directory),
            own: told.addr.nid,
            osts: RefCell::default(),
            keep_in,
            waiting: watch::channel(others).0,
            registered: RefCell::default(),
        };
        peers.list_osts();
        peers
    }

    /// Where they are.
    pub(super) fn directory(&self) -> Rc<Directory> {
        self.directory.clone()
    }

    /// Whether a server is at `nid`: on this machine, where only root and the own user are let in,
    /// or where the MGS knows one. If not, the MGS is asked soon whether one has come.
    pub(super) fn has_server_at(&self, nid: Nid) -> bool {
        let is_local = nid.is_on_this_machine();
        let targets: Vec<_> = {
            let config = self.directory.config();
            config.targets.iter().filter_map(|info| TargetId::from_u32(info.id)).collect()
        };
        let is_there = |target| {
            self.directory.registered_at(target).into_iter().any(|addr: NidAddr| addr.nid == nid)
        };
        let is_known = is_local || nid == self.own || targets.into_iter().any(is_there);
        if !is_known {
            self.directory.note_stale();
        }
        is_known
    }

    /// Reads the OSTs out of the configuration.
    fn list_osts(&self) {
        let osts =
            self.fsname.map_or_else(Vec::new, |fsname| osts_of(&self.directory.config(), fsname));
        self.known.send_replace(Awaited::of(&self.directory.config()));
        *self.osts.borrow_mut() = osts;
    }

    /// The file system, unless this is an MGS alone.
    pub(super) fn fsname(&self) -> Option<FsName> {
        self.fsname
    }

    /// The data targets of MDTs.
    pub(super) fn data_targets(&self) -> Vec<TargetId> {
        self.directory.data_targets()
    }

    /// Names of all MDTs, by index.
    pub(super) fn mdts(&self) -> Vec<String> {
        let Some(fsname) = self.fsname else { return Vec::new() };
        self.directory.targets(TargetKind::Mdt).iter().map(|id| id.name(fsname)).collect()
    }

    /// All OSTs, by index: asked with every file that is made.
    pub(super) fn osts(&self) -> Vec<OstAt> {
        self.osts.borrow().clone()
    }

    /// What the MGS said last.
    pub(super) fn config(&self) -> FsConfig {
        self.directory.config().clone()
    }

    pub(super) fn permanent(&self) -> Vec<(String, String)> {
        self.directory.config().params.clone()
    }

    pub(super) fn set(&self, fresh: FsConfig) {
        let (known, said) = (self.directory.config().version, fresh.version);
        match self.directory.replace(fresh) {
            Ok(false) => return,
            Ok(true) => {}
            Err(error) => return tracing::error!("ignoring configuration: {error}"),
        }
        if said < known {
            tracing::error!("{}", gone_back(known, said));
        }
        self.list_osts();
        let bytes = config::encode(&*self.directory.config());
        for path in &self.keep_in {
            if let Err(error) = replace(path, &bytes) {
                tracing::warn!("{}: the configuration is not kept: {error}", path.display());
            }
        }
    }

    /// One more target is registered.
    pub(super) fn one_registered(&self, registration: Registration) {
        self.registered.borrow_mut().push(registration);
        self.waiting.send_modify(|waiting| *waiting = waiting.saturating_sub(1));
    }

    /// What has registered since this was asked last.
    pub(super) fn take_registered(&self) -> Vec<Registration> {
        self.registered.take()
    }

    /// Completes when all are, and as many targets are known as are awaited.
    pub(super) async fn registered(&self) {
        let mut waiting = self.waiting.subscribe();
        // the sender lives as long as we do
        let _ = waiting.wait_for(|waiting| *waiting == 0).await;
        let _ = self.known.subscribe().wait_for(|known| self.awaited.are_among(*known)).await;
    }
}

/// A running MGS never goes back: its storage was replaced, and nobody said so.
fn gone_back(known: u64, said: u64) -> String {
    format!(
        "the MGS went back from version {known} of its configuration to {said}: its records are an older copy, or new. \
         Parameters, pools and targets of the time between are lost, and mounts that run ignore it. Start the MGS once with \
         `nacre serve --older-copy`, and set again what was changed since the copy"
    )
}

/// The configuration that the target in `dir` saw last. A hint: one that cannot be read is none.
pub(crate) fn kept_in(dir: &Path) -> Option<FsConfig> {
    FsConfig::decode(&std::fs::read(dir.join(FILE)).ok()?)
}

/// By index. `testfs-OST0002.osc.active=0` takes one out of use: it gets no new files.
fn osts_of(config: &FsConfig, fsname: FsName) -> Vec<OstAt> {
    let ost = |info: &TargetInfo| {
        let id = TargetId::from_u32(info.id).filter(|id| id.is_ost())?;
        Some(OstAt { index: id.index, node: info.nid, is_active: !config.is_inactive(id, fsname) })
    };
    let mut osts: Vec<OstAt> = config.targets.iter().filter_map(ost).collect();
    osts.sort_unstable_by_key(|ost| ost.index);
    osts
}

/// Whole or not at all: a torn file would only be ignored, but the old one is worth more.
fn replace(path: &Path, bytes: &[u8]) -> std::io::Result<()> {
    let fresh = path.with_extension("new");
    std::fs::write(&fresh, bytes)?;
    std::fs::rename(&fresh, path)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn servers_are_where_the_mgs_knows_them_and_on_this_machine() {
        let at = |text: &str| -> NidAddr { text.parse().expect("an address") };
        let mgs = [at("10.0.0.1@tcp")];
        let told = Told { mgs: &mgs, addr: at("10.0.0.2@tcp"), awaited: Awaited::default() };
        let peers = Peers::new(&[], &told);
        let is_server = |nid: &str| peers.has_server_at(nid.parse().expect("a NID"));
        assert!(is_server("0@lo") && is_server("127.0.0.9@tcp") && is_server("10.0.0.2@tcp"));
        assert!(!is_server("10.0.0.3@tcp") && !is_server("10.0.0.1@tcp"));
        let info = |index: u32, nid: &str| TargetInfo {
            id: TargetId::ost(index).to_u32(),
            nid: nid.parse::<Nid>().expect("a NID").0,
            port: 1,
            instance: 1,
        };
        // one that listens everywhere is where the MGS is
        let targets = vec![info(0, "10.0.0.3@tcp"), info(1, "0.0.0.0@tcp")];
        peers.set(FsConfig { version: 1, targets, ..FsConfig::default() });
        assert!(is_server("10.0.0.3@tcp") && is_server("10.0.0.1@tcp"));
        assert!(!is_server("10.0.0.4@tcp"));
    }

    #[test]
    fn an_mgs_that_goes_back_is_told_with_the_way_out() {
        let text = gone_back(9, 5);
        assert!(text.contains("from version 9 of its configuration to 5"), "{text}");
        assert!(text.contains("--older-copy"), "{text}");
    }

    #[test]
    fn an_mdt_waits_for_further_mdts_and_for_osts_alike() {
        let info = |id: TargetId| TargetInfo { id: id.to_u32(), nid: 7, port: 1, instance: 1 };
        let ids = [TargetId::mdt(0), TargetId::dom(0), TargetId::mdt(1), TargetId::ost(0)];
        let config = FsConfig { targets: ids.map(info).into(), ..FsConfig::default() };
        let known = Awaited::of(&config);
        assert_eq!(known, Awaited { mdts: 2, osts: 1 });
        assert!(known.are_among(known) && Awaited::default().are_among(known));
        assert!(!Awaited { mdts: 3, osts: 1 }.are_among(known));
        assert!(!Awaited { mdts: 2, osts: 2 }.are_among(known));
    }

    #[test]
    fn osts_come_by_index_and_may_be_out_of_use() {
        let info = |id: TargetId| TargetInfo {
            id: id.to_u32(),
            nid: u64::from(id.index) + 7,
            port: 1,
            instance: 1,
        };
        let params = vec![("testfs-OST0002.osc.active".to_owned(), "0".to_owned())];
        let ids = [TargetId::mdt(0), TargetId::ost(2), TargetId::dom(0), TargetId::ost(1)];
        let targets = ids.map(info).into();
        let config = FsConfig { targets, params, ..FsConfig::default() };
        let ost = |index, is_active| OstAt { index, node: u64::from(index) + 7, is_active };
        assert_eq!(
            osts_of(&config, "testfs".parse().expect("a name")),
            [ost(1, true), ost(2, false)]
        );
        assert_eq!(
            osts_of(&config, "other".parse().expect("a name")),
            [ost(1, true), ost(2, true)]
        );
    }
}
