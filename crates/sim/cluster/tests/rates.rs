//! Rates of four MDTs beside one, and of files of several components beside plain ones, in virtual
//! time. The figures are printed.

use cluster::rates::{MdtRates, Spread, StreamRates, metadata, streams};

const SEED: u64 = 1;
/// Rates of four MDTs, of one's.
const REMOTE_LEAST: f64 = 3.6;
const STRIPED_LEAST: f64 = 3.2;
/// CPU time of an operation on four MDTs, of the same on one.
const CPU_MOST: f64 = 1.05;
/// A stream into a file of several components, of one into a plain file.
const STREAM_LEAST: f64 = 0.98;
/// Lookups a second, above the reads that the MDT's device does in a second.
const LOOK_UPS_LEAST: f64 = 20_000.0;

/// CPU time of requests, microseconds: of a create with its close, and of a message.
const CREATE_US: f64 = 10.0;
const MESSAGE_US: f64 = 2.24;

fn check(spread: Spread, least: f64) {
    let rows = metadata(SEED, spread);
    println!("{spread:?}\n{}", MdtRates::HEADER);
    rows.iter().for_each(|row| println!("{row}"));
    for row in &rows {
        assert!(row.ratio() >= least, "at least {least}: {row}");
        assert!(row.cpu_ratio() <= CPU_MOST, "at most {CPU_MOST} of the CPU time: {row}");
        let is_look_up = row.what == "stat";
        assert!(!is_look_up || row.one.per_sec > LOOK_UPS_LEAST, "answered from memory: {row}");
    }
    // each MDT has one core, so it executes no more than its requests leave time for
    let expected = [("create", CREATE_US), ("stat", MESSAGE_US), ("open", CREATE_US)];
    for (row, (what, us)) in rows.iter().zip(expected) {
        assert_eq!(row.what, what);
        assert!((0.999 * us..1.05 * us).contains(&row.one.cpu_us), "{us} us of requests: {row}");
        assert!(row.one.per_sec <= 1e6 / us, "one core: {row}");
    }
}

#[test]
fn directories_of_four_mdts_have_nearly_four_times_the_rates_of_one() {
    check(Spread::Remote, REMOTE_LEAST);
}

#[test]
fn a_directory_over_four_mdts_has_more_than_three_times_the_rates_of_one() {
    check(Spread::Striped, STRIPED_LEAST);
}

#[test]
fn streams_through_components_are_as_fast_as_plain_ones() {
    let rows = streams(SEED);
    println!("{}", StreamRates::HEADER);
    rows.iter().for_each(|row| println!("{row}"));
    for row in &rows {
        assert!(row.ratio() >= STREAM_LEAST, "at least {STREAM_LEAST}: {row}");
    }
}
