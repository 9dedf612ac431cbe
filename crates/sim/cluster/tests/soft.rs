//! Calls of a soft mount while no OST answers it, on a cluster on which nothing else happens.

use bytes::Bytes;
use client::{Client, Ctx, File, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use types::{Errno, Fid, Span, TargetKind};

/// How long the mount waits for a server.
const PATIENCE: Span = Span::secs(2);
const BYTES: usize = 4_096;

/// A cluster, a soft mount that keeps writes or not, and a file that it has made and written.
fn laid(keeps: bool) -> (Cluster, (NodeHandle, Client), File) {
    let cluster = Cluster::new(1, &Scenario { granted: Granted::Recall, ..Scenario::calm() });
    cluster.boot();
    let node = cluster.client_node("soft", 0);
    let env = node.env();
    let mut config = cluster.mount_config(&env, "soft");
    (config.soft, config.soft_wait, config.writeback) = (true, PATIENCE, keeps);
    let mounted = async move { Client::mount(&env, config).await };
    let mounted = cluster.sim.block_on_for(&node, Span::secs(60), mounted);
    let soft = (node, mounted.expect("an answer").expect("a mount"));
    cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
    let file = cluster.run(&soft, async |client| {
        let (me, flags) = (Ctx::root(), flags::O_RDWR);
        let (_, file) = client.create(&me, Fid::ROOT, b"file", 0o644, flags, None).await?;
        write(&file).await?;
        Ok(file)
    });
    (cluster, soft, file)
}

async fn write(file: &File) -> client::Result<()> {
    file.write(0, Bytes::from_static(&[1; BYTES])).await.map(drop)
}

/// What a call of the mount returns.
fn outcome(
    cluster: &Cluster,
    soft: &(NodeHandle, Client),
    call: impl AsyncFnOnce() -> client::Result<()> + 'static,
) -> Result<(), Errno> {
    cluster.run(soft, async move |_| Ok(call().await.map_err(|error| error.errno())))
}

#[test]
fn a_write_does_not_wait_long_for_one_that_was_given_up() {
    let (cluster, soft, file) = laid(false);
    cluster.cut_off(&soft.0, TargetKind::Ost);
    for _ in 0..2 {
        let (begin, own) = (cluster.sim.now(), file.clone());
        let written = outcome(&cluster, &soft, async move || write(&own).await);
        assert_eq!(written, Err(Errno::ETIMEDOUT));
        assert!(cluster.sim.now() - begin < Span::secs(3), "a soft mount gives up");
    }
}

/// Its maker was granted the attributes of the new file, which has no byte by them.
#[test]
fn a_file_whose_close_was_given_up_counts_as_written_until_it_is_closed() {
    let (cluster, soft, file) = laid(false);
    let (fid, own) = (file.fid(), file.clone());
    let node = cluster.client_node("other", 1);
    let other = (node.clone(), cluster.mount(&node));
    let is_size_known = |who: &(NodeHandle, Client)| {
        cluster.run(who, async move |client| {
            let glance = client.glance(&Ctx::root(), fid).await?;
            assert!(!glance.size_known || glance.attr.size == BYTES as u64, "{glance:?}");
            Ok(glance.size_known)
        })
    };
    cluster.cut_off(&soft.0, TargetKind::Ost);
    let written = outcome(&cluster, &soft, async move || write(&own).await);
    let closed = outcome(&cluster, &soft, async move || file.close().await);
    assert_eq!([written, closed], [Err(Errno::ETIMEDOUT); 2]);
    assert!(!is_size_known(&soft), "a write may still be executed");

    cluster.sim.heal_all();
    cluster.sim.run_for(Span::secs(60));
    assert_eq!([is_size_known(&other), is_size_known(&soft)], [true; 2]);
}

#[test]
fn kept_writes_of_the_same_bytes_are_given_up_together() {
    const WRITES: u64 = 8;
    let (cluster, soft, file) = laid(true);
    let own = file.clone();
    assert_eq!(outcome(&cluster, &soft, async move || own.fsync(false).await), Ok(()));
    cluster.cut_off(&soft.0, TargetKind::Ost);
    let begin = cluster.sim.now();
    for _ in 0..WRITES {
        let own = file.clone();
        assert_eq!(outcome(&cluster, &soft, async move || write(&own).await), Ok(()));
        cluster.sim.run_for(Span::millis(200)); // each is sent by itself
    }
    let synced = outcome(&cluster, &soft, async move || file.fsync(false).await);
    assert!(synced.is_err(), "they are lost");
    let took = cluster.sim.now() - begin;
    assert!(took < Span::secs(8), "{took:?}");
}
