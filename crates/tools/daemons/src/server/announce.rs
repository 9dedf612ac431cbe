//! Registration with the MGS, and repeated reads of its configuration.

use std::rc::Rc;

use endpoint::{Call, CallError};
use types::{Errno, Span, TargetId};
use wire::Opcode;
use wire::config::{self, FsConfig, Register, TargetInfo};

use super::{Ended, Server};
use crate::targets::TargetDir;

/// How often the configuration is read: often at first, when the peers of a fresh file system come
/// one by one.
const EVERY_FIRST: Span = Span::millis(50);
const FIRST_ROUNDS: u32 = 600;
const EVERY_LATER: Span = Span::secs(4);
/// How often it is read at most afterwards, where a peer is not where it is known to be.
const EVERY_STALE: Span = Span::secs(1);
/// How often a node of the MGS alone looks at what it keeps itself.
const EVERY_ALONE: Span = Span::secs(1);
/// Pause after a refused registration.
const PAUSE: Span = Span::secs(2);
/// One question's patience; the next one may find the MGS elsewhere.
const PATIENCE: Span = Span::secs(30);

/// The first question's: behind it a node takes over the permanent parameters that it knows from an
/// earlier run.
const PATIENCE_FIRST: Span = Span::secs(5);

/// Starts both, for every target but the MGT.
pub(super) fn start(server: &Rc<Server>, found: &[TargetDir]) {
    let Some(fsname) = server.peers.fsname() else { return take_over(server) };
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
        let (server, target) = (server.clone(), target.clone());
        server
            .env
            .clone()
            .spawn("register", async move { announce(&server, &target, &register).await });
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
            let directory = server.peers.directory();
            drop(server);
            round += 1;
            if round < FIRST_ROUNDS {
                env.sleep(EVERY_FIRST).await;
            } else {
                env.sleep(EVERY_STALE).await;
                env.timeout(EVERY_LATER, directory.wait_stale()).await;
            }
        }
    });
}

/// A node of the MGS alone belongs to no file system: it takes over what is permanent in all.
fn take_over(server: &Rc<Server>) {
    let (watcher, env) = (Rc::downgrade(server), server.env.clone());
    server.env.spawn("permanent", async move {
        while let Some(server) = watcher.upgrade() {
            server.take_permanent().await;
            drop(server);
            env.sleep(EVERY_ALONE).await;
        }
    });
}

fn instance_of(server: &Server, id: TargetId) -> u64 {
    let found =
        server.targets.iter().map(|target| target.body.target()).find(|target| target.id() == id);
    found.map_or(0, |target| target.exports().instance().0)
}

async fn announce(server: &Server, target: &TargetDir, register: &Register) {
    let name = &target.name();
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
            Err(CallError::Errno(
                errno @ (Errno::EADDRINUSE | Errno::ESTALE | Errno::EOPNOTSUPP | Errno::E2BIG),
            )) => {
                return server.end(Ended::Refused(
                    target.superblock.target,
                    refusal(name, errno, register.target.instance),
                ));
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

/// What to do when the MGS refuses.
fn refusal(name: &str, errno: Errno, instance: u64) -> String {
    if errno == Errno::ESTALE {
        return format!(
            "{name}: the MGS knows a later start of this target than this one ({instance}): its storage is an older copy, or \
             is served twice. What was acknowledged since that copy is not in it"
        );
    }
    if errno == Errno::EOPNOTSUPP {
        return format!("{name}: the MGS admits no MDT of this index");
    }
    if errno == Errno::E2BIG {
        return format!(
            "{name}: the MGS has as many file systems, or targets of this one, as it can keep: name another MGS"
        );
    }
    format!(
        "{name}: the MGS knows another storage under this name. Is its disk mounted? A further target takes another --index"
    )
}

async fn read(server: &Server, fsname: &str, patience: Span) -> Option<FsConfig> {
    let mut call = Call::new(Opcode::MgsConfig, vec![config::encode(&fsname.to_owned())]);
    call.patience = Some(patience);
    let answer = server.endpoint.remote(TargetId::MGT).call(call).await.ok()?;
    FsConfig::decode(answer.reply.bufs.get(1)?)
}
