//! **leases**: three clients stat the files of one directory and change them, while messages are
//! lost and the MDT is killed. When a change is answered, no other client may still use the earlier
//! state. A request after that must see the change.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, Glance, Lease, Listing, SetAttr};
use env::Env;
use env_sim::{Faults, NodeHandle, Rng};
use oracle::test_ctx;
use types::{Errno, Fid, Instant, Span};
use wire::Attr;

use super::{O_EXCL, O_RDWR, Stage};
use crate::run::PEACE_MAX;

/// Directories of one run: what was contended once is not leased for a while.
const ROUNDS: u32 = 12;
const CLIENTS: usize = 3;
/// Callers of one client at a time.
const CALLERS: usize = 2;
const NAMES: u64 = 4;
/// Of a listing: more than the directory has.
const PAGE_BYTES: u32 = 64 << 10;
const TAG: &[u8] = b"security.tag";
/// Calls of one caller in one round.
const CALLS: u32 = 12;

impl Stage<'_> {
    pub(super) fn leases(&mut self) -> Result<(), String> {
        let clients: Vec<_> = (0..CLIENTS).map(|_| self.enter("looker")).collect();
        let mut leased = 0;
        for round in 0..ROUNDS {
            let dir = self.ask(&clients[0], "preparing", async move |client| {
                Ok(client
                    .mkdir(&test_ctx(), Fid::ROOT, format!("leased{round}").as_bytes(), 0o777)
                    .await?
                    .fid())
            })?;
            leased += self.leases_once(&clients, dir)?;
        }
        if leased == 0 {
            return Err("nothing was ever leased".to_owned());
        }
        self.nothing_is_left(&clients[0])
    }

    /// Returns how many answers came with a lease.
    fn leases_once(&mut self, clients: &[(NodeHandle, Client)], dir: Fid) -> Result<usize, String> {
        let board = Rc::new(RefCell::new(Board::default()));
        let callers = clients.len() * CALLERS;
        for (who, (node, client)) in clients.iter().enumerate() {
            for _ in 0..CALLERS {
                let caller = Caller {
                    who,
                    env: node.env(),
                    client: client.clone(),
                    dir,
                    board: board.clone(),
                    is_called: self.cluster.calls_back(),
                };
                node.env().spawn("caller", caller.work(self.rng.fork()));
            }
        }
        let cluster = self.cluster;
        if self.rng.chance(500_000) {
            cluster.sim.set_faults(Faults::stormy());
        }
        if self.rng.chance(500_000) {
            cluster.sim.run_for(self.rng.span(Span::ZERO, Span::millis(300)));
            cluster.sim.narrate("kills the MDT");
            self.mdt().kill(false);
            self.restarts += 1;
            self.pause(Span::millis(40));
            self.mdt().boot();
        }
        let finished = cluster.sim.run_until(PEACE_MAX, || {
            board.borrow().finished == callers || board.borrow().wrong.is_some()
        });
        cluster.sim.set_faults(Faults::default());
        let board = board.borrow();
        self.ops += board.calls;
        match &board.wrong {
            Some(wrong) => Err(wrong.clone()),
            None if finished => Ok(board.leased),
            None => {
                Err(format!("{} of {callers} callers never finished", callers - board.finished))
            }
        }
    }
}

/// What clients were told and believe, and what has happened.
#[derive(Default)]
struct Board {
    /// Who was told which version of a file's attributes, and until when that holds.
    attrs: Vec<(usize, Fid, u64, Instant)>,
    /// Who was told which file stands at a name, and until when that holds.
    names: Vec<(usize, Vec<u8>, Fid, Instant)>,
    /// Version of the last change that was answered.
    changed: BTreeMap<Fid, u64>,
    /// Files that were given an attribute.
    tagged: BTreeSet<Fid>,
    /// Files by name, as far as anybody was told.
    files: BTreeMap<Vec<u8>, Fid>,
    leased: usize,
    calls: u64,
    finished: usize,
    wrong: Option<String>,
}

impl Board {
    fn found(&mut self, wrong: String) {
        self.wrong.get_or_insert(wrong);
    }

    /// A change of `fid` by `who` was answered now: nobody else believes an older version.
    fn changed(&mut self, who: usize, fid: Fid, version: u64, now: Instant) {
        let last = self.changed.entry(fid).or_default();
        *last = (*last).max(version);
        let stale = self.attrs.iter().find(|(holder, of, told, until)| {
            *holder != who && *of == fid && *told < version && *until > now
        });
        if let Some((holder, _, told, until)) = stale {
            let left = (*until - now).as_millis();
            self.found(format!(
                "client {holder} believes version {told} of {fid} for another {left} ms, client {who} has made {version}"
            ));
        }
    }

    /// `who` may write to `fid` from now on: nobody believes to know its size who was told so
    /// `before`.
    fn opened(&mut self, who: usize, fid: Fid, before: usize, now: Instant) {
        let stale = self.attrs[..before]
            .iter()
            .find(|(holder, of, _, until)| *holder != who && *of == fid && *until > now);
        if let Some((holder, ..)) = stale {
            self.found(format!(
                "client {holder} believes to know {fid}, client {who} may write to it"
            ));
        }
    }

    /// `name` stood for `fid` and does not any more.
    fn gone(&mut self, who: usize, name: &[u8], fid: Fid, now: Instant) {
        let stale = self.names.iter().find(|(holder, of, told, until)| {
            *holder != who && of == name && *told == fid && *until > now
        });
        if let Some((holder, ..)) = stale {
            let name = String::from_utf8_lossy(name);
            self.found(format!(
                "client {holder} believes that '{name}' is {fid}, client {who} has removed it"
            ));
        }
    }

    /// Somebody was told attributes who began to ask when `floor` was the last version.
    fn told(&mut self, who: usize, attr: &Attr, lease: Lease, floor: u64) {
        let (fid, version) = (attr.fid(), attr.version);
        if version < floor {
            self.found(format!(
                "client {who} is told version {version} of {fid} after a change made {floor}"
            ));
        }
        self.leased += usize::from(lease.attrs > Instant::default());
        self.attrs.push((who, fid, version, lease.attrs));
    }
}

struct Caller {
    who: usize,
    env: Env,
    client: Client,
    dir: Fid,
    board: Rc<RefCell<Board>>,
    /// What is believed may be called back before its time: who asks then is told anew.
    is_called: bool,
}

impl Caller {
    async fn work(self, mut rng: Rng) {
        for _ in 0..CALLS {
            let name = format!("f{}", rng.below(NAMES)).into_bytes();
            let done = match rng.below(13) {
                0 | 1 => self.create(name).await,
                2 => self.unlink(name).await,
                3 => self.rename(name, format!("f{}", rng.below(NAMES)).into_bytes()).await,
                4 => self.chmod(name, rng.below(0o777) as u32).await,
                5 => self.write(name).await,
                6 => self.look(self.dir).await,
                7 => self.look_up(name).await,
                8 => self.tag(name).await,
                9 => self.look_for_tag(name).await,
                10 | 11 => self.list().await,
                _ => self.look(self.file(&name)).await,
            };
            self.count(done);
            self.env.sleep(rng.span(Span::ZERO, Span::millis(15))).await;
        }
        self.board.borrow_mut().finished += 1;
    }

    fn count(&self, done: client::Result<()>) {
        let mut board = self.board.borrow_mut();
        board.calls += 1;
        if let Err(error) = done
            && !matches!(error.errno(), Errno::ENOENT | Errno::ESTALE | Errno::EEXIST)
        {
            board.found(format!("client {}: {error}", self.who));
        }
    }

    /// What the name stood for last, the directory if nothing.
    fn file(&self, name: &[u8]) -> Fid {
        self.board.borrow().files.get(name).copied().unwrap_or(self.dir)
    }

    fn floor(&self, fid: Fid) -> u64 {
        self.board.borrow().changed.get(&fid).copied().unwrap_or(0)
    }

    fn changed(&self, fid: Fid, version: u64) {
        self.board.borrow_mut().changed(self.who, fid, version, self.env.now());
    }

    async fn look(&self, fid: Fid) -> client::Result<()> {
        let floor = self.floor(fid);
        let (attr, lease) = self.client.getattr_leased(&test_ctx(), fid, None).await?;
        self.told(&attr, lease, floor);
        Ok(())
    }

    async fn look_up(&self, name: Vec<u8>) -> client::Result<()> {
        let Glance { attr, lease, .. } =
            self.client.lookup_glance(&test_ctx(), self.dir, &name).await?;
        self.told(&attr, lease, 0);
        self.told_name(name, attr.fid(), lease);
        Ok(())
    }

    /// Attributes came, of a file whose last known change made `floor` when they were asked for.
    fn told(&self, attr: &Attr, lease: Lease, floor: u64) {
        let mut board = self.board.borrow_mut();
        if self.is_called {
            board.leased += usize::from(lease.attrs > Instant::default());
            board.told(self.who, attr, Lease::default(), floor);
        } else {
            board.told(self.who, attr, lease, floor);
        }
    }

    fn told_name(&self, name: Vec<u8>, fid: Fid, lease: Lease) {
        if !self.is_called {
            self.board.borrow_mut().names.push((self.who, name, fid, lease.name));
        }
    }

    async fn list(&self) -> client::Result<()> {
        let (page, lease) =
            self.client.readdir_leased(&test_ctx(), &Listing::new(self.dir), 0, PAGE_BYTES).await?;
        for entry in page.entries.into_iter().filter(|entry| entry.leased) {
            self.told(&entry.attr, lease, 0);
            self.told_name(entry.name, entry.attr.fid(), lease);
        }
        Ok(())
    }

    async fn create(&self, name: Vec<u8>) -> client::Result<()> {
        let flags = O_RDWR | O_EXCL;
        let (Glance { attr, lease, .. }, file) =
            self.client.create_glance(&test_ctx(), self.dir, &name, 0o666, flags, None).await?;
        self.changed(self.dir, attr.version);
        self.board.borrow_mut().files.insert(name.clone(), attr.fid());
        self.told(&attr, lease, 0);
        self.told_name(name, attr.fid(), lease);
        self.look(self.dir).await?;
        file.close().await
    }

    async fn unlink(&self, name: Vec<u8>) -> client::Result<()> {
        let fid = self.file(&name);
        self.client.unlink(&test_ctx(), self.dir, &name).await?;
        self.board.borrow_mut().gone(self.who, &name, fid, self.env.now());
        Ok(())
    }

    async fn rename(&self, from: Vec<u8>, to: Vec<u8>) -> client::Result<()> {
        if from == to {
            return Ok(());
        }
        let fid = self.client.lookup(&test_ctx(), self.dir, &from).await?.fid();
        self.client.rename(&test_ctx(), self.dir, &from, self.dir, &to, 0).await?;
        let mut board = self.board.borrow_mut();
        board.files.insert(to, fid);
        board.gone(self.who, &from, fid, self.env.now());
        Ok(())
    }

    async fn chmod(&self, name: Vec<u8>, mode: u32) -> client::Result<()> {
        let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
        let fid = self.file(&name);
        let attr = self.client.setattr(&test_ctx(), fid, &set, None).await?;
        self.changed(fid, attr.version);
        self.look(fid).await
    }

    async fn tag(&self, name: Vec<u8>) -> client::Result<()> {
        let fid = self.file(&name);
        self.client.setxattr(&Ctx::root(), fid, TAG, Bytes::from_static(b"tagged"), 0).await?;
        self.board.borrow_mut().tagged.insert(fid);
        Ok(())
    }

    /// As `ls -l` does: attributes, then what a file may have besides.
    async fn look_for_tag(&self, name: Vec<u8>) -> client::Result<()> {
        self.client.lookup(&test_ctx(), self.dir, &name).await?;
        let fid = self.file(&name);
        let tagged = self.board.borrow().tagged.contains(&fid);
        let found = self.client.getxattr(&test_ctx(), fid, TAG).await;
        if tagged && found.as_ref().is_err_and(|error| error.errno() == Errno::ENODATA) {
            self.board
                .borrow_mut()
                .found(format!("client {} does not see an attribute that {fid} has", self.who));
        }
        Ok(())
    }

    /// Who opens for writing may write at any moment.
    async fn write(&self, name: Vec<u8>) -> client::Result<()> {
        let fid = self.file(&name);
        if fid == self.dir {
            return Ok(());
        }
        let before = self.board.borrow().attrs.len();
        let file = self.client.open(&test_ctx(), fid, O_RDWR).await?;
        self.board.borrow_mut().opened(self.who, fid, before, self.env.now());
        file.write(0, Bytes::from_static(b"written")).await?;
        file.close().await
    }
}
