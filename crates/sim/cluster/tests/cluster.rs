//! All tests of the simulated cluster in one binary: each would compile the same crates again.

mod closes;
mod crashed_mdts;
mod fresh;
mod full;
mod hits;
mod inodes;
mod kept;
mod listings;
mod locks;
mod many;
mod mdts;
mod migrations;
mod names;
mod on_open;
mod planted;
mod projects;
mod put;
mod rates;
mod recalls;
mod resting;
mod seeds;
mod shrink;
mod soft;
mod som;
mod space;
