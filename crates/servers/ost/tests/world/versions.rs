//! Objects that were raised to a later layout refuse clients that map by an older one.

use wire::body::WireFid;

use super::*;

const BASE: WireFid = WireFid { seq: OBJECT.seq, oid: OBJECT.oid, ver: 0 };
const ALL: [ObjectRange; 1] = [ObjectRange { base: BASE, first: OBJECT.ver, count: 1 }];

/// The objects are used under `version` or later.
fn raise(version: u32, claim: Claim) -> Call {
    let body = OstRaiseReq { parent: PARENT.into(), layout_version: version, lent: 0, claim };
    Call::new(Opcode::OstRaise, vec![encode_body(&body), Bytes::copy_from_slice(ALL.as_bytes())])
}

/// The same calls under a layout version: read, write, punch, fallocate, seek.
fn calls(version: u32) -> Vec<Call> {
    let io = OstIoReq {
        object: OBJECT.into(),
        parent: PARENT.into(),
        length: 4,
        layout_version: version,
        claim: CLAIM,
        ..OstIoReq::default()
    };
    let mut written = write(0, b"more", PLAIN);
    written.bufs[0] = encode_body(&io);
    let mut punched: OstPunchReq = decode_body(&punch(9, true).bufs[0]);
    punched.layout_version = version;
    let mut allocated: OstFallocateReq = decode_body(&fallocate_call(0, 0, 9).bufs[0]);
    allocated.layout_version = version;
    let mut sought: OstSeekReq = decode_body(&seek(0, 0).bufs[0]);
    sought.layout_version = version;
    let with = |mut call: Call, body: Bytes| {
        call.bufs[0] = body;
        call
    };
    vec![
        Call::new(Opcode::OstRead, vec![encode_body(&io)]),
        written,
        with(punch(9, true), encode_body(&punched)),
        with(fallocate_call(0, 0, 9), encode_body(&allocated)),
        with(seek(0, 0), encode_body(&sought)),
    ]
}

fn told_version(world: &World, remote: &Rc<Remote>) -> u32 {
    let answer = world.call(remote, batch(Opcode::OstGlimpse, &ALL)).expect("glimpses");
    decode_body::<OstAttr>(&answer.reply.buf(1)).layout_version
}

impl World {
    fn outcomes(&self, remote: &Rc<Remote>, version: u32) -> Vec<Result<(), Errno>> {
        let outcome = |call| self.call(remote, call).map(drop).map_err(|error| error.errno());
        calls(version).into_iter().map(outcome).collect()
    }
}

#[test]
fn an_older_layout_is_refused_over_a_power_cut_too() {
    let world = World::plain();
    let (remote, other) = (world.remote(1), world.remote(2));
    world.attr(&remote, write(0, b"data", PLAIN)).expect("any layout");
    world.call(&other, raise(5, CLAIM)).expect("told");
    world.power_cut(3);
    world.start();
    for _ in 0..2 {
        assert_eq!(world.outcomes(&remote, 4), [Err(Errno::ESTALE); 5]);
        assert_eq!(told_version(&world, &remote), 5);
        assert_eq!(world.outcomes(&remote, 5), [Ok(()); 5]);
        assert_eq!(world.outcomes(&remote, 6), [Ok(()); 5]);
        world.call(&other, raise(3, CLAIM)).expect("it never goes back");
    }
}

#[test]
fn an_object_that_is_not_there_is_not_made_under_an_older_layout() {
    let world = World::plain();
    let remote = world.remote(1);
    world.call(&remote, raise(5, CLAIM)).expect("told");
    assert_eq!(world.outcomes(&remote, 4), [Err(Errno::ESTALE); 5]);
    assert_eq!((world.disk.objects(), told_version(&world, &remote)), (vec![], 5));
    world.call(&world.mdt(), batch(Opcode::OstDestroy, &ALL)).expect("destroys");
    assert_eq!(world.outcomes(&remote, 9), [Err(Errno::ESTALE); 5]);
    assert_eq!(told_version(&world, &remote), u32::MAX, "no layout names it");
    let again = world.call(&remote, raise(9, CLAIM)).map(drop).map_err(|error| error.errno());
    assert_eq!(again, Err(Errno::ESTALE));
    world.sim.run_for(Span::secs(3)); // durable
    let records = world.disk.records(Table::Objects);
    assert_eq!(records.len(), 1, "its record says that no layout may use it");
}

#[test]
fn a_destroyed_object_that_was_told_is_refused_to_later_sessions_too() {
    let world = World::plain();
    let (mover, mdt) = (world.remote(1), world.mdt());
    world.attr(&mover, write(0, b"data", PLAIN)).expect("any layout");
    world.call(&mover, raise(5, CLAIM)).expect("told");
    world.call(&mdt, batch(Opcode::OstDestroy, &ALL)).expect("destroys");
    let leaves = world.endpoints.borrow()[0].clone();
    world.sim.block_on(&world.client, async move { leaves.shutdown().await });
    world.sim.run_for(Span::secs(3));
    let tombstones = world.disk.records(Table::Tombstones);
    assert_eq!(tombstones.len(), 0, "every session of that time has ended");
    for client in [2, 3] {
        let late = world.remote(client);
        assert_eq!(world.outcomes(&late, 4), [Err(Errno::ESTALE); 5]);
        assert_eq!(world.outcomes(&late, u32::MAX), [Err(Errno::ESTALE); 5]);
        assert_eq!((world.disk.objects(), told_version(&world, &late)), (vec![], u32::MAX));
        world.power_cut(3);
        world.start();
    }
}

#[test]
fn a_replay_to_an_object_that_was_told_and_destroyed_is_overtaken() {
    let takes = Span::millis(100);
    let disk = MemDiskConfig { commit_min: takes, commit_max: takes, ..MemDiskConfig::default() };
    let world = World::new(7, disk, Bugs::default());
    let (remote, mdt) = (world.remote(1), world.mdt());
    let undone = Rc::new(Cell::new(0));
    let count = undone.clone();
    remote.on_undone(Rc::new(move |changes, _why| count.set(count.get() + changes.len())));
    let write_again = || world.attr(&remote, calls(5).remove(1)).expect("writes");
    world.call(&mdt, batch(Opcode::OstSync, &[])).expect("connects");
    world.attr(&remote, write(0, b"data", PLAIN)).expect("any layout");
    world.call(&remote, raise(5, CLAIM)).expect("told");
    world.sim.run_for(Span::secs(3));

    // a commit takes along what comes while the objects are synced, and its mark does not
    write_again();
    let (env, asker) = (world.client.env(), remote.clone());
    env.spawn("sync", async move { drop(asker.call(batch(Opcode::OstSync, &[])).await) });
    world.sim.run_for(Span::millis(20));
    write_again();
    world.call(&mdt, batch(Opcode::OstDestroy, &ALL)).expect("destroys");
    world.sim.run_for(Span::millis(190));
    world.power_cut(3);
    world.start();
    assert_eq!((told_version(&world, &remote), undone.get()), (u32::MAX, 0));
}

#[test]
fn no_peer_makes_the_record_of_an_object_that_of_a_destroyed_one() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("any layout");
    let told = world.call(&remote, raise(u32::MAX, CLAIM)).map(drop);
    assert_eq!(told.map_err(|error| error.errno()), Err(Errno::EINVAL));
    assert_eq!(told_version(&world, &remote), 0);
    assert_eq!(world.outcomes(&remote, 1), [Ok(()); 5]);
}

#[test]
fn only_the_file_of_an_object_tells_it() {
    let world = told_off();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
    let told =
        |claim| world.call(&remote, raise(5, claim)).map(drop).map_err(|error| error.errno());
    assert_eq!(told(Claim { store: 78, ..CLAIM }), Err(Errno::EIO));
    assert_eq!(told(Claim { session: 0, ..CLAIM }), Err(Errno::EPROTO));
    let any = world.call(&remote, raise(0, CLAIM)).map(drop).map_err(|error| error.errno());
    assert_eq!(any, Err(Errno::EINVAL), "any layout");
    assert_eq!(world.outcomes(&remote, 0), [Ok(()); 5]);
}

fn last_change(world: &World, remote: &Rc<Remote>) -> u64 {
    let answer = world.call(remote, batch(Opcode::OstGlimpse, &ALL)).expect("glimpses");
    decode_body::<OstAttr>(&answer.reply.buf(1)).changed
}

#[test]
fn an_object_says_which_change_was_its_last() {
    let world = World::plain();
    let (remote, other) = (world.remote(1), world.remote(2));
    assert_eq!(last_change(&world, &other), 0, "there is none");
    let changes = [write(0, b"data", PLAIN), punch(9, true), fallocate_call(0, 0, 99)];
    for change in changes {
        let done = world.call(&remote, change).expect("changes");
        assert_eq!(last_change(&world, &other), done.reply.transno().0);
    }
    let last = last_change(&world, &other);
    world.call(&other, raise(5, CLAIM)).expect("told");
    world.call(&other, Call { ..calls(5).remove(0) }).expect("reads");
    assert_eq!(last_change(&world, &other), last, "its bytes are the same");
    world.power_cut(3);
    world.start();
    assert_eq!(last_change(&world, &remote), last, "replayed, or durable");
}
