//! Rules that span MDTs. An operation of several MDTs is carried out at one after the other. Until
//! it is at all of them, its record is at one of them at least. So files and directories of an
//! operation whose record is anywhere may differ; all others fit together in every image.

use std::collections::{BTreeMap, BTreeSet};

use layout::dir::{Standing, Stripes};
use types::Fid;
use wire::attr::{ATTR_SHARD, ATTR_STRIPED, S_IFDIR};
use wire::updates::{Place, Record, Update};

use super::alone;
use super::image::Image;
use crate::record::Inode;

/// File, directory, name.
type Name<'a> = (Fid, Fid, &'a [u8]);

/// A breach, and the files that it is about.
struct Breach {
    of: Vec<Fid>,
    text: String,
}

/// Every breach, in words.
pub(super) fn check(images: &[Image]) -> Vec<String> {
    let mut check = Check { images, bad: Vec::new() };
    check.entries();
    check.names();
    check.shards();
    check.homes();
    check.roots();
    let busy = busy(images);
    let explained = |breach: &Breach| breach.of.iter().any(|fid| busy.contains(fid));
    check.bad.into_iter().filter(|breach| !explained(breach)).map(|breach| breach.text).collect()
}

/// Directories and the shards that they list.
fn listed(image: &Image) -> Vec<(Fid, Fid)> {
    let striped = image.stripes.iter().filter(|(master, _)| {
        let inode = image.inodes.get(master);
        inode.is_some_and(|inode| inode.attr.flags & ATTR_STRIPED != 0 && inode.attr.nlink > 0)
    });
    let shards = striped.flat_map(|(master, stripes)| {
        let shards = stripes.places().filter(move |shard| shard != master);
        shards.map(|shard| (*master, shard))
    });
    shards.collect()
}

/// Operations that are not done everywhere.
pub(super) fn left(images: &[Image]) -> Vec<String> {
    let one = |image: &Image, record: &Record| {
        let others = record.others(image.index).collect::<Vec<_>>();
        let (number, mdt) = (record.id.number, record.id.mdt);
        format!("MDT {} keeps operation {number:#x} of MDT {mdt} with {others:?}", image.index)
    };
    images.iter().flat_map(|image| image.records.iter().map(|record| one(image, record))).collect()
}

/// Files and directories that some operation changes which is not done.
fn busy(images: &[Image]) -> BTreeSet<Fid> {
    let records = images.iter().flat_map(|image| &image.records);
    let updates = records.flat_map(|record| &record.parts).flat_map(|part| &part.updates);
    updates.flat_map(fids_of).collect()
}

fn fids_of(update: &Update) -> Vec<Fid> {
    let dir = |place: &Option<Place>| place.as_ref().map(|place| place.dir);
    match update {
        Update::Enter { at, child, .. } | Update::Leave { at, child } => vec![at.dir, *child],
        Update::Repoint { at, old, child, .. } => vec![at.dir, *old, *child],
        Update::Touch { dir, .. } | Update::Size { dir, .. } => vec![*dir],
        Update::Stripe { fid, value } => {
            let stripes = Stripes::decode(value);
            stripes.iter().flat_map(Stripes::places).chain([*fid]).collect()
        }
        Update::Rehome { fid, from, to } => vec![*fid, from.dir, to.dir],
        Update::Make(made) => {
            let parent = Inode::decode(&made.inode).map(|inode| inode.parent);
            [Some(made.fid), parent, dir(&made.at)].into_iter().flatten().collect()
        }
        Update::Named(named) => {
            [Some(named.fid), dir(&named.gets), dir(&named.loses)].into_iter().flatten().collect()
        }
        Update::Own(own) => vec![own.fid],
    }
}

struct Check<'a> {
    images: &'a [Image],
    bad: Vec<Breach>,
}

impl<'a> Check<'a> {
    fn breach(&mut self, of: impl IntoIterator<Item = Fid>, text: String) {
        self.bad.push(Breach { of: of.into_iter().collect(), text });
    }

    fn inode(&self, fid: Fid) -> Option<&'a Inode> {
        let images: &'a [Image] = self.images;
        let image = images.iter().find(|image| image.index == fid.mdt_index())?;
        image.inodes.get(&fid)
    }

    /// A name leads to one inode, which is on the MDT that its FID names.
    fn entries(&mut self) {
        for image in self.images {
            for entry in &image.entries {
                let (dir, fid) = (entry.dir, entry.record.fid);
                if fid.mdt_index() == image.index {
                    continue;
                }
                let Some(inode) = self.inode(fid) else {
                    let text = format!("an entry of {dir} names {fid} which is on no MDT");
                    self.breach([dir, fid], text);
                    continue;
                };
                let misfits = alone::misfits(entry, inode);
                misfits.into_iter().for_each(|text| self.breach([dir, fid], text));
            }
        }
    }

    /// The names of files on other MDTs are the back-links that these MDTs have. A directory has
    /// one name at most.
    fn names(&mut self) {
        let entries: BTreeSet<Name<'a>> = self.entries_of_others().collect();
        let links: BTreeSet<Name<'a>> = self.links_of_others().collect();
        for (fid, dir, name) in entries.difference(&links) {
            let name = String::from_utf8_lossy(name);
            let text = format!("{fid} does not know its name `{name}` in {dir}");
            self.breach([*fid, *dir], text);
        }
        for (fid, dir, name) in links.difference(&entries) {
            let name = String::from_utf8_lossy(name);
            let text = format!("{fid} has no name `{name}` in {dir} and says so");
            self.breach([*fid, *dir], text);
        }
        let mut dirs = BTreeMap::<Fid, Vec<Fid>>::new();
        let all = self.images.iter().flat_map(|image| &image.entries);
        for entry in all.filter(|entry| entry.record.file_type == S_IFDIR) {
            dirs.entry(entry.record.fid).or_default().push(entry.dir);
        }
        for (fid, places) in dirs.into_iter().filter(|(_, places)| places.len() > 1) {
            let text = format!("directory {fid} has {} names", places.len());
            self.breach(places.into_iter().chain([fid]), text);
        }
    }

    fn entries_of_others(&self) -> impl Iterator<Item = Name<'a>> + use<'a> {
        let images: &'a [Image] = self.images;
        images.iter().flat_map(|image| {
            let others = image.entries.iter();
            let others = others.filter(|entry| entry.record.fid.mdt_index() != image.index);
            others.map(|entry| (entry.record.fid, entry.dir, &entry.record.name[..]))
        })
    }

    fn links_of_others(&self) -> impl Iterator<Item = Name<'a>> + use<'a> {
        let images: &'a [Image] = self.images;
        images.iter().flat_map(|image| {
            let others = image.links.iter();
            let others = others.filter(|link| link.dir.mdt_index() != image.index);
            others.map(|link| (link.fid, link.dir, &link.name[..]))
        })
    }

    /// A name is in the shard that its hash leads to, or in the one that it leaves, and never in
    /// both.
    fn homes(&mut self) {
        let images: &'a [Image] = self.images;
        let masters = images.iter().flat_map(|image| {
            let is_master = |dir: &&Fid| {
                let inode = image.inodes.get(dir);
                inode.is_some_and(|inode| inode.attr.flags & ATTR_STRIPED != 0)
            };
            let masters = image.stripes.iter().filter(move |(dir, _)| is_master(dir));
            masters.map(|(dir, stripes)| (*dir, stripes))
        });
        let mut striped = BTreeMap::<Fid, (Fid, &Stripes)>::new();
        for (master, stripes) in masters {
            let places = stripes.places().chain([master]);
            striped.extend(places.map(|place| (place, (master, stripes))));
        }
        let mut seen = BTreeMap::<(Fid, &[u8]), Fid>::new();
        for entry in images.iter().flat_map(|image| &image.entries) {
            let Some((master, stripes)) = striped.get(&entry.dir).copied() else { continue };
            let (dir, name) = (entry.dir, &entry.record.name[..]);
            let is_home = stripes.standing(dir, name) != Standing::Astray;
            let of = [dir, master, entry.record.fid];
            let shown = String::from_utf8_lossy(name).into_owned();
            if !is_home && stripes.old_home(name) != Some(dir) {
                self.breach(of, format!("`{shown}` of {master} is astray in {dir}"));
            }
            if let Some(other) = seen.insert((master, name), dir) {
                let text = format!("`{shown}` of {master} is in {other} and in {dir}");
                self.breach(of.into_iter().chain([other]), text);
            }
        }
    }

    /// Every directory leads to the root.
    fn roots(&mut self) {
        if self.inode(Fid::ROOT).is_none() {
            return; // not the whole file system
        }
        let mut rooted = BTreeSet::from([Fid::ROOT]);
        let all = self.images.iter().flat_map(|image| &image.inodes);
        for (fid, _) in all.filter(|(_, inode)| inode.attr.is_dir() && inode.attr.nlink > 0) {
            let (mut way, mut at) = (Vec::new(), *fid);
            let leads = loop {
                if rooted.contains(&at) {
                    break true;
                }
                let parent = self.inode(at).filter(|inode| inode.attr.nlink > 0);
                match parent.map(|inode| inode.parent).filter(|_| !way.contains(&at)) {
                    Some(parent) => way.push(std::mem::replace(&mut at, parent)),
                    None => break false,
                }
            };
            match leads {
                true => rooted.extend(way),
                false => {
                    way.push(at);
                    self.breach(way, format!("directory {fid} does not lead to the root"));
                }
            }
        }
    }

    /// A striped directory lists its shards, and nothing else is a shard.
    fn shards(&mut self) {
        let all = self.images.iter().flat_map(|image| &image.inodes);
        let lives = |inode: &&Inode| inode.attr.flags & ATTR_SHARD != 0 && inode.attr.nlink > 0;
        let shards = all.map(|(_, inode)| inode).filter(lives);
        let said: BTreeSet<_> = shards.map(|inode| (inode.parent, inode.fid())).collect();
        let listed: BTreeSet<_> = self.images.iter().flat_map(listed).collect();
        for (master, shard) in said.difference(&listed) {
            let text = format!("{shard} is a shard of {master}, which does not list it");
            self.breach([*shard, *master], text);
        }
        for (master, shard) in listed.difference(&said) {
            let text = format!("{master} lists {shard}, which is no shard of it");
            self.breach([*shard, *master], text);
        }
    }
}
