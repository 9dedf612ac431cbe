//! readdir: a page of entries in hash order with their attributes. Read only. A page is one image,
//! but a whole listing is not. An entry that exists throughout is returned once. A page ends after
//! the entry with which it has taken [`LONG_ANSWER_MAX`](crate::limits::LONG_ANSWER_MAX).

use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::attr::AttrFlags;
use wire::body::{ReaddirFlags, ReaddirReq, ReaddirState};
use wire::dirent::{self, Dirent};
use wire::{Attr, Request};

use crate::limits::{READDIR_BYTES_MAX, READDIR_ENTRIES_MAX};
use crate::op::believed::is_whole;
use crate::op::{Answer, Listed, Op, PageAnswer};
use crate::perm::{R, X};
use crate::record::{DirentRecord, INODE_MOVES, Inode};
use crate::tx::Entry;

/// A page behind a cookie.
pub(crate) fn readdir(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: ReaddirReq = op.request.body();
    let dir = op.tx.dir(Fid::from(body.fid))?;
    // A client that opened the directory while it was allowed to goes on reading it.
    if !op.may(&dir, R)? && !op.state.opens.may_go_on_listing(dir.fid(), op.client) {
        return Err(Errno::EACCES.into());
    }
    let with_attr = !body.flags.contains(ReaddirFlags::BARE) && op.may(&dir, X)?;
    let entries_max = match body.entries_max {
        0 => READDIR_ENTRIES_MAX,
        wanted => (wanted as usize).min(READDIR_ENTRIES_MAX),
    };
    let bytes_max = page_bytes(&body);
    let (found, at_end) = collect(op, dir.fid(), body.cookie, entries_max, bytes_max)?;
    assert!(found.len() <= entries_max, "a page holds what was asked for");
    let leases = body.flags.contains(ReaddirFlags::LEASES);
    let mut entries = Vec::with_capacity(found.len());
    let asked = found.len();
    for entry in found {
        let is_told = with_attr && op.tx.is_here(entry.record.fid);
        let inode = if is_told { op.tx.find(entry.record.fid)? } else { None };
        entries.push(listed(entry, inode.as_ref(), leases));
        if with_attr && (op.is_long)() {
            break;
        }
    }
    let at_end = at_end && entries.len() == asked;
    let striped = dir.attr.flags.contains(AttrFlags::STRIPED);
    let state = ReaddirState::AT_END.when(at_end)
        | ReaddirState::NAMES_MOVE.when(dir.has(INODE_MOVES))
        | ReaddirState::STRIPED.when(striped);
    Ok(Answer::Page(PageAnswer { entries, state, parent: dir.parent }))
}

/// An entry with the attributes of its inode, or the type alone.
fn listed(entry: Entry, inode: Option<&Inode>, leases: bool) -> Listed {
    let Entry { cookie, record: DirentRecord { fid, file_type, name } } = entry;
    let bare = Attr { mode: file_type, ..Attr::default() }.with_fid(fid);
    let attr = inode.map_or(bare, |inode| inode.attr);
    let is_offered = leases && inode.is_some_and(is_whole);
    let entry = Dirent { cookie, attr, has_attr: inode.is_some(), leased: false, name };
    Listed { entry, is_offered }
}

/// The directory, if leases on its entries are wanted.
pub(crate) fn leased(request: &Request) -> Option<Fid> {
    let body: ReaddirReq = request.body();
    body.flags.contains(ReaddirFlags::LEASES).then(|| body.fid.into())
}

/// Bytes of the page that a request may get.
pub(crate) fn answer_bytes(request: &Request) -> usize {
    page_bytes(&request.body())
}

/// Bytes of a page at most, but for one entry.
fn page_bytes(body: &ReaddirReq) -> usize {
    match body.bytes_max {
        0 => READDIR_BYTES_MAX,
        wanted => (wanted as usize).min(READDIR_BYTES_MAX),
    }
}

/// Entries behind `cookie` that fit, at least one; and whether nothing stands behind them.
fn collect(
    op: &Op<'_, '_>,
    dir: Fid,
    cookie: u64,
    entries_max: usize,
    bytes_max: usize,
) -> Decided<(Vec<Entry>, bool)> {
    let mut entries: Vec<Entry> = Vec::new();
    let (mut bytes, mut at_end, mut broken) = (0, true, false);
    let Some(from) = cookie.checked_add(1) else { return Ok((entries, true)) };
    op.tx.scan_dir(dir, from, &mut |cookie, value| {
        let Some(record) = DirentRecord::decode(value) else {
            broken = true;
            return false;
        };
        bytes += dirent::encoded_len(record.name.len());
        at_end = entries.len() < entries_max && (bytes <= bytes_max || entries.is_empty());
        at_end &= entries.is_empty() || !(op.is_long)();
        if at_end {
            entries.push(Entry { cookie, record });
        }
        at_end
    })?;
    if broken { Err(OpError::Broken("directory entry")) } else { Ok((entries, at_end)) }
}
