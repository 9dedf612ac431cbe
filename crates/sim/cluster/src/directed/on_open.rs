//! **on_open**: clients read a small file at the MDT again and again, with bytes that come with
//! their opens. Meanwhile it is overwritten with as many bytes. Every read returns one whole
//! version. None is older than the last write that was answered before the read began, whichever
//! handle it goes through.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use client::Client;
use env::Env;
use env_sim::{NodeHandle, Rng};
use layout::Asked;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use oracle::test_ctx;
use types::{Fid, Span};

use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;

const READERS: usize = 2;
/// Reads through one handle.
const READS: u32 = 3;
/// Versions of the file behind the first one.
const WRITES: u8 = 20;
/// Bytes of each: all have its number.
pub(super) const BYTES: usize = 4_096;
/// Bytes of a file that are at the MDT.
const BORDER: u64 = 64 << 10;

#[derive(Default)]
pub(super) struct Board {
    /// The last write that was answered, and the last that began.
    pub(super) answered: Cell<u8>,
    pub(super) begun: Cell<u8>,
    pub(super) is_over: Cell<bool>,
    pub(super) finished: Cell<usize>,
    pub(super) wrong: RefCell<Option<String>>,
}

impl Board {
    pub(super) fn found(&self, wrong: String) {
        self.wrong.borrow_mut().get_or_insert(wrong);
    }

    /// These bytes were read by a call that began when `floor` was the last answered write.
    pub(super) fn check(&self, floor: u8, read: &[u8]) {
        let version = read.first().copied().unwrap_or_default();
        let (count, newest) = (read.len(), self.begun.get());
        if count != BYTES || read.iter().any(|byte| *byte != version) {
            self.found(format!("a read returns {count} bytes that no write has made"));
        } else if !(floor..=newest).contains(&version) {
            self.found(format!("a read returns version {version}, not {floor} to {newest}"));
        }
    }
}

impl Stage<'_> {
    pub(super) fn on_open(&mut self) -> Result<(), String> {
        let writer = self.enter("writer");
        let readers = [(); READERS].map(|()| self.enter("reader"));
        self.cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        let fid = self.make_small(&writer)?;
        let board = Rc::new(Board::default());
        let own = board.clone();
        self.ask(&readers[0], "reading", async move |client| read_once(client, fid, &own).await)?;
        if readers[0].1.on_open_stats().hits == 0 {
            return Err("no read has its bytes from an open".to_owned());
        }
        for (node, client) in &readers {
            let (env, rng) = (node.env(), self.rng.fork());
            let reading = keep_reading(env, client.clone(), fid, board.clone(), rng);
            node.env().spawn("reads beside", reading);
        }
        let dies_at = self.rng.below(2 * u64::from(WRITES)); // in half of the seeds
        for version in 1..=WRITES {
            self.pause(Span::millis(40));
            if u64::from(version) == dies_at {
                self.restart_mdt_with_data();
            }
            // half of the time through another handle of a client that reads
            let who = if self.rng.chance(500_000) { &readers[0] } else { &writer };
            self.overwrite(who, fid, version, &board)?;
        }
        self.pause(Span::millis(40));
        board.is_over.set(true);
        if !self.cluster.sim.run_until(PEACE_MAX, || board.finished.get() == READERS) {
            return Err("a read is never answered".to_owned());
        }
        let wrong = board.wrong.borrow_mut().take();
        wrong.map_or(Ok(()), Err)?;
        self.nothing_is_left(&writer)
    }

    /// A file whose bytes are all at the MDT.
    fn make_small(&mut self, who: &(NodeHandle, Client)) -> Result<Fid, String> {
        self.ask(who, "making the file", async |client| {
            let mut parts = CompositeTemplate::striped(0, [(BORDER, 1), (END_OF_FILE, 1)]);
            parts.components[0] = TemplateComponent { end: BORDER, wanted: Wanted::Mdt };
            let (flags, asked) = (O_RDWR | O_EXCL, Asked::Composite(parts));
            let (attr, file) =
                client.create(&test_ctx(), Fid::ROOT, b"small", 0o666, flags, Some(&asked)).await?;
            file.write(0, Bytes::from(vec![0; BYTES])).await?;
            file.close().await?;
            Ok(attr.fid())
        })
    }

    fn overwrite(
        &mut self,
        who: &(NodeHandle, Client),
        fid: Fid,
        version: u8,
        board: &Rc<Board>,
    ) -> Result<(), String> {
        let board = board.clone();
        self.ask(who, "overwriting", async move |client| {
            let file = client.open(&test_ctx(), fid, O_RDWR).await?;
            board.begun.set(version);
            file.write(0, Bytes::from(vec![version; BYTES])).await?;
            board.answered.set(version);
            file.close().await
        })
    }

    fn restart_mdt_with_data(&mut self) {
        self.cluster.sim.narrate("kills the MDT and its data target");
        self.mdt().kill(false);
        self.restarts += 1;
        self.pause(Span::secs(1));
        self.mdt().boot();
    }
}

async fn keep_reading(env: Env, client: Client, fid: Fid, board: Rc<Board>, mut rng: Rng) {
    while !board.is_over.get() {
        if let Err(error) = read_often(&env, &client, fid, &board, &mut rng).await {
            board.found(format!("a read fails: {error}"));
            break;
        }
    }
    board.finished.set(board.finished.get() + 1);
}

async fn read_often(
    env: &Env,
    client: &Client,
    fid: Fid,
    board: &Board,
    rng: &mut Rng,
) -> client::Result<()> {
    let file = client.open(&test_ctx(), fid, 0).await?;
    for _ in 0..READS {
        let floor = board.answered.get();
        board.check(floor, &file.read(0, 2 * BYTES).await?);
        env.sleep(rng.span(Span::millis(1), Span::millis(30))).await;
    }
    file.close().await
}

/// Nothing changes the file meanwhile.
async fn read_once(client: &Client, fid: Fid, board: &Board) -> client::Result<()> {
    let file = client.open(&test_ctx(), fid, 0).await?;
    board.check(0, &file.read(0, 2 * BYTES).await?);
    file.close().await
}
