//! The body in memory.
