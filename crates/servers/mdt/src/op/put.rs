//! The part of a create that makes a file with all of its bytes ([`crate::puts`]).
//!
//! The file is CLEAN from the beginning: size, blocks and times are known, and no handle is open.
//! It is made only if its first component is at the MDT and holds all bytes. A create of an
//! existing name is refused.

use bytes::Bytes;
use layout::StripeSet;
use target::Decided;
use types::{Errno, Timespec};
use wire::attr::{S_IFMT, S_IFREG};
use wire::body::{AttrRep, CreateFlags, CreateReq};
use wire::{PUT_BYTES_MAX, Request, SizeState, decode_body};

use crate::op::{Op, replayed_time};
use crate::record::Inode;
use crate::state::Effect;

/// Buffer of a create that has the bytes.
const BYTES: usize = 4;

/// All bytes of the file that this request makes.
pub(crate) fn bytes(request: &Request) -> Bytes {
    request.buf(BYTES)
}

/// When a replay made its file first: its object is no younger, else an open for writing would
/// show a change that nobody made.
pub(crate) fn made_at(request: &Request, replay: bool) -> Option<Timespec> {
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
    let layout = op.tx.layout(inode)?.ok_or(Errno::EOPNOTSUPP)?;
    let is_here = layout.mdt_object() == Some(inode.fid());
    if !is_here || layout.stripe_of(length - 1) != Some(0) {
        return Err(Errno::EOPNOTSUPP.into());
    }
    inode.attr.size = length;
    inode.attr.size_state = SizeState::Clean as u32;
    inode.stripes = StripeSet::from(1u64);
    match op.put {
        Some(written) => {
            assert_eq!(written.fid, inode.fid(), "the object has the id of its file");
            inode.attr.blocks = written.blocks;
            op.tx.effects.push(Effect::Put(inode.fid()));
        }
        None => op.tx.unwritten = Some(inode.fid()),
    }
    Ok(())
}
