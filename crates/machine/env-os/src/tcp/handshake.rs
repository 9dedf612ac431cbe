//! HELLO: which node speaks, on which of the pair's three connections.
//!
//! The connector opens the control connection, says HELLO and waits for the acceptor's. Then it
//! opens both bulk connections at the same time, with the nonce of the first. A HELLO names the NID
//! of its sender. It must be the address that the bytes come from, because a node is identified by
//! its address. If the acceptor refuses a HELLO, it answers with its own before it closes, so that
//! the connector can report why.

use std::io;
use std::net::Ipv4Addr;

use bytes::Bytes;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use types::{Net, Nid, NidAddr};
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind, Hello};

use super::sockets::{dial, ipv4};
use crate::lnd::Lnd;
use crate::rng::os_random;

/// Channels of a pair, as HELLO names them.
pub(super) const CONTROL: u16 = 0;
/// Bulk towards the acceptor.
pub(super) const BULK_TO_ACCEPTOR: u16 = 1;
/// Bulk towards the connector.
pub(super) const BULK_TO_CONNECTOR: u16 = 2;

/// The three connections of a pair, as one side sees them.
pub(super) struct Pair {
    pub(super) control: TcpStream,
    pub(super) bulk_out: TcpStream,
    pub(super) bulk_in: TcpStream,
    pub(super) peer: Nid,
    pub(super) peer_credits: u32,
}

/// The connector's side.
pub(super) async fn connect(config: &Lnd, from: Option<Nid>, to: NidAddr) -> io::Result<Pair> {
    let nonce = os_random();
    let bind = from.map(Nid::addr);
    let (control, hello) = open(config, bind, to, nonce, CONTROL).await?;
    let own = ipv4(control.local_addr()?)?;
    let bind = Some(own); // all three come from one address
    let (bulk_out, bulk_in) = tokio::try_join!(
        open(config, bind, to, nonce, BULK_TO_ACCEPTOR),
        open(config, bind, to, nonce, BULK_TO_CONNECTOR)
    )?;
    let pair = Pair {
        control,
        bulk_out: bulk_out.0,
        bulk_in: bulk_in.0,
        peer: to.nid,
        peer_credits: hello.credits,
    };
    config.lnet.known_as(Nid::new(to.nid.net(), own));
    Ok(pair)
}

/// One connection with HELLOs exchanged.
async fn open(
    config: &Lnd,
    bind: Option<Ipv4Addr>,
    to: NidAddr,
    nonce: u64,
    channel: u16,
) -> io::Result<(TcpStream, Hello)> {
    let mut stream = dial(bind, to).await?;
    let own = Nid::new(to.nid.net(), ipv4(stream.local_addr()?)?);
    let credits = config.lnet.peer_credits();
    say(&mut stream, greeting(nonce, channel, own, credits)).await?;
    let hello = Hello::from_frame(&hear(&mut stream).await?).map_err(refused)?;
    if let Some(why) = hello.refused() {
        return Err(io::Error::new(io::ErrorKind::PermissionDenied, why.to_string()));
    }
    if hello.nonce != nonce || hello.channel != channel {
        return Err(refused(FrameError::Hello("it answers another connection")));
    }
    agrees(&hello, to.nid.net(), to.nid.addr())?;
    Ok((stream, hello))
}

/// What a node says of itself.
pub(super) fn greeting(nonce: u64, channel: u16, own: Nid, credits: u32) -> Hello {
    Hello {
        version: wire::VERSION,
        version_min: wire::VERSION_MIN,
        channel,
        auth_len: 0,
        compat: 0,
        ro_compat: 0,
        incompat: 0,
        nonce,
        nid: own.0,
        credits,
        refusal: 0,
    }
}

pub(super) async fn say(stream: &mut TcpStream, hello: Hello) -> io::Result<()> {
    stream.write_all(&hello.to_frame().encode(CrcMode::All)).await
}

/// Receives what should be a HELLO and nothing behind it.
pub(super) async fn hear(stream: &mut TcpStream) -> io::Result<Frame> {
    let mut head = [0; FRAME_HEADER_BYTES];
    stream.read_exact(&mut head).await.map_err(closed)?;
    let header = FrameHeader::decode(&head).map_err(refused)?;
    if header.kind != FrameKind::Hello {
        return Err(refused(FrameError::Hello("another frame came first")));
    }
    let mut payload = vec![0; header.length]; // a HELLO is bounded by 4 KiB
    stream.read_exact(&mut payload).await.map_err(closed)?;
    header.check(&payload).map_err(refused)?;
    Ok(Frame::new(header.kind, header.id, Bytes::from(payload)))
}

/// A HELLO's NID is the address that it came from; `0@lo` will do from this machine.
pub(super) fn agrees(hello: &Hello, net: Net, source: Ipv4Addr) -> io::Result<()> {
    let told = Nid(hello.nid);
    let seen = Nid::new(net, source);
    if told == seen || (told == Nid::LO && source.is_loopback()) {
        return Ok(());
    }
    Err(io::Error::new(
        io::ErrorKind::InvalidData,
        format!("the peer calls itself {told}, but is {seen}"),
    ))
}

pub(super) fn refused(error: FrameError) -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, error)
}

fn closed(error: io::Error) -> io::Error {
    if error.kind() == io::ErrorKind::UnexpectedEof {
        return io::Error::new(
            io::ErrorKind::ConnectionAborted,
            "the peer closed the connection during HELLO",
        );
    }
    error
}
