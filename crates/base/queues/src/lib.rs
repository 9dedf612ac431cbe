//! Containers with bounded steps, for queues of any length. The table in `README.md` lists them
//! with the cost of each.
//!
//! No step copies or rehashes the contents of a container, and memory is taken and released in
//! chunks. Every run of the same calls gives the same order.

mod ascending;
mod blocks;
mod fixed_map;
mod heap;
mod index;
mod limits;
mod slab;
mod wheel;

pub use ascending::Ascending;
pub use blocks::{Blocks, PLACES_END, Ring};
pub use fixed_map::FixedMap;
pub use heap::{HeapHandle, IndexedHeap};
pub use index::{Chained, Index, Key};
pub use slab::{Beside, NIL, Slab, Vacant};
pub use wheel::{TICK, Wheel, WheelHandle};
