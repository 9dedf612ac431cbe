//! Locks of applications at an MDT behind its service: waits, crashes, and ends of sessions.

use endpoint::{CallbackAnswer, OnCallback};
use wire::body::{LockFlags, LockRep, LockReq, lock};

use super::*;

impl World {
    /// Asks for a lock in the background; the slot fills with the answer.
    fn lock_later(&self, client: usize, body: LockReq) -> Rc<RefCell<Option<Result<u32, Errno>>>> {
        let (node, endpoint) = &self.clients[client];
        let (remote, slot) = (endpoint.remote(MDT), Rc::new(RefCell::new(None)));
        let fill = slot.clone();
        node.env().spawn("lock", async move {
            let answer = remote.call(modifying(Opcode::MdtLock, vec![encode_body(&body)])).await;
            let state = answer
                .map(|answer| answer.reply.body::<LockRep>().state)
                .map_err(|error| error.errno());
            *fill.borrow_mut() = Some(state);
        });
        slot
    }
}

/// Neither waits nor tests.
const AT_ONCE: LockFlags = LockFlags::empty();

fn locking(fid: Fid, owner: u64, mode: u32, flags: LockFlags, wait_ms: u32) -> LockReq {
    let extent = (0, u64::MAX);
    LockReq {
        fid: fid.into(),
        kind: lock::FLOCK,
        mode,
        start: extent.0,
        end: extent.1,
        owner,
        flags,
        // with a cookie an unlock ends a wait alone
        cookie: if mode == lock::UNLOCK { 0 } else { owner },
        wait_ms,
        ..LockReq::default()
    }
}

#[test]
fn a_lock_is_waited_for_across_requests() {
    let world = World::new(5);
    let fid = world.call(0, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
    let take = |client, body: LockReq| {
        let answer = world.call(client, modifying(Opcode::MdtLock, vec![encode_body(&body)]));
        answer.map(|(reply, _)| reply.body::<LockRep>().state)
    };
    assert_eq!(take(0, locking(fid, 1, lock::EXCLUSIVE, AT_ONCE, 0)), Ok(1));
    assert_eq!(take(1, locking(fid, 2, lock::SHARED, AT_ONCE, 0)), Ok(0));
    assert_eq!(take(1, locking(fid, 2, lock::SHARED, LockFlags::TEST, 0)), Ok(0));
    assert_eq!(
        take(1, locking(fid, 2, lock::SHARED, LockFlags::WAIT, 500)),
        Ok(2),
        "still waiting"
    );
    let waits = world.lock_later(1, locking(fid, 2, lock::SHARED, LockFlags::WAIT, 20_000));
    world.sim.run_for(Span::secs(2));
    assert_eq!(*waits.borrow(), None);
    let unlock = locking(fid, 1, lock::UNLOCK, AT_ONCE, 0);
    world.call(0, modifying(Opcode::MdtUnlock, vec![encode_body(&unlock)])).expect("held");
    world.sim.run_for(Span::millis(100));
    assert_eq!(*waits.borrow(), Some(Ok(1)));
    assert_eq!(world.mdt.borrow().as_ref().expect("running").counts().locks_held, 1);
    let (node, gone) = &world.clients[1];
    let gone = gone.clone();
    world.sim.block_on(node, async move { gone.shutdown().await });
    world.sim.run_for(Span::secs(1));
    assert_eq!(world.mdt.borrow().as_ref().expect("running").counts().locks_held, 0);
}

#[test]
fn a_client_is_called_when_a_lock_is_free_and_asks_again() {
    let world = World::new(5);
    let fid = world.call(0, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
    let take = |client, body: LockReq| {
        let answer = world.call(client, modifying(Opcode::MdtLock, vec![encode_body(&body)]));
        answer.map(|(reply, _)| reply.body::<LockRep>()).map(|rep| (rep.state, rep.calls))
    };
    let free = |client, owner| {
        let unlock = locking(fid, owner, lock::UNLOCK, AT_ONCE, 0);
        let call = modifying(Opcode::MdtUnlock, vec![encode_body(&unlock)]);
        world.call(client, call).expect("held");
        world.sim.run_for(Span::millis(100));
    };
    let heard = Rc::new(RefCell::new(Vec::new()));
    let told = heard.clone();
    let on_callback: OnCallback = Rc::new(move |callback| {
        told.borrow_mut().push(callback);
        Box::pin(async { Ok(CallbackAnswer::Acks(Vec::new())) })
    });
    world.clients[1].1.remote(MDT).on_callback(on_callback);
    assert_eq!(take(0, locking(fid, 1, lock::EXCLUSIVE, AT_ONCE, 0)), Ok((1, 0)));
    let flags = LockFlags::WAIT | LockFlags::CALL;
    let waits = |owner| locking(fid, owner, lock::EXCLUSIVE, flags, 20_000);
    let begun = world.sim.now();
    assert_eq!([2, 3].map(|owner| take(1, waits(owner))), [Ok((2, 1)), Ok((2, 1))]);
    assert!(world.sim.now() - begun < Span::secs(1), "no request is held back");
    free(0, 1);
    let word = GrantWord { fid: fid.into(), number: 2, ..GrantWord::default() };
    assert_eq!(*heard.borrow(), [grants::Callback::Complete(vec![word])]);
    assert_eq!(world.running().counts().locks_held, 0, "a call grants nothing");
    assert_eq!(take(1, waits(2)), Ok((1, 0)));
    world.sim.run_for(Span::secs(11));
    free(1, 2);
    assert_eq!(heard.borrow().len(), 1, "the place of the other wait is over");
    assert_eq!(world.running().counts().locks_waiting, 0);
}

#[test]
fn a_place_that_nobody_comes_back_for_is_given_up() {
    let world = World::new(6);
    let fid = world.call(0, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
    let take = |client, body: LockReq| {
        let answer = world.call(client, modifying(Opcode::MdtLock, vec![encode_body(&body)]));
        answer.map(|(reply, _)| reply.body::<LockRep>().state)
    };
    assert_eq!(take(0, locking(fid, 1, lock::SHARED, AT_ONCE, 0)), Ok(1));
    assert_eq!(take(1, locking(fid, 2, lock::EXCLUSIVE, LockFlags::WAIT, 100)), Ok(2));
    assert_eq!(
        take(1, locking(fid, 3, lock::SHARED, AT_ONCE, 0)),
        Ok(0),
        "the writer keeps its place"
    );
    world.sim.run_for(Span::secs(11));
    assert_eq!(take(1, locking(fid, 3, lock::SHARED, AT_ONCE, 0)), Ok(1));
}

/// Takes a lock, crashes the MDT, and says whether another client can have the lock afterwards.
fn lock_is_lost_by_a_crash(bugs: Bugs) -> bool {
    let world = World::with_bugs(7, bugs);
    let fid = world.call(0, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
    let take = |client, body: LockReq| {
        let answer = world.call(client, modifying(Opcode::MdtLock, vec![encode_body(&body)]));
        answer.map(|(reply, _)| reply.body::<LockRep>().state)
    };
    assert_eq!(take(0, locking(fid, 1, lock::EXCLUSIVE, AT_ONCE, 0)), Ok(1));
    assert_eq!(take(1, locking(fid, 2, lock::SHARED, AT_ONCE, 0)), Ok(0));
    let again = locking(fid, 1, lock::EXCLUSIVE, LockFlags::RESTATE, 0);
    let restate = move || vec![Call::new(Opcode::MdtLock, vec![encode_body(&again)])];
    world.clients[0].1.remote(MDT).on_recovery(Rc::new(restate));
    world.crash();
    take(1, locking(fid, 2, lock::SHARED, AT_ONCE, 0)) == Ok(1)
}

#[test]
fn locks_that_are_stated_again_are_held_after_a_crash() {
    assert!(!lock_is_lost_by_a_crash(Bugs::default()));
    assert!(lock_is_lost_by_a_crash(Bugs::plant("mdt.lose_lock_restate")), "the planted bug shows");
}

#[test]
fn what_a_session_asked_for_goes_with_it_though_it_ends_during_a_commit() {
    for seed in 0..40 {
        let slow = MemDiskConfig { commit_max: Span::millis(400), ..MemDiskConfig::default() };
        let sim = Sim::new(seed, SimConfig::default());
        let world = World::with_disk(sim, Bugs::default(), MemDisk::new(slow));
        let fid = world.call(1, creation("a", None)).expect("room").0.body::<AttrRep>().attr.fid();
        world.call(0, creation("b", None)).expect("room");
        let sync = Call::new(Opcode::MdtSync, vec![encode_body(&FidReq::default())]);
        world.ask_later(1, sync);
        world.sim.run_for(Span::millis(5));
        let _answer = world.lock_later(0, locking(fid, 1, lock::EXCLUSIVE, AT_ONCE, 0));
        world.ask_later(0, creation("c", Some(1)));
        world.sim.run_for(Span::millis(3));
        world.evict(0);
        world.sim.run_for(Span::secs(5));
        let counts = world.running().counts();
        assert_eq!((counts.locks_held, counts.open_handles), (0, 0), "seed {seed}");
    }
}

#[test]
fn the_end_of_a_session_takes_no_lock_of_the_next_one() {
    for seed in 0..20 {
        let world = World::new(seed);
        for name in ["a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n", "o"] {
            world.call(0, creation(name, Some(1))).expect("room");
            world.call(0, unlinking(name)).expect("there");
        }
        let kept = world.call(1, creation("kept", None)).expect("room").0.body::<AttrRep>().attr;
        world.sim.run_for(Span::secs(2));
        world.faults.tight.set(true); // the sweep of its files takes many commits
        world.evict(0);
        let root = FidReq { fid: Fid::ROOT.into(), ..FidReq::default() };
        world.call(0, Call::new(Opcode::MdtGetattr, vec![encode_body(&root)])).expect("it is back");
        let body = locking(kept.fid(), 1, lock::EXCLUSIVE, AT_ONCE, 0);
        let taken = world.call(0, modifying(Opcode::MdtLock, vec![encode_body(&body)]));
        assert_eq!(taken.expect("free").0.body::<LockRep>().state, lock::GRANTED);
        world.sim.run_for(Span::secs(60));
        assert_eq!((world.records(Table::Orphans), world.running().counts().locks_held), (0, 1));
    }
}
