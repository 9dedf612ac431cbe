//! daemons
