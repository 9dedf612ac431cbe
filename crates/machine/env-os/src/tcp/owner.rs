//! The user that owns the peer's socket of a loopback connection.
//!
//! A NID says which machine bytes come from. On loopback that is this machine and any of its users,
//! so their sockets are looked up by the exact four numbers of the connection. Only an established
//! socket with an inode counts: a socket that its process has closed has no owner and is shown as
//! root's.
//!
//! The kernel is asked by `NETLINK_SOCK_DIAG` (`sock_diag(7)`), which finds one socket by hash. The
//! socket to ask with is kept, because strangers may connect at any rate, and opening one costs a
//! third of the question. If the kernel does not have that, `/proc/net/tcp` is read.

use std::cell::Cell;
use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::os::fd::OwnedFd;

use rustix::net::{
    AddressFamily, RecvFlags, SendFlags, SocketFlags, SocketType, netlink, recv, send, socket_with,
};
use tokio::net::TcpStream;
use wire::HelloRefusal;

use super::sockets::invalid;
use crate::OsConfig;

/// Finds the owners of connections.
#[derive(Default)]
pub(super) struct Owners {
    /// To ask the kernel with. None before the first question, and after one that failed: whatever
    /// is in that socket is not the answer to the next one.
    socket: Cell<Option<OwnedFd>>,
    asked: Cell<u32>,
}

/// In words for the log.
pub(super) struct Refused(String);

impl Refused {
    pub(super) const WHY: HelloRefusal = HelloRefusal::LOCAL_USER;

    pub(super) fn to_error(&self) -> io::Error {
        let text = format!(
            "{}, and only root and user {} may connect from this machine without --trust-local-users",
            self.0,
            rustix::process::geteuid().as_raw()
        );
        io::Error::new(io::ErrorKind::PermissionDenied, text)
    }
}

impl Owners {
    /// Why `peer` may not connect; none where it may. Addresses that are not loopback are let in:
    /// `insecure` has said so.
    pub(super) fn refusal(
        &self,
        config: &OsConfig,
        peer: SocketAddr,
        stream: &TcpStream,
    ) -> io::Result<Option<Refused>> {
        let peer = v4(peer)?;
        if config.trust_local_users || !peer.ip().is_loopback() {
            return Ok(None);
        }
        let own = v4(stream.local_addr()?)?;
        let own_uid = rustix::process::geteuid().as_raw();
        Ok(match self.owner(peer, own)? {
            Some(uid) if uid == 0 || uid == own_uid => None,
            Some(uid) => Some(Refused(format!("it belongs to user {uid}"))),
            None => Some(Refused("its process has closed it".to_owned())),
        })
    }

    /// The user that owns the socket at `local` which is connected to `remote`; none if there is no
    /// such socket that a process holds.
    fn owner(&self, local: SocketAddrV4, remote: SocketAddrV4) -> io::Result<Option<u32>> {
        match self.by_netlink(local, remote) {
            Ok(Some(found)) => return Ok(found.user()),
            // the own end is there for sure: whoever finds it can see sockets
            Ok(None) if self.by_netlink(remote, local).is_ok_and(|own| own.is_some()) => {
                return Ok(None);
            }
            Ok(None) | Err(_) => {}
        }
        let table = fs::read_to_string("/proc/net/tcp")?;
        Ok(in_table(&table, local, remote).and_then(Found::user))
    }

    fn by_netlink(&self, local: SocketAddrV4, remote: SocketAddrV4) -> io::Result<Option<Found>> {
        let kept = self.socket.take();
        let socket = kept.map_or_else(diag_socket, Ok)?;
        let number = self.asked.get().wrapping_add(1);
        self.asked.set(number);
        send(&socket, &question(number, local, remote), SendFlags::DONTWAIT)?;
        let mut bytes = [0; 4_096];
        // the kernel has answered within the send
        let (len, _) = recv(&socket, &mut bytes, RecvFlags::DONTWAIT)?;
        let found = answer(&bytes[..len], number, local)?;
        self.socket.set(Some(socket));
        Ok(found)
    }
}

/// A socket as the kernel shows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    state: u8,
    uid: u32,
    inode: u32,
}

impl Found {
    fn user(self) -> Option<u32> {
        (self.state == TCP_ESTABLISHED && self.inode != 0).then_some(self.uid)
    }
}

// linux/tcp_states.h, linux/sock_diag.h, linux/netlink.h, linux/inet_diag.h
const TCP_ESTABLISHED: u8 = 1;
const SOCK_DIAG_BY_FAMILY: u16 = 20;
const NLM_F_REQUEST: u16 = 1;
const NLMSG_ERROR: u16 = 2;
/// `nlmsghdr`.
const HEADER_BYTES: usize = 16;
/// That and `inet_diag_req_v2`.
const REQUEST_BYTES: usize = HEADER_BYTES + 56;
/// `nlmsghdr` and `inet_diag_msg`; what may follow was not asked for.
const ANSWER_BYTES: usize = HEADER_BYTES + 72;

fn diag_socket() -> io::Result<OwnedFd> {
    let flags = SocketFlags::CLOEXEC;
    let protocol = Some(netlink::SOCK_DIAG);
    Ok(socket_with(AddressFamily::NETLINK, SocketType::DGRAM, flags, protocol)?)
}

/// Question number `number`.
fn question(number: u32, local: SocketAddrV4, remote: SocketAddrV4) -> [u8; REQUEST_BYTES] {
    let mut bytes = [0; REQUEST_BYTES];
    let mut put = |at: usize, what: &[u8]| bytes[at..at + what.len()].copy_from_slice(what);
    put(0, &(REQUEST_BYTES as u32).to_ne_bytes());
    put(4, &SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    put(6, &NLM_F_REQUEST.to_ne_bytes());
    put(8, &number.to_ne_bytes());
    put(16, &[AddressFamily::INET.as_raw() as u8, libc::IPPROTO_TCP as u8]);
    put(20, &u32::MAX.to_ne_bytes()); // in any state
    put(24, &local.port().to_be_bytes());
    put(26, &remote.port().to_be_bytes());
    put(28, &local.ip().octets());
    put(44, &remote.ip().octets());
    put(64, &[0xff; 8]); // INET_DIAG_NOCOOKIE
    bytes
}

/// What the answer to question number `number` says of the socket at `local`.
fn answer(bytes: &[u8], number: u32, local: SocketAddrV4) -> io::Result<Option<Found>> {
    let u16_at = |at: usize| u16::from_ne_bytes([bytes[at], bytes[at + 1]]);
    let u32_at = |at: usize| u32::from_ne_bytes([0, 1, 2, 3].map(|i| bytes[at + i]));
    if bytes.len() < HEADER_BYTES || u32_at(8) != number {
        return Err(invalid("sock_diag has answered another question".to_owned()));
    }
    if bytes.len() >= 20 && u16_at(4) == NLMSG_ERROR {
        let errno = (u32_at(16) as i32).wrapping_neg();
        return match errno {
            libc::ENOENT => Ok(None),
            other => Err(io::Error::from_raw_os_error(other)),
        };
    }
    if bytes.len() < ANSWER_BYTES || u16_at(4) != SOCK_DIAG_BY_FAMILY {
        return Err(invalid("sock_diag has answered something else".to_owned()));
    }
    // without such a connection the kernel shows a socket that listens there
    if bytes[20..22] != local.port().to_be_bytes() || bytes[24..28] != local.ip().octets() {
        return Ok(None);
    }
    Ok(Some(Found { state: bytes[17], uid: u32_at(80), inode: u32_at(84) }))
}

/// Looks in the text of `/proc/net/tcp` (`proc_net_tcp` in the kernel's documentation).
fn in_table(table: &str, local: SocketAddrV4, remote: SocketAddrV4) -> Option<Found> {
    let name = |at: SocketAddrV4| {
        format!("{:08X}:{:04X}", u32::from_ne_bytes(at.ip().octets()), at.port())
    };
    let (local, remote) = (name(local), name(remote));
    table.lines().skip(1).find_map(|line| {
        let mut words = line.split_ascii_whitespace();
        let is_it = words.nth(1)? == local && words.next()? == remote;
        let state = u8::from_str_radix(words.next()?, 16).ok()?;
        let uid = words.nth(3)?.parse().ok()?;
        let inode = words.nth(1)?.parse().ok()?;
        is_it.then_some(Found { state, uid, inode })
    })
}

fn v4(addr: std::net::SocketAddr) -> io::Result<SocketAddrV4> {
    let addr = match addr.ip() {
        IpAddr::V4(ip) => SocketAddrV4::new(ip, addr.port()),
        IpAddr::V6(_) => return Err(invalid("an IPv6 address on an IPv4 socket".to_owned())),
    };
    debug_assert_ne!(*addr.ip(), Ipv4Addr::UNSPECIFIED, "it is connected");
    Ok(addr)
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    fn pair() -> (TcpListener, TcpStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
        let near = TcpStream::connect(listener.local_addr().expect("bound")).expect("it listens");
        let far = listener.accept().expect("a connection").0;
        (listener, near, far)
    }

    fn addrs(far: &TcpStream) -> (SocketAddrV4, SocketAddrV4) {
        let v4 = |addr: io::Result<_>| super::v4(addr.expect("connected")).expect("IPv4");
        (v4(far.peer_addr()), v4(far.local_addr()))
    }

    #[test]
    fn both_ways_find_the_owner_of_a_connection() {
        let (_listener, _near, far) = pair();
        let (peer, own) = addrs(&far);
        let uid = rustix::process::geteuid().as_raw();
        let owners = Owners::default();
        let asked = owners.by_netlink(peer, own).expect("a kernel with sock_diag");
        let asked = asked.expect("is there");
        let table = fs::read_to_string("/proc/net/tcp").expect("procfs");
        assert_eq!(Some(asked), in_table(&table, peer, own));
        assert_eq!((asked.user(), owners.owner(peer, own).unwrap()), (Some(uid), Some(uid)));
    }

    #[test]
    fn a_closed_socket_is_nobodys_though_the_kernel_shows_it_as_roots() {
        let _alone = forks::none();
        let (_listener, near, far) = pair();
        let (peer, own) = addrs(&far);
        drop(near);
        let table = fs::read_to_string("/proc/net/tcp").expect("procfs");
        let shown = in_table(&table, peer, own).expect("it waits for the other end");
        assert_eq!((shown.uid, shown.inode, shown.user()), (0, 0, None));
        assert_eq!(Owners::default().owner(peer, own).unwrap(), None);
    }

    #[test]
    fn a_socket_that_listens_is_not_taken_for_the_connection() {
        let (listener, _near, far) = pair();
        let listens = v4(listener.local_addr().unwrap()).unwrap();
        let stranger = SocketAddrV4::new(*addrs(&far).0.ip(), 1);
        assert_eq!(Owners::default().owner(listens, stranger).unwrap(), None);
    }

    #[test]
    fn a_short_or_foreign_answer_is_an_error() {
        let local = SocketAddrV4::new(Ipv4Addr::LOCALHOST, 1);
        for len in 0..ANSWER_BYTES {
            assert!(answer(&vec![0; len], 0, local).is_err(), "{len} bytes");
        }
    }

    #[test]
    fn one_socket_answers_many_questions_and_only_its_own() {
        let (_listener, _near, far) = pair();
        let (peer, own) = addrs(&far);
        let stranger = SocketAddrV4::new(*peer.ip(), 1);
        let owners = Owners::default();
        let ask =
            |local, remote| owners.by_netlink(local, remote).expect("a kernel with sock_diag");
        for _ in 0..3 {
            assert!(ask(peer, own).is_some() && ask(own, peer).is_some());
            assert!(ask(stranger, own).is_none());
        }
        let kept = owners.socket.take().expect("no question has failed");
        send(&kept, &question(7, peer, own), SendFlags::DONTWAIT).expect("the kernel takes it");
        owners.socket.set(Some(kept));
        let error = owners.by_netlink(own, peer).expect_err("the answer to question 7 comes first");
        assert!(error.to_string().contains("another question"), "{error}");
        assert!(ask(own, peer).is_some(), "with another socket");
    }
}
