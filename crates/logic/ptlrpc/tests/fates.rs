//! The fate of changes that do not survive at their target, or that no caller waits for any more.

use std::rc::Rc;

use ptlrpc::{Event, Handled, Import, ImportConfig, Keep, Submit, Undone, XidSource, limits};
use types::{Errno, Instant, Span, TargetId, Xid};
use wire::body::{AttrRep, Disposition, OpenReq};
use wire::body::{CancelRep, CancelReq, ConnectRep, cancel, connect};
use wire::{Opcode, Reply, ReplyFlags, Request, RequestFlags, encode_body};

const NOW: Instant = Instant(1_000_000_000);

struct World {
    import: Import<(), u64>,
    sessions: u64,
    lease_secs: u32,
    /// Of the answer to Connect.
    floor: u64,
}

impl World {
    /// Connected to the first run of a target.
    fn new() -> World {
        let import = Import::new(TargetId::ost(0), ImportConfig::default(), XidSource::new(1), NOW);
        let mut world = World { import, sessions: 0, lease_secs: 0, floor: 0 };
        world.submit(0, Keep::No);
        world.connect(connect::NEW, 1, 0);
        world.answer(0);
        world
    }

    fn submit(&mut self, number: u64, keep: Keep) {
        let mut request = Request::new(Opcode::OstWrite, vec![encode_body(&number)]);
        request.header.flags = RequestFlags::MODIFIES;
        self.import.submit(
            Submit { request: Box::new(request), bulk: (), waiter: number, keep, urgent: false },
            NOW,
        );
    }

    /// Breaks the link if there is one, and connects with this outcome.
    fn connect(&mut self, outcome: u32, instance: u64, committed: u64) {
        self.import.handle_disconnect(NOW);
        let request = self.import.poll_connect(NOW, 0).expect("it wants to");
        let resumes = matches!(outcome, connect::RESUMED | connect::RECOVER);
        self.sessions += u64::from(!resumes);
        let body = ConnectRep {
            session: self.sessions,
            instance,
            last_committed: committed,
            outcome,
            epoch: 1,
            tags: 8 + limits::GIVING_UP_MAX,
            rpcs_in_flight: 8,
            lease_secs: self.lease_secs,
            store: 77,
            ..ConnectRep::default()
        };
        let mut reply = Reply::ok(&request.header, vec![encode_body(&body)]);
        reply.header.floor = self.floor;
        self.import.handle_connected(&reply, NOW).expect("a correct server");
    }

    /// Sends the next request and answers it.
    fn answer_as(&mut self, transno: u64, status: Option<Errno>) {
        let header = self.import.poll_transmit(NOW).expect("something to send").request.header;
        let mut reply = match status {
            None => Reply::ok(&header, Vec::new()),
            Some(errno) => Reply::error(&header, errno),
        };
        (reply.header.transno, reply.header.instance) = (transno, header.instance);
        let handled = self.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
        assert!(!matches!(handled, Handled::Reconnect));
    }

    fn answer(&mut self, transno: u64) {
        self.answer_as(transno, None);
    }

    fn change(&mut self, transno: u64) {
        self.submit(transno, Keep::No);
        self.answer(transno);
    }

    /// Transnos of the changes that are told to be undone, and why.
    fn undone(&mut self) -> Vec<(Vec<u64>, Undone)> {
        let mut all = Vec::new();
        while let Some(event) = self.import.poll_event() {
            if let Event::Undone { changes, why } = event {
                let transnos = changes.iter().map(|change| change.header.transno).collect();
                all.push((transnos, why));
            }
        }
        all
    }
}

#[test]
fn an_eviction_by_a_restarted_target_tells_what_was_not_durable() {
    let mut world = World::new();
    [10, 11, 12].into_iter().for_each(|transno| world.change(transno));
    world.submit(13, Keep::No); // never answered: its caller is told
    world.import.poll_transmit(NOW).expect("it is sent");
    // others replayed beyond 12: that says nothing of what nobody replayed
    world.connect(connect::EVICTED, 2, 20);
    assert_eq!(world.undone(), [(vec![10, 11, 12], Undone::Evicted)]);
    assert_eq!(world.import.kept(), 0);
}

/// Others go on without its changes, and what they do is durable before this client is back.
#[test]
fn an_eviction_amid_a_recovery_tells_what_was_not_durable_unless_all_was_repeated() {
    for repeats in [false, true] {
        let mut world = World::new();
        [10, 11, 12].into_iter().for_each(|transno| world.change(transno));
        world.connect(connect::RECOVER, 2, 10);
        let mut replays = Vec::new();
        while let Some(transmit) = world.import.poll_transmit(NOW) {
            let mut reply = Reply::ok(&transmit.request.header, Vec::new());
            reply.header.instance = 2;
            replays.push(reply);
        }
        assert_eq!(replays.len(), 2);
        let answered = if repeats { 2 } else { 1 };
        for reply in replays.into_iter().take(answered) {
            world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
        }
        world.connect(connect::EVICTED, 2, 20);
        let lost = [(vec![11, 12], Undone::Evicted)];
        assert_eq!(world.undone(), if repeats { &[][..] } else { &lost[..] });
        assert_eq!(world.import.kept(), 0);
    }
}

/// It was acknowledged by the client itself, by a right that it has no more.
#[test]
fn an_urgent_change_that_was_not_sent_ends_with_its_session() {
    let mut world = World::new();
    world.change(10);
    for (waiter, urgent) in [(1, true), (2, false)] {
        let request = Box::new(Request::new(Opcode::MdtSetattr, Vec::new()));
        let mut submit = Submit { request, bulk: (), waiter, keep: Keep::No, urgent };
        submit.request.header.flags |= RequestFlags::MODIFIES;
        world.import.submit(submit, NOW);
    }
    world.connect(connect::EVICTED, 1, 10);
    let events: Vec<_> = std::iter::from_fn(|| world.import.poll_event()).collect();
    let lost = |event: &_| matches!(event, Event::Lost(1));
    assert_eq!(events.iter().filter(|event| lost(event)).count(), 1, "{events:?}");
    assert!(!events.iter().any(|event| matches!(event, Event::Lost(2))), "its caller waits");
    assert!(world.import.poll_transmit(NOW).is_some(), "the other one");
    assert!(world.import.poll_transmit(NOW).is_none());
}

#[test]
fn an_eviction_by_a_target_that_runs_on_undoes_nothing_yet() {
    let mut world = World::new();
    [10, 11, 12].into_iter().for_each(|transno| world.change(transno));
    world.connect(connect::EVICTED, 1, 10);
    assert_eq!((world.undone(), world.import.kept()), (vec![], 0));
    // its next commit holds 11; then it restarts, and 12 is lost, whatever becomes of the session
    world.change(14);
    world.submit(15, Keep::No);
    let header = world.import.poll_transmit(NOW).expect("it is sent").request.header;
    let mut reply = Reply::ok(&header, Vec::new());
    (reply.header.transno, reply.header.instance, reply.header.last_committed) = (15, 1, 11);
    world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
    world.connect(connect::RECOVER, 2, 11);
    assert_eq!(world.undone(), [(vec![12], Undone::Evicted)]);
    assert_eq!(world.import.kept(), 2);
}

#[test]
fn a_replay_that_is_refused_is_told_once_and_not_repeated() {
    let mut world = World::new();
    [10, 11].into_iter().for_each(|transno| world.change(transno));
    world.connect(connect::RECOVER, 2, 0);
    world.answer_as(0, Some(Errno::ENOSPC));
    world.answer(11);
    assert_eq!(world.undone(), [(vec![10], Undone::Refused(Errno::ENOSPC))]);
    world.connect(connect::RECOVER, 3, 0);
    let again = world.import.poll_transmit(NOW).expect("the other one").request.header.transno;
    assert_eq!((again, world.import.kept()), (11, 1));
}

/// Submits a change and gives its number, sent or not.
fn begin(world: &mut World, number: u64, is_sent: bool) -> Xid {
    let mut request = Request::new(Opcode::OstWrite, vec![encode_body(&number)]);
    request.header.flags = RequestFlags::MODIFIES;
    let submit = Submit {
        request: Box::new(request),
        bulk: (),
        waiter: number,
        keep: Keep::No,
        urgent: false,
    };
    let xid = world.import.submit(submit, NOW);
    if is_sent {
        assert_eq!(world.sent().expect("it is sent").xid(), xid);
    }
    xid
}

impl World {
    fn sent(&mut self) -> Option<Request> {
        self.import.poll_transmit(NOW).map(|transmit| transmit.request.clone())
    }

    /// Answers a Cancel.
    fn cancelled(&mut self, request: &Request, outcome: u32) {
        let body = encode_body(&CancelRep { outcome, reserved: 0 });
        let mut reply = Reply::ok(&request.header, vec![body]);
        reply.header.instance = request.header.instance;
        self.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
    }

    fn withdrawn(&mut self) -> Vec<u64> {
        std::iter::from_fn(|| self.import.poll_event())
            .filter_map(|event| match event {
                Event::Withdrawn { waiter, .. } => Some(waiter),
                _ => None,
            })
            .collect()
    }
}

#[test]
fn a_change_whose_caller_is_gone_is_not_sent_again() {
    let mut world = World::new();
    let never_sent = begin(&mut world, 1, false);
    assert_eq!(world.import.abandon(never_sent), Some(1));
    assert!(world.sent().is_none());

    let xid = begin(&mut world, 2, true);
    assert_eq!(world.import.abandon(xid), None, "its fate is not known");
    for _ in 0..2 {
        let cancel = world.sent().expect("the target is asked, on each connection");
        let body: CancelReq = cancel.body();
        assert_eq!((cancel.opcode(), body.xid, body.tag != 0), (Opcode::Cancel, xid.0, true));
        assert!(world.sent().is_none());
        world.connect(connect::RESUMED, 1, 0);
    }
    let cancel = world.sent().expect("once more");
    world.cancelled(&cancel, cancel::DROPPED);
    assert_eq!((world.withdrawn(), world.import.pending()), (vec![2], 0));
    world.connect(connect::RESUMED, 1, 0);
    assert!(world.sent().is_none());
}

#[test]
fn a_change_that_had_begun_is_answered_and_kept_though_its_caller_is_gone() {
    let mut world = World::new();
    let xid = begin(&mut world, 2, true);
    world.import.abandon(xid);
    let cancel = world.sent().expect("the target is asked");
    world.cancelled(&cancel, cancel::EXECUTED);
    assert_eq!((world.withdrawn(), world.import.pending()), (vec![], 1));
    let mut reply = Reply::ok(&cancel.header, Vec::new());
    (reply.header.xid, reply.header.transno, reply.header.instance) = (xid.0, 10, 1);
    let handled = world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
    assert!(matches!(handled, Handled::Done(done) if done.waiter == Some(2)));
    assert_eq!((world.import.pending(), world.import.kept()), (0, 1));
}

#[test]
fn a_request_that_the_target_has_no_room_for_is_asked_again_as_it_was() {
    let mut world = World::new();
    world.submit(1, Keep::No);
    world.submit(2, Keep::No);
    let busy = |world: &mut World, at: Instant, pause_ms: u32| {
        let header = world.import.poll_transmit(at).expect("something to send").request.header;
        let mut reply = Reply::error(&header, Errno::EAGAIN);
        (reply.header.flags, reply.header.lease_ms) = (ReplyFlags::BUSY, pause_ms);
        reply.header.instance = header.instance;
        let handled = world.import.handle_reply(Box::new(reply), at).expect("a correct server");
        assert!(matches!(handled, Handled::Progress), "its caller hears nothing of it");
        (header.xid, header.tag)
    };
    let first = busy(&mut world, NOW, 250);
    world.answer(7); // others go on meanwhile
    assert!(world.import.poll_transmit(NOW).is_none());
    let again = NOW + Span::millis(250);
    assert!(world.import.poll_timeout().expect("it asks again") <= again);
    assert!(!world.import.handle_timeout(again), "no failure");
    assert_eq!(busy(&mut world, again, u32::MAX), first, "the same request on the same tag");
    // an answer that names no time, or a day, is no reason to ask at once or never
    let late = again + limits::BUSY_RETRY_MAX;
    assert!(!world.import.handle_timeout(late));
    world.answer(0); // a ping
    assert_eq!(busy(&mut world, late, 0), first);
    assert!(!world.import.handle_timeout(late + Span::millis(9)));
    assert!(world.import.poll_transmit(late + Span::millis(9)).is_none());
    assert!(!world.import.handle_timeout(late + Span::millis(10)));
    assert!(world.import.poll_transmit(late + Span::millis(10)).is_some());
}

#[test]
fn a_session_holds_what_it_has_for_its_lease() {
    let mut world = World::new();
    let at = |ms: u64| NOW + types::Span::millis(ms);
    assert!(world.import.is_leased(at(1_000_000)), "without a lease it holds for ever");
    world.lease_secs = 10;
    world.connect(connect::RESUMED, 1, 0);
    assert!(world.import.is_leased(at(9_999)) && !world.import.is_leased(at(10_000)));
    world.import.handle_disconnect(NOW);
    assert!(!world.import.is_leased(NOW), "nobody says that it is held");
    world.connect(connect::RESUMED, 1, 0);
    let claim = world.import.claim();
    assert_eq!((claim.session, claim.store), (1, 77));
    world.import.renounce(2, NOW);
    assert!(world.import.is_leased(NOW), "that is not its session");
    world.import.renounce(1, NOW);
    assert!(!world.import.is_leased(NOW), "it was given up");
}

#[test]
fn a_floor_that_rises_is_told_once_with_whatever_reply_it_comes() {
    let mut world = World::new();
    let voided = |world: &mut World| {
        let events = std::iter::from_fn(|| world.import.poll_event());
        events.filter(|event| *event == Event::Voided).count()
    };
    let floor_of = |world: &World| world.import.lease(NOW).floor;
    let reply = |world: &World, xid: u64, floor: u64, flags: ReplyFlags| {
        let mut reply = Box::new(Reply::default());
        (reply.header.xid, reply.header.floor, reply.header.flags) = (xid, floor, flags);
        reply.header.instance = world.import.instance().0;
        reply
    };
    assert_eq!((voided(&mut world), floor_of(&world)), (0, 0));
    world.submit(1, Keep::No);
    let xid = world.sent().expect("it is sent").header.xid;
    for (xid, floor, flags, told) in [
        (xid, 0, ReplyFlags::EARLY, 0),
        (xid, 7, ReplyFlags::EARLY, 1),
        (xid, 7, ReplyFlags::empty(), 0),
        (xid, 9, ReplyFlags::empty(), 1), // again, and nobody waits for it
        (xid, 8, ReplyFlags::empty(), 0), // it was overtaken
    ] {
        let reply = reply(&world, xid, floor, flags);
        world.import.handle_reply(reply, NOW).expect("a correct server");
        assert_eq!(voided(&mut world), told, "floor {floor}");
    }
    assert_eq!(floor_of(&world), 9);
    world.lease_secs = 10;
    world.connect(connect::RESUMED, 1, 0);
    assert_eq!((voided(&mut world), floor_of(&world)), (0, 9), "that reply has none");
    let lapses = world.import.lease(NOW).lapses;
    world.floor = 12;
    world.connect(connect::RESUMED, 1, 0);
    assert_eq!((voided(&mut world), floor_of(&world)), (1, 12), "nothing else was sent");
    assert_eq!(world.import.lease(NOW).lapses, lapses, "by its own clock the lease lasts");
}

#[test]
fn an_early_reply_says_for_whom_a_request_waits() {
    let mut world = World::new();
    world.submit(1, Keep::No);
    let xid = world.sent().expect("it is sent").header.xid;
    let reply = |world: &World, flags: ReplyFlags, said: &[&'static [u8]]| {
        let mut reply = Box::new(Reply::default());
        (reply.header.xid, reply.header.flags) = (xid, flags);
        reply.header.instance = world.import.instance().0;
        reply.bufs = said.iter().copied().map(bytes::Bytes::from_static).collect();
        reply
    };
    const LONG: &[u8] = &[b'c'; 1_000];
    let cut = "c".repeat(256);
    let cases: [(&[&'static [u8]], Option<&str>); 4] = [
        (&[], None),
        (&[b"c7,\n c8"], Some("c7, c8")),
        (&[], Some("c7, c8")),
        (&[LONG], Some(&cut)),
    ];
    for (said, heard) in cases {
        let early = reply(&world, ReplyFlags::EARLY, said);
        world.import.handle_reply(early, NOW).expect("a correct server");
        assert_eq!(world.import.awaits(), heard);
    }
    let answer = reply(&world, ReplyFlags::empty(), &[]);
    world.import.handle_reply(answer, NOW).expect("a correct server");
    assert_eq!(world.import.awaits(), None, "it is answered");
}

#[test]
fn changes_are_unconfirmed_until_a_commit_is_told() {
    let mut world = World::new();
    [10, 11].into_iter().for_each(|transno| world.change(transno));
    let unconfirmed = |world: &World| -> Vec<u64> {
        world.import.unconfirmed().map(|request| request.header.transno).collect()
    };
    assert_eq!((unconfirmed(&world), world.import.instance().0), (vec![10, 11], 1));
    assert!(world.import.replay_bytes() > 1 && world.import.is_connected());
    world.connect(connect::RESUMED, 1, 10);
    assert_eq!((unconfirmed(&world), world.import.last_committed().0), (vec![11], 10));
    let (waiters, disconnect) = world.import.shut_down(NOW);
    assert_eq!(waiters, [0; 0]);
    let header = disconnect.expect("a session is open").header;
    assert_eq!((header.session, header.deadline_ms > 1), (1, true));
    assert!(!world.import.is_connected() && world.import.replay_bytes() == 0);
}

#[test]
fn the_bytes_that_came_with_an_open_are_not_kept_for_its_replay() {
    let mut world = World::new();
    let mut open = Request::new(Opcode::MdtOpen, vec![encode_body(&1u64)]);
    open.header.flags = RequestFlags::MODIFIES;
    let request = Box::new(open);
    world
        .import
        .submit(Submit { request, bulk: (), waiter: 1, keep: Keep::Open, urgent: false }, NOW);
    let header = world.import.poll_transmit(NOW).expect("something to send").request.header;
    let mut reply = Reply::ok(&header, vec![encode_body(&2u64); 3]);
    (reply.header.transno, reply.header.instance) = (10, header.instance);
    let _done = world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
    let bufs = |request: &Request| (request.header.replay_bufs, request.bufs.len());
    assert_eq!(world.import.unconfirmed().map(bufs).collect::<Vec<_>>(), [(2, 3)]);
}

#[test]
fn an_open_that_leads_to_another_mdt_is_not_repeated() {
    let mut world = World::new();
    // a create has a transno, also where the name is there; both are durable when they are answered
    let answers = [(Disposition::REMOTE, 0), (Disposition::REMOTE, 10), (Disposition::empty(), 11)];
    for (waiter, (disposition, transno)) in (1..).zip(answers) {
        let mut create = Request::new(Opcode::MdtCreate, vec![encode_body(&1u64)]);
        create.header.flags = RequestFlags::MODIFIES;
        let request = Box::new(create);
        world
            .import
            .submit(Submit { request, bulk: (), waiter, keep: Keep::Open, urgent: false }, NOW);
        let header = world.import.poll_transmit(NOW).expect("something to send").request.header;
        let body = AttrRep { disposition, ..AttrRep::default() };
        let mut reply = Reply::ok(&header, vec![encode_body(&body)]);
        reply.header.instance = header.instance;
        (reply.header.transno, reply.header.last_committed) = (transno, transno);
        world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
        assert_eq!(
            world.import.kept() > 0,
            disposition.is_empty(),
            "there is no handle to be had again"
        );
    }
}

#[test]
fn the_handle_of_an_open_that_is_no_change_is_stated_until_it_is_closed() {
    let mut world = World::new();
    let send = |world: &mut World, request: Request, keep: Keep, transno: u64| -> Xid {
        let mut request = Box::new(request);
        request.header.flags = RequestFlags::MODIFIES;
        let submit = Submit { request, bulk: (), waiter: 1, keep, urgent: false };
        let xid = world.import.submit(submit, NOW);
        let header = world.import.poll_transmit(NOW).expect("something to send").request.header;
        let body = AttrRep { handle: xid.0, ..AttrRep::default() };
        let mut reply = Reply::ok(&header, vec![encode_body(&body)]);
        (reply.header.transno, reply.header.instance) = (transno, header.instance);
        world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
        xid
    };
    let open = || {
        let body = OpenReq { open_flags: 32, restates: 1, ..OpenReq::default() };
        Request::new(Opcode::MdtOpen, vec![encode_body(&body)])
    };
    let close = || Request::new(Opcode::MdtClose, Vec::new());
    let stated = |world: &World| -> Vec<(u64, u32)> {
        let opens = world.import.stated_opens();
        opens.iter().map(|open| (open.handle, open.open_flags)).collect()
    };
    let older = send(&mut world, open(), Keep::Open, 10);
    let handle = send(&mut world, open(), Keep::Open, 0);
    assert_eq!((stated(&world), world.import.kept()), (vec![(handle.0, 32)], 1));
    send(&mut world, close(), Keep::Close { open: older }, 11);
    assert_eq!(stated(&world).len(), 1);
    send(&mut world, close(), Keep::Close { open: handle }, 12);
    assert!(stated(&world).is_empty(), "though the close is not durable");
    assert_eq!(world.import.kept(), 3);
}

#[test]
fn a_refused_close_that_is_tried_in_another_way_leaves_its_open() {
    for is_tried_again in [false, true] {
        let mut world = World::new();
        let mut send = |opcode: Opcode, keep: Keep, transno: u64| -> Xid {
            let mut request = Box::new(Request::new(opcode, Vec::new()));
            request.header.flags = RequestFlags::MODIFIES;
            let submit = Submit { request, bulk: (), waiter: 1, keep, urgent: false };
            let xid = world.import.submit(submit, NOW);
            let header = world.import.poll_transmit(NOW).expect("something to send").request.header;
            let mut reply = match transno {
                0 => Reply::error(&header, Errno::EOPNOTSUPP),
                _ => Reply::ok(&header, Vec::new()),
            };
            (reply.header.transno, reply.header.instance) = (transno, header.instance);
            reply.header.last_committed = 10;
            world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
            xid
        };
        let open = send(Opcode::MdtOpen, Keep::Open, 10);
        let keep = match is_tried_again {
            true => Keep::Closes { opens: Rc::new(vec![open]) },
            false => Keep::Close { open },
        };
        send(Opcode::MdtClose, keep, 0);
        assert_eq!(world.import.kept(), usize::from(is_tried_again));
    }
}

#[test]
fn a_queue_has_a_bound() {
    let mut world = World::new();
    let before = ptlrpc::limits::QUEUED_MAX - 1;
    (0..before).for_each(|_| world.submit(1, Keep::No));
    assert!(!world.import.is_full());
    world.submit(1, Keep::No);
    assert!(world.import.is_full());
    let (waiters, _) = world.import.shut_down(NOW);
    assert_eq!((waiters.len(), world.import.is_full()), (before + 1, false));
}

#[test]
fn what_gives_something_up_has_a_place_when_all_others_are_taken() {
    let sent = |world: &mut World| {
        let next = || world.import.poll_transmit(NOW).map(|sent| sent.request.opcode());
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    let give_up = |world: &mut World, number| {
        let request = Box::new(Request::new(Opcode::MdtAck, Vec::new()));
        let submit = Submit { request, bulk: (), waiter: number, keep: Keep::No, urgent: false };
        world.import.submit(submit, NOW)
    };
    let mut world = World::new();
    (1..=20).for_each(|number| world.submit(number, Keep::No));
    assert_eq!(sent(&mut world), [Opcode::OstWrite; 8], "all that the target allows");
    let most = limits::GIVING_UP_MAX as usize;
    let acks: Vec<Xid> = (0..=most as u64).map(|number| give_up(&mut world, number)).collect();
    assert_eq!(sent(&mut world), vec![Opcode::MdtAck; most]);
    assert_eq!(world.import.abandon(acks[most]), None, "it goes on without its caller");

    let mut header = Request::new(Opcode::MdtAck, Vec::new()).header;
    (header.xid, header.instance) = (acks[0].0, 1);
    let mut answer = |flags| {
        let mut reply = Reply::ok(&header, Vec::new());
        (reply.header.instance, reply.header.flags) = (1, flags);
        reply.header.lease_ms = 100;
        world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
        sent(&mut world)
    };
    assert_eq!(answer(ReplyFlags::BUSY), [Opcode::MdtAck], "the next one has its place");
    assert_eq!(answer(ReplyFlags::empty()), [], "an answer to none that is out");
    world.connect(connect::RESUMED, 1, 0);
    let again = sent(&mut world);
    assert_eq!(again[..=most], vec![Opcode::MdtAck; most + 1], "first on the next connection");
    assert_eq!(again[most + 1..], [Opcode::OstWrite; 7], "one of them had a place of the others");
}

#[test]
fn a_change_that_others_wait_for_has_such_a_place() {
    let mut world = World::new();
    (1..=20).for_each(|number| world.submit(number, Keep::No));
    let next = |world: &mut World| {
        let sent = world.import.poll_transmit(NOW)?;
        Some((sent.request.opcode(), sent.request.header.tag))
    };
    let before: Vec<_> = std::iter::from_fn(|| next(&mut world)).collect();
    assert_eq!(before.len(), 8, "all that the target allows");
    let mut request = Request::new(Opcode::MdtSetattr, Vec::new());
    request.header.flags = RequestFlags::MODIFIES;
    let request = Box::new(request);
    let submit = Submit { request, bulk: (), waiter: 21, keep: Keep::No, urgent: true };
    world.import.submit(submit, NOW);
    let (opcode, tag) = next(&mut world).expect("it does not wait for the others");
    assert!(opcode == Opcode::MdtSetattr && tag > 0);
    assert!(before.iter().all(|(_, other)| *other != tag), "a tag of its own");
    assert_eq!(next(&mut world), None);
}

fn unlock(world: &mut World, number: u64) -> Xid {
    let mut request = Request::new(Opcode::MdtUnlock, Vec::new());
    request.header.flags = RequestFlags::MODIFIES;
    let submit = Submit {
        request: Box::new(request),
        bulk: (),
        waiter: number,
        keep: Keep::No,
        urgent: false,
    };
    world.import.submit(submit, NOW)
}

/// Simulated seed 6 of `fence`.
#[test]
fn an_unlock_that_was_sent_is_lost_with_its_session() {
    for renounces in [true, false] {
        let mut world = World::new();
        unlock(&mut world, 1);
        world.import.poll_transmit(NOW).expect("it is sent");
        unlock(&mut world, 2);
        if renounces {
            world.import.renounce(1, NOW);
            world.connect(connect::NEW, 1, 0);
        } else {
            world.connect(connect::EVICTED, 1, 0);
        }
        let lost: Vec<u64> = std::iter::from_fn(|| world.import.poll_event())
            .filter_map(|event| match event {
                Event::Lost(waiter) => Some(waiter),
                _ => None,
            })
            .collect();
        assert_eq!(lost, [1]);
        assert!(world.import.poll_transmit(NOW).is_some(), "the one that had not been sent");
        assert!(world.import.poll_transmit(NOW).is_none());
    }
}

#[test]
fn an_unlock_waits_for_no_change_and_has_a_tag_of_its_own() {
    let mut world = World::new();
    (1..=20).for_each(|number| world.submit(number, Keep::No));
    let sent = |world: &mut World| {
        let next = || {
            let header = world.import.poll_transmit(NOW)?.request.header;
            Some((Opcode::from_u16(header.opcode).expect("known"), header.tag))
        };
        std::iter::from_fn(next).collect::<Vec<_>>()
    };
    let mut tags = Vec::new();
    for (opcode, tag) in sent(&mut world) {
        assert_eq!(opcode, Opcode::OstWrite);
        tags.push(tag);
    }
    assert_eq!(tags.len(), 8, "all that the target allows");
    let most = limits::GIVING_UP_MAX as usize;
    let unlocks: Vec<Xid> = (0..=most as u64).map(|number| unlock(&mut world, number)).collect();
    for (opcode, tag) in sent(&mut world) {
        assert_eq!(opcode, Opcode::MdtUnlock);
        tags.push(tag);
    }
    assert_eq!(tags.len(), 8 + most);
    tags.sort_unstable();
    tags.dedup();
    assert!(tags.len() == 8 + most && tags[0] > 0, "{tags:?}");

    let mut header = Request::new(Opcode::MdtUnlock, Vec::new()).header;
    (header.xid, header.instance) = (unlocks[0].0, 1);
    let mut reply = Reply::ok(&header, Vec::new());
    reply.header.instance = 1;
    world.import.handle_reply(Box::new(reply), NOW).expect("a correct server");
    assert_eq!(sent(&mut world).len(), 1, "the next one has its place and its tag");
}

#[test]
fn a_connect_that_came_to_nobody_is_followed_by_another_in_the_time_that_a_silent_client_has() {
    let mut world = World::new();
    world.import.handle_disconnect(NOW);
    let mut tries = vec![];
    let mut now = NOW;
    while tries.len() < 8 {
        if world.import.poll_connect(now, 0).is_some() {
            tries.push(now);
        }
        now = world.import.poll_timeout().expect("it tries again").max(now);
        world.import.handle_timeout(now);
    }
    let longest = tries.windows(2).map(|pair| pair[1] - pair[0]).max().expect("several");
    assert!(longest < limits::SILENT_RETURN, "{longest:?}");
}
