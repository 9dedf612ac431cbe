//! Storage that fails under a node of several targets.

use std::fs;
use std::path::{Path, PathBuf};

use types::{NidAddr, Span, TargetId};

use super::{Among, Awaited, Ended, Server, ServerOptions, Trust};
use crate::format;
use crate::machine::MachineOptions;

/// For whatever happens at once.
const PATIENCE: Span = Span::secs(60);
/// For what must not happen.
const MOMENT: Span = Span::millis(300);

/// An MDT with its data and an OST, whose MGS is away.
fn options(dir: &Path) -> ServerOptions {
    format::run(&format::Options {
        fsname: "testfs".parse().expect("a name"),
        targets: vec![TargetId::MGT, TargetId::mdt(0), TargetId::ost(0)],
        mgs: Vec::new(),
        reformat: false,
        dir: dir.to_owned(),
    })
    .expect("formats");
    let at =
        |host: u8| -> NidAddr { format!("127.0.64.{host}:4988@tcp").parse().expect("an address") };
    let dirs: Vec<PathBuf> = ["testfs-MDT0000", "testfs-OST0000"].map(|name| dir.join(name)).into();
    ServerOptions {
        dirs,
        listen: at(1),
        mgs: vec![at(2)],
        abort_recovery: false,
        trust: Trust::Whole,
        dead_clients: Vec::new(),
        no_permanent: false,
        machine: MachineOptions::default().on_this_machine().expect("any machine"),
        metrics: None,
        commit_interval: Span::secs(1),
        devices: Vec::new(),
        awaited: Awaited::default(),
        among: Among::default(),
    }
}

fn fail(server: &Server, target: TargetId) {
    let found = server.targets.iter().find(|running| running.body.id() == target);
    found.expect("it is served").body.fail("a test");
}

#[test]
fn a_node_goes_on_until_the_storage_of_its_last_target_fails() {
    let dir = std::env::temp_dir().join(format!("nacre-failures-{}", std::process::id()));
    let options = options(&dir);
    env_os::run(env_os::OsConfig::default(), |env| async move {
        let server = Server::start(&env, &options).await.expect("it starts without its MGS");
        fail(&server, TargetId::ost(0));
        let first = env.timeout(PATIENCE, server.degraded()).await.expect("it is noticed");
        let line = "testfs-OST0000: storage failed: a test".to_owned();
        assert_eq!(first, Ended::Storage(TargetId::ost(0), line));
        assert!(env.timeout(MOMENT, server.ended()).await.is_none(), "the MDT goes on");
        fail(&server, TargetId::mdt(0)); // and with it its data target
        let last = env.timeout(PATIENCE, server.ended()).await.expect("the node ends");
        assert!(matches!(last, Ended::Storage(..)), "{last}");
        let _it_has_failed = env.timeout(PATIENCE, server.abandon()).await;
    });
    fs::remove_dir_all(&dir).expect("cleaned up");
}
