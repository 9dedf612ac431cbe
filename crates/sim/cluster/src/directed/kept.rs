//! **kept**: a client writes a file again and again, keeps its writes for a while, and holds the
//! file open. Other clients look at its bytes and its size meanwhile.
//!
//! - No call that begins after a write was answered sees the file before it.
//! - This also holds if the MDT or an OST restarts, and if the writer loses the MDT but not the
//!   OSTs.
//! - A writer that dies may lose writes, and one that loses all servers may lose them and hears so.
//!   Then bytes that others saw stay.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, File};
use env::Env;
use env_sim::{Cut, NodeHandle, Rng};
use oracle::test_ctx;
use types::{Fid, Span, TargetKind};

use super::on_open::{BYTES, Board};
use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;

const READERS: usize = 2;
/// Versions of the file behind the first one.
const WRITES: u8 = 30;
/// In so many of them, the writer opens the file anew, because a look of others ends what it has.
const OPENS: u32 = 300_000;
/// A client that lost all servers is given up after less.
const GIVEN_UP: Span = Span::secs(40);

/// What happens in the middle of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Fault {
    Nothing,
    MdtDies,
    OstDies,
    MdtIsLost,
    AllAreLost,
    WriterDies,
}

const FAULTS: [Fault; 6] = [
    Fault::Nothing,
    Fault::MdtDies,
    Fault::OstDies,
    Fault::MdtIsLost,
    Fault::AllAreLost,
    Fault::WriterDies,
];

impl Stage<'_> {
    pub(super) fn kept(&mut self) -> Result<(), String> {
        let writer = self.enter("writer");
        let readers = [(); READERS].map(|()| self.enter("reader"));
        self.cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        let (fault, faulty) =
            (*self.rng.pick(&FAULTS), 1 + self.rng.below(u64::from(WRITES)) as u8);
        let board = Rc::new(Board::default());
        let (fid, mut file) = self.ask(&writer, "making the file", async |client| {
            let (ctx, flags) = (test_ctx(), O_RDWR | O_EXCL);
            let (attr, file) = client.create(&ctx, Fid::ROOT, b"kept", 0o666, flags, None).await?;
            write(&file, 0).await?;
            Ok((attr.fid(), file))
        })?;
        for (node, client) in &readers {
            let (env, rng) = (node.env(), self.rng.fork());
            let looking = keep_looking(env, client.clone(), fid, board.clone(), rng);
            node.env().spawn("looks", looking);
        }
        for version in 1..=WRITES {
            self.pause(Span::millis(60));
            if version == faulty && fault != Fault::Nothing {
                self.suffer(fault)?;
            }
            if self.rng.chance(OPENS) {
                file = self.open_again(&writer, fid, file)?;
            }
            self.write_kept(&writer, &file, version, &board)?;
            match fault {
                _ if version != faulty => {}
                Fault::MdtIsLost | Fault::AllAreLost => {
                    return self.lose_the_writer(&writer, &readers[0], fault, &file, &board);
                }
                Fault::WriterDies => {
                    return self.kill_the_writer(&writer, &readers[0], fid, &board);
                }
                Fault::Nothing | Fault::MdtDies | Fault::OstDies => {}
            }
        }
        self.end_of_looks(&board)?;
        self.ask(&writer, "closing", async move |_| file.close().await)?;
        self.nothing_is_left(&writer)
    }

    fn end_of_looks(&mut self, board: &Board) -> Result<(), String> {
        board.is_over.set(true);
        if !self.cluster.sim.run_until(PEACE_MAX, || board.finished.get() == READERS) {
            return Err("a look is never answered".to_owned());
        }
        board.wrong.borrow_mut().take().map_or(Ok(()), Err)
    }

    fn open_again(
        &mut self,
        writer: &(NodeHandle, Client),
        fid: Fid,
        file: File,
    ) -> Result<File, String> {
        self.ask(writer, "opening again", async move |client| {
            file.close().await?;
            client.open(&test_ctx(), fid, O_RDWR).await
        })
    }

    fn write_kept(
        &mut self,
        writer: &(NodeHandle, Client),
        file: &File,
        version: u8,
        board: &Rc<Board>,
    ) -> Result<(), String> {
        let (file, board) = (file.clone(), board.clone());
        self.ask(writer, "writing", async move |_| {
            board.begun.set(version);
            write(&file, version).await?;
            board.answered.set(version);
            Ok(())
        })
    }

    fn suffer(&mut self, fault: Fault) -> Result<(), String> {
        let kind = match fault {
            Fault::MdtDies => TargetKind::Mdt,
            Fault::OstDies => TargetKind::Ost,
            _ => return Ok(()),
        };
        let servers = self.cluster.servers.iter().filter(|server| server.target.kind == kind);
        let servers: Vec<_> = servers.collect();
        servers.iter().for_each(|server| server.kill(false));
        self.restarts += servers.len() as u32;
        self.pause(Span::secs(2));
        servers.iter().for_each(|server| server.boot());
        Ok(())
    }

    /// The writer is cut off right after an answer. The others go on.
    fn lose_the_writer(
        &mut self,
        writer: &(NodeHandle, Client),
        reader: &(NodeHandle, Client),
        fault: Fault,
        file: &File,
        board: &Rc<Board>,
    ) -> Result<(), String> {
        let (cluster, fid) = (self.cluster, file.fid());
        cluster.sim.narrate("cuts the writer off");
        let last = board.begun.get();
        let is_lost = |kind| fault == Fault::AllAreLost || kind == TargetKind::Mdt;
        if fault == Fault::AllAreLost {
            // what it has not sent is lost, if it is lost before the others know
            board.answered.set(0);
        }
        for server in cluster.servers.iter().filter(|server| is_lost(server.target.kind)) {
            cluster.sim.partition(&writer.0, &server.node, Cut::BothWays);
        }
        let seen = self.what_stays(reader, fid, board)?;
        cluster.sim.heal_all();
        cluster.sim.run_for(GIVEN_UP);
        let own = file.clone();
        let synced = self.ask(writer, "syncing", async move |_| Ok(own.fsync(false).await))?;
        if synced.is_ok() && seen != last {
            return Err("writes are lost and the writer does not hear so".to_owned());
        }
        self.end_of_looks(board)?;
        let file = file.clone();
        let _closed = self.ask(writer, "closing", async move |_| Ok(file.close().await))?;
        self.nothing_is_left(reader)
    }

    /// The writer dies right after an answer, with what it has not sent. The others go on.
    fn kill_the_writer(
        &mut self,
        writer: &(NodeHandle, Client),
        reader: &(NodeHandle, Client),
        fid: Fid,
        board: &Board,
    ) -> Result<(), String> {
        if writer.1.kept_since(fid).is_some() {
            planted::reached("sim: a client died with writes that it had not sent");
        }
        self.cluster.sim.narrate("kills the writer");
        writer.0.kill();
        board.answered.set(0);
        self.what_stays(reader, fid, board)?;
        self.cluster.sim.run_for(GIVEN_UP);
        self.end_of_looks(board)?;
        self.nothing_is_left(reader)
    }

    /// The version of a file whose writer was given up: everybody sees it from now on.
    fn what_stays(
        &mut self,
        reader: &(NodeHandle, Client),
        fid: Fid,
        board: &Board,
    ) -> Result<u8, String> {
        self.cluster.sim.run_for(GIVEN_UP);
        let seen = self.ask(reader, "looking", async move |client| read(client, fid).await)?;
        board.answered.set(seen[0]);
        board.begun.set(seen[0]);
        Ok(seen[0])
    }
}

/// All bytes have the version's number, and the file gets one byte longer.
async fn write(file: &File, version: u8) -> client::Result<()> {
    let bytes = vec![version; BYTES + usize::from(version) + 1];
    file.write(0, Bytes::from(bytes)).await.map(drop)
}

async fn read(client: &Client, fid: Fid) -> client::Result<Bytes> {
    let file = client.open(&test_ctx(), fid, 0).await?;
    let read = file.read(0, BYTES).await?;
    file.close().await?;
    Ok(read)
}

async fn keep_looking(env: Env, client: Client, fid: Fid, board: Rc<Board>, mut rng: Rng) {
    let calls = Cell::new(0_u64);
    while !board.is_over.get() {
        calls.set(calls.get() + 1);
        let floor = board.answered.get();
        let looked = match rng.below(3) {
            0 => read(&client, fid).await.map(|read| {
                board.check(floor.min(board.answered.get()), &read);
            }),
            _ => client.getattr(&test_ctx(), fid, None).await.map(|attr| {
                // what a writer that lost all servers has not sent is lost
                let floor = floor.min(board.answered.get());
                let newest = board.begun.get();
                let (least, most) = (size_of_version(floor), size_of_version(newest));
                if !(least..=most).contains(&attr.size) {
                    board.found(format!("a size of {}, not {least} to {most}", attr.size));
                }
            }),
        };
        if let Err(error) = looked {
            board.found(format!("a look fails: {error}"));
        }
        env.sleep(rng.span(Span::millis(1), Span::millis(150))).await;
    }
    board.finished.set(board.finished.get() + 1);
}

fn size_of_version(version: u8) -> u64 {
    (BYTES + usize::from(version) + 1) as u64
}
