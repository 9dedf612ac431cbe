//! The stores of a file system that is stopped.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use ctl::progress::{Progress, Unit};
use mdt::fsck::{Changes, Image, Made, Object, OstImage, Owner};
use osd::{MetaStore, ObjStore};
use osd_disk::{DiskMeta, DiskObjects, MetaOptions, ObjOptions};
use types::{Fid, FsName, TargetId, TargetKind};

use super::{add_forgotten, forgotten_in};
use crate::objects::behind;
use crate::targets::TargetDir;

/// Objects that are listed at once.
const OBJECTS_AT_ONCE: usize = 4_096;
/// What the line on a terminal counts.
const TARGETS: Unit = Unit::Step("target");
const OBJECTS: Unit = Unit::Count("objects");

/// Stores that are open here alone. Their targets' locks are held by the caller.
pub(super) struct Stores {
    pub(super) fsname: FsName,
    mdts: BTreeMap<u32, Rc<DiskMeta>>,
    /// With those of data targets.
    osts: BTreeMap<u32, (Rc<DiskMeta>, Rc<DiskObjects>)>,
    forgotten: BTreeSet<u32>,
}

impl Stores {
    pub(super) fn open(fsname: FsName, found: &[TargetDir], progress: &Progress) -> Result<Stores> {
        let forgotten = forgotten_in(fsname, found);
        let (mdts, osts) = (BTreeMap::new(), BTreeMap::new());
        let mut stores = Stores { fsname, mdts, osts, forgotten };
        for (number, target) in (1..).zip(found) {
            progress.show(number, found.len() as u64, &target.name());
            let TargetId { kind, index } = target.superblock.target;
            let meta = DiskMeta::open(&target.dir, &MetaOptions::default())?;
            match kind {
                TargetKind::Mdt => drop(stores.mdts.insert(index, meta)),
                _ => {
                    let objects = DiskObjects::open(&target.dir, &ObjOptions::inline())?;
                    stores.osts.insert(index, (meta, objects));
                }
            }
        }
        Ok(stores)
    }

    /// All that they hold.
    pub(super) async fn read(&self, progress: &Progress) -> Result<(Vec<Image>, Vec<OstImage>)> {
        progress.begin("read the targets", TARGETS);
        let (mut images, mut osts, mut done) = (Vec::new(), Vec::new(), 0);
        let all = (self.mdts.len() + self.osts.len()) as u64;
        for (index, meta) in &self.mdts {
            let name = TargetId::mdt(*index).name(self.fsname);
            done += 1;
            progress.show(done, all, &name);
            meta.ready().await;
            let view = meta.running().context("records")?;
            images.push(Image::of(*index, &*view).with_context(|| name)?);
        }
        for (index, (meta, objects)) in &self.osts {
            let name = TargetId::ost(*index).name(self.fsname);
            done += 1;
            progress.show(done, all, &name);
            osts.push(ost_image(*index, meta, objects, progress).await.with_context(|| name)?);
        }
        add_forgotten(&mut images, &self.forgotten);
        Ok((images, osts))
    }

    /// Makes changes durable. Each set is applied whole.
    pub(super) async fn apply(&self, changes: &Changes) -> Result<()> {
        for (mdt, set) in &changes.sets {
            let meta = self.mdts.get(mdt).context("a mend is of an MDT that is here")?;
            osd::apply(&**meta, set)
                .await
                .with_context(|| TargetId::mdt(*mdt).name(self.fsname))?;
        }
        let mut owners = changes.owners.clone();
        for Made { owner, bytes } in &changes.made {
            let (_, objects) = self.osts.get(&owner.ost).context("a mend is of an OST here")?;
            objects.truncate(owner.object, *bytes, true).await.context("objects")?;
            objects.sync().await.context("objects")?;
            owners.push(*owner);
        }
        for Owner { ost, object, file, store } in &owners {
            let (meta, _) = self.osts.get(ost).context("a mend is of an OST that is here")?;
            meta.ready().await;
            let set = {
                let view = meta.running().context("records")?;
                ost::owned_by(&*view, *object, (*file, *store)).context("records")?
            };
            osd::apply(&**meta, &set).await.context("records")?;
        }
        let osts = self.osts.values().map(|(meta, _)| meta);
        for meta in self.mdts.values().chain(osts) {
            meta.commit().await.context("records")?;
        }
        Ok(())
    }
}

/// Records of objects and objects. One that is destroyed counts as none, although its record stays.
async fn ost_image(
    index: u32,
    meta: &Rc<DiskMeta>,
    objects: &Rc<DiskObjects>,
    progress: &Progress,
) -> Result<OstImage> {
    let mut image = OstImage { index, objects: BTreeMap::new() };
    let mut gone = std::collections::BTreeSet::new();
    meta.ready().await;
    let recorded = ost::recorded(&*meta.running().context("records")?).context("records")?;
    for ost::Recorded { object, file, store, layout_version, is_gone } in recorded {
        if is_gone {
            gone.insert(object);
        } else {
            let found = Object { file, store, layout_version, ..Object::default() };
            image.objects.insert(object, found);
        }
    }
    progress.begin(&format!("list {}", TargetId::ost(index)), OBJECTS);
    let (mut from, mut count) = (Some(Fid::ZERO), 0);
    while let Some(at) = from.take() {
        let listed = objects.list(at, OBJECTS_AT_ONCE).await.context("objects")?;
        count += listed.len() as u64;
        progress.show(count, 0, "");
        if listed.len() == OBJECTS_AT_ONCE {
            from = listed.last().copied().and_then(behind);
            ensure!(from > Some(at), "a list goes on from where it was");
        }
        for object in listed.into_iter().filter(|object| !gone.contains(object)) {
            let attr = objects.attr(object).await.context("objects")?;
            let found = image.objects.entry(object).or_default();
            (found.is_there, found.bytes) = (attr.is_some(), attr.map(|attr| attr.size));
        }
    }
    Ok(image)
}
