//! Which answers come with a short lease, and which changes wait for one ([`crate::leases`]).

use bytes::Bytes;
use target::{Decided, OpError};
use types::{Fid, Instant, Span};
use wire::attr::{S_ISGID, S_ISUID};
use wire::body::{
    CreateReq, DirRep, LookupReq, RenameReq, SetattrReq, UnlinkReq, disposition, setattr as bits,
};
use wire::{Opcode, Request, SizeState, encode_body};

use super::{Answer, AttrAnswer, Extras};
use crate::engine::Caller;
use crate::leases::Leases;
use crate::tx::Tx;

/// Leases on what `answer` tells, for the one who asked. On a file only where nobody was after its
/// directory too: files are many, and a client that takes over what another has just made would
/// wait for each.
pub(crate) fn grant(caller: &Caller<'_>, answer: &Answer, leases: &mut Leases) -> Extras {
    let Answer::Attr(answer) = answer else { return Extras::default() };
    let opcode = caller.request.opcode();
    let told = matches!(opcode, Opcode::MdtGetattr | Opcode::MdtLookup | Opcode::MdtCreate);
    if !told || caller.replay || caller.recovering {
        return Extras::default();
    }
    let (attr, clock) = (&answer.attr, caller.clock);
    let quiet = attr.is_dir() || !leases.is_contended(answer.parent, clock);
    let lease = if quiet && is_known(answer) {
        leases.grant(attr.fid(), caller.client, clock)
    } else {
        Span::ZERO
    };
    let named_in = if opcode == Opcode::MdtGetattr { None } else { directory(caller.request) };
    let name_lease = named_in.map_or(Span::ZERO, |dir| leases.grant(dir, caller.client, clock));
    Extras { lease, name_lease, ..Extras::default() }
}

/// The directory of a create or unlink as it is now, with a lease on it.
pub(crate) fn grant_dir(caller: &Caller<'_>, tx: &Tx<'_>, leases: &mut Leases) -> Option<Bytes> {
    let changed = matches!(caller.request.opcode(), Opcode::MdtCreate | Opcode::MdtUnlink);
    if !changed || caller.replay || caller.recovering {
        return None;
    }
    let dir = tx.seen(directory(caller.request)?)?;
    let lease = leases.grant(dir.fid(), caller.client, caller.clock);
    let told = DirRep { attr: dir.attr, lease_ms: lease.as_millis() as u32, ..DirRep::default() };
    (lease > Span::ZERO).then(|| encode_body(&told))
}

/// Files other than directories that lose a name by the operation, or move, and have one
/// afterwards.
pub(crate) fn still_named(caller: &Caller<'_>, tx: &Tx<'_>) -> Vec<Fid> {
    if !matches!(caller.request.opcode(), Opcode::MdtRename | Opcode::MdtUnlink) {
        return Vec::new();
    }
    let named =
        |fid: &Fid| tx.seen(*fid).is_some_and(|inode| !inode.attr.is_dir() && inode.attr.nlink > 0);
    tx.touched().filter(named).collect()
}

/// What an operation that succeeds means for leases that are out, and for those to come.
pub(crate) fn follow(
    caller: &Caller<'_>,
    answer: &Answer,
    still_named: &[Fid],
    leases: &mut Leases,
) {
    let (opcode, clock) = (caller.request.opcode(), caller.clock);
    match opcode {
        Opcode::MdtRename => {
            let body: RenameReq = caller.request.body();
            let (from, to) = (Fid::from(body.parent), Fid::from(body.new_parent));
            if from != to {
                leases.carry(from, to, clock);
                leases.carry(to, from, clock); // an exchange
            }
        }
        // the kernel of who changes it works with the access list that it has
        Opcode::MdtSetxattr | Opcode::MdtRemovexattr => {
            answer.fid().into_iter().for_each(|fid| leases.contend(fid, clock));
        }
        _ => {}
    }
    // The kernel of who takes one of several names away counts down by itself, perhaps after it was
    // told the new count.
    let moved = answer.fid().filter(|_| opcode == Opcode::MdtRename);
    still_named
        .iter()
        .filter(|fid| Some(**fid) != moved)
        .for_each(|fid| leases.contend(*fid, clock));
}

/// Whether the attributes are the whole truth: the size is known, or the file is new and only its
/// maker has it. A write takes set-user-id away without a word to the kernel of the one who wrote;
/// an access list is kept by the kernel beside them.
fn is_known(answer: &AttrAnswer) -> bool {
    let attr = &answer.attr;
    if answer.has_acl {
        return false;
    }
    if !attr.is_file() {
        return true;
    }
    let made = answer.disposition & disposition::CREATED != 0;
    attr.mode & (S_ISUID | S_ISGID) == 0 && (made || attr.size_state() != SizeState::Dirty)
}

/// The directory that a request names something in.
fn directory(request: &Request) -> Option<Fid> {
    let parent = match request.opcode() {
        Opcode::MdtLookup => request.body::<LookupReq>().parent,
        Opcode::MdtCreate => request.body::<CreateReq>().parent,
        Opcode::MdtUnlink => request.body::<UnlinkReq>().parent,
        _ => return None,
    };
    Some(Fid::from(parent))
}

/// Refuses a change for now where others hold leases on what it changes, or may do so since before
/// this instance.
pub(crate) fn check(caller: &Caller<'_>, tx: &Tx<'_>, leases: &mut Leases) -> Decided<()> {
    if is_unseen(caller.request) {
        return Ok(());
    }
    let clock = caller.clock;
    let blocked = tx.touched().filter_map(|fid| leases.blocks(fid, caller.client, clock)).max();
    if blocked.is_some() {
        // all that was there, so that nothing is leased again meanwhile and it waits only once
        for fid in tx.touched().filter(|fid| tx.was_there(*fid)) {
            leases.contend(fid, clock);
            if let Some(inode) = tx.seen(fid).filter(|inode| !inode.attr.is_dir()) {
                leases.contend(inode.parent, clock);
            }
        }
    }
    let end: Option<Instant> = leases.inherited(clock).max(blocked);
    end.map_or(Ok(()), |end| Err(OpError::LeasedUntil(end)))
}

/// Whether nobody can see what the request changes: access times are told late in any case, and a
/// size that is found out, or handed over by the one who had the file open for writing, was no
/// lease's.
fn is_unseen(request: &Request) -> bool {
    match request.opcode() {
        Opcode::MdtClose => true,
        Opcode::MdtSetattr => {
            request.body::<SetattrReq>().valid & !(bits::SIZE_KNOWN | bits::READ_AT) == 0
        }
        _ => false,
    }
}
