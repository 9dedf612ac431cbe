//! The reader of incoming bulk.
//!
//! Data that somebody expects is read straight into a pooled buffer of its size; any other is read into a scratch
//! buffer and dropped: its ticket may have gone a moment ago, so that is no fault of the peer's.

use std::rc::Rc;

use tokio::io::AsyncReadExt;
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use wire::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};

use super::link::{Fault, Shared, ended};
use crate::limits::SCRATCH_BYTES;
use crate::pool::take_buffer;

/// Reads until the connection ends. `_write` keeps its other half open: dropping it would end the connection.
pub(super) async fn read_all(shared: Rc<Shared>, mut half: OwnedReadHalf, _write: OwnedWriteHalf) -> Result<(), Fault> {
    let mut scratch = Vec::new();
    loop {
        let mut head = [0; FRAME_HEADER_BYTES];
        half.read_exact(&mut head).await?;
        let header = FrameHeader::decode(&head)?;
        if header.kind != FrameKind::BulkData {
            return Err(Fault::Channel(header.kind, "bulk"));
        }
        shared.heard.set(true);
        shared.config.traffic.received(header.length);
        if shared.bulk.admits(header.id, header.length) {
            let mut buffer = take_buffer(header.length);
            if let Some(poison) = shared.config.traffic.poison() {
                buffer.fill(poison);
            }
            half.read_exact(&mut buffer).await?;
            header.check(&buffer)?;
            shared.bulk.deliver(header.id, buffer.freeze());
        } else {
            scratch.resize(SCRATCH_BYTES, 0);
            skip(&mut half, header.length, &mut scratch).await?;
        }
    }
}

async fn skip(half: &mut OwnedReadHalf, len: usize, scratch: &mut [u8]) -> Result<(), Fault> {
    let mut left = len;
    while left > 0 {
        let wanted = left.min(scratch.len());
        match half.read(&mut scratch[..wanted]).await? {
            0 => return Err(ended()),
            count => left -= count,
        }
    }
    Ok(())
}
