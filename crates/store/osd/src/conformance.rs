//! The suite that every implementation passes. It checks the promises of the traits, as plain
//! functions over a factory.
//!
//! The suite depends on no executor: the caller passes a `block_on`. A case gets a **bed**, a fresh
//! store that can be opened, dropped without a shutdown, and opened again:
//! ```ignore
//! conformance::meta_suite(&|case| sim.block_on(&node, case), &|bytes| MetaBed { open: .., crash: .. });
//! ```
//! Before a case opens a store again, it has dropped every handle of the old opening and called
//! `crash`. So an implementation that allows one opening at a time is fine.

mod meta;
mod obj;

use std::rc::Rc;

use env::LocalFuture;

use crate::{MetaStore, ObjStore};

/// Opens a store, again after a crash.
pub type Open<S> = Box<dyn Fn() -> Rc<S>>;

/// A fresh store of records for one case.
pub struct MetaBed {
    /// Opens it. The first opening finds it empty.
    pub open: Open<dyn MetaStore>,
    /// The process that had it open is dead: what it had not committed is lost.
    pub crash: Box<dyn Fn()>,
}

/// A fresh store of objects for one case.
pub struct ObjBed {
    /// Opens it. The first opening finds it empty.
    pub open: Open<dyn ObjStore>,
    /// The machine that had it open lost its power. A body that cannot play that does nothing.
    pub crash: Box<dyn Fn()>,
    /// Whether the body keeps to the room that it was given: else the cases about a full store are
    /// left out.
    pub is_bounded: bool,
}

/// Room that a case asks for where it does not matter.
pub const ROOM_BYTES: u64 = 256 << 20;
/// Room in the cases about a full store.
pub const ROOM_BYTES_SMALL: u64 = 4 << 20;

/// A case on records.
pub type MetaCase = fn(MetaBed) -> LocalFuture<'static, ()>;
/// A case on objects.
pub type ObjCase = fn(ObjBed) -> LocalFuture<'static, ()>;

pub use meta::CASES as META_CASES;
pub use obj::CASES as OBJ_CASES;

/// Runs all cases on records. `fresh` makes a bed with room for about so many bytes.
pub fn meta_suite(block_on: &dyn Fn(LocalFuture<'static, ()>), fresh: &dyn Fn(u64) -> MetaBed) {
    for (room, case) in META_CASES {
        block_on(case(fresh(*room)));
    }
}

/// Runs all cases on objects. `fresh` makes a bed with room for about so many bytes.
pub fn obj_suite(block_on: &dyn Fn(LocalFuture<'static, ()>), fresh: &dyn Fn(u64) -> ObjBed) {
    for (room, case) in OBJ_CASES {
        block_on(case(fresh(*room)));
    }
}
