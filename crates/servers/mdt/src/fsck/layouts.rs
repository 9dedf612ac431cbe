//! Rules for layouts and objects.
//!
//! An object without a file is a breach unless it goes anyway or may still get its file:
//! - It is in the destroy log, or its id is being swept.
//! - The MDT's last run gave its id out, and clients of that run may bring its file back.

use std::collections::{BTreeMap, BTreeSet};

use layout::STRIPE_COUNT_MAX;
use types::{Extent, Fid, TargetId};

use super::finding::{Finding, Mend, Rule};
use super::image::Image;
use super::objects::{Object, OstImage};
use super::system::System;
use crate::record::Inode;

/// Lost ranges that a finding names.
const RANGES_MAX: usize = 4;
/// Pieces of a file that are looked at for them.
const PIECES_MAX: usize = 1 << 16;

/// Every breach, of the OSTs that are known.
pub(super) fn check(system: &System<'_>) -> Vec<Finding> {
    let (users, logged) = (users(system), logged(system));
    let mut check = Check { system, users, logged, orphans: BTreeMap::new(), bad: Vec::new() };
    check.shared();
    check.lost();
    for ost in system.osts {
        check.objects(ost);
    }
    for (base, orphans) in std::mem::take(&mut check.orphans) {
        check.of_base(base, &orphans);
    }
    let busy = system.busy();
    check.bad.retain(|finding| !finding.of.iter().any(|fid| busy.contains(fid)));
    check.bad
}

/// Files by the bases of their objects.
type Users = BTreeMap<Fid, Vec<Fid>>;

fn users(system: &System<'_>) -> Users {
    let mut users = Users::new();
    for image in system.images {
        for (file, layout) in &image.layouts {
            let bases = layout.stripings().map(|one| one.base).chain(layout.mdt_object());
            for base in bases.collect::<BTreeSet<_>>() {
                users.entry(base).or_default().push(*file);
            }
        }
    }
    users
}

/// Objects in the destroy logs, with their OSTs.
fn logged(system: &System<'_>) -> BTreeSet<(u32, Fid)> {
    let records = system.images.iter().flat_map(|image| image.destroys.values());
    let objects = records.flat_map(|record| {
        (0..).zip(&record.osts).map(|(stripe, ost)| (*ost, record.base.stripe(stripe)))
    });
    objects.collect()
}

/// An object without a file.
#[derive(Clone, Copy)]
struct Orphan {
    ost: u32,
    object: Fid,
    found: Object,
}

struct Check<'a> {
    system: &'a System<'a>,
    users: Users,
    logged: BTreeSet<(u32, Fid)>,
    /// By their bases.
    orphans: BTreeMap<Fid, Vec<Orphan>>,
    bad: Vec<Finding>,
}

impl Check<'_> {
    fn shared(&mut self) {
        for (base, files) in self.users.iter().filter(|(_, files)| files.len() > 1) {
            let names: Vec<String> = files.iter().map(Fid::to_string).collect();
            let text = format!("object {base} belongs to several files: {}", names.join(", "));
            let finding = Finding::new(Rule::SharedObject, *base, text);
            self.bad.push(finding.with(files.iter().copied()));
        }
    }

    /// Objects that closed files have are there.
    fn lost(&mut self) {
        for image in self.system.images {
            for (file, layout) in &image.layouts {
                let Some(inode) = image.inodes.get(file) else { continue };
                for (stripe, object, ost) in layout.objects() {
                    let is_expected = inode.stripes.contains(stripe);
                    let ost = self.system.osts.iter().find(|it| it.index == ost.0);
                    let Some(ost) = ost.filter(|_| is_expected) else { continue };
                    if ost.objects.get(&object).is_none_or(|it| !it.is_there) {
                        let lost = ranges(layout, stripe, inode);
                        let text = format!("{file} has lost object {object}: {lost}");
                        let mend = Mend::GiveUp { file: *file, stripe };
                        let finding = Finding::new(Rule::LostObject, *file, text);
                        self.bad.push(finding.on(ost.index).mended_by(mend));
                    }
                }
            }
        }
    }

    fn objects(&mut self, ost: &OstImage) {
        for (object, found) in &ost.objects {
            let base = object.stripe(0);
            let named = |file: &&Fid| {
                let image = self.system.image_of(**file);
                let layout = image.and_then(|image| image.layouts.get(*file));
                layout.is_some_and(|layout| layout.has_object(*object, ost.index))
            };
            let users = self.users.get(&base);
            if let Some(file) = users.and_then(|files| files.iter().find(named)).copied() {
                self.owner(ost.index, *object, found, file);
                continue;
            }
            let orphan = Orphan { ost: ost.index, object: *object, found: *found };
            if found.is_there && !self.goes(&orphan) {
                self.orphans.entry(base).or_default().push(orphan);
            }
        }
    }

    /// The OST shows an object only to the file of its record.
    fn owner(&mut self, ost: u32, object: Fid, found: &Object, file: Fid) {
        let Some(image) = self.system.image_of(file) else { return };
        let lives = image.inodes.get(&file).is_some_and(|inode| inode.attr.nlink > 0);
        let is_set = found.store != 0;
        if !lives || !is_set || (found.file, found.store) == (file, image.store) {
            return;
        }
        let text = format!("{file} names object {object}, which is of {}", found.file);
        let finding = Finding::new(Rule::WrongOwner, file, text).on(ost).with([found.file]);
        self.bad.push(finding.mended_by(Mend::SetOwner { ost, object, file }));
    }

    /// Whether it will be gone, or may still get its file.
    fn goes(&self, orphan: &Orphan) -> bool {
        let base = orphan.object.stripe(0);
        let image = self.system.image_of(base).filter(|image| !image.is_forgotten);
        let Some(image) = image else { return true };
        let (burnt, recent) = match TargetId::ost(orphan.ost).is_dom() {
            true => (&image.burnt_files, &image.recent_files),
            false => (&image.burnt_objects, &image.recent_objects),
        };
        self.logged.contains(&(orphan.ost, orphan.object))
            || burnt.holds(base)
            || (image.clients > 0 && recent.holds(base))
    }

    /// Objects of one id without a file. With bytes they get one together.
    fn of_base(&mut self, base: Fid, orphans: &[Orphan]) {
        let Some(image) = self.system.image_of(base) else { return };
        let mut is_mended = false;
        for orphan in orphans {
            let Orphan { ost, object, found } = *orphan;
            let mut text = format!("object {object} of {} has no file", found.file);
            if let Some(bytes) = found.bytes {
                text = format!("{text}: {bytes} bytes");
            }
            let finding = Finding::new(Rule::OrphanObject, base, text).on(ost).with([found.file]);
            let is_ours = orphans.iter().all(|it| is_of(&it.found, image));
            let is_mendable = is_ours
                && !self.users.contains_key(&base)
                && is_given(image, ost, base)
                && object.ver < u32::from(STRIPE_COUNT_MAX);
            let mend = self.orphan_mend(base, orphan, orphans);
            let is_first = !is_mended || matches!(mend, Some(Mend::Destroy { .. }));
            let mend = mend.filter(|_| is_mendable && is_first);
            is_mended |= mend.is_some();
            self.bad.push(Finding { mend, ..finding });
        }
    }

    fn orphan_mend(&self, base: Fid, orphan: &Orphan, all: &[Orphan]) -> Option<Mend> {
        let (ost, file) = (orphan.ost, orphan.found.file);
        if all.iter().all(|it| it.found.bytes == Some(0)) {
            // the log names a store, and an object of an unknown one would stay
            let stripes = orphan.object.ver + 1;
            return (orphan.found.store != 0).then_some(Mend::Destroy { base, ost, stripes });
        }
        // bytes at an MDT have no layout that could name them alone
        (!TargetId::ost(ost).is_dom()).then_some(Mend::Adopt { base, file })
    }
}

fn is_of(found: &Object, image: &Image) -> bool {
    found.store == 0 || found.store == image.store
}

/// Whether the MDT has given this id: one that it has not given may get a file.
fn is_given(image: &Image, ost: u32, base: Fid) -> bool {
    let end = match TargetId::ost(ost).is_dom() {
        true => image.file_ids,
        false => image.object_ids,
    };
    end.is_some_and(|end| (base.seq, base.oid) < end)
}

/// The bytes of a stripe, in words.
fn ranges(layout: &layout::FileLayout, stripe: u32, inode: &Inode) -> String {
    let Some(extent) = Extent::new(0, inode.attr.size) else { return "no bytes".to_owned() };
    let mut found = Vec::new();
    for piece in layout.pieces(extent).take(PIECES_MAX).filter(|piece| piece.stripe == stripe) {
        if found.len() == RANGES_MAX {
            found.push("and so on".to_owned());
            break;
        }
        found.push(format!("{} to {}", piece.file_offset, piece.file_offset + piece.len - 1));
    }
    match found.is_empty() {
        true => "no bytes".to_owned(),
        false => format!("bytes {}", found.join(", ")),
    }
}
