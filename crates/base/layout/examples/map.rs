//! Cost of mapping: ten components of 200 stripes each, read through once in extents of 64 MiB.
//!
//! To get the cost of one piece, run this under `valgrind --tool=callgrind` and divide the
//! instructions of `main` by the number of pieces that it prints.

use std::hint::black_box;

use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{FileLayout, Layout, Template};
use types::{Extent, Fid};

const COMPONENTS: u64 = 10;
const STRIPES: u16 = 200;
const STRIPE_BYTES: u32 = 1 << 20;
const EXTENT_BYTES: u64 = 64 << 20;
/// Four rounds of each component's objects.
const COMPONENT_BYTES: u64 = 4 * STRIPES as u64 * STRIPE_BYTES as u64;

fn main() {
    let wanted = Template {
        stripe_size: STRIPE_BYTES,
        stripe_count: i32::from(STRIPES),
        ..Template::default()
    };
    let end = |index| if index == COMPONENTS { END_OF_FILE } else { index * COMPONENT_BYTES };
    let component =
        |index| TemplateComponent { end: end(index), wanted: Wanted::Striped(wanted.clone()) };
    let template = CompositeTemplate { components: (1..=COMPONENTS).map(component).collect() };
    let mut file = template.resolve(&Template::default()).expect("a layout");
    for index in file.missing(END_OF_FILE).collect::<Vec<_>>() {
        let base = Fid::new(0x2_0001_0400, index as u32 + 1);
        file.instantiate(index, Layout::plain(base, STRIPE_BYTES, STRIPES)).expect("objects");
    }
    let file = FileLayout::composite(Fid::new(0x2_0000_0400, 1), file);
    let mut pieces = 0_u64;
    for at in (0..COMPONENTS * COMPONENT_BYTES).step_by(EXTENT_BYTES as usize) {
        let extent = Extent::new(at, at + EXTENT_BYTES).expect("not empty");
        pieces += file.pieces(black_box(extent)).map(black_box).count() as u64;
    }
    println!("{pieces} pieces");
}
