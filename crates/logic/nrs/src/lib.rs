//! nrs
