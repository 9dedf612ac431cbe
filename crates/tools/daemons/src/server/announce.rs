//! Registration with the MGS, and its configuration read again and again.

use std::rc::Rc;

use endpoint::{Call, CallError};
use types::{Span, TargetId};
use wire::Opcode;
use wire::config::{self, FsConfig, Register, TargetInfo};

use super::Server;
use crate::targets::TargetDir;

/// How often the configuration is read: often at first, when the peers of a fresh file system come
/// one by one.
const EVERY_FIRST: Span = Span::millis(50);
const FIRST_ROUNDS: u32 = 600;
const EVERY_LATER: Span = Span::secs(5);
/// Pause after a refused registration.
const PAUSE: Span = Span::secs(2);
/// One question's patience; the next one may find the MGS elsewhere.
const PATIENCE: Span = Span::secs(30);

/// The first question's: behind it a node takes over the permanent parameters that it knows from an
/// earlier run.
const PATIENCE_FIRST: Span = Span::secs(5);

/// Starts both, for every target but the MGT.
pub(super) fn start(server: &Rc<Server>, found: &[TargetDir]) {
    let Some(fsname) = server.peers.fsname() else { return };
    for target in found.iter().filter(|target| target.superblock.target != TargetId::MGT) {
        let register = Register {
            fsname: fsname.to_string(),
            target: TargetInfo {
                id: target.superblock.target.to_u32(),
                nid: server.addr.nid.0,
                port: server.addr.port,
                instance: instance_of(server, target.superblock.target),
            },
            uuid: target.superblock.uuid,
        };
        let (server, name) = (server.clone(), target.name());
        server
            .env
            .clone()
            .spawn("register", async move { announce(&server, &name, &register).await });
    }
    let watcher = Rc::downgrade(server);
    let env = server.env.clone();
    server.env.spawn("configuration", async move {
        let mut round = 0;
        while let Some(server) = watcher.upgrade() {
            let patience = if round == 0 { PATIENCE_FIRST } else { PATIENCE };
            if let Some(config) = read(&server, &fsname.to_string(), patience).await {
                server.peers.set(config);
            }
            server.take_permanent().await;
            drop(server);
            round += 1;
            env.sleep(if round < FIRST_ROUNDS { EVERY_FIRST } else { EVERY_LATER }).await;
        }
    });
}

fn instance_of(server: &Server, id: TargetId) -> u64 {
    let found =
        server.targets.iter().map(|target| target.body.target()).find(|target| target.id() == id);
    found.map_or(0, |target| target.exports().instance().0)
}

async fn announce(server: &Server, name: &str, register: &Register) {
    let remote = server.endpoint.remote(TargetId::MGT);
    let mut told = false;
    loop {
        let mut call = Call::new(Opcode::MgsRegister, vec![config::encode(register)]);
        call.patience = Some(PATIENCE);
        match remote.call(call).await {
            Ok(_) => {
                tracing::info!("{name}: registered with the MGS");
                return server.peers.one_registered();
            }
            Err(CallError::Errno(types::Errno::EADDRINUSE)) => {
                return server
                    .fail(format!("{name}: the MGS knows another storage under this name; format with another --index"));
            }
            Err(CallError::Shutdown) => return,
            Err(error) => {
                if !told {
                    tracing::warn!("{name}: waits for the MGS: {error}");
                }
                told = true;
            }
        }
        server.env.sleep(PAUSE).await;
    }
}

async fn read(server: &Server, fsname: &str, patience: Span) -> Option<FsConfig> {
    let mut call = Call::new(Opcode::MgsConfig, vec![config::encode(&fsname.to_owned())]);
    call.patience = Some(patience);
    let answer = server.endpoint.remote(TargetId::MGT).call(call).await.ok()?;
    FsConfig::decode(answer.reply.bufs.get(1)?)
}
