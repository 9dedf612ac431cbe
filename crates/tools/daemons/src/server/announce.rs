//! Registration with the MGS, and repeated reads of its configuration. A target that the MGS has
//! lost registers again; one that an administrator removed does not.

use std::rc::Rc;

use endpoint::{Call, CallError, Registration};
use types::{Errno, FsName, Instant, NidAddr, Span, TargetId};
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
/// How often a target that waits for its MGS says so at first, because an address of the MGS may be
/// wrong.
const EVERY_COMPLAINT_FIRST: Span = Span::secs(10);
/// How long that is.
const FIRST: Span = Span::secs(60);
/// How often it says so later.
const EVERY_COMPLAINT: Span = Span::secs(60);
/// One question's patience; the next one may find the MGS elsewhere.
const PATIENCE: Span = Span::secs(30);
/// The patience of a registration at first: with [`PAUSE`] it ends when the next complaint is due.
const PATIENCE_REGISTER: Span = Span::secs(8);

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
        let (mut round, mut registered) = (0, Vec::new());
        while let Some(server) = watcher.upgrade() {
            let patience = if round == 0 { PATIENCE_FIRST } else { PATIENCE };
            registered.append(&mut server.peers.take_registered()); // before the question
            match read(&server, &fsname.to_string(), patience).await {
                Said::Nothing => {}
                Said::Unknown => hear(&mut registered, None),
                Said::Config(config) => {
                    hear(&mut registered, Some(&config));
                    server.peers.set(config);
                    server.tell_forgotten(); // what was kept may have been taken back since
                }
            }
            repeat(&server, &mut registered).await;
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
    let (begun, mut said) = (server.env.now(), None);
    loop {
        let is_first = server.env.now() - begun < FIRST;
        let patience = if is_first { PATIENCE_REGISTER } else { PATIENCE };
        match ask(server, register, patience).await {
            Ok(version) => {
                tracing::info!("{name}: registered with the MGS");
                return server.peers.one_registered(Registration::new(register.clone(), version));
            }
            Err(CallError::Errno(errno)) if REFUSALS.contains(&errno) => {
                return server.end(Ended::Refused(
                    target.superblock.target,
                    refusal(name, errno, register.target.instance),
                ));
            }
            Err(CallError::Shutdown) => return,
            Err(error) => {
                let now = server.env.now();
                if is_due(begun, said, now) {
                    let waits = waits(server.peers.directory().mgs());
                    tracing::warn!("{name}: {waits}: {error}");
                    said = Some(now);
                }
            }
        }
        server.env.sleep(PAUSE).await;
    }
}

/// The complaint of a target that waits, with the way out.
fn waits(mgs: &[NidAddr]) -> String {
    let at: Vec<String> = mgs.iter().map(ToString::to_string).collect();
    if at.is_empty() {
        return "waits for the MGS".to_owned();
    }
    format!("waits for the MGS at {} (nacre tune --mgsnode names another)", at.join(","))
}

/// Whether a target that waits since `begun` says so now: at once, and then once in a while.
fn is_due(begun: Instant, said: Option<Instant>, now: Instant) -> bool {
    let every = if now - begun < FIRST { EVERY_COMPLAINT_FIRST } else { EVERY_COMPLAINT };
    said.is_none_or(|said| now - said >= every)
}

/// Registers once. The version of the configuration that has it.
async fn ask(server: &Server, register: &Register, patience: Span) -> Result<u64, CallError> {
    let mut call = Call::new(Opcode::MgsRegister, vec![config::encode(register)]);
    call.patience = Some(patience);
    let answer = server.endpoint.remote(TargetId::MGT).call(call).await?;
    Ok(answer.reply.header.config_version)
}

fn hear(registered: &mut [Registration], config: Option<&FsConfig>) {
    registered.iter_mut().for_each(|registration| registration.hear(config));
}

/// Registers again what the MGS has lost. What it refuses goes on being served: clients and servers
/// that know the target do not need the MGS.
async fn repeat(server: &Server, registered: &mut [Registration]) {
    for registration in registered.iter_mut().filter(|registration| registration.is_lost()) {
        let name = name_of(registration.register());
        let instance = registration.register().target.instance;
        match ask(server, registration.register(), PATIENCE).await {
            Ok(version) => {
                registration.repeated(version);
                tracing::warn!("{name}: registered again: the MGS had lost it");
            }
            Err(CallError::Errno(errno)) if REFUSALS.contains(&errno) => {
                registration.give_up();
                let why = refusal(&name, errno, instance);
                tracing::error!("not registered again, and served as before: {why}");
            }
            Err(CallError::Shutdown) => return,
            Err(error) => {
                tracing::info!("{name}: not registered again so far: {error}");
                server.env.sleep(PAUSE).await;
                break; // the configuration is read first, and another one has its turn next
            }
        }
    }
    registered.rotate_left(usize::from(!registered.is_empty()));
}

fn name_of(register: &Register) -> String {
    let target = TargetId::from_u32(register.target.id);
    match (register.fsname.parse::<FsName>(), target) {
        (Ok(fsname), Some(target)) => target.name(fsname),
        _ => register.fsname.clone(),
    }
}

/// Answers to a registration that a repetition does not change.
const REFUSALS: [Errno; 4] = [Errno::EADDRINUSE, Errno::ESTALE, Errno::EOPNOTSUPP, Errno::E2BIG];

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
    let forgotten = if name.contains("-MDT") { ", or has forgotten this MDT" } else { "" };
    format!(
        "{name}: the MGS knows another storage under this name{forgotten}. Mount its disk, or name another --index with nacre format"
    )
}

/// The MGS's answer to a question for the configuration.
enum Said {
    /// None that is of use.
    Nothing,
    /// It knows no such file system.
    Unknown,
    Config(FsConfig),
}

async fn read(server: &Server, fsname: &str, patience: Span) -> Said {
    let mut call = Call::new(Opcode::MgsConfig, vec![config::encode(&fsname.to_owned())]);
    call.patience = Some(patience);
    match server.endpoint.remote(TargetId::MGT).call(call).await {
        Ok(answer) => {
            let config = answer.reply.bufs.get(1).and_then(|bytes| FsConfig::decode(bytes));
            config.map_or(Said::Nothing, Said::Config)
        }
        Err(CallError::Errno(Errno::ENOENT)) => Said::Unknown,
        Err(_) => Said::Nothing,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_that_waits_says_so_each_ten_seconds_and_then_once_a_minute() {
        let begun = Instant(7);
        assert!(is_due(begun, None, begun));
        assert!(!is_due(begun, Some(begun), begun + PATIENCE_REGISTER));
        assert!(is_due(begun, Some(begun), begun + PATIENCE_REGISTER + PAUSE));
        let later = begun + FIRST;
        assert!(!is_due(begun, Some(later), later + PATIENCE));
        assert!(is_due(begun, Some(later), later + EVERY_COMPLAINT));
    }

    #[test]
    fn only_an_mdt_may_have_been_forgotten() {
        let said = |name: &str| refusal(name, Errno::EADDRINUSE, 1);
        assert!(said("testfs-MDT0001").contains("this name, or has forgotten this MDT. Mount"));
        assert!(said("testfs-OST0001").contains("this name. Mount its disk"));
    }

    #[test]
    fn a_complaint_names_the_addresses() {
        let mgs: NidAddr = "127.0.0.2@tcp".parse().expect("a NID");
        assert!(waits(&[mgs]).starts_with("waits for the MGS at 127.0.0.2@tcp ("));
        assert_eq!(waits(&[]), "waits for the MGS", "it is on this node");
    }
}
