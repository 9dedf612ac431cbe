//! The most data that one request may carry, within the kernel's limit.

use std::path::Path;

/// Pages that the kernel lets a request have (Linux 6.13; before that always 256).
const LIMIT: &str = "/proc/sys/fs/fuse/max_pages_limit";
/// What every kernel gives.
const REQUEST_BYTES_MIN: u32 = 1 << 20;
/// More brings nothing: the data of a request is split into RPCs of 1 MiB, and four are enough to
/// be under way.
const REQUEST_BYTES_MAX: u32 = 4 << 20;

/// Bytes of data in one request.
pub(crate) fn request_bytes() -> u32 {
    let page = u32::try_from(rustix::param::page_size()).expect("a page is small");
    allowed(std::fs::read_to_string(Path::new(LIMIT)).ok().as_deref(), page)
}

fn allowed(limit: Option<&str>, page: u32) -> u32 {
    let pages = limit.and_then(|text| text.trim().parse().ok()).unwrap_or(0);
    page.saturating_mul(pages).clamp(REQUEST_BYTES_MIN, REQUEST_BYTES_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_grow_with_the_kernels_limit_within_bounds() {
        assert_eq!(allowed(None, 4_096), 1 << 20);
        assert_eq!(allowed(Some("256\n"), 4_096), 1 << 20);
        assert_eq!(allowed(Some("512"), 4_096), 2 << 20);
        assert_eq!(allowed(Some("65535"), 4_096), 4 << 20);
        assert_eq!(allowed(Some("1"), 4_096), 1 << 20, "the kernel cuts requests itself");
        assert_eq!(allowed(Some("many"), 65_536), 1 << 20);
    }
}
