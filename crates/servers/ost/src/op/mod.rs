//! Operations of an OST, one file and one row each: decode - lock - check - move data - record -
//! reply.

mod change;
pub(crate) mod destroy;
pub(crate) mod fallocate;
pub(crate) mod fence;
pub(crate) mod glimpse;
pub(crate) mod list;
pub(crate) mod punch;
pub(crate) mod raise;
pub(crate) mod read;
pub(crate) mod removal;
pub(crate) mod reserve;
pub(crate) mod seek;
pub(crate) mod statfs;
pub(crate) mod sweep;
pub(crate) mod sync;
pub(crate) mod write;

use service::spec::{MDT_IO, MDT_OUT, OST, OST_CREATE, OST_IO};
use service::{Direction, Incoming, ServiceSpec};
use types::{Errno, TargetId, TargetKind};
use wire::{Opcode, Reply, Request};

use self::change::{Told, ranges, reply_attr, valid_object};
use crate::tally::Kind;
use crate::target::Ost;

/// One operation, apart from how it is executed. Whether it changes something is said by
/// [`Opcode::modifies`]. Locks live as long as the operation and are taken in its file: 7 of the 13
/// operations take some, of ranges or of several objects that only their bodies name.
#[derive(Debug)]
pub(crate) struct Row {
    /// Where its requests queue.
    pub(crate) service: &'static ServiceSpec,
    /// Which head of the queue they go to.
    pub(crate) head: Head,
    /// Which way it moves an object's data, if it does.
    pub(crate) moves: Option<Direction>,
    /// Most that its answer holds.
    pub(crate) answer: Length,
    /// What statistics count it as.
    pub(crate) kind: Kind,
}

/// A head of a service's queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Head {
    Regular,
    HighPriority,
}

/// Most that an answer holds, data of objects not counted.
#[derive(Debug)]
pub(crate) enum Length {
    /// At most [`service::limits::ANSWER_BYTES_SMALL`].
    Small,
    /// What a correct answer to this request holds.
    Of(fn(&Request) -> u64),
}

/// Most that the answer to a request holds; zero where it is small.
pub(crate) fn answer_bytes(row: &Row, request: &Request) -> u64 {
    match row.answer {
        Length::Small => 0,
        Length::Of(bytes) => bytes(request),
    }
}

/// Where requests of a service queue at `target`. At the data target of an MDT I/O and all else
/// have a service each, apart from that of the MDT, whose requests wait for some of these.
pub(crate) fn queue(service: &'static ServiceSpec, target: TargetId) -> &'static ServiceSpec {
    match service {
        own if !target.is_dom() => own,
        io if *io == OST_IO => &MDT_IO,
        _ => &MDT_OUT,
    }
}

macro_rules! operations {
    ($(
        $opcode:ident =>
            $file:ident, $service:ident, $head:expr, $moves:expr, $answer:expr, $kind:expr;
    )*) => {
        /// The row of an operation; none for what is not an OST's.
        pub(crate) const fn row(opcode: Opcode) -> Option<&'static Row> {
            match opcode {
                $(Opcode::$opcode => {
                    const ROW: &Row = &Row {
                        service: &$service,
                        head: $head,
                        moves: $moves,
                        answer: $answer,
                        kind: $kind,
                    };
                    Some(ROW)
                })*
                _ => None,
            }
        }

        /// Executes a request by the file of its operation.
        pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
            incoming.check_role()?;
            match incoming.request.opcode() {
                $(Opcode::$opcode => $file::execute(ost, incoming).await,)*
                _ => Err(Errno::EOPNOTSUPP),
            }
        }
    };
}

use Head::{HighPriority, Regular};
use Length::{Of, Small};

const NO_DATA: Option<Direction> = None;
const READS: Option<Direction> = Some(Direction::Read);
const WRITES: Option<Direction> = Some(Direction::Write);

operations! {
    OstRead => read, OST_IO, Regular, READS, Small, Kind::Read;
    OstWrite => write, OST_IO, Regular, WRITES, Small, Kind::Write;
    OstPunch => punch, OST_IO, Regular, NO_DATA, Small, Kind::Punch;
    OstFallocate => fallocate, OST_IO, Regular, NO_DATA, Small, Kind::Prealloc;
    OstSeek => seek, OST_IO, Regular, NO_DATA, Small, Kind::Other;
    OstGlimpse => glimpse, OST, HighPriority, NO_DATA, Of(glimpse::answer_bytes), Kind::Getattr;
    OstDestroy => destroy, OST_CREATE, Regular, NO_DATA, Small, Kind::Destroy;
    OstFence => fence, OST, HighPriority, NO_DATA, Small, Kind::Other;
    OstList => list, OST, Regular, NO_DATA, Of(list::answer_bytes), Kind::Other;
    OstRaise => raise, OST, Regular, NO_DATA, Small, Kind::Other;
    OstReserve => reserve, OST, Regular, NO_DATA, Small, Kind::Other;
    OstStatfs => statfs, OST, Regular, NO_DATA, Small, Kind::Statfs;
    OstSync => sync, OST, Regular, NO_DATA, Small, Kind::Sync;
}

// An opcode of OSTs without a row does not compile, nor does a row of another target's.
const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        let is_ours = matches!(opcode.target(), Some(TargetKind::Ost));
        assert!(row(opcode).is_some() == is_ours, "every operation of OSTs has its row");
        at += 1;
    }
};
