//! An MGS whose records are lost, while the servers of its targets run.

use std::fs;
use std::path::PathBuf;
use std::rc::Rc;

use daemons::format;
use daemons::machine::MachineOptions;
use daemons::server::{Among, Awaited, Server, ServerOptions, Trust};
use endpoint::{Call, Directory, Endpoint, EndpointConfig, ImportConfig};
use types::{ClientId, NidAddr, Span, TargetId};
use wire::Opcode;
use wire::config::FsConfig;

/// For whatever happens within seconds.
const PATIENCE: Span = Span::secs(60);
/// Between two looks.
const PAUSE: Span = Span::millis(50);
/// An MDT, its data, an OST.
const TARGETS: usize = 3;

fn options(dirs: Vec<PathBuf>, listen: NidAddr, mgs: NidAddr) -> ServerOptions {
    ServerOptions {
        dirs,
        listen,
        mgs: vec![mgs],
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

/// Starts; a run before this one in the same process may have its lock for a moment.
async fn start(env: &env::Env, options: &ServerOptions) -> Rc<Server> {
    let begun = env.now();
    loop {
        match Server::start(env, options).await {
            Ok(server) => return server,
            Err(error) => assert!(env.now() - begun < PATIENCE, "{error:#}"),
        }
        env.sleep(PAUSE).await;
    }
}

/// What the MGS says when it knows all targets.
async fn known(env: &env::Env, mgs: NidAddr) -> FsConfig {
    let import = ImportConfig { client: ClientId(77), ..ImportConfig::default() };
    let config = EndpointConfig { import, ..EndpointConfig::default() };
    let endpoint = Endpoint::new(env, config, Rc::new(Directory::new(vec![mgs])));
    loop {
        let name = wire::config::encode(&"testfs".to_owned());
        let mut call = Call::new(Opcode::MgsConfig, vec![name]);
        call.patience = Some(Span::secs(2));
        let answer = endpoint.remote(TargetId::MGT).call(call).await;
        let config = answer.ok().and_then(|answer| FsConfig::decode(&answer.reply.buf(1)));
        if let Some(config) = config.filter(|config| config.targets.len() == TARGETS) {
            endpoint.shutdown().await;
            return config;
        }
        env.sleep(PAUSE).await;
    }
}

#[test]
fn servers_that_run_register_again() {
    let dir = std::env::temp_dir().join(format!("nacre-lost-mgs-{}", std::process::id()));
    format::run(&format::Options {
        fsname: "testfs".parse().expect("a name"),
        targets: vec![TargetId::MGT, TargetId::mdt(0), TargetId::ost(0)],
        mgs: Vec::new(),
        reformat: false,
        dir: dir.clone(),
    })
    .expect("formats");
    let at: NidAddr = "127.0.62.1:4988@tcp".parse().expect("an address");
    let beside: NidAddr = "127.0.62.2:4988@tcp".parse().expect("an address");
    let (mgs_dir, others) = (dir.join("MGS"), ["testfs-MDT0000", "testfs-OST0000"]);
    let mgs = options(vec![mgs_dir.clone()], at, at);
    let others = options(others.map(|name| dir.join(name)).into(), beside, at);
    env_os::run(env_os::OsConfig::default(), |env| async move {
        let first = start(&env, &mgs).await;
        let server = start(&env, &others).await;
        env.timeout(PATIENCE, server.registered()).await.expect("they register");
        let before = env.timeout(PATIENCE, known(&env, at)).await.expect("all are known");
        first.stop().await;
        drop(first);
        fs::remove_dir_all(mgs_dir.join("records")).expect("removed");

        let second = start(&env, &ServerOptions { trust: Trust::ResetEmpty, ..mgs }).await;
        let after = env.timeout(PATIENCE, known(&env, at)).await.expect("they register again");
        assert_eq!((&after.targets, &after.uuids), (&before.targets, &before.uuids));
        assert!(after.generation() > before.generation(), "it is news to mounts");
        server.stop().await;
        second.stop().await;
    });
    fs::remove_dir_all(&dir).expect("cleaned up");
}
