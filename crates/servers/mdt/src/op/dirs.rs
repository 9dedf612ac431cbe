//! Directories over several MDTs: where a new one goes, its shards, and what its shards have in
//! common with it.
//!
//! `trusted.lmv` names the shards of a striped directory, `trusted.dmv` is a directory's default
//! for new subdirectories. Neither is listed. The shards of a directory have its mode, owner,
//! access lists and defaults. So requests about names in a shard need to ask no other MDT.

use bytes::Bytes;
use layout::dir::{
    Asked, BY_SPACE, COUNT_ALL, HASH_OVERSTRIPED, SHARDS_MAX, SHARDS_PER_MDT, Stripes,
};
use osd::Table;
use placement::Wish;
use target::{Decided, OpError};
use types::{Creds, Errno, Fid, TargetId};
use wire::attr::AttrFlags;
use wire::body::{CreateReq, Disposition, StatfsState};
use wire::updates::{Fact, Key, Made, Named, Own, Place, Update};

use crate::keys::{self, LMV};
use crate::op::create::{inherit, make_inode};
use crate::op::names::{At, Inherited};
use crate::op::{Answer, AttrAnswer, Op, moves};
use crate::perm::{ACL_ACCESS, ACL_DEFAULT, is_root};
use crate::record::{INODE_HAS_LAYOUT, Inode};

/// Attribute under which a directory's default is stored.
pub(crate) const DMV: &[u8] = b"trusted.dmv";

/// `st_blocks` of a directory.
pub(crate) const BLOCKS: u64 = 8;

/// What the inodes of a directory and of its shards have in common.
const SHARED: [&[u8]; 3] = [ACL_ACCESS, ACL_DEFAULT, DMV];

/// Beginnings of names of temporary directories, as Hadoop and Spark make them.
const TEMPORARY: [&[u8]; 2] = [b"_temporary.", b".spark-staging-"];

/// Where a new directory goes.
#[derive(Debug, PartialEq, Eq)]
struct Where {
    mdt: u32,
    /// MDTs of its shards, empty: none.
    shards: Vec<u32>,
    hash: u32,
    /// Its default for its own subdirectories.
    default: Option<Asked>,
}

/// Makes a directory.
pub(crate) fn make(
    op: &mut Op<'_, '_>,
    body: &CreateReq,
    parent: &Inode,
    at: At<'_>,
) -> Decided<Answer> {
    let place = choose(op, parent)?;
    let here = op.tx.mdt();
    if op.replay.is_none() {
        for (number, mdt) in (0..).zip([&[place.mdt][..], &place.shards].concat()) {
            op.tx.foresee(Key::New(mdt, number), true);
        }
    }
    let fid = if place.mdt == here { None } else { Some(op.tx.new_fid(place.mdt, 0)?) };
    let mut inode = make_inode(op, body, parent, fid)?;
    let mut inherited = inherit(op, body, parent, &mut inode)?;
    if let Some(default) = &place.default {
        inherited.xattrs.push((DMV.to_vec(), default.encode()));
    }
    let shards = new_shards(op, &place.shards)?;
    inherited.mark(&mut inode);
    let as_shard = Inode {
        parent: inode.fid(),
        attr: wire::Attr { flags: inode.attr.flags | AttrFlags::SHARD, ..inode.attr },
        ..inode.clone()
    };
    for shard in &shards {
        let attr = as_shard.attr.with_fid(*shard);
        make_at(op, &Inode { attr, ..as_shard.clone() }, &inherited, None)?;
    }
    if !shards.is_empty() {
        op.tx.needs_record = true;
        inode.attr.flags |= AttrFlags::STRIPED;
        let hash = place.hash;
        let stripes = Stripes { hash, version: 1, master: place.mdt, shards, leaving: None };
        inherited.xattrs.push((LMV.to_vec(), stripes.encode()));
        inherited.mark(&mut inode);
    }
    op.enter(at, &inode)?;
    op.touch(parent.fid(), at.bytes(), 1)?;
    let name = Place { dir: at.dir, name: at.name.to_vec() };
    make_at(op, &inode, &inherited, Some(name))?;
    let layout = inherited.layout;
    Ok(Answer::Attr(AttrAnswer::new(&inode, 0, Disposition::CREATED, layout)))
}

/// FIDs of new shards on these MDTs.
pub(crate) fn new_shards(op: &mut Op<'_, '_>, mdts: &[u32]) -> Decided<Vec<Fid>> {
    let here = op.tx.mdt();
    let mut shards = Vec::with_capacity(mdts.len());
    for (number, mdt) in (1..).zip(mdts) {
        shards.push(match *mdt == here {
            true => op.state.draw_fid()?,
            false => op.tx.new_fid(*mdt, number)?,
        });
    }
    Ok(shards)
}

pub(crate) fn make_at(
    op: &mut Op<'_, '_>,
    inode: &Inode,
    inherited: &Inherited,
    at: Option<Place>,
) -> Decided<()> {
    let made = Made {
        fid: inode.fid(),
        inode: inode.encode(),
        layout: inherited.layout.clone(),
        xattrs: inherited.xattrs.clone(),
        at,
    };
    if op.tx.is_here(inode.fid()) {
        op.make(&made)?;
    }
    op.tx.updates.push(Update::Make(made));
    Ok(())
}

/// Where a new directory goes: as the caller asks, or as its parent's default says.
///
/// # Errors
/// EPERM: the caller may not choose, or this MDT does not make such directories. ENODEV: no such
/// MDT. EREMOTEIO: an MDT that the caller named gets no new directories.
fn choose(op: &mut Op<'_, '_>, parent: &Inode) -> Decided<Where> {
    let here = op.tx.mdt();
    let asked = op.request.buf(4);
    let default = default_of(op, parent)?;
    let handed_on = default.as_ref().and_then(Asked::handed_on);
    let plain = Where { mdt: here, shards: Vec::new(), hash: 0, default: handed_on };
    if op.replay.is_some() {
        return Ok(plain); // a replay without a record has made it here
    }
    let is_here_open = !op.state.marks.has(StatfsState::NO_CREATE);
    if asked.is_empty() && default.is_none() && is_here_open {
        return Ok(plain);
    }
    let open = Open::of(op);
    if !asked.is_empty() {
        let wanted = Asked::decode(&asked).map_err(|error| error.errno())?;
        check_asked(op, &wanted, &open)?;
        let mdt = named(&wanted).next().unwrap_or_else(|| by_space(op, parent, &open, true));
        let shards = shard_mdts(&wanted, mdt, &with_room(op, &wanted, mdt, &open));
        return Ok(Where { mdt, shards, hash: wanted.hash, ..plain });
    }
    let Some(mut wanted) = default else {
        return Ok(Where { mdt: by_space(op, parent, &open, false), ..plain });
    };
    if let Some(absent) = named(&wanted).find(|mdt| !open.all.contains(mdt)) {
        tracing::debug!(target: "mdt", target_id = %TargetId::mdt(absent).name(op.config.fsname), "a directory is wanted on an MDT that is not there");
        return Err(Errno::ENODEV.into());
    }
    if !named(&wanted).all(|mdt| open.has(mdt)) {
        (wanted.index, wanted.mdts) = (BY_SPACE, Vec::new()); // others take its place
    }
    if !op.state.dirs.striped {
        wanted.count = 1;
    }
    let is_shard = parent.attr.flags.contains(AttrFlags::SHARD);
    let spreads = wanted.max_inherit_rr > 0 || parent.fid() == Fid::ROOT;
    let mdt = match named(&wanted).next() {
        Some(first) => first,
        None if (is_shard || is_temporary(&op.request.buf(1))) && open.has(here) => here,
        None => by_space(op, parent, &open, spreads),
    };
    let shards = shard_mdts(&wanted, mdt, &with_room(op, &wanted, mdt, &open));
    Ok(Where { mdt, shards, hash: wanted.hash, ..plain })
}

/// Whether a program makes a directory of this name for files that it moves up into the parent
/// soon. With the parent, these moves stay on one MDT.
fn is_temporary(name: &[u8]) -> bool {
    name == b"_temporary" || TEMPORARY.iter().any(|prefix| name.starts_with(prefix))
}

/// The MDTs that there are, and those that take new directories by choice.
pub(super) struct Open {
    pub(super) all: Vec<u32>,
    pub(super) mdts: Vec<u32>,
}

impl Open {
    pub(super) fn of(op: &Op<'_, '_>) -> Open {
        let here = op.tx.mdt();
        let mut all = (op.mdts)();
        if !all.contains(&here) {
            all.push(here);
        }
        let is_here_open = !op.state.marks.has(StatfsState::NO_CREATE);
        let is_open = |mdt: &u32| match *mdt == here {
            true => is_here_open,
            false => {
                let is_known = op.crossing.refused.contains_key(mdt);
                op.state.dirs.remote && op.state.mdts.is_open(*mdt) && !is_known
            }
        };
        Open { mdts: all.iter().copied().filter(is_open).collect(), all }
    }

    pub(super) fn has(&self, mdt: u32) -> bool {
        self.mdts.contains(&mdt)
    }
}

/// MDTs that a wish or a default names, that of the directory itself first.
fn named(wanted: &Asked) -> impl Iterator<Item = u32> {
    let first = (wanted.index != BY_SPACE && wanted.mdts.is_empty()).then_some(wanted.index as u32);
    first.into_iter().chain(wanted.mdts.iter().copied())
}

/// Whether the caller may have what it asks for.
pub(super) fn check_asked(op: &Op<'_, '_>, wanted: &Asked, open: &Open) -> Decided<()> {
    check_may_choose(op)?;
    let (here, dirs) = (op.tx.mdt(), &op.state.dirs);
    let is_remote = named(wanted).any(|mdt| mdt != here);
    if (is_remote && !dirs.remote) || (wanted.is_striped() && !dirs.striped) {
        return Err(Errno::EPERM.into());
    }
    for mdt in named(wanted) {
        if !open.all.contains(&mdt) {
            tracing::debug!(target: "mdt", target_id = %TargetId::mdt(mdt).name(op.config.fsname), "a directory is wanted on an MDT that is not there");
            return Err(Errno::ENODEV.into());
        }
        if let Some(errno) = op.crossing.refused.get(&mdt) {
            return Err((*errno).into());
        }
        if mdt == here && !open.has(here) {
            return Err(Errno::EREMOTEIO.into());
        }
    }
    Ok(())
}

/// Root, the owner of this MDT and one group may name MDTs, or all users.
fn check_may_choose(op: &Op<'_, '_>) -> Decided<()> {
    let may = op.is_administrator() || is_admitted(&op.creds, op.state.dirs.remote_gid);
    if may { Ok(()) } else { Err(Errno::EPERM.into()) }
}

impl Op<'_, '_> {
    /// Root and the owner of this MDT's storage; a replay was asked before.
    pub(crate) fn is_administrator(&self) -> bool {
        let is_its_owner = self.creds.uid == self.config.root_owner.0;
        is_root(&self.creds) || is_its_owner || self.replay.is_some()
    }
}

/// Whether an ordinary user may name MDTs: a member of group `gid`; 0: no user, -1: all.
fn is_admitted(creds: &Creds, gid: i64) -> bool {
    match u32::try_from(gid) {
        Ok(0) => false,
        Ok(gid) => creds.in_group(gid),
        Err(_) => true,
    }
}

/// The MDT of a directory for which none is named: the same for all attempts to decide. If every
/// MDT is closed, the directory is with its parent.
fn by_space(op: &mut Op<'_, '_>, parent: &Inode, open: &Open, may_turn: bool) -> u32 {
    let here = op.tx.mdt();
    if let Some(chosen) = op.crossing.chosen.get().filter(|chosen| open.has(*chosen)) {
        return chosen;
    }
    let wish = Wish { parent: here, depth: parent.depth, may_turn };
    let now = u64::try_from(op.tx.now.sec).unwrap_or(0);
    let policy = op.state.lod.mdt_policy;
    let chosen = op.state.mdts.choose(&wish, &open.mdts, &policy, now);
    op.crossing.chosen.set(chosen);
    chosen.unwrap_or(here)
}

/// The MDTs that a directory's further shards may go to. If it names no MDT and has fewer shards
/// than there are MDTs, these are chosen by space: the same for all attempts to decide.
fn with_room(op: &mut Op<'_, '_>, wanted: &Asked, first: u32, open: &Open) -> Vec<u32> {
    let is_open = wanted.is_striped() && wanted.index == BY_SPACE && wanted.mdts.is_empty();
    let count = (wanted.count as usize).saturating_sub(1);
    let others = open.mdts.iter().filter(|mdt| **mdt != first).count();
    if !is_open || count >= others {
        return open.mdts.clone();
    }
    let mut chosen = op.crossing.chosen_others.borrow_mut();
    if let Some((of, mdts)) = chosen.as_ref()
        && *of == first
        && mdts.iter().all(|mdt| open.has(*mdt))
    {
        return mdts.clone();
    }
    let now = u64::try_from(op.tx.now.sec).unwrap_or(0);
    let policy = op.state.lod.mdt_policy;
    let mdts = op.state.mdts.choose_others((first, count), &open.mdts, &policy, now);
    assert_eq!(mdts.len(), count, "more MDTs are open than are needed");
    *chosen = Some((first, mdts.clone()));
    mdts
}

/// MDTs of the shards, none for a plain directory. An MDT alone gets no shards: clients of a file
/// system with one MDT look for none.
pub(crate) fn shard_mdts(wanted: &Asked, master: u32, mdts: &[u32]) -> Vec<u32> {
    if !wanted.is_striped() {
        return Vec::new();
    }
    if !wanted.mdts.is_empty() {
        return wanted.mdts.clone();
    }
    let others = mdts.iter().filter(|mdt| **mdt > master);
    let lower = mdts.iter().filter(|mdt| **mdt < master);
    let mdts: Vec<u32> = std::iter::once(&master).chain(others).chain(lower).copied().collect();
    let most = |each: u32| (mdts.len() * each as usize).min(SHARDS_MAX);
    let count = match (wanted.on_each(), wanted.count) {
        (Some(each), _) => most(each),
        (None, COUNT_ALL) => mdts.len(),
        (None, count) if wanted.hash & HASH_OVERSTRIPED != 0 => {
            most(SHARDS_PER_MDT).min(count as usize)
        }
        (None, count) => mdts.len().min(count as usize),
    };
    let shards: Vec<u32> = mdts.iter().cycle().take(count).copied().collect();
    if shards.len() > 1 && mdts.len() > 1 { shards } else { Vec::new() }
}

/// A directory's default for new subdirectories.
pub(crate) fn default_of(op: &Op<'_, '_>, dir: &Inode) -> Decided<Option<Asked>> {
    if !op.tx.is_here(dir.fid()) {
        return Ok(None);
    }
    let Some(stored) = op.tx.view.get(Table::Xattrs, &keys::xattr(dir.fid(), DMV))? else {
        return Ok(None);
    };
    Asked::decode(&stored).map(Some).map_err(|_| OpError::Broken("default striping"))
}

/// The shards of a directory, none if it is not striped. While names move, those that they leave
/// are among them.
pub(crate) fn shards_of(op: &mut Op<'_, '_>, dir: &Inode) -> Decided<Vec<Fid>> {
    if !dir.attr.flags.contains(AttrFlags::STRIPED) {
        return Ok(Vec::new());
    }
    let stripes = moves::stripes_of(op, dir)?;
    let places = stripes.iter().flat_map(Stripes::places);
    Ok(places.filter(|shard| *shard != dir.fid()).collect())
}

/// The striping of a directory as it is stored, empty if there is none.
pub(crate) fn stored_stripes(op: &mut Op<'_, '_>, dir: &Inode) -> Decided<Vec<u8>> {
    Ok(if op.tx.is_here(dir.fid()) {
        op.tx.view.get(Table::Xattrs, &keys::xattr(dir.fid(), LMV))?.unwrap_or_default()
    } else {
        match op.tx.fact(Key::Inode(dir.fid()), true)? {
            Fact::Inode { stripes, .. } => stripes,
            _ => Vec::new(),
        }
    })
}

/// What a directory has in common with its shards.
pub(crate) fn shared_of(op: &Op<'_, '_>, dir: &Inode) -> Decided<Inherited> {
    let mut xattrs = Vec::new();
    for name in SHARED {
        let value = stored(op, dir.fid(), name)?;
        xattrs.extend((!value.is_empty()).then(|| (name.to_vec(), value)));
    }
    Ok(Inherited { xattrs, layout: op.tx.layout_record(dir)? })
}

/// Whether a directory and its shards have no names.
pub(crate) fn is_empty(op: &mut Op<'_, '_>, dir: &Inode) -> Decided<bool> {
    let shards = shards_of(op, dir)?;
    for fid in [&[dir.fid()][..], &shards].concat() {
        op.tx.foresee(Key::Empty(fid), true);
        op.tx.foresee(Key::Inode(fid), true);
    }
    let mut empty = op.tx.is_empty(dir.fid())?;
    for shard in &shards {
        if op.config.bugs.look_at_one_shard() {
            break;
        }
        empty &= op.tx.is_empty(*shard)?;
    }
    Ok(empty)
}

/// The shards of a directory that loses its name go with it.
pub(crate) fn drop_shards(op: &mut Op<'_, '_>, dir: &Inode) -> Decided<()> {
    for fid in shards_of(op, dir)? {
        op.rename_file(Named { fid, gets: None, loses: None, links: -2, moves: false })?;
    }
    Ok(())
}

/// What changed of a striped directory changes of its shards as well. To be called when the change
/// is in the operation's set.
pub(crate) fn spread(op: &mut Op<'_, '_>, dir: &Inode, sets_times: bool) -> Decided<()> {
    let shards = shards_of(op, dir)?;
    if shards.is_empty() {
        return Ok(());
    }
    shards.iter().for_each(|shard| op.tx.foresee(Key::Inode(*shard), true));
    let mut xattrs = Vec::new();
    for name in SHARED {
        xattrs.push((name.to_vec(), stored(op, dir.fid(), name)?));
    }
    let layout = op.tx.layout_record(dir)?;
    let attr = &dir.attr;
    let times = |sec, nsec| sets_times.then_some((sec, nsec));
    for fid in shards.into_iter().chain([dir.fid()]) {
        let own = Own {
            fid,
            mode: attr.mode,
            uid: attr.uid,
            gid: attr.gid,
            projid: attr.projid,
            atime: times(attr.atime, attr.atime_nsec),
            mtime: times(attr.mtime, attr.mtime_nsec),
            layout: layout.clone(),
            xattrs: xattrs.clone(),
        };
        if op.tx.is_here(fid) {
            op.own(&own)?;
        } else {
            op.tx.inode(fid)?;
        }
        op.tx.updates.push(Update::Own(own));
    }
    Ok(())
}

/// An attribute as the operation leaves it, empty if there is none.
fn stored(op: &Op<'_, '_>, fid: Fid, name: &[u8]) -> Decided<Vec<u8>> {
    let key = keys::xattr(fid, name);
    let changed = op.tx.set.changes.iter().rev();
    let mut changed = changed.filter(|(table, at, _)| *table == Table::Xattrs && *at == key);
    if let Some((_, _, value)) = changed.next() {
        return Ok(value.clone().unwrap_or_default());
    }
    Ok(op.tx.view.get(Table::Xattrs, &key)?.unwrap_or_default())
}

impl Op<'_, '_> {
    /// Mode, owner, lists and defaults of a directory, or of a shard of it.
    pub(crate) fn own(&mut self, own: &Own) -> Decided<()> {
        let mut inode = self.tx.inode(own.fid)?;
        inode.attr.mode = inode.attr.file_type() | own.mode & 0o7777;
        (inode.attr.uid, inode.attr.gid, inode.attr.projid) = (own.uid, own.gid, own.projid);
        if let Some((sec, nsec)) = own.atime {
            (inode.attr.atime, inode.attr.atime_nsec) = (sec, nsec);
        }
        if let Some((sec, nsec)) = own.mtime {
            (inode.attr.mtime, inode.attr.mtime_nsec) = (sec, nsec);
        }
        inode.attr.set_ctime(self.tx.now);
        let mut inherited = Inherited { xattrs: Vec::new(), layout: own.layout.clone() };
        inode.flags &= !(INODE_HAS_LAYOUT | Inherited::LISTS);
        match own.layout.is_empty() {
            true => self.tx.set.delete(Table::Layouts, own.fid.to_key()),
            false => self.tx.set.put(Table::Layouts, own.fid.to_key(), own.layout.clone()),
        }
        for (name, value) in &own.xattrs {
            let key = keys::xattr(own.fid, name);
            if value.is_empty() {
                self.tx.set.delete(Table::Xattrs, key);
            } else {
                self.tx.set.put(Table::Xattrs, key, value.clone());
                inherited.xattrs.push((name.clone(), value.clone()));
            }
        }
        inherited.mark(&mut inode);
        self.change(inode);
        Ok(())
    }
}

/// The value of `lustre.lmv` or `lustre.dmv`.
pub(crate) fn value(op: &Op<'_, '_>, dir: &Inode, name: &[u8]) -> Decided<Answer> {
    let stored = op.tx.view.get(Table::Xattrs, &keys::xattr(dir.fid(), name))?;
    Ok(Answer::data(stored.ok_or(Errno::ENODATA)?))
}

/// Sets a directory's default for new subdirectories; an empty value removes it.
///
/// # Errors
/// ENOTDIR; EPERM: the caller may not name MDTs; ENODEV: an MDT does not exist.
pub(crate) fn set_default(op: &mut Op<'_, '_>, dir: &mut Inode, value: &Bytes) -> Decided<()> {
    if !dir.attr.is_dir() {
        return Err(Errno::ENOTDIR.into());
    }
    check_may_choose(op)?;
    let key = keys::xattr(dir.fid(), DMV);
    if value.is_empty() {
        op.tx.set.delete(Table::Xattrs, key);
        return Ok(());
    }
    let asked = Asked::decode(value).map_err(|error| error.errno())?;
    let (here, mdts) = (op.tx.mdt(), (op.mdts)());
    let is_absent = |mdt: u32| mdt != here && !mdts.contains(&mdt);
    if op.replay.is_none() && named(&asked).any(is_absent) {
        return Err(Errno::ENODEV.into());
    }
    op.tx.set.put(Table::Xattrs, key, asked.encode());
    Inherited { xattrs: vec![(DMV.to_vec(), Vec::new())], layout: Vec::new() }.mark(dir);
    Ok(())
}

/// Whether programs see an attribute.
pub(crate) fn is_shown(name: &[u8]) -> bool {
    name != LMV && name != DMV
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn root_one_group_or_all_users_may_name_mdts() {
        let creds = Creds { uid: 7, gid: 70, groups: vec![71] };
        let admitted = [0, 70, 71, 72, -1].map(|gid| is_admitted(&creds, gid));
        assert_eq!(admitted, [false, true, true, false, true]);
    }

    #[test]
    fn names_of_temporary_directories_are_known() {
        for name in ["_temporary", "_temporary.7", ".spark-staging-a1b2"] {
            assert!(is_temporary(name.as_bytes()), "{name}");
        }
        for name in ["_temporary_", "temporary", "a_temporary", ".spark-staging", "tmp", ""] {
            assert!(!is_temporary(name.as_bytes()), "{name}");
        }
    }

    #[test]
    fn shards_begin_with_the_directorys_own_mdt_and_are_no_more_than_there_are_mdts() {
        let asked = |count| Asked { count, ..Asked::default() };
        assert_eq!(shard_mdts(&asked(2), 1, &[0, 1, 2]), [1, 2]);
        assert_eq!(shard_mdts(&asked(9), 2, &[0, 1, 2]), [2, 0, 1]);
        assert_eq!(shard_mdts(&asked(COUNT_ALL), 0, &[0, 1, 2]), [0, 1, 2]);
        assert_eq!(shard_mdts(&asked(1), 0, &[0, 1, 2]), []);
        assert_eq!(shard_mdts(&asked(2), 1, &[0, 2]), [1, 2], "it was named although it is closed");
        assert_eq!(shard_mdts(&asked(4), 0, &[0]), [], "one shard is a plain directory");
        let over = Asked { hash: asked(1).hash | HASH_OVERSTRIPED, ..asked(3) };
        assert_eq!(shard_mdts(&over, 0, &[0, 1]), [0, 1, 0]);
        let many = Asked { count: 200, ..over.clone() };
        assert_eq!(shard_mdts(&many, 0, &[0, 1]).len(), 10, "five on each");
        let twice = Asked { count: 2_u32.wrapping_neg(), ..over };
        assert_eq!(shard_mdts(&twice, 1, &[0, 1]), [1, 0, 1, 0]);
        assert_eq!(shard_mdts(&twice, 0, &[0]), []);
        let all: Vec<u32> = (0..200).collect();
        assert_eq!(shard_mdts(&twice, 0, &all).len(), SHARDS_MAX);
        let listed = Asked { mdts: vec![3, 1], ..asked(2) };
        assert_eq!(
            shard_mdts(&listed, 3, &[0, 1]),
            [3, 1],
            "whether they exist is asked elsewhere"
        );
    }
}
