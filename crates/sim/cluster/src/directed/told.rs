//! **`told`**: a client is cut off from a server that loses its power with acknowledged work. It is
//! evicted because it does not come back in time. fsync and close of every affected handle report
//! the loss, once by each fsync. Handles that are not affected report nothing.

use bytes::Bytes;
use client::{Client, File, Heard};
use env_sim::{Cut, NodeHandle};
use layout::Template;
use oracle::{read_names, test_ctx};
use types::{Errno, Fid, Span, TargetId};

use super::{O_EXCL, O_RDWR, Stage, create};

/// Power cuts of one run.
const ROUNDS: u32 = 3;
const STRIPE_SIZE: u64 = 64 << 10;
/// A block of a disk at the start of each stripe.
const PIECE: u64 = 4_096;
const PIECES: u64 = 4;
/// Longer than a restarted server waits for a client that does not come back.
const EVICTED_AFTER: Span = Span::secs(60);

/// Longer than the client takes to come back and hear of it.
const HEARD_AFTER: Span = Span::secs(30);

/// What a client has open while its work is lost.
#[derive(Clone)]
struct Open {
    /// Two handles of the file that is written, one of a file that is not.
    files: [File; 3],
    dir: Fid,
    heard: Heard,
}

impl Stage<'_> {
    pub(super) fn told(&mut self) -> Result<(), String> {
        let reader = self.enter("reader");
        for round in 0..ROUNDS {
            let writer = self.enter("writer");
            let open = self.write_durably(&writer, round)?;
            if self.rng.chance(700_000) {
                self.lose_data(&writer, &reader, open)?;
            } else {
                self.lose_names(&writer, &reader, open)?;
            }
            writer.0.kill();
        }
        self.nothing_is_left(&reader)
    }

    fn write_durably(&mut self, who: &(NodeHandle, Client), round: u32) -> Result<Open, String> {
        self.ask(who, "preparing", async move |client| {
            let ctx = test_ctx();
            let name = format!("told{round}");
            let dir = client.mkdir(&ctx, Fid::ROOT, name.as_bytes(), 0o777).await?.fid();
            let striped = Template {
                stripe_size: STRIPE_SIZE as u32,
                stripe_count: -1,
                ..Template::default()
            };
            let flags = O_RDWR | O_EXCL;
            let (attr, first) =
                client.create(&ctx, dir, b"f", 0o666, flags, Some(&striped.into())).await?;
            for piece in 0..PIECES {
                first.write(piece * STRIPE_SIZE, content(1, PIECE)).await?;
            }
            let second = client.open(&ctx, attr.fid(), O_RDWR).await?;
            let (_, other) = client.create(&ctx, dir, b"other", 0o666, flags, None).await?;
            other.write(0, content(1, PIECE)).await?;
            client.sync().await?;
            Ok(Open { files: [first, second, other], dir, heard: client.listen(dir) })
        })
    }

    /// The server loses its power and comes back while `who` cannot reach it.
    fn evict(&mut self, who: &(NodeHandle, Client), target: TargetId) {
        let cluster = self.cluster;
        let found = cluster.servers.iter().find(|server| server.target == target);
        let server = found.expect("every target is a server");
        cluster.sim.narrate(&format!("cuts the writer and {target}, whose power goes"));
        cluster.sim.partition(&who.0, &server.node, Cut::BothWays);
        server.kill(true);
        server.power_cut(self.rng.bits());
        self.restarts += 1;
        self.pause(Span::secs(2));
        server.boot();
        cluster.sim.run_for(EVICTED_AFTER);
        cluster.sim.heal_all();
        cluster.sim.run_for(HEARD_AFTER);
    }

    fn lose_data(
        &mut self,
        who: &(NodeHandle, Client),
        reader: &(NodeHandle, Client),
        open: Open,
    ) -> Result<(), String> {
        let own = open.clone();
        self.ask(who, "writing", async move |_| {
            for piece in 0..PIECES {
                own.files[0].write(piece * STRIPE_SIZE, content(2, PIECE)).await?;
            }
            Ok(())
        })?;
        self.pause(Span::millis(800));
        let ost = self.rng.below(PIECES) as u32;
        self.evict(who, TargetId::ost(ost));
        let own = open.clone();
        let (told, again, other) = self.ask(who, "fsync", async move |_| {
            let mut told = Vec::new();
            for file in &own.files[..2] {
                told.push([file.flush(), file.fsync(false).await, file.flush()].map(errno));
            }
            let again = [own.files[0].fsync(false).await, own.files[0].flush()];
            let other = [own.files[2].flush(), own.files[2].fsync(false).await];
            Ok((told, again.map(errno), other.map(errno)))
        })?;
        let fid = open.files[0].fid();
        let read = self.ask(reader, "reading", async move |client| {
            let file = client.open(&test_ctx(), fid, 0).await?;
            let mut pieces = Vec::new();
            for piece in 0..PIECES {
                pieces.push(file.read(piece * STRIPE_SIZE, PIECE as usize).await?);
            }
            file.close().await?;
            Ok(pieces)
        })?;
        let is_lost = read.iter().any(|piece| *piece != content(2, PIECE));
        let eio = Some(Errno::EIO);
        let all_told = told.iter().all(|told| *told == [eio, eio, None]);
        let none_told = told.iter().all(|told| *told == [None; 3]);
        // a commit that the writer did not hear of may have saved it
        let right = if is_lost { all_told } else { all_told || none_told };
        if right && again == [None; 2] && other == [None; 2] {
            return Ok(());
        }
        Err(format!(
            "lost: {is_lost}; close, fsync and close said {told:?}, then {again:?}, of another file {other:?}"
        ))
    }

    fn lose_names(
        &mut self,
        who: &(NodeHandle, Client),
        reader: &(NodeHandle, Client),
        open: Open,
    ) -> Result<(), String> {
        let dir = open.dir;
        self.ask(who, "making a name", async move |client| create(client, dir, "new").await)?;
        self.pause(Span::millis(800));
        self.evict(who, TargetId::mdt(0));
        let (told, again, void) = self.ask(who, "fsync", async move |client| {
            let ctx = test_ctx();
            let told = errno(client.fsync_dir(&ctx, dir, &open.heard).await);
            let again = errno(client.fsync_dir(&ctx, dir, &open.heard).await);
            Ok((told, again, open.files.map(|file| errno(file.flush()))))
        })?;
        let names = self.ask(reader, "reading names", async move |client| {
            read_names(client, &test_ctx(), dir, 1 << 16).await
        })?;
        let is_lost = !names.iter().any(|(name, _)| name == "new");
        let right = told == Some(Errno::EIO) || (!is_lost && told.is_none());
        if right && again.is_none() && void == [Some(Errno::EIO); 3] {
            return Ok(());
        }
        Err(format!(
            "the name is lost: {is_lost}; fsync of its directory said {told:?}, then {again:?}, closes {void:?}"
        ))
    }
}

fn errno<T>(outcome: client::Result<T>) -> Option<Errno> {
    outcome.err().map(|error| error.errno())
}

fn content(salt: u8, len: u64) -> Bytes {
    Bytes::from(oracle::pattern(salt, len as usize))
}
