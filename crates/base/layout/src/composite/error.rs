//! Errors of composite layouts, and the checks that return them.

use types::Errno;

use super::limits::{COMPOSITE_BYTES_MAX, END_OF_FILE, EXTENSION_BYTES_MAX, MDT_BYTES_MAX};
use crate::{LayoutError, STRIPE_SIZE_UNIT};

/// Why a composite layout or a template of one is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ComponentError {
    /// There is no such component, or none at all.
    #[error("a composite layout needs a component")]
    None,
    /// Starts or ends where no stripe may.
    #[error("a component cannot end at {0}: borders are multiples of {STRIPE_SIZE_UNIT}")]
    Border(u64),
    /// A hole or an overlap.
    #[error(
        "a component starts at {start}, but the one before it ends at {end}: they must follow each other"
    )]
    Gap {
        /// Of the component.
        start: u64,
        /// Of the one before it.
        end: u64,
    },
    /// A stripe would cross the border.
    #[error(
        "a component cannot end at {end}: that is not a multiple of its stripe size {stripe_size}"
    )]
    Stripe {
        /// Where it ends.
        end: u64,
        /// Bytes of a stripe.
        stripe_size: u64,
    },
    /// An id that is zero, given twice, too large or of no component.
    #[error("{0} is not an id of a component here")]
    Id(u32),
    /// Only the first component can be at the MDT.
    #[error("data on MDT is possible in the first component only")]
    MdtNotFirst,
    /// More than an MDT takes of one file, or without an end.
    #[error("a data-on-MDT component ends at {MDT_BYTES_MAX} at most, not at {0}")]
    MdtEnd(u64),
    /// All of the file would be at the MDT, which takes none.
    #[error("this MDT takes no data, and the layout has no other component")]
    MdtRefused,
    /// Not a multiple of 64 KiB, or out of bounds, bytes.
    #[error(
        "extension size {0} is not a multiple of {STRIPE_SIZE_UNIT} from there to {EXTENSION_BYTES_MAX}"
    )]
    Step(u64),
    /// Not behind a component that it is room for, or before one that has objects.
    #[error("an extension follows the OST component that it extends, and no objects follow it")]
    Extension,
    /// It has its objects.
    #[error("component {0} has its objects already")]
    Instantiated(u32),
    /// More than an extended attribute holds, bytes.
    #[error("the layout takes {0} bytes of {COMPOSITE_BYTES_MAX}")]
    TooLarge(usize),
    /// A component's striping is out of bounds.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl ComponentError {
    /// For an application that asked for it, as Lustre answers.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            ComponentError::MdtRefused => Errno::EFBIG,
            ComponentError::Instantiated(_) => Errno::EALREADY,
            ComponentError::Layout(error) => error.errno(),
            _ => Errno::EINVAL,
        }
    }
}

/// Where a component may start or end.
pub(super) fn check_border(at: u64) -> Result<(), ComponentError> {
    let good = at == END_OF_FILE || at.is_multiple_of(u64::from(STRIPE_SIZE_UNIT));
    if good { Ok(()) } else { Err(ComponentError::Border(at)) }
}

/// Whether a component with such stripes may end there.
pub(super) fn check_end(end: u64, stripe_size: u64) -> Result<(), ComponentError> {
    check_border(end)?;
    let whole = end == END_OF_FILE || (stripe_size != 0 && end.is_multiple_of(stripe_size));
    if whole { Ok(()) } else { Err(ComponentError::Stripe { end, stripe_size }) }
}

/// Whether an extendable component may grow by so much at a time.
pub(super) fn check_step(step: u64) -> Result<(), ComponentError> {
    let good = step != 0
        && step.is_multiple_of(u64::from(STRIPE_SIZE_UNIT))
        && step <= EXTENSION_BYTES_MAX;
    if good { Ok(()) } else { Err(ComponentError::Step(step)) }
}

/// Whether the component at `index` may be at the MDT and end there.
pub(super) fn check_mdt(index: usize, end: u64) -> Result<(), ComponentError> {
    check_border(end)?;
    if index != 0 {
        return Err(ComponentError::MdtNotFirst);
    }
    if end > MDT_BYTES_MAX { Err(ComponentError::MdtEnd(end)) } else { Ok(()) }
}
