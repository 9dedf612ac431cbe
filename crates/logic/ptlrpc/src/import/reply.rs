//! Answers: which requests they complete, and which requests are kept.
//!
//! - Only a request that is out now is completed; late and repeated answers change nothing.
//! - A change that was answered is kept until it is known to be durable, and an open until its
//!   close is durable. An open of a file that another MDT has does not count as an open here,
//!   because this MDT gave no handle. If it has a transno, it is kept like another change, until it
//!   is durable.
//! - An open for reading that the target has answered without a transno is not a change. Its handle
//!   is stated to a restarted target ([`Import::stated_opens`]) until its close is answered.
//! - A replay that is refused is no longer kept, and is reported as [`Event::Undone`].
//! - The transno that the target reports as durable only grows within a session.
//! - The floor of a reply is noted before the request of that reply is completed. So a waiter takes
//!   no gift that is void by then.

use bytes::Bytes;
use types::{Errno, Instant, Span, Transno, Xid};
use wire::body::{AttrRep, Disposition, OpenReq, OpenWord};
use wire::{BUFS_MAX, Opcode, Reply, ReplyFlags, Request, RequestFlags};

use super::{Completed, Counted, Event, Handled, Import, Kind, Out, Phase, State, Undone};
use crate::kept::{Kept, Place};
use crate::{Keep, PeerMisbehaved, limits};

/// How long the target wants to be left alone with this request, which it has not taken.
fn pause(reply: &Reply) -> Option<Span> {
    if reply.has(ReplyFlags::RECOVERING) {
        return Some(limits::RECOVERING_RETRY);
    }
    let asked = Span::millis(u64::from(reply.header.lease_ms));
    let pause = asked.clamp(limits::BUSY_RETRY_MIN, limits::BUSY_RETRY_MAX);
    reply.has(ReplyFlags::BUSY).then_some(pause)
}

/// An open that was not carried out, because another MDT has the file: there is no handle to be had
/// again.
fn is_elsewhere(reply: &Reply) -> bool {
    reply.body::<AttrRep>().disposition.contains(Disposition::REMOTE)
}

/// The handle that an open gave without a place in history, as its client has allowed.
fn unplaced(request: &Request, reply: &Reply) -> Option<OpenWord> {
    let is_placed = reply.header.transno != 0 || reply.errno().is_some();
    if is_placed || request.opcode() != Opcode::MdtOpen {
        return None;
    }
    let OpenReq { fid, open_flags, restates, .. } = request.body();
    let AttrRep { attr, handle, stripes, .. } = reply.body();
    let seal = if attr.is_dir() { u32::try_from(stripes).unwrap_or(0) } else { 0 };
    let word = OpenWord { fid, handle, open_flags, seal };
    (restates != 0 && handle != 0).then_some(word)
}

/// For which other clients a request waits, if an early reply says it.
fn awaited(reply: &Reply) -> Option<Box<str>> {
    let said = reply.bufs.first()?;
    let said = said.get(..limits::AWAITED_BYTES_MAX).unwrap_or(&said[..]);
    let text = String::from_utf8_lossy(said);
    let text: String = text.chars().filter(|letter| !letter.is_control()).collect();
    (!text.is_empty()).then(|| text.into())
}

impl<B: Default, W> Import<B, W> {
    /// A reply of the target, to whatever request. Late ones are harmless.
    pub fn handle_reply(
        &mut self,
        mut reply: Box<Reply>,
        now: Instant,
    ) -> Result<Handled<B, W>, PeerMisbehaved> {
        if !self.state.is_connected() {
            return Ok(Handled::Progress);
        }
        let got = reply.header.instance;
        if got < self.instance.0 && got != 0 {
            return Err(PeerMisbehaved::StaleInstance { got, seen: self.instance.0 });
        }
        if reply.has(ReplyFlags::NO_SESSION) || got > self.instance.0 {
            self.handle_disconnect(now);
            return Ok(Handled::Reconnect);
        }
        self.note_committed(Transno(reply.header.last_committed));
        self.note_floor(reply.header.floor);
        let xid = Xid(reply.header.xid);
        if self.extend(xid, &reply, now) {
            return Ok(Handled::Progress);
        }
        if let Some((place, _)) = self.replay_sent.remove(&xid) {
            if let Some(errno) = reply.errno() {
                self.replay_refused(place, errno);
            }
            self.advance_recovery();
            return Ok(Handled::Progress);
        }
        let Some(out) = self.out.get(xid) else { return Ok(Handled::Progress) };
        let mut renewed = None;
        let place = match out.phase {
            Phase::Sent { at, place, .. } => {
                // the answer to one that was sent again may be to the first time
                if !out.request.has(RequestFlags::RESENT) && !reply.has(ReplyFlags::UNLEASED) {
                    renewed = Some(at);
                }
                place
            }
            Phase::Withdrawn => Counted::Free,
            Phase::Queued | Phase::Resend | Phase::Later(_) => return Ok(Handled::Progress),
        };
        // without a handle there is no close that would let go of the open
        let keep = match &out.keep {
            Keep::Open if is_elsewhere(&reply) => Keep::No,
            keep => keep.clone(),
        };
        let stated = match keep {
            Keep::Open => unplaced(&out.request, &reply),
            Keep::No | Keep::Close { .. } | Keep::Closes { .. } => None,
        };
        let keeps = out.modifies()
            && reply.errno().is_none()
            && stated.is_none()
            && (reply.header.transno != 0 || keep == Keep::Open);
        let bufs = out.request.bufs.len() + reply.bufs.len();
        if keeps && bufs > BUFS_MAX {
            return Err(PeerMisbehaved::TooManyBuffers(bufs));
        }
        if let Some(at) = renewed {
            self.renew_lease(at, now);
        }
        self.leave(place);
        if let Some(pause) = pause(&reply) {
            let out = self.out.get_mut(xid).expect("looked up just now");
            if out.phase != Phase::Withdrawn {
                out.phase = Phase::Later(now + pause);
            }
            return Ok(Handled::Progress);
        }
        self.note_estimate(&reply);
        let out = self.out.remove(xid).expect("looked up just now");
        if out.request.header.tag != 0 {
            self.tags_free.push(out.request.header.tag);
        }
        if out.kind != Kind::User {
            return Ok(self.control_done(xid, *out, reply, now));
        }
        match &keep {
            keep if keeps => self.kept.closed(keep),
            Keep::Close { open } => self.kept.forget_open(*open),
            Keep::No | Keep::Open | Keep::Closes { .. } => {}
        }
        if let Some(handle) = stated {
            self.kept.state(xid, handle);
        }
        // field by field: taken apart as a whole it would be copied first
        let bulk =
            if keeps { self.keep(out.request, out.bulk, keep, &mut reply) } else { Some(out.bulk) };
        Ok(Handled::Done(Completed { xid, waiter: out.waiter, bulk, reply }))
    }

    /// What was acknowledged once is lost: it must not be taken for durable when the target's
    /// history has passed it. An open that is durable already is no loss: its file was closed and
    /// removed, and the answer of the close never arrived.
    fn replay_refused(&mut self, place: Place, errno: Errno) {
        if place.0 <= self.committed {
            self.kept.take(place);
            return;
        }
        let changes: Vec<_> = self.kept.take(place).map(|request| *request).into_iter().collect();
        self.events.push_back(Event::Undone { changes, why: Undone::Refused(errno) });
    }

    /// Only what is slow is remembered: of a quiet server nothing is.
    fn note_estimate(&mut self, reply: &Reply) {
        let estimate = Span::millis(u64::from(reply.header.service_estimate_ms));
        let opcode = reply.header.opcode;
        if estimate <= limits::ESTIMATE_QUIET {
            if !self.estimates.is_empty() && estimate != Span::ZERO {
                self.estimates.remove(&opcode);
            }
        } else if self.estimates.len() < limits::ESTIMATES_MAX
            || self.estimates.contains_key(&opcode)
        {
            self.estimates.insert(opcode, estimate);
        }
    }

    /// An early reply is not the answer yet: the server asks for time.
    fn extend(&mut self, xid: Xid, reply: &Reply, now: Instant) -> bool {
        if !reply.has(ReplyFlags::EARLY) {
            return false;
        }
        let until =
            now + Span::millis(u64::from(reply.header.lease_ms)).min(limits::EARLY_LEASE_MAX);
        if let Some((_, deadline)) = self.replay_sent.get_mut(&xid) {
            *deadline = until.max(*deadline);
        } else if let Some(out) = self.out.get_mut(xid)
            && let Phase::Sent { deadline, place, .. } = &mut out.phase
        {
            *deadline = until.max(*deadline);
            let left = std::mem::take(place);
            if let Some(said) = awaited(reply) {
                out.awaits = Some(said);
            }
            self.leave(left);
        }
        true
    }

    fn keep(
        &mut self,
        mut request: Box<Request>,
        bulk: B,
        keep: Keep,
        reply: &mut Reply,
    ) -> Option<B> {
        let durable = reply.header.transno != 0 && reply.transno() <= self.committed;
        if durable && keep == Keep::No {
            return Some(bulk);
        }
        request.header.transno = reply.header.transno;
        let lasting = reply.lasting();
        request.header.replay_bufs = lasting.len() as u8;
        request.header.flags = (request.header.flags | RequestFlags::REPLAY)
            & !(RequestFlags::RESENT | RequestFlags::OPEN);
        // apart from bytes that came with them, which would stay in memory for as long
        let is_cut = lasting.len() < reply.bufs.len();
        let own = |buf: &Bytes| if is_cut { Bytes::copy_from_slice(buf) } else { buf.clone() };
        request.bufs.extend(lasting.iter().map(own));
        self.kept.insert(Box::new(Kept { request, bulk, keep }), self.committed);
        None
    }

    fn control_done(
        &mut self,
        xid: Xid,
        out: Out<B, W>,
        reply: Box<Reply>,
        now: Instant,
    ) -> Handled<B, W> {
        if out.kind == Kind::Restate {
            self.restates_out -= 1;
        }
        if self.ping == Some(xid) {
            self.ping = None;
        }
        if let Kind::Cancel(of) = out.kind {
            self.cancel_answered(of, &reply);
        }
        if self.done_xid == Some(xid) {
            self.done_xid = None;
            if reply.errno().is_some() {
                self.handle_disconnect(now);
                return Handled::Reconnect;
            }
            if self.state == State::ReplayWait {
                self.enter_full(now);
            }
        }
        self.advance_recovery();
        if out.waiter.is_none() {
            return Handled::Progress;
        }
        Handled::Done(Completed { xid, waiter: out.waiter, bulk: Some(out.bulk), reply })
    }

    pub(super) fn note_committed(&mut self, upto: Transno) {
        if upto > self.committed {
            self.committed = upto;
            self.kept.prune(upto);
        }
    }
}
