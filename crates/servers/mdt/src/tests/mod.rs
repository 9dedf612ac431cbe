//! The engine under test, without sessions and network: examples as text, a naive model, restarts
//! with replays.

mod close;
mod closes;
mod components;
mod connected;
mod damaged;
mod drawn;
mod forged;
mod getattrs;
mod hostile;
mod leases;
mod mend;
mod model;
mod put;
mod readonly;
mod recovery;
mod restated;
mod rig;
mod script;
mod som;
mod stated;
pub(crate) mod store;
mod striped;
mod swap;
mod unnamed;
