//! The parts that every target (MGS, MDT, OST) has:
//! - a start that raises the boot epoch
//! - the records of clients and replies
//! - the loop that brings a change into the store
//! - the commit loop
//! - the end after a failure of the storage
//! - the tables of counters by client and by job
//!
//! A target keeps its records through one [`Store`]. [`Store::persist`] is the only loop that waits
//! for commits, leases and room. [`Pace`] decides when the next commit begins. [`Failure`] is how
//! an instance ends: nothing is answered after it.
//!
//! Crates of targets depend on this crate and not on each other.

mod boot;
mod clients;
mod data;
mod device;
mod error;
mod failure;
mod frozen;
#[doc(hidden)]
pub mod fuzz;
mod limits;
mod lines;
mod marks;
mod pace;
mod params;
mod space;
mod store;

pub use self::device::Device;
pub use self::params::{Leaves, Place, register_device, register_params};
pub use boot::{above, all, begin, from_reserve, next_instance, reserve, word};
pub use clients::{
    Replies, forget, known_clients, note, records_of, remember, replies, reply_record,
};
pub use data::{Data, NewFile};
pub use error::{Decided, OpError, StartError};
pub use failure::Failure;
pub use lines::{Job, Lines};
pub use marks::{Marks, register_marks};
pub use pace::Pace;
pub use space::statfs;
pub use store::Store;
