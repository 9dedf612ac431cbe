//! Values that the tests of several files need.

use layout::{FileLayout, Layout};
use types::Fid;

/// Stripes of 64 KiB on the first OSTs.
pub(crate) fn layout(stripe_count: u16) -> FileLayout {
    Layout::plain(Fid::new(0x400, 1), 1 << 16, stripe_count).into()
}
