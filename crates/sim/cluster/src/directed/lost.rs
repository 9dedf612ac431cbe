//! **lost**: a client closes a file and dies before an OST has made its objects durable, and that
//! OST loses its power. Data that does not come back reads as EIO, and no other data does. The file
//! is not migrated then, and heals when it is written again. In the last round the file has bytes
//! behind its first 64 stripes only.

use std::rc::Rc;

use bytes::Bytes;
use client::{Client, SetAttr};
use env_sim::NodeHandle;
use layout::{Asked, Template};
use oracle::test_ctx;
use types::{Errno, Fid, Span, TargetId, TargetKind};

use super::{O_EXCL, O_RDWR, Stage};

/// Power cuts of one run.
const ROUNDS: u32 = 3;
const STRIPE_SIZE: u64 = 64 << 10;
/// The file has so much at the start of each stripe: a block of a disk, which is lost whole or not
/// at all.
const PIECE: u64 = 4_096;
const PIECES: u64 = 4;
/// Stripes of the file of the last round.
const WIDE: i32 = 70;

const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;

/// A file with pieces in its last stripes.
#[derive(Clone, Copy)]
struct Written {
    fid: Fid,
    /// Stripe of the first piece. There are no bytes before it.
    first: u64,
}

impl Written {
    /// Where a piece is.
    fn at(self, piece: u64) -> u64 {
        (self.first + piece) * STRIPE_SIZE
    }

    fn size(self) -> u64 {
        self.at(PIECES - 1) + PIECE
    }
}

impl Stage<'_> {
    pub(super) fn lost(&mut self) -> Result<(), String> {
        let reader = self.enter("reader");
        for round in 0..ROUNDS {
            let name = format!("lost{round}");
            let written = self.write_and_die(&name, round == ROUNDS - 1)?;
            let missing = self.missing(&reader, written)?;
            self.read_what_is_left(&reader, written, &missing)?;
            if missing.contains(&true) {
                self.nobody_knows_its_end(&reader, written)?;
                self.nobody_migrates(&reader, written.fid)?;
            }
            self.heal(&reader, written)?;
        }
        self.nothing_is_left(&reader)
    }

    /// The writer closes and dies, an OST loses its power at once or a while later.
    fn write_and_die(&mut self, name: &str, is_wide: bool) -> Result<Written, String> {
        let writer = self.enter("writer");
        let own = name.to_owned();
        let first = if is_wide { u64::from(WIDE.unsigned_abs()) - PIECES } else { 0 };
        let written = self.ask(&writer, "writing", async move |client| {
            let striped = Template {
                stripe_size: STRIPE_SIZE as u32,
                stripe_count: if is_wide { WIDE } else { -1 },
                overstriped: is_wide,
                ..Template::default()
            };
            let flags = O_RDWR | O_EXCL;
            let (attr, file) = client
                .create(&test_ctx(), Fid::ROOT, own.as_bytes(), 0o666, flags, Some(&striped.into()))
                .await?;
            let written = Written { fid: attr.fid(), first };
            for piece in 0..PIECES {
                file.write(written.at(piece), content(piece as u8, PIECE)).await?;
            }
            file.close().await?;
            Ok(written)
        })?;
        self.pause(Span::millis(800));
        let osts: Vec<_> = self
            .cluster
            .servers
            .iter()
            .filter(|server| server.target.kind == TargetKind::Ost)
            .collect();
        let ost = *self.rng.pick(&osts);
        self.cluster.sim.narrate(&format!("kills the writer, cuts the power of {}", ost.target));
        writer.0.kill();
        ost.kill(true);
        ost.power_cut(self.rng.bits());
        self.restarts += 1;
        self.pause(Span::secs(2));
        ost.boot();
        Ok(written)
    }

    /// Which stripes have lost their object, by the disks: from that of the first piece on.
    fn missing(
        &mut self,
        who: &(NodeHandle, Client),
        Written { fid, first }: Written,
    ) -> Result<Vec<bool>, String> {
        let striping =
            self.ask(who, "layout", async move |client| client.striping(&test_ctx(), fid).await)?;
        let client::Striping::File(layout) = striping else {
            return Err(format!("the file has {striping:?}"));
        };
        let is_missing = |stripe| {
            let (object, ost) = layout.object(stripe);
            let server =
                self.cluster.servers.iter().find(|server| server.target == TargetId::ost(ost.0));
            !server.expect("every OST is a server").disk.objects().contains(&object)
        };
        Ok((first as u32..layout.stripes()).map(is_missing).collect())
    }

    /// Attributes are told. A piece of a lost object is EIO, every other is what was written.
    fn read_what_is_left(
        &mut self,
        who: &(NodeHandle, Client),
        written: Written,
        missing: &[bool],
    ) -> Result<(), String> {
        let fid = written.fid;
        let size = self.ask(who, "stat", async move |client| {
            Ok(client.getattr(&test_ctx(), fid, None).await?.size)
        })?;
        if size != written.size() {
            let closed = written.size();
            return Err(format!("the file was closed with {closed} bytes and has {size}"));
        }
        for (piece, is_lost) in (0..PIECES).zip(missing) {
            let read = self.ask(who, "reading what is left", async move |client| {
                let file = client.open(&test_ctx(), fid, 0).await?;
                let read = file.read(written.at(piece), PIECE as usize).await;
                file.close().await?;
                Ok(read.map_err(|error| error.errno()))
            })?;
            let right = if *is_lost { Err(Errno::EIO) } else { Ok(content(piece as u8, PIECE)) };
            if read != right {
                let read = read.map(|data| data.iter().filter(|byte| **byte != 0).count());
                return Err(format!(
                    "lost by stripe: {missing:?}; piece {piece} is read as {read:?} bytes that are not zero"
                ));
            }
        }
        Ok(())
    }

    /// An append and a truncate that leaves something of the file would have to.
    fn nobody_knows_its_end(
        &mut self,
        who: &(NodeHandle, Client),
        written: Written,
    ) -> Result<(), String> {
        let fid = written.fid;
        let (append, cut, size) = self.ask(who, "appending", async move |client| {
            let file = client.open(&test_ctx(), fid, O_RDWR | O_APPEND).await?;
            let append = file.write(0, content(2, 100)).await.map_err(|error| error.errno());
            file.close().await?;
            let set = SetAttr { size: Some(written.size() + 1), ..SetAttr::default() };
            let cut =
                client.setattr(&test_ctx(), fid, &set, None).await.map_err(|error| error.errno());
            let mode = SetAttr { mode: Some(0o640), ..SetAttr::default() };
            client.setattr(&test_ctx(), fid, &mode, None).await?;
            Ok((
                append,
                cut.map(|attr| attr.size),
                client.getattr(&test_ctx(), fid, None).await?.size,
            ))
        })?;
        if append == Err(Errno::EIO) && cut == Err(Errno::EIO) && size >= written.size() {
            return Ok(());
        }
        Err(format!(
            "an append to a file that misses an object gave {append:?}, a truncate {cut:?}, its size is {size}"
        ))
    }

    /// The copy would lack the lost bytes.
    fn nobody_migrates(&mut self, who: &(NodeHandle, Client), fid: Fid) -> Result<(), String> {
        let moved = self.ask(who, "migrating", async move |client| {
            let asked = Asked::from(Template { stripe_count: 2, ..Template::default() });
            let moved = client.migrate(&test_ctx(), fid, Fid::ROOT, &asked, &Rc::default()).await;
            Ok(moved.map_err(|error| error.errno()))
        })?;
        if moved == Err(Errno::EIO) {
            return Ok(());
        }
        Err(format!("a file that misses an object is migrated: {moved:?}"))
    }

    /// Written anew, in one of three ways, it is whole again.
    fn heal(&mut self, who: &(NodeHandle, Client), written: Written) -> Result<(), String> {
        let fid = written.fid;
        let behind = (PIECES - 1) * STRIPE_SIZE + PIECE;
        let (way, len) = (self.rng.below(3), written.size() + 1 + self.rng.below(behind));
        let (read, size) = self.ask(who, "healing", async move |client| {
            if way == 0 {
                let nothing = SetAttr { size: Some(0), ..SetAttr::default() };
                client.setattr(&test_ctx(), fid, &nothing, None).await?;
            }
            let file = client
                .open(&test_ctx(), fid, if way == 1 { O_RDWR | O_TRUNC } else { O_RDWR })
                .await?;
            file.write(0, content(3, len)).await?;
            file.close().await?;
            let file = client.open(&test_ctx(), fid, 0).await?;
            let read = file.read(0, 2 * len as usize).await;
            file.close().await?;
            Ok((read?, client.getattr(&test_ctx(), fid, None).await?.size))
        })?;
        if read == content(3, len) && size == len {
            return Ok(());
        }
        Err(format!(
            "written anew with {len} bytes, the file has {size}, of which {} are read",
            read.len()
        ))
    }
}

fn content(salt: u8, len: u64) -> Bytes {
    Bytes::from(oracle::pattern(salt, len as usize))
}
