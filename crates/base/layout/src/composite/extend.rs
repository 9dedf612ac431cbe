//! Extends a layout until the bytes of a write have a place (Lustre: `lod_sel_handler`).
//!
//! A component that only wants objects gets them. An extendable component gets its extent in steps,
//! as long as its OSTs have room for another step. Where they have none, one of these happens:
//! - *spill*: the next component gets the rest of the extent;
//! - *repeat*: there is no next component, but other OSTs have room. A component like the one
//!   before, on those OSTs, goes on;
//! - *forced*: no OST has room. The component grows nevertheless, because its OSTs may have room
//!   again by then.
//!
//! Bytes that have a place keep it. So an older layout never says a wrong place: it lacks some.
//!
//! Invariants ([`Composite::extend`])
//! - All bytes before the requested one have a place then.
//! - A step is given only on OSTs that have room for it, if a component behind could take it.
//! - It takes as many turns as components and OSTs together, however far the request is.

use types::{Extent, Fid};

use super::steps::Step;
use super::{Component, ComponentError, Composite, Place};
use crate::lov::bytes::share_of_all;
use crate::{Layout, Origin, POOL_BYTES, Raid0, Template};

/// OSTs for a component.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Chosen {
    /// Stripe 0 first.
    pub osts: Vec<u32>,
    /// The pool that the layout names.
    pub pool: [u8; POOL_BYTES],
}

/// A server's knowledge of its OSTs.
pub trait Supply {
    /// Why there are no objects.
    type Error;

    /// OSTs for a component, if possible those with room for `bytes` each.
    ///
    /// # Errors
    /// No OST can be taken; the server chooses the error.
    fn choose(&mut self, wanted: &Template, bytes: u64) -> Result<Chosen, Self::Error>;

    /// A base of objects that no file has had.
    ///
    /// # Errors
    /// There is none now.
    fn base(&mut self) -> Result<Fid, Self::Error>;

    /// How often `bytes` fit on each of these OSTs, as far as is known.
    fn fits(&self, osts: &[u32], bytes: u64) -> u64;

    /// A file may take `bytes` so many times on each of these OSTs: as many fit less from now on.
    fn promise(&mut self, osts: &[u32], bytes: u64, times: u64);

    /// Whether another pool may do, where OSTs could not be chosen.
    fn is_lack(error: &Self::Error) -> bool;

    /// The error for a change that makes no layout.
    fn refuse(&self, error: ComponentError) -> Self::Error;
}

impl Chosen {
    /// Whether a pool took the place of the wanted one.
    #[must_use]
    pub fn is_spilled(&self, wanted: &Template) -> bool {
        self.pool != [0; POOL_BYTES] && self.pool != wanted.pool
    }

    /// On all OSTs, as far as the layout has bytes for them.
    fn within(mut self, wanted: &Template, composite: &Composite) -> Chosen {
        if wanted.stripe_count < 0 {
            self.osts.truncate(share_of_all(&composite.components));
        }
        self
    }

    fn objects<S: Supply>(self, wanted: &Template, supply: &mut S) -> Result<Layout, S::Error> {
        let count = ComponentError::Layout(crate::LayoutError::OstCount {
            stripes: i64::from(wanted.stripe_count),
            osts: self.osts.len(),
        });
        let stripe_count = u16::try_from(self.osts.len()).map_err(|_| supply.refuse(count))?;
        Ok(Layout {
            stripe_size: wanted.stripe_size,
            stripe_count,
            pattern: Raid0,
            generation: 0,
            base: supply.base()?,
            osts: self.osts,
            pool: self.pool,
            origin: Origin::default(),
        })
    }
}

impl Composite {
    /// Gives all bytes before `behind` a place, which must not be behind the layout's end.
    ///
    /// # Errors
    /// Those of `supply`. The layout may have changed and is not to be used then.
    pub fn extend<S: Supply>(&mut self, behind: u64, supply: &mut S) -> Result<(), S::Error> {
        loop {
            let Some(index) = self.missing(behind).next() else { return Ok(()) };
            match self.components[index].place.clone() {
                Place::Mdt | Place::Objects(_) => return Ok(()), // these miss nothing
                Place::Wanted(wanted) => {
                    let chosen = supply.choose(&wanted, 0)?.within(&wanted, self);
                    let is_spilled = chosen.is_spilled(&wanted);
                    self.origin = self.origin.with(Origin::SPILLED, is_spilled);
                    let objects = chosen.objects(&wanted, supply)?;
                    let given = self.instantiate(index, objects);
                    given.map_err(|error| supply.refuse(error))?;
                }
                Place::Extendable(wanted, step) => self.begin(index, &wanted, step, supply)?,
                Place::Extension(step) => self.go_on(index, step, behind, supply)?,
            }
        }
    }

    /// The first step of an extendable component, unless its OSTs are short of room.
    fn begin<S: Supply>(
        &mut self,
        index: usize,
        wanted: &Template,
        step: u64,
        supply: &mut S,
    ) -> Result<(), S::Error> {
        let step = Step::new(step, wanted.stripe_size);
        // one on every OST: how many these are is known later
        let stripes = usize::try_from(wanted.stripe_count).map_or(0, |count| count.max(1));
        let least = if stripes == 0 { 0 } else { step.share(stripes) };
        let chosen = match supply.choose(wanted, least) {
            Err(error) if S::is_lack(&error) && self.has_next(index) => None,
            chosen => Some(chosen?.within(wanted, self)),
        };
        let chosen = chosen.filter(|chosen| {
            let bytes = step.share(chosen.osts.len());
            !self.has_next(index) || supply.fits(&chosen.osts, bytes) > 0
        });
        let done = match chosen {
            None => self.spill(index),
            Some(chosen) => {
                let is_spilled = chosen.is_spilled(wanted);
                self.origin = self.origin.with(Origin::SPILLED, is_spilled);
                supply.promise(&chosen.osts, step.share(chosen.osts.len()), 1);
                let objects = chosen.objects(wanted, supply)?;
                self.instantiate(index, objects)
            }
        };
        done.map_err(|error| supply.refuse(error))
    }

    /// More of the extension at `index` for the objects before it, or for others.
    fn go_on<S: Supply>(
        &mut self,
        index: usize,
        step: u64,
        behind: u64,
        supply: &mut S,
    ) -> Result<(), S::Error> {
        let before = index.checked_sub(1).and_then(|index| self.components.get(index));
        let before = before.and_then(Component::objects).cloned();
        let before = before.ok_or_else(|| supply.refuse(ComponentError::Extension))?;
        let room = self.components[index].extent;
        let step = Step::new(step, before.stripe_size);
        let (wanted, bytes) = (step.count(room, behind), step.share(before.osts.len()));
        let steps = wanted.min(supply.fits(&before.osts, bytes));
        let done = if steps > 0 {
            supply.promise(&before.osts, bytes, steps);
            self.stretch(index, step.end(room, steps))
        } else if self.has_next(index) {
            self.spill(index)
        } else if self.repeat(index, step, &before, supply)? {
            Ok(())
        } else {
            self.stretch(index, step.end(room, wanted))
        };
        done.map_err(|error| supply.refuse(error))
    }

    /// A component like `before` on OSTs that have room begins where the extension at `index` does.
    /// Says whether there are such OSTs.
    fn repeat<S: Supply>(
        &mut self,
        index: usize,
        step: Step,
        before: &Layout,
        supply: &mut S,
    ) -> Result<bool, S::Error> {
        let wanted = before.template();
        let chosen = match supply.choose(&wanted, step.share(before.osts.len())) {
            Err(error) if S::is_lack(&error) => return Ok(false),
            chosen => chosen?,
        };
        let bytes = step.share(chosen.osts.len());
        if supply.fits(&chosen.osts, bytes) == 0 {
            return Ok(false);
        }
        let (osts, is_spilled) = (chosen.osts.clone(), chosen.is_spilled(&wanted));
        let objects = chosen.objects(&wanted, supply)?;
        let room = self.components[index].extent;
        let id = self.last_id.saturating_add(1);
        let is_added = match Extent::new(room.start(), step.end(room, 1)) {
            None => false,
            Some(extent) => {
                let more = Component { id, extent, place: Place::Objects(objects) };
                // no more ids, or no more bytes for a layout: the one before goes on
                self.insert(index, more).is_ok()
            }
        };
        if is_added {
            self.origin = self.origin.with(Origin::SPILLED, is_spilled);
            supply.promise(&osts, bytes, 1);
        }
        Ok(is_added)
    }

    fn has_next(&self, index: usize) -> bool {
        index + 1 < self.components.len()
    }

    /// The component before the extension at `index` reaches to `to`. An extension of which
    /// nothing is left goes.
    pub(super) fn stretch(&mut self, index: usize, to: u64) -> Result<(), ComponentError> {
        let room = self.components.get(index).ok_or(ComponentError::None)?.extent;
        let before = index.checked_sub(1).and_then(|before| self.components.get(before));
        let before = before.ok_or(ComponentError::Extension)?.extent;
        let gap = ComponentError::Gap { start: to, end: room.start() };
        if to > room.end() {
            return Err(gap);
        }
        let longer = Extent::new(before.start(), to).filter(|_| to > room.start()).ok_or(gap)?;
        self.with(|layout| {
            layout.components[index - 1].extent = longer;
            layout.shorten(index, Extent::new(to, room.end()));
        })
    }

    /// The component behind `index` gets all of its extent.
    pub(super) fn spill(&mut self, index: usize) -> Result<(), ComponentError> {
        let spilled = self.components.get(index).ok_or(ComponentError::None)?;
        let next = self.components.get(index + 1).ok_or(ComponentError::None)?;
        let gap = ComponentError::Gap { start: next.extent.end(), end: spilled.extent.start() };
        if spilled.is_instantiated() || next.is_instantiated() {
            return Err(ComponentError::Instantiated(next.id));
        }
        let extent = Extent::new(spilled.extent.start(), next.extent.end()).ok_or(gap)?;
        self.with(|layout| {
            layout.components[index + 1].extent = extent;
            layout.components.remove(index);
        })
    }

    /// A new component takes the first bytes of the extension at `index`.
    fn insert(&mut self, index: usize, more: Component) -> Result<(), ComponentError> {
        let room = self.components.get(index).ok_or(ComponentError::None)?.extent;
        self.with(|layout| {
            layout.last_id = more.id;
            layout.shorten(index, Extent::new(more.extent.end(), room.end()));
            layout.components.insert(index, more);
        })
    }

    fn shorten(&mut self, index: usize, left: Option<Extent>) {
        match left {
            Some(left) => self.components[index].extent = left,
            None => drop(self.components.remove(index)),
        }
    }
}

#[cfg(test)]
mod tests;
