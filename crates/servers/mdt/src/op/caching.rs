//! The clients that may keep the data of a file: the grant of its CACHE bit, decided when the file
//! is opened.
//!
//! | clients with the file open | CACHE |
//! |---|---|
//! | clients that read | each of them, also after the close |
//! | any other | no client |
//!
//! And the client that may keep its writes before it sends them to OSTs: the WRITE bit.
//!
//! | clients with the file open | WRITE |
//! |---|---|
//! | one client, which writes | it, until its last handle for writing is closed |
//! | any other | no client |
//!
//! WRITE is called back before another client opens or cuts the file or changes its attributes. It
//! is also called back before a getattr that wants an exact size is answered. A restarted MDT takes
//! it that a client has WRITE that replays such an open and asked for it.
//!
//! Data of a CLEAN file changes only after an open for writing or a truncate, which make the file
//! DIRTY. Both call CACHE back from all other clients before they are executed, also where the file
//! is DIRTY already: its client may have kept the bit, and not yet heard of its own open for
//! writing. That client itself stops to use what it keeps when it begins such a change.

use ldlm::grants::{Bits, Gifts, HolderId, Want};
use target::Decided;
use types::Fid;
use wire::attr::S_IFREG;
use wire::body::{Disposition, GetattrFlags};
use wire::stats::StatRecord;
use wire::{Attr, Request, SizeState};

use super::open::{self, cuts, wants_write};
use super::rows::{Data, Opened};
use super::unfenced::is_unfenced;
use super::{Answer, Caller, Op, only_reads};
use crate::attempt::Attempted;
use crate::grants::{Gift, Grants};
use crate::record::Inode;
use crate::state::State;
use crate::tx::Tx;

impl Data {
    pub(crate) fn of(request: &Request) -> &'static Data {
        super::row(request.opcode()).map_or(&Data::None, |row| &row.data)
    }
}

/// How this request opens a file, if it does.
pub(crate) fn opened(request: &Request) -> Option<Opened> {
    match Data::of(request) {
        Data::Opens(opened) => opened(request),
        Data::None | Data::Size(_) | Data::Sizes(_) => None,
        Data::Cuts(_) | Data::Moves(_) | Data::Attributes => None,
    }
}

/// Bytes of the file that the reply to this request may carry.
pub(crate) fn room(request: &Request) -> u32 {
    open::room(opened(request))
}

/// Whether a kernel wants to keep what this request opens.
pub(super) fn is_wanted(request: &Request) -> bool {
    opened(request).is_some_and(|opened| opened.keeps_reads && only_reads(opened.flags))
}

/// Whether a client wants to keep what it writes to the file that this request opens.
pub(crate) fn is_write_wanted(request: &Request) -> bool {
    opened(request).is_some_and(|opened| opened.keeps_writes && wants_write(opened.flags))
}

/// Whether this getattr waits until the objects have all that any client has written.
pub(crate) fn is_exact(request: &Request) -> bool {
    let Data::Size(flags) = Data::of(request) else { return false };
    flags(request).contains(GetattrFlags::EXACT)
}

impl Op<'_, '_> {
    /// Whether its client wants to keep what it writes to the file that it opens.
    pub(super) fn keeps_writes(&self) -> bool {
        is_write_wanted(self.request)
    }

    /// Whether no other client uses a file that this request opens for writing, and none may that
    /// the MDT has given up.
    pub(super) fn may_keep_writes(&self, inode: &Inode) -> bool {
        is_write_wanted(self.request)
            && inode.attr.file_type() == S_IFREG
            && !self.state.opens.another_has(inode.fid(), self.client)
            && !self.state.fences.is_unsure()
    }

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
pub(super) fn take_offer(answer: &mut Answer) -> Disposition {
    let Answer::Attr(answer) = answer else { return Disposition::empty() };
    let offered = answer.disposition & (Disposition::CACHE | Disposition::WRITES);
    answer.disposition.remove(offered);
    offered
}

/// What a getattr that wants an exact size waits for, if it has to wait. Else its answer says
/// whether another client may keep what it has written.
pub(crate) fn look(
    caller: &Caller<'_>,
    tx: &Tx<'_>,
    answer: &mut Answer,
    state: &mut State,
    ignores: bool,
) -> Decided<Option<Attempted>> {
    if let Answer::Many(many) = answer {
        let records = many.files.iter_mut().map(|told| &mut told.record);
        tell_kept_of_all(caller, tx, records, state)?;
    }
    let Some(fid) = answer.fid() else { return Ok(None) };
    let is_unfenced = is_unfenced(&state.fences, tx, fid)?;
    if is_exact(caller.request) && !ignores {
        if is_unfenced {
            return Ok(Some(Attempted::Unfenced));
        }
        let wants = || vec![Want { fid, bits: Bits::WRITE }];
        let (grants, clock) = (&mut state.grants, caller.clock);
        if !grants.begin(caller.change, caller.session, wants, caller.heard, clock) {
            return Ok(Some(Attempted::Parked));
        }
    }
    tell_kept(caller, answer, is_unfenced, &state.grants);
    Ok(None)
}

/// Says in the answer to a change whether another client may keep what it has written.
pub(crate) fn tell_kept_after(
    caller: &Caller<'_>,
    tx: &Tx<'_>,
    answer: &mut Answer,
    state: &State,
) -> Decided<()> {
    if caller.replay {
        return Ok(());
    }
    tell_kept_of_all(caller, tx, answer.closed_files().iter_mut(), state)?;
    if let Some(fid) = answer.fid() {
        let is_unfenced = is_unfenced(&state.fences, tx, fid)?;
        tell_kept(caller, answer, is_unfenced, &state.grants);
    }
    Ok(())
}

/// Says in an answer whether another client may keep what it has written.
fn tell_kept(caller: &Caller<'_>, answer: &mut Answer, is_unfenced: bool, grants: &Grants) {
    let Answer::Attr(answer) = answer else { return };
    if is_dirty(&answer.attr) {
        let is_kept = keeps(caller, answer.attr.fid(), grants);
        answer.disposition |= Disposition::KEPT.when(is_kept || is_unfenced);
    }
}

fn tell_kept_of_all<'r>(
    caller: &Caller<'_>,
    tx: &Tx<'_>,
    records: impl Iterator<Item = &'r mut StatRecord>,
    state: &State,
) -> Decided<()> {
    for StatRecord { errno, rep, .. } in records {
        if *errno == 0 && is_dirty(&rep.attr) {
            let fid = rep.attr.fid();
            let is_kept = keeps(caller, fid, &state.grants) || is_unfenced(&state.fences, tx, fid)?;
            rep.disposition |= Disposition::KEPT.when(is_kept);
        }
    }
    Ok(())
}

fn is_dirty(attr: &Attr) -> bool {
    attr.is_file() && attr.size_state() == SizeState::Dirty
}

/// Whether another client may keep what it has written to a file.
fn keeps(caller: &Caller<'_>, fid: Fid, grants: &Grants) -> bool {
    grants.called.is_held_by_another(HolderId(caller.session), fid, Bits::WRITE)
}

/// Adds the data of the file that the answer tells of to what the answer is to give, and says so
/// there.
pub(super) fn offer(
    caller: &Caller<'_>,
    answer: &mut Answer,
    offered: Disposition,
    grants: &Grants,
    gifts: &mut Gifts,
) -> bool {
    let Answer::Attr(answer) = answer else { return false };
    let fid = answer.attr.fid();
    let kinds = [(Disposition::CACHE, Bits::CACHE), (Disposition::WRITES, Bits::WRITE)];
    for (kind, bits) in kinds {
        if offered.contains(kind) {
            let gift = grants.offer_called(gifts, fid, bits, caller.clock);
            answer.disposition |= kind.when(gift == Gift::Called);
        }
    }
    answer.disposition.intersects(offered)
}

/// What changes take from other clients. Off in planted bugs alone.
#[derive(Clone, Copy)]
pub(crate) struct Taken {
    /// Data that they have read.
    pub(crate) data: bool,
    /// Data that they have written and not sent.
    pub(crate) writes: bool,
}

/// What a change wants besides: that no other client keeps the data that it changes, or gives
/// another place. `told`: the file that its answer tells of.
pub(super) fn add_wants(request: &Request, told: Option<Fid>, taken: Taken, wants: &mut Vec<Want>) {
    let data = if taken.data { Bits::CACHE } else { Bits::empty() };
    let writes = if taken.writes { Bits::WRITE } else { Bits::empty() };
    let of_open = |flags: u32| if changes(flags) { data | writes } else { writes };
    match Data::of(request) {
        Data::Opens(opened) => {
            if let Some(opened) = opened(request) {
                add(told, of_open(opened.flags), wants);
            }
        }
        Data::Cuts(cut) => {
            let kept = if cut(request).is_some() { data | writes } else { writes };
            add_to_all(kept, wants);
        }
        Data::Moves(moves) => {
            add_to_all(if moves(request) { data | writes } else { writes }, wants);
        }
        Data::Attributes => add_to_all(writes, wants),
        Data::None | Data::Size(_) | Data::Sizes(_) => {}
    }
}

/// The file of which such a change wants what others keep of their writes.
pub(crate) fn opened_or_cut(request: &Request, told: Option<Fid>) -> Option<Fid> {
    match Data::of(request) {
        Data::Opens(opened) => told.filter(|_| opened(request).is_some()),
        Data::Cuts(cut) => cut(request),
        Data::None | Data::Size(_) | Data::Sizes(_) => None,
        Data::Moves(_) | Data::Attributes => None,
    }
}

fn changes(flags: u32) -> bool {
    wants_write(flags) || cuts(flags)
}

fn add(fid: Option<Fid>, bits: Bits, wants: &mut Vec<Want>) {
    let Some(fid) = fid else { return };
    match wants.iter_mut().find(|want| want.fid == fid) {
        Some(want) => want.bits |= bits,
        None => wants.push(Want { fid, bits }),
    }
}

fn add_to_all(bits: Bits, wants: &mut [Want]) {
    wants.iter_mut().for_each(|want| want.bits |= bits);
}
