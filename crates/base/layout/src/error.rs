//! Errors of layouts, and the checks that return them.

use types::{Errno, TARGET_INDEX_MAX};

use crate::{POOL_BYTES, STRIPE_COUNT_MAX, STRIPE_SIZE_MAX, STRIPE_SIZE_UNIT};

/// Why a layout, a template or a record of one is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LayoutError {
    /// Not a multiple of 64 KiB, or outside of the bounds, bytes.
    #[error("stripe size {0} is not a multiple of {STRIPE_SIZE_UNIT} up to {STRIPE_SIZE_MAX}")]
    StripeSize(u32),
    /// Not -1 and outside of 0 to the largest count.
    #[error("stripe count {0} is not between 1 and {STRIPE_COUNT_MAX} (-1: all)")]
    StripeCount(i64),
    /// A list of OSTs that does not go with the stripe count.
    #[error("{stripes} stripes on a list of {osts} OSTs")]
    OstCount {
        /// Stripes asked for.
        stripes: i64,
        /// OSTs listed.
        osts: usize,
    },
    /// No index of an OST.
    #[error("{0} is not an OST index (at most {TARGET_INDEX_MAX})")]
    OstIndex(i64),
    /// Not up to 15 characters of the allowed set, NUL padded.
    #[error("a pool name is up to 15 characters of A-Z a-z 0-9 _ -")]
    Pool,
    /// Without an object base there are no objects.
    #[error("the layout names no object base")]
    NoBase,
    /// Record cut short, or its length is wrong.
    #[error("the record has {have} bytes of {need}")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Neither a layout nor a template, or a version of tomorrow.
    #[error("record of type {kind} version {version} is not known here")]
    Unknown {
        /// First byte of the record.
        kind: u8,
        /// Second byte of the record.
        version: u8,
    },
}

impl LayoutError {
    /// For an application that asked for it.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            LayoutError::Short { .. } => Errno::ERANGE,
            _ => Errno::EINVAL,
        }
    }
}

pub(crate) fn check_stripe_size(stripe_size: u32) -> Result<(), LayoutError> {
    let good = stripe_size != 0 && stripe_size.is_multiple_of(STRIPE_SIZE_UNIT);
    if good { Ok(()) } else { Err(LayoutError::StripeSize(stripe_size)) }
}

pub(crate) fn check_osts(osts: &[u32]) -> Result<(), LayoutError> {
    match osts.iter().find(|ost| **ost > TARGET_INDEX_MAX) {
        Some(ost) => Err(LayoutError::OstIndex(i64::from(*ost))),
        None => Ok(()),
    }
}

pub(crate) fn check_pool(pool: &[u8; POOL_BYTES]) -> Result<(), LayoutError> {
    let end = pool.iter().position(|byte| *byte == 0).ok_or(LayoutError::Pool)?;
    let named = pool[..end]
        .iter()
        .all(|byte| byte.is_ascii_alphanumeric() || *byte == b'_' || *byte == b'-');
    let padded = pool[end..].iter().all(|byte| *byte == 0);
    if named && padded { Ok(()) } else { Err(LayoutError::Pool) }
}
