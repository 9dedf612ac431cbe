//! A migration that reaches no OST in its last pass: how long other callers wait for it.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, Migration};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use layout::{Asked, Template};
use types::{Errno, Fid, Span, TargetKind};

const O_RDWR: u32 = 0o2;
const O_APPEND: u32 = 0o2000;

/// Bytes of the file when the migration begins.
const BEFORE: usize = 300_000;
/// Bytes of each append.
const APPENDED: usize = 100;

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

#[test]
fn a_last_pass_that_reaches_no_ost_delays_an_append_by_half_a_minute() {
    let cluster = Cluster::new(1, &Scenario::calm());
    cluster.boot();
    let [mover, writer] = [0, 1].map(|index| {
        let node = cluster.client_node(&format!("c{index}"), index);
        let client = cluster.mount(&node);
        (node, client)
    });
    let made = begin(&writer, async |client| {
        let (ctx, flags) = (Ctx::root(), O_RDWR | O_APPEND);
        let (_, file) = client.create(&ctx, Fid::ROOT, b"file", 0o644, flags, None).await?;
        file.write(0, Bytes::from(vec![1; BEFORE])).await?;
        Ok(file)
    });
    let file = outcome(&cluster, &made, Span::secs(10)).expect("it is made");
    let fid = file.fid();

    // an append has the file's lock and waits for an OST, and the migration waits for the lock
    cluster.cut_off(&writer.0, TargetKind::Ost);
    let first = append(&writer, &file);
    cluster.sim.run_for(Span::secs(2));
    let migration = Rc::new(Migration::default());
    let own = migration.clone();
    let moved = begin(&mover, async move |client| {
        let asked = Asked::from(Template { stripe_count: 2, ..Template::default() });
        client.migrate(&Ctx::root(), fid, Fid::ROOT, &asked, &own).await
    });
    cluster.sim.run_for(Span::secs(3));
    assert!(first.borrow().is_none() && moved.borrow().is_none());
    assert!(migration.copied.get() >= BEFORE as u64, "{migration:?}");

    // now it is the migration that reaches no OST, and gets the lock
    cluster.sim.heal_all();
    cluster.cut_off(&mover.0, TargetKind::Ost);
    assert_eq!(outcome(&cluster, &first, Span::secs(200)), Ok(APPENDED));
    let begun = cluster.sim.now();
    let second = append(&writer, &file);
    assert_eq!(outcome(&cluster, &second, Span::secs(200)), Ok(APPENDED));
    let waited = cluster.sim.now() - begun;
    assert!((Span::secs(25)..Span::secs(45)).contains(&waited), "{waited:?}");

    cluster.sim.heal_all();
    assert_eq!(outcome(&cluster, &moved, Span::secs(400)), Err(Errno::ETIMEDOUT));
    let read = begin(&writer, async move |_| {
        let read = file.read(0, 2 * BEFORE).await?;
        file.close().await?;
        Ok(read)
    });
    let read = outcome(&cluster, &read, Span::secs(60)).expect("it is read");
    let expected = [vec![1; BEFORE], vec![2; 2 * APPENDED]].concat();
    assert!(read == expected, "{} bytes are there", read.len());
}
