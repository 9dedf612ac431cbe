//! **migrations**: a file moves into other objects while one client writes it and another reads it.
//! Servers and the migrating client die meanwhile. Each read shows the last write, or one that is
//! under way. The file keeps its size. No object is left behind, wherever a migration ended.
//! From seed 1000 on some layouts have data at the MDT or are overstriped.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, Migration, SetAttr};
use env::Env;
use env_sim::{NodeHandle, Rng};
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};
use oracle::test_ctx;
use types::{Creds, Errno, Fid, Span};

use super::{O_EXCL, O_RDWR, Stage};

/// Migrations of one run.
const ROUNDS: u32 = 5;
/// Bytes that are written at a time.
const SLOT: u64 = 32 << 10;
const SLOTS: usize = 40;
/// Places that are written at first.
const REACH: usize = 8;
/// Places of one component, where there are many.
const PLACES_OF_PART: usize = 4;
/// Tasks that write, each its own places.
const WRITERS: usize = 4;
const PUNCH_AND_KEEP: u32 = 3;
/// After so many looks at the size a server is being waited for: the rest are far apart.
const LOOKS_CLOSE: u32 = 1_000;
/// Shapes of layouts.
const SHAPES: u64 = 10;
/// Of them those that are overstriped.
const OVERSTRIPED: u64 = 2;

/// What was written at one place, in order; zero is a hole.
#[derive(Clone, Debug)]
struct Slot {
    history: Vec<u64>,
    /// So many of them were answered.
    answered: usize,
}

impl Slot {
    fn new() -> Slot {
        Slot { history: vec![0], answered: 1 }
    }

    /// Whether a read that began when `answered` writes were answered may see this.
    fn explains(&self, answered: usize, seen: u64) -> bool {
        self.history[answered - 1..].contains(&seen)
    }
}

/// What the writer and the reader share.
struct Board {
    slots: RefCell<Vec<Slot>>,
    /// Only places below are written, so that components get objects late.
    reach: Cell<usize>,
    /// Where the file ends.
    end: Cell<u64>,
    may_stop: Cell<bool>,
    /// So many that write or read are at work.
    busy: Cell<u32>,
    wrong: RefCell<Option<String>>,
}

impl Board {
    /// Zero is a hole. Nobody else writes this place.
    async fn write(&self, file: &File, index: usize, number: u64) {
        let offset = index as u64 * SLOT;
        self.slots.borrow_mut()[index].history.push(number);
        let done = match number {
            0 => file.fallocate(PUNCH_AND_KEEP, offset, SLOT).await,
            _ => file.write(offset, content(number)).await.map(drop),
        };
        if let Err(error) = done {
            self.blame(format!("a write of slot {index}: {error}"));
        }
        let slot = &mut self.slots.borrow_mut()[index];
        slot.answered = slot.history.len();
        if number != 0 {
            self.end.set(self.end.get().max(offset + SLOT));
        }
    }

    fn blame(&self, what: String) {
        self.wrong.borrow_mut().get_or_insert(what);
    }
}

struct Table {
    fid: Fid,
    writer: (NodeHandle, Client),
    reader: (NodeHandle, Client),
    mover: (NodeHandle, Client),
    writes: File,
    reads: File,
    board: Rc<Board>,
}

impl Stage<'_> {
    pub(super) fn migrations(&mut self) -> Result<(), String> {
        let mut table = self.open_table()?;
        for round in 0..ROUNDS {
            self.migrate_once(&mut table).map_err(|why| format!("round {round}: {why}"))?;
        }
        let Table { writer, reader, mover, writes, reads, .. } = table;
        self.ask(&writer, "closing", async move |_| writes.close().await)?;
        self.ask(&reader, "closing", async move |_| reads.close().await)?;
        self.nothing_is_left(&mover)
    }

    fn open_table(&mut self) -> Result<Table, String> {
        let (writer, reader, mover) =
            (self.enter("writer"), self.enter("reader"), self.enter("mover"));
        let asked = self.draw_layout();
        let writes = self.ask(&writer, "creating", async move |client| {
            let (ctx, flags) = (test_ctx(), O_RDWR | O_EXCL);
            let made = client.create(&ctx, Fid::ROOT, b"moved", 0o666, flags, Some(&asked)).await?;
            Ok(made.1)
        })?;
        let fid = writes.fid();
        self.refuse_a_stranger(&mover, fid)?;
        let reads = self
            .ask(&reader, "opening", async move |client| client.open(&test_ctx(), fid, 0).await)?;
        let board = Rc::new(Board {
            slots: RefCell::new(vec![Slot::new(); SLOTS]),
            reach: Cell::new(REACH),
            end: Cell::new(0),
            may_stop: Cell::new(false),
            busy: Cell::new(0),
            wrong: RefCell::new(None),
        });
        Ok(Table { fid, writer, reader, mover, writes, reads, board })
    }

    /// Only the owner and root may migrate a file, and a stranger delays no other caller.
    fn refuse_a_stranger(&mut self, who: &(NodeHandle, Client), fid: Fid) -> Result<(), String> {
        let migration = Rc::new(Migration::default());
        let own = migration.clone();
        let errno = self.ask(who, "a stranger's migration", async move |client| {
            let creds = Creds { uid: 7, gid: 7, ..test_ctx().creds };
            let (ctx, asked) = (Ctx { creds, ..test_ctx() }, Template::default().into());
            let done = client.migrate(&ctx, fid, Fid::ROOT, &asked, &own).await;
            Ok(done.err().map(|error| error.errno()))
        })?;
        if errno == Some(Errno::EPERM) && migration.rounds.get() == 0 {
            return Ok(());
        }
        Err(format!("a stranger migrates the file: {errno:?}, {migration:?}"))
    }

    fn migrate_once(&mut self, table: &mut Table) -> Result<(), String> {
        if self.rng.chance(500_000) {
            let cut = self.rng.below(SLOTS as u64) * SLOT;
            self.cut(table, cut)?;
            if self.rng.chance(500_000) {
                self.thin_out(table)?;
            }
        }
        let board = table.board.clone();
        board.may_stop.set(false);
        board.busy.set(WRITERS as u32 + 3);
        let env = table.writer.0.env();
        for own in 0..WRITERS {
            let (file, rng) = (table.writes.clone(), self.rng.fork());
            env.spawn("writes", keep_writing(env.clone(), file, board.clone(), own, rng));
        }
        let (file, rng) = (table.writes.clone(), self.rng.fork());
        env.spawn("grows", keep_growing(env.clone(), file, board.clone(), rng));
        let env = table.reader.0.env();
        let (file, rng) = (table.reads.clone(), self.rng.fork());
        env.spawn("reads", keep_reading(env.clone(), file, board.clone(), rng));
        let (client, rng) = (table.reader.1.clone(), self.rng.fork());
        env.spawn("looks", keep_looking(client, table.fid, board.clone(), rng));
        self.pause(Span::millis(30));

        let asked = self.draw_layout();
        let migration = Migration { gives_way: self.rng.chance(200_000), ..Migration::default() };
        let (migration, outcome) = (Rc::new(migration), Rc::new(RefCell::new(None)));
        let ((node, client), fid) = (table.mover.clone(), table.fid);
        let (own, told) = (migration.clone(), outcome.clone());
        node.env().spawn("migrates", async move {
            let done = client.migrate(&test_ctx(), fid, Fid::ROOT, &asked, &own).await;
            *told.borrow_mut() = Some(done);
        });
        let restarts = self.rng.chance(600_000);
        if restarts {
            self.pause(Span::millis(60));
            self.restart_one();
        }
        let dies = self.rng.chance(300_000);
        if dies {
            self.pause(Span::millis(150));
            node.kill();
            table.mover = self.enter("mover");
        } else if !self.cluster.sim.run_until(crate::run::PEACE_MAX, || outcome.borrow().is_some())
        {
            return Err(format!("a migration never ends: {migration:?}"));
        }
        self.pause(Span::millis(100));
        board.may_stop.set(true);
        if !self.cluster.sim.run_until(crate::run::PEACE_MAX, || board.busy.get() == 0) {
            return Err("a call beside a migration never ends".to_owned());
        }
        if let Some(wrong) = board.wrong.borrow_mut().take() {
            return Err(wrong);
        }
        if let Some(Err(error)) = outcome.borrow_mut().take() {
            let gives_way = migration.gives_way && error.errno() == Errno::EBUSY;
            // a recovery that waits for a dead client may take longer than a last pass may
            let is_late = restarts && error.errno() == Errno::ETIMEDOUT;
            if !gives_way && !is_late {
                return Err(format!("a migration failed: {error}"));
            }
        }
        self.see_whole(table)
    }

    /// In peace: every byte is what was written last, and the size is as they say.
    fn see_whole(&mut self, table: &Table) -> Result<(), String> {
        let (slots, end) = (table.board.slots.borrow().clone(), table.board.end.get());
        let last = |slot: &Slot| content(*slot.history.last().expect("there is one"));
        let mut want: Vec<u8> = slots.iter().flat_map(last).collect();
        want.truncate(end as usize);
        let (reads, len) = (table.reads.clone(), SLOT as usize * (SLOTS + 1));
        let read =
            self.ask(&table.reader, "reading all", async move |_| reads.read(0, len).await)?;
        let fid = table.fid;
        let stat = self.ask(&table.reader, "the size", async move |client| {
            client.getattr(&test_ctx(), fid, None).await
        })?;
        if stat.size != end || read != want {
            let first = read.iter().zip(&want).position(|(one, other)| one != other);
            return Err(format!(
                "{} bytes are read, {} said to be there of {end}; the first wrong one: {first:?}",
                read.len(),
                stat.size
            ));
        }
        Ok(())
    }

    fn cut(&mut self, table: &Table, to: u64) -> Result<(), String> {
        let fid = table.fid;
        self.ask(&table.reader, "cutting", async move |client| {
            let set = SetAttr { size: Some(to), ..SetAttr::default() };
            client.setattr(&test_ctx(), fid, &set, None).await.map(drop)
        })?;
        table.board.end.set(to);
        table.board.reach.set(REACH.max((to / SLOT) as usize).next_multiple_of(PLACES_OF_PART));
        for slot in table.board.slots.borrow_mut().iter_mut().skip((to / SLOT) as usize) {
            *slot = Slot::new();
        }
        Ok(())
    }

    /// In peace: the file gets components of which most have no objects yet.
    fn thin_out(&mut self, table: &Table) -> Result<(), String> {
        let (fid, asked) = (table.fid, Asked::Composite(parts(10)));
        self.ask(&table.mover, "migrating in peace", async move |client| {
            client.migrate(&test_ctx(), fid, Fid::ROOT, &asked, &Rc::default()).await
        })
    }

    fn draw_layout(&mut self) -> Asked {
        let shapes = if self.has_all_layouts { SHAPES } else { SHAPES - OVERSTRIPED };
        draw_layout(&mut self.rng, shapes)
    }
}

/// A layout of one of so many shapes. Of these the last ones are overstriped.
fn draw_layout(rng: &mut Rng, shapes: u64) -> Asked {
    let striped =
        |stripe_count| Template { stripe_size: 64 << 10, stripe_count, ..Template::default() };
    let component = |end, wanted| TemplateComponent { end, wanted };
    let rest = |count| component(END_OF_FILE, Wanted::Striped(striped(count)));
    let overstriped = |count| Template { overstriped: true, ..striped(count) };
    let components = match rng.below(shapes) {
        0 => return striped(1).into(),
        1 => return striped(3).into(),
        2 => vec![component(64 << 10, Wanted::Mdt), rest(2)],
        3 => vec![component(256 << 10, Wanted::Mdt), rest(1)],
        4 => {
            let grows = |count| Wanted::Extendable(striped(count), 128 << 10);
            vec![component(256 << 10, grows(1)), component(END_OF_FILE, grows(2))]
        }
        8 => return overstriped(7).into(),
        9 => {
            let behind = component(END_OF_FILE, Wanted::Striped(overstriped(-2)));
            vec![component(64 << 10, Wanted::Mdt), behind]
        }
        _ => return Asked::Composite(parts(rng.range(2, 10))),
    };
    Asked::Composite(CompositeTemplate { components })
}

/// So many components, each of a few places.
fn parts(count: u64) -> CompositeTemplate {
    let ends = (1..count).map(|index| (index * PLACES_OF_PART as u64 * SLOT, 1));
    CompositeTemplate::striped(0, ends.chain([(END_OF_FILE, 2)]))
}

/// Writes one component after the other for the first time.
async fn keep_growing(env: Env, file: File, board: Rc<Board>, mut rng: Rng) {
    while !board.may_stop.get() {
        let index = board.reach.get();
        if index + PLACES_OF_PART <= SLOTS {
            board.write(&file, index, rng.bits() | 1).await;
            board.reach.set(index + PLACES_OF_PART);
        }
        env.sleep(rng.span(Span::millis(1), Span::millis(30))).await;
    }
    board.busy.set(board.busy.get() - 1);
}

/// Writes and punches until it may stop.
async fn keep_writing(env: Env, file: File, board: Rc<Board>, own: usize, mut rng: Rng) {
    while !board.may_stop.get() {
        let reach = board.reach.get();
        let index = rng.below((reach / WRITERS) as u64) as usize * WRITERS + own;
        let is_hole = rng.chance(200_000);
        let number = if is_hole { 0 } else { rng.bits() | 1 };
        board.write(&file, index, number).await;
        env.sleep(rng.span(Span::micros(100), Span::millis(8))).await;
    }
    board.busy.set(board.busy.get() - 1);
}

/// Reads one place after the other until it may stop.
async fn keep_reading(env: Env, file: File, board: Rc<Board>, mut rng: Rng) {
    while !board.may_stop.get() {
        let index = rng.below(SLOTS as u64) as usize;
        let answered = board.slots.borrow()[index].answered;
        match file.read(index as u64 * SLOT, SLOT as usize).await {
            Ok(read) => {
                let seen = match read.first_chunk() {
                    Some(first) => u64::from_le_bytes(*first),
                    None => 0, // behind the end
                };
                let is_whole = read.is_empty() || read == content(seen);
                let slot = board.slots.borrow()[index].clone();
                // a write under way may be seen in part
                let is_torn = slot.history.len() > answered;
                if !(is_torn || is_whole && slot.explains(answered, seen)) {
                    board.blame(format!(
                        "slot {index} reads as {seen:x}, whole: {is_whole}, after {answered} of {:x?}",
                        slot.history
                    ));
                }
            }
            Err(error) => board.blame(format!("a read of slot {index}: {error}")),
        }
        env.sleep(rng.span(Span::micros(100), Span::millis(4))).await;
    }
    board.busy.set(board.busy.get() - 1);
}

/// Asks for the size until it may stop: nobody makes the file shorter meanwhile.
async fn keep_looking(client: Client, fid: Fid, board: Rc<Board>, mut rng: Rng) {
    let mut looks = 0_u32;
    while !board.may_stop.get() {
        let end = board.end.get();
        match client.getattr(&test_ctx(), fid, None).await {
            Ok(attr) if attr.size >= end => {}
            Ok(attr) => board.blame(format!("{} bytes are said to be there of {end}", attr.size)),
            Err(error) => board.blame(format!("a look at the size: {error}")),
        }
        looks += 1;
        let most = if looks < LOOKS_CLOSE { Span::millis(1) } else { Span::millis(50) };
        client.env().sleep(rng.span(Span::micros(100), most)).await;
    }
    board.busy.set(board.busy.get() - 1);
}

fn content(number: u64) -> Bytes {
    Bytes::from(number.to_le_bytes().repeat(SLOT as usize / 8))
}
