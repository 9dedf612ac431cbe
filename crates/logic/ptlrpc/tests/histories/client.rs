//! A driver of one import that checks the requests that it sends.

use std::collections::{BTreeMap, BTreeSet};

use ptlrpc::{Bugs, Event, Handled, Import, ImportConfig, Keep, State, Submit, XidSource};
use types::{ClientId, Instant, Span, TargetId, TargetKind};
use wire::{Opcode, Reply, Request, RequestFlags, encode_body};

const TARGET: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };
const TAGS: u32 = 3;

pub(crate) struct Client {
    import: Import<(), Option<u64>>,
    link: u32,
    connecting: Option<u64>,
    acknowledged: BTreeSet<u64>,
    /// Tags of unanswered changes, by request.
    tags: BTreeMap<u32, u64>,
    /// Newest request of each tag.
    newest: BTreeMap<u32, u64>,
    /// Index and transno of the last replay on this connection.
    replayed: (u32, u64),
}

impl Client {
    pub(crate) fn new(id: usize, now: Instant) -> Client {
        let config = ImportConfig {
            client: ClientId(id as u128 + 1),
            name: format!("client{id}"),
            is_server: false,
            attempt: Span::secs(3),
            rpcs_in_flight: 4,
            tags: TAGS,
            ping_every: Span::secs(10),
            ping_dirty: Span::secs(1),
            reconnect_min: Span::millis(50),
            reconnect_max: Span::secs(1),
            bugs: Bugs::default(),
        };
        Client {
            import: Import::new(TARGET, config, XidSource::new(1), now),
            link: 0,
            connecting: None,
            acknowledged: BTreeSet::new(),
            tags: BTreeMap::new(),
            newest: BTreeMap::new(),
            replayed: (0, 0),
        }
    }

    pub(crate) fn link(&self) -> u32 {
        self.link
    }

    pub(crate) fn change(&mut self, number: u64, now: Instant) {
        let mut request = Request::new(Opcode::MdtSetattr, vec![encode_body(&number)]);
        request.header.flags = RequestFlags::MODIFIES;
        self.import.submit(
            Submit {
                request: Box::new(request),
                bulk: (),
                waiter: Some(number),
                keep: Keep::No,
                urgent: false,
            },
            now,
        );
    }

    pub(crate) fn read(&mut self, now: Instant) {
        let request = Request::new(Opcode::MdtGetattr, Vec::new());
        self.import.submit(
            Submit {
                request: Box::new(request),
                bulk: (),
                waiter: None,
                keep: Keep::No,
                urgent: false,
            },
            now,
        );
    }

    pub(crate) fn break_link(&mut self, now: Instant) {
        self.link += 1;
        self.connecting = None;
        self.import.handle_disconnect(now);
    }

    pub(crate) fn handle(&mut self, link: u32, reply: Reply, now: Instant) {
        if link != self.link {
            return;
        }
        if self.connecting.take_if(|xid| *xid == reply.header.xid).is_some() {
            self.import.handle_connected(&reply, now).expect("the server is correct");
            return;
        }
        match self.import.handle_reply(Box::new(reply), now).expect("the server is correct") {
            Handled::Progress => {}
            Handled::Reconnect => self.link += 1,
            Handled::Done(done) => {
                assert_eq!(done.reply.errno(), None);
                self.tags.retain(|_, xid| *xid != done.xid.0);
                if let Some(number) = done.waiter.expect("who asked waits") {
                    assert!(self.acknowledged.insert(number), "acknowledged twice");
                }
            }
        }
    }

    /// Time, events, and what is to be sent.
    pub(crate) fn pump(&mut self, now: Instant) -> Vec<Request> {
        if self.import.handle_timeout(now) {
            self.link += 1;
            self.connecting = None;
        }
        let mut out = Vec::new();
        if let Some(connect) = self.import.poll_connect(now, 0) {
            self.connecting = Some(connect.header.xid);
            self.replayed = (0, 0);
            out.push(connect);
        }
        loop {
            match self.import.poll_event() {
                Some(Event::AskRestate) => self.import.restated(),
                Some(Event::Full) => {}
                Some(
                    event @ (Event::Evicted
                    | Event::Lost(_)
                    | Event::Undone { .. }
                    | Event::Voided
                    | Event::Withdrawn { .. }),
                ) => {
                    panic!("nobody is evicted or refused here: {event:?}")
                }
                None => break,
            }
        }
        while let Some(transmit) = self.import.poll_transmit(now) {
            out.push(transmit.request.clone());
        }
        out.iter().for_each(|request| self.check(request));
        out
    }

    fn check(&mut self, request: &Request) {
        let header = &request.header;
        if request.has(RequestFlags::REPLAY) && header.transno != 0 {
            let (index, transno) = self.replayed;
            assert!(
                header.replay_index == index + 1 && header.transno > transno,
                "replays follow history"
            );
            self.replayed = (header.replay_index, header.transno);
        } else if request.has(RequestFlags::MODIFIES) {
            assert!((1..=TAGS).contains(&header.tag));
            let holder = *self.tags.entry(header.tag).or_insert(header.xid);
            assert_eq!(holder, header.xid, "two unanswered requests share a tag");
            let newest = self.newest.entry(header.tag).or_default();
            assert!(header.xid >= *newest, "xids of a tag rise");
            *newest = header.xid;
        }
    }

    /// Nobody waits, and everything is known to be durable.
    pub(crate) fn is_idle(&self) -> bool {
        let rests = matches!(self.import.state(), State::Full | State::New);
        rests && self.import.pending() == 0 && self.import.kept() == 0
    }

    pub(crate) fn acknowledged(&self) -> impl Iterator<Item = u64> {
        self.acknowledged.iter().copied()
    }
}
