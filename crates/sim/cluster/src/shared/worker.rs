//! One user: draws its next operation and its time.

use std::cell::{Cell, OnceCell, RefCell};
use std::rc::Rc;

use client::Client;
use env::Env;
use env_sim::{NodeHandle, Rng};
use types::Span;

use super::board::{Board, PLACES, Use};
use super::call::Caller;
use super::diary::Keeper;

/// Between two calls of a user, mostly; never nothing, so that one ends before the next begins.
pub(super) const THINK: (Span, Span) = (Span::micros(10), Span::millis(30));
/// One in ten times.
const REST: Span = Span::millis(900);

/// Who has long done what it was asked for takes its time.
const SLOW: Span = Span::secs(8);
/// So long after a quiet time users are after directories.
const EAGER: Span = Span::millis(150);
/// After a call that failed: nobody knows what it did, and a search bears only so many of these.
pub(super) const DISMAY: (Span, Span) = (Span::millis(100), Span::secs(2));
/// How often a user looks whether its client has mounted.
const LOOK: Span = Span::millis(20);

/// A user, as seen from outside.
pub(super) struct Worker {
    pub(super) node: NodeHandle,
    who: u32,
    mounted: Rc<OnceCell<Client>>,
    state: Rc<State>,
}

#[derive(Default)]
pub(super) struct State {
    /// It has done what it was asked for, and goes on.
    pub(super) idle: Cell<bool>,
    pub(super) may_rest: Cell<bool>,
    left: Cell<bool>,
}

impl Worker {
    pub(super) fn start(
        node: &NodeHandle,
        mounted: Rc<OnceCell<Client>>,
        (who, calls, is_keeper): (u32, u32, bool),
        board: Rc<RefCell<Board>>,
        rng: Rng,
    ) -> Worker {
        let (state, env) = (Rc::<State>::default(), node.env());
        let own = state.clone();
        let (player, client) = (mounted.clone(), mounted);
        node.env().spawn("worker", async move {
            let client = loop {
                match player.get() {
                    Some(client) => break client.clone(),
                    None => env.sleep(LOOK).await,
                }
            };
            if is_keeper {
                Keeper::new(client, who, board).keep(&env, rng, calls, &own).await;
            } else {
                let mut player = Player { caller: Caller::new(client, who, board), rng };
                player.play(&env, calls, &own).await;
            }
            own.idle.set(true);
            own.left.set(true);
        });
        Worker { node: node.clone(), who, mounted: client, state }
    }

    /// Its client is about to die, with what it has acknowledged and not sent.
    pub(super) fn dies(&self, board: &RefCell<Board>) {
        let Some(client) = self.mounted.get() else { return };
        let files = board.borrow().arena.files.clone();
        for (index, file) in files.iter().enumerate() {
            if let Some(since) = client.kept_since(file.fid) {
                board.borrow_mut().may_be_lost(self.who, index, since.0);
            }
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.state.idle.get()
    }

    pub(super) fn rest(&self) {
        self.state.may_rest.set(true);
    }

    pub(super) fn has_left(&self) -> bool {
        self.state.left.get()
    }
}

struct Player {
    caller: Caller,
    rng: Rng,
}

impl Player {
    async fn play(&mut self, env: &Env, calls: u32, state: &State) {
        for call in 0.. {
            state.idle.set(call >= calls);
            if (state.may_rest.get() && state.idle.get()) || self.caller.has_failed() {
                break;
            }
            if self.caller.recover().await {
                env.sleep(self.rng.span(DISMAY.0, DISMAY.1)).await;
            }
            let quiet = self.caller.quiet_until();
            env.sleep_until(quiet).await;
            if env.now() < quiet + EAGER {
                env.sleep(self.rng.span(THINK.0, Span::millis(8))).await;
                self.after_quiet().await;
                continue;
            }
            let think = match self.rng.chance(100_000) {
                _ if call >= 2 * calls => self.rng.span(REST, SLOW),
                true => self.rng.span(THINK.0, REST),
                false => self.rng.span(THINK.0, THINK.1),
            };
            env.sleep(think).await;
            match self.rng.below(100) {
                0..=44 => self.on_names().await,
                _ => self.on_bytes().await,
            }
        }
        self.caller.close_all().await;
    }

    /// Directories are looked at and changed, until they are not leased any more.
    async fn after_quiet(&mut self) {
        let (dir, place) = (self.rng.index(self.caller.dirs()), self.place());
        match (self.rng.below(10), self.caller.some_file(&mut self.rng)) {
            (0, Some(file)) => self.caller.link(file, place).await,
            (1, _) => self.on_names().await,
            _ => self.caller.taken(dir).await,
        }
    }

    fn place(&mut self) -> u8 {
        self.rng.below(u64::from(PLACES) * self.caller.dirs() as u64) as u8
    }

    async fn on_names(&mut self) {
        let (place, other, kind) = (self.place(), self.place(), self.rng.below(20));
        let mode = *self.rng.pick(&[0o600, 0o640, 0o644, 0o666]);
        let (dir, how) = (self.rng.index(self.caller.dirs()), self.rng.below(4));
        let file = self.caller.some_file(&mut self.rng);
        match (kind, file) {
            (0..=4, _) => self.caller.create(place, mode).await,
            (5..=7, _) => self.caller.unlink(place).await,
            (8..=9, _) if place != other => self.caller.rename(place, other, how).await,
            (10..=11, Some(file)) => self.caller.link(file, place).await,
            (12..=13, Some(file)) => self.caller.chmod(file, mode).await,
            (14..=15, Some(file)) => self.caller.stat(file).await,
            (16, _) => self.caller.list(dir).await,
            (17..=18, _) => self.caller.taken(dir).await,
            _ => self.caller.lookup(place).await,
        }
    }

    async fn on_bytes(&mut self) {
        let files = self.caller.files();
        let file = self.rng.index(files.len());
        let shared = files[file];
        if !self.caller.is_open(file) {
            let cut = shared.usage != Use::Wide && self.rng.chance(40_000);
            return self.caller.open(file, cut).await;
        }
        let at = self.rng.index(shared.cells);
        let most = (shared.cells - at).min(if self.rng.chance(200_000) { 64 } else { 4 });
        let count = 1 + self.rng.index(most);
        match (self.rng.below(100), shared.usage) {
            (0..=39, Use::Log) => self.caller.append(file, 1 + count % 3).await,
            (0..=39, _) => self.caller.write(file, at, count).await,
            (40..=66, Use::Log) => self.caller.read(file, 0, 4 * shared.cells).await,
            (40..=66, _) => self.caller.read(file, at, count).await,
            (70..=88, Use::Log) => self.caller.truncate(file, at % 8).await,
            (67..=80, _) => self.caller.size(file, self.rng.chance(500_000)).await,
            (81..=88, Use::Pages) => self.caller.truncate(file, at).await,
            (89..=92, Use::Pages) => self.caller.punch(file, at, count).await,
            (93..=94, _) => self.caller.fsync(file).await,
            _ => self.caller.close(file).await,
        }
    }
}

/// Looks at everything once.
pub(super) async fn look(client: &Client, who: u32, board: Rc<RefCell<Board>>) {
    let mut caller = Caller::new(client.clone(), who, board.clone());
    for file in 0..caller.files().len() {
        caller.open(file, false).await;
        caller.size(file, false).await;
        caller.read(file, 0, 4 * caller.files()[file].cells).await;
    }
    for place in 0..PLACES * caller.dirs() as u8 {
        caller.lookup(place).await;
    }
    for dir in 0..caller.dirs() {
        caller.list(dir).await;
        caller.taken(dir).await;
    }
    caller.close_all().await;
    let keepers = board.borrow().keepers();
    for who in keepers {
        Keeper::new(client.clone(), who, board.clone()).look().await;
    }
}
