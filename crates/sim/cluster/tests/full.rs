//! A write that finds no room, on a cluster on which nothing else happens.

use bytes::Bytes;
use client::{Client, Ctx, Striping, flags};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use layout::Template;
use types::{Errno, Fid, Span};

/// A disk with no more room than this takes no write.
const NO_ROOM: u64 = 4_096;
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
