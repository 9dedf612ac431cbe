//! Storage devices that are not there: how long a flash device or a disk would take, for
//! experiments and for the simulator.
//!
//! A [`Model`] is a set of numbers; [`Device`] is one device with what waits for it. Neither knows
//! a clock: the caller says what time it is, and asks when something is done. The model and its
//! figures are explained in `docs/design/device.md`.

mod model;
mod queue;

pub use model::{BadModel, Model};
pub use queue::{Device, Kind, Request, Stats, Ticket};
