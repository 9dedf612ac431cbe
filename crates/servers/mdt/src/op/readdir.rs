//! readdir: a page of entries in hash order with their attributes. Read only; a page is one image,
//! a whole listing is not: what exists throughout is told once.

use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::body::{ReaddirRep, ReaddirReq};
use wire::{Attr, dirent, encode_body};

use crate::limits::{READDIR_BYTES_MAX, READDIR_ENTRIES_MAX};
use crate::op::{Answer, Op};
use crate::perm::{R, X};
use crate::record::DirentRecord;
use crate::tx::Entry;

/// A page behind a cookie.
pub(crate) fn readdir(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: ReaddirReq = op.request.body();
    let dir = op.tx.dir(Fid::from(body.fid))?;
    // Whoever opened the directory while it was allowed to goes on reading it.
    if !op.may(&dir, R)? && !op.state.opens.is_open_by(dir.fid(), op.client) {
        return Err(Errno::EACCES.into());
    }
    let with_attr = body.flags & 1 == 0 && op.may(&dir, X)?;
    let entries_max = match body.entries_max {
        0 => READDIR_ENTRIES_MAX,
        wanted => (wanted as usize).min(READDIR_ENTRIES_MAX),
    };
    let bytes_max = page_bytes(&body);
    let (entries, at_end) = collect(op, dir.fid(), body.cookie, entries_max, bytes_max)?;
    let mut page = Vec::new();
    for entry in &entries {
        let inode = if with_attr { op.tx.find(entry.record.fid)? } else { None };
        let fallback =
            Attr { mode: entry.record.file_type, ..Attr::default() }.with_fid(entry.record.fid);
        let attr = inode.as_ref().map_or(fallback, |inode| inode.attr);
        dirent::push(&mut page, entry.cookie, &attr, inode.is_some(), &entry.record.name);
    }
    assert!(entries.len() <= entries_max, "a page holds what was asked for");
    let rep = ReaddirRep {
        count: entries.len() as u32,
        at_end: u32::from(at_end),
        parent: dir.parent.into(),
        reserved: 0,
    };
    Ok(Answer::Bufs(vec![encode_body(&rep), page.into()]))
}

/// Bytes of a page at most, but for one entry.
pub(crate) fn page_bytes(body: &ReaddirReq) -> usize {
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
        if at_end {
            entries.push(Entry { cookie, record });
        }
        at_end
    })?;
    if broken { Err(OpError::Broken("directory entry")) } else { Ok((entries, at_end)) }
}
