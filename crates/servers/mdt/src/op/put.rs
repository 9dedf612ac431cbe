//! The parts of a create and a close that bring all bytes of a file ([`crate::puts`]).
//!
//! A file that a create makes with its bytes is CLEAN from the beginning: size, blocks and times
//! are known, and no handle is open. It is made only if its first component is at the MDT and holds
//! all bytes. A create of an existing name is refused.
//!
//! A close brings the bytes of a file that has no object yet and that no other handle has open. Its
//! object stays if the close is refused then: it has what its client writes next in another way.

use bytes::Bytes;
use layout::StripeSet;
use target::Decided;
use types::{Errno, Timespec};
use wire::attr::{S_IFMT, S_IFREG};
use wire::body::{AttrRep, CloseFlags, CloseReq, CreateFlags, CreateReq, SetattrReq};
use wire::{Opcode, PUT_BYTES_MAX, Request, SizeState, decode_body};

use crate::effect::Effect;
use crate::op::{Op, replayed_time};
use crate::opens::OpenFile;
use crate::record::Inode;

/// Buffer of a create that has the bytes.
const BYTES: usize = 4;

/// The same of a close.
const BYTES_OF_CLOSE: usize = 1;

/// Buffer of a close that has a change of attributes.
const ATTRS_OF_CLOSE: usize = 2;

/// Whether this request makes the file whose bytes it brings. A close brings those of a file that
/// is there.
pub(crate) fn makes_file(request: &Request) -> bool {
    request.opcode() != Opcode::MdtClose
}

/// All bytes of the file, of which this request brings them.
pub(crate) fn bytes(request: &Request) -> Bytes {
    request.buf(if makes_file(request) { BYTES } else { BYTES_OF_CLOSE })
}

/// The change of attributes that a close brings beside the bytes.
pub(super) fn attrs(request: &Request) -> SetattrReq {
    decode_body(&request.buf(ATTRS_OF_CLOSE))
}

/// When the bytes were written: as a close says. When a replay made its file first: its object is
/// no younger, else an open for writing would show a change that nobody made.
pub(crate) fn made_at(request: &Request, replay: bool) -> Option<Timespec> {
    if !makes_file(request) {
        let body: CloseReq = request.body();
        return Some(Timespec::new(body.mtime, body.mtime_nsec));
    }
    let told = request.replay_buf(0).filter(|_| replay)?;
    let first: AttrRep = decode_body(&told);
    Some(replayed_time(request, &first)).filter(|_| first.attr.ctime != 0)
}

/// Whether a create brings the bytes of its file. Refuses what no client sends.
pub(super) fn is_wanted(request: &Request, body: &CreateReq) -> Decided<bool> {
    if !body.flags.contains(CreateFlags::DATA) {
        return Ok(false);
    }
    let others = CreateFlags::OPEN | CreateFlags::NO_LAYOUT | CreateFlags::TMPFILE;
    let is_file = body.mode & S_IFMT == 0 || body.mode & S_IFMT == S_IFREG;
    let length = bytes(request).len();
    if body.flags.intersects(others) || !is_file || length == 0 {
        return Err(Errno::EINVAL.into());
    }
    if length > PUT_BYTES_MAX { Err(Errno::EMSGSIZE.into()) } else { Ok(true) }
}

/// Gives `inode`, which has its layout, the bytes of the request: they are written, or to be
/// written before the create is decided again.
pub(super) fn fill(op: &mut Op<'_, '_>, inode: &mut Inode) -> Decided<()> {
    let length = bytes(op.request).len() as u64;
    check_place(op, inode, length)?;
    inode.attr.size = length;
    inode.attr.size_state = SizeState::Clean as u32;
    inode.stripes = StripeSet::from(1u64);
    write(op, inode);
    Ok(())
}

/// Whether a close brings all bytes of its file, and they are to be written. Refuses what no client
/// sends, and what is not the first change of a file that only this handle has open.
pub(super) fn is_closed_with_bytes(
    op: &Op<'_, '_>,
    body: &CloseReq,
    open: &OpenFile,
    inode: &Inode,
) -> Decided<bool> {
    if op.committed || !body.flags.intersects(CloseFlags::DATA | CloseFlags::ATTRS) {
        return Ok(false); // what is committed is as the record says
    }
    let length = if makes_file(op.request) { 0 } else { bytes(op.request).len() };
    let is_sane = body.flags.contains(CloseFlags::WROTE | CloseFlags::DATA)
        && !body.flags.contains(CloseFlags::SIZE)
        && length > 0
        && body.size == length as u64;
    if !is_sane {
        return Err(Errno::EINVAL.into());
    }
    if length > PUT_BYTES_MAX {
        return Err(Errno::EMSGSIZE.into());
    }
    if !open.write {
        return Err(Errno::EOPNOTSUPP.into()); // a forged replay too
    }
    check_place(op, inode, length as u64)?;
    if op.replay.is_some() {
        return Ok(true);
    }
    if inode.attr.nlink == 0 {
        return Err(Errno::ENOENT.into()); // which says nothing about other files
    }
    let is_fresh = inode.stripes.is_empty() && inode.attr.size == 0;
    if !is_fresh || !op.state.opens.is_last(body.handle) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(true)
}

/// Gives the file of a close, whose size is told, the bytes of the request. `cleaned`: the size
/// counts.
pub(super) fn fill_closed(op: &mut Op<'_, '_>, inode: &mut Inode, cleaned: bool) -> Decided<()> {
    if !cleaned && op.replay.is_none() {
        return Err(Errno::EOPNOTSUPP.into()); // others may change it: its client writes the bytes
    }
    write(op, inode);
    Ok(())
}

/// Refuses bytes that are not all in a component at this MDT.
fn check_place(op: &Op<'_, '_>, inode: &Inode, length: u64) -> Decided<()> {
    let layout = op.tx.layout(inode)?.ok_or(Errno::EOPNOTSUPP)?;
    let is_here = layout.mdt_object() == Some(inode.fid());
    if !is_here || layout.stripe_of(length - 1) != Some(0) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    Ok(())
}

/// The object of the file is written, or is to be written before this is decided again.
fn write(op: &mut Op<'_, '_>, inode: &mut Inode) {
    match op.put {
        Some(written) => {
            assert_eq!(written.fid, inode.fid(), "the object has the id of its file");
            inode.attr.blocks = written.blocks;
            op.tx.effects.push(Effect::Put(inode.fid()));
        }
        None => op.tx.unwritten = Some(inode.fid()),
    }
}
