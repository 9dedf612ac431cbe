//! Addresses of an `up`: a block 127.0.N.x that no other `up` has.
//!
//! | x | holder |
//! |---|---|
//! | 1 | the embedded client |
//! | 2 | MGS; without `--separate` the first executor, which serves everything by default |
//! | 3 … 9 | the first MDTs; further ones are at 127.1.N.1 … 249 |
//! | 10 … 209 | OSTs |
//! | 211 … 254 | left for further clients |

use std::io;
use std::net::{Ipv4Addr, TcpListener};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr, UnixListener};

use anyhow::{Context, Result, bail};
use types::{MDTS_MAX, Nid, NidAddr, TargetId, TargetKind};

use super::lingering::Linger;
use super::options::Options;

pub(super) const CLIENT: u8 = 1;
pub(super) const MGS: u8 = 2;
const MDT_FIRST: u8 = 3;
/// MDTs that have addresses before the OSTs'.
const MDTS_BEFORE: u32 = 7;
const OST_FIRST: u8 = 10;

const _: () = assert!(MDTS_MAX - MDTS_BEFORE <= 254, "each MDT has an address");
pub(super) const OTHER_CLIENTS: u8 = 211;

const NETS: u8 = 250;

/// Port for those who may not use the default one.
const PORT_UNPRIVILEGED: u16 = 1988;

/// A block of addresses, held for as long as this lives.
pub(super) struct Block {
    net: u8,
    port: u16,
    _lock: UnixListener,
}

impl Block {
    /// The block last used, or the first one that is free.
    pub(super) fn claim(
        options: &Options,
        targets: impl Iterator<Item = TargetId>,
        last: Option<u8>,
        linger: Linger,
    ) -> Result<Block> {
        let port = allowed(options.port)?;
        let has_several = options.separate || options.executors > 1;
        let wanted = if has_several { hosts(targets) } else { vec![Host(0, MGS)] };
        if let Some(net) = last
            && let Some(block) = claim_lingering(net, port, &wanted, linger)?
        {
            return Ok(block);
        }
        for net in 0..NETS {
            if let Some(block) = Block::try_claim(net, port, &wanted)? {
                return Ok(block);
            }
        }
        bail!("port {port} is taken on 127.0.0.x to 127.0.{NETS}.x: say another --port")
    }

    fn try_claim(net: u8, port: u16, hosts: &[Host]) -> Result<Option<Block>> {
        let Some(lock) = lock(net)? else { return Ok(None) };
        let free = hosts.iter().all(|host| TcpListener::bind((host.ip(net), port)).is_ok());
        Ok(free.then_some(Block { net, port, _lock: lock }))
    }

    /// N of 127.0.N.x.
    pub(super) fn net(&self) -> u8 {
        self.net
    }

    /// An address of the block.
    pub(super) fn ip(&self, host: u8) -> Ipv4Addr {
        Block::ip_of(self.net, host)
    }

    /// An address of some block.
    pub(super) fn ip_of(net: u8, host: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, 0, net, host)
    }

    /// Where the MGS listens.
    pub(super) fn mgs(&self) -> NidAddr {
        self.at(Host(0, MGS))
    }

    /// Where a target of its own process listens, or an executor whose first target it is.
    pub(super) fn of(&self, target: TargetId) -> NidAddr {
        self.at(host_of(target))
    }

    fn at(&self, host: Host) -> NidAddr {
        NidAddr { nid: Nid::tcp(host.ip(self.net)), port: self.port }
    }
}

/// The second and the last part of an address 127.x.N.y.
#[derive(Clone, Copy)]
struct Host(u8, u8);

impl Host {
    fn ip(self, net: u8) -> Ipv4Addr {
        Ipv4Addr::new(127, self.0, net, self.1)
    }
}

fn host_of(target: TargetId) -> Host {
    let behind = |first: u8, index: u32| {
        u8::try_from(u32::from(first) + index).unwrap_or(u8::MAX - 1) // bounded by the options
    };
    match target.kind {
        TargetKind::Mgt | TargetKind::Lst => Host(0, MGS),
        TargetKind::Mdt if target.index >= MDTS_BEFORE => {
            Host(1, behind(1, target.index - MDTS_BEFORE))
        }
        TargetKind::Mdt => Host(0, behind(MDT_FIRST, target.index)),
        TargetKind::Ost => Host(0, behind(OST_FIRST, target.index)),
    }
}

/// Where servers of their own listen.
fn hosts(targets: impl Iterator<Item = TargetId>) -> Vec<Host> {
    std::iter::once(TargetId::MGT).chain(targets).map(host_of).collect()
}

/// The port, or one that we may use.
fn allowed(port: u16) -> Result<u16> {
    match TcpListener::bind((Ipv4Addr::LOCALHOST, port)) {
        Err(error)
            if error.kind() == io::ErrorKind::PermissionDenied && port == types::PORT_DEFAULT =>
        {
            Ok(PORT_UNPRIVILEGED)
        }
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            Err(error).with_context(|| format!("port {port}"))
        }
        _ => Ok(port),
    }
}

/// The block, once the servers of the `up` before this one have closed their ports.
fn claim_lingering(net: u8, port: u16, hosts: &[Host], linger: Linger) -> Result<Option<Block>> {
    loop {
        match Block::try_claim(net, port, hosts)? {
            None if lock(net)?.is_some() && linger.goes_on() => {}
            other => return Ok(other),
        }
    }
}

/// Keeps two `up`s that start at the same time apart, whoever runs them and wherever their run
/// directories are: a name in the network namespace, which has the addresses too, and it goes with
/// the process.
fn lock(net: u8) -> Result<Option<UnixListener>> {
    let name = SocketAddr::from_abstract_name(format!("nacre-net-{net}"))?;
    match UnixListener::bind_addr(&name) {
        Ok(lock) => Ok(Some(lock)),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => Ok(None),
        Err(error) => Err(error).context("the name of a block of addresses"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_block_is_locked_for_as_long_as_its_lock_lives() {
        let _alone = forks::none();
        let held = lock(u8::MAX).expect("a name").expect("nobody has it");
        assert!(lock(u8::MAX).expect("a name").is_none());
        drop(held);
        assert!(lock(u8::MAX).expect("a name").is_some());
    }

    #[test]
    fn each_server_has_an_address_of_its_own() {
        let shown = |target| host_of(target).ip(7).to_string();
        assert_eq!(shown(TargetId::MGT), "127.0.7.2");
        assert_eq!(shown(TargetId::mdt(0)), "127.0.7.3");
        assert_eq!(shown(TargetId::mdt(6)), "127.0.7.9");
        assert_eq!(shown(TargetId::mdt(7)), "127.1.7.1");
        assert_eq!(shown(TargetId::mdt(MDTS_MAX - 1)), "127.1.7.249");
        assert_eq!(shown(TargetId::ost(0)), "127.0.7.10");
        assert_eq!(shown(TargetId::ost(199)), "127.0.7.209");
    }
}
