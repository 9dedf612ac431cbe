//! fusedev
