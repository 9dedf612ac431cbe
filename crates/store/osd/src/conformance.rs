//! The suite that every body passes.
