//! Clients whose session with one of several MDTs has ended.

use endpoint::Undone;
use env_sim::Cut;
use types::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS};

use super::*;

/// Number of the store of MDT `index`.
fn store(index: u64) -> u64 {
    CLAIM.store + index
}

/// A write to an object of a file of MDT `index`.
fn write_of(index: u64, session: u64) -> Call {
    let seq = FID_FIRST_NORMAL_SEQ + (index << FID_SEQUENCES_PER_MDT_BITS);
    let body = OstIoReq {
        object: Fid { seq: OBJECT.seq + index, ..OBJECT }.into(),
        parent: Fid::new(seq, 7).into(),
        length: 4,
        claim: Claim { store: store(index), session, ..CLAIM },
        ..OstIoReq::default()
    };
    let mut call = write(0, b"data", PLAIN);
    call.bufs[0] = encode_body(&body);
    call
}

/// MDT `index` has this to say of client 1: it is gone, if that is for this run of the OST.
fn fence(world: &World, mdt: &Rc<Remote>, index: u64, is_gone: bool) {
    let instance = world.ost.borrow().as_ref().expect("runs").exports().instance().0;
    let body = OstFenceReq {
        store: store(index),
        client_low: 1,
        session: 9,
        instance: if is_gone { instance } else { 0 },
        ..Default::default()
    };
    let call = Call::new(Opcode::OstFence, vec![encode_body(&body)]);
    world.call(mdt, call).expect("fences");
}

fn is_recovering(world: &World) -> bool {
    world.sim.run_for(Span::secs(1));
    world.ost.borrow().as_ref().expect("runs").exports().is_recovering()
}

#[test]
fn a_fence_of_one_mdt_refuses_nothing_that_another_one_allows() {
    let world = World::plain();
    let (remote, mdt) = (world.remote(1), world.mdt());
    let refused = |index, session| {
        let answer = world.attr(&remote, write_of(index, session));
        answer.map(drop).map_err(|error| error.errno())
    };
    for _ in 0..2 {
        fence(&world, &mdt, 1, false);
        assert_eq!(refused(1, 8), Err(Errno::EKEYREVOKED));
        assert_eq!((refused(1, 9), refused(0, 8), refused(2, 1)), (Ok(()), Ok(()), Ok(())));
        world.power_cut(3);
        world.start();
    }
}

/// The fence comes during recovery, before the client does.
#[test]
fn a_write_that_a_fence_refuses_to_repeat_is_lost_and_its_client_hears_of_it() {
    let world = told_off();
    let node = world.sim.node("late", "10.0.0.3@tcp".parse().expect("a NID"));
    let (remote, mdt) = (world.remote_at(&node, 1, false), world.mdt());
    let undone = Rc::<RefCell<Vec<(usize, Undone)>>>::default();
    let told = undone.clone();
    remote.on_undone(Rc::new(move |changes, why| told.borrow_mut().push((changes.len(), why))));
    world.call(&mdt, batch(Opcode::OstSync, &[])).expect("connects");
    let writing = remote.clone();
    let written = world
        .sim
        .block_on_for(&node, Span::secs(10), async move { writing.call(write_of(0, 5)).await });
    assert!(written.is_some_and(|done| done.is_ok()));

    world.sim.partition(&world.server, &node, Cut::BothWays);
    world.kill();
    world.start();
    fence(&world, &mdt, 0, false);
    assert!(undone.borrow().is_empty(), "the client knows nothing of it");
    world.sim.heal_all();
    world.sim.run_for(Span::secs(5));
    assert_eq!(*undone.borrow(), [(1, Undone::Refused(Errno::EKEYREVOKED))]);
    assert_eq!(remote.state(), "FULL");
}

#[test]
fn recovery_waits_for_a_client_until_every_mdt_has_given_it_up() {
    let world = World::plain();
    let (remote, mdt) = (world.remote(1), world.mdt());
    for index in [0, 1] {
        world.attr(&remote, write_of(index, 5)).expect("writes");
    }
    world.sim.run_for(Span::secs(3));
    world.client.kill();
    world.kill();
    world.start();
    drop((remote, mdt));
    let mdt = world.mdt();
    fence(&world, &mdt, 1, true);
    assert!(is_recovering(&world), "it may have writes to files of the other one");
    fence(&world, &mdt, 1, true);
    fence(&world, &mdt, 0, false);
    assert!(is_recovering(&world), "it has another session there, or may have");
    fence(&world, &mdt, 0, true);
    assert!(!is_recovering(&world));
}

#[test]
fn recovery_waits_for_no_word_of_a_forgotten_mdt() {
    let world = World::plain();
    let (remote, mdt) = (world.remote(1), world.mdt());
    for index in [0, 1] {
        world.attr(&remote, write_of(index, 5)).expect("writes");
    }
    world.sim.run_for(Span::secs(3));
    world.client.kill();
    world.kill();
    world.start();
    drop((remote, mdt));
    let mdt = world.mdt();
    fence(&world, &mdt, 0, true);
    assert!(is_recovering(&world), "it may have writes to files of the other one");
    let forget = |mdts: &[u32]| {
        let ost = world.ost.borrow().clone().expect("runs");
        ost.set_forgotten_mdts(mdts.iter().copied().collect());
    };
    forget(&[7]);
    assert!(is_recovering(&world), "that is another one");
    forget(&[1, 7]);
    assert!(!is_recovering(&world));
}

/// Whether this fence outlives a power cut now.
fn has_durable_fence(world: &World) -> bool {
    world.disk.records(Table::Meta).iter().any(|(key, _)| key.starts_with(b"fence/"))
}

#[test]
fn a_fence_is_durable_when_it_is_answered_whoever_commits_it() {
    let takes = Span::millis(100);
    let disk = MemDiskConfig { commit_min: takes, commit_max: takes, ..MemDiskConfig::default() };
    for seed in 0..10 {
        let world = World::new(seed, disk, Bugs::default());
        let (remote, mdt, other) = (world.remote(1), world.mdt(), world.remote(2));
        world.call(&mdt, batch(Opcode::OstSync, &[])).expect("connects");
        world.attr(&remote, write(0, b"data", PLAIN)).expect("writes");
        let env = world.client.env();
        env.spawn("sync", async move { drop(remote.call(batch(Opcode::OstSync, &[])).await) });
        world.sim.run_for(Span::millis(150));
        // the data is synced, and its records are on their way to the disk
        env.spawn("new", async move { drop(other.call(batch(Opcode::OstSync, &[])).await) });
        fence(&world, &mdt, 1, false);
        assert!(has_durable_fence(&world), "seed {seed}");
    }
}
