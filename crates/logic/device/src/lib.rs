//! Models of storage devices: how long a flash device or a disk would take, for experiments and for
//! the simulator.
//!
//! A [`Model`] is a set of numbers; [`Device`] is one device with the requests that wait for it.
//! Neither has a clock: the caller passes in the time, and asks when something is done. The model
//! and its figures are explained in `docs/design/device.md`.

mod model;
mod queue;

pub use model::{BadModel, Model};
pub use queue::{Device, Kind, Request, Stats, Ticket};
