//! Names that move between the shards of a directory, because its striping changes.
//!
//! ```text
//!  start   new shards come to be; the directory, the old and the new shards store the striping
//!          with both. From now on names are made in new shards only.
//!  push    names of one old shard move to one new shard. The old shard's MDT coordinates.
//!  finish  no old shard has a name: it goes, and the directory has its new striping alone.
//! ```
//! Each is one operation over the MDTs that it concerns ([`crate::cross`]). A request about a name
//! goes to the new shard. If the name is not there, it is pushed first, or found to be absent in
//! the old shard for ever ([`Op::entry`]). Inodes stay where they are.

use std::collections::BTreeSet;

use layout::dir::{
    Asked, BY_SPACE, HASH_FIXED, HASH_KIND, HASH_SPLIT, Leaving, SHARDS_MAX, Standing, Stripes,
};
use osd::Table;
use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::attr::AttrFlags;
use wire::updates::{Key, Named, Place, Update};

use super::dirs::{self, Open};
use crate::effect::Effect;
use crate::keys::{self, LMV};
use crate::limits::SPLIT_TO_MERGE;
use crate::op::names::At;
use crate::op::{Answer, Op};
use crate::record::{INODE_HAS_XATTR, INODE_MOVES, Inode};
use crate::share::ShareKey;
use crate::tx::Entry;

/// The striping of a directory, or of a shard whose names move.
pub(crate) fn stripes_of(op: &mut Op<'_, '_>, dir: &Inode) -> Decided<Option<Stripes>> {
    if !dir.attr.flags.contains(AttrFlags::STRIPED) && !dir.has(INODE_MOVES) {
        return Ok(None);
    }
    let stored = dirs::stored_stripes(op, dir)?;
    Stripes::decode(&stored).map(Some).map_err(|_| OpError::Broken("striping"))
}

impl Op<'_, '_> {
    /// The entry `name` of `dir`. A name that is in the shard that it leaves moves to `dir` first.
    ///
    /// # Errors
    /// ESTALE: the name belongs to another shard; the caller's striping is old.
    pub(crate) fn entry(&mut self, dir: &Inode, name: &[u8]) -> Decided<Option<Entry>> {
        if self.replay.is_some() {
            return self.tx.entry(dir.fid(), name); // what was to move has moved
        }
        let Some(stripes) = stripes_of(self, dir)? else {
            return self.tx.entry(dir.fid(), name);
        };
        let old = match stripes.standing(dir.fid(), name) {
            Standing::Home(old) => old,
            Standing::Astray if self.config.bugs.take_names_astray() => None,
            Standing::Astray => return Err(Errno::ESTALE.into()),
        };
        let found = self.tx.entry(dir.fid(), name)?;
        if let (None, Some(old)) = (&found, old) {
            let left = (dir.fid(), Place { dir: old, name: name.to_vec() });
            if !self.state.moves.is_absent(&left) {
                self.tx.left(left.1.clone())?;
                if self.crossing.lasting.contains(&left.1) {
                    self.state.moves.found_absent(left);
                }
            }
        }
        Ok(found)
    }

    /// A directory or shard gets its striping; an empty value takes it away.
    pub(crate) fn stripe(&mut self, fid: Fid, value: &[u8]) -> Decided<()> {
        let mut inode = self.tx.inode(fid)?;
        let key = keys::xattr(fid, LMV);
        let stripes = match value {
            [] => None,
            value => Some(Stripes::decode(value).map_err(|_| OpError::Broken("striping"))?),
        };
        if stripes.is_some() {
            self.tx.set.put(Table::Xattrs, key, value);
            inode.flags |= INODE_HAS_XATTR;
        } else {
            let mut others = false;
            let prefix = fid.to_key();
            self.tx.view.scan_within((Table::Xattrs, &prefix), &prefix, &mut |found, _| {
                others |= found != key;
                !others
            })?;
            set_flag(&mut inode.flags, INODE_HAS_XATTR, others);
            self.tx.set.delete(Table::Xattrs, key);
        }
        let moving = stripes.as_ref().filter(|stripes| stripes.leaving.is_some());
        let is_shard = inode.attr.flags.contains(AttrFlags::SHARD);
        set_flag(&mut inode.flags, INODE_MOVES, moving.is_some());
        if !is_shard {
            inode.attr.flags.set(AttrFlags::STRIPED, stripes.is_some());
        }
        let is_on = moving.is_some_and(|stripes| !is_shard || stripes.is_left(fid));
        match is_on {
            true => self.tx.set.put(Table::Meta, keys::moves(fid), []),
            false => self.tx.set.delete(Table::Meta, keys::moves(fid)),
        }
        self.tx.effects.push(Effect::Moving { dir: fid, is_on });
        self.change(inode);
        Ok(())
    }

    /// A name of a file is in another shard: its back-links on this MDT, and the parent.
    pub(crate) fn rehome(&mut self, fid: Fid, from: &Place, to: &Place) -> Decided<()> {
        let mut inode = self.tx.inode(fid)?;
        if !self.tx.is_here(from.dir) {
            self.tx.unlink_elsewhere(fid, from)?;
        }
        if !self.tx.is_here(to.dir) {
            self.tx.link_elsewhere(fid, to)?;
        }
        if inode.parent == from.dir {
            inode.parent = to.dir;
        }
        self.change(inode);
        Ok(())
    }

    fn stripe_at(&mut self, fid: Fid, value: Vec<u8>) -> Decided<()> {
        if self.tx.is_here(fid) {
            self.stripe(fid, &value)?;
        } else {
            self.tx.inode(fid)?;
        }
        self.tx.updates.push(Update::Stripe { fid, value });
        Ok(())
    }

    pub(crate) fn resize(&mut self, dir: Fid, name_bytes: i64, subdirs: i32) -> Decided<()> {
        if self.tx.is_here(dir) {
            self.tx.resize_dir(dir, name_bytes, subdirs)?;
        }
        self.tx.updates.push(Update::Size { dir, name_bytes, subdirs });
        Ok(())
    }
}

fn set_flag(flags: &mut u32, flag: u32, is_set: bool) {
    *flags = if is_set { *flags | flag } else { *flags & !flag };
}

/// Answers a request to stripe a directory that exists.
///
/// # Errors
/// EBUSY: its names move already. ENODEV: an MDT does not exist. EREMOTEIO: it takes nothing new.
/// ENOSPC: it is full.
/// EPERM: not the owner, not allowed to choose MDTs, or this MDT moves no names. E2BIG: too many
/// shards.
pub(crate) fn restripe(op: &mut Op<'_, '_>, dir: Inode, value: &[u8]) -> Decided<Answer> {
    if !dir.attr.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    if !op.is_owner(&dir) {
        return Err(Errno::EPERM.into());
    }
    if op.replay.is_none() {
        if !op.state.dirs.restriped {
            return Err(Errno::EPERM.into());
        }
        let mut asked = Asked::decode(value).map_err(|error| error.errno())?;
        dirs::check_asked(op, &asked, &Open::of(op))?;
        if !asked.is_striped() {
            asked.mdts.clear(); // one shard is none
        }
        start(op, &dir, &asked, HASH_FIXED)?;
    }
    answer(op, &dir)
}

/// Answers a request to move the names of a directory to the MDTs that are named. With one MDT, the
/// directory gets one shard there, or is plain if that is its own MDT. The caller is root, or owns
/// the storage of this MDT. A directory whose names are there stays as it is.
///
/// # Errors
/// EINVAL: no MDT is named, or it is the root, whose MDT all clients know. EPERM: another caller,
/// or this MDT makes no directories elsewhere. The others are those of [`restripe`].
pub(crate) fn migrate(op: &mut Op<'_, '_>, dir: Inode, value: &[u8]) -> Decided<Answer> {
    if !dir.attr.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    if !op.is_administrator() {
        return Err(Errno::EPERM.into());
    }
    if op.replay.is_none() {
        let asked = Asked::decode(value).map_err(|error| error.errno())?;
        let is_named = asked.index != BY_SPACE || !asked.mdts.is_empty();
        if !is_named || dir.fid() == Fid::ROOT {
            return Err(Errno::EINVAL.into());
        }
        let mut asked = Asked { count: asked.count.max(1), ..asked };
        if !asked.is_striped() && asked.mdts.is_empty() {
            asked.mdts = vec![asked.index.cast_unsigned()];
        }
        dirs::check_asked(op, &asked, &Open::of(op))?;
        if start(op, &dir, &asked, HASH_FIXED)? {
            planted::reached("mdt: names of a directory began to move to MDTs that were named");
        }
    }
    answer(op, &dir)
}

fn answer(op: &mut Op<'_, '_>, dir: &Inode) -> Decided<Answer> {
    let dir = op.tx.inode(dir.fid())?;
    op.decides_on(dir.fid());
    Ok(Answer::attr(&dir))
}

/// MDTs of the shards that a directory on MDT `here` is to have; empty: it is plain. A list of one
/// MDT is obeyed, and a count of one makes it plain.
fn goal(asked: &Asked, here: u32, open: &Open) -> Vec<u32> {
    match asked.mdts[..] {
        [only] if only == here => return Vec::new(),
        [only] => return vec![only],
        _ => {}
    }
    let any = open.mdts.first().copied().filter(|_| !open.has(here)).unwrap_or(here);
    let first = if asked.index == BY_SPACE { any } else { asked.index.cast_unsigned() };
    let shards = dirs::shard_mdts(asked, first, &open.mdts);
    let is_alone = shards.is_empty() && asked.is_striped() && first != here;
    if is_alone { vec![first] } else { shards } // no other MDT is open
}

/// Begins to move the names of a directory to new shards, or from its shards back to itself.
/// Returns whether there is anything to move. `mark`: [`HASH_FIXED`] or [`HASH_SPLIT`].
pub(crate) fn start(op: &mut Op<'_, '_>, dir: &Inode, asked: &Asked, mark: u32) -> Decided<bool> {
    if dir.attr.flags.contains(AttrFlags::SHARD) || dir.attr.nlink == 0 {
        return Err(Errno::EINVAL.into());
    }
    let (here, fid) = (op.tx.mdt(), dir.fid());
    let before = stripes_of(op, dir)?;
    if before.as_ref().is_some_and(|stripes| stripes.leaving.is_some()) {
        return Err(Errno::EBUSY.into());
    }
    let open = Open::of(op);
    let wanted = goal(asked, here, &open);
    if wanted.iter().any(|mdt| !open.all.contains(mdt)) {
        return Err(Errno::ENODEV.into());
    }
    if wanted.contains(&here) && !open.has(here) {
        return Err(Errno::EREMOTEIO.into());
    }
    let (old, old_hash) = match &before {
        Some(stripes) => (stripes.shards.clone(), stripes.hash),
        None => (vec![fid], asked.hash & HASH_KIND),
    };
    let is_same = match &before {
        Some(stripes) => {
            let is_hash = wanted.len() == 1 || stripes.hash & HASH_KIND == asked.hash & HASH_KIND;
            is_hash && old.iter().map(|shard| shard.mdt_index()).eq(wanted.iter().copied())
        }
        None => wanted.is_empty(),
    };
    if is_same {
        return Ok(false);
    }
    if old.len() + wanted.len() > SHARDS_MAX {
        return Err(Errno::E2BIG.into()); // a listing passes all of them
    }
    op.decides_on(fid);
    for (number, mdt) in (1..).zip(&wanted) {
        op.tx.foresee(Key::New(*mdt, number), true);
    }
    old.iter().for_each(|shard| op.tx.foresee(Key::Inode(*shard), true));
    op.tx.needs_record = true; // a replay would draw other FIDs
    op.tx.gives_room = !wanted.is_empty() && !wanted.contains(&here);
    let new = match wanted.is_empty() {
        true => vec![fid],
        false => dirs::new_shards(op, &wanted)?,
    };
    let marks = HASH_FIXED | HASH_SPLIT;
    let stripes = Stripes {
        hash: asked.hash & !marks | mark,
        version: before.map_or(0, |stripes| stripes.version).wrapping_add(1),
        master: here,
        shards: new,
        leaving: Some(Leaving { hash: old_hash, shards: old }),
    };
    let value = stripes.encode();
    let places = stripes.leaving.iter().flat_map(|leaving| &leaving.shards).chain([&fid]);
    let places: BTreeSet<Fid> = places.copied().collect();
    for place in places {
        op.stripe_at(place, value.clone())?;
    }
    for shard in stripes.shards.iter().filter(|shard| **shard != fid) {
        make_shard(op, dir, *shard, &value)?;
    }
    Ok(true)
}

/// Splits a directory of which `grown` is a part: itself, or a shard on the same MDT. Returns
/// whether it does. A directory that was striped by a user stays as it is.
pub(crate) fn split(op: &mut Op<'_, '_>, grown: Fid) -> Decided<bool> {
    let Some((dir, stripes)) = split_by_itself(op, grown)? else { return Ok(false) };
    if !op.state.dirs.striped {
        return Ok(false);
    }
    let now = stripes.map_or(0, |stripes| stripes.shards.len()) as u32;
    let count = (now + op.state.split.delta).min(Open::of(op).mdts.len() as u32);
    if count <= now.max(1) {
        return Ok(false);
    }
    start(op, &dir, &Asked { count, ..Asked::default() }, HASH_SPLIT)
}

/// Merges a directory that was split by itself, and of which `shrunk` is a shard on the same MDT.
/// The other shards have about as many names.
pub(crate) fn merge(op: &mut Op<'_, '_>, shrunk: Fid, names: u64) -> Decided<bool> {
    let Some((dir, Some(stripes))) = split_by_itself(op, shrunk)? else { return Ok(false) };
    let most = op.state.split.count / SPLIT_TO_MERGE;
    if names.saturating_mul(stripes.shards.len() as u64) >= most {
        return Ok(false);
    }
    start(op, &dir, &Asked::default(), HASH_SPLIT)
}

/// The directory of `part`, with its striping, if its names may move without a user's wish.
fn split_by_itself(op: &mut Op<'_, '_>, part: Fid) -> Decided<Option<(Inode, Option<Stripes>)>> {
    let Some(inode) = op.tx.find_here(part)? else { return Ok(None) };
    let is_shard = inode.attr.flags.contains(AttrFlags::SHARD);
    let dir = if is_shard { op.tx.find_here(inode.parent)? } else { Some(inode) };
    let Some(dir) = dir.filter(|dir| dir.attr.nlink > 0 && dir.fid() != Fid::ROOT) else {
        return Ok(None);
    };
    let stripes = stripes_of(op, &dir)?;
    let is_free = stripes
        .as_ref()
        .is_none_or(|stripes| stripes.hash & HASH_SPLIT != 0 && stripes.leaving.is_none());
    Ok(is_free.then_some((dir, stripes)))
}

/// A shard with all that it has in common with its directory.
fn make_shard(op: &mut Op<'_, '_>, dir: &Inode, shard: Fid, stripes: &[u8]) -> Decided<()> {
    let mut inherited = dirs::shared_of(op, dir)?;
    inherited.xattrs.push((LMV.to_vec(), stripes.to_vec()));
    let own = AttrFlags::STRIPED | AttrFlags::HAS_XATTR | AttrFlags::HAS_CAPABILITY;
    let mut attr = dir.attr.with_fid(shard);
    (attr.flags, attr.nlink, attr.size) = (attr.flags & !own | AttrFlags::SHARD, 2, 0);
    (attr.version, attr.blocks) = (0, dirs::BLOCKS);
    let mut inode = Inode { attr, flags: INODE_MOVES, parent: dir.fid(), ..dir.clone() };
    inherited.mark(&mut inode);
    dirs::make_at(op, &inode, &inherited, None)
}

/// What a push came to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pushed {
    /// Names that moved.
    pub(crate) names: u64,
}

/// Moves names out of a shard that they leave, all to the same new shard. Names that are not there
/// are left out.
pub(crate) fn push(op: &mut Op<'_, '_>, from: Fid, names: &[Vec<u8>]) -> Decided<Pushed> {
    op.decides_on(from);
    let none = Ok(Pushed::default());
    let Some(dir) = op.tx.find_here(from)?.filter(|dir| dir.attr.nlink > 0) else { return none };
    let stripes = stripes_of(op, &dir)?.filter(|stripes| stripes.is_left(from));
    let (Some(stripes), Some(first)) = (stripes, names.first()) else { return none };
    let to = stripes.home(first);
    let (mut there, mut files) = (Vec::new(), BTreeSet::new());
    for name in names.iter().filter(|name| stripes.home(name) == to) {
        let entry = op.tx.entry(from, name)?;
        // another name of the same file moves later: back-links of one operation do not count
        if let Some(entry) = entry.filter(|entry| files.insert(entry.record.fid)) {
            let fid = entry.record.fid;
            op.tx.foresee(Key::Inode(fid), true);
            // reserved alone from the start: two pushes that only decide on it would stand in each
            // other's way for ever
            op.tx.changes.push(ShareKey::Entry(from, entry.cookie >> 16));
            op.tx.changes.extend(op.tx.is_here(fid).then_some(ShareKey::Inode(fid)));
            op.tx.foresee(Key::Name(Place { dir: to, name: name.clone() }), true);
            there.push((name, entry));
        }
    }
    assert_eq!(there.len(), files.len(), "one name of a file moves at a time");
    if there.is_empty() {
        return none;
    }
    op.tx.foresee(Key::Inode(to), false);
    if op.tx.dir(to)?.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    if op.tx.is_here(to) {
        op.decides_on(to);
    }
    let (mut bytes, mut subdirs) = (0, 0);
    for (name, entry) in &there {
        let inode = op.tx.inode(entry.record.fid)?;
        if op.tx.entry(to, name)?.is_some() {
            return Err(Errno::EIO.into()); // in two shards; the caller logs it
        }
        let (old, new) = (At { dir: from, name }, At { dir: to, name });
        op.leave(old, entry);
        op.enter(new, &inode)?;
        let place = |dir| Place { dir, name: name.to_vec() };
        let (fid, from, to) = (inode.fid(), place(from), place(to));
        if op.tx.is_here(fid) {
            op.rehome(fid, &from, &to)?;
        }
        op.tx.updates.push(Update::Rehome { fid, from, to });
        bytes += old.bytes();
        subdirs += i32::from(inode.attr.is_dir());
    }
    op.resize(from, -bytes, -subdirs)?;
    op.resize(to, bytes, subdirs)?;
    Ok(Pushed { names: there.len() as u64 })
}

/// Gives a directory its new striping alone, if all names have moved; returns whether they had.
pub(crate) fn finish(op: &mut Op<'_, '_>, fid: Fid) -> Decided<bool> {
    op.decides_on(fid);
    let Some(dir) = op.tx.find_here(fid)?.filter(|dir| dir.attr.nlink > 0) else {
        return Ok(false);
    };
    let Some(stripes) = stripes_of(op, &dir)? else { return Ok(false) };
    let Some(leaving) = stripes.leaving.clone() else { return Ok(false) };
    let (here, away): (Vec<Fid>, Vec<Fid>) =
        leaving.shards.iter().partition(|shard| op.tx.is_here(**shard));
    let looked_at = if op.config.bugs.forget_old_shard() { &away[..0] } else { &away[..] };
    for shard in &here {
        if !op.tx.is_empty(*shard)? {
            return Ok(false);
        }
    }
    looked_at.iter().for_each(|shard| op.tx.foresee(Key::Empty(*shard), true));
    stripes.places().for_each(|shard| op.tx.foresee(Key::Inode(shard), true));
    for shard in looked_at {
        if !op.tx.is_empty(*shard)? {
            return Ok(false);
        }
    }
    op.tx.needs_record = true;
    for shard in stripes.places().filter(|shard| *shard != fid) {
        op.stripe_at(shard, Vec::new())?;
    }
    op.stripe_at(fid, stripes.moved(fid).map_or_else(Vec::new, |stripes| stripes.encode()))?;
    for shard in leaving.shards.into_iter().filter(|shard| *shard != fid) {
        op.rename_file(Named { fid: shard, gets: None, loses: None, links: -2, moves: false })?;
    }
    Ok(true)
}
