//! Where targets are, as the MGS said last.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::net::Ipv4Addr;

use endpoint::Resolve;
use tokio::sync::Notify;
use types::{Net, Nid, NidAddr, TargetId, TargetKind};
use wire::config::{FsConfig, TargetInfo};

/// The configuration, shared with the endpoint that asks it before each attempt to connect.
pub(crate) struct Registry {
    mgs: Vec<NidAddr>,
    config: RefCell<FsConfig>,
    /// Somebody failed to connect: worth asking the MGS again.
    stale: Notify,
    asked: RefCell<BTreeSet<TargetId>>,
    version: Cell<u64>,
}

impl Registry {
    pub(crate) fn new(mgs: Vec<NidAddr>) -> Registry {
        Registry {
            mgs,
            config: RefCell::new(FsConfig::default()),
            stale: Notify::new(),
            asked: RefCell::default(),
            version: Cell::new(0),
        }
    }

    /// The newest word of the MGS; says whether it is news. An older version comes late and is
    /// dropped.
    pub(crate) fn update(&self, config: FsConfig) -> bool {
        self.asked.borrow_mut().clear();
        if let Some(id) = self.config.borrow().contradicted_by(&config) {
            tracing::warn!(
                target_id = id,
                "the MGS at this address serves another file system of this name: not believed"
            );
            return false;
        }
        let news = config.version > self.version.get() || self.config.borrow().targets.is_empty();
        if news {
            self.version.set(config.version);
            *self.config.borrow_mut() = config;
        }
        news
    }

    /// Targets of a kind, by index.
    pub(crate) fn targets(&self, kind: TargetKind) -> Vec<TargetId> {
        let config = self.config.borrow();
        let mut ids: Vec<_> =
            config.targets.iter().filter_map(|info| TargetId::from_u32(info.id)).collect();
        ids.retain(|id| id.kind == kind);
        ids.sort_unstable();
        ids.dedup();
        ids
    }

    /// Where a target is, for people.
    pub(crate) fn addr_text(&self, target: TargetId) -> String {
        let config = self.config.borrow();
        let info = config.targets.iter().find(|info| info.id == target.to_u32());
        info.map_or_else(String::new, |info| self.reachable(info).to_string())
    }

    pub(crate) fn param(&self, name: &str) -> Option<String> {
        let config = self.config.borrow();
        config.params.iter().find(|(param, _)| param == name).map(|(_, value)| value.clone())
    }

    pub(crate) fn params(&self) -> Vec<(String, String)> {
        self.config.borrow().params.clone()
    }

    /// Completes when the configuration may be out of date.
    pub(crate) async fn wait_stale(&self) {
        self.stale.notified().await;
    }
}

impl Resolve for Registry {
    fn addrs(&self, target: TargetId) -> Vec<NidAddr> {
        if target.kind == TargetKind::Mgt {
            return self.mgs.clone();
        }
        // The first question is a plain connect; another one before the next refresh means that it
        // failed.
        if !self.asked.borrow_mut().insert(target) {
            self.stale.notify_one();
        }
        let config = self.config.borrow();
        config
            .targets
            .iter()
            .filter(|info| info.id == target.to_u32())
            .map(|info| self.reachable(info))
            .collect()
    }

    fn uuid(&self, target: TargetId) -> u128 {
        self.config.borrow().uuid_of(target.to_u32())
    }
}

impl Registry {
    /// A target that registered over the node's own loopback is where its MGS is.
    fn reachable(&self, info: &TargetInfo) -> NidAddr {
        let addr = NidAddr { nid: Nid(info.nid), port: info.port };
        let nowhere = addr.nid.net() == Net::TCP && addr.nid.addr() == Ipv4Addr::UNSPECIFIED;
        match self.mgs.first() {
            Some(mgs) if nowhere => NidAddr { nid: mgs.nid, port: info.port },
            _ => addr,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn registry() -> Registry {
        let registry = Registry::new(vec!["10.0.0.1@tcp".parse().expect("a NID")]);
        let info = |id: TargetId, nid: &str| TargetInfo {
            id: id.to_u32(),
            nid: nid.parse::<Nid>().expect("a NID").0,
            port: 1988,
            instance: 1,
        };
        let targets =
            vec![info(TargetId::ost(1), "10.0.0.3@tcp"), info(TargetId::mdt(0), "0.0.0.0@tcp")];
        registry.update(FsConfig { version: 5, targets, ..FsConfig::default() });
        registry
    }

    #[test]
    fn targets_are_found_where_they_registered() {
        let registry = registry();
        let text =
            |target| registry.addrs(target).iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(text(TargetId::ost(1)), ["10.0.0.3:1988@tcp"]);
        assert_eq!(text(TargetId::mdt(0)), ["10.0.0.1:1988@tcp"]);
        assert_eq!(text(TargetId::MGT), ["10.0.0.1@tcp"]);
        assert_eq!(text(TargetId::ost(9)), [""; 0]);
        assert_eq!(registry.targets(TargetKind::Ost), [TargetId::ost(1)]);
    }

    #[test]
    fn an_older_configuration_is_dropped() {
        let registry = registry();
        assert!(!registry.update(FsConfig { version: 4, ..FsConfig::default() }));
        assert_eq!(registry.targets(TargetKind::Mdt), [TargetId::mdt(0)]);
    }
}
