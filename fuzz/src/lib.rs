//! Fuzz targets: every decoder of bytes that another process, a disk or a person wrote.
//!
//! A target is a list of valid inputs (seeds) and a check. The check takes any bytes, panics if an
//! invariant is broken, and returns whether the decoder accepted them. If a decoder has an encoder,
//! the check decodes, encodes and decodes again.
//!
//! - `cargo test -p fuzz` checks the seeds, the stored corpus (`src/__fuzz__/TARGET/corpus`),
//!   random bytes and mutations of seeds and corpus, within the bounds in `run.rs`.
//! - `cargo xtask fuzz [TARGET] [--hours N]` lets libFuzzer search with coverage.
//!
//! A failure prints the shrunk input and a `BOLERO_RANDOM_SEED` that repeats it.

#![cfg(test)]

mod kernel;
mod layouts;
mod messages;
mod mutated;
mod records;
mod run;
mod scheduler;
mod selftest;
mod text;

/// One test per target; the module of each holds its seeds and its check.
macro_rules! targets {
    ($($name:ident: $seeds:path, $check:path;)*) => {
        /// Names of all targets.
        const NAMES: &[&str] = &[$(stringify!($name)),*];

        $(#[test]
        fn $name() {
            let target = run::Target { name: stringify!($name), seeds: $seeds, check: $check };
            target.check_seeds();
            // under libFuzzer this call does not return
            run::bounded(bolero::check!(name = target.name), run::RANDOM)
                .for_each(|input: &[u8]| _ = $check(input));
            run::bounded(bolero::check!(name = target.mutated_name()), run::MUTATED)
                .with_generator(target.mutated())
                .for_each(|input: &Vec<u8>| _ = $check(input));
        })*
    };
}

targets! {
    frame: messages::frames, messages::frame;
    hello: messages::hellos, messages::hello;
    record: messages::record_seeds, messages::records;
    request: messages::requests, messages::request;
    reply: messages::replies, messages::reply;
    config: messages::configs, messages::config;
    dirents: messages::pages, messages::dirents;
    lst_control: selftest::controls, selftest::control;
    lst_told: selftest::tolds, selftest::told;
    lov: layouts::lovs, layouts::lov;
    layout: layouts::records, layouts::record;
    lmv: layouts::lmvs, layouts::lmv;
    names: text::names, text::name;
    nid_list: text::nid_lists, text::nid_list;
    parameters: text::parameters, text::parameter;
    tbf_rule: scheduler::rules, scheduler::rule;
    nrs_commands: scheduler::commands, scheduler::command;
    mdt_records: records::mdt, mdt::fuzz::record;
    ost_records: records::ost, ost::fuzz::record;
    mgt_records: records::mgt, mgt::fuzz::record;
    client_record: records::clients, records::client;
    superblock: records::superblocks, records::superblock;
    export: records::exports, records::export;
    fuse: kernel::requests, kernel::request;
}

#[test]
fn targets_and_kept_corpora_match() {
    let kept = std::fs::read_dir(run::kept_root()).expect("the kept corpora are there");
    let mut kept: Vec<_> = kept
        .map(|entry| entry.expect("a readable folder").file_name().into_string())
        .map(|name| name.expect("names of targets are ASCII"))
        .collect();
    let mut names: Vec<_> = NAMES.iter().map(|name| (*name).to_owned()).collect();
    kept.sort_unstable();
    names.sort_unstable();
    assert_eq!(kept, names);
}
