//! Requests that no caller waits for any more.
//!
//! - A request that changes nothing, or was never sent, is forgotten.
//! - A change that was sent is not sent again. The client asks the target to drop it, on each
//!   connection until the target has confirmed that or has sent the change's own answer. Until then
//!   its tag and its waiter stay taken.
//! - A request that gives something back goes on: a close, an unlock, an acknowledgement.

use types::Xid;
use wire::body::{CancelRep, CancelReq, cancel};
use wire::{Opcode, Reply, Request, encode_body};

use super::{Event, Import, Kind, Out, Phase};

impl<B, W> Out<B, W> {
    /// Nobody waits for it, but somebody else may wait for what it gives back.
    fn gives_back(&self) -> bool {
        self.keep.closes() || self.gives_up()
    }
}

impl<B: Default, W> Import<B, W> {
    /// Its caller no longer waits. Gives the waiter back if the request is forgotten at once.
    pub fn abandon(&mut self, xid: Xid) -> Option<W> {
        let out = self.out.get_mut(xid)?;
        if out.kind != Kind::User || out.phase == Phase::Withdrawn {
            return None;
        }
        let phase = out.phase;
        let has_fate = out.modifies() || out.gives_up();
        if has_fate && (out.gives_back() || phase != Phase::Queued) {
            if !out.gives_back() {
                self.withdraw(xid);
            }
            return None;
        }
        let out = self.out.remove(xid)?;
        match phase {
            Phase::Queued | Phase::Resend if out.passes() => {
                self.queue_passing.retain(|other| *other != xid);
            }
            Phase::Queued if out.modifies() => self.queue_modifying.retain(|other| *other != xid),
            Phase::Queued => self.queue.retain(|other| *other != xid),
            _ => self.unsend(xid, phase),
        }
        out.waiter
    }

    /// Nobody waits any longer, each waiter is told by `tell`. Gives those back whose requests are
    /// forgotten at once.
    pub fn abandon_all(&mut self, mut tell: impl FnMut(&mut W)) -> Vec<W> {
        let xids: Vec<Xid> = self.out.iter().map(|(xid, _)| xid).collect();
        for (_, out) in self.out.iter_mut().filter(|(_, out)| out.kind == Kind::User) {
            out.waiter.iter_mut().for_each(&mut tell);
        }
        xids.into_iter().filter_map(|xid| self.abandon(xid)).collect()
    }

    fn withdraw(&mut self, xid: Xid) {
        let out = self.out.get_mut(xid).expect("its caller looked it up");
        let phase = std::mem::replace(&mut out.phase, Phase::Withdrawn);
        self.unsend(xid, phase);
        self.withdrawn.push_back(xid);
    }

    fn unsend(&mut self, xid: Xid, phase: Phase) {
        match phase {
            Phase::Resend => self.resend.retain(|other| *other != xid),
            Phase::Sent { place, .. } => self.leave(place),
            Phase::Queued | Phase::Later(_) | Phase::Withdrawn => {}
        }
    }

    /// The connection is new: the target may not have heard.
    pub(super) fn withdraw_again(&mut self) {
        self.withdrawn.clear();
        let again = self.out.iter().filter(|(_, out)| out.phase == Phase::Withdrawn);
        self.withdrawn.extend(again.map(|(xid, _)| xid));
    }

    /// The next question to the target whether it drops a change.
    pub(super) fn next_cancel(&mut self) -> Option<Xid> {
        loop {
            let of = self.withdrawn.pop_front()?;
            // its own answer may have come meanwhile
            let Some(out) = self.out.get(of) else { continue };
            let body = CancelReq { xid: of.0, tag: out.request.header.tag, reserved: 0 };
            let request = Request::new(Opcode::Cancel, vec![encode_body(&body)]);
            let xid = self.enqueue_own(Kind::Cancel(of), request);
            let queued = self.queue_control.pop_back();
            assert_eq!(queued, Some(xid), "it was queued just now");
            return Some(xid);
        }
    }

    /// The target's answer. One that has begun is answered by itself.
    pub(super) fn cancel_answered(&mut self, of: Xid, reply: &Reply) {
        let body: CancelRep = reply.body();
        if reply.errno().is_none() && body.outcome == cancel::EXECUTED {
            return;
        }
        if let Some(out) = self.out.remove(of) {
            if out.request.header.tag != 0 {
                self.tags_free.push(out.request.header.tag);
            }
            let Out { waiter, bulk, .. } = *out;
            self.events.extend(waiter.map(|waiter| Event::Withdrawn { waiter, bulk }));
        }
    }
}
