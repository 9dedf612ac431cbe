//! Acknowledged and synced changes through kills, power cuts and failures of the storage.

use env_sim::Cut;

use super::*;

#[test]
fn replay_brings_acknowledged_writes_over_a_power_cut() {
    for seed in 0..20 {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let remote = world.remote(1);
        let mut expected = vec![0; 400_000];
        for round in 0..12u8 {
            let data = pattern(1 + usize::from(round) * 9_000, round);
            let offset = usize::from(round) * 17_000;
            world.attr(&remote, write(offset as u64, &data, PLAIN)).expect("writes");
            expected[offset..offset + data.len()].copy_from_slice(&data);
            if round % 4 == 3 {
                world.power_cut(seed ^ u64::from(round));
                world.start();
            }
            if round == 6 {
                world.sim.run_for(Span::secs(2));
            }
        }
        let (attr, data) = world.read(&remote, 0, 400_000, IoFlags::MUST_EXIST).expect("reads");
        assert!(data[..] == expected[..attr.size as usize], "seed {seed}");
    }
}

#[test]
fn synced_writes_outlive_a_power_cut_without_their_client() {
    for (seed, by_sync_call) in (0..10).flat_map(|seed| [(seed, false), (seed, true)]) {
        let world = World::new(seed, MemDiskConfig::default(), Bugs::default());
        let remote = world.remote(1);
        let data = pattern(200_000, 5);
        world.attr(&remote, write(0, &data, IoFlags::SYNC.when(!by_sync_call))).expect("writes");
        if by_sync_call {
            let answer = world.call(&remote, batch(Opcode::OstSync, &[])).expect("syncs");
            let body: SyncRep = decode_body(&answer.reply.buf(0));
            assert!(body.last_committed > 0);
        }
        world.client.kill();
        world.power_cut(seed);
        world.start();
        let (_, read) =
            world.read(&world.remote(2), 0, 200_000, IoFlags::MUST_EXIST).expect("reads");
        assert!(read[..] == data[..], "seed {seed}");
    }
}

#[test]
fn records_ahead_of_data_are_found_out() {
    let bugs = Bugs::plant("ost.commit_records_before_data");
    let disk = MemDiskConfig { commit_min: Span::millis(5), ..MemDiskConfig::default() };
    let lost = (0..40).filter(|seed| {
        let world = World::new(*seed, disk, bugs);
        let remote = world.remote(1);
        let data = pattern(200_000, 5);
        world.attr(&remote, write(0, &data, PLAIN)).expect("writes");
        let committed = || remote.last_committed().0 > 0;
        let sync = remote.clone();
        world
            .client
            .env()
            .spawn("sync", async move { drop(sync.call(batch(Opcode::OstSync, &[])).await) });
        let records = || world.disk.records(Table::Replies).len();
        world.sim.run_until(Span::secs(1), || committed() || records() > 0);
        world.power_cut(*seed);
        world.start();
        let (_, read) = world.read(&remote, 0, 200_000, PLAIN).expect("reads");
        read[..] != data[..]
    });
    assert!(lost.count() > 0, "the switch breaks something");
}

/// The answer is lost with the OST. Another client writes behind the new end before that.
#[test]
fn a_truncate_amid_which_the_ost_dies_may_be_applied_twice() {
    let world = World::plain();
    let node = world.sim.node("cutter", "10.0.0.3@tcp".parse().expect("a NID"));
    let (cutter, writer) = (world.remote_at(&node, 1, false), world.remote(2));
    let writing = cutter.clone();
    let written = world.sim.block_on_for(&node, Span::secs(10), async move {
        writing.call(write(0, &[1; 20], PLAIN)).await
    });
    assert!(written.is_some_and(|done| done.is_ok()));
    let seen = || world.read(&writer, 0, 100, PLAIN).expect("reads").1;
    assert_eq!(seen()[..], [1_u8; 20]);
    world.sim.run_for(Span::secs(3)); // all of it is durable

    world.sim.partition(&world.server, &node, Cut::OneWay);
    let is_done = Rc::new(Cell::new(false));
    let done = is_done.clone();
    node.env().spawn("cuts", async move {
        cutter.call(punch(4, false)).await.expect("cut");
        done.set(true);
    });
    world.sim.run_for(Span::millis(50));
    assert_eq!(seen()[..], [1_u8; 4]);
    world.attr(&writer, write(4, b"more", PLAIN)).expect("writes");
    assert_eq!(seen()[..], *b"\x01\x01\x01\x01more");
    assert!(!is_done.get());
    world.kill();
    world.sim.heal_all();
    world.start();
    assert!(world.sim.run_until(Span::secs(60), || is_done.get()), "the call returns");
    assert_eq!(seen()[..], [1_u8; 4]);
}

#[test]
fn a_failed_sync_ends_the_instance_and_loses_nothing() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"before", PLAIN)).expect("writes");
    let ost = world.ost.borrow().clone().expect("runs");
    world.disk.fail_next_sync();
    let failed = world.sim.block_on_for(&world.server, Span::secs(10), ost.failed());
    assert!(failed.is_some_and(|reason| reason.contains("sync")));
    let (asker, answered) = (remote.clone(), Rc::new(RefCell::new(false)));
    let told = answered.clone();
    world.client.env().spawn("late", async move {
        asker.call(write(6, b"+late", PLAIN)).await.expect("the next instance answers");
        *told.borrow_mut() = true;
    });
    world.sim.run_for(Span::secs(5));
    assert!(!*answered.borrow(), "a failed instance answers nobody");
    drop(ost);
    world.power_cut(11);
    world.start();
    world.sim.run_until(Span::secs(60), || *answered.borrow());
    assert_eq!(&world.read(&remote, 0, 100, PLAIN).expect("reads").1[..], b"before+late");
}

#[test]
fn a_stopped_ost_starts_clean_and_a_killed_one_too() {
    let world = World::plain();
    let remote = world.remote(1);
    world.attr(&remote, write(0, b"kept", PLAIN)).expect("writes");
    let ost = world.ost.borrow().clone().expect("runs");
    let stopping = ost.clone();
    world.sim.block_on(&world.server, async move { stopping.stop().await }).expect("stops");
    assert_eq!(world.disk.unsynced_objects(), 0);
    let first = ost.exports().instance();
    drop(ost);
    world.kill();
    world.start();
    let second = world.ost.borrow().as_ref().expect("runs").exports().instance();
    assert_eq!(second.0, first.0 + 1);
    world.kill();
    world.start();
    assert_eq!(&world.read(&remote, 0, 10, IoFlags::MUST_EXIST).expect("reads").1[..], b"kept");
}

#[test]
fn a_target_whose_storage_failed_stops_alone() {
    let sim = Sim::new(11, SimConfig { polls_max: 300_000, ..SimConfig::default() });
    let server = sim.node("oss", "10.0.0.1@tcp".parse().expect("a NID"));
    let client = sim.node("client", "10.0.0.2@tcp".parse().expect("a NID"));
    let at = NidAddr { nid: server.nid(), port: 988 };
    let disks = [MemDisk::new(MemDiskConfig::default()), MemDisk::new(MemDiskConfig::default())];
    let (env, opened) = (server.env(), disks.clone());
    sim.block_on(&server, async move {
        let node = node(&env);
        for (index, disk) in opened.iter().enumerate() {
            let config = OstConfig::new("testfs".parse().expect("a name"), index as u32);
            let meta = Rc::new(MemMeta::open(&env, disk));
            let objects = Rc::new(MemObjects::open(&env, disk));
            node.add_target(Ost::start(&env, config, meta, objects).await.expect("boots"));
        }
        node.serve(env.listen(at).await.expect("free"));
        std::mem::forget(node); // lives as long as the machine
    });
    let config = EndpointConfig {
        import: endpoint::ImportConfig { client: ClientId(1), ..Default::default() },
        ..EndpointConfig::default()
    };
    let endpoint = Endpoint::new(&client.env(), config, Rc::new(At(at)));
    let remotes = [0, 1].map(|index| endpoint.remote(TargetId::ost(index)));
    let ask = |index: usize, call: Call, patience: Span| {
        let remote = remotes[index].clone();
        sim.block_on_for(&client, patience, async move { remote.call(call).await })
    };
    for index in [0, 1] {
        assert!(
            ask(index, write(0, b"before", PLAIN), Span::secs(10)).is_some_and(|done| done.is_ok())
        );
    }
    disks[0].fail_next_sync();
    sim.run_for(Span::secs(3));
    // More requests than a service has slots: none of them is answered, and none keeps a slot.
    let waiting: Vec<_> = (0..600)
        .map(|number| {
            let (remote, answered) = (remotes[0].clone(), Rc::new(RefCell::new(false)));
            let told = answered.clone();
            client.env().spawn("waits", async move {
                let _answer = remote.call(write(number, b"x", PLAIN)).await;
                *told.borrow_mut() = true;
            });
            answered
        })
        .collect();
    sim.run_for(Span::secs(3));
    for round in 0..50 {
        let done = ask(1, write(round, b"after", PLAIN), Span::secs(10));
        assert!(done.is_some_and(|done| done.is_ok()), "the other target goes on");
    }
    assert!(waiting.iter().all(|answered| !*answered.borrow()), "a failed target is silent");
}
