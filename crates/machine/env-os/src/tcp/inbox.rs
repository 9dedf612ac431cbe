//! The receiving half of a link: reads and parses the control connection.
//!
//! One read takes up to 64 KiB; the frames in it are handed out one by one as slices of the buffer,
//! without a copy. A frame larger than the buffer grows it in step with the bytes that have really
//! arrived, so that a length alone costs nothing.

use std::io;
use std::pin::pin;
use std::rc::Rc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, BytesMut};
use env::LinkRecv;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::OwnedReadHalf;
use wire::{FRAME_HEADER_BYTES, Frame, FrameHeader, FrameKind};

use super::fault::{Fault, ended};
use super::shared::Shared;
use crate::limits::{READ_BYTES, READ_SPARE_MIN};

pub(super) struct TcpRecv {
    shared: Rc<Shared>,
    half: Option<OwnedReadHalf>, // none once closed
    inbox: Inbox,
}

/// Bytes that have arrived, and the frames in them.
struct Inbox {
    buffer: BytesMut,
    came: (usize, usize), // messages and their bytes since the node's account was told
    // bytes of the frame at the front of `buffer` that have not arrived, as far as is known
    missing: usize,
}

impl Inbox {
    fn new() -> Inbox {
        Inbox { buffer: BytesMut::new(), came: (0, 0), missing: FRAME_HEADER_BYTES }
    }

    /// The next frame of the buffer, heartbeats left out.
    fn parse(&mut self) -> Result<Option<Frame>, Fault> {
        while self.buffer.len() >= FRAME_HEADER_BYTES {
            let header = FrameHeader::decode(&self.buffer)?;
            if !matches!(
                header.kind,
                FrameKind::Request | FrameKind::Reply | FrameKind::BulkPull | FrameKind::Heartbeat
            ) {
                return Err(Fault::Channel(header.kind, "control"));
            }
            let len = FRAME_HEADER_BYTES + header.length;
            if self.buffer.len() < len {
                self.missing = len - self.buffer.len();
                return Ok(None);
            }
            let mut payload = self.buffer.split_to(len);
            header.check_in_place(&mut payload)?;
            payload.advance(FRAME_HEADER_BYTES);
            if header.kind != FrameKind::Heartbeat {
                self.came.0 += 1;
                self.came.1 += header.length;
                return Ok(Some(Frame::new(header.kind, header.id, payload.freeze())));
            }
        }
        self.missing = FRAME_HEADER_BYTES - self.buffer.len();
        Ok(None)
    }

    /// Room for the next read: for the rest of the frame, but at most as much again as has arrived
    /// of it.
    fn reserve(&mut self) {
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < self.missing.clamp(READ_SPARE_MIN, self.buffer.len().max(READ_SPARE_MIN)) {
            self.buffer.reserve(self.missing.min(self.buffer.len()).max(READ_BYTES));
        }
    }
}

impl TcpRecv {
    pub(super) fn new(shared: Rc<Shared>, half: OwnedReadHalf) -> TcpRecv {
        TcpRecv { shared, half: Some(half), inbox: Inbox::new() }
    }

    /// Once a read: the account is shared with other threads.
    fn tell(&mut self) {
        let (count, bytes) = std::mem::take(&mut self.inbox.came);
        if count > 0 {
            self.shared.config.traffic.received_all(count, bytes);
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.tell();
        self.inbox.reserve();
        let Some(half) = &mut self.half else { return Poll::Ready(Ok(0)) };
        pin!(half.read_buf(&mut self.inbox.buffer)).poll(cx)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Fault>> {
        loop {
            if let Some(frame) = self.inbox.parse()? {
                return Poll::Ready(Ok(frame));
            }
            match ready!(self.poll_read(cx))? {
                0 => return Poll::Ready(Err(ended())),
                _ => self.shared.heard.set(true),
            }
        }
    }

    /// The next poll may come from anywhere; whoever closes the link has to know whom to wake.
    fn wait(&self, cx: &Context<'_>) {
        self.shared.starved.set(true);
        let mut reader = self.shared.reader.borrow_mut();
        if !reader.as_ref().is_some_and(|waker| waker.will_wake(cx.waker())) {
            *reader = Some(cx.waker().clone());
        }
    }
}

impl LinkRecv for TcpRecv {
    fn poll_recv(&mut self, cx: &mut Context<'_>) -> Poll<Option<Frame>> {
        if self.shared.is_open() {
            match self.poll_frame(cx) {
                Poll::Ready(Ok(frame)) => {
                    self.shared.starved.set(false);
                    return Poll::Ready(Some(frame));
                }
                Poll::Ready(Err(fault)) => self.shared.fail(&fault),
                Poll::Pending => {
                    self.wait(cx);
                    return Poll::Pending;
                }
            }
        }
        self.half = None;
        Poll::Ready(None)
    }
}

impl Drop for TcpRecv {
    fn drop(&mut self) {
        self.tell();
        self.shared.close();
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use wire::CrcMode;

    use super::*;

    const TIME: std::time::Duration = std::time::Duration::from_secs(1);

    /// Choices, one byte each; zero where there are no more.
    struct Choices<'a>(std::slice::Iter<'a, u8>);

    impl Choices<'_> {
        fn byte(&mut self) -> usize {
            usize::from(self.0.next().copied().unwrap_or(0))
        }

        fn frame(&mut self) -> Frame {
            let (kind, payload) = match self.byte() % 8 {
                0 => (FrameKind::Heartbeat, 0),
                1 => (FrameKind::BulkPull, self.byte()),
                2 => (FrameKind::Request, self.byte() * 600),
                3 => (FrameKind::Reply, self.byte() * 40),
                _ => (FrameKind::Request, self.byte()),
            };
            let id = self.byte() as u64;
            Frame::new(kind, id, Bytes::from(vec![id as u8; payload]))
        }
    }

    /// What comes out of `stream`, cut into reads by `choices`, and whether the link still holds.
    fn received(stream: &[u8], choices: &mut Choices<'_>) -> (Vec<Frame>, bool) {
        let mut inbox = Inbox::new();
        let mut out = Vec::new();
        let mut rest = stream;
        loop {
            loop {
                match inbox.parse() {
                    Ok(Some(frame)) => out.push(frame),
                    Ok(None) => break,
                    Err(_) => return (out, false),
                }
            }
            if rest.is_empty() {
                return (out, true);
            }
            inbox.reserve();
            let (have, room) = (inbox.buffer.len(), inbox.buffer.capacity());
            assert!(room > have, "a read has room");
            assert!(room <= 4 * (have + READ_BYTES), "{room} bytes are reserved for {have}");
            let read = match choices.byte() {
                0 => room - have,
                some => some * some,
            };
            let read = read.clamp(1, rest.len().min(room - have));
            inbox.buffer.extend_from_slice(&rest[..read]);
            rest = &rest[read..];
        }
    }

    /// Fuzz target: however the stream is cut into reads, the frames that were sent come out. Where
    /// a byte changed on the way, frames before it come out, and nothing that was not sent.
    #[test]
    fn reassembly() {
        let programs = bolero::produce::<Vec<u8>>().with().len(0..=120);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(TIME)
            .with_generator(programs)
            .for_each(|program: &Vec<u8>| {
                let mut choices = Choices(program.iter());
                let sent: Vec<Frame> = (0..choices.byte() % 12).map(|_| choices.frame()).collect();
                let mut stream: Vec<u8> =
                    sent.iter().flat_map(|frame| frame.encode(CrcMode::All).to_vec()).collect();
                let wanted: Vec<Frame> =
                    sent.into_iter().filter(|frame| frame.kind != FrameKind::Heartbeat).collect();
                let flip = choices.byte() as u8;
                let at = choices.byte() << 8 | choices.byte();
                let is_damaged = flip != 0 && flip < 64 && !stream.is_empty();
                if is_damaged {
                    let at = at % stream.len();
                    stream[at] ^= flip;
                }
                let (out, holds) = received(&stream, &mut choices);
                assert!(out.len() <= wanted.len() && out[..] == wanted[..out.len()]);
                assert!(is_damaged || (holds && out.len() == wanted.len()));
            });
    }

    /// Fuzz target: bytes that are no frames end the link or wait for more.
    #[test]
    fn garbage() {
        bolero::check!().with_iterations(20_000).with_test_time(TIME).for_each(|bytes: &[u8]| {
            let (out, _) = received(bytes, &mut Choices(bytes.iter()));
            assert!(out.len() * FRAME_HEADER_BYTES <= bytes.len());
        });
    }
}
