//! One loop of a test: prepare, send, wait, check, count, repeat.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Answer, Bulk, Call, CallError};
use lst::pattern::{self, Origin};
use lst::{Run, limits};
use types::{Errno, Span};
use wire::body::{LstBrwReq, LstPing};
use wire::lst::{Check, Kind, TestSpec};
use wire::{Opcode, encode_body};

use crate::peer::Peer;
use crate::target::SelfTest;

/// Pause after a request that failed: a destination that is gone is not asked without end.
const FAILED_PAUSE: Span = Span::millis(100);

pub(crate) struct Job {
    pub(crate) node: Rc<SelfTest>,
    pub(crate) run: Run,
    pub(crate) spec: TestSpec,
    pub(crate) peer: Rc<Peer>,
    pub(crate) stop: Rc<Cell<bool>>,
}

/// How a request ended.
enum Outcome {
    Right,
    /// Answer or data are not what they should be.
    Wrong,
    Failed {
        expired: bool,
    },
}

/// What a request leaves behind to judge its answer by.
struct Sent {
    ping: Bytes,
    origin: Origin,
}

impl Job {
    pub(crate) async fn run(self) {
        let stamp = self.node.stamp();
        let mut left = self.spec.loops;
        while !self.stop.get() && left != Some(0) {
            left = left.map(|left| left - 1);
            let started = self.node.env.now();
            let outcome = self.once(stamp).await;
            let took = self.node.env.now() - started;
            self.count(stamp, &outcome, took);
            if matches!(outcome, Outcome::Failed { .. }) {
                self.node.env.sleep(FAILED_PAUSE).await;
            }
        }
    }

    fn count(&self, stamp: u64, outcome: &Outcome, took: Span) {
        let mut member = self.node.member.borrow_mut();
        match outcome {
            Outcome::Right => member.count_done(stamp, self.spec.kind, took),
            Outcome::Wrong => member.count_wrong(stamp, self.spec.kind),
            Outcome::Failed { expired } => member.count_failed(stamp, *expired),
        }
    }

    async fn once(&self, stamp: u64) -> Outcome {
        let (call, sent) = self.prepare(stamp);
        match self.peer.remote.call(call).await {
            Ok(answer) if self.is_right(&sent, &answer) => Outcome::Right,
            Ok(_) | Err(CallError::Errno(Errno::EBADMSG)) => Outcome::Wrong,
            Err(error) => Outcome::Failed { expired: error == CallError::TimedOut },
        }
    }

    fn prepare(&self, session: u64) -> (Call, Sent) {
        let sequence = self.node.sequence.get() + 1;
        self.node.sequence.set(sequence);
        let origin = Origin { sender: session, sequence };
        let (opcode, body, bulk) = match self.spec.kind {
            Kind::Ping => (
                Opcode::LstPing,
                encode_body(&LstPing { session, sequence, reserved: 0 }),
                Bulk::None,
            ),
            Kind::Brw { write, check, size, offset } => {
                let body = LstBrwReq {
                    length: size,
                    write: u32::from(write),
                    check: check.to_u32(),
                    session,
                    sender: origin.sender,
                    sequence,
                    offset,
                    ..LstBrwReq::default()
                };
                let data = || self.node.source.make(check, size as usize, origin);
                let bulk =
                    if write { Bulk::Source(vec![data()]) } else { Bulk::Sink(size as usize) };
                (Opcode::LstBrw, encode_body(&body), bulk)
            }
        };
        let call = Call {
            bulk,
            patience: Some(limits::RPC_TIMEOUT),
            ..Call::new(opcode, vec![body.clone()])
        };
        (call, Sent { ping: body, origin })
    }

    fn is_right(&self, sent: &Sent, answer: &Answer) -> bool {
        match self.spec.kind {
            Kind::Ping => answer.reply.buf(0) == sent.ping,
            Kind::Brw { write: true, .. } => true, // its receiver has looked
            Kind::Brw { check: Check::Discard, .. } => true,
            Kind::Brw { check, size, offset, .. } => {
                answer.data.len() == size as usize
                    && pattern::is_intact(check, &answer.data, offset as usize, sent.origin)
            }
        }
    }
}

/// Tells the end of a loop also when its task is aborted, even before it has begun.
impl Drop for Job {
    fn drop(&mut self) {
        self.node.loop_ended(self.run);
    }
}
