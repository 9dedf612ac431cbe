//! Single sockets: their addresses, and how one is connected.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};

use tokio::net::{TcpSocket, TcpStream};
use types::NidAddr;

/// An argument that is not understood.
pub(super) fn invalid(text: String) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidInput, text)
}

pub(super) fn socket_addr(at: NidAddr) -> SocketAddr {
    SocketAddr::V4(SocketAddrV4::new(at.nid.addr(), at.port))
}

/// One connection, from the address of `from` where given.
pub(super) async fn dial(from: Option<Ipv4Addr>, to: NidAddr) -> io::Result<TcpStream> {
    let socket = TcpSocket::new_v4()?;
    socket.set_nodelay(true)?;
    if let Some(from) = from {
        let bound = socket.bind(SocketAddr::V4(SocketAddrV4::new(from, 0)));
        bound.map_err(|error| {
            io::Error::new(error.kind(), format!("cannot use {from} as own address: {error}"))
        })?;
    }
    socket.connect(socket_addr(to)).await
}

/// An address without its port.
pub(super) fn ipv4(addr: SocketAddr) -> io::Result<Ipv4Addr> {
    match addr {
        SocketAddr::V4(addr) => Ok(*addr.ip()),
        SocketAddr::V6(_) => Err(invalid("an IPv6 address on an IPv4 socket".to_owned())),
    }
}
