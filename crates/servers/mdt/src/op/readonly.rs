//! A read-only MDT (`mdt.*.readonly`): changes are refused (EROFS).
//!
//! These are taken all the same:
//! - changes that were answered before: replays, and parts of other MDTs' operations that are
//!   applied there, or have reserved their keys here;
//! - attributes, sizes and layouts of files that clients write: the client may have acknowledged
//!   the change, or the bytes, before the MDT was read-only;
//! - closes, acknowledgements and locks, which change no file for their caller;
//! - names that already move between the shards of a directory. A lookup may wait for one;
//! - the MDT's own work for removed files and for sizes, and mends of `nacre fsck`.

use ldlm::grants::{Bits, HolderId};
use target::{Decided, Marks};
use types::Errno;
use wire::body::{SetattrFlags, SetattrReq, StatfsState};

use super::Op;
use super::rows::{ReadOnly, Row};

/// What clients send because of a write or a read, without a caller that asks for it.
const UNASKED: SetattrFlags = SetattrFlags::SIZE_KNOWN
    .union(SetattrFlags::READ_AT)
    .union(SetattrFlags::KILL_SUID)
    .union(SetattrFlags::KILL_CAPABILITY);

/// What clients may acknowledge before they send it, while they hold WRITE.
const KEPT: SetattrFlags = SetattrFlags::MODE
    .union(SetattrFlags::UID)
    .union(SetattrFlags::GID)
    .union(SetattrFlags::ATIME)
    .union(SetattrFlags::MTIME)
    .union(SetattrFlags::KILL_SUID);

impl Row {
    /// Whether an MDT with these states refuses the operation, unless it is a replay.
    pub(crate) fn is_refused(&self, marks: &Marks) -> bool {
        self.read_only == ReadOnly::Refuses && marks.has(StatfsState::READ_ONLY)
    }
}

impl Op<'_, '_> {
    /// Refuses a change, if this MDT is read-only. A replay was answered before.
    ///
    /// # Errors
    /// EROFS.
    pub(crate) fn check_writable(&self) -> Decided<()> {
        let is_closed = self.replay.is_none() && self.state.marks.has(StatfsState::READ_ONLY);
        if is_closed { Err(Errno::EROFS.into()) } else { Ok(()) }
    }

    /// The same of a change of attributes, unless it may have been acknowledged before it was sent.
    pub(super) fn check_settable(&self, body: &SetattrReq) -> Decided<()> {
        let held = self.state.grants.called.bits_of(HolderId(self.session), body.attr.fid());
        let is_late = KEPT.contains(body.valid) && held.contains(Bits::WRITE);
        if is_late || UNASKED.contains(body.valid) { Ok(()) } else { self.check_writable() }
    }
}

#[cfg(test)]
mod tests {
    use types::TargetKind;
    use wire::Opcode;

    use super::*;
    use crate::op::{Run, row};

    fn opcodes() -> impl Iterator<Item = Opcode> {
        Opcode::ALL.iter().copied().filter(|opcode| opcode.target() == Some(TargetKind::Mdt))
    }

    /// A new operation says here too what it does.
    #[test]
    fn each_operation_says_what_it_does_at_a_read_only_mdt() {
        let of = |what: ReadOnly, changes: bool| {
            let is_it = |opcode: &Opcode| {
                row(*opcode).expect("a row").read_only == what && opcode.modifies() == changes
            };
            let found = opcodes().filter(is_it).map(|opcode| format!("{opcode:?}"));
            found.collect::<Vec<_>>().join(" ")
        };
        assert_eq!(
            of(ReadOnly::Refuses, true),
            "MdtLink MdtUnlink MdtRename MdtSetxattr MdtRemovexattr"
        );
        assert_eq!(of(ReadOnly::Judges, true), "MdtCreate MdtOpen MdtSetattr MdtLayout");
        assert_eq!(of(ReadOnly::Serves, true), "MdtClose MdtLock MdtUnlock MdtCloses");
        assert_eq!(of(ReadOnly::Refuses, false), "");
        assert_eq!(of(ReadOnly::Judges, false), "MdtPrepare");
        assert_eq!(
            of(ReadOnly::Serves, false),
            "MdtGetattr MdtLookup MdtReaddir MdtReadlink MdtGetxattr MdtListxattr MdtStatfs \
             MdtSync MdtFid2path MdtAck MdtShed MdtRestate MdtUpdate MdtUpdates MdtUpdatesDone \
             MdtUpdateOf MdtMove MdtGetattrs"
        );
    }

    #[test]
    fn what_is_refused_is_decided_in_one_transaction() {
        for opcode in opcodes() {
            let row = row(opcode).expect("a row");
            let is_decided = matches!(row.run, Run::Decide(_));
            assert!(is_decided || row.read_only != ReadOnly::Refuses, "{opcode:?}");
        }
    }
}
