//! The object storage device: a target's storage, behind two traits (Lustre: `osd-*`).
//!
//! [`MetaStore`] is an ordered, transactional key-value store used as **one running transaction**.
//! Operations read through a [`View`], compute a whole [`WriteSet`] and apply it.
//! [`MetaStore::commit`] makes everything applied so far durable, all or nothing, in order.
//! [`ObjStore`] keeps sparse objects of bytes.
//!
//! Implementations: [`mem`] here (running, committed and torn images, for simulation) and
//! `osd-disk` (LMDB and files). [`conformance`] is the suite that every implementation passes.

pub mod conformance;
pub mod mem;
mod meta;
mod obj;

pub use meta::{
    BEHIND_COMMIT_BYTES_MAX, KEY_BYTES_MAX, KeyRange, MetaStore, RANGE_RECORDS_MAX, StoreError,
    Table, View, WriteSet, apply, remove_all, remove_range,
};
pub use obj::{Allocate, Found, IoMode, Lowest, ObjAttr, ObjStore, Seek, Space};
