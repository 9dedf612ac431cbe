//! Calls that find no room, or a target out of use, on a cluster on which nothing else happens.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, Striping, flags};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use layout::Template;
use types::{Errno, Fid, Span, TargetId, TargetKind};

/// A disk with no more room than this takes no write.
const NO_ROOM: u64 = 4_096;
/// More than all tests write.
const ROOM: u64 = 1 << 40;
/// Bytes of a stripe.
const STRIPE: usize = 64 << 10;
const BYTES: usize = 100_000;
/// Enough that each of four OSTs gets some, unless it is full.
const FILES: u32 = 8;

/// OSTs of new files.
fn osts_of_new_files(
    cluster: &Cluster,
    who: &(NodeHandle, Client),
    prefix: &'static str,
) -> Vec<u32> {
    cluster.run(who, async move |client| {
        let (me, mut osts) = (Ctx::root(), Vec::new());
        for number in 0..FILES {
            let name = format!("{prefix}{number}");
            let (name, flags) = (name.as_bytes(), flags::O_RDWR);
            let (attr, file) = client.create(&me, Fid::ROOT, name, 0o644, flags, None).await?;
            file.close().await?;
            let Striping::File(layout) = client.striping(&me, attr.fid()).await? else {
                panic!("a file has a layout");
            };
            osts.extend(layout.stripings().flat_map(|striping| striping.osts.clone()));
        }
        Ok(osts)
    })
}

#[test]
fn an_mdt_asks_the_osts_at_once_when_a_write_finds_no_room() {
    let (cluster, [writer, other]) = Cluster::with_two_clients(&Scenario::calm());
    writer.1.set_writeback(false); // the write itself is refused
    let file = cluster.run(&writer, async |client| {
        let on_first = Template { stripe_count: 1, osts: vec![0], ..Template::default() };
        let (me, asked, flags) = (Ctx::root(), on_first.into(), flags::O_RDWR);
        let made = client.create(&me, Fid::ROOT, b"grows", 0o644, flags, Some(&asked)).await?;
        made.1.write(0, vec![1; BYTES].into()).await?;
        Ok(made.1)
    });
    cluster.sim.run_for(Span::secs(30)); // the MDT's figures are old, so it asks at the next choice
    osts_of_new_files(&cluster, &other, "asking");
    cluster.sim.run_for(Span::millis(100));
    cluster.limit_ost(0, NO_ROOM);
    let before = osts_of_new_files(&cluster, &other, "before");
    assert!(before.contains(&0), "the MDT knows of a full disk by itself: {before:?}");

    let refused = cluster.run(&writer, async move |_| {
        let written = file.write(BYTES as u64, Bytes::from_static(&[1; 1_000])).await;
        Ok(written.map_err(|error| error.errno()))
    });
    assert_eq!(refused, Err(Errno::ENOSPC));
    cluster.sim.run_for(Span::secs(2)); // figures are used for 5 s
    let after = osts_of_new_files(&cluster, &other, "after");
    assert!(!after.contains(&0), "new files are on the full OST: {after:?}");
}

/// One of two parts finds no room, and is sent again when there is some. Meanwhile another client
/// writes where the other part is.
#[test]
fn a_write_that_is_tried_again_sends_no_part_twice() {
    let (cluster, [writer, other]) = Cluster::with_two_clients(&Scenario::calm());
    [&writer, &other].into_iter().for_each(|who| who.1.set_writeback(false));
    let file = cluster.run(&writer, async |client| {
        let (me, flags) = (Ctx::root(), flags::O_RDWR);
        let (_, gone) = client.create(&me, Fid::ROOT, b"gone", 0o644, flags, None).await?;
        gone.write(0, vec![1; BYTES].into()).await?;
        gone.close().await?;
        let stripe_size = STRIPE as u32;
        let osts = vec![0, 1];
        let on_both = Template { stripe_size, stripe_count: 2, osts, ..Template::default() };
        let asked = on_both.into();
        let made = client.create(&me, Fid::ROOT, b"file", 0o644, flags, Some(&asked)).await?;
        Ok(made.1)
    });
    let fid = file.fid();
    let others = cluster
        .run(&other, async move |client| client.open(&Ctx::root(), fid, flags::O_RDWR).await);
    cluster.sim.run_for(Span::secs(3)); // both files are durable
    // a write that finds no room waits up to 3 s for the room of removed files
    cluster.cut_mdts_off_from_osts();
    cluster.run(&other, async |client| client.unlink(&Ctx::root(), Fid::ROOT, b"gone").await);
    cluster.sim.run_for(Span::secs(1));
    cluster.limit_ost(0, NO_ROOM);
    let done = Rc::new(Cell::new(None));
    let told = done.clone();
    writer.0.env().spawn("writes", async move {
        let written = file.write(0, vec![2; 2 * STRIPE].into()).await;
        told.set(Some(written.map_err(|error| error.errno())));
    });
    cluster.sim.run_for(Span::secs(1));
    assert_eq!(done.get(), None, "it waits for room");
    let own = others.clone();
    cluster.run(&other, async move |_| own.write(STRIPE as u64, vec![3; STRIPE].into()).await);
    cluster.limit_ost(0, ROOM);
    assert!(cluster.sim.run_until(Span::secs(10), || done.get().is_some()), "it never ends");
    assert_eq!(done.get(), Some(Ok(2 * STRIPE)));
    let found = cluster.run(&other, async move |_| others.read(0, 2 * STRIPE).await);
    assert!(found[..STRIPE].iter().all(|byte| *byte == 2), "the part that found no room");
    assert!(found[STRIPE..].iter().all(|byte| *byte == 3), "what was written since");
}

/// By a planted bug, a restarted MDT has no room for what it did before.
#[test]
fn the_handles_of_a_file_whose_create_a_restarted_mdt_refuses_are_void() {
    let bug = Some("mdt.keep_no_reserve");
    let scenario = Scenario { bug, hard_faults: 1, ..Scenario::calm() }; // the refusal is an error
    let (cluster, [writer, other]) = Cluster::with_two_clients(&scenario);
    cluster.sim.run_for(Span::secs(2)); // nothing is left to be committed
    let file = cluster.run(&writer, async |client| {
        let (me, flags) = (Ctx::root(), flags::O_RDWR);
        let made = client.create(&me, Fid::ROOT, b"file", 0o644, flags, None).await?;
        Ok(made.1)
    });
    cluster.cut_off(&writer.0, TargetKind::Mdt);
    cluster.restart_mdt(0);
    cluster.sim.run_for(Span::secs(2));
    cluster.fill_mdt(0, true);
    cluster.sim.heal_all();
    assert!(cluster.sim.run_until(Span::secs(25), || writer.1.lost() > 0), "it is not refused");
    cluster.fill_mdt(0, false);
    let outcomes = cluster.run(&writer, async move |_| {
        let synced = [file.fsync(false).await, file.fsync(false).await];
        let written = file.write(0, Bytes::from_static(b"goes nowhere")).await.map(drop);
        let [first, second] = synced;
        let all = [first, second, written, file.fsync(false).await, file.close().await];
        Ok(all.map(|outcome| outcome.err().map(|error| error.errno())))
    });
    assert_eq!(outcomes, [Some(Errno::EIO); 5]);
    let found = cluster.run(&other, async |client| {
        let found = client.lookup(&Ctx::root(), Fid::ROOT, b"file").await;
        Ok(found.err().map(|error| error.errno()))
    });
    assert_eq!(found, Some(Errno::ENOENT));
}

#[test]
fn no_sync_confirms_what_an_ost_has_that_is_out_of_use() {
    let (cluster, [writer, _other]) = Cluster::with_two_clients(&Scenario::calm());
    writer.1.set_writeback(false); // the OST has the bytes when the write is answered
    let file = cluster.run(&writer, async |client| {
        let on_second = Template { stripe_count: 1, osts: vec![1], ..Template::default() };
        let (me, asked, flags) = (Ctx::root(), on_second.into(), flags::O_RDWR);
        let made = client.create(&me, Fid::ROOT, b"file", 0o644, flags, Some(&asked)).await?;
        made.1.write(0, vec![1; BYTES].into()).await?;
        Ok(made.1)
    });
    cluster.cut_off_from(&writer.0, TargetId::ost(1)); // it confirms nothing
    cluster.set_param("testfs-OST0001.osc.active", "0");
    cluster.sim.run_for(Span::secs(10)); // the client has heard of it
    let outcomes = cluster.run(&writer, async move |client| {
        let all = [file.fsync(false).await, client.sync().await, client.sync().await];
        Ok(all.map(|outcome| outcome.err().map(|error| error.errno())))
    });
    assert_eq!(outcomes, [Some(Errno::EIO); 3]);
}
