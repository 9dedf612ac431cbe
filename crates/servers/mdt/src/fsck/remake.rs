//! Inodes that are gone, made again from other records about them. Mode, owner and times are lost:
//! root owns them, and no other user may enter or read them.

use layout::StripeSet;
use types::Fid;
use wire::SizeState;
use wire::attr::{AttrFlags, S_IFDIR, S_IFREG};

use super::image::Image;
use super::lost_found::{FILE_MODE, plain};
use super::mend::{Draft, Plan};
use crate::record::{INODE_HAS_LAYOUT, Inode};
use crate::tx::new_attr;

/// Mode of a directory whose inode is lost.
const DIR_MODE: u32 = S_IFDIR | 0o700;
/// Mode of the root, as it was made.
const ROOT_MODE: u32 = S_IFDIR | 0o755;

impl Plan<'_> {
    pub(super) fn remake(&mut self, draft: &mut Draft, fid: Fid) -> Result<(), String> {
        let image = self.image(fid)?;
        if image.inodes.contains_key(&fid) {
            return Err(format!("{fid} is there"));
        }
        if let Some(master) = self.master_of(fid) {
            let inode = self.shard_of(master, fid);
            self.counted(draft, with_records(inode, image));
            return Ok(());
        }
        let names = self.names_of(fid);
        let is_file = image.layouts.contains_key(&fid)
            && names.iter().all(|entry| entry.record.file_type == S_IFREG);
        let links = image.links_of(fid);
        let parent = names.first().map(|entry| entry.dir);
        let parent = parent.or(links.first().map(|link| link.dir)).unwrap_or(Fid::ROOT);
        let mode = match is_file {
            true => FILE_MODE,
            false if fid == Fid::ROOT => ROOT_MODE,
            false => DIR_MODE,
        };
        let inode = plain(new_attr(fid, mode, 0, 0, self.now), parent);
        let mut inode = with_records(inode, image);
        if is_file {
            inode.attr.nlink = u32::try_from(names.len().max(1)).unwrap_or(u32::MAX);
            inode.attr.size_state = SizeState::Dirty as u32;
            inode.attr.layout_version = 1;
            inode.stripes = self.stripes_of(fid, image);
            draft.inode(&inode);
        } else {
            inode.attr.blocks = 8;
            if image.stripes.contains_key(&fid) {
                inode.attr.flags |= AttrFlags::STRIPED;
            }
            self.counted(draft, inode);
        }
        Ok(())
    }

    /// The striped directory that lists a shard.
    fn master_of(&self, shard: Fid) -> Option<&Inode> {
        let all = self.system.images.iter().flat_map(|image| &image.stripes);
        let listing = all.filter(|(_, stripes)| stripes.places().any(|place| place == shard));
        let mut inodes = listing.filter_map(|(master, _)| self.system.inode(*master));
        let is_master =
            |inode: &&Inode| !inode.attr.flags.contains(AttrFlags::SHARD) && inode.attr.nlink > 0;
        inodes.find(is_master)
    }

    fn shard_of(&self, master: &Inode, fid: Fid) -> Inode {
        let mut attr = master.attr.with_fid(fid);
        attr.flags &= !(AttrFlags::STRIPED | AttrFlags::HAS_XATTR | AttrFlags::HAS_CAPABILITY);
        attr.flags |= AttrFlags::SHARD;
        plain(attr, master.fid())
    }

    /// Stripes that have an object.
    fn stripes_of(&self, fid: Fid, image: &Image) -> StripeSet {
        let Some(layout) = image.layouts.get(&fid) else { return StripeSet::default() };
        let is_there = |object: Fid, index: u32| {
            let ost = self.system.osts.iter().find(|ost| ost.index == index);
            let found = ost.and_then(|ost| ost.objects.get(&object));
            found.is_some_and(|found| found.is_there)
        };
        let there = layout.objects().filter(|(_, object, ost)| is_there(*object, ost.0));
        there.map(|(stripe, ..)| stripe).collect()
    }
}

/// The inode says what is stored beside it.
fn with_records(mut inode: Inode, image: &Image) -> Inode {
    let fid = inode.fid();
    inode.flags |= image.xattr_flags(fid);
    if inode.flags != 0 {
        inode.attr.flags |= AttrFlags::HAS_XATTR;
    }
    if image.with_layouts.contains(&fid) {
        inode.flags |= INODE_HAS_LAYOUT;
    }
    inode
}
