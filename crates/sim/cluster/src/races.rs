//! Races: all clients try the same operations in one directory, and each takes effect exactly once.
//!
//! In every interleaving the books must balance. A name that was created m times and removed t
//! times exists m - t times, which is 0 or 1. Every appended record is there once, whole. A counter
//! under `flock` counts every increment.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, LockKind, LockMode, LockSpec};
use env::Env;
use env_sim::{NodeHandle, Rng};
use layout::Template;
use oracle::{read_file, read_names, test_ctx};
use types::{Errno, Fid, Instant, Span};

const O_RDWR: u32 = 0o2;
const O_EXCL: u32 = 0o200;
const O_APPEND: u32 = 0o2000;
/// Time between two rounds.
const ROUND: Span = Span::millis(600);

/// Files that the races are about.
#[derive(Clone, Copy)]
pub(crate) struct Arena {
    pub(crate) dir: Fid,
    log: Fid,
    counter: Fid,
    target: Fid,
    sizes: Fid,
}

pub(crate) async fn make_arena(client: &Client) -> Result<Arena, client::Error> {
    let ctx = test_ctx();
    let dir = client.mkdir(&ctx, Fid::ROOT, b"races", 0o777).await?.fid();
    let striped =
        Template { stripe_size: 64 << 10, stripe_count: -1, ..Template::default() }.into();
    let mut fids = Vec::new();
    for name in ["log", "counter", "target", "sizes"] {
        let (attr, file) = client
            .create(&ctx, dir, name.as_bytes(), 0o666, O_RDWR | O_EXCL, Some(&striped))
            .await?;
        if name == "counter" {
            file.write(0, Bytes::from_static(&[0; 8])).await?;
        }
        file.close().await?;
        fids.push(attr.fid());
    }
    Ok(Arena { dir, log: fids[0], counter: fids[1], target: fids[2], sizes: fids[3] })
}

/// One client's part, and what it was told.
pub(crate) struct Racer {
    pub(crate) name: String,
    book: Rc<Book>,
}

#[derive(Default)]
struct Book {
    rounds: Cell<u64>,
    may_stop: Cell<bool>,
    idle: Cell<bool>,
    failure: RefCell<Option<String>>,
    doing: RefCell<String>,
    /// Names made (+1) and taken away (-1).
    names: RefCell<BTreeMap<String, i64>>,
    /// Sequence numbers of acknowledged records.
    appended: RefCell<BTreeSet<u32>>,
    increments: Cell<u64>,
}

impl Book {
    fn made(&self, name: &str, by: i64) {
        *self.names.borrow_mut().entry(name.to_owned()).or_default() += by;
    }
}

struct Player {
    client: Client,
    ctx: Ctx,
    env: Env,
    arena: Arena,
    index: u32,
    rng: Rng,
    book: Rc<Book>,
    log: File,
}

impl Racer {
    pub(crate) fn start(
        node: &NodeHandle,
        client: Client,
        arena: Arena,
        index: u32,
        rng: Rng,
        from: Instant,
    ) -> Racer {
        let book = Rc::new(Book::default());
        let (own, env) = (book.clone(), node.env());
        node.env().spawn("racer", async move {
            let ctx = test_ctx();
            let played = match client.open(&ctx, arena.log, O_RDWR | O_APPEND).await {
                Ok(log) => {
                    Player { client, ctx, env, arena, index, rng, book: own.clone(), log }
                        .play(from)
                        .await
                }
                Err(error) => Err(error),
            };
            if let Err(error) = played {
                *own.failure.borrow_mut() = Some(error.to_string());
            }
            own.idle.set(true);
        });
        Racer { name: format!("racer {index}"), book }
    }

    pub(crate) fn rounds(&self) -> u64 {
        self.book.rounds.get()
    }

    pub(crate) fn allow_rest(&self) {
        self.book.may_stop.set(true);
    }

    pub(crate) fn is_idle(&self) -> bool {
        self.book.idle.get()
    }

    pub(crate) fn failure(&self) -> Option<String> {
        let failure = self.book.failure.borrow();
        failure
            .as_ref()
            .map(|failure| format!("{}: {}: {failure}", self.name, self.book.doing.borrow()))
    }

    pub(crate) fn doing(&self) -> String {
        format!("{}: {}", self.name, self.book.doing.borrow())
    }
}

impl Player {
    async fn play(mut self, from: Instant) -> Result<(), client::Error> {
        for round in 0u64.. {
            if self.book.may_stop.get() {
                break;
            }
            let start = Instant(from.0 + round * ROUND.0);
            self.env.sleep_until(start + self.rng.span(Span::ZERO, Span::millis(2))).await;
            self.round(round).await?;
            self.book.rounds.set(round + 1);
        }
        self.log.close().await
    }

    fn doing(&self, what: &str, round: u64) {
        *self.book.doing.borrow_mut() =
            format!("{what} of round {round} since {:.3} s", self.env.now().0 as f64 / 1e9);
    }

    async fn round(&mut self, round: u64) -> Result<(), client::Error> {
        self.doing("exclusive create", round);
        self.create_exclusively(&format!("e{round}")).await?;
        self.doing("mkdir", round);
        let dir = format!("d{round}");
        let made =
            self.client.mkdir(&self.ctx, self.arena.dir, dir.as_bytes(), 0o777).await.map(|_| ());
        self.settle(made, Errno::EEXIST, &[(&dir, 1)])?;
        self.doing("link", round);
        let link = format!("l{round}");
        let made = self
            .client
            .link(&self.ctx, self.arena.target, self.arena.dir, link.as_bytes())
            .await
            .map(|_| ());
        self.settle(made, Errno::EEXIST, &[(&link, 1)])?;
        self.doing("append", round);
        self.append(round as u32).await?;
        self.doing("count", round);
        self.count().await?;
        self.doing("grow", round);
        self.grow(round).await?;
        if round >= 2 {
            self.undo(round - 2).await?;
        }
        Ok(())
    }

    /// Everybody renames, removes and unlinks what was made two rounds ago.
    async fn undo(&mut self, round: u64) -> Result<(), client::Error> {
        let dir = self.arena.dir;
        self.doing("rename", round);
        let (old, new) = (format!("e{round}"), format!("m{round}-{}", self.index));
        let moved =
            self.client.rename(&self.ctx, dir, old.as_bytes(), dir, new.as_bytes(), 0).await;
        self.settle(moved, Errno::ENOENT, &[(&old, -1), (&new, 1)])?;
        self.doing("rmdir", round);
        let name = format!("d{round}");
        let removed = self.client.rmdir(&self.ctx, dir, name.as_bytes()).await;
        self.settle(removed, Errno::ENOENT, &[(&name, -1)])?;
        self.doing("unlink", round);
        let name = format!("l{round}");
        let removed = self.client.unlink(&self.ctx, dir, name.as_bytes()).await;
        self.settle(removed, Errno::ENOENT, &[(&name, -1)])
    }

    /// Books what happened; `lost` is how a race is lost.
    fn settle(
        &self,
        result: Result<(), client::Error>,
        lost: Errno,
        names: &[(&str, i64)],
    ) -> Result<(), client::Error> {
        match result {
            Ok(()) => names.iter().for_each(|(name, by)| self.book.made(name, *by)),
            Err(error) if error.errno() == lost => {}
            Err(error) => return Err(error),
        }
        Ok(())
    }

    async fn create_exclusively(&self, name: &str) -> Result<(), client::Error> {
        let made = self
            .client
            .create(&self.ctx, self.arena.dir, name.as_bytes(), 0o666, O_RDWR | O_EXCL, None)
            .await;
        let (made, file) = match made {
            Ok((_, file)) => (Ok(()), Some(file)),
            Err(error) => (Err(error), None),
        };
        self.settle(made, Errno::EEXIST, &[(name, 1)])?;
        if let Some(file) = file {
            file.write(0, Bytes::from(format!("{name} by {}", self.index))).await?;
            file.close().await?;
        }
        Ok(())
    }

    /// A record: who, which, how long, then filling.
    async fn append(&mut self, seq: u32) -> Result<(), client::Error> {
        let len = if self.rng.chance(200_000) {
            self.rng.range(20, 90_000)
        } else {
            self.rng.range(20, 900)
        } as u32;
        let mut record = Vec::with_capacity(len as usize);
        record.extend_from_slice(&(self.index + 1).to_le_bytes());
        record.extend_from_slice(&seq.to_le_bytes());
        record.extend_from_slice(&len.to_le_bytes());
        record.resize(len as usize, self.index as u8 + 1);
        self.log.write(0, Bytes::from(record)).await?;
        self.book.appended.borrow_mut().insert(seq);
        Ok(())
    }

    /// Everybody makes one file longer: whoever has written to some byte sees a size behind it,
    /// whatever others close.
    async fn grow(&mut self, round: u64) -> Result<(), client::Error> {
        let file = self.client.open(&self.ctx, self.arena.sizes, O_RDWR).await?;
        for step in 0..2 {
            let offset = ((round * 2 + step) * 8 + u64::from(self.index)) * 1_000;
            file.write(offset, Bytes::from_static(&[7; 10])).await?;
            let size = self.client.getattr(&self.ctx, self.arena.sizes, None).await?.size;
            if size < offset + 10 {
                let what = format!("wrote up to {} and sees a size of {size}", offset + 10);
                *self.book.failure.borrow_mut() = Some(what);
            }
            self.env.sleep(self.rng.span(Span::ZERO, Span::millis(2))).await;
        }
        file.close().await
    }

    async fn count(&self) -> Result<(), client::Error> {
        let lock = |mode| LockSpec::whole(LockKind::Flock, mode, u64::from(self.index) + 1, true);
        let file = self.client.open(&self.ctx, self.arena.counter, O_RDWR).await?;
        self.client.lock(&self.ctx, self.arena.counter, lock(LockMode::Exclusive)).await?;
        let before = file.read(0, 8).await?;
        let value =
            u64::from_le_bytes(before.as_ref().try_into().expect("the counter has eight bytes"))
                + 1;
        file.write(0, Bytes::from(value.to_le_bytes().to_vec())).await?;
        self.client.lock(&self.ctx, self.arena.counter, lock(LockMode::Unlock)).await?;
        self.book.increments.set(self.book.increments.get() + 1);
        file.close().await
    }
}

/// Whether the books balance with what `client` finds.
pub(crate) async fn check(client: &Client, arena: Arena, racers: &[Books]) -> Result<(), String> {
    let ctx = test_ctx();
    let text = |error: client::Error| error.to_string();
    let found = read_names(client, &ctx, arena.dir, 1 << 16).await.map_err(text)?;
    let mut balance: BTreeMap<String, i64> = BTreeMap::new();
    for book in racers {
        for (name, by) in &book.names {
            *balance.entry(name.clone()).or_default() += by;
        }
    }
    let names: BTreeSet<String> = found.iter().map(|(name, _)| name.clone()).collect();
    if names.len() != found.len() {
        return Err("a name is listed twice".to_owned());
    }
    for (name, count) in &balance {
        if *count != i64::from(names.contains(name)) {
            let is = if names.contains(name) { "there" } else { "not there" };
            return Err(format!(
                "'{name}' was made {count} times more often than taken away, and is {is}"
            ));
        }
    }
    if let Some(name) = names.iter().find(|name| {
        !balance.contains_key(*name) && !["log", "counter", "target", "sizes"].contains(&&***name)
    }) {
        return Err(format!("'{name}' is there and nobody was told that it was made"));
    }
    check_contents(client, &ctx, &found).await?;
    let links =
        balance.iter().filter(|(name, count)| name.starts_with('l') && **count == 1).count() as u32;
    let nlink = client.getattr(&ctx, arena.target, None).await.map_err(text)?.nlink;
    if nlink != 1 + links {
        return Err(format!("a file with {} names has link count {nlink}", 1 + links));
    }
    let counter = read_file(client, &ctx, arena.counter).await.map_err(text)?;
    let counted = u64::from_le_bytes(
        counter
            .as_ref()
            .try_into()
            .map_err(|_| format!("the counter has {} bytes", counter.len()))?,
    );
    let increments: u64 = racers.iter().map(|book| book.increments).sum();
    if counted != increments {
        return Err(format!(
            "the counter under flock stands at {counted} after {increments} increments"
        ));
    }
    let log = read_file(client, &ctx, arena.log).await.map_err(text)?;
    check_log(&log, racers)
}

/// What somebody was told, when all is over.
pub(crate) struct Books {
    names: BTreeMap<String, i64>,
    appended: BTreeSet<u32>,
    increments: u64,
}

impl Racer {
    pub(crate) fn book(&self) -> Books {
        Books {
            names: self.book.names.borrow().clone(),
            appended: self.book.appended.borrow().clone(),
            increments: self.book.increments.get(),
        }
    }
}

/// Files made exclusively hold what their maker wrote.
async fn check_contents(
    client: &Client,
    ctx: &Ctx,
    found: &[(String, wire::Attr)],
) -> Result<(), String> {
    for (name, attr) in found {
        let round = match name.split_at(1) {
            ("e", round) => round,
            ("m", rest) => rest.split('-').next().unwrap_or_default(),
            _ => continue,
        };
        let data = read_file(client, ctx, attr.fid()).await.map_err(|error| error.to_string())?;
        let text = String::from_utf8_lossy(&data).into_owned();
        if !text.starts_with(&format!("e{round} by ")) {
            return Err(format!("'{name}' holds {text:?}"));
        }
    }
    Ok(())
}

fn check_log(log: &[u8], racers: &[Books]) -> Result<(), String> {
    let mut seen: Vec<Vec<u32>> = vec![Vec::new(); racers.len()];
    let mut at = 0;
    while at < log.len() {
        let word = |offset: usize| {
            let bytes =
                log.get(at + offset..at + offset + 4).and_then(|bytes| bytes.try_into().ok());
            bytes
                .map(u32::from_le_bytes)
                .ok_or_else(|| format!("the log ends inside a record at {at} of {}", log.len()))
        };
        let (who, seq, len) = (word(0)?, word(4)?, word(8)? as usize);
        let racer = (who as usize).checked_sub(1).filter(|racer| *racer < racers.len());
        let (Some(racer), true) = (racer, len >= 12) else {
            return Err(format!(
                "no record of the log begins at {at} of {}: {who} {seq} {len}",
                log.len()
            ));
        };
        let body = log
            .get(at + 12..at + len)
            .ok_or_else(|| format!("record {seq} of racer {racer} is cut short"))?;
        if body.iter().any(|byte| u32::from(*byte) != who) {
            return Err(format!("record {seq} of racer {racer} at {at} is not what was written"));
        }
        seen[racer].push(seq);
        at += len;
    }
    for (racer, book) in racers.iter().enumerate() {
        if !seen[racer].is_sorted() {
            return Err(format!("records of racer {racer} are out of order: {:?}", seen[racer]));
        }
        if !seen[racer].iter().eq(&book.appended) {
            return Err(format!(
                "the log has records {:?} of racer {racer}, acknowledged were {:?}",
                seen[racer], book.appended
            ));
        }
    }
    Ok(())
}
