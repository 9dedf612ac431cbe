//! Nodes: `nacre lst-node`, which only takes part in self-tests, and the self-test of a mount.

use std::io::Write;
use std::num::NonZeroU32;
use std::rc::Rc;

use anyhow::Result;
use ctl::{Ask, Device, Failure, Reply, Who};
use env::{CptTable, Env, LocalFuture};
use env_os::OsConfig;
use params::ParamTree;
use selftest::{SelfTest, SelfTestConfig};
use service::{Node, NodeConfig};
use tracing::level_filters::LevelFilter;
use types::{Creds, Nid, NidAddr, NidList};
use wire::CrcMode;

use crate::log;
use crate::signals::Signals;

/// What `nacre lst-node` runs.
#[derive(Clone, Debug)]
pub struct NodeOptions {
    /// A node for each of these, all in this process.
    pub nids: NidList,
    pub port: u16,
    /// Accept plaintext on addresses that are not loopback.
    pub insecure: bool,
    /// Bulk data without checksum.
    pub no_bulk_crc: bool,
}

/// Serves self-tests until a signal.
pub fn node(options: &NodeOptions) -> Result<u8> {
    log::init(LevelFilter::INFO, log::LogFormat::Text);
    super::raise_descriptors();
    let nids = options.nids.nids()?;
    let crc = if options.no_bulk_crc { CrcMode::NoBulk } else { CrcMode::All };
    let config = OsConfig { insecure: options.insecure, crc, ..OsConfig::default() };
    env_os::run(config.clone(), |env| async move {
        let mut signals = Signals::new()?;
        let mut nodes = Vec::new();
        for nid in &nids {
            // an environment of its own: a node's messages are counted apart from its neighbours'
            let own = env_os::another(config.clone());
            nodes.push(listen(&own, NidAddr { nid: *nid, port: options.port }, Some(*nid)).await?);
        }
        let params = ParamTree::new();
        let testers: Vec<_> = nodes.iter().map(|(_, tester)| Rc::clone(tester)).collect();
        selftest::register(&params, &testers);
        let _control =
            ctl::server::serve(&env, "lst-node", &params, Rc::new(Control(nids.clone())))
                .inspect_err(|error| tracing::warn!("no control socket: {error}")) // lctl will not find us
                .ok();
        let mut out = std::io::stdout();
        let _ = writeln!(out, "ready").and_then(|()| out.flush()); // nobody need listen
        let signal = signals.next().await;
        tracing::info!("{signal}: stopping");
        for (node, _) in &nodes {
            node.stop().await;
        }
        Ok(0)
    })
}

/// A node of its own at `at`.
async fn listen(env: &Env, at: NidAddr, own: Option<Nid>) -> Result<(Rc<Node>, Rc<SelfTest>)> {
    let one = NonZeroU32::MIN;
    let node = Node::new(env, NodeConfig::new(CptTable::new(one, one, 1, false)?));
    let tester = SelfTest::new(env, SelfTestConfig { nid: own, is_open: false });
    node.add_target(tester.clone());
    let listener = env.listen(at).await?; // the error names the address
    node.serve(listener);
    Ok((node, tester))
}

/// The self-test of a mount, where it can listen; without it the mount takes part in no self-test,
/// that is all.
pub(crate) async fn listen_beside(env: &Env, at: NidAddr) -> Option<(Rc<Node>, Rc<SelfTest>)> {
    let own = (!at.nid.addr().is_unspecified()).then_some(at.nid);
    match listen(env, at, own).await {
        Ok(served) => Some(served),
        Err(error) => {
            tracing::info!("no self-test here: {error:#}");
            None
        }
    }
}

struct Control(Vec<Nid>);

impl ctl::server::Answers for Control {
    fn who(&self) -> Who {
        Who { kind: "lst-node".into(), pid: std::process::id(), ..Who::default() }
    }

    fn devices(&self) -> Vec<Device> {
        Vec::new()
    }

    fn nids(&self) -> Vec<String> {
        self.0.iter().map(ToString::to_string).collect()
    }

    fn special(&self, _ask: Ask, _creds: Creds) -> LocalFuture<'static, Result<Reply, Failure>> {
        Box::pin(async { Err(Failure::of(types::Errno::ENOTTY)) })
    }
}
