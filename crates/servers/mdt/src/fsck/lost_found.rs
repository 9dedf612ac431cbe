//! `.nacre/lost+found`: names for files that have none, and files for objects that have none.

use layout::{FileLayout, Layout, StripeSet};
use types::Fid;
use wire::SizeState;
use wire::attr::{AttrFlags, S_IFDIR, S_IFREG};

use super::mend::{Draft, Owner, Plan};
use crate::record::{INODE_HAS_LAYOUT, Inode};
use crate::tx::new_attr;

/// Directories from the root to the files.
const PLACE: [&[u8]; 2] = [b".nacre", b"lost+found"];
/// Mode of those: their files may have been in a directory that only their owner could enter.
const MODE: u32 = S_IFDIR | 0o700;
/// Mode of a file whose inode is lost.
pub(super) const FILE_MODE: u32 = S_IFREG | 0o600;
/// Stripe size of a file whose layout is lost, bytes: what most files have. It does not matter
/// where there is one stripe.
const STRIPE_BYTES: u32 = 1 << 20;

/// The name of a file: its FID without brackets, which shells would take for a pattern.
fn name_of(fid: Fid) -> Vec<u8> {
    format!("{:#x}:{:#x}:{:#x}", fid.seq, fid.oid, fid.ver).into_bytes()
}

impl Plan<'_> {
    /// The directory, or a draft that makes it.
    fn lost_found(&mut self, draft: &mut Draft) -> Result<Option<Fid>, String> {
        let mut at = Fid::ROOT;
        self.inode(Fid::ROOT).map_err(|_| "the root is not there")?;
        let mut is_made = false;
        for name in PLACE {
            match (!is_made).then(|| self.child(at, name)).flatten() {
                Some(child) => {
                    let inode = self.inode(child)?;
                    if !inode.attr.is_dir() || inode.attr.nlink == 0 {
                        let name = String::from_utf8_lossy(name);
                        return Err(format!("`{name}` of the root is not a directory: rename it"));
                    }
                    at = child;
                }
                None => {
                    is_made = true;
                    let fid = self.new_fid(draft, Fid::ROOT.mdt_index())?;
                    let mut attr = new_attr(fid, MODE, 0, 0, self.now);
                    (attr.nlink, attr.blocks) = (2, 8);
                    draft.inode(&plain(attr, at));
                    let dir = if at == Fid::ROOT { at } else { self.shard_for(at, name) };
                    self.enter(draft, (dir, name), (fid, S_IFDIR))?;
                    at = fid;
                }
            }
        }
        draft.is_first = is_made;
        Ok((!is_made).then_some(at))
    }

    /// Where a name of `dir` is: one of its shards, if it has some.
    fn shard_for(&self, dir: Fid, name: &[u8]) -> Fid {
        let is_striped = |inode: &Inode| inode.attr.flags.contains(AttrFlags::STRIPED);
        let stripes = self.system.image_of(dir).and_then(|image| image.stripes.get(&dir));
        match stripes.filter(|_| self.system.inode(dir).is_some_and(is_striped)) {
            Some(stripes) => stripes.shards[stripes.shard_of(name)],
            None => dir,
        }
    }

    fn child(&self, dir: Fid, name: &[u8]) -> Option<Fid> {
        let dir = self.shard_for(dir, name);
        let entries = self.system.image_of(dir)?.entries_of(dir);
        entries.iter().find(|entry| entry.record.name == name).map(|entry| entry.record.fid)
    }

    /// Gives a file a name; the number of its links is that one.
    pub(super) fn name_lost(&mut self, draft: &mut Draft, fid: Fid) -> Result<(), String> {
        let Some(dir) = self.lost_found(draft)? else { return Ok(()) };
        let mut inode = self.without_orphan(draft, fid)?;
        self.name_in(draft, dir, &mut inode)?;
        draft.inode(&inode);
        Ok(())
    }

    fn name_in(&self, draft: &mut Draft, place: Fid, inode: &mut Inode) -> Result<(), String> {
        let name = name_of(inode.fid());
        let dir = self.shard_for(place, &name);
        self.enter(draft, (dir, &name), (inode.fid(), inode.attr.file_type()))?;
        inode.parent = dir;
        if !inode.attr.is_dir() {
            inode.attr.nlink = 1;
        }
        Ok(())
    }

    /// Gives the objects of `base` that have no file to `file`: to its inode if it has lost its
    /// layout, and else to a new inode with a name in lost+found.
    pub(super) fn adopt(&mut self, draft: &mut Draft, base: Fid, file: Fid) -> Result<(), String> {
        let found = self.objects_of(base)?;
        let is_here = !file.is_zero() && file.mdt_index() == base.mdt_index();
        let there = self.system.inode(file).filter(|_| is_here).cloned();
        let has_layout = self.image(base)?.with_layouts.contains(&file);
        let lost_it =
            there.filter(|inode| inode.attr.is_file() && inode.attr.nlink > 0 && !has_layout);
        let mut inode = match lost_it {
            Some(inode) => inode,
            None => {
                let Some(dir) = self.lost_found(draft)? else { return Ok(()) };
                if is_here && self.system.inode(file).is_none() && !self.names_of(file).is_empty() {
                    return Err(format!("a name leads to {file}"));
                }
                let is_free = is_here && self.system.inode(file).is_none() && !has_layout;
                let fid = match is_free {
                    true => file,
                    false => self.new_fid(draft, base.mdt_index())?,
                };
                let mut inode = plain(new_attr(fid, FILE_MODE, 0, 0, self.now), dir);
                self.name_in(draft, dir, &mut inode)?;
                inode
            }
        };
        let layout = rebuilt(base, &found)?;
        let store = self.image(base)?.store;
        for one in &found {
            if (one.file, one.store) != (inode.fid(), store) {
                let (ost, object) = (one.ost, one.object);
                draft.owner(Owner { ost, object, file: inode.fid(), store });
            }
        }
        inode.stripes = found.iter().map(|one| one.object.ver).collect();
        inode.flags |= INODE_HAS_LAYOUT;
        inode.attr.size_state = SizeState::Dirty as u32;
        inode.attr.layout_version += 1;
        draft.layout(inode.fid(), layout.encode());
        draft.inode(&inode);
        Ok(())
    }

    /// Objects of an id, each on one OST.
    fn objects_of(&self, base: Fid) -> Result<Vec<Found>, String> {
        let mut found = Vec::<Found>::new();
        let last = base.stripe(u32::MAX);
        for ost in self.system.osts {
            for (object, it) in ost.objects.range(base..=last) {
                if !it.is_there {
                    continue;
                }
                if found.iter().any(|other| other.object == *object) {
                    return Err(format!("object {object} is on two OSTs"));
                }
                let (ost, object, generation) = (ost.index, *object, it.layout_version);
                found.push(Found { ost, object, file: it.file, store: it.store, generation });
            }
        }
        found.sort_by_key(|one| one.object);
        Ok(found)
    }
}

/// An object without a file.
struct Found {
    ost: u32,
    object: Fid,
    file: Fid,
    store: u64,
    /// The lowest one of a layout that may use it.
    generation: u32,
}

/// A layout with these objects. A stripe without an object names the OST of another one, and has
/// none there.
fn rebuilt(base: Fid, found: &[Found]) -> Result<FileLayout, String> {
    let last = found.last().ok_or("the objects are not there")?;
    let mut osts = vec![last.ost; last.object.ver as usize + 1];
    for one in found {
        osts[one.object.ver as usize] = one.ost;
    }
    let stripes = u16::try_from(osts.len()).map_err(|_| "too many stripes")?;
    let generation = found.iter().map(|one| one.generation).max().unwrap_or(0).max(1);
    let generation = u16::try_from(generation).map_err(|_| "its generation is too high")?;
    let layout = Layout { osts, generation, ..Layout::plain(base, STRIPE_BYTES, stripes) };
    layout.check().map_err(|error| error.to_string())?;
    Ok(layout.into())
}

/// An inode without anything beside it.
pub(super) fn plain(attr: wire::Attr, parent: Fid) -> Inode {
    let mtime_set = types::Timespec::default();
    let stripes = StripeSet::default();
    Inode { attr, flags: 0, parent, mtime_set, stripes, symlink: Vec::new(), depth: 0 }
}
