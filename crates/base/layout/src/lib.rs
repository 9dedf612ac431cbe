//! Layouts: which byte of a file lives at which offset of which object.
//!
//! A file has a [`FileLayout`]: one striping ([`Layout`]), or several components, each with its own
//! ([`composite`]). [`Asked`] is a layout that `setstripe` requests, or that a directory hands on
//! to new files. All of them have a record form, which is the same in messages and on disk. [`lov`]
//! is Lustre's binary form, as the `lustre.lov` attribute shows it. [`dir`] is about directories
//! that are spread over MDTs. [`StripeSet`] says which stripes of a file must have an object.
//!
//! Pure arithmetic: nothing here knows that targets exist, and no input makes it panic.

#![warn(missing_docs)]

mod asked;
pub mod composite;
pub mod dir;
mod error;
mod file;
mod limits;
pub mod lov;
mod map;
mod origin;
pub mod pool;
mod record;
mod stripe_set;
mod template;

use types::{Fid, OstIndex};

pub use asked::Asked;
pub use composite::ComponentError;
pub use error::LayoutError;
pub use file::{FileLayout, FilePieces};
pub use limits::{
    OVERSTRIPES_MAX, POOL_BYTES, STRIPE_COUNT_DEFAULT, STRIPE_COUNT_MAX, STRIPE_SIZE_DEFAULT,
    STRIPE_SIZE_MAX, STRIPE_SIZE_UNIT,
};
pub use map::{Piece, Pieces};
pub use origin::Origin;
pub use record::{Striping, stripes_behind, with_stripes};
pub use stripe_set::{STRIPES_MAX, StripeSet};
pub use template::Template;

/// The pattern of today's layouts: stripes in turn, no redundancy.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Raid0;

/// Where a file's bytes are: RAID-0 over `osts`, objects `base.stripe(i)`.
///
/// Built from outside, it must pass [`Layout::check`] before anything else is called; decoding does
/// that.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Bytes on an object before the next one's turn: a multiple of [`STRIPE_SIZE_UNIT`].
    pub stripe_size: u32,
    /// Number of objects.
    pub stripe_count: u16,
    /// How stripes follow one another.
    pub pattern: Raid0,
    /// Raised with every change.
    pub generation: u16,
    /// Object base: stripe i is `base.stripe(i)`.
    pub base: Fid,
    /// OST index of each stripe.
    pub osts: Vec<u32>,
    /// Pool that the OSTs were taken from, NUL padded, zeros if none.
    pub pool: [u8; POOL_BYTES],
    /// Of a file without components; components have that of their [`composite::Composite`].
    pub origin: Origin,
}

impl Layout {
    /// Objects of `base` on the OSTs 0, 1, 2 and so on, without a pool.
    #[must_use]
    pub fn plain(base: Fid, stripe_size: u32, stripe_count: u16) -> Layout {
        Layout {
            stripe_size,
            stripe_count,
            pattern: Raid0,
            generation: 0,
            base,
            osts: (0..u32::from(stripe_count)).collect(),
            pool: [0; POOL_BYTES],
            origin: Origin::default(),
        }
    }

    /// Whether every field is within its bounds.
    pub fn check(&self) -> Result<(), LayoutError> {
        error::check_stripe_size(self.stripe_size)?;
        if self.stripe_count == 0 || self.stripe_count > STRIPE_COUNT_MAX {
            return Err(LayoutError::StripeCount(i64::from(self.stripe_count)));
        }
        if self.osts.len() != usize::from(self.stripe_count) {
            return Err(LayoutError::OstCount {
                stripes: i64::from(self.stripe_count),
                osts: self.osts.len(),
            });
        }
        error::check_osts(&self.osts)?;
        error::check_pool(&self.pool)?;
        if self.base.is_zero() { Err(LayoutError::NoBase) } else { Ok(()) }
    }

    /// Object and OST of stripe `stripe`, which must be below the stripe count.
    #[must_use]
    pub fn object(&self, stripe: u32) -> (Fid, OstIndex) {
        let ost = self.osts.get(stripe as usize).expect("a stripe is below the stripe count");
        (self.base.stripe(stripe), OstIndex(*ost))
    }

    /// All stripes with their object and OST.
    pub fn objects(&self) -> impl Iterator<Item = (u32, Fid, OstIndex)> + '_ {
        (0u32..)
            .zip(&self.osts)
            .map(|(stripe, ost)| (stripe, self.base.stripe(stripe), OstIndex(*ost)))
    }

    /// Whether several objects share an OST.
    #[must_use]
    pub fn is_overstriped(&self) -> bool {
        is_repeating(&self.osts)
    }

    /// The template that would make such a layout again.
    #[must_use]
    pub fn template(&self) -> Template {
        Template {
            stripe_size: self.stripe_size,
            stripe_count: i32::from(self.stripe_count),
            overstriped: self.is_overstriped(),
            start: -1,
            pool: self.pool,
            osts: Vec::new(),
        }
    }
}

/// Whether an OST is listed more than once.
fn is_repeating(osts: &[u32]) -> bool {
    let mut osts = osts.to_vec();
    osts.sort_unstable();
    osts.windows(2).any(|pair| pair[0] == pair[1])
}
