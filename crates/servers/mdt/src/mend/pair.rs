//! A name and a file of this MDT that may not fit together. The name is on any MDT.
//!
//! All that is decided here rests on records of this MDT, on the name, and on the directory of the
//! name. The last two are facts of their MDT, which keeps them until the mend is executed.
//!
//! The record of the mend has the part of this MDT too. So the mend can be repeated from another
//! MDT's record after a crash.

use osd::Table;
use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::attr::AttrFlags;
use wire::updates::{Key, Named, Place};

use super::{Done, remove};
use crate::keys;
use crate::limits::MEND_LINKS_MAX;
use crate::op::Op;
use crate::op::names::At;
use crate::record::{INODE_MOVES, INODE_ORPHAN, Inode};
use crate::tx::Entry;

/// A name that a file has besides the one that is looked at.
struct Other {
    dir: Fid,
    name: Vec<u8>,
}

/// Looks at a name that leads to `fid`, or that `fid` knows.
pub(super) fn look_at(op: &mut Op<'_, '_>, fid: Fid, at: At<'_>) -> Decided<Done> {
    op.decides_on(fid);
    op.tx.foresee(Key::Inode(at.dir), false);
    op.tx.foresee(Key::Name(place(at)), true);
    let parent = match op.tx.glance(at.dir) {
        // entries of a directory that is lost say what it was
        Err(OpError::Refused(Errno::ESTALE)) => return Ok(None),
        found => found?,
    };
    if !parent.attr.is_dir() || parent.attr.nlink == 0 {
        return Ok(None);
    }
    let entry = op.tx.entry(at.dir, at.name)?;
    let leads = entry.as_ref().filter(|entry| entry.record.fid == fid);
    let Some(inode) = op.tx.find(fid)? else {
        return leads.map_or(Ok(None), |entry| dangling(op, fid, at, entry));
    };
    let is_shard = inode.attr.flags.contains(AttrFlags::SHARD);
    let has_names = inode.attr.nlink > 0 && !inode.has(INODE_ORPHAN) && !is_shard;
    if inode.fid() != fid || !has_names {
        return Ok(None);
    }
    match leads {
        Some(entry) => fit(op, at, entry, inode),
        None => lost(op, at, (&parent, entry.is_some()), inode),
    }
}

/// The name leads nowhere. The back-link goes with it.
fn dangling(op: &mut Op<'_, '_>, fid: Fid, at: At<'_>, entry: &Entry) -> Decided<Done> {
    let links = links(op, fid, at)?;
    let done = remove(op, at, entry)?;
    if done.is_some() {
        links.into_iter().for_each(|key| op.tx.set.delete(Table::Links, key));
    }
    Ok(done)
}

/// The name is there. The entry has the type of the file, the file knows the name, and a directory
/// has no other one and says that it lies there.
fn fit(op: &mut Op<'_, '_>, at: At<'_>, entry: &Entry, inode: Inode) -> Decided<Done> {
    let fid = inode.fid();
    if inode.attr.file_type() != entry.record.file_type {
        op.repoint(at, entry, &inode);
        recount_later(op, at)?;
        return Ok(Some("set the type"));
    }
    let is_known = !links(op, fid, at)?.is_empty();
    if inode.attr.is_dir() {
        let others = others(op, fid, at)?;
        let others = reachable(op, others)?;
        if !others.is_empty() {
            return match is_kept((at, is_known), &others, inode.parent) {
                true => Ok(None), // another one goes
                false => drop_name(op, at, entry, fid),
            };
        }
    }
    let is_astray = inode.attr.is_dir() && inode.parent != at.dir;
    if is_known && !is_astray {
        return Ok(None);
    }
    if !is_known && op.tx.is_here(at.dir) {
        op.tx.set.put(Table::Links, keys::link(fid, at.dir, entry.cookie), at.name);
    }
    rename(op, fid, (Some(place(at)), None), is_astray)?;
    Ok(Some(if is_known { "set \"..\"" } else { "added the name to the file" }))
}

/// Those names that are in directories which are there. No name goes because of another one in a
/// directory that is lost.
fn reachable(op: &mut Op<'_, '_>, others: Vec<Other>) -> Decided<Vec<Other>> {
    others.iter().for_each(|other| op.tx.foresee(Key::Inode(other.dir), false));
    let mut found = Vec::new();
    for other in others {
        match op.tx.glance(other.dir) {
            Err(OpError::Refused(Errno::ESTALE)) => {}
            dir => found.extend((dir?.attr.nlink > 0).then_some(other)),
        }
    }
    Ok(found)
}

/// Whether a directory keeps this name of several. The best one is that which the directory knows
/// and in whose directory it says that it lies. The others are known.
fn is_kept((at, is_known): (At<'_>, bool), others: &[Other], parent: Fid) -> bool {
    let rank =
        |dir: Fid, name: &[u8], is_known: bool| (!is_known, dir != parent, dir, name.to_vec());
    let own = rank(at.dir, at.name, is_known);
    others.iter().all(|other| own < rank(other.dir, &other.name, true))
}

/// A directory has a better name than this one.
fn drop_name(op: &mut Op<'_, '_>, at: At<'_>, entry: &Entry, fid: Fid) -> Decided<Done> {
    op.leave(at, entry);
    recount_later(op, at)?;
    rename(op, fid, (None, Some(place(at))), false)?;
    Ok(Some("removed the name"))
}

/// The name is not there, or leads to another file. It is entered again if the file has fewer names
/// than its link count, and else the file forgets it.
fn lost(
    op: &mut Op<'_, '_>,
    at: At<'_>,
    (parent, is_taken): (&Inode, bool),
    inode: Inode,
) -> Decided<Done> {
    let fid = inode.fid();
    let links = links(op, fid, at)?;
    if links.is_empty() {
        return Ok(None);
    }
    let names = others(op, fid, at)?.len();
    let is_dir = inode.attr.is_dir();
    let names_max = if is_dir { 1 } else { inode.attr.nlink as usize };
    // names of such a directory are in its shards, or are to leave it
    let takes_names = !parent.attr.flags.contains(AttrFlags::STRIPED) && !parent.has(INODE_MOVES);
    let enters = names < names_max && !is_taken && takes_names;
    if !enters && names == 0 {
        return Ok(None); // lost+found is for a repair of a stopped file system
    }
    if op.tx.is_here(at.dir) || !enters {
        links.into_iter().for_each(|key| op.tx.set.delete(Table::Links, key));
    }
    if !enters {
        rename(op, fid, (None, Some(place(at))), false)?;
        return Ok(Some("removed the name from the file"));
    }
    op.enter(at, &inode)?;
    recount_later(op, at)?;
    rename(op, fid, (Some(place(at)), None), is_dir)?;
    Ok(Some("entered the name again"))
}

/// Whether the counts of the directory have this name is not known. They are mended next. Listings
/// are called back.
fn recount_later(op: &mut Op<'_, '_>, at: At<'_>) -> Decided<()> {
    op.resize(at.dir, 0, 0)
}

fn place(at: At<'_>) -> Place {
    Place { dir: at.dir, name: at.name.to_vec() }
}

/// The file gets or loses a name, with the same number of links.
fn rename(
    op: &mut Op<'_, '_>,
    fid: Fid,
    (gets, loses): (Option<Place>, Option<Place>),
    moves: bool,
) -> Decided<()> {
    op.rename_file(Named { fid, gets, loses, links: 0, moves }).map(drop)
}

/// Keys of the back-links with this name.
fn links(op: &Op<'_, '_>, fid: Fid, at: At<'_>) -> Decided<Vec<Vec<u8>>> {
    assert!(op.tx.is_here(fid), "an MDT has the back-links of its own files");
    let prefix = [fid.to_key(), at.dir.to_key()].concat();
    let mut found = Vec::new();
    op.tx.view.scan_within((Table::Links, &prefix), &prefix, &mut |key, name| {
        if name == at.name {
            found.push(key.to_vec());
        }
        found.len() <= MEND_LINKS_MAX
    })?;
    if found.len() <= MEND_LINKS_MAX { Ok(found) } else { Err(Errno::E2BIG.into()) }
}

/// Other names that the file knows and that lead to it.
fn others(op: &mut Op<'_, '_>, fid: Fid, at: At<'_>) -> Decided<Vec<Other>> {
    let (prefix, mut known) = (fid.to_key(), Vec::new());
    op.tx.view.scan_within((Table::Links, &prefix), &prefix, &mut |key, name| {
        let dir = key.get(prefix.len()..2 * prefix.len()).and_then(Fid::from_key);
        let other = dir.map(|dir| Other { dir, name: name.to_vec() });
        known.extend(other.filter(|it| (it.dir, &it.name[..]) != (at.dir, at.name)));
        known.len() <= MEND_LINKS_MAX
    })?;
    if known.len() > MEND_LINKS_MAX {
        return Err(Errno::E2BIG.into());
    }
    for Other { dir, name } in &known {
        op.tx.foresee(Key::Name(Place { dir: *dir, name: name.clone() }), true);
    }
    let mut there = Vec::new();
    for other in known {
        let entry = op.tx.entry(other.dir, &other.name)?;
        there.extend(entry.filter(|entry| entry.record.fid == fid).map(|_| other));
    }
    Ok(there)
}
