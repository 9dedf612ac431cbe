//! A migration that does not reach the OSTs in its last pass: how long other callers wait for it,
//! and what it leaves.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, Migration};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};
use types::{Errno, Fid, Span, TargetId, TargetKind};

const O_RDWR: u32 = 0o2;
const O_APPEND: u32 = 0o2000;

/// Bytes of the file when the migration begins.
const BEFORE: usize = 300_000;
/// Bytes of each append.
const APPENDED: usize = 100;
/// Bytes of a component, where there are many.
const PART: u64 = 64 << 10;

/// What a call in the background returns, once it does.
type Outcome<T> = Rc<RefCell<Option<client::Result<T>>>>;

fn begin<T: 'static>(
    (node, client): &(NodeHandle, Client),
    work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
) -> Outcome<T> {
    let (own, outcome) = (client.clone(), Outcome::<T>::default());
    let fill = outcome.clone();
    node.env().spawn("work", async move {
        let done = work(&own).await;
        *fill.borrow_mut() = Some(done);
    });
    outcome
}

fn append(who: &(NodeHandle, Client), file: &File) -> Outcome<usize> {
    let file = file.clone();
    begin(who, async move |_| file.write(0, Bytes::from(vec![2; APPENDED])).await)
}

/// What it returns, within `limit`.
fn outcome<T>(cluster: &Cluster, of: &Outcome<T>, limit: Span) -> Result<T, Errno> {
    assert!(cluster.sim.run_until(limit, || of.borrow().is_some()), "it never ends");
    let done = of.borrow_mut().take().expect("it has ended");
    done.map_err(|error| error.errno())
}

/// A file that `mover` migrates while `writer` appends.
struct Table {
    mover: (NodeHandle, Client),
    writer: (NodeHandle, Client),
    file: File,
    /// What the migration returns.
    moved: Outcome<()>,
    /// Goes last.
    cluster: Cluster,
}

impl Table {
    /// A file of so many bytes, and a migration of it whose last pass waits for the file's lock,
    /// because the [`append`] that is returned has it and waits for an OST.
    fn laid(bytes: usize, from: Template, to: Asked) -> (Table, Outcome<usize>) {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let [mover, writer] = [0, 1].map(|index| {
            let node = cluster.client_node(&format!("c{index}"), index);
            let client = cluster.mount(&node);
            (node, client)
        });
        let made = begin(&writer, async move |client| {
            let (ctx, flags, asked) = (Ctx::root(), O_RDWR | O_APPEND, Asked::from(from));
            let made = client.create(&ctx, Fid::ROOT, b"file", 0o644, flags, Some(&asked)).await;
            let (_, file) = made?;
            file.write(0, Bytes::from(vec![1; bytes])).await?;
            Ok(file)
        });
        let file = outcome(&cluster, &made, Span::secs(10)).expect("it is made");
        let fid = file.fid();

        cluster.cut_off(&writer.0, TargetKind::Ost);
        let first = append(&writer, &file);
        cluster.sim.run_for(Span::secs(2));
        let migration = Rc::new(Migration::default());
        let own = migration.clone();
        let moved = begin(&mover, async move |client| {
            client.migrate(&Ctx::root(), fid, Fid::ROOT, &to, &own).await
        });
        cluster.sim.run_for(Span::secs(3));
        assert!(first.borrow().is_none() && moved.borrow().is_none());
        assert!(migration.copied.get() >= bytes as u64, "{migration:?}");
        cluster.sim.heal_all();
        (Table { mover, writer, file, moved, cluster }, first)
    }

    /// The file has all that was written, and is closed.
    fn check_whole(&self, bytes: usize, appends: usize) {
        let file = self.file.clone();
        let read = begin(&self.writer, async move |_| {
            let read = file.read(0, 2 * bytes).await?;
            file.close().await?;
            Ok(read)
        });
        let read = outcome(&self.cluster, &read, Span::secs(60)).expect("it is read");
        let expected = [vec![1; bytes], vec![2; appends * APPENDED]].concat();
        assert!(read == expected, "{} bytes are there", read.len());
    }
}

#[test]
fn a_last_pass_that_reaches_no_ost_delays_an_append_by_half_a_minute() {
    let to = Template { stripe_count: 2, ..Template::default() };
    let (table, first) = Table::laid(BEFORE, Template::default(), to.into());
    let Table { mover, writer, file, moved, cluster } = &table;

    // now it is the migration that reaches no OST, and gets the lock
    cluster.cut_off(&mover.0, TargetKind::Ost);
    assert_eq!(outcome(cluster, &first, Span::secs(200)), Ok(APPENDED));
    let begun = cluster.sim.now();
    let second = append(writer, file);
    assert_eq!(outcome(cluster, &second, Span::secs(200)), Ok(APPENDED));
    let waited = cluster.sim.now() - begun;
    assert!((Span::secs(25)..Span::secs(45)).contains(&waited), "{waited:?}");

    cluster.sim.heal_all();
    assert_eq!(outcome(cluster, moved, Span::secs(400)), Err(Errno::ETIMEDOUT));
    table.check_whole(BEFORE, 2);
}

/// Components of 64 KiB, each with one object, all on this OST.
fn components_on(ost: u32, count: u64) -> Asked {
    let component = |index| {
        let osts = vec![ost];
        let template =
            Template { stripe_size: PART as u32, stripe_count: 1, osts, ..Template::default() };
        let end = if index == count { END_OF_FILE } else { index * PART };
        TemplateComponent { end, wanted: Wanted::Striped(template) }
    };
    Asked::Composite(CompositeTemplate { components: (1..=count).map(component).collect() })
}

/// The objects are told of a generation beyond that of the copy. Each of its components raised that
/// by one, and the file has generation 0.
#[test]
fn a_migration_that_fails_behind_its_raise_makes_no_call_fail() {
    const COUNT: u64 = 24;
    const BYTES: usize = COUNT as usize * PART as usize - 1_000;
    let from = Template { stripe_count: 1, osts: vec![0], ..Template::default() };
    let (table, first) = Table::laid(BYTES, from, components_on(3, COUNT));
    let Table { mover, writer, file, moved, cluster } = &table;

    // the last pass reaches the file's objects, and not those of the copy
    cluster.cut_off_from(&mover.0, TargetId::ost(3));
    assert_eq!(outcome(cluster, &first, Span::secs(200)), Ok(APPENDED));
    cluster.sim.run_for(Span::secs(45));
    cluster.sim.heal_all();
    assert_eq!(outcome(cluster, moved, Span::secs(400)), Err(Errno::ETIMEDOUT));
    let next = append(writer, file);
    assert_eq!(outcome(cluster, &next, Span::secs(60)), Ok(APPENDED));

    let fid = file.fid();
    let read = begin(mover, async move |client| {
        let file = client.open(&Ctx::root(), fid, 0).await?;
        let read = file.read(0, 2 * BYTES).await?;
        file.close().await?;
        Ok(read.len())
    });
    assert_eq!(outcome(cluster, &read, Span::secs(60)), Ok(BYTES + 2 * APPENDED));
    table.check_whole(BYTES, 2);
}
