//! Grants: they let a client cache parts of a file until the MDT calls them back. Both sides are
//! state machines.
//!
//! A client has at most one grant per file. It is a set of [`Bits`], named by the file's FID and a
//! [`Number`] that rises. It comes with the answer to an ordinary operation. It ends with a recall,
//! when the client gives it back unasked, with the session's lease, or, if no client is called,
//! after 50 ms. `docs/design/grants.md` explains the whole.
//!
//! [`Mdt`] is the table of one MDT, [`Timed`] the table of an MDT's timed grants, and [`Cache`] a
//! client's view of its grants. None of them has a clock or a network: times come in as arguments,
//! and the caller polls for messages to send.
//!
//! Lustre: inodebits locks of `ldlm` (`ldlm_inodebits.c`, `ldlm_lock.c`, `ldlm_request.c`).

mod bits;
mod client;
mod contention;
mod limits;
mod mdt;
mod timed;

use std::cell::Cell;

use types::{Fid, Span, Transno};

pub use bits::{BITS, Bits};
pub use client::{Belief, Cache, CacheConfig, Listing, Name, Notify, Question};
pub use limits::*;
pub use mdt::{Begun, Gifts, Mdt, MdtConfig, Mode, Output, PeerMisbehaved};
pub use timed::Timed;

planted::bugs! {
    /// Planted bugs of grants.
    pub struct Bugs in "ldlm" {
        /// The last holder of a file is not asked to give it up.
        recall_skips_holder,
        /// A client's own change calls back its own grant.
        own_recall_not_exempt,
        /// What is being taken is given anew.
        grant_during_takeover,
        /// What a session is asked to give up is given to it anew.
        dying_given_again,
        /// A grant passes on before the OSTs refuse the session that had it.
        no_fence,
        /// An acknowledgement of an earlier recall counts for the one under way.
        old_ack_counts,
        /// Grants of a late shedding go, though they were given again since.
        old_shed_counts,
        /// Replies renew the lease of a client that does not answer its recalls.
        stuck_client_renews,
        /// An expelled client is not told.
        no_floor,
        /// A new instance lets changes pass before all clients have restated.
        restart_waits_for_nobody,
        /// A recall is acknowledged before the kernel was told.
        ack_before_notify,
        /// A dying grant answers with validity.
        dying_has_validity,
        /// Answers are applied in the order in which they come.
        as_of_ignored,
        /// An answer that comes after the recall of what it gives is believed.
        dead_answer_counts,
        /// The lease counts from the reply.
        lease_from_reply,
        /// A client restates though its lease may have ended.
        restate_after_lapse,
        /// Values of changes that no recovery brought back are believed.
        lost_changes_kept,
        /// The client waits for its kernel as long as that takes.
        stuck_kernel_waits,
        /// What this client is changing is answered from the cache.
        own_change_not_awaited,
    }
}

/// Number of a gift or a recall: rises over all of one MDT's, over its restarts too. The upper 20
/// bits are the boot epoch of the target.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Number(pub u64);

impl Number {
    /// The first of a boot epoch. A million starts further the numbers begin anew: a client that
    /// still has one of before takes no grants from then on, until its session is another one. An
    /// imported target goes on with an epoch far ahead, but no session of before.
    #[must_use]
    pub fn first_of_epoch(epoch: u32) -> Number {
        Number((u64::from(epoch % EPOCHS_MAX) << EPOCH_SHIFT) | 1)
    }

    fn next(self) -> Number {
        Number(self.0 + 1)
    }
}

/// Draws the numbers of one MDT, each once.
///
/// A number alone gives nothing, and a gap among numbers means nothing. So drawing one is no change
/// of the table: an answer is planned, and has its number, before the store has taken what it
/// answers. If the store refuses that, the number stays unused.
#[derive(Debug)]
struct Numbers(Cell<Number>);

impl Numbers {
    fn of_epoch(epoch: u32) -> Numbers {
        Numbers(Cell::new(Number::first_of_epoch(epoch)))
    }

    fn draw(&self) -> Number {
        self.0.set(self.0.get().next());
        self.0.get()
    }

    /// The one that was drawn last.
    fn last(&self) -> Number {
        self.0.get()
    }
}

/// Names a holder of grants: a client's session with the MDT, as the engine numbers it. One that is
/// over is not used again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HolderId(pub u64);

/// A change that the engine executes or has parked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ChangeId(pub u64);

/// What a change changes: nobody else may cache these bits while it is executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Want {
    /// Of this file.
    pub fid: Fid,
    /// These bits.
    pub bits: Bits,
}

/// How a grant ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// With a recall, or with the session's lease.
    Recall,
    /// After [`TIMED`], counted by the client from when it sent the request. Nobody is called.
    Timed,
}

/// What an answer gives of one file; no bits: nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Given {
    /// What may be cached.
    pub bits: Bits,
    /// Names the gift.
    pub number: Number,
    /// How it ends.
    pub kind: Kind,
}

/// What every reply says beside its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Head {
    /// Grants with a lower number are void.
    pub floor: Number,
    /// Whether the session's lease counts anew from when the request was sent.
    pub renews: bool,
}

/// Server to client: give these bits up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Recall {
    /// Of this file.
    pub fid: Fid,
    /// All bits that are asked back and not acknowledged.
    pub bits: Bits,
    /// Names the recall; the acknowledgement repeats it.
    pub number: Number,
}

/// Client to server: what that recall asked for is given up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ack {
    /// Of this file.
    pub fid: Fid,
    /// The recall's.
    pub number: Number,
}

/// Client to server: a grant, given back unasked or restated after a restart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stated {
    /// Of this file.
    pub fid: Fid,
    /// These bits.
    pub bits: Bits,
    /// Of the last gift that the client has seen.
    pub number: Number,
}

/// What an answer says of one file, as a client takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Told {
    /// This file.
    pub fid: Fid,
    /// What may be cached of it.
    pub given: Given,
    /// The last change that the answer knows of.
    pub as_of: Transno,
}

#[cfg(test)]
#[test]
fn numbers_rise_from_start_to_start_also_of_a_target_that_was_imported() {
    for epoch in [1, 77, 1_795_451_855] {
        assert!(Number::first_of_epoch(epoch) < Number::first_of_epoch(epoch + 1));
    }
}

/// A span, longer by what two clocks may differ: what a client counts as `span`, a server counts as
/// this.
pub fn with_skew(span: Span) -> Span {
    Span(span.0 / 100 * (100 + SKEW_PERCENT))
}
