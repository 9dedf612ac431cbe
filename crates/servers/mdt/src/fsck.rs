//! The rules that must hold in a file system, as a pure library: breaches and their mends.
//! `docs/design/fsck.md` lists the rules.
//!
//! Tests and simulation check running images and durable ones. `nacre fsck` checks and mends stores
//! that no server has open, with the objects of all OSTs. It reads everything, so no server calls
//! it. Of a file system that is served it reads copies, and asks each file's MDT for the mends that
//! are possible while it serves ([`LiveRounds`]).
//!
//! [`check`] finds and `mend` plans changes for the findings of one stage. A caller applies the
//! changes, reads the stores again and goes on until there is nothing to mend ([`Rounds`]).

mod alone;
mod finding;
mod image;
mod layouts;
mod live;
mod lost_found;
mod mend;
mod objects;
mod remake;
mod rounds;
mod system;
#[cfg(test)]
mod tests;
mod together;

use osd::{StoreError, View};
use types::Fid;

pub(crate) use alone::links;
pub use finding::{Finding, Mend, Rule};
pub use image::{Image, Pair};
pub use live::{LiveRounds, Suspect};
pub use mend::{Changes, Made, Owner};
pub use objects::{Object, OstImage};
pub use rounds::Rounds;
pub use system::System;

/// Every breach in a file system of one MDT, in words.
///
/// # Errors
/// What the store answers where it cannot be read.
pub fn fsck(view: &dyn View) -> Result<Vec<String>, StoreError> {
    Ok(all(&[Image::of(0, view)?]))
}

/// Every breach in the records of one MDT of several, in words.
#[must_use]
pub fn one(image: &Image) -> Vec<String> {
    words(alone::check(image))
}

/// Every breach in a file system of these MDTs, in words. Operations of several MDTs may be under
/// way.
#[must_use]
pub fn all(images: &[Image]) -> Vec<String> {
    words(check(&System::new(images, &[])))
}

/// Every breach in a file system, with the objects of the OSTs that are known. Operations of
/// several MDTs may be under way.
#[must_use]
pub fn check(system: &System<'_>) -> Vec<Finding> {
    let mut found: Vec<Finding> = system.images.iter().flat_map(alone::check).collect();
    found.extend(together::check(system.images));
    if !system.osts.is_empty() {
        found.extend(layouts::check(system));
    }
    found
}

/// Operations of several MDTs that are not done everywhere: none is left some time after the last
/// request.
#[must_use]
pub fn left(images: &[Image]) -> Vec<String> {
    together::left(images)
}

/// Whether names of a directory are still to move to other shards.
#[must_use]
pub fn are_names_moving(images: &[Image]) -> bool {
    let mut stripes = images.iter().flat_map(|image| image.stripes.values());
    stripes.any(|stripes| stripes.leaving.is_some())
}

/// Every name: its file, its directory and the name.
pub fn names(images: &[Image]) -> impl Iterator<Item = (Fid, Fid, Vec<u8>)> {
    let entries = images.iter().flat_map(|image| &image.entries);
    entries.map(|entry| (entry.record.fid, entry.dir, entry.record.name.clone()))
}

fn words(found: Vec<Finding>) -> Vec<String> {
    found.into_iter().map(|finding| finding.text).collect()
}
