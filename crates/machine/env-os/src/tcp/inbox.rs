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

use super::link::{Fault, Shared, ended};
use crate::limits::{READ_BYTES, READ_SPARE_MIN};

pub(super) struct TcpRecv {
    shared: Rc<Shared>,
    half: Option<OwnedReadHalf>, // none once closed
    buffer: BytesMut,
    came: (usize, usize), // messages and their bytes since the node's account was told
    // bytes of the frame at the front of `buffer` that have not arrived, as far as is known
    missing: usize,
}

impl TcpRecv {
    pub(super) fn new(shared: Rc<Shared>, half: OwnedReadHalf) -> TcpRecv {
        TcpRecv {
            shared,
            half: Some(half),
            buffer: BytesMut::new(),
            came: (0, 0),
            missing: FRAME_HEADER_BYTES,
        }
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

    /// Once a read: the account is shared with other threads.
    fn tell(&mut self) {
        let (count, bytes) = std::mem::take(&mut self.came);
        if count > 0 {
            self.shared.config.traffic.received_all(count, bytes);
        }
    }

    fn poll_read(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<usize>> {
        self.tell();
        self.reserve();
        let Some(half) = &mut self.half else { return Poll::Ready(Ok(0)) };
        pin!(half.read_buf(&mut self.buffer)).poll(cx)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> Poll<Result<Frame, Fault>> {
        loop {
            if let Some(frame) = self.parse()? {
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
