//! The reader of incoming bulk.
//!
//! Small data come many to a read. Headers and data of up to [`BULK_AHEAD_BYTES`] are read ahead
//! together. Complete data are handed on as a slice of the read buffer, without a copy. Larger data
//! are read straight into a pooled buffer of their size; behind them only the next header is read
//! ahead. Unexpected data are dropped. They are not a fault of the peer, because their ticket may
//! have gone a moment ago.

use std::io;
use std::rc::Rc;
use std::sync::LazyLock;

use bytes::{Buf, Bytes, BytesMut};
use env::BufferPool;
use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use wire::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};

use super::fault::{Fault, ended};
use super::shared::Shared;
use crate::limits::{BULK_AHEAD_BYTES, BULK_SMALL_BYTES, POOL_BYTES_MAX, SCRATCH_BYTES};

/// Buffers of all connections of the process: they are dropped on any thread. Alignment lets an OST
/// write what it received with `O_DIRECT` as it is.
static POOL: LazyLock<BufferPool> = LazyLock::new(|| BufferPool::new(POOL_BYTES_MAX));

/// Reads until the connection ends. `_write` keeps its other half open: dropping it would end the
/// connection.
pub(super) async fn read_all(
    shared: Rc<Shared>,
    half: OwnedReadHalf,
    _write: OwnedWriteHalf,
) -> Result<(), Fault> {
    let mut ahead = Ahead { half, buffer: BytesMut::new(), is_greedy: false };
    loop {
        ahead.fill(FRAME_HEADER_BYTES).await?;
        let header = FrameHeader::decode(&ahead.buffer)?;
        if header.kind != FrameKind::BulkData {
            return Err(Fault::Channel(header.kind, "bulk"));
        }
        shared.heard.set(true);
        shared.config.traffic.received(header.length);
        ahead.is_greedy = header.length <= BULK_SMALL_BYTES;
        if !shared.bulk.admits(header.id, header.length) {
            ahead.skip(FRAME_HEADER_BYTES + header.length).await?;
            continue;
        }
        let poison = shared.config.traffic.poison();
        let data = if ahead.is_greedy && poison.is_none() {
            ahead.small(&header).await?
        } else {
            ahead.large(&header, poison).await?
        };
        shared.bulk.deliver(header.id, data);
    }
}

/// The connection, and what was read of it and not looked at.
struct Ahead {
    half: OwnedReadHalf,
    buffer: BytesMut,
    /// Reads take as much as is there: small data follow one another.
    is_greedy: bool,
}

impl Ahead {
    /// Reads until `bytes` are there, at most [`BULK_AHEAD_BYTES`].
    async fn fill(&mut self, bytes: usize) -> io::Result<()> {
        while self.buffer.len() < bytes {
            let missing = bytes - self.buffer.len();
            let count = if self.is_greedy {
                if self.buffer.capacity() - self.buffer.len() < missing {
                    self.buffer.reserve(BULK_AHEAD_BYTES);
                }
                self.half.read_buf(&mut self.buffer).await?
            } else {
                self.buffer.reserve(missing);
                (&mut self.half).take(missing as u64).read_buf(&mut self.buffer).await?
            };
            if count == 0 {
                return Err(io::ErrorKind::UnexpectedEof.into());
            }
        }
        Ok(())
    }

    /// Data that stand in the buffer, or soon will.
    async fn small(&mut self, header: &FrameHeader) -> Result<Bytes, Fault> {
        let bytes = FRAME_HEADER_BYTES + header.length;
        self.fill(bytes).await?;
        let mut frame = self.buffer.split_to(bytes);
        header.check_in_place(&mut frame)?;
        frame.advance(FRAME_HEADER_BYTES);
        Ok(frame.freeze())
    }

    /// Data in a buffer of their own, every byte of which is `poison` before they come.
    async fn large(&mut self, header: &FrameHeader, poison: Option<u8>) -> Result<Bytes, Fault> {
        self.buffer.advance(FRAME_HEADER_BYTES);
        let mut buffer = POOL.take(header.length);
        buffer.filled(header.length); // each byte is written below, or the buffer is dropped
        if let Some(poison) = poison {
            buffer.fill(poison);
        }
        let here = self.buffer.len().min(header.length);
        buffer[..here].copy_from_slice(&self.buffer[..here]);
        self.buffer.advance(here);
        self.half.read_exact(&mut buffer[here..]).await?;
        header.check(&buffer)?;
        Ok(buffer.freeze())
    }

    /// Drops so many bytes.
    async fn skip(&mut self, bytes: usize) -> Result<(), Fault> {
        let here = self.buffer.len().min(bytes);
        self.buffer.advance(here);
        let mut left = bytes - here;
        let mut scratch = vec![0; left.min(SCRATCH_BYTES)];
        while left > 0 {
            let wanted = left.min(scratch.len());
            match self.half.read(&mut scratch[..wanted]).await? {
                0 => return Err(ended()),
                count => left -= count,
            }
        }
        Ok(())
    }
}
