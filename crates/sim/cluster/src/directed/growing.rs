//! Part of **layouts**: a component grows in steps while its OST has room. Then the OST is nearly
//! full, the MDT may restart, and the file goes on in the next component. No write meets the full
//! OST. Clients that opened the file at first read all of it, and punch a hole into all of it.

use client::{Client, File, Striping};
use env_sim::NodeHandle;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};
use oracle::test_ctx;
use types::{Fid, Span, TargetId};

use super::{O_EXCL, O_RDWR, Stage};

const STEP: u64 = 128 << 10;
/// Where the component could end.
const END: u64 = 16 << 20;
/// Bytes of the file before its OST has no more room than this.
const BEFORE: usize = 600 << 10;
const ROOM: u64 = 1536 << 10;
const BYTES: usize = 3 << 20;
/// FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
const PUNCH: u32 = 3;
/// Longer than the figures of the MDT are used.
const MAX_AGE: Span = Span::secs(6);

impl Stage<'_> {
    pub(super) fn grow_past_a_full_ost(&mut self) -> Result<(), String> {
        let (writer, reader) = (self.enter("writer"), self.enter("reader"));
        let writes = self.ask(&writer, "creating", async move |client| {
            let flags = O_RDWR | O_EXCL;
            let (_, file) = client
                .create(&test_ctx(), Fid::ROOT, b"growing", 0o666, flags, Some(&asked()))
                .await?;
            Ok(file)
        })?;
        let fid = writes.fid();
        let reads = self
            .ask(&reader, "opening", async move |client| client.open(&test_ctx(), fid, 0).await)?;
        let puncher = self.enter("puncher");
        let punches = self.ask(&puncher, "opening", async move |client| {
            client.open(&test_ctx(), fid, O_RDWR).await
        })?;
        self.write_on(&writer, &writes, 0, BEFORE)?;
        self.see_all(&reader, &reads, BEFORE)?;
        let first = self.ends(&reader, fid)?;
        let [(end, osts), ..] = &first[..] else { return Err("it has no objects".to_owned()) };
        if *end < BEFORE as u64 || *end > BEFORE as u64 + 2 * STEP || osts.len() != 1 {
            return Err(format!("after {BEFORE} bytes it has the components {first:?}"));
        }
        self.have_no_room(&writer, osts[0])?;
        self.write_on(&writer, &writes, BEFORE, BYTES)?;
        self.see_all(&reader, &reads, BYTES)?;
        let then = self.ends(&reader, fid)?;
        if then.len() < 2 || then[1].1 == *osts || then[0].0 > ROOM {
            return Err(format!("OST {} is full, but the components are {then:?}", osts[0]));
        }
        self.ask(&puncher, "punching a hole", async move |_| {
            punches.fallocate(PUNCH, 0, BYTES as u64).await?;
            punches.close().await
        })?;
        let hole = reads.clone();
        let read =
            self.ask(&reader, "reading a hole", async move |_| hole.read(0, 2 * BYTES).await)?;
        if read.len() != BYTES || read.iter().any(|byte| *byte != 0) {
            return Err(format!("{} bytes are in the place of a hole", read.len()));
        }
        self.ask(&writer, "closing", async move |_| writes.close().await)?;
        self.ask(&reader, "closing", async move |_| reads.close().await)
    }

    /// In pieces of some size.
    pub(super) fn write_on(
        &mut self,
        writer: &(NodeHandle, Client),
        file: &File,
        from: usize,
        to: usize,
    ) -> Result<(), String> {
        let (whole, mut at) = (super::layouts::content(6, to as u64), from);
        while at < to {
            let end = to.min(at + self.rng.range(1, 100_000) as usize);
            let (file, piece) = (file.clone(), whole.slice(at..end));
            self.ask(writer, "a write", async move |_| file.write(at as u64, piece).await)?;
            at = end;
        }
        Ok(())
    }

    /// Its content, and its size.
    pub(super) fn see_all(
        &mut self,
        reader: &(NodeHandle, Client),
        file: &File,
        bytes: usize,
    ) -> Result<(), String> {
        let (file, fid) = (file.clone(), file.fid());
        let (read, size) = self.ask(reader, "reading", async move |client| {
            let size = client.getattr(&test_ctx(), fid, None).await?.size;
            Ok((file.read(0, bytes + 1).await?, size))
        })?;
        if size == bytes as u64 && read == super::layouts::content(6, bytes as u64) {
            return Ok(());
        }
        Err(format!("{bytes} bytes were written, {} are read, the size is {size}", read.len()))
    }

    /// Where each component with objects ends, and their OSTs.
    fn ends(
        &mut self,
        who: &(NodeHandle, Client),
        fid: Fid,
    ) -> Result<Vec<(u64, Vec<u32>)>, String> {
        let striping = self
            .ask(who, "the layout", async move |client| client.striping(&test_ctx(), fid).await)?;
        let Striping::File(layout) = striping else { return Err("it has no layout".to_owned()) };
        let composite = layout.as_composite().ok_or("it has no components")?;
        let parts = composite.components.iter();
        let placed = parts.filter_map(|part| Some((part.extent.end(), part.objects()?)));
        Ok(placed.map(|(end, objects)| (end, objects.osts.clone())).collect())
    }

    /// An OST is nearly full from now on, and the MDT knows it.
    fn have_no_room(&mut self, who: &(NodeHandle, Client), ost: u32) -> Result<(), String> {
        let mut servers = self.cluster.servers.iter();
        let server = servers.find(|server| server.target == TargetId::ost(ost));
        server.ok_or("it is on no OST")?.disk.set_object_bytes(ROOM);
        self.hear_of_room(who)
    }

    /// The MDT hears how much room its targets have, perhaps after a restart.
    pub(super) fn hear_of_room(&mut self, who: &(NodeHandle, Client)) -> Result<(), String> {
        if self.rng.chance(500_000) {
            self.mdt().kill(false);
            self.restarts += 1;
            self.pause(Span::secs(1));
            self.mdt().boot();
        }
        for _ in 0..3 {
            let name = format!("look{}", self.ops);
            self.ask(who, "looking for room", async move |client| {
                let ctx = test_ctx();
                let flags = O_RDWR | O_EXCL;
                let made = client.create(&ctx, Fid::ROOT, name.as_bytes(), 0o666, flags, None);
                made.await?.1.close().await
            })?;
            self.cluster.sim.run_for(MAX_AGE);
        }
        Ok(())
    }
}

/// A component that grows, and one to spill into.
fn asked() -> Asked {
    let striped = || Template { stripe_size: 64 << 10, stripe_count: 1, ..Template::default() };
    let parts =
        [(END, Wanted::Extendable(striped(), STEP)), (END_OF_FILE, Wanted::Striped(striped()))];
    let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
    Asked::Composite(CompositeTemplate { components: components.into() })
}
