//! A restart of the MDT: this client states the grants that it holds, and goes on using those that
//! the MDT takes. In the same way it states its handles for reading that no replay brings back. It
//! goes on using all of these. The MDT leaves out a handle that it knows to be closed, whose file
//! is gone, or for which it has no room: its close is refused then.
//!
//! ```text
//! restart --what may be lost is given up, the kernel forgets it--> restate --vectors-->
//!     restated: the rest is given up, the kernel forgets it --> ReplayDone
//! ```
//! The cache answers nothing from the restart until the MDT has taken the last vector. The MDT
//! executes no change before this client has said that it is done.
//!
//! Invariants
//! - A stated grant includes durable changes only: others may be gone with the client that made
//!   them.
//! - A client whose lease may be over states nothing.
//! - The right to keep writes is not stated, because the MDT knows it from the replayed open.

use endpoint::Call;
use ldlm::grants::{Bits, Notify, Number, Stated};
use types::{Fid, Instant, Transno};
use wire::body::{GrantWord, GrantsFlags, OpenWord, STATED_OPENS_MAX, encode_opens};
use wire::{Opcode, Reply, grants};

use super::kernel::Forgetting;
use super::recall::word;
use super::{Grants, Known};

/// Files that a kernel forgets one by one. If it has more of those that it is to forget, it forgets
/// all files.
const FORGOTTEN_MAX: usize = 256;

impl Known {
    /// Values that know of changes after `durable` are given up. Returns the files and bits. Bytes
    /// that came with opens go too: a dead client may have written them, and that may be lost.
    pub(super) fn restart(&mut self, durable: Transno, now: Instant) -> Vec<(Fid, Bits)> {
        self.recalls.count();
        self.cache.be_deaf();
        self.cache.restarted(self.seen, now);
        self.shed.clear();
        self.on_open.clear();
        let lost = self.cache.give_up_after(durable, Bits::WRITE);
        self.forget_values(&lost);
        lost
    }

    fn forget_values(&mut self, given_up: &[(Fid, Bits)]) {
        for (fid, bits) in given_up {
            self.on_open.forget(*fid);
            if bits.contains(Bits::UPDATE) {
                self.listings.forget(*fid);
            }
        }
    }

    /// The recovery ended while this client took part in it once more, because its link had broken:
    /// nobody answers the vectors. The MDT counts as held what it took the first time, and nothing
    /// was given since.
    pub(super) fn resumed(&mut self) {
        self.restating.clear();
        self.cache.recovered(Transno::NONE);
    }

    /// The vectors were answered: what the MDT did not take is given up. Returns the files and
    /// bits.
    fn restated(&mut self, answers: &[Vec<Stated>]) -> Vec<(Fid, Bits)> {
        self.recalls.count();
        let vectors = std::mem::take(&mut self.restating);
        let mut refused = Vec::new();
        for (at, vector) in vectors.iter().enumerate() {
            let held = answers.get(at).map_or(&[][..], |held| held);
            refused.extend(self.cache.refused(vector, held));
        }
        self.forget_values(&refused);
        self.cache.recovered(Transno::NONE); // what may be lost was given up before
        refused
    }
}

impl Grants {
    /// The MDT was started again and knows the session. The recovery waits for what is returned:
    /// the kernel forgets what may be lost.
    pub(crate) fn restart(&self) -> Option<Forgetting> {
        let durable = self.mdt.borrow().upgrade()?.durable_before();
        let now = self.env.now();
        let (lost, had_bytes) = {
            let mut known = self.known();
            let had_bytes = known.on_open.stats().hits > 0;
            let lost = (known.cache.lease_until() > now).then(|| known.restart(durable, now));
            (lost, had_bytes)
        };
        if had_bytes {
            self.doubt_pages(); // some may be of these bytes
        }
        match lost {
            Some(lost) => self.kernel_forgets(&lost),
            None => self.forget(),
        }
    }

    /// Calls that state all that is held, at least one: first the grants, then the handles.
    pub(crate) fn restate(&self) -> Vec<Call> {
        let mdt = self.mdt.borrow().upgrade();
        let opens = mdt.map_or_else(Vec::new, |mdt| mdt.stated_opens());
        let mut known = self.known.borrow_mut();
        let vectors = known.cache.restate();
        let calls = calls(&vectors, &opens);
        known.restating = vectors;
        calls
    }

    /// The MDT has answered these calls, and perhaps others. The recovery waits for what is
    /// returned: the kernel forgets what the MDT did not take.
    pub(crate) fn restated(&self, replies: &[Box<Reply>]) -> Option<Forgetting> {
        let mut known = self.known.borrow_mut();
        let count = known.restating.len();
        let answers: Vec<_> = replies.iter().take(count).map(|reply| taken(reply)).collect();
        let refused = known.restated(&answers);
        drop(known);
        if !refused.is_empty() {
            let target_id = self.mdt.borrow().upgrade().map(|mdt| mdt.name());
            let target_id = target_id.map(tracing::field::display);
            tracing::info!(target_id, files = refused.len(), "grants are not held any more");
        }
        self.kernel_forgets(&refused)
    }

    /// The kernel is asked for each file first: it has none of those that this client has removed,
    /// and to forget all files takes longer the more it has.
    fn kernel_forgets(&self, files: &[(Fid, Bits)]) -> Option<Forgetting> {
        let mut forgetting = Vec::new();
        for (fid, bits) in files {
            let notify = Notify { fid: *fid, bits: *bits, number: Number(0), force: false };
            forgetting.extend(self.forgets(notify));
            if forgetting.len() > FORGOTTEN_MAX {
                return self.kernel_forgets_all();
            }
        }
        (!forgetting.is_empty()).then(|| all(forgetting))
    }
}

/// Calls with these grants, and behind them calls with these handles. The last one says so.
fn calls(vectors: &[Vec<Stated>], opens: &[OpenWord]) -> Vec<Call> {
    let handles = opens.chunks(STATED_OPENS_MAX);
    let count = (vectors.len() + handles.len()).max(1);
    let flags = |at| if at + 1 == count { GrantsFlags::LAST } else { GrantsFlags::empty() };
    let call = |at: usize| {
        let vector = vectors.get(at).map_or(&[][..], Vec::as_slice);
        let words: Vec<GrantWord> = vector.iter().copied().map(word).collect();
        let mut bufs = grants::encode(&words, flags(at));
        let handles = at.checked_sub(vectors.len()).and_then(|at| handles.clone().nth(at));
        bufs.extend(handles.map(encode_opens));
        Call::new(Opcode::MdtRestate, bufs)
    };
    (0..count).map(call).collect()
}

/// Completes when all of them have. They go on side by side, because each may wait for the kernel.
fn all(forgetting: Vec<Forgetting>) -> Forgetting {
    Box::pin(async move {
        env::join_all(forgetting).await;
    })
}

/// The grants that the MDT has taken of a vector: none where it has refused it.
fn taken(reply: &Reply) -> Vec<Stated> {
    let stated = |word: GrantWord| Stated {
        fid: word.fid.into(),
        bits: Bits::from_bits_truncate(word.bits.bits() as u8),
        number: Number(word.number),
    };
    let words = reply.errno().is_none().then(|| grants::decode(&reply.bufs));
    match words {
        Some(Ok((words, _))) => words.into_iter().map(stated).collect(),
        Some(Err(_)) | None => Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;
    use std::rc::Rc;

    use env_sim::{Sim, SimConfig};
    use wire::Request;
    use wire::body::stated_opens;

    use super::super::{AllGrants, Kernel};
    use super::*;
    use crate::config::Bugs;

    /// How many grants and handles each call has, and whether it says that it is the last one.
    fn sizes(counts: &[usize], handles: usize) -> Vec<(usize, usize, bool)> {
        let stated = |oid| Stated { fid: Fid::new(1, oid), bits: Bits::LOOKUP, number: Number(1) };
        let vector = |count: &usize| (1..=*count as u32).map(stated).collect();
        let vectors: Vec<Vec<Stated>> = counts.iter().map(vector).collect();
        let size = |call: Call| {
            let request = Request::new(call.opcode, call.bufs);
            let (words, flags) = grants::decode::<GrantWord>(&request.bufs).expect("whole");
            let opens = stated_opens(&request).expect("whole");
            (words.len(), opens.len(), flags.contains(GrantsFlags::LAST))
        };
        let opens = vec![OpenWord::default(); handles];
        calls(&vectors, &opens).into_iter().map(size).collect()
    }

    #[test]
    fn handles_are_stated_behind_the_grants_and_the_last_call_says_so() {
        assert_eq!(sizes(&[], 0), [(0, 0, true)]);
        assert_eq!(sizes(&[3, 2], 0), [(3, 0, false), (2, 0, true)]);
        assert_eq!(sizes(&[], 5), [(0, 5, true)]);
        let most = STATED_OPENS_MAX;
        assert_eq!(sizes(&[3], most + 1), [(3, 0, false), (0, most, false), (0, 1, true)]);
    }

    /// A kernel that has so many files, the first ones.
    struct Having {
        files: u32,
        asked: Cell<usize>,
        forgot_all: Cell<bool>,
    }

    impl Kernel for Having {
        fn forget(&self, fid: Fid, _: bool) -> Option<Forgetting> {
            self.asked.set(self.asked.get() + 1);
            let forgetting: Forgetting = Box::pin(std::future::ready(()));
            (fid.oid <= self.files).then_some(forgetting)
        }

        fn forget_all(&self) -> Option<Forgetting> {
            self.forgot_all.set(true);
            None
        }
    }

    /// 10,000 files are given up, and a kernel has so many of them: how many it is asked to forget,
    /// whether one is waited for, and whether it is to forget all that it has.
    fn forgets(files: u32) -> (usize, bool, bool) {
        let sim = Sim::new(1, SimConfig::default());
        let env = sim.node("client", types::Nid::default()).env();
        let grants = AllGrants::new(&env, Bugs::default(), &Rc::default());
        let kernel = Rc::new(Having { files, asked: Cell::new(0), forgot_all: Cell::new(false) });
        grants.serve(kernel.clone());
        let given_up: Vec<_> =
            (1..=10_000).map(|oid| (Fid::new(0x2_0000_0400, oid), Bits::LOOKUP)).collect();
        let waits = grants.at(0).kernel_forgets(&given_up).is_some();
        (kernel.asked.get(), waits, kernel.forgot_all.get())
    }

    #[test]
    fn a_kernel_keeps_its_files_when_files_are_given_up_that_it_does_not_have() {
        assert_eq!(forgets(0), (10_000, false, false));
        assert_eq!(forgets(FORGOTTEN_MAX as u32), (10_000, true, false));
        let most = FORGOTTEN_MAX + 1;
        assert_eq!(forgets(most as u32), (most, false, true));
    }
}
