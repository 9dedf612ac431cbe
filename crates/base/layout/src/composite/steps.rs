//! Steps of an extendable component, and the parts that it comes to.

use types::Extent;

use super::{Component, ComponentError, Place};
use crate::Layout;

/// A step of a component: how far it goes at once.
#[derive(Clone, Copy, Debug)]
pub(super) struct Step {
    /// Bytes of the file, whole stripes.
    unit: u64,
    stripe_size: u64,
}

impl Step {
    pub(super) fn new(step: u64, stripe_size: u32) -> Step {
        let stripe_size = u64::from(stripe_size.max(1));
        Step { unit: step.max(1).next_multiple_of(stripe_size), stripe_size }
    }

    /// Where so many steps from the start of `room` end: behind a whole stripe, or with `room`.
    pub(super) fn end(self, room: Extent, steps: u64) -> u64 {
        let at = u128::from(room.start()).next_multiple_of(u128::from(self.stripe_size));
        let end = at + u128::from(self.unit) * u128::from(steps);
        u64::try_from(end).unwrap_or(u64::MAX).min(room.end())
    }

    /// Steps from the start of `room` to `behind`, at least one.
    pub(super) fn count(self, room: Extent, behind: u64) -> u64 {
        let behind = u128::from(behind.min(room.end()));
        let at = u128::from(room.start()).next_multiple_of(u128::from(self.stripe_size));
        let steps = behind.saturating_sub(at).div_ceil(u128::from(self.unit));
        u64::try_from(steps).unwrap_or(u64::MAX).max(1)
    }

    /// Bytes of a step on each of so many OSTs.
    pub(super) fn share(self, stripes: usize) -> u64 {
        self.unit.div_ceil(stripes.max(1) as u64)
    }
}

/// An extendable component with its objects and its first step, and the rest behind it.
pub(super) fn begun(
    component: &Component,
    objects: Layout,
    step: u64,
) -> Result<Vec<Component>, ComponentError> {
    let whole = component.extent;
    let to = Step::new(step, objects.stripe_size).end(whole, 1);
    let gap = ComponentError::Gap { start: to, end: whole.start() };
    let extent = Extent::new(whole.start(), to).ok_or(gap)?;
    let mut parts = vec![Component { id: component.id, extent, place: Place::Objects(objects) }];
    parts.extend(Extent::new(to, whole.end()).map(|extent| Component {
        id: component.last_id(),
        extent,
        place: Place::Extension(step),
    }));
    Ok(parts)
}

/// Whether this is room for the component before it.
pub(super) fn is_room(component: Option<&Component>) -> bool {
    component.is_some_and(|component| matches!(component.place, Place::Extension(_)))
}

/// Whether `now` can have become of `before`, none of which had a place, and whose file had given
/// ids up to `last_id`. Extents follow one another in both, so ends that are equal keep the order.
pub(super) fn are_left(now: &[Component], before: &[Component], last_id: u32) -> bool {
    let is_known = |part: &Component| match part.id > last_id {
        true => part.objects().is_some(),
        false => before.iter().any(|was| is_of(part, was)),
    };
    let is_there = |was: &Component| {
        !matches!(was.place, Place::Wanted(_)) || now.iter().any(|part| part.id == was.id)
    };
    now.iter().all(is_known) && before.iter().all(is_there)
}

/// Whether `now` is `was`, or a part of it that came into being later.
fn is_of(now: &Component, was: &Component) -> bool {
    let same_end = now.extent.end() == was.extent.end();
    match (&was.place, &now.place) {
        (Place::Wanted(_), Place::Objects(_)) => now.id == was.id && same_end,
        (Place::Extendable(..), Place::Objects(_)) => {
            now.id == was.id && now.extent.end() <= was.extent.end()
        }
        (Place::Extendable(_, step), Place::Extension(left)) => {
            now.id == was.last_id() && same_end && step == left
        }
        (was_place, place) => now.id == was.id && same_end && was_place == place,
    }
}
