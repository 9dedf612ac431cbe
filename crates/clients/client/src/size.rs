//! Rules of size: where a file's size comes from, and when a closing client may state it.
//!
//! - NEVER_WRITTEN and CLEAN: the MDT's value is exact.
//! - DIRTY: the objects alone give size and blocks, and the MDT's value is not used. Truncate keeps
//!   this true. Under the file's lock it cuts every object, and creates the one that holds the last
//!   byte if the file grows.
//! - If an object that must exist is lost, the file is at least as long as the MDT's last known
//!   size. Only a truncate makes a file shorter, and the MDT learns of it.
//! - Times: the file's modification time is the objects' last write, unless the MDT's time was set
//!   by hand (utimes, truncate) after it. Writers stamp their writes later than the set time that
//!   they know, and a setter sends its own clock. So differing clocks do not reorder the operations
//!   of one client.
//!
//! [`WriteView`] is the knowledge that one client's open-for-write handles share about one file:
//! each object's last reported attributes, and whether they are stale. The last close states the
//! size under the write epoch of the open. The MDT accepts it only if no other handle was open for
//! writing since then and no client truncated the file. In that case the attributes from the
//! handle's own writes, completed by a glimpse of the other objects, are exact.
//!
//! Pure: replies go in, the answer comes out.

use std::collections::BTreeMap;

use layout::{FileLayout, StripeSet};
use types::Timespec;
use wire::Attr;
use wire::body::OstAttr;

/// Size, blocks and last write of a file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Extents {
    pub(crate) size: u64,
    pub(crate) blocks: u64,
    /// `None` where there is no object.
    pub(crate) mtime: Option<Timespec>,
}

/// What the objects of a file add up to, in stripe order.
pub(crate) fn add_up(layout: &FileLayout, objects: &[OstAttr]) -> Extents {
    let sizes: Vec<_> =
        objects.iter().map(|object| (object.exists != 0).then_some(object.size)).collect();
    let there = || objects.iter().filter(|object| object.exists != 0);
    Extents {
        size: layout.file_size(&sizes),
        blocks: there().fold(0, |sum, object| sum.saturating_add(object.blocks)),
        mtime: there().map(|object| Timespec::new(object.mtime, object.mtime_nsec)).max(),
    }
}

/// Puts the objects' word into the attributes of a dirty file, whose modification time was set by
/// hand at `mtime_set`, and whose objects of `must_exist` must be there. Says which are, and which
/// of those that must be are not.
pub(crate) fn resolve(
    attr: &mut Attr,
    mtime_set: Timespec,
    must_exist: &StripeSet,
    layout: &FileLayout,
    objects: &[OstAttr],
) -> Found {
    let extents = add_up(layout, objects);
    let there = existing(objects);
    let lost = must_exist.without(&there);
    attr.size = if lost.is_empty() { extents.size } else { extents.size.max(attr.size) };
    attr.blocks = extents.blocks;
    if let Some(written) = extents.mtime {
        if written > mtime_set {
            attr.set_mtime(written);
        }
        attr.set_ctime(attr.ctime().max(written));
    }
    Found { there, lost, is_old_layout: false }
}

/// Stripes of a file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Found {
    /// Their object is there.
    pub(crate) there: StripeSet,
    /// Their object should be there.
    pub(crate) lost: StripeSet,
    /// An object was destroyed: the file has others, or is gone. Or an object has bytes behind its
    /// component's end: the component has become longer.
    pub(crate) is_old_layout: bool,
}

/// What is known of one object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stripe {
    /// As it was when the first handle opened.
    Untouched,
    /// This client's own last word from the OST.
    Known(OstAttr),
    /// Changed, and how is not known.
    Stale,
}

/// What the open-for-write handles of this client know of a file. From the first such open to the
/// last close.
#[derive(Clone, Debug)]
pub(crate) struct WriteView {
    /// The open made the file: stripes that were not written have no objects.
    fresh: bool,
    /// Of the last open or truncate by this client.
    epoch: u64,
    /// More than one handle in this period: the MDT takes no close's word.
    mixed: bool,
    stripes: Vec<Stripe>,
    /// Raised by each truncate: a write that began before cannot say what is there now.
    generation: u64,
    /// A truncate has begun and not ended well: objects are not what the handles know.
    is_cut: bool,
}

impl WriteView {
    /// The first open for write, which made the file or not, gave this epoch.
    pub(crate) fn new(fresh: bool, epoch: u64) -> WriteView {
        WriteView { fresh, epoch, mixed: false, stripes: Vec::new(), generation: 0, is_cut: false }
    }

    /// Whether the open made the file.
    pub(crate) fn is_fresh(&self) -> bool {
        self.fresh
    }

    /// Another handle was opened for write by this client.
    pub(crate) fn opened(&mut self) {
        self.mixed = true;
    }

    /// This client truncated, under this epoch.
    pub(crate) fn note_epoch(&mut self, epoch: u64) {
        self.epoch = epoch;
    }

    /// To be handed to [`WriteView::wrote`] by whatever starts now.
    pub(crate) fn generation(&self) -> u64 {
        self.generation
    }

    /// A write begins: its answer comes with what this returns.
    pub(crate) fn write_begins(&self) -> u64 {
        self.generation
    }

    /// All objects, where they are what this client knows of them: it made the file, and by the
    /// epoch that the MDT tells nobody else has opened it for writing since, or cut it.
    pub(crate) fn told(&self, epoch: u64, layout: &FileLayout) -> Option<Vec<OstAttr>> {
        let is_own = self.fresh && self.epoch == epoch && self.is_whole(layout);
        is_own.then(|| self.complete(layout, &BTreeMap::new()))
    }

    /// A write to `stripe` that began under `generation` was answered.
    pub(crate) fn wrote(&mut self, stripe: u32, attr: OstAttr, generation: u64) {
        let current = generation == self.generation;
        let slot = self.slot(stripe);
        *slot = match *slot {
            _ if !current => Stripe::Stale,
            Stripe::Stale => Stripe::Stale,
            Stripe::Untouched => Stripe::Known(attr),
            Stripe::Known(known) => Stripe::Known(later(known, attr)),
        };
    }

    /// A truncate begins: what is in flight says nothing any more.
    pub(crate) fn truncate_begins(&mut self) {
        self.generation += 1;
        self.is_cut = true;
        self.stripes.iter_mut().for_each(|stripe| *stripe = Stripe::Stale);
    }

    /// A truncate ended with these objects, in stripe order.
    pub(crate) fn truncated(&mut self, objects: &[OstAttr], generation: u64) {
        if generation == self.generation {
            self.stripes = objects.iter().map(|object| Stripe::Known(*object)).collect();
            self.is_cut = false;
        }
    }

    /// Nothing that was learnt holds any more: a server lost its memory.
    pub(crate) fn forget(&mut self, stripe_count: u32) {
        self.generation += 1;
        self.stripes = vec![Stripe::Stale; stripe_count as usize];
    }

    /// The objects of the file are being changed in a way that their answers do not tell: all are
    /// asked at the close.
    pub(crate) fn reshaped(&mut self, stripe_count: u32) {
        self.forget(stripe_count);
    }

    /// Whether stating the size makes sense.
    pub(crate) fn may_state(&self) -> bool {
        !self.mixed
    }

    /// Whether the size is known without a question, also before the last handle is closed.
    pub(crate) fn is_whole(&self, layout: &FileLayout) -> bool {
        self.may_state() && !self.is_cut && self.unknown(layout).is_empty()
    }

    /// Whether no object is there: none was known, and none may have been made since.
    pub(crate) fn has_no_object(&self, layout: &FileLayout) -> bool {
        self.is_whole(layout) && self.stripes.iter().all(|stripe| *stripe == Stripe::Untouched)
    }

    /// Epoch under which the size is known.
    pub(crate) fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Stripes whose object must be asked before the size can be stated.
    pub(crate) fn unknown(&self, layout: &FileLayout) -> Vec<u32> {
        (0..layout.stripes())
            .filter(|stripe| {
                match self.stripes.get(*stripe as usize).unwrap_or(&Stripe::Untouched) {
                    Stripe::Untouched => !self.fresh,
                    Stripe::Known(_) => false,
                    Stripe::Stale => true,
                }
            })
            .collect()
    }

    /// The unknown ones were asked: every object in stripe order.
    pub(crate) fn complete(
        &self,
        layout: &FileLayout,
        asked: &BTreeMap<u32, OstAttr>,
    ) -> Vec<OstAttr> {
        (0..layout.stripes())
            .map(|stripe| match self.stripes.get(stripe as usize) {
                Some(Stripe::Known(attr)) => *attr,
                _ => asked.get(&stripe).copied().unwrap_or_default(),
            })
            .collect()
    }

    fn slot(&mut self, stripe: u32) -> &mut Stripe {
        let index = stripe as usize;
        if self.stripes.len() <= index {
            self.stripes.resize(index + 1, Stripe::Untouched);
        }
        &mut self.stripes[index]
    }
}

/// Answers of concurrent writes come in any order; between truncates an object only grows.
fn later(one: OstAttr, other: OstAttr) -> OstAttr {
    let newer =
        if (one.mtime, one.mtime_nsec) > (other.mtime, other.mtime_nsec) { one } else { other };
    OstAttr {
        exists: 1,
        size: one.size.max(other.size),
        blocks: one.blocks.max(other.blocks),
        ..newer
    }
}

/// Stripes that have an object (`CloseReq::stripes`), of all objects in stripe order.
pub(crate) fn existing(objects: &[OstAttr]) -> StripeSet {
    let there = objects.iter().zip(0u32..).filter(|(object, _)| object.exists != 0);
    there.map(|(_, stripe)| stripe).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::layout;
    use wire::SizeState;

    fn attr(state: SizeState) -> Attr {
        Attr { size: 77, size_state: state as u32, mtime: 50, ctime: 60, ..Attr::default() }
    }

    fn none() -> StripeSet {
        StripeSet::default()
    }

    fn at(sec: i64) -> Timespec {
        Timespec::new(sec, 0)
    }

    fn object(size: u64, mtime: i64) -> OstAttr {
        OstAttr { exists: 1, size, blocks: size.div_ceil(512), mtime, ..OstAttr::default() }
    }

    #[test]
    fn objects_alone_give_the_size_of_a_dirty_file() {
        let mut dirty = attr(SizeState::Dirty);
        resolve(&mut dirty, at(52), &none(), &layout(2), &[object(10, 55), OstAttr::default()]);
        assert_eq!((dirty.size, dirty.blocks, dirty.mtime, dirty.ctime), (10, 1, 55, 60));
        resolve(&mut dirty, at(52), &none(), &layout(2), &[OstAttr::default(), object(1, 99)]);
        assert_eq!((dirty.size, dirty.mtime, dirty.ctime), ((1 << 16) + 1, 99, 99));
        resolve(&mut dirty, at(52), &none(), &layout(2), &[OstAttr::default(); 2]);
        assert_eq!((dirty.size, dirty.blocks), (0, 0));
    }

    #[test]
    fn a_lost_object_leaves_the_size_that_the_mdt_knew() {
        let objects = [object(10, 1), OstAttr::default()];
        let resolved = |must_exist: u64| {
            let mut attr = attr(SizeState::Dirty);
            let must_exist = StripeSet::from(must_exist);
            let found = resolve(&mut attr, at(52), &must_exist, &layout(2), &objects);
            (attr.size, found.there.first_part(), found.lost.first_part())
        };
        assert_eq!(resolved(0b01), (10, 0b01, 0));
        assert_eq!(resolved(0b11), (77, 0b01, 0b10));
    }

    #[test]
    fn a_stripe_behind_the_64th_can_be_lost() {
        let mut objects = [object(1, 1); 70];
        let must_exist = existing(&objects);
        assert!((0..70).all(|stripe| must_exist.contains(stripe)));
        objects[69] = OstAttr::default();
        let mut dirty = Attr { size: 1 << 30, ..attr(SizeState::Dirty) };
        let found = resolve(&mut dirty, at(52), &must_exist, &layout(70), &objects);
        assert_eq!((found.lost.lowest(), dirty.size), (Some(69), 1 << 30));
    }

    #[test]
    fn a_time_set_by_hand_holds_until_a_later_write() {
        let mut past = attr(SizeState::Dirty);
        resolve(&mut past, at(60), &none(), &layout(1), &[object(10, 55)]);
        assert_eq!((past.mtime, past.ctime), (50, 60), "written before it was set");
        let mut future = Attr { mtime: 5_000, ..past };
        resolve(&mut future, at(60), &none(), &layout(1), &[object(10, 55)]);
        assert_eq!(future.mtime, 5_000);
        resolve(&mut future, at(60), &none(), &layout(1), &[object(10, 61)]);
        assert_eq!(
            (future.mtime, future.ctime),
            (61, 61),
            "a later write counts, though the time set lies behind it"
        );
    }

    #[test]
    fn a_fresh_file_needs_no_question_at_close() {
        let mut view = WriteView::new(true, 1);
        view.wrote(1, object(5, 1), view.generation());
        assert!(view.may_state());
        assert_eq!(view.unknown(&layout(3)), [0u32; 0]);
        let objects = view.complete(&layout(3), &BTreeMap::new());
        assert_eq!(
            (add_up(&layout(3), &objects).size, existing(&objects).first_part()),
            ((1 << 16) + 5, 0b10)
        );
    }

    #[test]
    fn a_written_file_asks_for_the_stripes_it_did_not_touch() {
        let mut view = WriteView::new(false, 4);
        view.wrote(1, object(5, 1), view.generation());
        assert_eq!(view.unknown(&layout(3)), [0, 2]);
    }

    #[test]
    fn answers_out_of_order_keep_the_larger_size() {
        let mut view = WriteView::new(true, 1);
        view.wrote(0, object(900, 3), view.generation());
        view.wrote(0, object(100, 2), view.generation());
        assert_eq!(view.complete(&layout(1), &BTreeMap::new())[0], object(900, 3));
    }

    #[test]
    fn a_write_begun_before_a_truncate_leaves_the_stripe_unknown() {
        let mut view = WriteView::new(true, 1);
        let before = view.generation();
        view.truncate_begins();
        view.truncated(&[object(0, 1)], view.generation());
        assert_eq!(view.unknown(&layout(1)), [0u32; 0]);
        view.wrote(0, object(100, 2), before);
        assert_eq!(view.unknown(&layout(1)), [0]);
        view.wrote(0, object(200, 2), view.generation());
        assert_eq!(view.unknown(&layout(1)), [0], "the old write may have come in between");
    }

    #[test]
    fn the_size_of_a_file_that_is_being_cut_is_not_known() {
        let mut view = WriteView::new(true, 3);
        assert!(view.is_whole(&layout(2)), "it is empty");
        view.truncate_begins();
        view.note_epoch(4);
        assert!(!view.is_whole(&layout(2)), "an object may be longer already");
        view.truncated(&[object(5, 1), OstAttr::default()], view.generation());
        assert!(view.is_whole(&layout(2)));
        view.opened();
        assert!(!view.is_whole(&layout(2)));
        assert!(!WriteView::new(false, 3).is_whole(&layout(1)), "older objects are not known");
    }

    #[test]
    fn a_second_handle_takes_the_word_away() {
        let mut view = WriteView::new(true, 3);
        view.opened();
        assert!(!view.may_state());
    }

    #[test]
    fn a_reshaped_file_asks_for_everything_although_it_is_fresh() {
        let mut view = WriteView::new(true, 1);
        let before = view.generation();
        view.reshaped(2);
        view.wrote(0, object(9, 9), before);
        assert_eq!((view.unknown(&layout(2)), view.may_state()), (vec![0, 1], true));
    }

    #[test]
    fn forgetting_asks_for_everything() {
        let mut view = WriteView::new(true, 1);
        view.wrote(0, object(1, 1), 0);
        view.forget(2);
        assert_eq!(view.unknown(&layout(2)), [0, 1]);
    }

    #[test]
    fn a_file_is_known_until_anybody_else_may_have_written() {
        let fresh = WriteView::new(true, 7);
        assert_eq!(fresh.told(7, &layout(2)), Some(vec![OstAttr::default(); 2]));
        assert_eq!(fresh.told(8, &layout(2)), None, "somebody opened it for writing, or cut it");
        assert_eq!(WriteView::new(false, 7).told(7, &layout(2)), None, "who wrote before?");
        let after = |change: fn(&mut WriteView)| {
            let mut view = fresh.clone();
            change(&mut view);
            view.told(7, &layout(2))
        };
        let written = after(|view| view.wrote(1, object(5, 1), 0));
        assert_eq!(written, Some(vec![OstAttr::default(), object(5, 1)]));
        assert_eq!(after(WriteView::opened), None);
        assert_eq!(after(WriteView::truncate_begins), None);
        assert_eq!(after(|view| view.forget(1)), None);
    }
}
