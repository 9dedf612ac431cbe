//! Who may keep the data of a file: the grant of its CACHE bit, decided when the file is opened.
//!
//! | who has the file open | CACHE |
//! |---|---|
//! | clients that read | each of them, also after the close |
//! | any other | no client |
//!
//! Data of a CLEAN file changes only after an open for writing or a truncate, which make the file
//! DIRTY. Both call CACHE back from all other clients before they are executed, also where the file
//! is DIRTY already: its client may have kept the bit, and not yet heard of its own open for
//! writing. That client itself stops to use what it keeps when it begins such a change.

use ldlm::grants::{Bits, Want};
use types::Fid;
use wire::attr::S_IFREG;
use wire::body::{CreateFlags, CreateReq, Disposition, OpenReq, SetattrFlags, SetattrReq};
use wire::{Opcode, Request, SizeState};

use super::open::{cuts, wants_write};
use super::{Answer, Caller, Op, only_reads};
use crate::grants::{Gift, Grants};
use crate::record::Inode;

/// Extended attributes that change where a file's data is.
const LAYOUTS: &[u8] = b"lustre.lov";

/// Whether a kernel wants to keep what this request opens.
pub(super) fn is_wanted(request: &Request) -> bool {
    if request.opcode() != Opcode::MdtOpen {
        return false;
    }
    let body: OpenReq = request.body();
    body.caches != 0 && only_reads(body.open_flags)
}

impl Op<'_, '_> {
    /// Whether nothing can change the data of a file that this request opens, unless the MDT hears
    /// of it first: no handle, and no client that the MDT has given up and the OSTs do not refuse.
    pub(super) fn may_be_cached(&self, inode: &Inode) -> bool {
        is_wanted(self.request)
            && inode.attr.file_type() == S_IFREG
            && inode.attr.size_state() != SizeState::Dirty
            && self.state.opens.writers(inode.fid()) == 0
            && !self.state.fences.is_unsure()
    }
}

/// Takes out of an answer that its file may be cached: nothing is given yet.
pub(super) fn take_offer(answer: &mut Answer) -> bool {
    let Answer::Attr(answer) = answer else { return false };
    let is_offered = answer.disposition.contains(Disposition::CACHE);
    answer.disposition.remove(Disposition::CACHE);
    is_offered
}

/// Gives the data of the file that the answer tells of, and says so there.
pub(super) fn give(caller: &Caller<'_>, answer: &mut Answer, grants: &mut Grants) -> bool {
    let Answer::Attr(answer) = answer else { return false };
    let fid = answer.attr.fid();
    let gift = grants.give_called(caller.session, fid, Bits::CACHE, caller.clock);
    let is_given = gift == Gift::Called;
    answer.disposition |= Disposition::CACHE.when(is_given);
    is_given
}

/// What a change wants besides: that no other client keeps the data that it changes, or gives
/// another place. `told`: the file that its answer tells of.
pub(super) fn add_wants(request: &Request, told: Option<Fid>, wants: &mut Vec<Want>) {
    match request.opcode() {
        Opcode::MdtOpen if changes(request.body::<OpenReq>().open_flags) => add(told, wants),
        Opcode::MdtCreate => {
            let body: CreateReq = request.body();
            if body.flags.contains(CreateFlags::OPEN) && changes(body.open_flags) {
                add(told, wants);
            }
        }
        Opcode::MdtSetattr => {
            let valid = request.body::<SetattrReq>().valid;
            if valid.contains(SetattrFlags::SIZE) {
                add_to_all(wants);
            }
        }
        Opcode::MdtSetxattr if request.buf(1).starts_with(LAYOUTS) => add_to_all(wants),
        _ => {}
    }
}

fn changes(flags: u32) -> bool {
    wants_write(flags) || cuts(flags)
}

fn add(fid: Option<Fid>, wants: &mut Vec<Want>) {
    let Some(fid) = fid else { return };
    match wants.iter_mut().find(|want| want.fid == fid) {
        Some(want) => want.bits |= Bits::CACHE,
        None => wants.push(Want { fid, bits: Bits::CACHE }),
    }
}

fn add_to_all(wants: &mut [Want]) {
    wants.iter_mut().for_each(|want| want.bits |= Bits::CACHE);
}
