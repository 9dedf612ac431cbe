//! Closes that become ready while another request with closes is under way at the same MDT go
//! together in the next one.
//!
//! ```text
//! ready --none is under way------------------------> MdtClose
//!   '---one is----> waits --it ends, or CLOSES_WAIT--> MdtCloses, or MdtClose if it is alone
//! ```
//! Invariants
//! - A close that finds no request with closes under way is sent at once. None waits for another
//!   one for longer than [`CLOSES_WAIT`].
//! - Closes that go together are of one caller and of different files. None of them states objects
//!   of stripes from 64 on.
//! - An MDT that refuses such a request has closed nothing. Each close is then sent by itself.

use std::rc::Rc;

use endpoint::{Call, CallError, Hold, Keep};
use tokio::sync::oneshot;
use types::{Errno, TargetId, Transno};
use wire::body::{CLOSES_MAX, CloseReq, ClosesReq};
use wire::stats::{self, StatRecord};
use wire::{Opcode, Reply};
use zerocopy::IntoBytes;

use super::closing::{Line, ReadyClose, Waiting};
use crate::client::{Inner, mdt_of};
use crate::grants::Changing;
use crate::limits::{CLOSES_WAIT, CLOSES_WAITING_MAX};
use crate::stat::Stat;
use crate::{Error, Result};

/// Names the operation in errors, however it travels.
const STAGE: &str = "mds_close";

/// A request with closes is under way. Its end lets those go that wait.
struct Turn {
    inner: Rc<Inner>,
    mdt: u32,
}

impl Turn {
    fn begin(inner: &Rc<Inner>, mdt: u32) -> Turn {
        inner.closes.at(mdt, |line| line.under_way += 1);
        Turn { inner: Rc::clone(inner), mdt }
    }
}

impl Drop for Turn {
    fn drop(&mut self) {
        let is_last = self.inner.closes.at(self.mdt, |line| {
            assert!(line.under_way > 0, "a turn that ends has begun");
            line.under_way -= 1;
            line.under_way == 0
        });
        if is_last {
            self.inner.send_waiting(self.mdt);
        }
    }
}

impl Inner {
    /// Closes a handle at its MDT, perhaps together with others. Returns what the MDT tells of the
    /// file.
    pub(super) async fn close_in_turn(self: &Rc<Self>, ready: ReadyClose) -> Result<Stat> {
        let mdt = ready.mdt();
        let (is_idle, is_full) = self
            .closes
            .at(mdt, |line| (line.under_way == 0, line.waiting.len() >= CLOSES_WAITING_MAX));
        if is_idle || is_full {
            let turn = Turn::begin(self, mdt);
            let closed = self.close_alone(ready).await;
            drop(turn);
            return closed;
        }
        let (done, mut wait) = oneshot::channel();
        let since = self.env.now();
        self.closes.at(mdt, |line| line.waiting.push_back(Waiting { ready, since, done }));
        let over = |_| Err(Error::local(Errno::ESHUTDOWN, STAGE));
        if let Some(closed) = self.env.timeout(CLOSES_WAIT, &mut wait).await {
            return closed.unwrap_or_else(over);
        }
        let is_overdue = |first: &Waiting| first.since + CLOSES_WAIT <= self.env.now();
        if self.closes.at(mdt, |line| line.waiting.front().is_some_and(is_overdue)) {
            self.send_waiting(mdt);
        }
        wait.await.unwrap_or_else(over)
    }

    /// Closes a handle with a request of its own.
    pub(super) async fn close_alone(self: &Rc<Self>, ready: ReadyClose) -> Result<Stat> {
        let mdt = mdt_of(ready.fid());
        let call = self.call(&ready.ctx, Opcode::MdtClose, &ready.body).projid(ready.projid);
        let mut call = call.keep(Keep::Close { open: ready.open });
        if !ready.more_stripes.is_empty() {
            call = call.buf(ready.more_stripes);
        }
        match ready.scope {
            Some(scope) => self.change(scope, mdt, call).await.map(|(stat, _)| stat),
            None => Stat::of(&self.ask(mdt, call).await?.reply, STAGE),
        }
    }

    /// Sends those that wait, as many as go together.
    fn send_waiting(self: &Rc<Self>, mdt: u32) {
        let mut together = self.closes.at(mdt, Line::take);
        let turn = match together.len() {
            0 => return,
            _ => Turn::begin(self, mdt),
        };
        let inner = Rc::clone(self);
        self.env.spawn("closes", async move {
            let _turn = turn;
            match together.len() {
                1 => {
                    let Waiting { ready, done, .. } = together.remove(0);
                    let _gone = done.send(inner.close_alone(ready).await);
                }
                _ => inner.close_together(TargetId::mdt(mdt), together).await,
            }
        });
    }

    async fn close_together(self: &Rc<Self>, mdt: TargetId, together: Vec<Waiting>) {
        planted::reached("client: several closes went together");
        let begin = |waiting: &Waiting| {
            let scope = waiting.ready.scope.clone();
            scope.map(|scope| self.grants.at(mdt.index).changing(scope))
        };
        let changing: Vec<Option<Changing>> = together.iter().map(begin).collect();
        let call = self.call_of(&together, &changing);
        match self.ask(mdt, call).await {
            Ok(answer) => self.closed_together(mdt, together, changing, &answer.reply),
            Err(error) => {
                changing.into_iter().flatten().for_each(|changing| changing.failed(&error));
                for waiting in together {
                    match error.is_refusal() {
                        true => self.close_apart(waiting),
                        false => drop(waiting.done.send(Err(error.clone()))),
                    }
                }
            }
        }
    }

    /// The request that closes these handles.
    fn call_of(&self, together: &[Waiting], changing: &[Option<Changing>]) -> Call {
        assert!((2..=CLOSES_MAX).contains(&together.len()), "these are several");
        let bodies: Vec<CloseReq> = together.iter().map(|waiting| waiting.ready.body).collect();
        let opens = together.iter().map(|waiting| waiting.ready.open).collect();
        let holds: Vec<Hold> = changing.iter().flatten().map(Changing::hold).collect();
        let body = ClosesReq { count: together.len() as u32, ..ClosesReq::default() };
        let first = &together[0].ready;
        let call = self.call(&first.ctx, Opcode::MdtCloses, &body).projid(first.projid);
        let call = call.name(bodies.as_bytes()).keep(Keep::Closes { opens: Rc::new(opens) });
        Call { hold: Hold(Some(Rc::new(holds))), ..call.into() }
    }

    fn closed_together(
        self: &Rc<Self>,
        mdt: TargetId,
        together: Vec<Waiting>,
        changing: Vec<Option<Changing>>,
        reply: &Reply,
    ) {
        let records = stats::decode(&reply.buf(1), together.len()).unwrap_or_default();
        if records.len() != together.len() {
            let broken = |waiting: Waiting| {
                let _gone = waiting.done.send(Err(Error::local(Errno::EPROTO, STAGE)));
            };
            together.into_iter().for_each(broken); // the changes are in doubt
            return;
        }
        let as_of = Transno(reply.header.as_of);
        for ((waiting, changing), record) in together.into_iter().zip(changing).zip(&records) {
            let _gone = waiting.done.send(self.closed(mdt, changing, record, as_of));
        }
        self.shed_grants(mdt.index);
    }

    /// What one of several closes came to.
    fn closed(
        &self,
        mdt: TargetId,
        changing: Option<Changing>,
        record: &StatRecord,
        as_of: Transno,
    ) -> Result<Stat> {
        if record.errno != 0 {
            let errno = Errno::from_raw(i32::try_from(record.errno).unwrap_or(0));
            let error = Error::call(&CallError::Errno(errno), mdt, STAGE);
            changing.into_iter().for_each(|changing| changing.failed(&error));
            return Err(error);
        }
        let stat = self.checked(mdt, Stat::told(&record.rep, &record.layout, as_of, STAGE)?);
        if let Some(changing) = changing {
            let _nothing_is_granted = changing.done(&stat);
        }
        Ok(stat)
    }

    /// Closes one by itself, in the background.
    fn close_apart(self: &Rc<Self>, waiting: Waiting) {
        let (inner, Waiting { ready, done, .. }) = (Rc::clone(self), waiting);
        self.env.spawn("close", async move {
            let _gone = done.send(inner.close_alone(ready).await);
        });
    }
}
