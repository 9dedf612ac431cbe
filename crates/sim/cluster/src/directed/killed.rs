//! **killed**: the caller of a write is killed while its client cannot reach an OST. The client
//! then closes the file. Another client writes the same bytes and more. However much of the first
//! write had arrived, the second client's bytes stay and the size matches the data. The first
//! client's next write comes after its killed one.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, File};
use env_sim::{Cut, NodeHandle};
use layout::Template;
use oracle::test_ctx;
use types::{Fid, Span, TargetKind};

use super::{O_EXCL, O_RDWR, Stage};

/// Killed writes of one run.
const ROUNDS: u32 = 4;
const BYTES: u64 = 100_000;
const STRIPE_SIZE: u32 = 64 << 10;
/// Longer than a client takes to come back to an OST and resend, shorter than a session's lease.
const LATER: Span = Span::secs(40);

impl Stage<'_> {
    pub(super) fn killed(&mut self) -> Result<(), String> {
        let (first, second) = (self.enter("first"), self.enter("second"));
        for round in 0..ROUNDS {
            self.kill_once(&first, &second, round)?;
        }
        self.nothing_is_left(&second)
    }

    fn kill_once(
        &mut self,
        first: &(NodeHandle, Client),
        second: &(NodeHandle, Client),
        round: u32,
    ) -> Result<(), String> {
        let cluster = self.cluster;
        let name = format!("killed{round}");
        let file = self.ask(first, "preparing", async move |client| {
            let striped =
                Template { stripe_size: STRIPE_SIZE, stripe_count: -1, ..Template::default() };
            let (flags, ctx) = (O_RDWR | O_EXCL, test_ctx());
            let (_, file) = client
                .create(&ctx, Fid::ROOT, name.as_bytes(), 0o666, flags, Some(&striped.into()))
                .await?;
            file.write(0, content(1, BYTES)).await?;
            file.fsync(false).await?;
            Ok(file)
        })?;
        let fid = file.fid();
        let cut = if self.rng.chance(500_000) { Cut::BothWays } else { Cut::OneWay };
        cluster.sim.narrate(&format!("cuts the OSTs from the first client, {cut:?}"));
        for server in cluster.servers.iter().filter(|s| s.target.kind == TargetKind::Ost) {
            cluster.sim.partition(&server.node, &first.0, cut);
        }
        // a part of it lies behind the end
        let offset = self.rng.below(2 * BYTES);
        let is_closed = self.kill_write(first, &file, offset);
        let len = BYTES + self.rng.below(BYTES);
        self.ask(second, "the second write", async move |client| {
            let file = client.open(&test_ctx(), fid, O_RDWR).await?;
            file.write(0, content(3, len)).await?;
            file.fsync(false).await?;
            file.close().await
        })?;
        cluster.sim.heal_all();
        cluster.sim.run_for(LATER);
        if !is_closed.get() {
            return Err("the killed writer's file is never closed".to_owned());
        }
        self.see_the_second(second, fid, len)
    }

    /// Begins a write and a moment later kills its caller, whose file is closed then.
    fn kill_write(
        &mut self,
        (node, _): &(NodeHandle, Client),
        file: &File,
        offset: u64,
    ) -> Rc<Cell<bool>> {
        let (is_closed, own) = (Rc::new(Cell::new(false)), file.clone());
        let writing = node.env().spawn("the first write", async move {
            let _killed = own.write(offset, content(2, BYTES)).await;
        });
        self.pause(Span::secs(3));
        writing.abort();
        let (told, own) = (is_closed.clone(), file.clone());
        node.env().spawn("closes", async move {
            told.set(own.close().await.is_ok());
        });
        self.pause(Span::secs(3));
        is_closed
    }

    fn see_the_second(
        &mut self,
        who: &(NodeHandle, Client),
        fid: Fid,
        len: u64,
    ) -> Result<(), String> {
        let (read, size) = self.ask(who, "reading", async move |client| {
            let file = client.open(&test_ctx(), fid, 0).await?;
            let read = file.read(0, 4 * BYTES as usize).await?;
            file.close().await?;
            Ok((read, client.getattr(&test_ctx(), fid, None).await?.size))
        })?;
        let stays = read.len() as u64 >= len && read[..len as usize] == content(3, len);
        if stays && size == read.len() as u64 {
            return Ok(());
        }
        let other = read.iter().zip(&content(3, len)).position(|(one, other)| one != other);
        Err(format!(
            "of {len} bytes written last the first that differs is {other:?}; size {size}, {} bytes are read",
            read.len()
        ))
    }
}

fn content(salt: u8, len: u64) -> Bytes {
    Bytes::from(oracle::pattern(salt, len as usize))
}
