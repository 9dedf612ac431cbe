//! **layouts**: a component is removed from a file that other clients write and read, and a new one
//! takes its place, while servers die. Clients that have the file open continue:
//! - a write that begins after the removal is refused as behind the end of the layout;
//! - no client reads data of the removed component;
//! - data that is written into the new component is there.
//!
//! From seed 1000 on components have drawn stripe counts and sizes, and some are overstriped.
//!
//! Files that get their layout while the MDT sweeps keep their bytes.
//! Then a file grows past a full OST (`growing`), and other disks fill up (`full`). At last a pool
//! fills up while clients work and servers lose their power (`filling`).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, File};
use env::Env;
use env_sim::{NodeHandle, Rng};
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template, lov};
use oracle::test_ctx;
use types::{Errno, Fid, Span};

use super::{O_EXCL, O_RDWR, Stage};

/// Components that go in one run.
const ROUNDS: u32 = 5;
/// Where the second component begins.
const BORDER: u64 = 128 << 10;
/// Bytes of the file in the first one; appends come behind them.
const BELOW: u64 = 100_000;
const BYTES: u64 = 50_000;
/// Files that get their layout late.
const LATE_FILES: u64 = 40;
/// Bytes of each.
const LATE_BYTES: u64 = 1_000;
const O_APPEND: u32 = 0o2000;

/// What the writes beside one cut saw.
#[derive(Default)]
struct Beside {
    /// The component is gone.
    is_cut: Cell<bool>,
    may_stop: Cell<bool>,
    is_over: Cell<bool>,
    wrong: RefCell<Option<String>>,
}

/// Clients with the file open, and the one that changes its layout.
struct Table {
    fid: Fid,
    writer: (NodeHandle, Client),
    reader: (NodeHandle, Client),
    cutter: (NodeHandle, Client),
    writes: File,
    reads: File,
    appends: File,
}

impl Stage<'_> {
    pub(super) fn layouts(&mut self) -> Result<(), String> {
        let mut table = self.lay()?;
        let mut below = BELOW;
        for round in 0..ROUNDS {
            below = self.cut_and_add(&mut table, round, below)?;
        }
        self.write_into_a_lost_growth()?;
        self.place_during_the_sweep()?;
        self.grow_past_a_full_ost()?;
        self.outgrow_a_full_mdt()?;
        self.spill_into_another_pool()?;
        self.fill_a_pool_amid_power_cuts()?;
        let Table { fid, writes, reads, appends, .. } = table;
        let end = BORDER + BYTES;
        self.ask(&table.writer, "closing", async move |_| writes.close().await)?;
        self.ask(&table.reader, "closing", async move |_| {
            appends.close().await?;
            reads.close().await
        })?;
        let size = self.ask(&table.cutter, "the size", async move |client| {
            Ok(client.getattr(&test_ctx(), fid, None).await?.size)
        })?;
        if size != end {
            return Err(format!("the file has {end} bytes, its size is said to be {size}"));
        }
        self.nothing_is_left(&table.cutter)
    }

    fn lay(&mut self) -> Result<Table, String> {
        let (writer, reader, cutter) =
            (self.enter("writer"), self.enter("reader"), self.enter("cutter"));
        let parts = self.parts([(BORDER, 1), (END_OF_FILE, 2)]);
        let writes = self.ask(&writer, "creating", async move |client| {
            let file = create_of(client, b"parts", parts).await?;
            file.write(0, content(1, BELOW)).await?;
            file.write(BORDER, content(2, BYTES)).await?;
            Ok(file)
        })?;
        let fid = writes.fid();
        let (reads, appends) = self.ask(&reader, "opening", async move |client| {
            let reads = client.open(&test_ctx(), fid, 0).await?;
            Ok((reads, client.open(&test_ctx(), fid, O_RDWR | O_APPEND).await?))
        })?;
        Ok(Table { fid, writer, reader, cutter, writes, reads, appends })
    }

    /// One client gives a component its objects and dies with the MDT, before that is durable.
    /// Another one has seen them, and has written into them: it loses nothing.
    fn write_into_a_lost_growth(&mut self) -> Result<(), String> {
        let (grower, writer) = (self.enter("grower"), self.enter("writer"));
        let parts = self.parts([(BORDER, 1), (END_OF_FILE, 2)]);
        let file = self.ask(&writer, "creating", async move |client| {
            let file = create_of(client, b"grown", parts).await?;
            client.sync().await?;
            Ok(file)
        })?;
        let fid = file.fid();
        self.ask(&grower, "growing", async move |client| {
            let file = client.open(&test_ctx(), fid, O_RDWR).await?;
            file.write(BORDER, content(3, BYTES)).await
        })?;
        let writes = file.clone();
        self.ask(&writer, "writing what another client made", async move |client| {
            client.getattr(&test_ctx(), fid, None).await?;
            writes.write(BORDER, content(4, BYTES)).await
        })?;
        grower.0.kill();
        self.mdt().kill(false);
        self.restarts += 1;
        self.pause(Span::secs(1));
        self.mdt().boot();
        for client in [writer.clone(), self.enter("reader")] {
            let read = self.ask(&client, "reading", async move |client| {
                let file = client.open(&test_ctx(), fid, 0).await?;
                let read = file.read(BORDER, 2 * BYTES as usize).await?;
                file.close().await?;
                Ok(read)
            })?;
            if read != content(4, BYTES) {
                return Err(format!("{} other bytes are where the growth was", read.len()));
            }
        }
        self.ask(&writer, "writing again", async move |_| {
            file.write(BORDER, content(5, BYTES)).await?;
            file.close().await
        })
    }

    /// The MDT restarts. Files without a layout get one while it sweeps ids that the crash may have
    /// lost. Each begins at the MDT, whose data target is slow to list its objects for the sweep.
    fn place_during_the_sweep(&mut self) -> Result<(), String> {
        let writer = self.enter("placer");
        let (dir, files) = self.ask(&writer, "making files without a layout", async |client| {
            make_unplaced(client).await
        })?;
        self.mdt().kill(false);
        self.restarts += 1;
        self.mdt().boot();
        self.ask(&writer, "the end of the recovery", async move |client| {
            client.mkdir(&test_ctx(), dir, b"back", 0o777).await.map(drop)
        })?;
        let data = self.mdt().data_disk().expect("files begin at the MDT").clone();
        data.set_slow(Span::secs(1));
        let written = Rc::new(RefCell::new(Vec::new()));
        for (number, fid) in files.iter().enumerate() {
            let (env, client, fid) = (writer.0.env(), writer.1.clone(), *fid);
            let (late, written) = (Span::millis(50 * number as u64), written.clone());
            writer.0.env().spawn("places late", async move {
                env.sleep(late).await;
                let done = place_late(&client, fid).await;
                written.borrow_mut().push(done.map_err(|error| error.to_string()));
            });
        }
        let all = || written.borrow().len() == files.len();
        if !self.cluster.sim.run_until(crate::run::PEACE_MAX, all) {
            return Err("a write into a file that had no layout never ends".to_owned());
        }
        written.take().into_iter().collect::<Result<(), String>>()?;
        data.set_slow(Span::ZERO);
        self.cluster.sim.run_for(Span::secs(20)); // the sweep is over
        let reader = self.enter("reader");
        for fid in files {
            let read = self.ask(&reader, "reading what was placed late", async move |client| {
                let file = client.open(&test_ctx(), fid, 0).await?;
                let read = file.read(0, 2 * LATE_BYTES as usize).await?;
                file.close().await?;
                Ok(read)
            })?;
            if read != content(6, LATE_BYTES) {
                return Err(format!("{fid} got its layout late: {} bytes are left", read.len()));
            }
        }
        Ok(())
    }

    /// Bytes in the first component afterwards.
    fn cut_and_add(&mut self, table: &mut Table, round: u32, below: u64) -> Result<u64, String> {
        let (salt, fid) = (round as u8, table.fid);
        let beside = Rc::new(Beside::default());
        let (file, env) = (table.writes.clone(), table.writer.0.env());
        let writing = keep_writing(env, file, beside.clone(), self.rng.fork());
        table.writer.0.env().spawn("writes beside", writing);
        self.pause(Span::millis(20));
        if self.rng.chance(300_000) {
            self.die_cutting(table);
        }
        if self.rng.chance(500_000) {
            self.restart_one();
        }
        self.ask(&table.cutter, "taking a component away", async move |client| {
            cut(client, fid).await
        })?;
        beside.is_cut.set(true);
        self.pause(Span::millis(200));
        beside.may_stop.set(true);
        if !self.cluster.sim.run_until(crate::run::PEACE_MAX, || beside.is_over.get()) {
            return Err("a write beside a component that goes never ends".to_owned());
        }
        if let Some(wrong) = beside.wrong.borrow_mut().take() {
            return Err(format!("round {round}: {wrong}"));
        }
        self.see_the_end(table, below)?;
        let appends = table.appends.clone();
        let added = self.rng.range(1, 100);
        self.ask(&table.reader, "an append", async move |_| {
            appends.write(0, content(1, added)).await
        })?;
        self.see_the_end(table, below + added)?;
        let more = self.parts([(END_OF_FILE, 2)]);
        self.ask(&table.cutter, "adding a component", async move |client| {
            let more = lov::composite::LovComposite::of_dir(&more).expect("a layout").encode();
            change(client, fid, b"lustre.lov.add", more).await
        })?;
        let writes = table.writes.clone();
        self.ask(&table.writer, "writing again", async move |_| {
            writes.write(BORDER, content(salt, BYTES)).await
        })?;
        self.see(table, salt)?;
        Ok(below + added)
    }

    /// Another one goes on: the component is gone then, or is not, or its objects refuse a layout
    /// that is still the newest.
    fn die_cutting(&mut self, table: &mut Table) {
        let ((node, client), fid) = (table.cutter.clone(), table.fid);
        node.env().spawn("cuts and dies", async move { drop(cut(&client, fid).await) });
        self.pause(Span::millis(10));
        node.kill();
        table.cutter = self.enter("cutter");
    }

    /// Components with these ends and stripe counts, or other counts where layouts are drawn.
    fn parts<const N: usize>(&mut self, ends: [(u64, i32); N]) -> CompositeTemplate {
        let mut parts = CompositeTemplate::striped(0, ends);
        for component in &mut parts.components {
            if self.has_all_layouts {
                component.wanted = Wanted::Striped(draw_striping(&mut self.rng));
            }
        }
        parts
    }

    /// The file ends in its first component, and so do reads through a handle that is older.
    fn see_the_end(&mut self, table: &Table, below: u64) -> Result<(), String> {
        let reads = table.reads.clone();
        let read = self.ask(&table.reader, "reading", async move |_| {
            reads.read(0, (BORDER + BYTES) as usize).await
        })?;
        if read.len() as u64 == below && read[..BELOW as usize] == content(1, BELOW) {
            return Ok(());
        }
        Err(format!("the file has {below} bytes, {} other ones are read", read.len()))
    }

    fn see(&mut self, table: &Table, salt: u8) -> Result<(), String> {
        let reads = table.reads.clone();
        let read = self.ask(&table.reader, "reading again", async move |_| {
            reads.read(BORDER, 2 * BYTES as usize).await
        })?;
        if read == content(salt, BYTES) {
            return Ok(());
        }
        Err(format!("{} other bytes are in the new component", read.len()))
    }
}

/// A new file.
async fn create_of(client: &Client, name: &[u8], parts: CompositeTemplate) -> client::Result<File> {
    let (flags, asked) = (O_RDWR | O_EXCL, Asked::Composite(parts));
    let made = client.create(&test_ctx(), Fid::ROOT, name, 0o666, flags, Some(&asked)).await?;
    Ok(made.1)
}

/// Over some OSTs or all of them, with one object on each or several.
fn draw_striping(rng: &mut Rng) -> Template {
    let (stripe_count, overstriped) = match rng.below(6) {
        0 => (-1, false),
        1 => (-2, true),
        2 => (7, true),
        _ => (rng.range(1, 3) as i32, false),
    };
    let stripe_size = if rng.chance(500_000) { 64 << 10 } else { 0 };
    Template { stripe_size, stripe_count, overstriped, ..Template::default() }
}

/// Writes behind the border until it is told to stop.
async fn keep_writing(env: Env, file: File, beside: Rc<Beside>, mut rng: Rng) {
    let mut is_last = false;
    while !is_last {
        is_last = beside.may_stop.get();
        let begins_late = beside.is_cut.get();
        let (offset, len) = (BORDER + rng.below(2 << 20), rng.range(1, BYTES));
        let wrong = match file.write(offset, content(9, len)).await {
            Ok(_) if begins_late => Some("a write into what went is answered".to_owned()),
            Err(error) if error.errno() != Errno::ENODATA => Some(format!("a write: {error}")),
            Ok(_) | Err(_) => None,
        };
        if let Some(wrong) = wrong {
            beside.wrong.borrow_mut().get_or_insert(wrong);
        }
        env.sleep(rng.span(Span::millis(1), Span::millis(20))).await;
    }
    beside.is_over.set(true);
}

/// Durable files without a layout, in a directory whose files begin at the MDT.
async fn make_unplaced(client: &Client) -> client::Result<(Fid, Vec<Fid>)> {
    let ctx = test_ctx();
    let dir = client.mkdir(&ctx, Fid::ROOT, b"placed", 0o777).await?.fid();
    let rest = Wanted::Striped(Template { stripe_count: 1, ..Template::default() });
    let components = [(64 << 10, Wanted::Mdt), (END_OF_FILE, rest)]
        .map(|(end, wanted)| TemplateComponent { end, wanted });
    let default = CompositeTemplate { components: components.into() };
    let default = lov::composite::LovComposite::of_dir(&default).expect("a layout").encode();
    change(client, dir, b"lustre.lov", default).await?;
    let mut files = Vec::new();
    for number in 0..LATE_FILES {
        let name = number.to_string();
        files.push(client.mknod(&ctx, dir, name.as_bytes(), 0o666, 0).await?.fid());
    }
    client.sync().await?;
    Ok((dir, files))
}

async fn place_late(client: &Client, fid: Fid) -> client::Result<()> {
    let file = client.open(&test_ctx(), fid, O_RDWR).await?;
    file.write(0, content(6, LATE_BYTES)).await?;
    file.close().await
}

/// Takes the second component away, if it is there.
async fn cut(client: &Client, fid: Fid) -> client::Result<()> {
    let value = client.getxattr(&test_ctx(), fid, b"lustre.lov").await?;
    let mut shown = lov::composite::inspect(&value).expect("components");
    if shown.entries.len() < 2 {
        return Ok(());
    }
    shown.entries.remove(0);
    change(client, fid, b"lustre.lov.del", shown.encode()).await
}

async fn change(client: &Client, fid: Fid, name: &[u8], value: Vec<u8>) -> client::Result<()> {
    client.setxattr(&test_ctx(), fid, name, value.into(), 0).await
}

pub(super) fn content(salt: u8, len: u64) -> Bytes {
    Bytes::from(oracle::pattern(salt, len as usize))
}
