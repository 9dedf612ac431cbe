//! The published CPT settings, as virtual partitions of a real node on loopback. They determine
//! which partition handles which requests.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::rc::Rc;

use endpoint::{Endpoint, EndpointConfig};
use env::{CptTable, PortalRotor};
use env_os::OsConfig;
use selftest::{SelfTest, SelfTestConfig};
use service::{Node, NodeConfig};
use types::{ClientId, CptIndex, Nid, TargetId};

use super::rpc::{At, call};
use super::{Test, link};

/// Clients; their NIDs are 127.0.1.1@tcp and so on, whose bytes sum up to 130 + host.
const CLIENTS: u64 = 12;
const PINGS: u64 = 24;
const ALL: u64 = CLIENTS * PINGS;

struct Row {
    name: &'static str,
    cpts: u32,
    links: &'static str,
    services: &'static str,
    off: Vec<u64>,
    on: Vec<u64>,
}

/// What `(130 + host) mod cpts` gives: with 1, 2, 4, 6 and 12 partitions every one has its share.
fn even(cpts: u64) -> Vec<u64> {
    vec![ALL / cpts; cpts as usize]
}

fn rows() -> Vec<Row> {
    let row =
        |name, cpts: u32, links, services, off, on| Row { name, cpts, links, services, off, on };
    let all = |name, cpts: u32| row(name, cpts, "", "", even(cpts.into()), even(cpts.into()));
    vec![
        all("1:1", 1),
        all("4:4", 4),
        all("6:6", 6),
        all("12:12", 12),
        all("2:2", 2),
        row("1:3", 4, "[0]", "[1-3]", vec![0, 96, 96, 96], vec![0, 96, 96, 96]),
        row("2:2 of 4", 4, "[0,1]", "[2,3]", vec![0, 0, 144, 144], vec![0, 0, 144, 144]),
        row("2:4", 6, "[0,1]", "[2-5]", vec![0, 0, 72, 72, 72, 72], vec![0, 0, 72, 72, 72, 72]),
        // Hosts 131 to 142 leave 131 mod 5 = 1, 2, 3, 4, 0, ..: three clients for 1 and 2, two for
        // the others.
        row("5:5", 5, "", "", vec![48, 72, 72, 48, 48], vec![58, 58, 58, 57, 57]),
        row("links on 1 of 3", 3, "[2]", "", vec![0, 0, 288], vec![96, 96, 96]),
    ]
}

fn served(row: &Row, rotor: PortalRotor, lnd_threads: u32) -> Vec<u64> {
    let table = CptTable::new(NonZeroU32::MIN, NonZeroU32::MIN, row.cpts, true).expect("virtual");
    let list = |text: &str| {
        if text.is_empty() { Vec::new() } else { table.parse_list(text).expect("they exist") }
    };
    let link_cpts: Vec<CptIndex> = list(row.links);
    let os = OsConfig {
        lnd_threads,
        cpts: Some(table.clone()),
        link_cpts: link_cpts.clone(),
        ..OsConfig::default()
    };
    let services = list(row.services);
    env_os::run(os, |env| async move {
        let spec = &service::spec::LST;
        let mut config = NodeConfig { link_cpts, portal_rotor: rotor, ..NodeConfig::new(table) };
        if !services.is_empty() {
            config.service_cpts = BTreeMap::from([(spec.name, services)]);
        }
        let node = Node::new(&env, config);
        node.add_target(SelfTest::new(&env, SelfTestConfig { nid: None, is_open: true }));
        let listener = env.listen(link::local(0)).await.expect("a loopback port");
        let at = listener.addr();
        node.serve(listener);
        for host in 1..=CLIENTS {
            let nid =
                Nid::tcp(std::net::Ipv4Addr::new(127, 0, 1, u8::try_from(host).expect("twelve")));
            let settings = EndpointConfig {
                import: endpoint::ImportConfig {
                    client: ClientId(host.into()),
                    ..Default::default()
                },
                nid: Some(nid),
                ..EndpointConfig::default()
            };
            let endpoint = Endpoint::new(&env, settings, Rc::new(At(at)));
            let remote = endpoint.remote(TargetId::LST);
            for _ in 0..PINGS {
                remote.call(call(Test::Ping, 0)).await.expect("answered");
            }
            endpoint.shutdown().await;
        }
        let served = node.served_by_cpt(spec);
        node.stop().await;
        served
    })
}

#[test]
fn requests_reach_the_cpts_that_each_setting_names() {
    for row in rows() {
        for lnd_threads in [0, 1] {
            for (rotor, expected) in [
                (PortalRotor::Off, &row.off),
                (PortalRotor::RrRt, &row.off),
                (PortalRotor::HashRt, &row.off),
                (PortalRotor::On, &row.on),
            ] {
                let got = served(&row, rotor, lnd_threads);
                assert_eq!(
                    &got, expected,
                    "{} {rotor:?}, {lnd_threads} LND threads per CPT",
                    row.name
                );
            }
        }
    }
}
