//! Recalls by the MDT, and the acknowledgements that the client sends back.
//!
//! ```text
//! recall --> the kernel is told --at once, or when its time is over--> acknowledged: in the
//!            answer of the callback, or by a request of its own
//! ```
//! A client whose lease has ended trusts none of the grants that it held before. The lease ends by
//! the client's own clock, or because a reply of the MDT has a higher floor. The clock may have
//! stopped for a while, so in the second case the kernel has to be notified too.

use std::cell::RefMut;
use std::rc::Rc;

use endpoint::{Call, CallbackAnswer, Remote};
use env::LocalFuture;
use ldlm::grants::{Ack, Bits, Notify, Number, Recall, Stated};
use types::{Errno, Fid, Instant, TargetId};
use wire::Opcode;
use wire::body::{GrantAck, GrantBits, GrantWord, GrantsFlags};
use wire::grants::{self, Callback, VECTOR_MAX};

use super::kernel::{Forgetting, Kernel};
use super::lease::DATA;
use super::{Grants, Known, Lease, NAMED};
use crate::client::{Client, Inner};

/// So many grants are given back with one request.
const SHED_AT: usize = 512;

impl Grants {
    /// The grants are of the session with this MDT.
    pub(crate) fn belong_to(&self, mdt: &Rc<Remote>) {
        *self.mdt.borrow_mut() = Rc::downgrade(mdt);
    }

    /// What is known now: nothing of before the lease was over, and nothing that is void.
    pub(super) fn known(&self) -> RefMut<'_, Known> {
        let mut known = self.known.borrow_mut();
        if let Some(mdt) = self.mdt.borrow().upgrade() {
            let lease = mdt.lease();
            known.cache.leased(lease.span, lease.until);
            if known.lapses != lease.lapses {
                known.lapses = lease.lapses;
                known.lapse();
                self.doubt_pages();
            }
            if known.cache.voided(Number(lease.floor)) {
                known.recalls.count();
                known.on_open.clear();
                known.listings.clear();
            }
            if known.cache.is_recovering() && mdt.answers() {
                known.resumed();
            }
        }
        known
    }

    /// The MDT has given this client's grants to others, because it waited for them in vain.
    /// Nothing: the kernel believes nothing of before. Else it does not once the future has
    /// completed.
    pub(crate) fn voided(&self) -> Option<Forgetting> {
        drop(self.known());
        self.kernel_forgets_all()
    }

    /// The kernel is to forget all files, and the data of those that this MDT has.
    pub(super) fn kernel_forgets_all(&self) -> Option<Forgetting> {
        let kernel = self.shared.kernel()?;
        kernel.drop_all_pages(Some(self.index));
        kernel.forget_all()
    }

    /// The MDT asks for grants back. Returns what is given up already; of the others
    /// [`Grants::given_up_later`] tells.
    fn called_back(&self, words: &[GrantWord]) -> (Vec<Ack>, Vec<(Notify, Forgetting)>) {
        let now = self.env.now();
        if self.bugs.keep_called_back() {
            let ack = |word: &GrantWord| Ack { fid: word.fid.into(), number: Number(word.number) };
            return (words.iter().map(ack).collect(), Vec::new());
        }
        let mut known = self.known();
        known.recalls.count();
        for word in words {
            let bits = Bits::from_bits_truncate(word.bits.bits() as u8);
            let recall = Recall { fid: word.fid.into(), bits, number: Number(word.number) };
            known.cache.recall(recall, now);
            if !self.bugs.keep_opened_bytes() {
                known.on_open.forget(recall.fid);
            }
        }
        let mut later = Vec::new();
        while let Some(notify) = known.cache.poll_notify(now) {
            if notify.force {
                continue; // it ends with its time, and the kernel cannot be told sooner
            }
            match self.forgets(notify) {
                Some(forgetting) => later.push((notify, forgetting)),
                None => known.cache.notified(notify.fid, notify.number),
            }
        }
        (known.cache.poll_acks(), later)
    }

    /// The kernel is to forget a file; nothing where it has.
    pub(super) fn forgets(&self, notify: Notify) -> Option<Forgetting> {
        let has = |bits| notify.bits.intersects(bits);
        let kernel = self.shared.kernel()?;
        let pages = has(DATA).then(|| kernel.drop_pages(notify.fid)).flatten();
        let fid = self.shared.shown(notify.fid);
        let rest = has(NAMED).then(|| kernel.forget(fid, has(Bits::LOOKUP))).flatten();
        match (pages, rest) {
            (Some(pages), Some(rest)) => Some(Box::pin(async move {
                pages.await;
                rest.await;
            })),
            (pages, rest) => pages.or(rest),
        }
    }

    /// The kernel has forgotten what it could not forget at once.
    fn given_up_later(&self, notify: Notify) -> Vec<Ack> {
        let mut known = self.known();
        known.cache.notified(notify.fid, notify.number);
        known.cache.poll_acks()
    }

    /// What the MDT has not heard of what is given back.
    fn poll_shed(&self, least: usize) -> Vec<GrantWord> {
        let mut known = self.known.borrow_mut();
        if known.shed.len() < least.max(1) {
            return Vec::new();
        }
        let most = known.shed.len().min(VECTOR_MAX);
        known.shed.drain(..most).map(word).collect()
    }
}

pub(super) fn word(stated: Stated) -> GrantWord {
    GrantWord {
        fid: stated.fid.into(),
        number: stated.number.0,
        bits: GrantBits::from_bits_truncate(stated.bits.bits().into()),
        ..GrantWord::default()
    }
}

fn told(ack: Ack) -> GrantAck {
    GrantAck { fid: ack.fid.into(), number: ack.number.0, ..GrantAck::default() }
}

impl Inner {
    /// A callback of the MDT.
    pub(crate) fn called_back(
        self: &Rc<Self>,
        mdt: TargetId,
        callback: Callback,
    ) -> LocalFuture<'static, Result<CallbackAnswer, Errno>> {
        let words = match callback {
            Callback::Recall(words) => words,
            Callback::Glimpse(words) => {
                let inner = self.clone();
                return Box::pin(async move {
                    Ok(CallbackAnswer::Sizes(inner.tell_sizes(&words).await))
                });
            }
            Callback::Complete(words) => {
                words.iter().for_each(|word| self.turns.call(mdt.index, word.number));
                return Box::pin(std::future::ready(Ok(CallbackAnswer::Acks(Vec::new()))));
            }
        };
        planted::reached("client: a grant was called back");
        let is_flushed_first = |word: &GrantWord| {
            word.bits.contains(GrantBits::WRITE) && self.has_unsent(word.fid.into())
        };
        let (kept, words): (Vec<_>, Vec<_>) = words.into_iter().partition(is_flushed_first);
        for word in kept {
            let inner = self.clone();
            self.env.spawn("kept writes called back", async move {
                let give_up = || {
                    let acks = inner.give_up(mdt, &[word]);
                    inner.tell(mdt, Opcode::MdtAck, &acks);
                };
                inner.give_up_kept(word.fid.into(), word.number, give_up).await;
            });
        }
        let (resting, words): (Vec<_>, Vec<_>) =
            words.into_iter().partition(|word| self.rests(word.fid.into()));
        for word in resting {
            let (inner, closed) = (self.clone(), self.end_called_back(word.fid.into()));
            self.env.spawn("handle at rest called back", async move {
                closed.await;
                let acks = inner.give_up(mdt, &[word]);
                inner.tell(mdt, Opcode::MdtAck, &acks);
            });
        }
        let acks = self.give_up(mdt, &words);
        Box::pin(std::future::ready(Ok(CallbackAnswer::Acks(acks))))
    }

    /// The grants that a recall names go. What the kernel has to forget first is acknowledged
    /// later.
    fn give_up(self: &Rc<Self>, mdt: TargetId, words: &[GrantWord]) -> Vec<GrantAck> {
        let grants = self.grants.at(mdt.index);
        let (acks, later) = grants.called_back(words);
        for (notify, forgetting) in later {
            let (inner, grants) = (self.clone(), grants.clone());
            self.env.spawn("grant given up", async move {
                forgetting.await;
                let acks = grants.given_up_later(notify);
                inner.tell(mdt, Opcode::MdtAck, &acks.into_iter().map(told).collect::<Vec<_>>());
            });
        }
        acks.into_iter().map(told).collect()
    }

    /// Tells the MDT of grants in the background. It waits for an answer no longer than the lease:
    /// then the MDT does not wait either.
    fn tell<T: grants::Element>(self: &Rc<Self>, mdt: TargetId, opcode: Opcode, told: &[T]) {
        for part in told.chunks(VECTOR_MAX) {
            let mut call = Call::new(opcode, grants::encode(part, GrantsFlags::empty()));
            call.patience = Some(ldlm::grants::DEAD_WAIT_MAX);
            let inner = self.clone();
            self.env.spawn("grants", async move {
                if let Err(error) = inner.ask(mdt, call.repeatable()).await {
                    tracing::debug!("the MDT cannot be notified of grants: {error}");
                }
            });
        }
    }

    /// Gives back to an MDT what is not kept, once there is enough of it.
    pub(crate) fn shed_grants(self: &Rc<Self>, mdt: u32) {
        let shed = self.grants.at(mdt).poll_shed(SHED_AT);
        if shed.is_empty() {
            return;
        }
        let is_kept = |word: &&GrantWord| {
            word.bits.contains(GrantBits::WRITE) && self.has_unsent(word.fid.into())
        };
        let kept: Vec<Fid> = shed.iter().filter(is_kept).map(|word| word.fid.into()).collect();
        let inner = self.clone();
        if kept.is_empty() {
            return self.tell(TargetId::mdt(mdt), Opcode::MdtShed, &shed);
        }
        self.env.spawn("kept writes given back", async move {
            for fid in kept {
                inner.flush_whole_file(fid).await;
            }
            inner.tell(TargetId::mdt(mdt), Opcode::MdtShed, &shed);
        });
    }
}

impl Client {
    /// What callers are told of files, this kernel keeps. It checks permissions by itself: names
    /// and listings are answered without a question to the MDT from now on where they are known.
    pub fn serve_kernel(&self, kernel: Rc<dyn Kernel>) {
        self.0.grants.serve(kernel);
    }

    /// Whether the kernel may be told of this lease. Not if something was called back or in doubt
    /// since the answer that gave it, nor while a change may be executed whose caller is gone.
    #[must_use]
    pub fn may_be_told(&self, lease: Lease) -> bool {
        self.0.grants.may_be_told(lease)
    }

    /// The kernel believes what it was told of a file until then.
    pub fn told_kernel(&self, fid: Fid, until: Instant) {
        self.0.grants.told_kernel(fid, until);
    }
}
