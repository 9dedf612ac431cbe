//! Directed runs: short scripts with seeded timing for situations that a random run rarely meets.
//!
//! - **share**: client A makes a change; client B modifies on top of it; the MDT dies with A before
//!   anything need be durable, and A never returns. B's acknowledged work must hold: commit on
//!   share.
//! - **late**: client A writes to a file that B has unlinked. A's session at the MDT ends, so the
//!   objects are destroyed. An OST still knows A, and A goes on writing. No object may come back:
//!   tombstones.
//! - **resend**: the answer to a change is lost, the change becomes durable, the MDT dies, and the
//!   client asks again. It gets the answer of the first time: reply records.
//! - **cuts**, **dead**, **lost**, **`told`**, **killed**, **leases**, **fence**, **damaged**,
//!   **kernel**, **kept**, **layouts**, **migrations**, **on_open**, **pages**, **matrix**: see the
//!   modules.

mod cuts;
mod damaged;
mod dead;
mod fence;
mod filling;
mod full;
mod growing;
mod kept;
mod kernel;
mod killed;
mod layouts;
mod leases;
mod lost;
mod matrix;
mod migrations;
mod on_open;
mod pages;
mod told;

#[cfg(test)]
pub(crate) use matrix::cells_of_two_deaths;
pub use matrix::{DIED_AGAIN, pair_rows};

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, File, SetAttr};
use env::Env;
use env_sim::{Cut, NodeHandle, Rng};
use layout::Template;
use oracle::{read_names, test_ctx};
use types::{Fid, Span, TargetId, TargetKind};

use crate::fixture::Cluster;
use crate::run::{PEACE_MAX, SWEEP_MAX, remove_below};
use crate::server::Server;
use crate::{Report, Scenario, Script};

/// Deaths of one `share` run.
const SHARE_ROUNDS: u32 = 6;
/// Removed files of one `late` run.
const LATE_ROUNDS: u32 = 2;
/// Lost answers of one `resend` run.
const RESEND_ROUNDS: u32 = 4;
/// A client that is cut off from the MDT for so long has lost its session there, because a silent
/// client is evicted after 150 s.
const LEASE_OVER_SECS: u64 = 190;

const O_RDWR: u32 = 0o2;
const O_EXCL: u32 = 0o200;

pub(crate) fn run(cluster: &Cluster, seed: u64, scenario: &Scenario, script: Script) -> Report {
    let (rng, bugs) = (cluster.sim.rng(), scenario.bugs().fuse);
    let has_all_layouts = scenario.has_all_layouts(seed);
    let mut stage = Stage {
        cluster,
        rng,
        bugs,
        has_all_layouts,
        nodes: 0,
        ops: 0,
        restarts: 0,
        power_cuts: 0,
        points: 0,
    };
    let failure = match script {
        Script::Share => stage.share(),
        Script::Late => stage.late(),
        Script::Resend => stage.resend(),
        Script::Cuts => stage.cuts(),
        Script::Dead => stage.dead(),
        Script::Lost => stage.lost(),
        Script::Told => stage.told(),
        Script::Killed => stage.killed(),
        Script::Leases => stage.leases(),
        Script::Fence => stage.fence(),
        Script::Damaged => stage.damaged(),
        Script::Kernel => stage.kernel(seed),
        Script::Layouts => stage.layouts(),
        Script::Migrations => stage.migrations(),
        Script::OnOpen => stage.on_open(),
        Script::Kept => stage.kept(),
        Script::Pages => stage.pages(),
        Script::Matrix => stage.matrix(seed),
        Script::Pairs => stage.pairs(seed),
    };
    Report {
        seed,
        scenario: scenario.name,
        ops: stage.ops,
        races: 0,
        restarts: stage.restarts,
        power_cuts: stage.power_cuts,
        crash_points: stage.points,
        swaps: 0,
        faults: cluster.sim.faults(),
        on_disk: cluster.is_on_disk(),
        virtual_ms: cluster.sim.now().0 / 1_000_000,
        marks: BTreeMap::new(),
        trace_hash: cluster.sim.trace_hash(),
        failure: failure.err(),
    }
}

/// Names in a directory and what they stand for.
type Names = BTreeMap<String, Fid>;

/// Who does what in one round of `share`; A's change first, B's on top of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Share {
    /// A creates a file, B unlinks it.
    Unlink,
    /// A creates a file, B renames it.
    Rename,
    /// A creates a file, B links it.
    Link,
    /// A creates a file, B changes its mode.
    Chmod,
    /// A makes a directory, B creates a file in it.
    CreateInside,
    /// A makes a directory, B removes it.
    Rmdir,
    /// A unlinks a durable file, B creates another one of this name.
    CreateAgain,
}

const SHARES: [Share; 7] = [
    Share::Unlink,
    Share::Rename,
    Share::Link,
    Share::Chmod,
    Share::CreateInside,
    Share::Rmdir,
    Share::CreateAgain,
];

struct Stage<'a> {
    cluster: &'a Cluster,
    rng: Rng,
    bugs: fuse::Bugs,
    /// Layouts are drawn from all that there are.
    has_all_layouts: bool,
    nodes: u32,
    ops: u64,
    restarts: u32,
    /// Of them after a power cut.
    power_cuts: u32,
    /// Of them at a point.
    points: u32,
}

impl Stage<'_> {
    fn enter(&mut self, name: &str) -> (NodeHandle, Client) {
        self.nodes += 1;
        let node = self.cluster.client_node(&format!("{name}{}", self.nodes), self.nodes);
        let client = self.cluster.mount(&node);
        (node, client)
    }

    fn ask<T: 'static>(
        &mut self,
        (node, client): &(NodeHandle, Client),
        what: &str,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> Result<T, String> {
        self.ops += 1;
        let own = client.clone();
        match self.cluster.sim.block_on_for(node, PEACE_MAX, async move { work(&own).await }) {
            Some(answer) => answer.map_err(|error| format!("{what}: {error}")),
            None => Err(format!("{what}: never finished; waits for {:?}", client.waiting_on())),
        }
    }

    fn pause(&mut self, most: Span) {
        let pause = self.rng.span(Span::ZERO, most);
        self.cluster.sim.run_for(pause);
    }

    fn mdt(&self) -> &Server {
        let mdt = self.cluster.servers.iter().find(|server| server.target == TargetId::mdt(0));
        mdt.expect("a cluster has an MDT")
    }

    /// An OST or the MDT. Where all layouts are drawn, a machine that dies loses what need not be
    /// durable.
    fn restart_one(&mut self) {
        let (cluster, is_cut) = (self.cluster, self.rng.chance(500_000));
        let server = *self.rng.pick(&cluster.servers.iter().collect::<Vec<_>>());
        server.kill(is_cut);
        if is_cut && self.has_all_layouts {
            server.power_cut(self.rng.bits());
            self.power_cuts += 1;
        }
        self.restarts += 1;
        self.pause(Span::secs(1));
        server.boot();
    }

    fn share(&mut self) -> Result<(), String> {
        let builder = self.enter("builder");
        let mut expected = Vec::new();
        for round in 0..SHARE_ROUNDS {
            let share = *self.rng.pick(&SHARES);
            let (dir, names) = self.share_once(&builder, round, share)?;
            let what = format!("round {round}, {share:?}");
            self.compare(&builder, (dir, share), &names, &what)?;
            expected.push(((dir, share), names, what));
        }
        let fresh = self.enter("fresh");
        for (dir, names, what) in expected {
            self.compare(&fresh, dir, &names, &format!("{what}, through a fresh client"))?;
        }
        self.nothing_is_left(&fresh)
    }

    /// Returns the directory and what must be in it after the MDT has come back.
    fn share_once(
        &mut self,
        builder: &(NodeHandle, Client),
        round: u32,
        share: Share,
    ) -> Result<(Fid, Names), String> {
        let author = self.enter("author");
        let is_again = share == Share::CreateAgain;
        let dir = self.ask(builder, "preparing", async move |client| {
            let dir = client
                .mkdir(&test_ctx(), Fid::ROOT, format!("shared{round}").as_bytes(), 0o777)
                .await?
                .fid();
            if is_again {
                create(client, dir, "x").await?;
            }
            client.sync().await?;
            Ok(dir)
        })?;
        self.pause(Span::secs(2));
        let first =
            self.ask(&author, "the author", async move |client| begin(client, dir, share).await)?;
        let names = self.ask(builder, "the builder", async move |client| {
            build(client, dir, share, first).await
        })?;
        self.pause(Span::millis(100));
        self.cluster.sim.narrate(&format!("kills the author and the MDT after {share:?}"));
        author.0.kill();
        self.mdt().kill(false);
        self.restarts += 1;
        self.pause(Span::secs(2));
        self.mdt().boot();
        Ok((dir, names))
    }

    fn compare(
        &mut self,
        who: &(NodeHandle, Client),
        (dir, share): (Fid, Share),
        names: &Names,
        what: &str,
    ) -> Result<(), String> {
        let found = self.ask(who, what, async move |client| {
            read_names(client, &test_ctx(), dir, 1 << 16).await
        })?;
        let mut there = Names::new();
        for (name, attr) in found {
            let fid = attr.fid();
            let links = names.values().filter(|known| **known == fid).count() as u32;
            if !attr.is_dir() && attr.nlink != links {
                return Err(format!(
                    "{what}: '{name}' has link count {} instead of {links}",
                    attr.nlink
                ));
            }
            if share == Share::Chmod && attr.mode & 0o777 != 0o640 {
                return Err(format!("{what}: '{name}' has mode {:o}", attr.mode));
            }
            if attr.is_dir() {
                let inside = self.ask(who, what, async move |client| {
                    read_names(client, &test_ctx(), fid, 1 << 16).await
                })?;
                there.extend(
                    inside.into_iter().map(|(inner, attr)| (format!("{name}/{inner}"), attr.fid())),
                );
            }
            there.insert(name, fid);
        }
        if there == *names {
            Ok(())
        } else {
            Err(format!("{what}: was told {names:?} and finds {there:?}"))
        }
    }

    fn late(&mut self) -> Result<(), String> {
        let remover = self.enter("remover");
        for round in 0..LATE_ROUNDS {
            self.late_once(&remover, round)?;
        }
        self.nothing_is_left(&remover)
    }

    fn late_once(&mut self, remover: &(NodeHandle, Client), round: u32) -> Result<(), String> {
        let writer = self.enter("writer");
        let name = format!("late{round}");
        let own = name.clone();
        let file = self.ask(&writer, "creating", async move |client| {
            let striped =
                Template { stripe_size: 64 << 10, stripe_count: -1, ..Template::default() };
            let flags = O_RDWR | O_EXCL;
            let (_, file) = client
                .create(&test_ctx(), Fid::ROOT, own.as_bytes(), 0o666, flags, Some(&striped.into()))
                .await?;
            file.write(0, Bytes::from(vec![1; 300_000])).await?;
            Ok(file)
        })?;
        self.ask(remover, "removing", async move |client| {
            client.unlink(&test_ctx(), Fid::ROOT, name.as_bytes()).await
        })?;
        let (node, cluster) = (writer.0.clone(), self.cluster);
        cluster.sim.narrate("cuts the writer and the MDT");
        cluster.sim.partition(&node, &self.mdt().node, Cut::BothWays);
        node.env().spawn("late writes", keep_writing(node.env(), file, self.rng.fork()));
        // half of the time an OST is away too while the file ends, for less than a lease: a write
        // waits for it
        let away = self.rng.range(120, 150);
        cluster.sim.run_for(Span::secs(away));
        if self.rng.chance(500_000) {
            let osts: Vec<_> = cluster
                .servers
                .iter()
                .filter(|server| server.target.kind == TargetKind::Ost)
                .collect();
            cluster.sim.partition(&node, &self.rng.pick(&osts).node, Cut::BothWays);
        }
        cluster.sim.run_for(Span::secs(LEASE_OVER_SECS - away));
        cluster.sim.heal_all();
        self.pause(Span::secs(30));
        node.kill();
        Ok(())
    }

    fn resend(&mut self) -> Result<(), String> {
        let asker = self.enter("asker");
        for round in 0..RESEND_ROUNDS {
            let dir = self.ask(&asker, "preparing", async move |client| {
                let dir = client
                    .mkdir(&test_ctx(), Fid::ROOT, format!("asked{round}").as_bytes(), 0o777)
                    .await?
                    .fid();
                create(client, dir, "x").await?;
                client.sync().await?;
                Ok(dir)
            })?;
            self.resend_once(&asker, dir)?;
        }
        self.nothing_is_left(&asker)
    }

    fn resend_once(
        &mut self,
        (node, client): &(NodeHandle, Client),
        dir: Fid,
    ) -> Result<(), String> {
        let cluster = self.cluster;
        cluster.sim.narrate("no answer of the MDT arrives");
        cluster.sim.partition(&self.mdt().node, node, Cut::OneWay);
        let (own, kind, answer) = (client.clone(), self.rng.below(4), Rc::new(RefCell::new(None)));
        let fill = answer.clone();
        node.env().spawn("asks once", async move {
            let ctx = test_ctx();
            let answer = match kind {
                0 => own.mkdir(&ctx, dir, b"y", 0o777).await.map(drop),
                1 => own.unlink(&ctx, dir, b"x").await,
                2 => own.rename(&ctx, dir, b"x", dir, b"y", 0).await,
                _ => own.symlink(&ctx, dir, b"y", b"x").await.map(drop),
            };
            *fill.borrow_mut() = Some(answer);
        });
        // longer than a commit takes, shorter than an attempt
        cluster.sim.run_for(self.rng.span(Span::millis(1_200), Span::secs(6)));
        self.mdt().kill(false);
        self.restarts += 1;
        cluster.sim.heal_all();
        self.pause(Span::secs(2));
        self.mdt().boot();
        self.ops += 1;
        cluster.sim.run_until(PEACE_MAX, || answer.borrow().is_some());
        let answer = answer.borrow_mut().take();
        match answer {
            Some(Ok(())) => Ok(()),
            Some(Err(error)) => {
                Err(format!("change {kind} was made once and asked for twice: {error}"))
            }
            None => Err(format!("change {kind} is never answered")),
        }
    }

    /// Everything is removed: then no inode and no object is left.
    fn nothing_is_left(&mut self, who: &(NodeHandle, Client)) -> Result<(), String> {
        self.ask(who, "removing everything", async |client| {
            remove_below(client, Fid::ROOT).await?;
            client.sync().await
        })?;
        let cluster = self.cluster;
        let clean = || cluster.objects() == 0 && cluster.inode_count() <= 1;
        if cluster.sim.run_until(SWEEP_MAX, clean) {
            return Ok(());
        }
        let (inodes, objects) = (cluster.inode_count(), cluster.objects());
        Err(format!("everything was removed, but {inodes} inodes and {objects} objects are left"))
    }
}

async fn create(client: &Client, dir: Fid, name: &str) -> client::Result<Fid> {
    let (attr, file) =
        client.create(&test_ctx(), dir, name.as_bytes(), 0o666, O_RDWR | O_EXCL, None).await?;
    file.close().await?;
    Ok(attr.fid())
}

/// A's part; what it made.
async fn begin(client: &Client, dir: Fid, share: Share) -> client::Result<Fid> {
    match share {
        Share::CreateInside | Share::Rmdir => {
            Ok(client.mkdir(&test_ctx(), dir, b"x", 0o777).await?.fid())
        }
        Share::CreateAgain => client.unlink(&test_ctx(), dir, b"x").await.map(|()| Fid::ROOT),
        _ => create(client, dir, "x").await,
    }
}

/// B's part; what must be in `dir` from then on.
async fn build(client: &Client, dir: Fid, share: Share, first: Fid) -> client::Result<Names> {
    let ctx = test_ctx();
    let x = ("x".to_owned(), first);
    let names = match share {
        Share::Unlink => client.unlink(&ctx, dir, b"x").await.map(|()| vec![])?,
        Share::Rmdir => client.rmdir(&ctx, dir, b"x").await.map(|()| vec![])?,
        Share::Rename => {
            client.rename(&ctx, dir, b"x", dir, b"y", 0).await?;
            vec![("y".to_owned(), first)]
        }
        Share::Link => {
            client.link(&ctx, first, dir, b"y").await?;
            vec![x, ("y".to_owned(), first)]
        }
        Share::Chmod => {
            let mode = SetAttr { mode: Some(0o640), ..SetAttr::default() };
            client.setattr(&ctx, first, &mode, None).await?;
            vec![x]
        }
        Share::CreateInside => {
            let inner = create(client, first, "y").await?;
            vec![x, ("x/y".to_owned(), inner)]
        }
        Share::CreateAgain => vec![("x".to_owned(), create(client, dir, "x").await?)],
    };
    Ok(names.into_iter().collect())
}

/// Writes until the node dies. It has lost its session at the MDT without knowing: errors are its
/// due.
async fn keep_writing(env: Env, file: File, mut rng: Rng) {
    loop {
        let offset = rng.below(8) * (64 << 10);
        if let Err(error) = file.write(offset, Bytes::from(vec![3; 4_096])).await {
            tracing::debug!("a late write: {error}");
        }
        env.sleep(rng.span(Span::millis(200), Span::secs(3))).await;
    }
}
