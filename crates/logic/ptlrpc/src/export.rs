//! A target's side of one session: which requests execute, which answers are kept, and which answer
//! a duplicate gets.
//!
//! Invariants
//! - A modifying xid is admitted to execution at most once (replays have a rule of their own, see
//!   `recovery`).
//! - One request of an xid executes at a time. A duplicate is reported as such, and the xid is
//!   answered once.
//! - For each tag, the newest xid is known for ever; its answer is known until the client has
//!   acknowledged it.

use std::collections::{BTreeMap, BTreeSet};

use queues::Ascending;
use types::Xid;
use wire::{Reply, RequestFlags, RequestHeader};

struct Record {
    xid: Xid,
    reply: Option<Reply>,
}

/// What to do with a request.
#[derive(Debug, PartialEq, Eq)]
pub enum Admission {
    /// Execute it; [`Export::finished`] follows.
    Execute,
    /// The same xid executes now: do not start it again, its answer serves both.
    Executing,
    /// It was executed: this is the answer.
    Answered(Reply),
    /// Older than what its tag holds, or acknowledged: drop it, nobody waits for it.
    Stale,
    /// A tag out of range: the peer misbehaves.
    BadTag,
}

/// What becomes of a change that its client takes back.
#[derive(Debug, PartialEq, Eq)]
pub enum Cancelled {
    /// It has not begun; when it arrives it is stale.
    Dropped,
    /// It is executed now: its answer follows.
    Executing,
    /// It was executed: this is the answer.
    Answered(Reply),
    /// Its answer has arrived already.
    Stale,
    /// A tag out of range: the peer misbehaves.
    BadTag,
}

/// Reply records and executing requests of one session; `E` is what the driver knows of an
/// executing one.
pub struct Export<E> {
    tags_max: u32,
    acked: Xid,
    executing: Ascending<Xid, E>,
    records: BTreeMap<u32, Record>,
    /// Opens answered by an earlier instance whose handles were made anew.
    reopened: BTreeSet<Xid>,
}

impl<E> Export<E> {
    /// Tags are `1..=tags_max`.
    #[must_use]
    pub fn new(tags_max: u32) -> Export<E> {
        Export {
            tags_max,
            acked: Xid(0),
            executing: Ascending::new(),
            records: BTreeMap::new(),
            reopened: BTreeSet::new(),
        }
    }

    /// A record that was durable when the target started.
    pub fn restore(&mut self, tag: u32, reply: Reply) {
        self.remember(tag, &reply);
    }

    /// Whether and how a request that is no replay goes on.
    pub fn admit(&mut self, header: &RequestHeader) -> Admission {
        let xid = Xid(header.xid);
        self.acknowledge(Xid(header.acked_xid));
        if self.executing.contains(xid) {
            return Admission::Executing;
        }
        if !header.flags.contains(RequestFlags::MODIFIES) {
            return Admission::Execute;
        }
        if header.tag == 0 || header.tag > self.tags_max {
            return Admission::BadTag;
        }
        if xid < self.acked {
            return Admission::Stale;
        }
        match self.records.get(&header.tag) {
            Some(record) if record.xid > xid => Admission::Stale,
            Some(record) if record.xid == xid => match &record.reply {
                Some(reply) => Admission::Answered(reply.clone()),
                None => Admission::Stale,
            },
            _ => Admission::Execute,
        }
    }

    /// The client takes back a change that nobody waits for any more. What still waits in a queue
    /// has been taken out of it before.
    pub fn cancel(&mut self, xid: Xid, tag: u32) -> Cancelled {
        if self.executing.contains(xid) {
            return Cancelled::Executing;
        }
        if tag == 0 || tag > self.tags_max {
            return Cancelled::BadTag;
        }
        match self.records.get(&tag) {
            Some(Record { xid: of, reply: Some(reply) }) if *of == xid => {
                Cancelled::Answered(reply.clone())
            }
            Some(record) if record.xid > xid || xid < self.acked => Cancelled::Stale,
            _ => {
                self.records.insert(tag, Record { xid, reply: None });
                Cancelled::Dropped
            }
        }
    }

    fn acknowledge(&mut self, upto: Xid) {
        if upto > self.acked {
            self.acked = upto;
            if !self.reopened.is_empty() {
                self.reopened = self.reopened.split_off(&upto);
            }
            for record in self.records.values_mut().filter(|record| record.xid < upto) {
                record.reply = None;
            }
        }
    }

    /// An open is resent whose answer is of an earlier instance: true once, when its handle must be
    /// made anew. A late duplicate must not bring back what was closed since.
    pub fn reopen(&mut self, xid: Xid) -> bool {
        self.reopened.insert(xid)
    }

    /// An admitted request begins.
    pub fn begin(&mut self, xid: Xid, entry: E) {
        let before = self.executing.insert(xid, entry);
        assert!(before.is_none(), "an xid executes once at a time");
    }

    /// The driver's entry of an executing request.
    pub fn executing_mut(&mut self, xid: Xid) -> Option<&mut E> {
        self.executing.get_mut(xid)
    }

    pub fn all_executing_mut(&mut self) -> impl Iterator<Item = (Xid, &mut E)> {
        self.executing.iter_mut()
    }

    /// It was answered, or given up.
    pub fn finished(&mut self, xid: Xid) -> Option<E> {
        self.executing.remove(xid)
    }

    /// Keeps the answer of a modifying request. One that is older than what the tag holds is not
    /// kept.
    pub fn remember(&mut self, tag: u32, reply: &Reply) {
        let (header, bufs) = (reply.header, reply.lasting().to_vec());
        let record = Record { xid: Xid(header.xid), reply: Some(Reply { header, bufs }) };
        match self.records.get(&tag) {
            Some(old) if old.xid > record.xid => {}
            _ => drop(self.records.insert(tag, record)),
        }
    }

    /// The kept answer to a request.
    #[must_use]
    pub fn answer(&self, tag: u32, xid: Xid) -> Option<&Reply> {
        let record = self.records.get(&tag).filter(|record| record.xid == xid);
        record.and_then(|record| record.reply.as_ref())
    }

    /// The kept answer on `tag` where it is of a later request than `xid`.
    #[must_use]
    pub fn newer_answer(&self, tag: u32, xid: Xid) -> Option<&Reply> {
        self.records
            .get(&tag)
            .filter(|record| record.xid > xid)
            .and_then(|record| record.reply.as_ref())
    }

    #[must_use]
    pub fn executing(&self) -> usize {
        self.executing.len()
    }

    /// Answers kept in memory.
    #[must_use]
    pub fn answers(&self) -> usize {
        self.records.values().filter(|record| record.reply.is_some()).count()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::{Opcode, Request};

    fn header(xid: u64, tag: u32, acked: u64) -> RequestHeader {
        let mut request = Request::new(Opcode::MdtUnlink, Vec::new());
        (request.header.xid, request.header.tag, request.header.acked_xid) = (xid, tag, acked);
        request.header.flags = RequestFlags::MODIFIES;
        request.header
    }

    fn done(export: &mut Export<()>, xid: u64, tag: u32) {
        assert_eq!(export.admit(&header(xid, tag, 0)), Admission::Execute);
        export.begin(Xid(xid), ());
        export.remember(tag, &Reply::ok(&header(xid, tag, 0), Vec::new()));
        export.finished(Xid(xid));
    }

    #[test]
    fn an_answer_that_comes_back_while_its_request_executes_is_found() {
        let mut export = Export::new(4);
        assert_eq!(export.admit(&header(10, 1, 0)), Admission::Execute);
        export.begin(Xid(10), ());
        assert_eq!(export.answer(1, Xid(10)), None);
        let reply = Reply::ok(&header(10, 1, 0), Vec::new());
        export.restore(1, reply.clone());
        assert_eq!(export.answer(1, Xid(10)), Some(&reply));
        assert_eq!((export.answer(1, Xid(9)), export.answer(2, Xid(10))), (None, None));
    }

    #[test]
    fn an_executed_request_is_answered_and_not_executed_again() {
        let mut export = Export::new(8);
        done(&mut export, 5, 1);
        assert!(matches!(export.admit(&header(5, 1, 0)), Admission::Answered(_)));
    }

    #[test]
    fn the_bytes_of_a_file_are_not_kept_with_the_answer_to_an_open() {
        let mut export = Export::<()>::new(8);
        let open = Request::new(Opcode::MdtOpen, Vec::new());
        let header = RequestHeader { opcode: open.header.opcode, ..header(5, 1, 0) };
        export.remember(1, &Reply::ok(&header, vec![b"body".as_slice().into(); 3]));
        let Admission::Answered(again) = export.admit(&header) else { panic!("it is kept") };
        assert_eq!(again.bufs.len(), wire::OPEN_BUFS);
    }

    #[test]
    fn an_executing_request_is_not_started_again() {
        let mut export = Export::new(8);
        export.begin(Xid(5), ());
        assert_eq!(export.admit(&header(5, 1, 0)), Admission::Executing);
    }

    #[test]
    fn an_older_xid_on_a_tag_is_refused() {
        let mut export = Export::new(8);
        done(&mut export, 5, 1);
        done(&mut export, 9, 1);
        assert_eq!(export.admit(&header(5, 1, 0)), Admission::Stale);
        assert_eq!(export.admit(&header(7, 1, 0)), Admission::Stale);
    }

    #[test]
    fn a_request_stays_refused_after_its_answer_is_forgotten() {
        let mut export = Export::new(8);
        done(&mut export, 5, 1);
        assert_eq!(export.answers(), 1);
        assert_eq!(export.admit(&header(9, 2, 9)), Admission::Execute);
        assert_eq!(export.answers(), 0);
        assert_eq!(export.admit(&header(5, 1, 0)), Admission::Stale);
    }

    #[test]
    fn a_change_that_was_taken_back_is_refused_when_it_arrives() {
        let mut export = Export::new(8);
        done(&mut export, 5, 1);
        assert!(matches!(export.cancel(Xid(5), 1), Cancelled::Answered(_)));
        for _ in 0..2 {
            assert_eq!(export.cancel(Xid(9), 1), Cancelled::Dropped);
        }
        assert_eq!(export.admit(&header(9, 1, 0)), Admission::Stale);
        assert_eq!(export.admit(&header(10, 1, 0)), Admission::Execute);
        export.begin(Xid(10), ());
        assert_eq!(export.cancel(Xid(10), 1), Cancelled::Executing);
        assert_eq!(export.cancel(Xid(11), 9), Cancelled::BadTag);
    }

    #[test]
    fn a_cancel_of_what_was_answered_or_overtaken_comes_too_late() {
        let mut export = Export::new(8);
        done(&mut export, 5, 8);
        assert_eq!(export.admit(&header(9, 2, 6)), Admission::Execute);
        assert_eq!(export.cancel(Xid(5), 8), Cancelled::Stale, "its answer has arrived");
        assert_eq!(export.cancel(Xid(6), 8), Cancelled::Dropped, "the first without an answer");
        done(&mut export, 9, 8);
        assert_eq!(export.cancel(Xid(8), 8), Cancelled::Stale, "a later change has its tag");
        assert!(matches!(export.cancel(Xid(9), 8), Cancelled::Answered(_)));
    }

    #[test]
    fn an_open_is_made_anew_once_until_its_answer_has_arrived() {
        let mut export: Export<()> = Export::new(8);
        assert!(export.reopen(Xid(5)) && export.reopen(Xid(9)));
        assert!(!export.reopen(Xid(5)));
        export.admit(&header(10, 1, 6));
        assert!(export.reopen(Xid(5)), "nobody asks again: it need not be remembered");
        assert!(!export.reopen(Xid(9)));
    }

    #[test]
    fn an_older_answer_does_not_take_the_place_of_a_newer_one() {
        let mut export: Export<()> = Export::new(8);
        let reply = |xid, status| {
            let mut reply = Reply::ok(&header(xid, 1, 0), Vec::new());
            reply.header.status = status;
            reply
        };
        let told = |export: &mut Export<()>| match export.admit(&header(5, 1, 0)) {
            Admission::Answered(reply) => reply.header.status,
            other => panic!("{other:?}"),
        };
        export.restore(1, reply(5, 1));
        export.restore(1, reply(3, 2));
        assert_eq!(told(&mut export), 1);
        export.remember(1, &reply(5, 3));
        assert_eq!(told(&mut export), 3);
        let newer = |xid| export.newer_answer(1, Xid(xid)).map(|reply| reply.header.xid);
        assert_eq!((newer(4), newer(5), newer(6)), (Some(5), None, None));
        assert!(export.newer_answer(2, Xid(4)).is_none(), "another tag");
    }

    #[test]
    fn what_executes_is_counted_and_found() {
        let mut export = Export::new(8);
        [5, 7, 9].into_iter().for_each(|xid| export.begin(Xid(xid), xid));
        export.all_executing_mut().for_each(|(xid, entry)| *entry += xid.0);
        assert_eq!((export.executing(), export.finished(Xid(7))), (3, Some(14)));
        assert_eq!((export.executing(), export.executing_mut(Xid(7))), (2, None));
    }

    #[test]
    fn a_tag_out_of_range_is_noticed() {
        let mut export: Export<()> = Export::new(8);
        assert_eq!(export.admit(&header(1, 8, 0)), Admission::Execute);
        for tag in [0, 9, u32::MAX] {
            assert_eq!(export.admit(&header(1, tag, 0)), Admission::BadTag);
        }
    }
}
