//! Decides whether the size of a DIRTY file may be found out, and computes it.
//!
//! Invariants
//! - A size is recorded only if nothing could change an object from before the question until the
//!   record is written. In that time there is no handle for writing, no cut, and no client that the
//!   OSTs do not refuse yet. The write epoch and the layout stay the same.
//! - A file keeps its state if an object that it must have is not there.
//!
//! Pure: the state of the file and the OSTs' answers come in, and the verdict goes out.

use layout::{FileLayout, StripeSet};
use types::Timespec;
use wire::SizeState;
use wire::body::OstAttr;

use crate::limits::FILE_BYTES_MAX;
use crate::record::Inode;

/// What memory says of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Around {
    /// Handles for writing.
    pub(crate) writers: u32,
    /// Write epoch.
    pub(crate) epoch: u64,
    /// Its objects may change without a handle, or another operation has reserved it.
    pub(crate) is_held: bool,
}

/// A file as it was when its objects were asked.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Asked {
    pub(crate) epoch: u64,
    pub(crate) layout_version: u32,
    /// None: no byte of the file has a place.
    pub(crate) layout: Option<FileLayout>,
}

/// What becomes of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Its size is known, or it is gone.
    Settled,
    /// A client has it open for writing. The last close brings it back if that is necessary.
    Written,
    /// Not now.
    Later,
    /// An object that it must have is not there, so only the objects that are left are known.
    Lost,
    /// This is its size.
    Known(Extents),
}

/// What the objects of a file add up to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Extents {
    size: u64,
    blocks: u64,
    /// Last write, if there is an object.
    written: Option<Timespec>,
    /// Stripes that have an object.
    stripes: StripeSet,
}

impl Extents {
    /// In stripe order.
    fn of(layout: &FileLayout, objects: &[OstAttr]) -> Extents {
        let there = || objects.iter().filter(|object| object.exists != 0);
        Extents {
            size: layout.file_size(&sizes(objects)),
            blocks: there().fold(0, |sum, object| sum.saturating_add(object.blocks)),
            written: there().map(|object| Timespec::new(object.mtime, object.mtime_nsec)).max(),
            stripes: objects
                .iter()
                .zip(0u32..)
                .filter(|(object, _)| object.exists != 0)
                .map(|(_, stripe)| stripe)
                .collect(),
        }
    }

    /// Records it. The times become those that a client shows of a DIRTY file: a modification time
    /// that was set by hand holds until a later write.
    pub(crate) fn record(&self, inode: &mut Inode) {
        let attr = &mut inode.attr;
        attr.size_state = SizeState::Clean as u32;
        (attr.size, attr.blocks) = (self.size, self.blocks);
        inode.stripes.add_all(&self.stripes);
        if let Some(written) = self.written {
            if written > inode.mtime_set {
                attr.set_mtime(written);
            }
            attr.set_ctime(written.max(attr.ctime()));
        }
    }
}

/// What stands against a question to the objects of a file, if anything does.
pub(crate) fn look(inode: Option<&Inode>, around: &Around) -> Option<Verdict> {
    let is_dirty =
        |inode: &Inode| inode.attr.is_file() && inode.attr.size_state() == SizeState::Dirty;
    if !inode.is_some_and(is_dirty) {
        return Some(Verdict::Settled);
    }
    if around.writers > 0 {
        return Some(Verdict::Written);
    }
    around.is_held.then_some(Verdict::Later)
}

/// What the answers of all objects, in stripe order, mean now.
pub(crate) fn judge(
    inode: Option<&Inode>,
    around: &Around,
    asked: &Asked,
    objects: &[OstAttr],
) -> Verdict {
    if let Some(verdict) = look(inode, around) {
        return verdict;
    }
    let Some(inode) = inode else { return Verdict::Settled };
    let is_same = around.epoch == asked.epoch && inode.attr.layout_version == asked.layout_version;
    if !is_same {
        return Verdict::Later; // it was opened or cut meanwhile
    }
    let Some(layout) = &asked.layout else {
        let (size, blocks) = (inode.attr.size, inode.attr.blocks);
        let stripes = StripeSet::default();
        return Verdict::Known(Extents { size, blocks, written: None, stripes });
    };
    assert_eq!(objects.len(), layout.stripes() as usize, "every object was asked");
    let is_destroyed = |object: &OstAttr| object.layout_version == u32::MAX;
    if objects.iter().any(is_destroyed) || layout.is_outgrown(&sizes(objects)) {
        return Verdict::Later;
    }
    let found = Extents::of(layout, objects);
    if !inode.stripes.without(&found.stripes).is_empty() || found.size > FILE_BYTES_MAX {
        return Verdict::Lost;
    }
    Verdict::Known(found)
}

fn sizes(objects: &[OstAttr]) -> Vec<Option<u64>> {
    objects.iter().map(|object| (object.exists != 0).then_some(object.size)).collect()
}

#[cfg(test)]
mod tests {
    use layout::Layout;
    use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
    use types::Fid;
    use wire::Attr;
    use wire::attr::{S_IFDIR, S_IFREG};

    use super::*;

    const FILE: Fid = Fid { seq: 0x400, oid: 7, ver: 0 };
    const STRIPE: u32 = 1 << 16;
    const EPOCH: u64 = 9;

    fn inode(state: SizeState) -> Inode {
        let attr = Attr {
            mode: S_IFREG | 0o644,
            nlink: 1,
            size: 77,
            size_state: state as u32,
            layout_version: 1,
            mtime: 50,
            ctime: 60,
            ..Attr::default()
        };
        Inode {
            attr: attr.with_fid(FILE),
            flags: 0,
            parent: Fid::ROOT,
            mtime_set: Timespec::new(52, 0),
            stripes: StripeSet::default(),
            depth: 0,
            symlink: Vec::new(),
        }
    }

    fn dirty() -> Inode {
        inode(SizeState::Dirty)
    }

    fn quiet() -> Around {
        Around { epoch: EPOCH, ..Around::default() }
    }

    fn asked(layout: Option<FileLayout>) -> Asked {
        Asked { epoch: EPOCH, layout_version: 1, layout }
    }

    fn striped(count: u16) -> Asked {
        asked(Some(Layout::plain(Fid::new(0x500, 1), STRIPE, count).into()))
    }

    fn object(size: u64, mtime: i64) -> OstAttr {
        OstAttr { exists: 1, size, blocks: size.div_ceil(512), mtime, ..OstAttr::default() }
    }

    /// Size, blocks, modification time and change time that are recorded.
    fn recorded(mut inode: Inode, asked: &Asked, objects: &[OstAttr]) -> (u64, u64, i64, i64) {
        let Verdict::Known(found) = judge(Some(&inode), &quiet(), asked, objects) else {
            panic!("its size is known")
        };
        found.record(&mut inode);
        assert_eq!(inode.attr.size_state(), SizeState::Clean);
        (inode.attr.size, inode.attr.blocks, inode.attr.mtime, inode.attr.ctime)
    }

    #[test]
    fn the_objects_of_a_file_without_a_writer_give_its_size() {
        let objects = [object(600, 55), object(10, 99), OstAttr::default()];
        assert_eq!(recorded(dirty(), &striped(3), &objects), (65_546, 3, 99, 99));
        assert_eq!(recorded(dirty(), &striped(1), &[object(9, 51)]), (9, 1, 50, 60));
        let none = [OstAttr::default(); 2];
        assert_eq!(recorded(dirty(), &striped(2), &none), (0, 0, 50, 60));
        assert_eq!(recorded(dirty(), &asked(None), &[]), (77, 0, 50, 60), "it has no object");
    }

    #[test]
    fn the_part_at_the_mdt_counts_too() {
        let border = u64::from(STRIPE);
        let mut parts = CompositeTemplate::striped(0, [(border, 1), (END_OF_FILE, 1)]);
        parts.components[0] = TemplateComponent { end: border, wanted: Wanted::Mdt };
        let composite = parts.resolve(&layout::Template::default()).expect("a layout");
        let asked = asked(Some(FileLayout::composite(FILE, composite)));
        assert_eq!(recorded(dirty(), &asked, &[object(1_000, 70)]).0, 1_000);
    }

    #[test]
    fn only_a_quiet_dirty_file_is_asked_for() {
        let dirty = dirty();
        assert_eq!(look(Some(&dirty), &quiet()), None);
        let written = Around { writers: 1, ..quiet() };
        assert_eq!(look(Some(&dirty), &written), Some(Verdict::Written));
        let held = Around { is_held: true, ..quiet() };
        assert_eq!(look(Some(&dirty), &held), Some(Verdict::Later));
        for state in [SizeState::Clean, SizeState::NeverWritten] {
            assert_eq!(look(Some(&inode(state)), &written), Some(Verdict::Settled));
        }
        assert_eq!(look(None, &quiet()), Some(Verdict::Settled));
        let mut dir = self::dirty();
        dir.attr.mode = S_IFDIR | 0o755;
        assert_eq!(look(Some(&dir), &quiet()), Some(Verdict::Settled));
    }

    #[test]
    fn an_answer_that_may_be_old_is_not_recorded() {
        let (dirty, asked, objects) = (dirty(), striped(1), [object(9, 70)]);
        let of = |inode: &Inode, around: &Around| judge(Some(inode), around, &asked, &objects);
        assert!(matches!(of(&dirty, &quiet()), Verdict::Known(_)));
        assert_eq!(of(&dirty, &Around { writers: 1, epoch: 10, ..quiet() }), Verdict::Written);
        assert_eq!(of(&dirty, &Around { epoch: 10, ..quiet() }), Verdict::Later, "and closed");
        assert_eq!(of(&dirty, &Around { is_held: true, ..quiet() }), Verdict::Later);
        assert_eq!(of(&inode(SizeState::Clean), &quiet()), Verdict::Settled, "its writer knew it");
        let mut other = dirty.clone();
        other.attr.layout_version = 2;
        assert_eq!(of(&other, &quiet()), Verdict::Later, "it has other objects");
        assert_eq!(judge(None, &quiet(), &asked, &objects), Verdict::Settled);
    }

    #[test]
    fn objects_that_are_not_as_they_must_be_give_no_size() {
        let of =
            |inode: &Inode, objects: &[OstAttr]| judge(Some(inode), &quiet(), &striped(2), objects);
        let gone = OstAttr { layout_version: u32::MAX, ..OstAttr::default() };
        assert_eq!(of(&dirty(), &[object(9, 70), gone]), Verdict::Later, "destroyed");
        let must = Inode { stripes: StripeSet::from(0b11u64), ..dirty() };
        assert_eq!(of(&must, &[object(9, 70), OstAttr::default()]), Verdict::Lost);
        assert!(matches!(of(&must, &[object(9, 70); 2]), Verdict::Known(_)));
        assert_eq!(of(&dirty(), &[object(u64::MAX, 70); 2]), Verdict::Lost, "no file is as long");
    }

    #[test]
    fn a_stripe_behind_the_64th_is_missed_too() {
        let (asked, mut objects) = (striped(70), [object(1, 1); 70]);
        let mut seen = dirty();
        let Verdict::Known(found) = judge(Some(&seen), &quiet(), &asked, &objects) else {
            panic!("its size is known")
        };
        found.record(&mut seen);
        assert_eq!(seen.stripes, (0..70).collect::<StripeSet>());
        seen.attr.size_state = SizeState::Dirty as u32;
        objects[65] = OstAttr::default();
        assert_eq!(judge(Some(&seen), &quiet(), &asked, &objects), Verdict::Lost);
    }
}
