//! osd-disk
