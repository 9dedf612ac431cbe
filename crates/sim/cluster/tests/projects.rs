//! Projects of files: the scheduler of a server can separate requests by them.

use bytes::Bytes;
use client::{Client, Ctx, File, SetAttr};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use types::{Fid, Span};

const O_RDWR: u32 = 0o2;
/// Writes to a file, one after the other.
const WRITES: u64 = 4;
const WRITE_BYTES: u64 = 4_096;

/// A file of a project, open.
fn file(
    cluster: &Cluster,
    node: &NodeHandle,
    client: &Client,
    name: &'static [u8],
    projid: u32,
) -> File {
    let client = client.clone();
    let made = cluster.sim.block_on_for(node, Span::secs(10), async move {
        let ctx = Ctx::root();
        let (attr, file) = client.create(&ctx, Fid::ROOT, name, 0o644, O_RDWR, None).await?;
        file.close().await?;
        let set = SetAttr { projid: Some(projid), ..SetAttr::default() };
        client.setattr(&ctx, attr.fid(), &set, None).await?;
        client.open(&ctx, attr.fid(), O_RDWR).await
    });
    made.expect("it is answered").expect("it is made")
}

/// How long the writes to a file take.
fn write(cluster: &Cluster, node: &NodeHandle, file: File) -> Span {
    let begun = cluster.sim.now();
    let done = cluster.sim.block_on_for(node, Span::secs(60), async move {
        for number in 0..WRITES {
            let data = Bytes::from(vec![7; WRITE_BYTES as usize]);
            file.write(number * WRITE_BYTES, data).await?;
        }
        file.close().await
    });
    done.expect("it is answered").expect("it is written");
    cluster.sim.now() - begun
}

#[test]
fn a_rule_of_a_project_limits_the_data_of_its_files_alone() {
    let cluster = Cluster::new(1, &Scenario::calm());
    cluster.boot();
    let node = cluster.client_node("c", 0);
    let client = cluster.mount(&node);
    let limited = file(&cluster, &node, &client, b"limited", 7);
    let free = file(&cluster, &node, &client, b"free", 8);
    let rules = &[("nrs_tbf_rule", "start slow projid={7} rate=1 depth=1")];
    cluster.schedule_data("tbf projid", rules);
    cluster.sim.run_for(Span::secs(1));
    let took = write(&cluster, &node, free);
    assert!(took < Span::secs(1), "no rule names its project: {took:?}");
    let took = write(&cluster, &node, limited);
    assert!(took > Span::millis(2_900), "the first write has the token, three wait: {took:?}");
    assert!(took < Span::secs(10), "they wait for their tokens, and no longer: {took:?}");
}
