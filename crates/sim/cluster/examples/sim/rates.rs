//! Rates in virtual time, as tables.

use cluster::rates::{MdtRates, Spread, StreamRates, metadata, streams};

/// The world of the tests.
pub(crate) const SEED: u64 = 1;

pub(crate) fn print(seed: u64) {
    let spreads = [
        (Spread::Remote, "directories of one MDT each"),
        (Spread::Striped, "one directory over all MDTs"),
    ];
    for (spread, title) in spreads {
        println!("{title}\n{}", MdtRates::HEADER);
        metadata(seed, spread).iter().for_each(|row| println!("{row}"));
        println!();
    }
    println!("the first MiB of a file at the MDT\n{}", StreamRates::HEADER);
    streams(seed).iter().for_each(|row| println!("{row}"));
}
