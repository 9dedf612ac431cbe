//! A node's part in a session: the session, its tests, the running loops and the counters.
//!
//! Invariants
//! - A node is in one session at a time; `force` moves it to another, and everything of the first
//!   one stops.
//! - Everything that is started gets exactly one order to stop: from its batch, from the end of the
//!   session, or from silence.
//! - A loop belongs to a [`Run`]; a loop that ends after its run was stopped changes nothing any
//!   more.
//!
//! The driver performs the steps that [`Member::handle`] and [`Member::handle_timeout`] return, in
//! order. It calls [`Member::loop_ended`] for each loop that it started, when that loop ends.

use std::collections::BTreeMap;

use types::{Errno, Instant};
use wire::lst::{Ask, At, Check, Control, Done, Kind, SessionId, Stat, TestSpec, Told};

use crate::Histogram;
use crate::limits::{
    BATCHES_MAX, BRW_BYTES_MAX, CONCURRENCY_MAX, DESTINATIONS_MAX, LOOPS_MAX, MEMBER_SILENCE_MAX,
    NAME_CHARS_MAX, NODES_MAX, TESTS_MAX,
};

/// One start of one test.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Run(pub u64);

/// What the driver has to do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// Start `spec.concurrency` loops for each of `with`.
    Start { run: Run, spec: TestSpec, with: Vec<At> },
    /// Let the loops of this run end after the request that is under way, or at once.
    Stop { run: Run, force: bool },
    /// The session is over: connections for it are of no more use.
    Leave,
}

/// What kinds of requests are counted apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Slot {
    Ping,
    Read,
    Write,
}

impl Slot {
    pub(crate) fn of(kind: Kind) -> Slot {
        match kind {
            Kind::Ping => Slot::Ping,
            Kind::Brw { write: false, .. } => Slot::Read,
            Kind::Brw { write: true, .. } => Slot::Write,
        }
    }
}

#[derive(Default)]
pub struct Member {
    session: Option<Session>,
    runs: u64,
}

struct Session {
    id: SessionId,
    name: String,
    heard: Instant,
    batches: BTreeMap<String, BTreeMap<u32, Test>>,
    counted: Counted,
}

#[derive(Default)]
struct Counted {
    brw_errors: u64,
    ping_errors: u64,
    rpc_errors: u64,
    rpc_dropped: u64,
    rpc_expired: u64,
    done: [(u64, u64, Histogram); 3],
}

struct Test {
    spec: TestSpec,
    with: Vec<At>,
    run: Option<Run>,
    live: u32,
    /// The batch runs and this node is a destination.
    serves: bool,
}

impl Member {
    #[must_use]
    pub fn new() -> Member {
        Member::default()
    }

    /// The session that it is in.
    #[must_use]
    pub fn session(&self) -> Option<(SessionId, &str)> {
        self.session.as_ref().map(|session| (session.id, session.name.as_str()))
    }

    /// Whether a test's request with this stamp is of the session.
    #[must_use]
    pub fn admits(&self, stamp: u64) -> bool {
        self.session.as_ref().is_some_and(|session| session.id.stamp == stamp)
    }

    /// When silence ends the session.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Instant> {
        self.session.as_ref().map(|session| session.heard + MEMBER_SILENCE_MAX)
    }

    /// Drops a session that was not heard of for [`MEMBER_SILENCE_MAX`].
    pub fn handle_timeout(&mut self, now: Instant) -> Vec<Action> {
        if self.poll_timeout().is_none_or(|due| now < due) { Vec::new() } else { self.leave() }
    }

    /// A request of a console.
    pub fn handle(&mut self, control: Control, now: Instant) -> (Told, Vec<Action>) {
        let Control { session: id, ask } = control;
        if let Ask::Join { name, force } = ask {
            return self.join(id, name, force, now);
        }
        let Some(session) = &mut self.session else { return (Told::NoSession, Vec::new()) };
        if session.id != id {
            return (Told::Busy { name: session.name.clone(), session: session.id }, Vec::new());
        }
        session.heard = now;
        match ask {
            Ask::Join { .. } | Ask::Ping => (Told::Done, Vec::new()),
            Ask::Leave => (Told::Done, self.leave()),
            Ask::AddTest { batch, test, spec, with } => {
                (told(session.add(batch, test, spec, with)), Vec::new())
            }
            Ask::Run { batch } => self.run(&batch),
            Ask::Stop { batch, force } => session.stop(&batch, force),
            Ask::Query { batch, test } => (session.query(&batch, test), Vec::new()),
            Ask::Stat => (Told::Stat(Box::new(session.stat(now))), Vec::new()),
        }
    }

    fn join(
        &mut self,
        id: SessionId,
        name: String,
        force: bool,
        now: Instant,
    ) -> (Told, Vec<Action>) {
        if let Some(session) = &mut self.session {
            if session.id == id {
                session.heard = now;
                return (Told::Done, Vec::new());
            }
            if !force {
                let busy = Told::Busy { name: session.name.clone(), session: session.id };
                return (busy, Vec::new());
            }
        }
        if id.stamp == 0 || name.chars().count() > NAME_CHARS_MAX {
            return (refused(Errno::EINVAL), Vec::new());
        }
        let actions = self.leave();
        self.session = Some(Session {
            id,
            name: types::printable(&name),
            heard: now,
            batches: BTreeMap::new(),
            counted: Counted::default(),
        });
        (Told::Done, actions)
    }

    fn leave(&mut self) -> Vec<Action> {
        let Some(session) = self.session.take() else { return Vec::new() };
        let runs = session.batches.values().flat_map(BTreeMap::values).filter_map(|test| test.run);
        let mut actions: Vec<_> = runs.map(|run| Action::Stop { run, force: true }).collect();
        actions.push(Action::Leave);
        actions
    }

    fn run(&mut self, batch: &str) -> (Told, Vec<Action>) {
        let Some(session) = &mut self.session else { return (Told::NoSession, Vec::new()) };
        let loops = session.running();
        let Some(tests) = session.batches.get_mut(batch) else {
            return (refused(Errno::ENOENT), Vec::new());
        };
        if tests.values().any(|test| test.live > 0) {
            return (refused(Errno::EBUSY), Vec::new());
        }
        let wanted: u64 = tests.values().map(Test::loops).sum();
        if wanted + u64::from(loops) > u64::from(LOOPS_MAX) {
            return (refused(Errno::E2BIG), Vec::new());
        }
        let mut actions = Vec::new();
        tests.values_mut().for_each(|test| test.serves = test.with.is_empty());
        for test in tests.values_mut().filter(|test| !test.with.is_empty()) {
            self.runs += 1;
            let run = Run(self.runs);
            (test.run, test.live) =
                (Some(run), u32::try_from(test.loops()).expect("bounded above"));
            actions.push(Action::Start { run, spec: test.spec, with: test.with.clone() });
        }
        (Told::Done, actions)
    }

    /// A loop has ended, by itself or because it was told to.
    pub fn loop_ended(&mut self, run: Run) {
        let Some(session) = &mut self.session else { return };
        let tests = session.batches.values_mut().flat_map(BTreeMap::values_mut);
        for test in tests.filter(|test| test.run == Some(run)) {
            test.live -= 1;
            if test.live == 0 {
                test.run = None;
            }
        }
    }

    /// A request of this session was answered, and its data were right.
    pub fn count_done(&mut self, stamp: u64, kind: Kind, took: types::Span) {
        let Some(counted) = self.counted(stamp) else { return };
        let (count, bytes, latency) = &mut counted.done[Slot::of(kind) as usize];
        *count += 1;
        if let Kind::Brw { size, .. } = kind {
            *bytes += u64::from(size);
        }
        latency.record(took);
    }

    /// Its answer or its data were wrong.
    pub fn count_wrong(&mut self, stamp: u64, kind: Kind) {
        let Some(counted) = self.counted(stamp) else { return };
        match kind {
            Kind::Ping => counted.ping_errors += 1,
            Kind::Brw { .. } => counted.brw_errors += 1,
        }
    }

    /// It failed, or had no answer in time.
    pub fn count_failed(&mut self, stamp: u64, expired: bool) {
        let Some(counted) = self.counted(stamp) else { return };
        if expired {
            counted.rpc_expired += 1;
        } else {
            counted.rpc_errors += 1;
        }
    }

    /// A request of a stranger came and was dropped.
    pub fn count_dropped(&mut self) {
        if let Some(session) = &mut self.session {
            session.counted.rpc_dropped += 1;
        }
    }

    fn counted(&mut self, stamp: u64) -> Option<&mut Counted> {
        self.session
            .as_mut()
            .filter(|session| session.id.stamp == stamp)
            .map(|session| &mut session.counted)
    }

    /// Whether any test of the session looks at the data that arrive.
    #[must_use]
    pub fn looks_at_data(&self) -> bool {
        let tests = self
            .session
            .iter()
            .flat_map(|session| session.batches.values())
            .flat_map(BTreeMap::values);
        tests
            .into_iter()
            .any(|test| matches!(test.spec.kind, Kind::Brw { check, .. } if check.looks()))
    }
}

fn told(done: Result<(), Errno>) -> Told {
    match done {
        Ok(()) => Told::Done,
        Err(errno) => refused(errno),
    }
}

fn refused(errno: Errno) -> Told {
    Told::Refused(errno.raw())
}

impl Test {
    fn loops(&self) -> u64 {
        u64::from(self.spec.concurrency) * self.with.len() as u64
    }
}

impl Session {
    fn add(
        &mut self,
        batch: String,
        number: u32,
        spec: TestSpec,
        with: Vec<At>,
    ) -> Result<(), Errno> {
        let fits = batch.chars().count() <= NAME_CHARS_MAX && with.len() <= NODES_MAX;
        if !fits || number == 0 || !is_valid(spec) {
            return Err(Errno::EINVAL);
        }
        if !self.batches.contains_key(&batch) && self.batches.len() >= BATCHES_MAX {
            return Err(Errno::E2BIG);
        }
        let known: usize = self.tests().map(|test| test.with.len()).sum();
        if known + with.len() > DESTINATIONS_MAX {
            return Err(Errno::E2BIG);
        }
        let tests = self.batches.entry(batch).or_default();
        if tests.len() >= TESTS_MAX {
            return Err(Errno::E2BIG);
        }
        match tests.get_mut(&number) {
            // a node may be source and destination of one test, and a repeated request adds nothing
            Some(test) if test.run.is_none() && test.spec == spec => {
                if !with.is_empty() {
                    test.with = with;
                }
                Ok(())
            }
            // its console has dropped the test of before, because another node refused it
            Some(test) if test.run.is_none() && !test.serves => {
                (test.spec, test.with) = (spec, with);
                Ok(())
            }
            Some(_) => Err(Errno::EEXIST),
            None => {
                tests.insert(number, Test { spec, with, run: None, live: 0, serves: false });
                Ok(())
            }
        }
    }

    fn stop(&mut self, batch: &str, force: bool) -> (Told, Vec<Action>) {
        let Some(tests) = self.batches.get_mut(batch) else {
            return (refused(Errno::ENOENT), Vec::new());
        };
        tests.values_mut().for_each(|test| test.serves = false);
        let runs = tests.values().filter_map(|test| test.run);
        (Told::Done, runs.map(|run| Action::Stop { run, force }).collect())
    }

    fn query(&self, batch: &str, number: u32) -> Told {
        let Some(tests) = self.batches.get(batch) else { return refused(Errno::ENOENT) };
        let asked = tests.iter().filter(|(own, _)| number == 0 || **own == number);
        Told::Running(asked.map(|(_, test)| test.live + u32::from(test.serves)).sum())
    }

    fn running(&self) -> u32 {
        self.tests().map(|test| test.live).sum()
    }

    fn tests(&self) -> impl Iterator<Item = &Test> {
        self.batches.values().flat_map(BTreeMap::values)
    }

    fn stat(&self, now: Instant) -> Stat {
        let counted = &self.counted;
        let done = |(count, bytes, latency): &(u64, u64, Histogram)| Done {
            count: *count,
            bytes: *bytes,
            latency: latency.to_pairs(),
        };
        Stat {
            now_ns: now.0,
            net: wire::lst::Net::default(),
            brw_errors: counted.brw_errors,
            ping_errors: counted.ping_errors,
            rpc_errors: counted.rpc_errors,
            rpc_dropped: counted.rpc_dropped,
            rpc_expired: counted.rpc_expired,
            running: self.running(),
            done: [done(&counted.done[0]), done(&counted.done[1]), done(&counted.done[2])],
        }
    }
}

/// Lustre's bounds: transfers of at most 1 MiB at offsets of whole words, 1 to 1,024 in flight.
fn is_valid(spec: TestSpec) -> bool {
    let sized = match spec.kind {
        Kind::Ping => true,
        Kind::Brw {
            check: Check::Full | Check::Simple | Check::Crc | Check::None | Check::Discard,
            size,
            offset,
            ..
        } => {
            (1..=BRW_BYTES_MAX).contains(&size)
                && offset.is_multiple_of(8)
                && offset < BRW_BYTES_MAX
        }
    };
    sized && (1..=CONCURRENCY_MAX).contains(&spec.concurrency) && spec.loops != Some(0)
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Span;

    const ONE: SessionId = SessionId { console: 1, stamp: 11 };
    const TWO: SessionId = SessionId { console: 2, stamp: 22 };
    const NOW: Instant = Instant(1_000);
    const PING: TestSpec = TestSpec { kind: Kind::Ping, loops: None, concurrency: 2 };

    fn ask(member: &mut Member, session: SessionId, ask: Ask) -> (Told, Vec<Action>) {
        member.handle(Control { session, ask }, NOW)
    }

    fn join(member: &mut Member, session: SessionId, force: bool) -> (Told, Vec<Action>) {
        ask(member, session, Ask::Join { name: format!("s{}", session.stamp), force })
    }

    fn with_test() -> Member {
        let mut member = Member::new();
        assert_eq!(join(&mut member, ONE, false), (Told::Done, vec![]));
        let with = vec![At { nid: 5, port: 988 }, At { nid: 6, port: 988 }];
        let add = Ask::AddTest { batch: "b".into(), test: 1, spec: PING, with };
        assert_eq!(ask(&mut member, ONE, add), (Told::Done, vec![]));
        member
    }

    fn run() -> Ask {
        Ask::Run { batch: "b".into() }
    }

    fn running(member: &mut Member) -> Told {
        ask(member, ONE, Ask::Query { batch: "b".into(), test: 0 }).0
    }

    #[test]
    fn a_node_is_in_one_session_at_a_time() {
        let mut member = with_test();
        assert_eq!(
            join(&mut member, ONE, false),
            (Told::Done, vec![]),
            "a repeated join changes nothing"
        );
        let busy = Told::Busy { name: "s11".into(), session: ONE };
        assert_eq!(join(&mut member, TWO, false), (busy.clone(), vec![]));
        assert_eq!(ask(&mut member, TWO, Ask::Stat), (busy, vec![]));
        ask(&mut member, ONE, run());
        let (told, actions) = join(&mut member, TWO, true);
        assert_eq!(
            (told, actions),
            (Told::Done, vec![Action::Stop { run: Run(1), force: true }, Action::Leave])
        );
        assert_eq!(member.session(), Some((TWO, "s22")));
    }

    #[test]
    fn a_refused_join_leaves_the_session_as_it_is() {
        let mut member = with_test();
        ask(&mut member, ONE, run());
        let nobody = SessionId { console: 3, stamp: 0 };
        assert_eq!(join(&mut member, nobody, true), (refused(Errno::EINVAL), vec![]));
        let name = "x".repeat(NAME_CHARS_MAX + 1);
        let long = ask(&mut member, TWO, Ask::Join { name, force: true });
        assert_eq!(long, (refused(Errno::EINVAL), vec![]));
        assert_eq!(running(&mut member), Told::Running(4));
    }

    /// Each test may name all nodes, and a session may have 65,536 tests.
    #[test]
    fn a_session_has_so_many_destinations() {
        let mut member = with_test();
        let add = |test: usize| Ask::AddTest {
            batch: format!("b{}", test / TESTS_MAX),
            test: (test % TESTS_MAX) as u32 + 9,
            spec: PING,
            with: vec![At { nid: 5, port: 988 }; NODES_MAX],
        };
        let all = (0..1_000).take_while(|test| ask(&mut member, ONE, add(*test)).0 == Told::Done);
        assert_eq!(all.count(), DESTINATIONS_MAX / NODES_MAX - 1, "two are there already");
        assert_eq!(ask(&mut member, ONE, add(1_000)).0, refused(Errno::E2BIG));
        let serves = Ask::AddTest { batch: "b".into(), test: 7, spec: PING, with: vec![] };
        assert_eq!(ask(&mut member, ONE, serves).0, Told::Done);
    }

    #[test]
    fn a_batch_runs_until_its_loops_have_ended() {
        let mut member = with_test();
        let (told, actions) = ask(&mut member, ONE, run());
        assert_eq!(told, Told::Done);
        assert!(
            matches!(&actions[..], [Action::Start { run: Run(1), with, .. }] if with.len() == 2)
        );
        assert_eq!(running(&mut member), Told::Running(4));
        assert_eq!(ask(&mut member, ONE, run()).0, refused(Errno::EBUSY));
        let stop = Ask::Stop { batch: "b".into(), force: false };
        assert_eq!(
            ask(&mut member, ONE, stop),
            (Told::Done, vec![Action::Stop { run: Run(1), force: false }])
        );
        (0..4).for_each(|_| member.loop_ended(Run(1)));
        assert_eq!(running(&mut member), Told::Running(0));
        assert!(matches!(&ask(&mut member, ONE, run()).1[..], [Action::Start { run: Run(2), .. }]));
        member.loop_ended(Run(1));
        assert_eq!(running(&mut member), Told::Running(4), "a loop of an older run is not news");
    }

    #[test]
    fn silence_ends_a_session_and_a_ping_keeps_it() {
        let mut member = with_test();
        ask(&mut member, ONE, run());
        let later = NOW + Span::secs(60);
        assert_eq!(member.handle(Control { session: ONE, ask: Ask::Ping }, later).0, Told::Done);
        assert_eq!(member.handle_timeout(NOW + MEMBER_SILENCE_MAX), vec![]);
        let end = later + MEMBER_SILENCE_MAX;
        assert_eq!(member.poll_timeout(), Some(end));
        assert_eq!(
            member.handle_timeout(end),
            vec![Action::Stop { run: Run(1), force: true }, Action::Leave]
        );
        assert_eq!(member.handle_timeout(end), vec![]);
        assert_eq!(ask(&mut member, ONE, Ask::Ping).0, Told::NoSession);
    }

    #[test]
    fn what_is_out_of_bounds_is_refused() {
        let brw = |size, offset| Kind::Brw { write: true, check: Check::Full, size, offset };
        let mut member = with_test();
        let mut number = 1;
        let mut add = |spec: TestSpec| {
            number += 1;
            ask(
                &mut member,
                ONE,
                Ask::AddTest { batch: "b".into(), test: number, spec, with: vec![] },
            )
            .0
        };
        for kind in [brw(0, 0), brw(BRW_BYTES_MAX + 1, 0), brw(4_096, 4), brw(8, BRW_BYTES_MAX)] {
            assert_eq!(add(TestSpec { kind, ..PING }), refused(Errno::EINVAL), "{kind:?}");
        }
        for spec in [
            TestSpec { concurrency: 0, ..PING },
            TestSpec { concurrency: 1_025, ..PING },
            TestSpec { loops: Some(0), ..PING },
        ] {
            assert_eq!(add(spec), refused(Errno::EINVAL));
        }
        assert_eq!(add(TestSpec { kind: brw(BRW_BYTES_MAX, 8), ..PING }), Told::Done);
        let with = vec![At { nid: 1, port: 1 }; 65];
        let wide = Ask::AddTest {
            batch: "wide".into(),
            test: 1,
            spec: TestSpec { concurrency: 1_024, ..PING },
            with,
        };
        assert_eq!(ask(&mut member, ONE, wide).0, Told::Done);
        assert_eq!(
            ask(&mut member, ONE, Ask::Run { batch: "wide".into() }).0,
            refused(Errno::E2BIG)
        );
        assert_eq!(
            ask(&mut member, ONE, Ask::Run { batch: "none".into() }).0,
            refused(Errno::ENOENT)
        );
    }

    #[test]
    fn counters_are_those_of_the_session() {
        let mut member = with_test();
        let brw = Kind::Brw { write: false, check: Check::None, size: 4_096, offset: 0 };
        member.count_done(ONE.stamp, brw, Span::micros(70));
        member.count_done(TWO.stamp, brw, Span::micros(70));
        member.count_wrong(ONE.stamp, brw);
        member.count_failed(ONE.stamp, true);
        let (Told::Stat(stat), _) = ask(&mut member, ONE, Ask::Stat) else { panic!("no counters") };
        assert_eq!(
            (stat.brw_errors, stat.ping_errors, stat.rpc_expired, stat.rpc_errors),
            (1, 0, 1, 0)
        );
        assert_eq!(
            (stat.done[1].count, stat.done[1].bytes, stat.done[1].latency.len()),
            (1, 4_096, 1)
        );
    }

    #[test]
    fn a_test_that_its_console_dropped_gives_its_number_to_another() {
        let mut member = with_test();
        let add = |concurrency| {
            let (batch, spec) = ("b".into(), TestSpec { concurrency, ..PING });
            Ask::AddTest { batch, test: 1, spec, with: vec![At { nid: 7, port: 988 }] }
        };
        assert_eq!(ask(&mut member, ONE, add(3)).0, Told::Done);
        ask(&mut member, ONE, run());
        assert_eq!(running(&mut member), Told::Running(3));
        assert_eq!(ask(&mut member, ONE, add(4)).0, refused(Errno::EEXIST), "it runs");
    }

    #[test]
    fn a_node_on_both_sides_of_a_test_runs_its_loops() {
        let mut member = with_test();
        let add = |with| Ask::AddTest { batch: "both".into(), test: 1, spec: PING, with };
        for with in [vec![], vec![At { nid: 5, port: 988 }], vec![]] {
            assert_eq!(ask(&mut member, ONE, add(with)).0, Told::Done);
        }
        assert_eq!(ask(&mut member, ONE, Ask::Run { batch: "both".into() }).1.len(), 1);
    }
}
