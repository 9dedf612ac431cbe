//! A target that answers self-test requests only: pings, and bulk of a pattern (spec rpc 1.6).

use std::rc::Rc;

use bytes::Bytes;
use env::{Env, LocalFuture};
use service::{Class, ClientRecord, Exports, ExportsConfig, Incoming, Session, Target};
use types::{Errno, Instance, Span, TargetId, Transno};
use wire::body::LstBrwReq;
use wire::{BULK_BYTES_MAX, Opcode, Reply, Request};

/// Every eight bytes of a checked transfer.
const MAGIC: u64 = 0xeeb0_eeb1_eeb2_eeb3;
/// `check=simple` looks at both ends of each of these.
const PAGE_BYTES: usize = 4_096;

/// Answers LstPing and LstBrw; keeps nothing.
pub struct LstTarget {
    id: TargetId,
    exports: Rc<Exports>,
    pattern: Bytes,
}

impl LstTarget {
    /// A target without state: nobody has to recover.
    #[must_use]
    pub fn new(env: &Env, id: TargetId) -> Rc<LstTarget> {
        let config = ExportsConfig {
            target: id,
            instance: Instance(1),
            known: Vec::new(),
            replies: Vec::new(),
            last_committed: Transno::NONE,
            recovery_window: Span::secs(30),
            recovery_window_max: Span::secs(120),
            abort_recovery: true,
            lease: Span::secs(150),
        };
        Rc::new(LstTarget { id, exports: Exports::new(env, config), pattern: pattern(BULK_BYTES_MAX as usize) })
    }

    async fn brw(&self, incoming: &Incoming) -> Result<Reply, Errno> {
        let request: LstBrwReq = incoming.request.body();
        let length = request.length as usize;
        if length > self.pattern.len() {
            return Err(Errno::EINVAL);
        }
        let mut reply = Reply::ok(&incoming.request.header, vec![Bytes::new()]);
        if request.write == 0 {
            incoming.push(&mut reply, self.pattern.slice(..length));
        } else {
            let data = incoming.pull().await?;
            if data.len() != length || !is_intact(&data, request.check) {
                return Err(Errno::EIO);
            }
        }
        Ok(reply)
    }
}

fn pattern(len: usize) -> Bytes {
    Bytes::from(MAGIC.to_le_bytes().repeat(len / 8))
}

/// Whether data carries the pattern: 0 does not look, 1 at both ends of each page, 2 everywhere.
fn is_intact(data: &[u8], check: u32) -> bool {
    let magic = MAGIC.to_le_bytes();
    match check {
        0 => true,
        1 => data.chunks(PAGE_BYTES).all(|page| {
            let word = page.len().min(8);
            page[..word] == magic[..word] && page[page.len() - word..] == magic[8 - word..]
        }),
        _ => data.chunks(8).all(|word| *word == magic[..word.len()]),
    }
}

impl Target for LstTarget {
    fn id(&self) -> TargetId {
        self.id
    }

    fn exports(&self) -> Rc<Exports> {
        Rc::clone(&self.exports)
    }

    fn class(&self, _request: &Request) -> Class {
        Class { service: &service::spec::OST_IO, high_priority: false }
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(async move {
            let header = incoming.request.header;
            match incoming.request.opcode() {
                Opcode::LstPing => Reply::ok(&header, incoming.request.bufs.clone()),
                Opcode::LstBrw => self.brw(&incoming).await.unwrap_or_else(|errno| Reply::error(&header, errno)),
                _ => Reply::error(&header, Errno::EOPNOTSUPP),
            }
        })
    }

    fn remember_client(self: Rc<Self>, _record: ClientRecord) -> LocalFuture<'static, Result<(), Errno>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn session_ended(self: Rc<Self>, _session: Rc<Session>, _evicted: bool) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(std::future::ready(()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_changed_byte_is_seen_by_the_check_that_looks_there() {
        let good = pattern(2 * PAGE_BYTES);
        let changed = |at: usize| {
            let mut bad = good.to_vec();
            bad[at] ^= 1;
            [0, 1, 2].map(|check| is_intact(&bad, check))
        };
        assert_eq!([0, 1, 2].map(|check| is_intact(&good, check)), [true; 3]);
        assert_eq!(changed(PAGE_BYTES), [true, false, false]);
        assert_eq!(changed(PAGE_BYTES / 2), [true, true, false]);
    }
}
