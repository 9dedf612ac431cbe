//! env-sim
