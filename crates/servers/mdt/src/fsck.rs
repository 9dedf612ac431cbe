//! Checks what must hold for the records of MDTs at every moment, in running images and in durable
//! ones: for tests and simulation. It reads everything, so no server calls it.

mod alone;
mod image;
#[cfg(test)]
mod tests;
mod together;

use osd::{StoreError, View};

pub use image::{Image, Pair};

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
    alone::check(image)
}

/// Every breach in a file system of these MDTs, in words. Operations of several MDTs may be under
/// way.
#[must_use]
pub fn all(images: &[Image]) -> Vec<String> {
    let mut bad: Vec<String> = images.iter().flat_map(alone::check).collect();
    bad.extend(together::check(images));
    bad
}

/// Operations of several MDTs that are not done everywhere: none is left some time after the last
/// request.
#[must_use]
pub fn left(images: &[Image]) -> Vec<String> {
    together::left(images)
}
