//! Replays as a hostile client may send them.

use super::*;

/// Connects without an endpoint, as client 7.
async fn join(env: &Env, at: NidAddr, former: Option<ConnectRep>) -> (Link, ConnectRep) {
    let body = ConnectReq {
        client_low: 7,
        tags: 8,
        resume: u32::from(former.is_some()),
        session: former.map_or(0, |former| former.session),
        ..ConnectReq::default()
    };
    let mut link = env.connect(None, at).await.expect("it listens");
    let mut request = Request::new(Opcode::Connect, vec![encode_body(&body), Bytes::new()]);
    (request.header.xid, request.header.target) = (1, TargetId::ost(2).to_u32());
    let joined = ask(&mut link, &request).await.body();
    (link, joined)
}

async fn ask(link: &mut Link, request: &Request) -> Reply {
    link.tx.send_message(request).expect("open");
    let frame = link.rx.recv().await.expect("an answer");
    let reply = *Reply::take(frame.into_payload()).expect("well formed");
    assert_eq!((reply.header.xid, reply.errno()), (request.header.xid, None));
    reply
}

#[test]
fn of_a_forged_first_answer_no_more_is_kept_than_an_answer_has() {
    let world = World::plain();
    let (env, at) = (world.client.env(), world.at());
    let request = |joined: &ConnectRep, xid: u64, bufs: Vec<Bytes>| {
        let mut request = Request::new(Opcode::OstWrite, bufs);
        let header = &mut request.header;
        (header.xid, header.tag, header.target) = (xid, 1, TargetId::ost(2).to_u32());
        (header.session, header.instance) = (joined.session, joined.instance);
        (header.epoch, header.deadline_ms) = (joined.epoch, 200_000);
        header.flags = RequestFlags::MODIFIES;
        request
    };
    let near = env.clone();
    let first = world.sim.block_on(&world.client, async move {
        let (mut link, joined) = join(&near, at, None).await;
        ask(&mut link, &request(&joined, 2, write(0, b"first", PLAIN).bufs)).await;
        joined
    });
    let mdt = world.mdt();
    world.call(&mdt, batch(Opcode::OstDestroy, &[range(OBJECT, 1, 1)])).expect("destroys");
    world.sim.run_for(Span::secs(3)); // durable
    world.kill();
    world.start();
    let back = Call::new(Opcode::OstStatfs, vec![Bytes::new()]);
    world.client.env().spawn("mdt", async move { drop(mdt.call(back).await) });
    let replayed = async move {
        let (mut link, joined) = join(&env, at, Some(first)).await;
        let mut bufs = write(0, b"late", PLAIN).bufs;
        bufs.push(Bytes::from(vec![7; 1 << 20]));
        let mut request = request(&joined, 9, bufs);
        (request.header.replay_index, request.header.replay_bufs) = (1, 1);
        request.header.flags |= RequestFlags::REPLAY;
        request.header.transno = (1 << 32) + 1_000;
        let reply = ask(&mut link, &request).await;
        assert_eq!(reply.header.transno, request.header.transno, "it has its place");
        reply.bufs.iter().map(Bytes::len).sum::<usize>()
    };
    let told = world.sim.block_on_for(&world.client, Span::secs(300), replayed);
    assert_eq!(told, Some(size_of::<OstAttr>()), "{}", world.status());
    world.sim.run_for(Span::secs(3));
    let of_client = |key: &[u8]| key.starts_with(&7u128.to_be_bytes());
    let records = world.disk.records(Table::Replies);
    let kept: Vec<_> =
        records.iter().filter(|(key, _)| of_client(key)).map(|(_, value)| value.len()).collect();
    assert!(matches!(kept[..], [bytes] if bytes < 512), "{kept:?}");
    assert_eq!(world.disk.objects(), [], "and it is not made again");
}
