//! Part of **layouts**: disks that fill up, and have room again later. The MDT restarts meanwhile
//! in some runs.
//!
//! - The disk of an MDT's data target: a file keeps the bytes that it has there and gets no more.
//!   Another one grows behind its part at the MDT. New files are on OSTs.
//! - The disks of a pool: new files that ask for it go to the pool that it spills into.

use bytes::Bytes;
use client::{Client, File, Striping};
use env_sim::NodeHandle;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, FileLayout, Template};
use oracle::test_ctx;
use types::{Errno, Fid};

use super::{O_EXCL, O_RDWR, Stage};
use crate::server::POOLS;

/// Bytes of a file that are at the MDT.
const BORDER: usize = 64 << 10;
/// Those that a file has there when the disk is full.
const FIRST: usize = 20_000;
/// Bytes of other files.
pub(super) const BYTES: usize = 200_000;
/// A disk with no more room than this takes no write.
pub(super) const NO_ROOM: u64 = 4_096;
/// More than all runs write.
pub(super) const ROOM: u64 = 1 << 40;

pub(super) type Who = (NodeHandle, Client);
/// Its name and its OSTs.
type Pool = (&'static str, [u32; 2]);

impl Stage<'_> {
    pub(super) fn outgrow_a_full_mdt(&mut self) -> Result<(), String> {
        let (writer, reader) = (self.enter("writer"), self.enter("reader"));
        self.cluster.limit_osts(ROOM);
        let inside = self.new_file(&writer, "inside", begins_at_mdt())?;
        let across = self.new_file(&writer, "across", begins_at_mdt())?;
        self.write_on(&writer, &inside, 0, FIRST)?;
        self.write_on(&writer, &across, 0, BORDER)?;
        self.ask(&writer, "a sync", async |client| client.sync().await)?;
        self.limit_data_target(NO_ROOM);
        self.hear_of_room(&writer)?;
        self.is_refused(&writer, &inside)?;
        self.write_on(&writer, &across, BORDER, BYTES)?;
        let elsewhere = self.new_file(&writer, "elsewhere", begins_at_mdt())?;
        self.write_on(&writer, &elsewhere, 0, BYTES)?;
        if self.layout_of(&writer, &elsewhere)?.is_at_mdt() {
            return Err("a new file begins at an MDT that is full".to_owned());
        }
        self.is_whole(&reader, &inside, FIRST)?;
        self.limit_data_target(ROOM);
        self.hear_of_room(&writer)?;
        self.write_on(&writer, &inside, FIRST, BORDER)?;
        let again = self.new_file(&writer, "again", begins_at_mdt())?;
        self.write_on(&writer, &again, 0, BYTES)?;
        if !self.layout_of(&writer, &again)?.is_at_mdt() {
            return Err("the MDT has room again and takes no file".to_owned());
        }
        self.is_whole(&reader, &inside, BORDER)?;
        for file in [&across, &elsewhere, &again] {
            self.is_whole(&reader, file, BYTES)?;
        }
        self.close_all(&writer, vec![inside, across, elsewhere, again])
    }

    pub(super) fn spill_into_another_pool(&mut self) -> Result<(), String> {
        let (writer, reader) = (self.enter("writer"), self.enter("reader"));
        let [flash, disk] = POOLS;
        let before = self.new_file(&writer, "before", in_pool(flash.0, -1))?;
        self.write_on(&writer, &before, 0, BYTES)?;
        self.is_in(&writer, &before, flash)?;
        flash.1.into_iter().for_each(|ost| self.cluster.limit_ost(ost, NO_ROOM));
        self.hear_of_room(&writer)?;
        let spilled = self.new_file(&writer, "spilled", in_pool(flash.0, 1))?;
        self.write_on(&writer, &spilled, 0, BYTES)?;
        self.is_in(&writer, &spilled, disk)?;
        self.cluster.limit_osts(ROOM);
        self.hear_of_room(&writer)?;
        let after = self.new_file(&writer, "after", in_pool(flash.0, 1))?;
        self.write_on(&writer, &after, 0, BYTES)?;
        self.is_in(&writer, &after, flash)?;
        for file in [&before, &spilled, &after] {
            self.is_whole(&reader, file, BYTES)?;
        }
        self.close_all(&writer, vec![before, spilled, after])
    }

    fn limit_data_target(&self, bytes: u64) {
        let disk = self.mdt().data_disk().expect("files begin at the MDT");
        disk.set_object_bytes(bytes);
    }

    pub(super) fn new_file(
        &mut self,
        who: &Who,
        name: &'static str,
        asked: impl Into<Asked>,
    ) -> Result<File, String> {
        let asked = asked.into();
        self.ask(who, "creating", async move |client| {
            let (ctx, name, flags) = (test_ctx(), name.as_bytes(), O_RDWR | O_EXCL);
            let made = client.create(&ctx, Fid::ROOT, name, 0o666, flags, Some(&asked)).await?;
            Ok(made.1)
        })
    }

    fn layout_of(&mut self, who: &Who, file: &File) -> Result<FileLayout, String> {
        let fid = file.fid();
        let striping = self
            .ask(who, "the layout", async move |client| client.striping(&test_ctx(), fid).await)?;
        match striping {
            Striping::File(layout) => Ok(layout),
            Striping::None | Striping::Default(_) => Err("a file has no layout".to_owned()),
        }
    }

    /// More bytes of this file would have to be on a full disk.
    fn is_refused(&mut self, who: &Who, file: &File) -> Result<(), String> {
        let file = file.clone();
        let answer = self.ask(who, "a write at a full MDT", async move |_| {
            let written = file.write(FIRST as u64, Bytes::from_static(&[1; 1_000])).await;
            Ok(written.map_err(|error| error.errno()))
        })?;
        match answer {
            Err(Errno::ENOSPC) => Ok(()),
            answer => Err(format!("a write at a full MDT: {answer:?}")),
        }
    }

    fn is_in(&mut self, who: &Who, file: &File, pool: Pool) -> Result<(), String> {
        self.is_in_one_of(who, file, &[pool])
    }

    pub(super) fn is_in_one_of(
        &mut self,
        who: &Who,
        file: &File,
        pools: &[Pool],
    ) -> Result<(), String> {
        let layout = self.layout_of(who, file)?;
        let is_in = |(pool, osts): &Pool| {
            layout.stripings().all(|striping| {
                striping.pool_name() == *pool && striping.osts.iter().all(|ost| osts.contains(ost))
            })
        };
        if pools.iter().any(is_in) {
            return Ok(());
        }
        Err(format!("a file is in none of the pools {pools:?}: {layout:?}"))
    }

    /// Through a handle of its own.
    pub(super) fn is_whole(
        &mut self,
        reader: &Who,
        file: &File,
        bytes: usize,
    ) -> Result<(), String> {
        let fid = file.fid();
        let opened = self
            .ask(reader, "opening", async move |client| client.open(&test_ctx(), fid, 0).await)?;
        self.see_all(reader, &opened, bytes)?;
        self.ask(reader, "closing", async move |_| opened.close().await)
    }

    pub(super) fn close_all(&mut self, who: &Who, files: Vec<File>) -> Result<(), String> {
        self.ask(who, "closing", async move |_| {
            for file in files {
                file.close().await?;
            }
            Ok(())
        })
    }
}

/// The first bytes at the MDT, the rest on an OST.
fn begins_at_mdt() -> Asked {
    grows_from_mdt(Template { stripe_count: 1, ..Template::default() })
}

pub(super) fn grows_from_mdt(rest: Template) -> Asked {
    let parts = [(BORDER as u64, Wanted::Mdt), (END_OF_FILE, Wanted::Striped(rest))];
    let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
    Asked::Composite(CompositeTemplate { components: components.into() })
}

pub(super) fn in_pool(pool: &str, stripe_count: i32) -> Template {
    let pool = layout::pool::padded(pool).expect("the name of a pool");
    Template { stripe_size: BORDER as u32, stripe_count, pool, ..Template::default() }
}
