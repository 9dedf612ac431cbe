//! The `tcp` LND: three connections per pair of nodes.
//!
//! ```text
//!  connector                                  acceptor
//!     | --- channel 0: control, both ways --->   |    requests, replies, callbacks, pulls, heartbeats
//!     | --- channel 1: bulk ------------------>  |    data that the acceptor pulled
//!     | <-- channel 2: bulk -------------------- |    data that the acceptor pushes; opened by the connector too
//! ```
//! Each starts with a HELLO both ways; its nonce ties the three together ([`handshake`]). Losing
//! one of them closes the link. So a request never queues behind bulk, and each direction of bulk
//! has its own window and its own order.
//!
//! **Writing.** `send` appends to a queue and wakes the queue's one writer task ([`outbox`]), which
//! hands everything that is there to one vectored write. The wakeup puts the writer behind the
//! tasks that are ready now: when 64 requests arrive in one read, the 64 handlers answer first and
//! their replies leave in one system call.
//!
//! The alternative, to write in `send` when nothing is queued, was measured. The test was an echo
//! of 272 and 192 bytes between two processes on a virtual machine of 2 CPUs. The table has the
//! least and most of six runs taken in turns, in messages per second (`nacre bench lnet --sides
//! bare,link --tests ping --seconds 0.4 --pairs 2`, with `--cpus 0,1` and `--cpus 0,0`):
//!
//! | in flight | two CPUs: deferred | direct | one CPU: deferred | direct |
//! |---|---|---|---|---|
//! | 1 | 10 to 14 k | 9 to 12 k | 142 to 155 k | 129 to 152 k |
//! | 8 | 67 to 107 k | 89 to 119 k | 895 to 956 k | 218 to 272 k |
//! | 64 | 420 to 487 k | 141 to 149 k | 2.1 to 2.8 M | 0.35 to 0.36 M |
//!
//! Direct is ahead only at 8 on two CPUs, where its many small writes keep both from going idle.
//! The spread between the columns is the wakeup of an idle CPU, which costs more than everything
//! else here.
//!
//! **Reading.** The task that polls the link reads the control socket itself, without a task
//! between ([`inbox`]). A task of its own reads bulk into pooled buffers ([`bulk`]), because a
//! server that takes no further requests still waits for data.
//!
//! **Threads.** With [`lnd_threads`](crate::OsConfig::lnd_threads) all of this happens on threads
//! of the link's CPT, and frames cross to the executor in batches ([`bridge`]).
//!
//! Without [`insecure`](crate::OsConfig::insecure) plaintext stays on loopback addresses, where
//! only root and the process's own user may connect ([`owner`]).

mod accept;
mod bridge;
mod bulk;
mod complaints;
mod crossing;
mod fault;
mod handshake;
mod inbox;
mod link;
mod outbox;
mod owner;
mod seats;
mod shared;
#[cfg(test)]
mod shuttled;
mod sockets;
mod sync;
#[cfg(test)]
mod tests;

use std::io;
use std::rc::Rc;
use std::time::Duration;

use env::{Link, Listener};
use tokio::net::TcpSocket;
use types::{Net, Nid, NidAddr};

use self::sockets::{invalid, socket_addr};
use crate::limits::BACKLOG;
use crate::lnd::Lnd;

/// Connects a whole pair.
pub(crate) async fn connect(config: &Rc<Lnd>, from: Option<Nid>, to: NidAddr) -> io::Result<Link> {
    permitted(config, to, "connect to")?;
    if let Some(from) = from.filter(|from| from.net() != to.nid.net()) {
        return Err(invalid(format!("the own NID {from} is on another network than {to}")));
    }
    let limit = Duration::from_nanos(config.handshake.0);
    let linked = async { bridge::start(config, handshake::connect(config, from, to).await?) };
    match tokio::time::timeout(limit, linked).await {
        Ok(Ok(link)) => Ok(link),
        Ok(Err(error)) => Err(io::Error::new(error.kind(), format!("{to}: {error}"))),
        Err(_) => Err(io::Error::new(
            io::ErrorKind::TimedOut,
            format!("{to}: no connection within {limit:?}"),
        )),
    }
}

pub(crate) fn listen(config: &Rc<Lnd>, at: NidAddr) -> io::Result<Listener> {
    permitted(config, at, "listen on")?;
    let bound = || -> io::Result<_> {
        let socket = TcpSocket::new_v4()?;
        socket.set_reuseaddr(true)?; // a restarted server finds its old connections in TIME_WAIT
        socket.bind(socket_addr(at))?;
        socket.listen(BACKLOG)
    };
    let listener = bound().map_err(|error| {
        let way_out = match error.kind() {
            io::ErrorKind::AddrInUse => {
                ": another process listens there; nacre status lists servers"
            }
            io::ErrorKind::AddrNotAvailable => {
                ": this machine does not have it; ip address lists those that it has"
            }
            _ => "",
        };
        io::Error::new(error.kind(), format!("cannot listen on {at}: {error}{way_out}"))
    })?;
    config.lnet.known_as(at.nid);
    let addr = NidAddr { nid: at.nid, port: listener.local_addr()?.port() };
    Ok(accept::listener(Rc::clone(config), listener, addr))
}

/// Only `tcp` networks are sockets here, and plaintext leaves the machine only where the node says
/// so.
fn permitted(config: &Lnd, at: NidAddr, what: &str) -> io::Result<()> {
    if at.nid.net().lnd != Net::TCP.lnd {
        return Err(invalid(format!("cannot {what} {at}: there is no driver for this network")));
    }
    if !config.insecure && !at.nid.addr().is_loopback() {
        let text = format!(
            "cannot {what} {at}: connections are not encrypted yet, so only loopback addresses are allowed without --insecure (for a private network)"
        );
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, text));
    }
    Ok(())
}
