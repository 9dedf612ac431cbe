//! **pages**: programs on three mounts read a file through a model of the kernel's page cache
//! ([`kernel`]) and a real FUSE handler. Their handles stay open for a while. Meanwhile the file is
//! overwritten through each of the mounts, with as many bytes. Messages are lost, servers are
//! killed, and a mount is cut off from the MDT until its lease has ended. Every read returns one
//! whole version. None is older than the last write that was answered before the read began.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env::Env;
use env_sim::{Cut, Faults, NodeHandle, Rng};
use fusedev::InitInfo;
use fusedev::abi::cap;
use kernel::{Kernel, Traits, Who};
use oracle::test_ctx;
use types::{Errno, Fid, Span, TargetKind};

use super::on_open::{BYTES, Board};
use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;

const MOUNTS: usize = 3;
/// Programs that read on each mount.
const READERS: u32 = 2;
/// Reads through one handle, at most.
const READS: u64 = 8;
/// Versions of the file behind the first one.
const WRITES: u8 = 24;
const PATH: &str = "file";
/// As in the scenario `kernel`.
const SLACK: Span = Span::millis(30);
/// Shorter than a lease, which is 30 s here: a client that was cut off returns to its grants. A cut
/// that stays while another mount writes lasts longer.
const CUT: Span = Span::secs(14);

/// A mount's machine and its kernel.
type Mount = (NodeHandle, Kernel);

#[derive(Default)]
struct Seen {
    board: Board,
    /// Handles that used the page cache.
    cached: Cell<u32>,
}

impl Stage<'_> {
    pub(super) fn pages(&mut self) -> Result<(), String> {
        let maker = self.enter("maker");
        let mounts: Vec<Mount> = (0..MOUNTS).map(|_| self.mount_with_pages()).collect();
        self.cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        self.ask(&maker, "making the file", async move |client| {
            let (flags, path) = (O_RDWR | O_EXCL, PATH.as_bytes());
            let made = client.create(&test_ctx(), Fid::ROOT, path, 0o666, flags, None).await;
            let (_, file) = made?;
            file.write(0, Bytes::from(vec![0; BYTES])).await?;
            file.close().await
        })?;
        let seen = Rc::new(Seen::default());
        let threads = READERS * MOUNTS as u32;
        for (thread, (node, kernel)) in (0..threads).zip(mounts.iter().cycle()) {
            let (env, kernel, rng) = (node.env(), kernel.clone(), self.rng.fork());
            let reader = Reader { who: Who::root(thread), env, kernel, seen: seen.clone() };
            node.env().spawn("reader", reader.work(rng));
        }
        if self.rng.chance(400_000) {
            self.cluster.sim.set_faults(Faults::stormy());
        }
        for version in 1..=WRITES {
            let pause = self.rng.span(Span::millis(5), Span::millis(120));
            self.pause(pause);
            let writer = self.disturb_pages(&mounts);
            self.write_version(&mounts[writer], version, &seen)?;
        }
        self.pause(Span::millis(100));
        self.cluster.sim.heal_all();
        self.cluster.sim.set_faults(Faults::default());
        seen.board.is_over.set(true);
        let all = threads as usize;
        if !self.cluster.sim.run_until(PEACE_MAX, || seen.board.finished.get() == all) {
            let waits: Vec<_> = mounts.iter().map(|(_, kernel)| kernel.waits()).collect();
            return Err(format!("a read is never answered: {waits:?}"));
        }
        let wrong = seen.board.wrong.borrow_mut().take();
        wrong.map_or(Ok(()), Err)?;
        if seen.cached.get() == 0 {
            return Err("no file is opened through the page cache".to_owned());
        }
        drop(mounts);
        self.nothing_is_left(&maker)
    }

    fn mount_with_pages(&mut self) -> Mount {
        let (node, client) = self.enter("mount");
        let (env, bugs) = (node.env(), self.bugs);
        let traits = Traits::draw(SLACK, &mut self.rng);
        let capabilities = cap::DIRECT_IO_ALLOW_MMAP | cap::AUTO_INVAL_DATA;
        let minor = traits.version.minor();
        let info = InitInfo { minor, capabilities, max_write: 1 << 20, max_readahead: 0 };
        let handler = |notifier| fuse::handler(&env, client, info, notifier, bugs);
        let kernel = Kernel::new(&env, handler, traits, self.rng.fork());
        (node, kernel)
    }

    /// Now and then something happens to a server or a mount. Returns a mount that can write.
    fn disturb_pages(&mut self, mounts: &[Mount]) -> usize {
        let writer = self.rng.index(MOUNTS);
        self.cluster.sim.heal_all();
        match self.rng.below(40) {
            0 => {
                self.cluster.sim.narrate("kills the MDT");
                self.mdt().kill(false);
                self.restarts += 1;
                self.pause(Span::millis(200));
                self.mdt().boot();
            }
            1 => {
                let is_ost = |target: TargetKind| target == TargetKind::Ost;
                let servers = &self.cluster.servers;
                let osts: Vec<_> =
                    servers.iter().filter(|server| is_ost(server.target.kind)).collect();
                let ost = *self.rng.pick(&osts);
                self.cluster.sim.narrate("kills an OST");
                ost.kill(false);
                self.restarts += 1;
                self.pause(Span::millis(200));
                ost.boot();
            }
            2..=3 => {
                let (node, _) = &mounts[(writer + 1) % MOUNTS];
                self.cluster.sim.narrate("cuts a mount and the MDT");
                self.cluster.sim.partition(node, &self.mdt().node, Cut::BothWays);
                if self.rng.chance(500_000) {
                    self.pause(CUT);
                    self.cluster.sim.heal_all();
                }
            }
            _ => {}
        }
        writer
    }

    fn write_version(
        &mut self,
        (node, kernel): &Mount,
        version: u8,
        seen: &Rc<Seen>,
    ) -> Result<(), String> {
        self.ops += 1;
        let (kernel, seen) = (kernel.clone(), seen.clone());
        let thread = READERS * MOUNTS as u32;
        let writing = write_once(kernel, Who::root(thread), version, seen);
        match self.cluster.sim.block_on_for(node, PEACE_MAX, writing) {
            Some(Ok(())) => Ok(()),
            Some(Err(errno)) => Err(format!("a write fails: {errno}")),
            None => Err("a write is never answered".to_owned()),
        }
    }
}

async fn write_once(kernel: Kernel, who: Who, version: u8, seen: Rc<Seen>) -> Result<(), Errno> {
    let file = kernel.open(who, PATH, O_RDWR).await?;
    seen.board.begun.set(version);
    kernel.write(who, &file, Bytes::from(vec![version; BYTES])).await?;
    seen.board.answered.set(version);
    kernel.close(who, file).await
}

/// A program that reads.
struct Reader {
    who: Who,
    env: Env,
    kernel: Kernel,
    seen: Rc<Seen>,
}

impl Reader {
    async fn work(self, mut rng: Rng) {
        let board = &self.seen.board;
        while !board.is_over.get() {
            if let Err(errno) = self.read_often(&mut rng).await {
                board.found(format!("a read fails: {errno}"));
                break;
            }
        }
        board.finished.set(board.finished.get() + 1);
    }

    async fn read_often(&self, rng: &mut Rng) -> Result<(), Errno> {
        let file = self.kernel.open(self.who, PATH, 0).await?;
        let board = &self.seen.board;
        self.seen.cached.set(self.seen.cached.get() + u32::from(file.is_cached()));
        for _ in 0..1 + rng.below(READS) {
            let floor = board.answered.get();
            board.check(floor, &self.kernel.read(self.who, &file, 2 * BYTES as u32).await?);
            if rng.chance(100_000) {
                self.kernel.shrink();
            }
            self.env.sleep(rng.span(Span::ZERO, Span::millis(30))).await;
        }
        self.kernel.close(self.who, file).await
    }
}
