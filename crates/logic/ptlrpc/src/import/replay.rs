//! Repeats history to a restarted target, then restates the locks, then reports that it is done.
//!
//! - Changes are replayed in transno order, numbered from 1 on each connection, and before locks
//!   are restated.
//! - No more locks are under way at once than requests may be.
//! - `ReplayDone` goes out when every replay and every restated lock is answered.

use types::Instant;
use wire::{Opcode, RequestFlags};

use super::{Event, Import, Kind, Out, Phase, State, Submit, Transmit, millis};
use crate::Keep;

impl<B: Default, W> Import<B, W> {
    /// Restates one lock during REPLAY_LOCKS. It has its xid once its turn to be sent has come.
    pub fn restate(&mut self, submit: Submit<B, W>) {
        self.restates.push_back(submit);
    }

    /// All locks were given to [`Import::restate`].
    pub fn restated(&mut self) {
        self.restated = true;
        self.advance_recovery();
    }

    /// REPLAY → REPLAY_LOCKS → REPLAY_WAIT, as far as it goes.
    pub(super) fn advance_recovery(&mut self) {
        if self.state == State::Replay && self.replay.is_empty() && self.replay_sent.is_empty() {
            self.state = State::ReplayLocks;
            self.unrepeated = false;
            self.events.push_back(Event::AskRestate);
        }
        let restated = self.restated && self.restates.is_empty() && self.restates_out == 0;
        if self.state == State::ReplayLocks && restated {
            self.state = State::ReplayWait;
            self.done_xid = Some(self.enqueue_control(Opcode::ReplayDone));
        }
    }

    /// The next restated lock is among the requests under way, if there is room for it: what waits
    /// costs nothing while others are answered.
    pub(super) fn enqueue_restate(&mut self) {
        if self.restates_out >= self.rpcs_max || !self.queue_control.is_empty() {
            return;
        }
        let Some(submit) = self.restates.pop_front() else { return };
        let mut request = submit.request;
        request.header.flags |= RequestFlags::REPLAY;
        request.header.flags &= !RequestFlags::MODIFIES;
        self.restates_out += 1;
        self.enqueue(Box::new(Out {
            request,
            bulk: submit.bulk,
            waiter: Some(submit.waiter),
            keep: Keep::No,
            urgent: false,
            kind: Kind::Restate,
            phase: Phase::Queued,
            awaits: None,
        }));
    }

    /// None are to be restated any more; those in `out` are gone or going.
    pub(super) fn take_restates(&mut self) -> Vec<W> {
        self.restates_out = 0;
        self.restates.drain(..).map(|submit| submit.waiter).collect()
    }

    pub(super) fn transmit_replay(&mut self, now: Instant) -> Option<Transmit<'_, B>> {
        if self.replay_sent.len() >= self.rpcs_max as usize {
            return None;
        }
        let acked = self.out.first_key().map_or(0, |xid| xid.0);
        let place = loop {
            // a commit during recovery may have pruned some
            let place = self.replay.pop_front()?;
            if self.kept.get_mut(place).is_some() {
                break place;
            }
        };
        self.replay_sent.insert(place.1, (place, now + self.config.attempt));
        self.active_at = now;
        let durable = place.0 <= self.committed;
        self.replay_index += 1;
        let index = self.replay_index;
        let (session, epoch, instance) = (self.session, self.epoch, self.instance);
        let kept = self.kept.get_mut(place).expect("looked up just now");
        let header = &mut kept.request.header;
        if durable {
            header.flags |= RequestFlags::OPEN;
        }
        header.replay_index = index;
        header.acked_xid = acked;
        header.session = session;
        header.epoch = epoch;
        header.instance = instance.0;
        header.deadline_ms = millis(self.config.attempt);
        Some(Transmit { request: &mut kept.request, bulk: &mut kept.bulk })
    }
}

#[cfg(test)]
mod tests {
    use types::{TargetId, Transno};
    use wire::body::{ConnectRep, connect};
    use wire::{Reply, ReplyFlags, Request, encode_body};

    use super::*;
    use crate::{ImportConfig, XidSource};

    const NOW: Instant = Instant(1_000_000_000);

    fn connected(import: &mut Import<(), u32>, outcome: u32, instance: u64) {
        connected_to(import, outcome, instance, 0);
    }

    /// To a target that says what is durable there.
    fn connected_to(
        import: &mut Import<(), u32>,
        outcome: u32,
        instance: u64,
        last_committed: u64,
    ) {
        let request = import.poll_connect(NOW, 0).expect("it is wanted");
        let body = ConnectRep {
            session: 7,
            instance,
            outcome,
            epoch: 1,
            tags: 8,
            rpcs_in_flight: 8,
            last_committed,
            ..ConnectRep::default()
        };
        let reply = Reply::ok(&request.header, vec![encode_body(&body)]);
        import.handle_connected(&reply, NOW).expect("a correct answer");
    }

    fn submit(opcode: Opcode, waiter: u32) -> Submit<(), u32> {
        let request = Box::new(Request::new(opcode, Vec::new()));
        Submit { request, bulk: (), waiter, keep: Keep::No, urgent: false }
    }

    fn sent(import: &mut Import<(), u32>) -> Vec<(Opcode, Reply)> {
        let mut sent = Vec::new();
        while let Some(transmit) = import.poll_transmit(NOW) {
            let mut reply = Reply::ok(&transmit.request.header, Vec::new());
            reply.header.instance = transmit.request.header.instance;
            sent.push((transmit.request.opcode(), reply));
        }
        sent
    }

    /// An import that is to restate `count` locks to the second instance of its target.
    fn restating(count: u32) -> Import<(), u32> {
        let mut import =
            Import::new(TargetId::mdt(0), ImportConfig::default(), XidSource::new(1), NOW);
        let _xid = import.submit(submit(Opcode::MdtGetattr, 0), NOW);
        connected(&mut import, connect::NEW, 1);
        for (_, reply) in sent(&mut import) {
            import.handle_reply(Box::new(reply), NOW).expect("a correct answer");
        }
        import.handle_disconnect(NOW);
        connected(&mut import, connect::RECOVER, 2);
        assert!(std::iter::from_fn(|| import.poll_event()).any(|event| event == Event::AskRestate));
        (1..=count).for_each(|waiter| import.restate(submit(Opcode::MdtLock, waiter)));
        import.restated();
        import
    }

    #[test]
    fn a_hundred_thousand_locks_are_restated_a_few_at_a_time_and_then_all_is_said() {
        const LOCKS: u32 = 100_000;
        let mut import = restating(LOCKS);
        let (mut answered, mut under_way) = (0, sent(&mut import));
        while under_way.iter().all(|(opcode, _)| *opcode == Opcode::MdtLock) {
            assert!((1..=8).contains(&under_way.len()), "{} at once", under_way.len());
            for (_, reply) in std::mem::take(&mut under_way) {
                import.handle_reply(Box::new(reply), NOW).expect("a correct answer");
                assert!(import.poll_timeout().is_none_or(|at| at > NOW));
                answered += 1;
                under_way.extend(sent(&mut import));
            }
        }
        assert_eq!(answered, LOCKS);
        assert!(matches!(&under_way[..], [(Opcode::ReplayDone, _)]), "{}", under_way.len());
    }

    #[test]
    fn what_is_restated_is_sent_again_where_the_target_had_no_room_for_it() {
        let mut import = restating(1);
        let (_, mut busy) = sent(&mut import).remove(0);
        busy.header.flags = ReplyFlags::BUSY;
        import.handle_reply(Box::new(busy), NOW).expect("a correct answer");
        assert!(sent(&mut import).is_empty());
        let later = import.poll_timeout().expect("it is to be sent again");
        assert!(later > NOW && !import.handle_timeout(later));
        let again = sent(&mut import);
        assert!(matches!(&again[..], [(Opcode::MdtLock, _)]), "{}", again.len());
        for (_, reply) in again {
            import.handle_reply(Box::new(reply), NOW).expect("a correct answer");
        }
        assert!(matches!(&sent(&mut import)[..], [(Opcode::ReplayDone, _)]));
    }

    /// What others wait for does not wait for one more recovery, broken links included.
    #[test]
    fn what_passes_recovery_is_sent_in_each_of_its_states_and_other_requests_are_not() {
        let mut import = restating(20);
        let fences = |sent: &[(Opcode, Reply)]| {
            assert!(sent.iter().all(|(opcode, _)| *opcode != Opcode::OstStatfs));
            sent.iter().filter(|(opcode, _)| *opcode == Opcode::OstFence).count()
        };
        let _waits = import.submit(submit(Opcode::OstStatfs, 90), NOW);
        let _passes = import.submit(submit(Opcode::OstFence, 91), NOW);
        assert_eq!(fences(&sent(&mut import)), 1, "beside locks");
        import.handle_disconnect(NOW);
        let forgotten = import.submit(submit(Opcode::OstFence, 92), NOW);
        assert_eq!(import.abandon(forgotten), Some(92));
        connected(&mut import, connect::RECOVER, 3);
        assert_eq!(fences(&sent(&mut import)), 1, "again, before locks are asked for");
        import.restated();
        let waiting = sent(&mut import);
        assert_eq!(fences(&waiting), 0, "once a connection");
        let late = import.submit(submit(Opcode::OstFence, 93), NOW);
        let waiting = sent(&mut import);
        assert_eq!(fences(&waiting), 1, "while the others are waited for");
        let reply = waiting.into_iter().map(|(_, reply)| Box::new(reply)).next().expect("it");
        let handled = import.handle_reply(reply, NOW).expect("a correct answer");
        assert!(matches!(handled, crate::Handled::Done(done) if done.xid == late));
        assert_eq!(import.state(), State::ReplayWait);
    }

    #[test]
    fn what_a_recovery_brings_back_for_certain_was_durable_before_it() {
        let mut import: Import<(), u32> =
            Import::new(TargetId::mdt(0), ImportConfig::default(), XidSource::new(1), NOW);
        let _xid = import.submit(submit(Opcode::MdtGetattr, 0), NOW);
        connected_to(&mut import, connect::NEW, 1, 10);
        for (instance, last_committed, durable) in [(2, 15, 10), (2, 20, 10), (3, 8, 8), (3, 9, 8)]
        {
            import.handle_disconnect(NOW);
            connected_to(&mut import, connect::RECOVER, instance, last_committed);
            assert_eq!(import.durable_before(), Transno(durable));
        }
        import.restated();
        for (_, reply) in sent(&mut import) {
            import.handle_reply(Box::new(reply), NOW).expect("a correct answer");
        }
        assert_eq!((import.state(), import.durable_before()), (State::Full, Transno(20)));
    }

    #[test]
    fn locks_that_were_not_restated_yet_are_given_back_when_the_link_breaks() {
        let mut import = restating(20);
        assert_eq!(sent(&mut import).len(), 8);
        import.handle_disconnect(NOW);
        let mut lost: Vec<u32> = std::iter::from_fn(|| import.poll_event())
            .map(|event| match event {
                Event::Lost(waiter) => waiter,
                other => panic!("{other:?}"),
            })
            .collect();
        lost.sort_unstable();
        assert_eq!(lost, (1..=20).collect::<Vec<_>>());
        connected(&mut import, connect::RECOVER, 2);
        import.restate(submit(Opcode::MdtLock, 1));
        import.restated();
        assert_eq!(sent(&mut import).len(), 1);
    }
}
