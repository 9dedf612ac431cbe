//! Operations of which a part comes late: links break amid them, and MDTs return when others serve.

use osd::Table;
use service::Target as _;
use wire::updates::{self, Done, OpId, Part, Place, Record, Update};

use super::*;

/// A directory is made on another MDT, which is cut off so many microseconds after the call. Its
/// name is there; returns what a client gets that asks for its attributes and makes a file in it.
fn used_amid_its_making(after: u64) -> Option<[Result<(), Errno>; 2]> {
    let world = World::new(1);
    world.mkdir(Fid::ROOT, "d", &[1]).expect("the MDTs know each other");
    world.settle();
    world.begin(0, 0, mkdir(Fid::ROOT, "e", &[1]));
    world.sim.run_for(Span::micros(after));
    world.sim.partition(&world.servers[0].node, &world.servers[1].node, Cut::BothWays);
    let dir = world.lookup(1, Fid::ROOT, "e").ok()?.attr.fid();
    let body = FidReq { fid: dir.into(), ..FidReq::default() };
    let look = Call::new(Opcode::MdtGetattr, vec![encode_body(&body)]);
    let found = [look, make(dir, "f", S_IFREG | 0o644, &[])].map(|call| world.ask(1, 1, call));
    world.sim.run_for(Span::millis(200));
    world.sim.heal_all();
    world.sim.run_for(Span::secs(30));
    assert_eq!(fsck::all(&world.images()), Vec::<String>::new());
    Some(found.map(|found| found.borrow_mut().take().expect("answered")))
}

#[test]
fn a_directory_is_there_for_each_client_that_sees_its_name() {
    let used: Vec<_> = (0..40).filter_map(|step| used_amid_its_making(50 * step)).collect();
    assert!(used.iter().all(|results| *results == [Ok(()); 2]), "{used:?}");
}

impl World {
    /// An operation of MDT 0 begins, and the link between MDTs 0 and 1 breaks so many microseconds
    /// after its call. MDT 2 makes its part durable. These MDTs and the caller die, and start again
    /// while MDT 2 cannot be reached from MDT 0.
    fn known_to_a_third_one(&self, call: Call, after: u64, victims: &[u32]) {
        self.begin(0, 0, call);
        self.sim.run_for(Span::micros(after));
        let node = |mdt: usize| &self.servers[mdt].node;
        self.sim.partition(node(0), node(1), Cut::BothWays);
        self.sim.run_for(Span::millis(2));
        self.sync(2);
        victims.iter().for_each(|mdt| self.kill(*mdt));
        self.clients[0].0.kill_as(false);
        self.sim.heal_all();
        self.sim.partition(node(0), node(2), Cut::BothWays);
        victims.iter().for_each(|mdt| self.boot(*mdt));
    }
}

/// A striped directory is removed, and MDT 1 has not heard of it when it dies with the coordinator.
/// Its next run must not take new names before the coordinator knows what MDT 2 has.
#[test]
fn an_mdt_opens_after_its_coordinator_has_asked_the_others() {
    for step in 0..40 {
        let world = World::new(31);
        let dir = world.mkdir(Fid::ROOT, "d", &[1, 2]).expect("made").fid();
        let stripes = world.stripes(dir).expect("striped");
        let home = |number: &u32| stripes.home(format!("f{number}").as_bytes());
        let number = (0..).find(|number| home(number) == stripes.shards[0]).expect("a name");
        world.settle();
        world.known_to_a_third_one(unlink(Fid::ROOT, "d", true), 50 * step, &[0, 1]);
        let name = format!("f{number}");
        let made = world.ask(1, 1, make(stripes.shards[0], &name, S_IFREG | 0o644, &[]));
        world.sim.run_for(Span::secs(40));
        world.sim.heal_all();
        world.sim.run_for(Span::secs(60));
        assert_eq!(fsck::all(&world.images()), Vec::<String>::new(), "step {step}");
        let is_there = world.lookup(1, stripes.shards[0], &name).is_ok();
        assert_eq!(is_there, *made.borrow() == Some(Ok(())), "step {step}");
    }
}

/// A file of MDT 2 is moved from MDT 0 to MDT 1. No reader is told that it is not at its new place
/// before the coordinator knows what MDT 2 has.
#[test]
fn a_recovering_coordinator_asks_the_others_before_it_says_that_nothing_happened() {
    let mut met = 0;
    for step in 0..40 {
        let world = World::new(32);
        let dirs = [1, 2]
            .map(|mdt| world.mkdir(Fid::ROOT, &format!("d{mdt}"), &[mdt]).expect("made").fid());
        world.create(dirs[1], "a");
        world.rename((dirs[1], "a"), (Fid::ROOT, "a")).expect("moved");
        world.settle();
        world.known_to_a_third_one(rename((Fid::ROOT, "a"), (dirs[0], "b")), 50 * step, &[0]);
        world.sim.run_for(Span::secs(20));
        let found = world.ask(1, 1, lookup(dirs[0], "b"));
        world.sim.run_for(Span::secs(20));
        world.sim.heal_all();
        world.sim.run_for(Span::secs(60));
        assert_eq!(fsck::all(&world.images()), Vec::<String>::new(), "step {step}");
        let has_moved = world.lookup(1, Fid::ROOT, "a").is_err();
        met += u32::from(has_moved);
        assert!(!has_moved || *found.borrow() == Some(Ok(())), "step {step}: {found:?}");
    }
    assert!(met > 0, "the operation happens in some of these runs");
}

#[test]
fn a_recovering_mdt_names_the_one_that_it_waits_for() {
    let world = World::new(33);
    world.mkdir(Fid::ROOT, "d", &[1]).expect("made");
    world.settle();
    let status = || {
        let running = world.servers[0].running.borrow();
        let (mdt, _) = running.as_ref().expect("it runs");
        mdt.exports().recovery_status().to_string()
    };
    world.kill(0);
    world.kill(1);
    world.boot(0);
    world.sim.run_for(Span::secs(30));
    let shown = status();
    assert!(shown.starts_with("status: RECOVERING\n"), "{shown}");
    assert!(shown.ends_with("waiting_for: testfs-MDT0001\n"), "{shown}");
    world.boot(1);
    world.sim.run_for(Span::secs(60));
    let shown = status();
    assert!(shown.starts_with("status: COMPLETE\n"), "{shown}");
    assert!(!shown.contains("waiting_for"), "{shown}");
    world.check();
}

/// A coordinator has lost an operation and serves, because the MDT that has it stays away for
/// longer than a recovery waits.
#[test]
fn what_an_mdt_has_that_returns_late_is_completed() {
    let world = World::damaged(30); // the log says that recovery goes on without it
    world.mkdir(Fid::ROOT, "d", &[1]).expect("made");
    world.settle();
    let dir = world.mkdir(Fid::ROOT, "e", &[1]).expect("made").fid();
    world.sync(1);
    world.kill(0);
    world.kill(1);
    world.clients[0].0.kill_as(false);
    world.boot(0);
    world.sim.run_for(Span::secs(400));
    assert_eq!(world.lookup(1, Fid::ROOT, "e").err(), Some(Errno::ENOENT), "nothing is known");
    world.send(1, 0, mkdir(Fid::ROOT, "other", &[2])).expect("it serves");
    world.boot(1);
    world.sim.run_for(Span::secs(60));
    let found = world.lookup(1, Fid::ROOT, "e").expect("the operation is complete");
    assert_eq!(found.attr.fid(), dir);
    let errors = world.sim.errors();
    assert!(errors.iter().all(|error| error.contains("recovery goes on")), "{errors:?}");
    world.check();
}

impl World {
    /// Keys of the operations that an MDT has a record of.
    fn recorded(&self, mdt: u32) -> Vec<Vec<u8>> {
        let running = self.servers[mdt as usize].running.borrow();
        let (_, meta) = running.as_ref().expect("it runs");
        let (view, mut keys) = (meta.running().expect("ready"), Vec::new());
        view.scan(Table::Updates, &[0], &mut |key, _| {
            keys.push(key.to_vec());
            true
        })
        .expect("scans work");
        keys
    }
}

/// A coordinator has lost an operation, and the record of the MDT that has it cannot be read for a
/// while.
#[test]
fn a_recovery_ends_although_another_mdt_answers_with_errors() {
    let world = World::damaged(34); // the log says that recovery goes on without it
    world.mkdir(Fid::ROOT, "d", &[1]).expect("made");
    world.sim.run_for(Span::secs(20)); // no record is left
    let dir = world.mkdir(Fid::ROOT, "e", &[1]).expect("made").fid();
    world.sync(1);
    world.kill(0);
    world.clients[0].0.kill_as(false);
    let disk = &world.servers[1].disk;
    let keys = world.recorded(1);
    assert_eq!(keys.len(), 1, "the record of that operation");
    keys.iter().for_each(|key| disk.damage_record(Table::Updates, key));
    world.boot(0);
    world.sim.run_for(Span::secs(100));
    let found = world.ask(1, 0, lookup(Fid::ROOT, "e"));
    world.sim.run_for(Span::secs(10));
    assert_eq!(*found.borrow(), None, "it is asked again for a while");
    world.sim.run_for(Span::secs(60));
    assert_eq!(*found.borrow(), Some(Err(Errno::ENOENT)), "nothing is known");
    let errors = world.sim.errors();
    let is_told = |what: &str| errors.iter().any(|error| error.contains(what));
    assert!(is_told("does not say what it knows") && is_told("recovery goes on"), "{errors:?}");
    disk.mend_records();
    world.sim.run_for(Span::secs(60));
    let found = world.lookup(1, Fid::ROOT, "e").expect("the operation is complete");
    assert_eq!(found.attr.fid(), dir);
    world.check();
}

/// A rename to MDT 1 is executed, and its answer is lost. MDT 1 makes its part durable. Both MDTs
/// die, and MDT 1 is away for longer than a recovery waits. Meanwhile the client asks again.
#[test]
fn a_resend_gets_the_answer_that_an_mdt_brings_back_late() {
    let world = World::damaged(36); // the log says that recovery goes on without it
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.create(Fid::ROOT, "a");
    world.settle();
    world.sim.partition(&world.servers[0].node, &world.clients[0].0, Cut::OneWay);
    let moved = world.ask(0, 0, rename((Fid::ROOT, "a"), (dir, "b")));
    world.sim.run_for(Span::millis(20));
    assert_eq!(world.lookup(1, dir, "b").map(|found| found.attr.fid()), Ok(file));
    world.sync(1);
    world.kill(0);
    world.kill(1);
    world.sim.heal_all();
    world.boot(0);
    world.sim.run_for(Span::secs(300));
    world.lookup(1, Fid::ROOT, "a").expect("nothing is known");
    assert_eq!(*moved.borrow(), None, "it waits for MDT 1");
    world.boot(1);
    world.sim.run_for(Span::secs(60));
    assert_eq!(*moved.borrow(), Some(Ok(())));
    assert_eq!(world.lookup(1, Fid::ROOT, "a").err(), Some(Errno::ENOENT));
    assert_eq!(world.lookup(1, dir, "b").map(|found| found.attr.fid()), Ok(file));
    let errors = world.sim.errors();
    assert!(errors.iter().all(|error| error.contains("recovery goes on")), "{errors:?}");
    world.check();
}

/// One of two names of a file of MDT 1 is removed, and the answer is lost. MDT 1 makes its part
/// durable. MDT 0 loses the operation, and cannot read the record of MDT 1. The client asks again.
#[test]
fn a_resend_waits_for_an_mdt_that_does_not_say_what_it_knows() {
    let world = World::damaged(37); // the log says that recovery goes on without it
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.create(dir, "c");
    world.send(0, 0, link(file, Fid::ROOT, "a")).expect("linked");
    world.sync(0);
    world.sim.run_for(Span::secs(20)); // no record is left
    world.sim.partition(&world.servers[0].node, &world.clients[0].0, Cut::OneWay);
    let removed = world.ask(0, 0, unlink(Fid::ROOT, "a", false));
    world.sim.run_for(Span::millis(20));
    world.sync(1);
    world.kill(0);
    let disk = &world.servers[1].disk;
    let keys = world.recorded(1);
    assert_eq!(keys.len(), 1, "the record of that operation");
    keys.iter().for_each(|key| disk.damage_record(Table::Updates, key));
    world.sim.heal_all();
    world.boot(0);
    world.sim.run_for(Span::secs(300));
    world.lookup(1, Fid::ROOT, "a").expect("nothing is known");
    assert_eq!(*removed.borrow(), None, "it may be executed");
    disk.mend_records();
    world.sim.run_for(Span::secs(60));
    assert_eq!(*removed.borrow(), Some(Ok(())));
    assert_eq!(world.lookup(1, Fid::ROOT, "a").err(), Some(Errno::ENOENT));
    assert_eq!(world.attr(file).expect("it has another name").nlink, 1);
    world.check();
}

/// An MDT returns late, and another client has taken the name meanwhile.
#[test]
fn a_part_that_does_not_fit_any_more_is_left_out_with_an_error() {
    let world = World::damaged(30); // the log says what is left out
    world.mkdir(Fid::ROOT, "d", &[1]).expect("made");
    world.settle();
    world.mkdir(Fid::ROOT, "e", &[1]).expect("made");
    world.sync(1);
    world.kill(0);
    world.kill(1);
    world.clients[0].0.kill_as(false);
    world.boot(0);
    world.sim.run_for(Span::secs(400));
    let other = world.send(1, 0, make(Fid::ROOT, "e", S_IFREG | 0o644, &[])).expect("it serves");
    let other = other.body::<AttrRep>().attr.fid();
    world.boot(1);
    world.sim.run_for(Span::secs(60));
    let found = world.lookup(1, Fid::ROOT, "e").expect("the later file stays");
    assert_eq!(found.attr.fid(), other);
    let errors = world.sim.errors();
    assert!(
        errors.iter().any(|error| error.contains("came too late and is left out")),
        "{errors:?}"
    );
}

/// A name moves to a directory of an MDT that is cut off so many microseconds after the call.
/// Meanwhile the directory gets another name; returns what does not fit.
fn touched_before_a_part_comes(after: u64) -> Option<String> {
    let world = World::new(1);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.create(Fid::ROOT, "a");
    world.settle();
    world.begin(0, 0, rename((Fid::ROOT, "a"), (dir, "b")));
    world.sim.run_for(Span::micros(after));
    world.sim.partition(&world.servers[0].node, &world.servers[1].node, Cut::BothWays);
    world.sim.run_for(Span::millis(100));
    let made = world.send(1, 1, make(dir, "c", S_IFREG | 0o644, &[])).expect("made");
    let made = made.body::<AttrRep>().attr.ctime();
    world.sim.heal_all();
    world.sim.run_for(Span::secs(30));
    let changed = world.attr(dir).expect("it is there");
    let is_fine = changed.mtime() >= made && changed.ctime() >= made;
    (!is_fine).then(|| format!("{after} us after the call the directory's times go back"))
}

#[test]
fn a_part_that_comes_late_sets_no_time_back() {
    let seen = (0..40).filter_map(|step| touched_before_a_part_comes(50 * step));
    assert_eq!(seen.collect::<Vec<_>>(), Vec::<String>::new());
}

/// A name moves to MDT 1, which is cut off from the coordinator so many microseconds after the
/// call. If the old name is gone then, a client looks for the new one. Returns its answer as it is
/// known 0.2 s, 118 s and 124 s later. `None`: the old name is still there.
fn looked_for_without_the_coordinator(after: u64) -> Option<[Option<Result<(), Errno>>; 3]> {
    let world = World::new(1);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.create(Fid::ROOT, "a");
    world.settle();
    world.begin(0, 0, rename((Fid::ROOT, "a"), (dir, "b")));
    world.sim.run_for(Span::micros(after));
    world.sim.partition(&world.servers[0].node, &world.servers[1].node, Cut::BothWays);
    if world.lookup(1, Fid::ROOT, "a").is_ok() {
        return None;
    }
    let found = world.ask(1, 1, lookup(dir, "b"));
    let spans = [Span::millis(200), Span::millis(117_800), Span::secs(6)];
    let seen = spans.map(|span| {
        world.sim.run_for(span);
        *found.borrow()
    });
    world.sim.heal_all();
    world.sim.run_for(Span::secs(30));
    assert_eq!(world.lookup(1, dir, "b").map(|found| found.attr.fid()), Ok(file));
    world.check();
    Some(seen)
}

#[test]
fn a_read_waits_two_minutes_for_a_coordinator_that_is_away() {
    let seen = (0..40).filter_map(|step| looked_for_without_the_coordinator(50 * step));
    let waited: Vec<_> = seen.filter(|seen| seen[0] != Some(Ok(()))).collect();
    assert!(!waited.is_empty(), "a reader between the two parts is met");
    let of_before = Some(Err(Errno::ENOENT));
    assert!(waited.iter().all(|seen| *seen == [None, None, of_before]), "{waited:?}");
}

impl World {
    /// Another server than the MDTs, in place of a former life of one of them.
    fn former_life(&self) -> Rc<Endpoint> {
        endpoint(&self.clients[1].0.env(), &self.at, 9_000, true)
    }

    /// Its request, and the answer to it.
    fn send_as(
        &self,
        server: &Rc<Endpoint>,
        to: u32,
        (opcode, body): (Opcode, Vec<u8>),
    ) -> Result<(), Errno> {
        let remote = server.remote(TargetId::mdt(to));
        let call = Call::new(opcode, vec![Bytes::new(), body.into()]);
        let answer = self.sim.block_on_for(&self.clients[1].0, Span::secs(10), async move {
            remote.call(call).await
        });
        answer.expect("answered in time").map(drop).map_err(|error| error.errno())
    }
}

/// An operation of the first run of MDT 0, late in that run: a name comes into a directory.
fn entered(at: (Fid, &str), child: Fid) -> Record {
    let (dir, name) = at;
    let at = Place { dir, name: name.as_bytes().to_vec() };
    let enter = Update::Enter { at, child, file_type: S_IFREG };
    let parts = [(0, Vec::new()), (dir.mdt_index(), vec![enter])];
    Record {
        id: OpId { mdt: 0, number: 1 << 32 | 500 },
        time: (5, 0),
        parts: parts.map(|(mdt, updates)| Part { mdt, updates }).into(),
        reply: Default::default(),
    }
}

/// MDT 0 has restarted and asked what MDT 1 has. Then its former life's message arrives.
#[test]
fn a_part_of_a_former_life_is_refused_once_the_next_one_has_asked() {
    let world = World::new(35);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.mkdir(Fid::ROOT, "e", &[2]).expect("made");
    let file = world.create(Fid::ROOT, "f");
    world.settle();
    let former = world.former_life();
    let nothing = Done { mdt: 0, ..Done::default() };
    let connects = (Opcode::MdtUpdatesDone, updates::encode(&nothing));
    assert_eq!(world.send_as(&former, 1, connects), Ok(()));
    world.kill(2); // the recovery of MDT 0 waits for it
    world.kill(0);
    world.boot(0);
    world.sim.run_for(Span::secs(20));
    let part = (Opcode::MdtUpdate, updates::encode(&entered((dir, "x"), file)));
    assert_eq!(world.send_as(&former, 1, part), Err(Errno::ESTALE));
    assert_eq!(world.lookup(1, dir, "x").err(), Some(Errno::ENOENT), "it never happened");
    world.boot(2);
    world.sim.run_for(Span::secs(60));
    world.check();
}

/// A file without a name gets one on another MDT, which is cut off so many microseconds after the
/// call. Meanwhile the session ends that has the file open; returns what does not fit.
fn named_while_its_session_ends(after: u64) -> Vec<String> {
    let world = World::with_an_ost(1);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    let file = world.nameless(1, dir);
    world.settle();
    world.begin(0, 0, link(file, Fid::ROOT, "f"));
    world.sim.run_for(Span::micros(after));
    world.sim.partition(&world.servers[0].node, &world.servers[1].node, Cut::BothWays);
    world.end(1);
    world.sim.run_for(Span::millis(200));
    world.sim.heal_all();
    world.sim.run_for(Span::secs(30));
    let is_there = world.attr(file).is_ok();
    if world.lookup(0, Fid::ROOT, "f").is_ok() != is_there {
        return vec![format!("{after} us after its call the name has no file")];
    }
    fsck::all(&world.images())
}

#[test]
fn a_file_that_gets_its_first_name_stays_though_its_session_ends() {
    let seen = (0..40).flat_map(|step| named_while_its_session_ends(50 * step));
    assert_eq!(seen.collect::<Vec<_>>(), Vec::<String>::new());
}

/// A directory on MDT 1 gets the name that it has. So nothing changes, and MDT 1 is told that its
/// keys are free. That is lost with all that MDT 0 sends to it in a millisecond from so many
/// microseconds after the call on. Returns how long a client waits then that asks for the
/// directory's attributes.
fn looked_at_after_nothing_changed(after: u64) -> Span {
    let world = World::new(1);
    let dir = world.mkdir(Fid::ROOT, "d", &[1]).expect("made").fid();
    world.settle();
    world.begin(0, 0, rename((Fid::ROOT, "d"), (Fid::ROOT, "d")));
    world.sim.run_for(Span::micros(after));
    world.sim.partition(&world.servers[0].node, &world.servers[1].node, Cut::OneWay);
    world.sim.run_for(Span::millis(1));
    world.sim.heal_all();
    let body = FidReq { fid: dir.into(), ..FidReq::default() };
    let look = Call::new(Opcode::MdtGetattr, vec![encode_body(&body)]);
    let before = world.sim.now();
    world.send(1, 1, look).expect("it is there");
    let waited = world.sim.now() - before;
    assert_eq!(fsck::all(&world.images()), Vec::<String>::new(), "{after} us after the call");
    world.check();
    waited
}

#[test]
fn an_mdt_stores_no_operation_in_which_it_has_no_part() {
    let waits = (0..40).map(|step| looked_at_after_nothing_changed(50 * step));
    assert!(waits.max() >= Some(Span::millis(20)), "one of them asks the coordinator");
}
