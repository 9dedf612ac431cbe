//! Good histories are explained, known bad histories are refused.

use std::collections::BTreeMap;

use super::*;

fn entry<C>(who: u32, begin: u64, end: u64, call: C) -> Entry<C> {
    Entry { who, begin, end: Some(end), call }
}

fn unknown<C>(who: u32, begin: u64, call: C) -> Entry<C> {
    Entry { who, begin, end: None, call }
}

fn read(at: usize, count: usize, found: &[u32]) -> PagesCall {
    PagesCall::Read { at, count, found: found.to_vec() }
}

fn write(at: usize, count: usize, id: u32) -> PagesCall {
    PagesCall::Write { at, count, id }
}

fn good<S: Spec>(spec: &S, entries: &[Entry<S::Call>]) {
    if let Err(breach) = check(spec, entries) {
        panic!("{breach}");
    }
}

fn bad<S: Spec>(spec: &S, entries: &[Entry<S::Call>]) -> String {
    check(spec, entries).expect_err("no order explains it").0
}

#[test]
fn a_read_after_a_write_sees_it() {
    let wrote = entry(1, 0, 10, write(0, 2, 7));
    good(&Pages, &[wrote.clone(), entry(2, 11, 20, read(0, 4, &[7, 7]))]);
    let stale = bad(&Pages, &[wrote.clone(), entry(2, 11, 20, read(0, 4, &[]))]);
    assert!(stale.contains("no order explains user 2: Read"), "{stale}");
    bad(&Pages, &[wrote, entry(2, 11, 20, read(0, 4, &[7]))]);
}

#[test]
fn a_read_beside_a_write_sees_it_or_not_but_no_half_of_it() {
    let with = |found: &[u32]| [entry(1, 0, 10, write(0, 2, 7)), entry(2, 5, 8, read(0, 4, found))];
    good(&Pages, &with(&[]));
    good(&Pages, &with(&[7, 7]));
    bad(&Pages, &with(&[7, 0]));
    bad(&Pages, &with(&[7]));
}

#[test]
fn what_was_seen_once_is_not_unseen() {
    let seen = |first: &[u32], second: &[u32]| {
        [
            entry(1, 0, 100, write(0, 1, 7)),
            entry(2, 10, 20, read(0, 1, first)),
            entry(3, 30, 40, read(0, 1, second)),
        ]
    };
    good(&Pages, &seen(&[], &[7]));
    good(&Pages, &seen(&[7], &[7]));
    bad(&Pages, &seen(&[7], &[]));
}

#[test]
fn a_lost_write_is_noticed_behind_others() {
    bad(
        &Pages,
        &[
            entry(1, 0, 10, write(0, 1, 1)),
            entry(1, 20, 30, write(0, 1, 2)),
            entry(2, 40, 50, read(0, 1, &[1])),
        ],
    );
}

#[test]
fn an_unknown_write_comes_late_or_never_but_not_before_its_begin() {
    let late = |begin: u64, found: [u32; 2]| {
        [
            unknown(1, begin, write(0, 1, 9)),
            entry(2, 0, 10, write(0, 1, 1)),
            entry(2, 100, 110, read(0, 1, &found[..1])),
            entry(2, 200, 210, read(0, 1, &found[1..])),
        ]
    };
    good(&Pages, &late(5, [1, 1]));
    good(&Pages, &late(5, [1, 9]));
    good(&Pages, &late(5, [9, 9]));
    bad(&Pages, &late(5, [9, 1]));
    good(&Pages, &late(150, [1, 9]));
    bad(&Pages, &late(150, [9, 9]));
}

#[test]
fn appends_do_not_overlap_and_sizes_follow() {
    let append = |id| PagesCall::Append(Append { count: 2, id });
    let both = |found: &[u32]| {
        [
            entry(1, 0, 10, append(1)),
            entry(2, 0, 10, append(2)),
            entry(3, 20, 30, read(0, 9, found)),
        ]
    };
    good(&Pages, &both(&[1, 1, 2, 2]));
    good(&Pages, &both(&[2, 2, 1, 1]));
    bad(&Pages, &both(&[1, 1]));
    bad(&Pages, &both(&[1, 2, 1, 2]));
    bad(&Pages, &both(&[1, 1, 0, 0, 2, 2]));
    let sized = |found| {
        [
            entry(1, 0, 10, append(1)),
            entry(2, 20, 30, PagesCall::Truncate { to: 1 }),
            entry(3, 25, 40, PagesCall::Size { found }),
        ]
    };
    good(&Pages, &sized(1));
    good(&Pages, &sized(2));
    bad(&Pages, &sized(3));
}

#[test]
fn what_was_cut_off_reads_as_zeros() {
    let cut = |found: &[u32]| {
        [
            entry(1, 0, 10, write(0, 3, 7)),
            entry(1, 20, 30, PagesCall::Truncate { to: 1 }),
            entry(1, 40, 50, PagesCall::Truncate { to: 3 }),
            entry(1, 60, 70, PagesCall::Punch { at: 0, count: 1 }),
            entry(2, 80, 90, read(0, 3, found)),
        ]
    };
    good(&Pages, &cut(&[0, 0, 0]));
    bad(&Pages, &cut(&[0, 7, 7]));
    bad(&Pages, &cut(&[7, 0, 0]));
}

#[test]
fn blocks_are_registers_and_ends_only_rise() {
    let block = |seen| {
        [
            entry(1, 0, 10, BlockCall::Write(4)),
            unknown(2, 5, BlockCall::Write(5)),
            entry(3, 20, 30, BlockCall::Read(seen)),
        ]
    };
    good(&Block, &block(4));
    good(&Block, &block(5));
    bad(&Block, &block(0));
    let end =
        |low, high| [entry(1, 0, 10, EndCall::Raise(4)), entry(2, 20, 30, EndCall::Saw(low, high))];
    assert_eq!(check_ends(&end(4, 4)), Ok(()));
    assert_eq!(check_ends(&end(0, 9)), Ok(()));
    assert!(check_ends(&end(0, 3)).is_err() && check_ends(&end(5, 9)).is_err());
    let twice = |second| {
        [
            unknown(1, 0, EndCall::Raise(4)),
            entry(2, 20, 30, EndCall::Saw(4, 4)),
            entry(3, 40, 50, EndCall::Saw(second, second)),
        ]
    };
    assert_eq!(check_ends(&twice(4)), Ok(()));
    assert!(check_ends(&twice(0)).is_err(), "what was seen once is not unseen");
}

fn names() -> Names {
    Names { dirs: vec![2, 2] }
}

fn create(place: u8, id: u32, told: Told) -> NamesCall {
    NamesCall::Create { place, id, mode: 0o600, told }
}

fn lookup(place: u8, found: Option<(u32, u32)>) -> NamesCall {
    let found = found.map(|(id, links)| (id, Seen { links, mode: 0o600 }));
    NamesCall::Lookup { place, found }
}

#[test]
fn an_exclusive_create_has_one_winner() {
    let two = |first, second| {
        [entry(1, 0, 10, create(0, 1, first)), entry(2, 0, 10, create(0, 2, second))]
    };
    good(&names(), &two(Told::Done, Told::Taken));
    good(&names(), &two(Told::Taken, Told::Done));
    bad(&names(), &two(Told::Done, Told::Done));
    bad(&names(), &two(Told::Taken, Told::Taken));
}

#[test]
fn a_create_that_finds_its_file_gone_has_made_it() {
    let made = entry(1, 0, 100, create(0, 1, Told::Absent));
    let unlink = entry(2, 10, 20, NamesCall::Unlink { place: 0, told: Told::Done });
    let looks = |found| entry(3, 110, 120, lookup(0, found));
    good(&names(), &[made.clone(), unlink.clone(), looks(None)]);
    bad(&names(), &[made.clone(), unlink, looks(Some((1, 1)))]);
    bad(&names(), &[made, looks(None)]);
}

#[test]
fn a_name_that_is_gone_is_not_found_again() {
    let gone = |found, links| {
        [
            entry(1, 0, 10, create(0, 1, Told::Done)),
            entry(1, 20, 30, NamesCall::Link { id: 1, place: 2, told: Told::Done }),
            entry(2, 40, 50, NamesCall::Unlink { place: 0, told: Told::Done }),
            entry(3, 60, 70, lookup(0, found)),
            entry(3, 80, 90, lookup(2, Some((1, links)))),
        ]
    };
    good(&names(), &gone(None, 1));
    bad(&names(), &gone(Some((1, 2)), 1));
    bad(&names(), &gone(None, 2));
}

#[test]
fn a_rename_shows_the_file_under_one_name_always() {
    let moved = |from: &[(u8, u32)], to: &[(u8, u32)]| {
        let list = |dir, found: &[(u8, u32)]| NamesCall::List {
            dir,
            found: found.iter().copied().collect::<BTreeMap<_, _>>(),
        };
        let rename =
            NamesCall::Rename { from: 0, to: 1, how: RenameHow::Replace, told: Told::Done };
        [
            entry(1, 0, 10, create(0, 1, Told::Done)),
            entry(1, 20, 60, rename),
            entry(2, 30, 40, list(0, from)),
            entry(2, 70, 80, list(0, to)),
        ]
    };
    good(&names(), &moved(&[(0, 1)], &[(1, 1)]));
    good(&names(), &moved(&[(1, 1)], &[(1, 1)]));
    bad(&names(), &moved(&[], &[(1, 1)]));
    bad(&names(), &moved(&[(0, 1), (1, 1)], &[(1, 1)]));
    bad(&names(), &moved(&[(1, 1)], &[(0, 1)]));
}

#[test]
fn a_directory_shows_what_it_holds() {
    let taken = |found| {
        [
            entry(1, 0, 10, create(2, 1, Told::Done)),
            entry(1, 20, 30, create(3, 2, Told::Done)),
            entry(2, 40, 50, NamesCall::Unlink { place: 2, told: Told::Done }),
            entry(3, 60, 70, NamesCall::Taken { dir: 1, found }),
        ]
    };
    good(&names(), &taken(0b10));
    bad(&names(), &taken(0b11));
    bad(&names(), &taken(0b01));
}

#[test]
fn an_unknown_create_may_have_made_the_file_once() {
    let made = |first, second| {
        [
            unknown(1, 0, create(0, 1, Told::Done)),
            entry(2, 20, 30, lookup(0, first)),
            entry(2, 40, 50, NamesCall::Unlink { place: 0, told: Told::Done }),
            entry(2, 60, 70, lookup(0, second)),
        ]
    };
    good(&names(), &made(Some((1, 1)), None));
    good(&names(), &made(None, None));
    bad(&names(), &made(Some((1, 1)), Some((1, 1))));
}

#[test]
fn a_file_without_a_name_is_gone_or_has_no_link() {
    let stat = |found| {
        [
            entry(1, 0, 10, create(0, 1, Told::Done)),
            entry(1, 20, 30, NamesCall::Unlink { place: 0, told: Told::Done }),
            entry(2, 40, 50, NamesCall::Stat { id: 1, found }),
        ]
    };
    let seen = |links| Some(Seen { links, mode: 0o600 });
    good(&names(), &stat(None));
    good(&names(), &stat(seen(0)));
    bad(&names(), &stat(seen(1)));
}

#[test]
fn a_long_history_with_many_unknown_outcomes_is_decided() {
    let mut entries = Vec::new();
    for round in 0..400u64 {
        let id = round as u32 + 1;
        entries.push(entry(1, round * 10, round * 10 + 9, write(0, 1, id)));
        entries.push(entry(2, round * 10 + 3, round * 10 + 5, read(0, 1, &[id])));
        if round % 40 == 0 {
            entries.push(unknown(3, round * 10 + 1, write(1, 1, 1_000 + id)));
        }
    }
    // of an unknown write nothing was ever seen: the file has one cell
    good(&Pages, &entries);
    entries.push(entry(4, 4_001, 4_002, read(0, 1, &[399])));
    bad(&Pages, &entries);
}

#[test]
fn unknown_outcomes_that_leave_no_trace_do_not_multiply() {
    let mut entries = Vec::new();
    for who in 0..8u32 {
        let append = PagesCall::Append(Append { count: 1, id: 1_000 + who });
        entries.push(unknown(who, u64::from(who), append));
    }
    for round in 0..60u64 {
        let (at, id) = (1_000 + round * 100, round as u32 + 1);
        entries.push(entry(30, at, at + 50, PagesCall::Append(Append { count: 1, id })));
        entries.push(entry(31, at, at + 50, PagesCall::Truncate { to: 0 }));
        entries.push(entry(32, at + 10, at + 20, read(0, 9, &[])));
    }
    entries.push(entry(30, 90_000, 90_010, PagesCall::Truncate { to: 0 }));
    entries.push(entry(30, 90_020, 90_030, read(0, 9, &[1_007])));
    good(&Pages, &entries);
    entries.push(entry(30, 90_040, 90_050, read(0, 9, &[60])));
    bad(&Pages, &entries);
}
