//! Operations: one file and one row each. Most are a pure decision over the running image. An
//! operation reads and checks through its transaction, gathers its whole write set there, and
//! decides the answer. The target applies the set and answers.
//!
//! Every operation is one transaction: a failure leaves nothing behind. A replay repeats what the
//! first reply decided (FIDs, handles, layouts, times) and checks no permission again.

mod answer;
mod believed;
pub(crate) mod caching;
mod close;
pub(crate) mod closes;
mod components;
mod create;
pub(crate) mod dirs;
mod fid2path;
mod getattr;
mod getattrs;
pub(crate) mod grants;
pub(crate) mod hurried;
mod inodes;
pub(crate) mod lease;
mod link;
mod lock;
pub(crate) mod moves;
pub(crate) mod names;
mod open;
mod operation;
pub(crate) mod permits;
mod place;
pub(crate) mod put;
mod readdir;
mod readonly;
mod rename;
mod rows;
pub(crate) mod serving;
mod setattr;
pub(crate) mod stated;
mod statfs;
mod swap;
mod sync;
mod tmpfile;
pub(crate) mod unfenced;
mod unlink;
mod why;
mod xattr;

use service::spec::{LDLM_CANCELD, MDT, MDT_OUT, MDT_READPAGE};
use target::Decided;
use types::{Errno, TargetKind};
use wire::{Opcode, Request};

pub(crate) use self::answer::{
    Answer, AttrAnswer, ClosedAnswer, Extras, Listed, ManyAnswer, PageAnswer, Told,
};
pub(crate) use self::open::{is_unplaced, only_reads};
pub(crate) use self::operation::{Caller, Op, checked_name, replayed_time};
pub(crate) use self::rows::{
    Data, Holds, Length, Reach, ReadOnly, Row, Run, Scope, Stat, UsesBytes,
};
use crate::limits::{FID2PATH_BYTES_MAX, XATTR_LIST_BYTES_MAX, XATTR_VALUE_BYTES_MAX};

macro_rules! operations {
    ($(
        $opcode:ident => $run:expr, $service:ident, $stat:expr, $leases:expr,
            $reach:expr, $answer:expr, $holds:expr, $data:expr, $bytes:expr, $closed:expr,
            $read_only:expr;
    )*) => {
        /// The row of an operation; none for what is not an MDT's.
        pub(crate) const fn row(opcode: Opcode) -> Option<&'static Row> {
            match opcode {
                $(Opcode::$opcode => {
                    const ROW: &Row = &Row {
                        run: $run,
                        service: &$service,
                        stat: $stat,
                        leases: $leases,
                        reach: $reach,
                        answer: $answer,
                        holds: $holds,
                        data: $data,
                        bytes: $bytes,
                        closed: $closed,
                        read_only: $read_only,
                    };
                    Some(ROW)
                })*
                _ => None,
            }
        }
    };
}

use Length::{Max, Small};
use Reach::{Grows, Here, Several};
use ReadOnly::{Judges, Refuses, Serves};
use Run::{Decide, Serve};
use Stat::{Name, Of};

operations! {
    MdtGetattr => Decide(getattr::getattr), MDT, Name("getattr"), Scope::Attributes,
        Here, Small, Holds::File(getattr::file),
        Data::Size(getattr::flags), UsesBytes::No, None, Serves;
    MdtLookup => Decide(getattr::lookup), MDT, Name("getattr"), Scope::Name(getattr::parent),
        Here, Small, Holds::Dir(getattr::parent), Data::None, UsesBytes::No, None, Serves;
    MdtCreate => Decide(create::create), MDT, Of(create::stat), Scope::Makes(create::parent),
        Grows, Small, Holds::Dir(create::parent),
        Data::Opens(create::opened), UsesBytes::Yes, None, Judges;
    MdtOpen => Decide(open::open), MDT, Name("open"), Scope::Opens,
        Here, Length::Of(open::answer_bytes), Holds::Nothing,
        Data::Opens(open::opened), UsesBytes::Yes, None, Judges;
    MdtClose => Decide(close::close), MDT_READPAGE, Name("close"), Scope::Closes(closes::file),
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, Some(closes::handle), Serves;
    MdtCloses => Decide(closes::closes), MDT_READPAGE, Name("close"),
        Scope::Closes(closes::files),
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, Some(closes::handles), Serves;
    MdtLink => Decide(link::link), MDT, Name("link"), Scope::Plain,
        Grows, Small, Holds::Dir(link::parent), Data::None, UsesBytes::No, None, Refuses;
    MdtUnlink => Decide(unlink::unlink), MDT, Of(unlink::stat), Scope::Removes(unlink::parent),
        Several, Small, Holds::Dir(unlink::parent), Data::None, UsesBytes::No, None, Refuses;
    MdtRename => Decide(rename::rename), MDT, Name("rename"), Scope::Moves(rename::parents),
        Grows, Small, Holds::Dirs(rename::parents), Data::None, UsesBytes::No, None, Refuses;
    MdtSetattr => Decide(setattr::setattr), MDT, Name("setattr"), Scope::Sets(setattr::is_unseen),
        Several, Small, Holds::File(setattr::file),
        Data::Cuts(setattr::cut), UsesBytes::If(setattr::states_size), None, Judges;
    MdtReaddir => Decide(readdir::readdir), MDT_READPAGE, Name("readdir"),
        Scope::Lists(readdir::leased),
        Here, Length::Of(readdir::answer_bytes), Holds::Nothing,
        Data::None, UsesBytes::No, None, Serves;
    MdtReadlink => Decide(getattr::readlink), MDT, Name("getattr"), Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtGetattrs => Decide(getattrs::getattrs), MDT_READPAGE, Name("getattr"),
        Scope::Each(getattrs::parent),
        Here, Length::Of(getattrs::answer_bytes), Holds::Nothing,
        Data::Sizes(getattrs::asks), UsesBytes::No, None, Serves;
    MdtGetxattr => Decide(xattr::get), MDT, Name("getxattr"), Scope::Plain,
        Here, Max(XATTR_VALUE_BYTES_MAX), Holds::File(xattr::file_read),
        Data::None, UsesBytes::No, None, Serves;
    MdtSetxattr => Decide(xattr::set), MDT, Name("setxattr"), Scope::Kept,
        Several, Small, Holds::File(xattr::file_changed),
        Data::Moves(xattr::moves_data), UsesBytes::Yes, None, Refuses;
    MdtListxattr => Decide(xattr::list), MDT, Name("getxattr"), Scope::Plain,
        Here, Max(XATTR_LIST_BYTES_MAX), Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtRemovexattr => Decide(xattr::remove), MDT, Name("setxattr"), Scope::Kept,
        Several, Small, Holds::Nothing, Data::Attributes, UsesBytes::No, None, Refuses;
    MdtStatfs => Serve, MDT, Name("statfs"), Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtSync => Serve, MDT, Name("sync"), Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtFid2path => Decide(fid2path::fid2path), MDT, Stat::None, Scope::Plain,
        Here, Max(FID2PATH_BYTES_MAX), Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtLock => Serve, MDT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtLayout => Decide(place::layout_intent), MDT, Name("setattr"), Scope::Unseen(|_| true),
        Here, Small, Holds::File(place::file), Data::None, UsesBytes::Yes, None, Judges;
    MdtPrepare => Serve, MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Judges;
    MdtUpdate => Serve, MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUpdates => Serve, MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUpdatesDone => Serve, MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUpdateOf => Serve, MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtMove => Serve, MDT_OUT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtUnlock => Serve, LDLM_CANCELD, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtAck => Serve, LDLM_CANCELD, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtShed => Serve, LDLM_CANCELD, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
    MdtRestate => Serve, MDT, Stat::None, Scope::Plain,
        Here, Small, Holds::Nothing, Data::None, UsesBytes::No, None, Serves;
}

// An opcode of MDTs without a row does not compile, nor does a row of another target's.
const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        let is_ours = matches!(opcode.target(), Some(TargetKind::Mdt));
        assert!(row(opcode).is_some() == is_ours, "every operation of MDTs has its row");
        at += 1;
    }
};

/// Most that the answer to a request may hold; zero where it is small.
pub(crate) fn answer_bytes(request: &Request) -> u64 {
    let bytes = match row(request.opcode()).map(|row| &row.answer) {
        None | Some(Length::Small) => 0,
        Some(Length::Max(bytes)) => *bytes,
        Some(Length::Of(bytes)) => bytes(request),
    };
    bytes as u64
}

/// Decides one operation.
pub(crate) fn decide(row: &Row, op: &mut Op<'_, '_>) -> Decided<Answer> {
    match row.run {
        Run::Decide(decide) => decide(op),
        Run::Serve => Err(Errno::EOPNOTSUPP.into()),
    }
}

/// Whether this request lets its client use or change bytes of the file that it decides on.
pub(crate) fn uses_bytes(request: &Request) -> bool {
    match row(request.opcode()).map(|row| &row.bytes) {
        None | Some(UsesBytes::No) => false,
        Some(UsesBytes::Yes) => true,
        Some(UsesBytes::If(uses)) => uses(request),
    }
}
