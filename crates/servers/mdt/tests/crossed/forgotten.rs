//! An MDT ends amid operations and is forgotten (`nacre forget --force`).

use super::*;

/// MDT 1 is lost and forgotten. The first client dies with it.
const LOST: u32 = 1;

impl World {
    /// Directory and file for a rename that all three MDTs have a part in: the directory is on the
    /// MDT that will be lost, and the file on MDT 2.
    fn on_three_mdts(&self) -> (Fid, Fid) {
        let dir = self.mkdir(Fid::ROOT, "d", &[LOST]).expect("made").fid();
        let third = self.mkdir(Fid::ROOT, "third", &[2]).expect("made").fid();
        let file = self.create(third, "a");
        self.rename((third, "a"), (dir, "a")).expect("moved");
        // all links are up
        self.mkdir(dir, "other", &[0]).expect("made");
        self.mkdir(dir, "another", &[2]).expect("made");
        (dir, file)
    }

    /// So many microseconds after the call of an operation, MDT 1 cannot be reached any more from
    /// one other MDT. Soon after that, it dies, and the MGS forgets it.
    fn lose(&self, after: u64, cut: u32) {
        self.sim.run_for(Span::micros(after));
        let node = |mdt: u32| &self.servers[mdt as usize].node;
        self.sim.partition(node(LOST), node(cut), Cut::BothWays);
        self.sim.run_for(Span::millis(2));
        self.kill(LOST);
        self.clients[0].0.kill_as(false);
        self.sim.heal_all();
        self.at.forgotten.set(Some(LOST));
    }

    /// The answer to a request of the second client, if it comes within a second.
    fn soon(&self, mdt: u32, call: Call) -> Option<Result<(), Errno>> {
        let asked = self.ask(1, mdt, call);
        self.sim.run_for(Span::secs(1));
        asked.borrow_mut().take()
    }

    /// Whether a file has this name in the root, by its back-links.
    fn knows_name(&self, file: Fid, name: &str) -> bool {
        let body = FidReq { fid: file.into(), ..FidReq::default() };
        let call = Call::new(Opcode::MdtFid2path, vec![encode_body(&body)]);
        let paths = self.send(1, file.mdt_index(), call).map(|reply| reply.buf(1));
        let paths = String::from_utf8(paths.unwrap_or_default().to_vec()).expect("text");
        paths.split_terminator('\0').any(|path| path == format!("/{}/{name}", Fid::ROOT))
    }

    /// The living MDTs keep nothing of operations, and change the file.
    fn check_without_the_lost(&self, file: Fid, what: &str) {
        let attr = Attr { mode: 0o600, ..Attr::default() }.with_fid(file);
        let body = SetattrReq { attr, valid: SetattrFlags::MODE, ..SetattrReq::default() };
        let call = Call::new(Opcode::MdtSetattr, vec![encode_body(&body)]);
        assert_eq!(self.soon(2, call), Some(Ok(())), "{what}");
        let images = [0, 2].map(|mdt| self.image(mdt));
        assert_eq!(fsck::left(&images), Vec::<String>::new(), "{what}");
    }
}

/// What happens to another MDT when one is lost.
#[derive(Clone, Copy, Debug)]
enum Besides {
    Nothing,
    BeginsAnew(u32),
    /// For a while.
    OutOfUse(u32),
}

/// The lost MDT coordinates a rename to the root. Returns whether the rename has happened.
fn renamed_by_the_lost_mdt(after: u64, cut: u32, besides: Besides) -> bool {
    let what = format!("{after} us, cut off from {cut}, {besides:?}");
    let world = World::new(41);
    world.lookup(1, Fid::ROOT, "nothing").expect_err("it is not there");
    let (dir, file) = world.on_three_mdts();
    world.settle();
    world.begin(0, LOST, rename((dir, "a"), (Fid::ROOT, "b")));
    world.lose(after, cut);
    match besides {
        Besides::Nothing => {}
        Besides::BeginsAnew(mdt) => {
            world.kill(mdt);
            world.boot(mdt);
        }
        Besides::OutOfUse(mdt) => world.at.off.set(Some(mdt)),
    }
    world.sim.run_for(Span::secs(60));
    world.at.off.set(None);
    world.settle();
    let found = world.soon(0, lookup(Fid::ROOT, "b"));
    let has_happened = found == Some(Ok(()));
    assert!(has_happened || found == Some(Err(Errno::ENOENT)), "{what}: {found:?}");
    assert_eq!(world.knows_name(file, "b"), has_happened, "{what}");
    world.check_without_the_lost(file, &what);
    if !has_happened {
        let made = world.soon(0, make(Fid::ROOT, "b", S_IFREG | 0o644, &[]));
        assert_eq!(made, Some(Ok(())), "{what}: the name is free");
    }
    has_happened
}

#[test]
fn an_operation_of_a_forgotten_mdt_happens_everywhere_or_nowhere() {
    for besides in [
        Besides::Nothing,
        Besides::BeginsAnew(0),
        Besides::BeginsAnew(2),
        Besides::OutOfUse(0),
        Besides::OutOfUse(2),
    ] {
        let run = |step: u64| {
            let cut = if step.is_multiple_of(2) { 0 } else { 2 };
            renamed_by_the_lost_mdt(100 * step, cut, besides)
        };
        let happened = (0..24).filter(|step| run(*step)).count();
        assert!((1..24).contains(&happened), "{besides:?}: {happened}");
    }
}

/// MDT 0 coordinates a rename from the root to the lost MDT. Returns the answer, and whether the
/// rename has happened.
fn renamed_to_the_lost_mdt(after: u64) -> (Result<(), Errno>, bool) {
    let world = World::new(42);
    let (dir, file) = world.on_three_mdts();
    world.rename((dir, "a"), (Fid::ROOT, "b")).expect("moved");
    world.lookup(1, Fid::ROOT, "b").expect("it is there");
    world.settle();
    let asked = world.ask(1, 0, rename((Fid::ROOT, "b"), (dir, "c")));
    world.lose(after, 0);
    world.sim.run_for(Span::secs(60));
    let answer = asked.borrow_mut().take().expect("nothing waits for a forgotten MDT");
    let has_happened = world.soon(0, lookup(Fid::ROOT, "b")) == Some(Err(Errno::ENOENT));
    assert_eq!(world.knows_name(file, "b"), !has_happened, "{after} us");
    world.check_without_the_lost(file, &format!("{after} us"));
    (answer, has_happened)
}

#[test]
fn an_operation_with_a_forgotten_mdt_ends_without_it() {
    let answers: Vec<_> = (0..24).map(|step| renamed_to_the_lost_mdt(100 * step)).collect();
    let is_told = |(answer, has_happened): &(Result<(), Errno>, bool)| match answer {
        Ok(()) => *has_happened,
        Err(errno) => *errno == Errno::ENODEV && !has_happened,
    };
    assert!(answers.iter().all(is_told), "{answers:?}");
    assert!(answers.iter().any(|(answer, _)| answer.is_ok()), "some are executed: {answers:?}");
    assert!(answers.iter().any(|(answer, _)| answer.is_err()), "some are not: {answers:?}");
}

/// A recovery waits for no MDT that is forgotten meanwhile, and the next one neither.
#[test]
fn a_recovery_ends_when_the_mdt_that_it_waits_for_is_forgotten() {
    let world = World::new(43);
    let (_, file) = world.on_three_mdts();
    world.lookup(1, Fid::ROOT, "nothing").expect_err("it is not there");
    world.settle();
    world.kill(LOST);
    world.kill(0);
    world.boot(0);
    world.clients[0].0.kill_as(false);
    world.sim.run_for(Span::secs(30));
    assert_eq!(world.soon(0, lookup(Fid::ROOT, "third")), None, "it may know more");
    world.at.forgotten.set(Some(LOST));
    world.sim.run_for(Span::secs(30));
    assert_eq!(world.soon(0, lookup(Fid::ROOT, "third")), Some(Ok(())));
    world.check_without_the_lost(file, "a recovery");
    world.kill(0);
    world.boot(0);
    world.sim.run_for(Span::secs(20));
    assert_eq!(world.soon(0, lookup(Fid::ROOT, "third")), Some(Ok(())));
}
