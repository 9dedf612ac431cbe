//! The addresses of targets: the MGS's configuration as last read, and the targets of this node
//! itself.

use std::cell::{Cell, Ref, RefCell};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use tokio::sync::Notify;
use types::{FsName, Net, Nid, NidAddr, TargetId, TargetKind};
use wire::config::{FsConfig, TargetInfo};

use crate::Resolve;

/// A configuration that is refused: it has a known target on another storage.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the MGS at this address serves another file system of this name: {0:?} differs")]
pub struct OtherFileSystem(pub Option<TargetId>);

/// A target with the identity of its storage.
type Identified = (TargetInfo, u128);

/// The configuration, shared with the endpoint that asks it before each attempt to connect.
///
/// A reader of the MGS feeds it by [`Directory::update`] or [`Directory::replace`], at the latest
/// when [`Directory::wait_stale`] completes.
///
/// An MGS that begins anew learns its targets again one by one. Meanwhile those that were known are
/// still here, at their addresses.
#[derive(Default)]
pub struct Directory {
    mgs: Vec<NidAddr>,
    here: BTreeSet<TargetId>,
    addr: Option<NidAddr>,
    config: RefCell<FsConfig>,
    /// A configuration has come in this run. One that was kept may be of targets that are gone.
    is_heard: Cell<bool>,
    /// Targets of `config` that were known before the MGS began anew and have not registered since.
    awaited: RefCell<Vec<Identified>>,
    /// A connect failed: worth asking the MGS again.
    stale: Notify,
    asked: RefCell<BTreeSet<TargetId>>,
}

impl Directory {
    /// Where the MGS may be; nothing where only this node may have it.
    #[must_use]
    pub fn mgs(&self) -> &[NidAddr] {
        &self.mgs
    }

    /// Of a node that reaches the MGS at `mgs`: alternatives, tried in turn.
    #[must_use]
    pub fn new(mgs: Vec<NidAddr>) -> Directory {
        Directory { mgs, ..Directory::default() }
    }

    /// The same, on a node that serves `here` at `addr` and kept `config` from an earlier run.
    #[must_use]
    pub fn serving(self, here: BTreeSet<TargetId>, addr: NidAddr, config: FsConfig) -> Directory {
        Directory { here, addr: Some(addr), config: RefCell::new(config), ..self }
    }

    /// Takes a configuration of a higher version; says whether it did. One of a lower version was
    /// overtaken on its way.
    pub fn update(&self, fresh: FsConfig) -> Result<bool, OtherFileSystem> {
        self.take(fresh, |old, fresh| fresh.version > old.version || old.targets.is_empty())
    }

    /// Takes any configuration that differs; says whether it did. For a reader that has one
    /// question at a time under way.
    pub fn replace(&self, fresh: FsConfig) -> Result<bool, OtherFileSystem> {
        self.take(fresh, |old, fresh| fresh != old)
    }

    fn take(
        &self,
        fresh: FsConfig,
        is_news: impl Fn(&FsConfig, &FsConfig) -> bool,
    ) -> Result<bool, OtherFileSystem> {
        self.asked.borrow_mut().clear();
        let mut config = self.config.borrow_mut();
        if let Some(id) = config.contradicted_by(&fresh) {
            return Err(OtherFileSystem(TargetId::from_u32(id)));
        }
        let was_heard = self.is_heard.replace(true);
        let mut awaited = match fresh.generation() > config.generation() {
            true if was_heard => identified(&config),
            true => Vec::new(),
            false => self.awaited.borrow().clone(),
        };
        awaited.retain(|(info, _)| !is_settled(info.id, &fresh));
        let fresh = with(fresh, &awaited);
        let is_news = is_news(&config, &fresh);
        if is_news {
            *config = fresh;
            *self.awaited.borrow_mut() = awaited;
        }
        Ok(is_news)
    }

    /// The configuration as it was last taken.
    #[must_use]
    pub fn config(&self) -> Ref<'_, FsConfig> {
        self.config.borrow()
    }

    /// Targets of a kind, by index. The data targets of MDTs are no OSTs here.
    #[must_use]
    pub fn targets(&self, kind: TargetKind) -> Vec<TargetId> {
        self.those(|id| id.kind == kind && !id.is_dom())
    }

    /// The data targets of MDTs, by index.
    #[must_use]
    pub fn data_targets(&self) -> Vec<TargetId> {
        self.those(TargetId::is_dom)
    }

    fn those(&self, are_meant: impl Fn(TargetId) -> bool) -> Vec<TargetId> {
        let config = self.config.borrow();
        let mut ids: Vec<_> =
            config.targets.iter().filter_map(|info| TargetId::from_u32(info.id)).collect();
        ids.retain(|id| are_meant(*id));
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Where a target registered.
    #[must_use]
    pub fn registered_at(&self, target: TargetId) -> Vec<NidAddr> {
        let config = self.config.borrow();
        let infos = config.targets.iter().filter(|info| info.id == target.to_u32());
        infos.map(|info| self.reachable(info)).collect()
    }

    /// A target that registered over the node's own loopback is where its MGS is.
    fn reachable(&self, info: &TargetInfo) -> NidAddr {
        let addr = NidAddr { nid: Nid(info.nid), port: info.port };
        let nowhere = addr.nid.net() == Net::TCP && addr.nid.addr() == Ipv4Addr::UNSPECIFIED;
        match self.mgs.first() {
            Some(mgs) if nowhere => NidAddr { nid: mgs.nid, port: info.port },
            _ => addr,
        }
    }

    /// The configuration may be out of date.
    pub fn note_stale(&self) {
        self.stale.notify_one();
    }

    /// Completes when the configuration may be out of date.
    pub async fn wait_stale(&self) {
        self.stale.notified().await;
    }
}

fn identified(config: &FsConfig) -> Vec<Identified> {
    config.targets.iter().map(|info| (info.clone(), config.uuid_of(info.id))).collect()
}

/// Whether a configuration says that a target is out of use.
fn is_off(target: TargetId, config: &FsConfig) -> bool {
    let fsname = config.fsname.parse::<FsName>();
    fsname.is_ok_and(|fsname| config.is_inactive(target, fsname))
}

/// Whether a configuration says what became of a target: it is there, or out of use.
fn is_settled(id: u32, config: &FsConfig) -> bool {
    let is_off = TargetId::from_u32(id).is_some_and(|target| is_off(target, config));
    is_off || config.targets.iter().any(|info| info.id == id)
}

/// The configuration with further targets, in its order.
fn with(config: FsConfig, further: &[Identified]) -> FsConfig {
    if further.is_empty() {
        return config;
    }
    let mut all = identified(&config);
    all.extend_from_slice(further);
    all.sort_by_key(|(info, _)| info.id);
    let (targets, uuids) = all.into_iter().unzip();
    FsConfig { targets, uuids, ..config }
}

impl Resolve for Directory {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        if self.here.contains(&target) {
            return self.addr.into_iter().collect();
        }
        if target.kind == TargetKind::Mgt {
            return self.mgs.clone();
        }
        // The first question is a plain connect; another one before the next refresh means that it
        // failed.
        if !self.asked.borrow_mut().insert(target) {
            self.stale.notify_one();
        }
        self.registered_at(target)
    }

    fn name(&self, target: TargetId) -> String {
        let fsname = self.config.borrow().fsname.parse::<FsName>();
        fsname.map_or_else(|_| target.to_string(), |fsname| target.name(fsname))
    }

    fn mdts(&self) -> Vec<u32> {
        self.targets(TargetKind::Mdt).into_iter().map(|mdt| mdt.index).collect()
    }

    fn is_off(&self, target: TargetId) -> bool {
        is_off(target, &self.config.borrow())
    }

    fn uuid(&self, target: TargetId) -> u128 {
        self.config.borrow().uuid_of(target.to_u32())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> NidAddr {
        text.parse().expect("an address")
    }

    fn config() -> FsConfig {
        let info = |id: TargetId, nid: &str| TargetInfo {
            id: id.to_u32(),
            nid: nid.parse::<Nid>().expect("a NID").0,
            port: 1988,
            instance: 1,
        };
        let targets = vec![
            info(TargetId::ost(1), "10.0.0.3@tcp"),
            info(TargetId::mdt(0), "0.0.0.0@tcp"),
            info(TargetId::dom(0), "0.0.0.0@tcp"),
        ];
        FsConfig { version: 5, targets, uuids: vec![7, 8], ..FsConfig::default() }
    }

    fn directory() -> Directory {
        let directory = Directory::new(vec![at("10.0.0.1@tcp")]);
        assert_eq!(directory.update(config()), Ok(true));
        directory
    }

    #[test]
    fn targets_are_found_where_they_registered() {
        let directory = directory();
        let text =
            |target| directory.addrs(target).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(TargetId::ost(1)), ["10.0.0.3:1988@tcp"]);
        assert_eq!(text(TargetId::mdt(0)), ["10.0.0.1:1988@tcp"]);
        assert_eq!(text(TargetId::MGT), ["10.0.0.1@tcp"]);
        assert_eq!(text(TargetId::ost(9)), [""; 0]);
        assert_eq!(directory.targets(TargetKind::Ost), [TargetId::ost(1)]);
        assert_eq!(directory.data_targets(), [TargetId::dom(0)]);
        assert_eq!(directory.uuid(TargetId::mdt(0)), 8);
    }

    #[test]
    fn a_target_is_called_after_its_file_system_once_that_is_known() {
        let (directory, ost) = (Directory::new(Vec::new()), TargetId::ost(1));
        assert_eq!(directory.name(ost), "OST0001");
        let known = FsConfig { fsname: "testfs".to_owned(), ..config() };
        assert_eq!(directory.update(known), Ok(true));
        assert_eq!(directory.name(ost), "testfs-OST0001");
        assert_eq!(directory.name(TargetId::MGT), "MGS");
    }

    #[test]
    fn a_node_finds_its_own_targets_before_they_register() {
        let here = BTreeSet::from([TargetId::ost(4), TargetId::MGT]);
        let directory = Directory::new(vec![at("10.0.0.1@tcp")]);
        let directory = directory.serving(here, at("10.0.0.9:7@tcp"), config());
        assert_eq!(directory.addrs(TargetId::ost(4)), [at("10.0.0.9:7@tcp")]);
        assert_eq!(directory.addrs(TargetId::MGT), [at("10.0.0.9:7@tcp")]);
        assert_eq!(directory.addrs(TargetId::ost(1)), [at("10.0.0.3:1988@tcp")]);
    }

    #[test]
    fn an_older_configuration_is_dropped_by_one_reader_and_taken_by_the_other() {
        let directory = directory();
        let older = || FsConfig { version: 4, ..FsConfig::default() };
        assert_eq!(directory.update(older()), Ok(false));
        assert_eq!(directory.targets(TargetKind::Mdt), [TargetId::mdt(0)]);
        assert_eq!(directory.replace(config()), Ok(false));
        assert_eq!(directory.replace(older()), Ok(true));
        assert!(directory.targets(TargetKind::Mdt).is_empty());
    }

    #[test]
    fn targets_are_known_until_they_register_with_an_mgs_that_began_anew() {
        let anew = |count: u64, those: &[usize], params: &[(&str, &str)]| FsConfig {
            fsname: "testfs".to_owned(),
            version: wire::config::first_version(1) + count,
            targets: those.iter().map(|at| config().targets[*at].clone()).collect(),
            params: params.iter().map(|(name, text)| ((*name).into(), (*text).into())).collect(),
            uuids: those.iter().map(|at| config().uuid_of(config().targets[*at].id)).collect(),
        };
        let ids = |directory: &Directory| {
            let config = directory.config();
            config.targets.iter().map(|info| (info.id, config.uuid_of(info.id))).collect::<Vec<_>>()
        };
        let mut all: Vec<_> =
            config().targets.iter().map(|info| (info.id, config().uuid_of(info.id))).collect();
        all.sort_unstable();
        let directory = directory();
        let steps: [(u64, &[usize]); 3] = [(1, &[]), (2, &[1]), (3, &[1, 2])];
        for (count, those) in steps {
            assert_eq!(directory.update(anew(count, those, &[])), Ok(true));
            assert_eq!(ids(&directory), all, "{those:?}");
            assert_eq!(directory.replace(anew(count, those, &[])), Ok(false), "nothing new");
        }
        let off = anew(4, &[1, 2], &[("testfs-OST0001.osc.active", "0")]);
        assert_eq!(directory.update(off), Ok(true));
        assert!(directory.targets(TargetKind::Ost).is_empty(), "one that is gone for good");
        assert!(directory.is_off(TargetId::ost(1)) && !directory.is_off(TargetId::ost(2)));
        assert_eq!(directory.update(anew(5, &[1, 2], &[])), Ok(true));
        assert!(directory.targets(TargetKind::Ost).is_empty());

        let kept =
            Directory::new(Vec::new()).serving(BTreeSet::new(), at("10.0.0.9:7@tcp"), config());
        assert_eq!(kept.replace(anew(1, &[1], &[])), Ok(true));
        assert!(kept.targets(TargetKind::Ost).is_empty(), "what was kept on disk may be gone");
    }

    #[test]
    fn another_file_system_of_this_name_is_refused() {
        let directory = directory();
        let other = || FsConfig { version: 9, uuids: vec![7, 9], ..config() };
        let refused = Err(OtherFileSystem(Some(TargetId::mdt(0))));
        assert_eq!(directory.update(other()), refused);
        assert_eq!(directory.replace(other()), refused);
        assert_eq!(directory.config().version, 5);
    }

    #[test]
    fn a_second_connect_between_two_refreshes_means_that_the_first_failed() {
        let directory = directory();
        let is_stale = || {
            let mut waiting = std::pin::pin!(directory.wait_stale());
            let mut context = std::task::Context::from_waker(std::task::Waker::noop());
            waiting.as_mut().poll(&mut context).is_ready()
        };
        directory.addrs(TargetId::ost(1));
        directory.addrs(TargetId::MGT);
        directory.addrs(TargetId::MGT);
        assert!(!is_stale());
        directory.addrs(TargetId::ost(1));
        assert!(is_stale());
        assert_eq!(directory.update(config()), Ok(false));
        directory.addrs(TargetId::ost(1));
        assert!(!is_stale());
    }
}
