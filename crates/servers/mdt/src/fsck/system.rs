//! All that a check knows: the records of MDTs, and the objects of OSTs.

use std::collections::BTreeSet;

use layout::dir::Stripes;
use types::Fid;

use super::image::{Entry, Image};
use super::objects::OstImage;
use crate::limits::DEPTH_MAX;
use crate::record::Inode;

/// A file system at one moment, or a part of it.
#[derive(Clone, Copy)]
pub struct System<'a> {
    pub(super) images: &'a [Image],
    /// Without any, nothing is said of objects.
    pub(super) osts: &'a [OstImage],
}

impl<'a> System<'a> {
    #[must_use]
    pub fn new(images: &'a [Image], osts: &'a [OstImage]) -> System<'a> {
        System { images, osts }
    }

    /// Records of MDTs.
    #[must_use]
    pub fn images(&self) -> &'a [Image] {
        self.images
    }

    /// Objects of OSTs and data targets.
    #[must_use]
    pub fn osts(&self) -> &'a [OstImage] {
        self.osts
    }

    pub(super) fn image(&self, mdt: u32) -> Option<&'a Image> {
        self.images.iter().find(|image| image.index == mdt)
    }

    pub(super) fn image_of(&self, fid: Fid) -> Option<&'a Image> {
        self.image(fid.mdt_index())
    }

    pub(super) fn inode(&self, fid: Fid) -> Option<&'a Inode> {
        self.image_of(fid)?.inodes.get(&fid)
    }

    pub(super) fn entry(&self, dir: Fid, cookie: u64) -> Option<&'a Entry> {
        self.image_of(dir)?.entries_of(dir).iter().find(|entry| entry.cookie == cookie)
    }

    /// MDTs that records lead to and that are not here.
    #[must_use]
    pub fn absent(&self) -> BTreeSet<u32> {
        let entries = self.images.iter().flat_map(|image| &image.entries);
        let files = entries.map(|entry| entry.record.fid.mdt_index());
        let links = self.images.iter().flat_map(|image| &image.links);
        let dirs = links.map(|link| link.dir.mdt_index());
        let striped = self.images.iter().flat_map(|image| image.stripes.values());
        let shards = striped.flat_map(Stripes::places).map(|shard| shard.mdt_index());
        let absent = files.chain(dirs).chain(shards).filter(|mdt| self.image(*mdt).is_none());
        absent.collect()
    }

    /// OSTs and data targets that layouts name and that are not here.
    #[must_use]
    pub fn absent_osts(&self) -> BTreeSet<u32> {
        let layouts = self.images.iter().flat_map(|image| image.layouts.values());
        let is_here = |ost: u32| self.osts.iter().any(|it| it.index == ost);
        layouts.flat_map(|layout| layout.osts()).filter(|ost| !is_here(*ost)).collect()
    }

    /// Why a repair would do more harm than good, in words. It would take for lost what is only not
    /// known here.
    #[must_use]
    pub fn stands_against_repair(&self) -> Option<String> {
        let lacks_osts = self.absent_osts();
        if !lacks_osts.is_empty() {
            let list: Vec<String> = lacks_osts.iter().map(|ost| format!("{ost:#06x}")).collect();
            let list = list.join(", ");
            return Some(format!("files have objects on targets that are not named here: {list}"));
        }
        let mut images = self.images.iter().filter(|image| !image.is_forgotten);
        images.find_map(|image| {
            let mdt = image.index;
            let moves = image.stripes.iter().find(|(_, stripes)| self.has_names_to_move(stripes));
            match (image.broken.first(), &image.hash_key, moves) {
                (Some(broken), ..) => Some(format!("a record of MDT {mdt} cannot be read: {broken}")),
                (_, None, _) => Some(format!("MDT {mdt} has lost the key of its names")),
                (.., Some((dir, _))) => Some(format!(
                    "names of directory {dir} move to other shards: start the file system until they have moved"
                )),
                _ => None,
            }
        })
    }

    /// Whether a name is still to move to another shard, and can. A name that leads nowhere cannot,
    /// nor one that its new shard has already: only a repair ends that move.
    fn has_names_to_move(&self, stripes: &Stripes) -> bool {
        let can_move = |old: Fid, entry: &Entry| {
            let (name, fid) = (&entry.record.name, entry.record.fid);
            let home = stripes.home(name);
            let is_there = |shard: Fid| {
                let entries = self.image_of(shard).map_or(&[][..], |image| image.entries_of(shard));
                entries.iter().any(|other| other.record.name == *name)
            };
            let is_file = self.image_of(fid).is_some_and(|image| image.inodes.contains_key(&fid));
            home != old && is_file && !is_there(home)
        };
        stripes.leaving.iter().flat_map(|leaving| &leaving.shards).any(|old| {
            let entries = self.image_of(*old).map_or(&[][..], |image| image.entries_of(*old));
            entries.iter().any(|entry| can_move(*old, entry))
        })
    }

    /// Clients that the next start waits for.
    #[must_use]
    pub fn clients(&self) -> usize {
        self.images.iter().map(|image| image.clients).max().unwrap_or(0)
    }

    /// One path of a file by the names that it knows, without a leading slash; none where it does
    /// not lead to the root.
    #[must_use]
    pub fn path(&self, fid: Fid) -> Option<Vec<u8>> {
        let (mut at, mut parts) = (fid, Vec::new());
        for _ in 0..DEPTH_MAX {
            if at == Fid::ROOT {
                parts.reverse();
                return Some(parts.join(&b'/'));
            }
            match self.image_of(at)?.links_of(at).first() {
                Some(link) => {
                    parts.push(&link.name[..]);
                    at = link.dir;
                }
                // a shard has no name, and its parent is its directory
                None => at = self.inode(at)?.parent,
            }
        }
        None
    }

    /// Files and directories that some operation changes which is not done.
    pub(super) fn busy(&self) -> BTreeSet<Fid> {
        super::together::busy(self.images)
    }
}
