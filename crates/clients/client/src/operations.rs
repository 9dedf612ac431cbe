//! The meaning of each operation of an MDT or OST for this client, one row each.
//!
//! An opcode without a row does not compile. The files that act on a row match all kinds. So an
//! operation of a new kind does not compile either until they handle it.

use types::TargetKind;
use wire::Opcode;

/// Which files a change affects if it is lost ([`crate::lost`]).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Loss {
    /// It is no work of a caller.
    Nothing,
    Write,
    Punch,
    Fallocate,
    Create,
    Open,
    Close,
    Closes,
    Link,
    Unlink,
    Rename,
    Setattr,
    Setxattr,
    Removexattr,
}

/// Which earlier changes of this client it may depend on (`namespace/order.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Turn {
    /// On none that it has to wait for.
    Free,
    Create,
    Link,
    Unlink,
    Rename,
    Open,
    Setattr,
    Xattr,
}

/// Which files' attributes it shows or uses, so that kept ones are sent first
/// (`data/keep/attrs.rs`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Attrs {
    Ignores,
    /// Perhaps those of any file of the MDT.
    Uses,
    /// Those of the file that its `FidReq` names.
    OfNamed,
    /// The same of an `OpenReq` that only reads; otherwise all.
    OfOpened,
    /// A create: if it may open a file that is there.
    IfItOpens,
}

/// An operation, as this client sends it.
#[derive(Debug)]
pub(crate) struct Row {
    pub(crate) loss: Loss,
    pub(crate) turn: Turn,
    pub(crate) attrs: Attrs,
}

/// Of operations that no MDT and no OST executes.
const OTHER: Row = Row { loss: Loss::Nothing, turn: Turn::Free, attrs: Attrs::Ignores };

macro_rules! operations {
    ($($opcode:ident => $loss:ident, $turn:ident, $attrs:ident;)*) => {
        const fn find(opcode: Opcode) -> Option<&'static Row> {
            match opcode {
                $(Opcode::$opcode => {
                    const ROW: &Row =
                        &Row { loss: Loss::$loss, turn: Turn::$turn, attrs: Attrs::$attrs };
                    Some(ROW)
                })*
                _ => None,
            }
        }
    };
}

operations! {
    MdtGetattr => Nothing, Free, OfNamed;
    MdtLookup => Nothing, Free, Ignores; // repeated if its file has kept attributes
    MdtCreate => Create, Create, IfItOpens;
    MdtOpen => Open, Open, OfOpened;
    MdtClose => Close, Free, Ignores;
    MdtCloses => Closes, Free, Ignores;
    MdtLink => Link, Link, Uses;
    MdtUnlink => Unlink, Unlink, Uses;
    MdtRename => Rename, Rename, Uses;
    MdtSetattr => Setattr, Setattr, Ignores;
    MdtReaddir => Nothing, Free, Uses;
    MdtReadlink => Nothing, Free, Ignores;
    MdtGetxattr => Nothing, Free, OfNamed;
    MdtSetxattr => Setxattr, Xattr, Uses;
    MdtListxattr => Nothing, Free, OfNamed;
    MdtRemovexattr => Removexattr, Xattr, Uses;
    MdtStatfs => Nothing, Free, Ignores;
    MdtSync => Nothing, Free, Uses;
    MdtFid2path => Nothing, Free, Ignores;
    MdtLock => Nothing, Free, Ignores; // a lock ends with its session
    MdtUnlock => Nothing, Free, Ignores;
    MdtAck => Nothing, Free, Ignores;
    MdtShed => Nothing, Free, Ignores;
    MdtRestate => Nothing, Free, Ignores;
    MdtLayout => Nothing, Free, Ignores;
    MdtPrepare => Nothing, Free, Ignores;
    MdtUpdate => Nothing, Free, Ignores;
    MdtUpdates => Nothing, Free, Ignores;
    MdtUpdatesDone => Nothing, Free, Ignores;
    MdtUpdateOf => Nothing, Free, Ignores;
    MdtMove => Nothing, Free, Ignores;
    MdtGetattrs => Nothing, Free, Uses;

    OstRead => Nothing, Free, Ignores;
    OstWrite => Write, Free, Ignores;
    OstPunch => Punch, Free, Ignores;
    OstGlimpse => Nothing, Free, Ignores;
    OstDestroy => Nothing, Free, Ignores;
    OstStatfs => Nothing, Free, Ignores;
    OstSync => Nothing, Free, Ignores;
    OstFallocate => Fallocate, Free, Ignores;
    OstSeek => Nothing, Free, Ignores;
    OstFence => Nothing, Free, Ignores;
    OstList => Nothing, Free, Ignores;
    OstRaise => Nothing, Free, Ignores;
    OstReserve => Nothing, Free, Ignores;
}

// An operation that a client may send to an MDT or OST has a row, and only changes can be lost.
const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        let is_ours = matches!(opcode.target(), Some(TargetKind::Mdt | TargetKind::Ost));
        assert!(find(opcode).is_some() == is_ours, "every operation of MDTs and OSTs has its row");
        if let Some(row) = find(opcode) {
            let is_lost = !matches!(row.loss, Loss::Nothing);
            assert!(opcode.modifies() || !is_lost, "only a change can be lost");
            let has_turn = !matches!(row.turn, Turn::Free);
            assert!(opcode.modifies() || !has_turn, "only a change waits for others");
        }
        at += 1;
    }
};

/// The row of an operation.
pub(crate) fn row(opcode: Opcode) -> &'static Row {
    find(opcode).unwrap_or(&OTHER)
}
