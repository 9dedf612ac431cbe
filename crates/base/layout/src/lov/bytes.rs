//! Bytes of layouts in Lustre's form.

use crate::composite::{COMPOSITE_BYTES_MAX, Component, Place};
use crate::{POOL_BYTES, Template};

pub(super) const V1_BYTES: usize = 32;
pub(super) const V3_BYTES: usize = V1_BYTES + POOL_BYTES;
pub(super) const STRIPE_BYTES: usize = 24;
pub(super) const HEAD_BYTES: usize = 32;
pub(super) const ENTRY_BYTES: usize = 48;

/// Bytes of a file's composite layout in Lustre's form.
pub(crate) fn bytes_of(components: &[Component]) -> usize {
    let pooled =
        |pool: &[u8; POOL_BYTES]| if *pool == [0; POOL_BYTES] { V1_BYTES } else { V3_BYTES };
    // with the objects that it will have, as far as that is known
    let wanted = |template: &Template| {
        let stripes = usize::try_from(template.stripe_count).unwrap_or(0);
        pooled(&template.pool) + STRIPE_BYTES * stripes.max(template.osts.len())
    };
    let entry = |component: &Component| match &component.place {
        Place::Mdt | Place::Extension(_) => ENTRY_BYTES + V1_BYTES,
        Place::Wanted(template) => ENTRY_BYTES + wanted(template),
        Place::Extendable(template, _) => 2 * ENTRY_BYTES + wanted(template) + V1_BYTES,
        Place::Objects(layout) => {
            ENTRY_BYTES + pooled(&layout.pool) + STRIPE_BYTES * layout.osts.len()
        }
    };
    HEAD_BYTES + components.iter().map(entry).sum::<usize>()
}

/// Objects of a component on all OSTs, at most: its share of the bytes that such components without
/// objects may still add to the layout.
pub(crate) fn share_of_all(components: &[Component]) -> usize {
    let is_on_all = |component: &&Component| match &component.place {
        Place::Wanted(template) | Place::Extendable(template, _) => template.stripe_count < 0,
        Place::Mdt | Place::Objects(_) | Place::Extension(_) => false,
    };
    let count = components.iter().filter(is_on_all).count();
    let left = COMPOSITE_BYTES_MAX.saturating_sub(bytes_of(components));
    (left / STRIPE_BYTES / count.max(1)).max(1)
}
