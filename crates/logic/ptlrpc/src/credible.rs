//! Checks a client's claims about the past: which replays and which resent opens are possible, and
//! which answers are kept.
//!
//! A request with REPLAY is executed on the word of its client. It names its place in history and
//! brings the answer of the first time. So only a request that an earlier run can have answered is
//! taken for a replay. The check is pure, and comes before a request is admitted.

use types::{Instance, Transno};
use wire::{Opcode, RequestFlags, RequestHeader};

use crate::PeerMisbehaved;

/// Whether a correct client can send this to the run `instance` of a target.
///
/// - A replay has a place in the history of an earlier run. Locks, grants, handles for reading and
///   room for kept writes are stated again without one, because they change no records.
/// - Only an open is repeated for its handle alone, as a replay or for its resend.
/// - Only the answer to a change is kept for a resend. Others may be long, and are in no account.
///
/// # Errors
/// What is wrong with it: its link is to be dropped.
pub fn check_past(
    header: &RequestHeader,
    opcode: Opcode,
    instance: Instance,
) -> Result<(), PeerMisbehaved> {
    let (flags, transno) = (header.flags, Transno(header.transno));
    if flags.contains(RequestFlags::OPEN) && !opcode.opens() {
        return Err(PeerMisbehaved::Past("no open is repeated by it"));
    }
    if flags.contains(RequestFlags::MODIFIES) && !opcode.modifies() {
        return Err(PeerMisbehaved::Past("it is sent as a change, and changes nothing"));
    }
    if !flags.contains(RequestFlags::REPLAY) {
        return Ok(());
    }
    let restates = opcode.restates() && !flags.contains(RequestFlags::MODIFIES);
    if transno.is_none() && !restates {
        return Err(PeerMisbehaved::Past("a replay without a place in history"));
    }
    if transno.0 >> 32 >= instance.0 {
        return Err(PeerMisbehaved::Past("a replay of what was not answered by an earlier run"));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use wire::Request;

    use super::*;

    fn check(opcode: Opcode, flags: RequestFlags, transno: u64) -> bool {
        let mut header = Request::new(opcode, Vec::new()).header;
        (header.flags, header.transno) = (flags, transno);
        check_past(&header, opcode, Instance(3)).is_ok()
    }

    #[test]
    fn only_what_an_earlier_run_can_have_answered_is_a_replay() {
        let (replay, modifies) = (RequestFlags::REPLAY, RequestFlags::MODIFIES);
        let before = (2 << 32) | 7;
        assert!(check(Opcode::MdtUnlink, replay | modifies, before));
        assert!(check(Opcode::MdtUnlink, modifies, u64::MAX), "it is none");
        for transno in [0, 3 << 32, (3 << 32) | 1, u64::MAX] {
            assert!(!check(Opcode::MdtUnlink, replay | modifies, transno), "{transno:x}");
        }
        assert!(!check(Opcode::MdtGetattr, replay, 0), "nothing passes recovery by its flag");
    }

    #[test]
    fn only_what_changes_no_records_is_stated_again_without_a_place() {
        assert!(check(Opcode::MdtLock, RequestFlags::REPLAY, 0));
        assert!(check(Opcode::MdtRestate, RequestFlags::REPLAY, 0));
        assert!(check(Opcode::OstReserve, RequestFlags::REPLAY, 0));
        assert!(!check(Opcode::MdtLock, RequestFlags::REPLAY | RequestFlags::MODIFIES, 0));
        assert!(!check(Opcode::MdtUnlock, RequestFlags::REPLAY, 0));
    }

    #[test]
    fn only_a_change_has_its_answer_kept() {
        for opcode in Opcode::ALL {
            let changes = check(*opcode, RequestFlags::MODIFIES, 0);
            assert_eq!(changes, opcode.modifies(), "{opcode:?}");
            assert!(check(*opcode, RequestFlags::empty(), 0), "{opcode:?}");
        }
    }

    #[test]
    fn only_an_open_is_repeated_for_its_handle() {
        let before = (2 << 32) | 7;
        for opcode in Opcode::ALL {
            let opens = matches!(opcode, Opcode::MdtOpen | Opcode::MdtCreate);
            for flags in [RequestFlags::REPLAY, RequestFlags::RESENT] {
                assert_eq!(check(*opcode, flags | RequestFlags::OPEN, before), opens, "{opcode:?}");
            }
        }
    }
}
