//! mimalloc as the global allocator (decision 0004).
//!
//! The crate `mimalloc` passes an alignment with every request, and mimalloc then takes a slower
//! path. Nearly all requests here need no more than the default alignment of a block, so this
//! allocator passes none for them.

#![allow(unsafe_code, reason = "an allocator has no safe interface")]

use std::alloc::{GlobalAlloc, Layout};

use libmimalloc_sys::{
    mi_free, mi_malloc, mi_malloc_aligned, mi_realloc, mi_realloc_aligned, mi_zalloc,
    mi_zalloc_aligned,
};

/// Alignment of every block that is at least as large (`MI_MAX_ALIGN_SIZE`; a smaller block is
/// aligned to its size's power of two).
const ALIGN_OF_ANY: usize = 16;

pub(crate) struct Mimalloc;

/// Whether a block of `layout` has its alignment without being asked for.
const fn is_plain(layout: &Layout) -> bool {
    layout.align() <= ALIGN_OF_ANY && layout.align() <= layout.size()
}

// SAFETY: mimalloc's blocks are valid for the size asked for until they are freed, and aligned to
// what is asked for; where nothing is asked, to 16 bytes, or to eight where the size is below 16
// (`is_plain` lets through no layout that needs more). Any block may be given to `mi_free` and
// `mi_realloc`, however it was made; out of memory is null.
unsafe impl GlobalAlloc for Mimalloc {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if is_plain(&layout) {
            // SAFETY: any size may be asked for.
            return unsafe { mi_malloc(layout.size()) }.cast();
        }
        // SAFETY: a layout's alignment is a power of two.
        unsafe { mi_malloc_aligned(layout.size(), layout.align()) }.cast()
    }

    #[inline]
    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if is_plain(&layout) {
            // SAFETY: any size may be asked for.
            return unsafe { mi_zalloc(layout.size()) }.cast();
        }
        // SAFETY: a layout's alignment is a power of two.
        unsafe { mi_zalloc_aligned(layout.size(), layout.align()) }.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, at: *mut u8, _layout: Layout) {
        // SAFETY: `at` is a block of this allocator (contract of the trait).
        unsafe { mi_free(at.cast()) }
    }

    #[inline]
    unsafe fn realloc(&self, at: *mut u8, layout: Layout, size: usize) -> *mut u8 {
        if layout.align() <= ALIGN_OF_ANY && layout.align() <= size {
            // SAFETY: `at` is a block of this allocator (contract of the trait).
            return unsafe { mi_realloc(at.cast(), size) }.cast();
        }
        // SAFETY: the same; a layout's alignment is a power of two.
        unsafe { mi_realloc_aligned(at.cast(), size, layout.align()) }.cast()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_block_is_aligned_as_asked_and_keeps_its_content() {
        for align in [1, 2, 4, 8, 16, 32, 64, 4_096] {
            for size in [1, 2, 7, 8, 9, 15, 16, 17, 24, 40, 48, 100, 1_000, 4_097, 1 << 20] {
                let layout = Layout::from_size_align(size, align).expect("a power of two");
                // SAFETY: sizes are above zero; each block is freed or moved once, with the layout
                // it has then.
                unsafe {
                    let zeroed = Mimalloc.alloc_zeroed(layout);
                    assert!(zeroed.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..size).all(|at| zeroed.add(at).read() == 0), "{layout:?}");
                    let block = Mimalloc.alloc(layout);
                    assert!(block.addr().is_multiple_of(align), "{layout:?}");
                    block.write_bytes(7, size);
                    let moved = Mimalloc.realloc(block, layout, size * 2);
                    assert!(moved.addr().is_multiple_of(align), "{layout:?}");
                    assert!((0..size).all(|at| moved.add(at).read() == 7), "{layout:?}");
                    Mimalloc.dealloc(
                        moved,
                        Layout::from_size_align(size * 2, align).expect("a power of two"),
                    );
                    Mimalloc.dealloc(zeroed, layout);
                }
            }
        }
    }
}
