//! fid2path: every path of a file, from its back-links. Read only. Where a path leads to a
//! directory of another MDT, it begins with a slash and the FID of that directory: the caller asks
//! there. A shard has no name: its path is that of its directory.

use osd::Table;
use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::attr::AttrFlags;
use wire::body::FidReq;

use crate::limits::{DEPTH_MAX, FID2PATH_BYTES_MAX, FID2PATH_PATHS_MAX};
use crate::op::{Answer, Op};
use crate::perm::{X, is_root};

/// Paths without a leading slash, each with a NUL behind it.
pub(crate) fn fid2path(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: FidReq = op.request.body();
    let mut fid = Fid::from(body.fid);
    let inode = op.tx.find(fid)?.ok_or(Errno::ENOENT)?;
    if inode.attr.flags.contains(AttrFlags::SHARD) {
        if !is_root(&op.creds) {
            op.access(&inode, X)?;
        }
        fid = inode.parent;
        if !op.tx.is_here(fid) {
            return Ok(Answer::data(format!("/{fid}\0")));
        }
    }
    if fid == Fid::ROOT {
        return Ok(Answer::data(vec![0]));
    }
    let mut out = Vec::new();
    for (dir, name) in links(op, fid, FID2PATH_PATHS_MAX)? {
        let path = path_of(op, dir, name)?;
        if out.len() + path.len() >= FID2PATH_BYTES_MAX {
            break;
        }
        out.extend_from_slice(&path);
        out.push(0);
    }
    assert!(out.len() <= FID2PATH_BYTES_MAX, "paths fit their reply");
    if out.is_empty() { Err(Errno::ENOENT.into()) } else { Ok(Answer::data(out)) }
}

/// Directory and name of each link, at most `max`.
fn links(op: &Op<'_, '_>, fid: Fid, max: usize) -> Decided<Vec<(Fid, Vec<u8>)>> {
    let prefix = fid.to_key();
    let mut found = Vec::new();
    let mut broken = false;
    op.tx.view.scan_within((Table::Links, &prefix), &prefix, &mut |key, name| {
        if found.len() == max {
            return false;
        }
        match Fid::from_key(&key[16..]) {
            Some(dir) => found.push((dir, name.to_vec())),
            None => broken = true,
        }
        !broken
    })?;
    if broken { Err(OpError::Broken("back-link")) } else { Ok(found) }
}

/// The path that ends in `name` in `dir`. Whoever is not root must be allowed to search every
/// directory on it.
fn path_of(op: &mut Op<'_, '_>, mut dir: Fid, name: Vec<u8>) -> Decided<Vec<u8>> {
    let mut parts = vec![name];
    for _ in 0..DEPTH_MAX {
        if !op.tx.is_here(dir) {
            parts.push(format!("/{dir}").into_bytes());
            parts.reverse();
            return Ok(parts.join(&b'/'));
        }
        let inode = op.tx.inode(dir)?;
        if !is_root(&op.creds) {
            op.access(&inode, X)?;
        }
        if dir == Fid::ROOT {
            parts.reverse();
            return Ok(parts.join(&b'/'));
        }
        if !inode.attr.flags.contains(AttrFlags::SHARD) {
            let (_, name) = links(op, dir, 1)?.pop().ok_or(Errno::ENOENT)?;
            parts.push(name);
        }
        dir = inode.parent;
    }
    Err(OpError::Broken("a directory does not lead to the root"))
}
