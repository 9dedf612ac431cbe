//! An inode that moves to another MDT: `lustre.inode.migrate`.
//!
//! The file gets a new FID there, because a FID names its MDT. All its names lead to the new FID
//! from then on, and the old inode goes. That is one operation of several MDTs ([`crate::cross`]):
//!
//! ```text
//!  old MDT          the inode goes, with its attributes and back-links; this MDT coordinates
//!  new MDT          it comes to be there, with all of them; its shards get it as their parent
//!  MDTs of names    each name leads to the new FID and keeps its place
//! ```
//! Names of a directory move first ([`super::moves`]): a directory moves when it has no names, or
//! when they are in shards on its new MDT. Objects of a file stay where they are. The caller has
//! lent them to the new MDT (`ost_layout_version`), under the layout that the file has. Bytes at
//! this MDT move first, to objects. No handle may be open (EBUSY). Times and link counts stay.
//!
//! Replay: the sealed record. A request without one found the inode on its MDT.

use std::collections::BTreeSet;

use layout::FileLayout;
use layout::dir::{Asked, BY_SPACE, Stripes};
use ldlm::grants::{Bits, HolderId};
use osd::Table;
use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::SizeState;
use wire::attr::AttrFlags;
use wire::updates::{Key, Named, Own, Place, Update};

use super::dirs::{self, Open};
use super::moves::stripes_of;
use super::unfenced::is_unfenced;
use crate::keys::LMV;
use crate::limits::INODE_NAMES_MAX;
use crate::op::names::{At, Inherited};
use crate::op::{Answer, Op};
use crate::record::{INODE_HAS_LAYOUT, INODE_MOVES, Inode};
use crate::share::ShareKey;
use crate::tx::Entry;

/// Links that a directory without subdirectories of its own has.
const LINKS_OF_DIR: u32 = 2;

/// What of an inode decides whether it can move.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Found {
    is_dir: bool,
    /// The root, whose MDT all clients know, or a shard, which goes with its directory.
    is_fixed: bool,
    nlink: u32,
    /// Back-links.
    names: usize,
    /// A client holds the file's lock, because its objects change, or may have them change; or
    /// names of the directory are moving.
    is_used: bool,
    objects: Objects,
}

/// Whether the files of the new MDT may use the objects of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Objects {
    /// There are none, or they are lent.
    Ready,
    /// They were lent under another layout, or another client keeps what it writes to the file. It
    /// would send that while the file is reserved, and wait for the move that waits for it.
    Changed,
    /// They are not lent, or some are at this MDT.
    Bound,
}

impl Objects {
    /// `lent`: one more than the generation of the layout whose objects the caller has lent; zero:
    /// none.
    fn of(layout: Option<&FileLayout>, lent: u32) -> Objects {
        let Some(layout) = layout else { return Objects::Ready };
        match layout.generation().checked_add(1) {
            _ if lent == 0 || layout.mdt_object().is_some() => Objects::Bound,
            Some(next) if next == lent => Objects::Ready,
            _ => Objects::Changed,
        }
    }
}

impl Found {
    /// Whether it can move.
    fn check(&self) -> Result<(), Errno> {
        let names = if self.is_dir { 1 } else { self.nlink as usize };
        match self {
            Found { is_fixed: true, .. } => Err(Errno::EINVAL),
            Found { nlink: 0, .. } => Err(Errno::ENOENT),
            Found { is_used: true, .. } => Err(Errno::EBUSY),
            Found { objects: Objects::Bound, .. } => Err(Errno::EXDEV),
            Found { objects: Objects::Changed, .. } => Err(Errno::EAGAIN),
            Found { names, .. } if *names > INODE_NAMES_MAX => Err(Errno::E2BIG),
            found if found.names != names => Err(Errno::EIO), // damaged
            _ => Ok(()),
        }
    }
}

/// The MDT that is named, if it is one.
fn goal(asked: &Asked) -> Option<u32> {
    match asked.mdts[..] {
        _ if asked.is_striped() => None,
        [only] => Some(only),
        [] if asked.index != BY_SPACE => Some(asked.index.cast_unsigned()),
        _ => None,
    }
}

/// Answers a request to move an inode to the MDT that is named. One that is there stays as it is.
/// `lent` as in [`Objects::of`].
///
/// # Errors
/// - EINVAL: not one MDT is named, or the inode is the root or a shard.
/// - EPERM: the caller does not administer this MDT, or the MDT makes no directories elsewhere.
/// - ENOENT: it has no name.
/// - EBUSY: a client has it open or changes its objects, or its names are moving.
/// - EXDEV: its objects are not lent to that MDT, or some of its bytes are at this MDT.
/// - EAGAIN: its layout has changed since its objects were lent, or another client keeps writes.
/// - ENOTEMPTY: it is a directory with names on other MDTs.
/// - EMLINK: two of its names are in one directory that is not on the new MDT.
/// - E2BIG: it has too many names.
/// - ENODEV, EREMOTEIO, ENOSPC, EROFS: an MDT is not there, takes nothing new, is full, or is
///   read-only.
pub(crate) fn migrate(
    op: &mut Op<'_, '_>,
    inode: Inode,
    value: &[u8],
    lent: u32,
) -> Decided<Answer> {
    if !op.is_administrator() {
        return Err(Errno::EPERM.into());
    }
    if op.replay.is_some() {
        return Ok(Answer::attr(&inode));
    }
    let asked = Asked::decode(value).map_err(|error| error.errno())?;
    let to = goal(&asked).ok_or(Errno::EINVAL)?;
    if to == op.tx.mdt() {
        return Ok(Answer::attr(&inode));
    }
    dirs::check_asked(op, &asked, &Open::of(op))?;
    let names = names_of(op, inode.fid())?;
    let layout = op.tx.layout(&inode)?;
    found(op, &inode, names.len(), Objects::of(layout.as_ref(), lent))?.check()?;
    if op.recovering {
        return Err(Errno::EBUSY.into()); // clients may still bring handles back
    }
    let mut apart = BTreeSet::new();
    let mut away = names.iter().map(|place| place.dir).filter(|dir| dir.mdt_index() != to);
    if !away.all(|dir| apart.insert(dir)) {
        return Err(Errno::EMLINK.into()); // their back-links would get one number
    }
    let stripes = if inode.attr.is_dir() { contents(op, &inode, to)? } else { None };
    depart(op, &inode, to, &names, stripes)
}

fn found(op: &Op<'_, '_>, inode: &Inode, names: usize, objects: Objects) -> Decided<Found> {
    let fid = inode.fid();
    let called = &op.state.grants.called;
    let is_kept = called.is_held_by_another(HolderId(op.session), fid, Bits::WRITE);
    let is_changing = (op.locked)(fid)
        || op.state.opens.is_cut_by_another(fid, op.cutter())
        || is_unfenced(&op.state.fences, &op.tx, fid)?;
    Ok(Found {
        is_dir: inode.attr.is_dir(),
        is_fixed: fid == Fid::ROOT || inode.attr.flags.contains(AttrFlags::SHARD),
        nlink: inode.attr.nlink,
        names,
        is_used: is_changing || inode.has(INODE_MOVES),
        objects: if is_kept { Objects::Changed } else { objects },
    })
}

/// All names of a file, as its back-links have them; one more than it may have, if there are more.
fn names_of(op: &Op<'_, '_>, fid: Fid) -> Decided<Vec<Place>> {
    let prefix = fid.to_key();
    let (mut names, mut is_broken) = (Vec::new(), false);
    op.tx.view.scan_within((Table::Links, &prefix), &prefix, &mut |key, name| {
        match Fid::from_key(&key[prefix.len()..]) {
            Some(dir) => names.push(Place { dir, name: name.to_vec() }),
            None => is_broken = true,
        }
        !is_broken && names.len() <= INODE_NAMES_MAX
    })?;
    if is_broken { Err(OpError::Broken("back-link")) } else { Ok(names) }
}

/// The striping that a directory takes along; none if it is plain. Its own names, and those of
/// shards on other MDTs, would stay behind.
fn contents(op: &mut Op<'_, '_>, dir: &Inode, to: u32) -> Decided<Option<Stripes>> {
    let stripes = stripes_of(op, dir)?;
    let mut shards = stripes.iter().flat_map(|stripes| &stripes.shards);
    if !op.tx.is_empty(dir.fid())? || shards.any(|shard| shard.mdt_index() != to) {
        return Err(Errno::ENOTEMPTY.into());
    }
    if dir.attr.nlink != LINKS_OF_DIR {
        return Err(Errno::EIO.into()); // it counts subdirectories and has none
    }
    Ok(stripes.map(|stripes| Stripes { master: to, ..stripes }))
}

/// Every change, on all MDTs.
fn depart(
    op: &mut Op<'_, '_>,
    inode: &Inode,
    to: u32,
    names: &[Place],
    stripes: Option<Stripes>,
) -> Decided<Answer> {
    let fid = inode.fid();
    assert!(!names.is_empty(), "a file that moves has a name");
    op.tx.departs = Some(fid);
    // reserved alone from the start: two operations that only decide on it would stand in each
    // other's way for ever
    op.tx.changes.push(ShareKey::Inode(fid));
    op.tx.foresee(Key::New(to, 0), true);
    names.iter().for_each(|place| op.tx.foresee(Key::Name(place.clone()), true));
    let shards: Vec<Fid> = stripes.iter().flat_map(|stripes| stripes.shards.clone()).collect();
    shards.iter().for_each(|shard| op.tx.foresee(Key::Inode(*shard), true));
    for place in names {
        if op.tx.is_here(place.dir) {
            let entry = entry_of(op, place, fid)?;
            op.tx.changes.push(ShareKey::Entry(place.dir, entry.cookie >> 16));
        }
    }
    let new = op.tx.new_fid(to, 0)?;
    assert_ne!(new.mdt_index(), fid.mdt_index(), "it moves to another MDT");
    let moved = arrives(op, inode, new, names, stripes.as_ref())?;
    for place in names {
        let entry = entry_of(op, place, fid)?;
        op.repoint(At { dir: place.dir, name: &place.name }, &entry, &moved);
    }
    let name = names.first().map_or_else(Vec::new, |place| place.name.clone());
    for shard in shards {
        op.tx.inode(shard)?; // reserved
        let place = |dir| Place { dir, name: name.clone() };
        op.tx.updates.push(Update::Rehome { fid: shard, from: place(fid), to: place(new) });
    }
    forget_objects(op, inode)?;
    let links = if inode.attr.is_dir() { 2 } else { 1 };
    for place in names {
        let loses = Some(place.clone());
        op.rename_file(Named { fid, gets: None, loses, links: -links, moves: false })?;
    }
    Ok(Answer::elsewhere(new, moved.attr.file_type()))
}

/// The inode that goes has no layout, so its objects are not destroyed with it.
fn forget_objects(op: &mut Op<'_, '_>, inode: &Inode) -> Decided<()> {
    if !inode.attr.is_file() || !inode.has(INODE_HAS_LAYOUT) {
        return Ok(());
    }
    let attr = &inode.attr;
    let own = Own {
        fid: inode.fid(),
        mode: attr.mode,
        uid: attr.uid,
        gid: attr.gid,
        projid: attr.projid,
        atime: None,
        mtime: None,
        layout: Vec::new(),
        xattrs: Vec::new(),
    };
    op.own(&own)?;
    op.tx.updates.push(Update::Own(own));
    Ok(())
}

/// The inode as its new MDT gets it, with its back-links.
fn arrives(
    op: &mut Op<'_, '_>,
    inode: &Inode,
    new: Fid,
    names: &[Place],
    stripes: Option<&Stripes>,
) -> Decided<Inode> {
    let mut attr = inode.attr.with_fid(new);
    attr.version = 0; // it counts changes on its MDT
    let layout = op.tx.layout(inode)?;
    if layout.is_some() && attr.size_state() == SizeState::NeverWritten {
        attr.size_state = SizeState::Dirty as u32; // only the MDT that made it may believe that
    }
    let moved = Inode { attr, ..inode.clone() };
    let layout = match layout {
        Some(layout) => layout.of_file(new).encode(),
        None => op.tx.layout_record(inode)?, // of a directory
    };
    let inherited = Inherited { xattrs: xattrs_of(op, inode.fid(), stripes)?, layout };
    dirs::make_at(op, &moved, &inherited, names.first().cloned())?;
    let others = names.iter().skip(1).filter(|place| place.dir.mdt_index() != new.mdt_index());
    for place in others {
        // only the back-link: it is not there yet
        let (from, to) = (place.clone(), place.clone());
        op.tx.updates.push(Update::Rehome { fid: new, from, to });
    }
    Ok(moved)
}

/// All extended attributes, with the striping as it is on the new MDT.
fn xattrs_of(
    op: &Op<'_, '_>,
    fid: Fid,
    stripes: Option<&Stripes>,
) -> Decided<Vec<(Vec<u8>, Vec<u8>)>> {
    let prefix = fid.to_key();
    let mut found = Vec::new();
    op.tx.view.scan_within((Table::Xattrs, &prefix), &prefix, &mut |key, value| {
        found.push((key[prefix.len()..].to_vec(), value.to_vec()));
        true
    })?;
    if let Some(stripes) = stripes {
        found.retain(|(name, _)| name.as_slice() != LMV);
        found.push((LMV.to_vec(), stripes.encode()));
    }
    Ok(found)
}

/// The entry of a name that leads to the file.
fn entry_of(op: &mut Op<'_, '_>, place: &Place, fid: Fid) -> Decided<Entry> {
    let entry = op.tx.entry(place.dir, &place.name)?;
    let entry = entry.filter(|entry| entry.record.fid == fid);
    entry.ok_or(OpError::Refused(Errno::EIO)) // its back-link says so
}

#[cfg(test)]
mod tests {
    use layout::Layout;

    use super::*;

    const FILE: Found = Found {
        is_dir: false,
        is_fixed: false,
        nlink: 2,
        names: 2,
        is_used: false,
        objects: Objects::Ready,
    };

    #[test]
    fn an_inode_that_is_used_or_damaged_stays() {
        let dir = Found { is_dir: true, names: 1, ..FILE };
        assert_eq!((FILE.check(), dir.check()), (Ok(()), Ok(())));
        for (found, errno) in [
            (Found { is_fixed: true, ..dir }, Errno::EINVAL),
            (Found { nlink: 0, names: 0, ..FILE }, Errno::ENOENT),
            (Found { is_used: true, ..FILE }, Errno::EBUSY),
            (Found { objects: Objects::Bound, ..FILE }, Errno::EXDEV),
            (Found { objects: Objects::Changed, ..FILE }, Errno::EAGAIN),
            (Found { names: 1, ..FILE }, Errno::EIO),
            (Found { names: 2, ..dir }, Errno::EIO),
            (Found { nlink: 999, names: INODE_NAMES_MAX + 1, ..FILE }, Errno::E2BIG),
        ] {
            assert_eq!(found.check(), Err(errno), "{found:?}");
        }
    }

    #[test]
    fn objects_are_lent_under_the_layout_that_the_file_has() {
        let base = Fid::new(7, 8);
        let layout = FileLayout::from(Layout { osts: vec![4], ..Layout::plain(base, 1 << 20, 1) });
        let next = layout.generation() + 1;
        assert_eq!(Objects::of(None, 0), Objects::Ready);
        assert_eq!(Objects::of(Some(&layout), 0), Objects::Bound);
        assert_eq!(Objects::of(Some(&layout), next), Objects::Ready);
        let renewed = layout.renewed().expect("there is a later generation");
        assert_eq!(Objects::of(Some(&renewed), next), Objects::Changed);
    }

    #[test]
    fn one_mdt_is_named_by_a_list_or_an_index() {
        let asked = Asked::default();
        assert_eq!(goal(&asked), None);
        assert_eq!(goal(&Asked { index: 3, ..asked.clone() }), Some(3));
        assert_eq!(goal(&Asked { mdts: vec![2], ..asked.clone() }), Some(2));
        assert_eq!(goal(&Asked { count: 2, mdts: vec![2, 0], ..asked }), None);
    }
}
