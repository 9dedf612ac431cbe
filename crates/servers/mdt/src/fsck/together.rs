//! Rules that span MDTs. An operation of several MDTs is carried out at one after the other. Until
//! it is at all of them, its record is at one of them at least. So files and directories of an
//! operation whose record is somewhere and not everywhere may differ. All others fit together in
//! every image.

use std::collections::{BTreeMap, BTreeSet};

use layout::dir::Stripes;
use types::Fid;
use wire::attr::{AttrFlags, S_IFDIR};
use wire::updates::{OpId, Place, Record, Update};

use super::alone;
use super::finding::{Finding, Mend, Rule};
use super::image::{Entry, Image};
use crate::record::Inode;

/// File, directory, name.
type Name<'a> = (Fid, Fid, &'a [u8]);
/// Names, with the cookie of the entry or the number of the back-link.
type Names<'a> = BTreeMap<Name<'a>, u64>;

/// Every breach.
pub(super) fn check(images: &[Image]) -> Vec<Finding> {
    let mut check = Check { images, bad: Vec::new() };
    check.entries();
    check.names();
    check.shards();
    check.places();
    check.roots();
    check.partners();
    let busy = busy(images);
    let explained = |breach: &Finding| breach.of.iter().any(|fid| busy.contains(fid));
    check.bad.retain(|breach| !explained(breach));
    check.bad
}

/// Directories and the shards that they list.
fn listed(image: &Image) -> Vec<(Fid, Fid)> {
    let striped = image.stripes.iter().filter(|(master, _)| {
        let inode = image.inodes.get(master);
        inode.is_some_and(|inode| {
            inode.attr.flags.contains(AttrFlags::STRIPED) && inode.attr.nlink > 0
        })
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

/// Files and directories that some operation changes which is not executed everywhere. A part is
/// stored together with the record, which goes when all parts are durable.
pub(super) fn busy(images: &[Image]) -> BTreeSet<Fid> {
    let mut has = BTreeSet::new();
    for image in images {
        has.extend(image.records.iter().map(|record| (image.index, record.id)));
    }
    let is_executed = |mdt: u32, id: OpId| {
        let image = images.iter().find(|image| image.index == mdt);
        let mark = image.and_then(|image| image.marks.get(&id.mdt)).copied().unwrap_or(0);
        has.contains(&(mdt, id)) || id.number < mark
    };
    let is_under_way =
        |record: &&Record| !record.parts.iter().all(|part| is_executed(part.mdt, record.id));
    let records = images.iter().flat_map(|image| &image.records).filter(is_under_way);
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
    bad: Vec<Finding>,
}

impl<'a> Check<'a> {
    fn image_of(&self, fid: Fid) -> Option<&'a Image> {
        let images: &'a [Image] = self.images;
        images.iter().find(|image| image.index == fid.mdt_index())
    }

    fn inode(&self, fid: Fid) -> Option<&'a Inode> {
        self.image_of(fid)?.inodes.get(&fid)
    }

    /// A name leads to one inode, which is on the MDT that its FID names.
    fn entries(&mut self) {
        for image in self.images {
            for entry in &image.entries {
                let (dir, fid) = (entry.dir, entry.record.fid);
                if fid.mdt_index() == image.index {
                    continue;
                }
                match self.inode(fid) {
                    Some(inode) => self.bad.extend(alone::misfits(entry, inode)),
                    None => {
                        let text = format!("an entry of {dir} names {fid} which is on no MDT");
                        self.bad.push(match self.image_of(fid) {
                            Some(home) => alone::dangling(entry, home, text),
                            None => Finding::new(Rule::DanglingName, fid, text)
                                .named(dir, &entry.record.name),
                        });
                    }
                }
            }
        }
    }

    /// The names of files on other MDTs are the back-links that these MDTs have. A directory has
    /// one name at most.
    fn names(&mut self) {
        let (entries, links) = (self.entries_of_others(), self.links_of_others());
        for ((fid, dir, name), cookie) in &entries {
            if !links.contains_key(&(*fid, *dir, *name)) {
                self.bad.push(alone::unknown_name(*fid, *dir, name, *cookie));
            }
        }
        for ((fid, dir, name), number) in &links {
            if !entries.contains_key(&(*fid, *dir, *name)) {
                self.bad.push(alone::lost_name(*fid, *dir, name, *number));
            }
        }
        let mut dirs = BTreeMap::<Fid, Vec<Fid>>::new();
        let all = self.images.iter().flat_map(|image| &image.entries);
        for entry in all.filter(|entry| entry.record.file_type == S_IFDIR) {
            dirs.entry(entry.record.fid).or_default().push(entry.dir);
        }
        for (fid, places) in dirs.into_iter().filter(|(_, places)| places.len() > 1) {
            let text = format!("directory {fid} has {} names", places.len());
            let finding = Finding::new(Rule::SeveralNames, fid, text).with(places);
            self.bad.push(finding.mended_by(Mend::KeepOneName(fid)));
        }
    }

    fn entries_of_others(&self) -> Names<'a> {
        let images: &'a [Image] = self.images;
        let all = images.iter().flat_map(|image| {
            let others = image.entries.iter();
            let others = others.filter(|entry| entry.record.fid.mdt_index() != image.index);
            others
                .map(|entry| ((entry.record.fid, entry.dir, &entry.record.name[..]), entry.cookie))
        });
        all.collect()
    }

    fn links_of_others(&self) -> Names<'a> {
        let images: &'a [Image] = self.images;
        let all = images.iter().flat_map(|image| {
            let others = image.links.iter();
            let others = others.filter(|link| link.dir.mdt_index() != image.index);
            others.map(|link| ((link.fid, link.dir, &link.name[..]), link.cookie))
        });
        all.collect()
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
            let (mut leads, mut is_circle) = (false, false);
            loop {
                if rooted.contains(&at) {
                    leads = true;
                    break;
                }
                if way.contains(&at) {
                    is_circle = true;
                    break;
                }
                let parent = self.inode(at).filter(|inode| inode.attr.nlink > 0);
                match parent.map(|inode| inode.parent) {
                    Some(parent) => way.push(std::mem::replace(&mut at, parent)),
                    None => break,
                }
            }
            if leads {
                rooted.extend(way);
                continue;
            }
            // of a circle, the directory with the lowest FID loses its name
            let from = way.iter().position(|other| *other == at).unwrap_or(way.len());
            let cut = way[from..].iter().min() == Some(fid) && is_circle;
            way.push(at);
            let text = format!("directory {fid} does not lead to the root");
            let mend = cut.then_some(Mend::Cut(*fid));
            self.bad.push(Finding { mend, ..Finding::new(Rule::Unrooted, *fid, text).with(way) });
        }
    }

    /// A striped directory lists its shards, and nothing else is a shard.
    fn shards(&mut self) {
        let all = self.images.iter().flat_map(|image| &image.inodes);
        let lives =
            |inode: &&Inode| inode.attr.flags.contains(AttrFlags::SHARD) && inode.attr.nlink > 0;
        let shards = all.map(|(_, inode)| inode).filter(lives);
        let said: BTreeSet<_> = shards.map(|inode| (inode.parent, inode.fid())).collect();
        let listed: BTreeSet<_> = self.images.iter().flat_map(listed).collect();
        for (master, shard) in said.difference(&listed) {
            let text = format!("{shard} is a shard of {master}, which does not list it");
            let finding = Finding::new(Rule::UnlistedShard, *shard, text).with([*master]);
            self.bad.push(finding.mended_by(Mend::Unshard(*shard)));
        }
        for (master, shard) in listed.difference(&said) {
            let text = format!("{master} lists {shard}, which is not a shard of it");
            let finding = Finding::new(Rule::MissingShard, *shard, text).with([*master]);
            let mend = self.missing_shard(*master, *shard);
            self.bad.push(Finding { mend, ..finding });
        }
    }

    fn missing_shard(&self, master: Fid, shard: Fid) -> Option<Mend> {
        let home = self.image_of(shard).filter(|home| !home.is_forgotten)?;
        let Some(inode) = home.inodes.get(&shard) else { return Some(Mend::Remake(shard)) };
        let has_name = !home.links_of(shard).is_empty();
        let fits =
            inode.attr.is_dir() && !inode.attr.flags.contains(AttrFlags::STRIPED) && !has_name;
        fits.then_some(Mend::AsShard { shard, master })
    }

    /// A name in a striped directory is in the shard that its hash leads to, or in the one that it
    /// leaves, and never in both.
    fn places(&mut self) {
        let images: &'a [Image] = self.images;
        let mut seen = BTreeMap::<(Fid, &[u8]), &Entry>::new();
        for (image, entry) in
            images.iter().flat_map(|image| image.entries.iter().map(move |entry| (image, entry)))
        {
            let (dir, name) = (entry.dir, &entry.record.name[..]);
            let Some(inode) = image.inodes.get(&dir) else { continue };
            let master = match inode.attr.flags.contains(AttrFlags::SHARD) {
                true => inode.parent,
                false => dir,
            };
            let Some(stripes) = self.striping(master) else { continue };
            let shown = String::from_utf8_lossy(name);
            let to = stripes.home(name);
            if let Some(other) = seen.insert((master, name), entry) {
                let text = format!("`{shown}` of {master} is in {} and in {dir}", other.dir);
                let finding = Finding::new(Rule::WrongShard, entry.record.fid, text);
                let finding = finding.named(dir, name).with([other.dir, master]);
                // one that is in a wrong shard besides is a finding of its own
                let leaves =
                    |entry: &&Entry| entry.dir != to && stripes.old_home(name) == Some(entry.dir);
                let stray = [other, entry].into_iter().find(leaves);
                self.bad.push(match stray {
                    Some(Entry { dir, cookie, .. }) => {
                        finding.mended_by(Mend::MoveName { dir: *dir, cookie: *cookie, to })
                    }
                    None => finding,
                });
            }
            if to == dir || stripes.old_home(name) == Some(dir) {
                continue;
            }
            let text = format!("`{shown}` of {master} is in {dir}, and its hash leads to {to}");
            let finding = Finding::new(Rule::WrongShard, entry.record.fid, text);
            let mend = Mend::MoveName { dir, cookie: entry.cookie, to };
            self.bad.push(finding.named(dir, name).with([to, master]).mended_by(mend));
        }
    }

    /// The striping of `master`, if it is striped.
    fn striping(&self, master: Fid) -> Option<&'a Stripes> {
        let images: &'a [Image] = self.images;
        let image = images.iter().find(|image| image.index == master.mdt_index())?;
        let inode = image.inodes.get(&master)?;
        let is_striped = inode.attr.flags.contains(AttrFlags::STRIPED);
        image.stripes.get(&master).filter(|_| is_striped)
    }

    /// The MDTs of an operation are there.
    fn partners(&mut self) {
        if self.inode(Fid::ROOT).is_none() {
            return;
        }
        for image in self.images {
            for record in &image.records {
                let mut others = record.others(image.index);
                let is_there = |mdt: u32| self.images.iter().any(|image| image.index == mdt);
                if let Some(absent) = others.find(|mdt| !is_there(*mdt)) {
                    let (number, mdt) = (record.id.number, record.id.mdt);
                    let text = format!(
                        "operation {number:#x} of MDT {mdt} has a part at MDT {absent}, which is not there"
                    );
                    let finding = Finding::new(Rule::AbsentPartner, Fid::ZERO, text);
                    self.bad.push(Finding { of: Vec::new(), ..finding });
                }
            }
        }
    }
}
