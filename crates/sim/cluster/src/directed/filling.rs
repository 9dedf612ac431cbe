//! Part of **layouts**: a pool fills up while clients make and write files, and servers lose their
//! power with requests in their hands. Some files begin at the MDT and grow past their border, into
//! a pool.
//!
//! - A file is in the pool that it asked for, or in the one that this pool spills into.
//! - All bytes that were acknowledged are there afterwards. No call fails, but for a write to the
//!   full pool.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use client::{Client, File};
use env_sim::Rng;
use oracle::test_ctx;
use types::{Errno, Fid, Span, TargetId};

use super::full::{BYTES, NO_ROOM, ROOM, Who, grows_from_mdt, in_pool};
use super::layouts::content;
use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;
use crate::server::{POOLS, Server};

/// Files that one client makes at a time.
const AT_ONCE: u32 = 3;
/// Files that one task makes, at most.
const FILES_MAX: u32 = 40;
/// Bytes of one write, at most.
const PIECE_MAX: u64 = 40_000;

/// A file that was written and closed.
struct Filled {
    file: File,
    /// The pool that it asked for.
    pool: usize,
    /// Bytes that were acknowledged, from the start on.
    bytes: usize,
}

/// The work of all tasks.
#[derive(Default)]
struct Work {
    may_stop: Cell<bool>,
    /// Tasks that have not ended.
    busy: Cell<u32>,
    files: RefCell<Vec<Filled>>,
    wrong: RefCell<Option<String>>,
}

impl Stage<'_> {
    pub(super) fn fill_a_pool_amid_power_cuts(&mut self) -> Result<(), String> {
        let makers = [self.enter("maker"), self.enter("maker")];
        let work = Rc::new(Work::default());
        makers.iter().for_each(|maker| self.begin_making(maker, &work));
        self.pause(Span::millis(100));
        let [flash, disk] = POOLS;
        flash.1.into_iter().for_each(|ost| self.cluster.limit_ost(ost, NO_ROOM));
        self.pause(Span::millis(200));
        let cluster = self.cluster;
        self.lose_power(&cluster.servers[cluster.mdt_index(0)]);
        self.pause(Span::millis(200));
        // a full disk has no room for the writes that are repeated to an OST which lost its power
        let is_full = |server: &&Server| flash.1.map(TargetId::ost).contains(&server.target);
        let others: Vec<&Server> = cluster.servers.iter().filter(|one| !is_full(one)).collect();
        let other = *self.rng.pick(&others);
        self.lose_power(other);
        self.pause(Span::millis(300));
        work.may_stop.set(true);
        if !self.cluster.sim.run_until(PEACE_MAX, || work.busy.get() == 0) {
            return Err("a client never ends to fill a pool".to_owned());
        }
        if let Some(wrong) = work.wrong.borrow_mut().take() {
            return Err(wrong);
        }
        let reader = self.enter("reader");
        for filled in work.files.take() {
            self.is_as_acknowledged(&reader, &filled)?;
        }
        self.hear_of_room(&reader)?;
        let spilled = self.new_file(&reader, "spilled again", in_pool(flash.0, 1))?;
        self.write_on(&reader, &spilled, 0, BYTES)?;
        self.is_in_one_of(&reader, &spilled, &[disk])?;
        self.close_all(&reader, vec![spilled])?;
        self.cluster.limit_osts(ROOM);
        Ok(())
    }

    fn begin_making(&mut self, (node, client): &Who, work: &Rc<Work>) {
        for task in 0..AT_ONCE {
            let name = format!("{}.{task}", node.name());
            let making = keep_making(client.clone(), name, work.clone(), self.rng.fork());
            work.busy.set(work.busy.get() + 1);
            node.env().spawn("makes files", making);
        }
    }

    /// A machine dies, loses what need not be durable, and comes back.
    fn lose_power(&mut self, server: &Server) {
        self.cluster.sim.narrate(&format!("cuts the power of {}", server.target));
        server.kill(true);
        server.power_cut(self.rng.bits());
        self.power_cuts += 1;
        self.restarts += 1;
        self.pause(Span::secs(1));
        server.boot();
    }

    fn is_as_acknowledged(&mut self, reader: &Who, filled: &Filled) -> Result<(), String> {
        let Filled { file, pool, bytes } = filled;
        self.is_in_one_of(reader, file, &POOLS[*pool..])?;
        if *bytes == BYTES {
            return self.is_whole(reader, file, BYTES);
        }
        if *pool > 0 {
            return Err(format!("a pool with room took {bytes} bytes of a file"));
        }
        let (fid, bytes) = (file.fid(), *bytes);
        let read = self.ask(reader, "reading what found room", async move |client| {
            let opened = client.open(&test_ctx(), fid, 0).await?;
            let read = opened.read(0, bytes).await?;
            opened.close().await?;
            Ok(read)
        })?;
        if read == content(6, bytes as u64) {
            return Ok(());
        }
        Err(format!("{bytes} bytes were acknowledged, and {} others are read", read.len()))
    }
}

/// Makes one file after the other until it may stop.
async fn keep_making(client: Client, name: String, work: Rc<Work>, mut rng: Rng) {
    for number in 0..FILES_MAX {
        if work.may_stop.get() {
            break;
        }
        let name = format!("{name}.{number}");
        match make(&client, &name, &mut rng).await {
            Ok(filled) => work.files.borrow_mut().push(filled),
            Err(error) => {
                work.wrong.borrow_mut().get_or_insert(format!("{name}: {error}"));
            }
        }
    }
    work.busy.set(work.busy.get() - 1);
}

async fn make(client: &Client, name: &str, rng: &mut Rng) -> client::Result<Filled> {
    let pool = rng.index(POOLS.len());
    let striped = in_pool(POOLS[pool].0, if rng.chance(500_000) { 1 } else { -1 });
    let grows = rng.chance(500_000);
    let asked = if grows { grows_from_mdt(striped) } else { striped.into() };
    let (ctx, flags) = (test_ctx(), O_RDWR | O_EXCL);
    let made = client.create(&ctx, Fid::ROOT, name.as_bytes(), 0o666, flags, Some(&asked)).await?;
    let file = made.1;
    let bytes = fill(&file, rng).await?;
    file.close().await?;
    Ok(Filled { file, pool, bytes })
}

/// Writes a file in pieces, up to the first one that finds no room. Returns the acknowledged bytes.
async fn fill(file: &File, rng: &mut Rng) -> client::Result<usize> {
    let (whole, mut at) = (content(6, BYTES as u64), 0);
    while at < BYTES {
        let end = BYTES.min(at + rng.range(1, PIECE_MAX) as usize);
        let written = match file.write(at as u64, whole.slice(at..end)).await {
            Err(error) if error.errno() == Errno::ENOSPC => 0,
            done => done?,
        };
        at += written;
        if at < end {
            break;
        }
    }
    Ok(at)
}
