//! Names that a program is about to look up: those that end in a number which rises by one.
//!
//! ```text
//!  looked up:   f7 f8 f9 f10 | f11 ...         after four in a row the next ones are asked ahead
//!  asked ahead:              | f11 f12 | f13 f14 f15 f16 | ...      the window doubles with hits
//! ```
//! A series is a directory and the part of the names before the number. So several programs in one
//! directory, each with names of its own, are several series.
//!
//! Invariants
//! - No number of a series is asked ahead twice, and none that is not above all that were looked up
//!   in a row.
//! - At most `window_max` names are asked ahead of the one that was looked up.
//! - After 32 misses in a row, or when a fifth of at least 32 hits are misses, a series ends. It
//!   begins again with four names in a row. A name that was asked ahead in vain is a miss.
//! - If most names that were asked ahead are not there, a program is making the names. Then twice
//!   as many names in a row are wanted before the next ones are asked.
//!
//! Pure: no clock, no request; the client feeds it and asks it. Lustre: `statahead.c`, with its
//! pattern of file names (`LSA_PATTERN_FNAME`).

use std::ops::Range;

use queues::FixedMap;
use types::{Fid, Instant, Span};

/// Names in a row before more are asked for. Lustre: 4.
const RUN_MIN: u32 = 4;
/// And at most, where names are being made.
const RUN_MAX: u32 = 1_024;
/// Names that are asked ahead at first.
const WINDOW_MIN: u32 = 2;
/// Hits from which on misses are weighed against them, and misses in a row that end a series.
/// Lustre: 32 and 32.
const WEIGHED: u32 = 32;
const MISSED_MAX: u32 = 32;
/// Hits for each miss, at least.
const HITS_EACH: u32 = 4;
/// A series in which no name was looked up for so long is over. Lustre: `statahead_timeout`.
const IDLE: Span = Span::secs(30);
/// Series at a time, some 200 bytes each. Lustre: 16 scans of a mount by default, 256 at most.
const SERIES_MAX: usize = 256;
/// Digits of a number, so that it does not overflow.
const DIGITS_MAX: usize = 18;

/// What was done ahead, and how it was used. Names as in Lustre's `statahead_stats`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Series in which names were asked ahead.
    pub total: u64,
    /// Those that ended because of misses.
    pub wrong: u64,
    /// Files whose objects were asked ahead.
    pub agl_total: u64,
    /// Names that were asked ahead.
    pub fname_total: u64,
    /// Names looked up that had been asked ahead.
    pub hit_total: u64,
    /// The others of such series.
    pub miss_total: u64,
}

/// What to do when a name is looked up.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Step {
    /// It was asked ahead, and the answer is on its way.
    pub(super) waits: bool,
    /// Names to ask ahead now.
    pub(super) ahead: Option<Ahead>,
}

/// Names to ask ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Ahead {
    pub(super) dir: Fid,
    pub(super) names: Vec<Vec<u8>>,
    prefix: Box<[u8]>,
    numbers: Range<u64>,
}

#[derive(Debug)]
struct Series {
    /// The number that is expected next.
    next: u64,
    /// Digits of the names, with zeros before; 0: as many as the number has.
    width: usize,
    /// Names in a row.
    run: u32,
    /// Before more are asked for.
    run_min: u32,
    window: u32,
    /// Numbers below it have been asked ahead.
    asked: u64,
    /// First number that was asked ahead.
    first_asked: u64,
    /// Whose answer is on its way.
    under_way: Option<Range<u64>>,
    /// There are no names from here on.
    end: Option<u64>,
    hits: u32,
    misses: u32,
    missed_in_row: u32,
    used: Instant,
}

/// All series of a client.
#[derive(Default)]
pub(super) struct AllSeries {
    by_name: FixedMap<(Fid, Box<[u8]>), Series>,
    pub(super) stats: Stats,
}

impl AllSeries {
    /// A name of a directory is looked up. One that is known, and was not asked ahead, is part of
    /// no series. `window_max`: names asked ahead at most.
    pub(super) fn looked_up(
        &mut self,
        (dir, name): (Fid, &[u8]),
        is_known: bool,
        window_max: u32,
        now: Instant,
    ) -> Step {
        let Some((prefix, number, width)) = parse(name) else { return Step::default() };
        let key = (dir, Box::from(prefix));
        let is_asked = |series: &Series| series.was_asked(number);
        if is_known && !self.by_name.get(&key).is_some_and(is_asked) {
            return Step::default();
        }
        let Some(series) = self.by_name.get_mut(&key).filter(|series| series.used + IDLE > now)
        else {
            self.make_room(now);
            self.by_name.insert(key, Series::new(number, width, now));
            return Step::default();
        };
        let is_told = is_known || series.is_under_way(number);
        let is_hit = series.look_up(number, width, is_told, now);
        let is_running = series.is_running();
        self.stats.hit_total += u64::from(is_running && is_hit);
        self.stats.miss_total += u64::from(is_running && !is_hit);
        if series.is_wrong() {
            let run_min = series.run_min;
            *series = Series { run_min, ..Series::new(number, width, now) };
            self.stats.wrong += 1;
            return Step::default();
        }
        let waits = series.is_under_way(number);
        let Some(numbers) = series.ahead(window_max) else { return Step { waits, ahead: None } };
        self.stats.total += u64::from(!is_running);
        self.stats.fname_total += numbers.end - numbers.start;
        let names = numbers.clone().map(|number| series.name(&key.1, number)).collect();
        Step { waits, ahead: Some(Ahead { dir, names, prefix: key.1, numbers }) }
    }

    /// Whether the answer about a name that was asked ahead is on its way.
    pub(super) fn is_under_way(&self, dir: Fid, name: &[u8]) -> bool {
        let Some((prefix, number, _)) = parse(name) else { return false };
        let series = self.by_name.get(&(dir, Box::from(prefix)));
        series.is_some_and(|series| series.is_under_way(number))
    }

    /// Names that were asked ahead are answered: so many of the answers are of use.
    pub(super) fn answered(&mut self, ahead: &Ahead, of_use: usize) {
        let key = (ahead.dir, ahead.prefix.clone());
        let Some(series) = self.by_name.get_mut(&key) else { return };
        if series.under_way.as_ref() != Some(&ahead.numbers) {
            return; // of an earlier series of that name
        }
        series.under_way = None;
        if of_use * 2 < ahead.names.len() {
            // most are not there: the series ends, or its names are about to be made; or the MDT
            // grants none
            series.end = Some(ahead.numbers.end);
            (series.run, series.window) = (0, WINDOW_MIN);
            series.run_min = (2 * series.run_min).min(RUN_MAX);
        } else {
            series.run_min = RUN_MIN;
        }
    }

    fn make_room(&mut self, now: Instant) {
        if self.by_name.len() < SERIES_MAX {
            return;
        }
        self.by_name.retain(|_, series| series.used + IDLE > now);
        if self.by_name.len() >= SERIES_MAX {
            self.by_name.retain(|_, series| series.is_running());
        }
        if self.by_name.len() >= SERIES_MAX {
            self.by_name.clear();
        }
    }
}

impl Series {
    fn new(number: u64, width: usize, now: Instant) -> Series {
        Series {
            next: number + 1,
            width,
            run: 1,
            run_min: RUN_MIN,
            window: WINDOW_MIN,
            asked: 0,
            first_asked: u64::MAX,
            under_way: None,
            end: None,
            hits: 0,
            misses: 0,
            missed_in_row: 0,
            used: now,
        }
    }

    fn was_asked(&self, number: u64) -> bool {
        (self.first_asked..self.asked).contains(&number)
    }

    fn is_under_way(&self, number: u64) -> bool {
        self.under_way.as_ref().is_some_and(|range| range.contains(&number))
    }

    /// Whether names are being asked ahead.
    fn is_running(&self) -> bool {
        self.first_asked != u64::MAX
    }

    /// Counts a name. Says whether it was worth while that it was asked ahead: `is_told` is what
    /// came of that.
    fn look_up(&mut self, number: u64, width: usize, is_told: bool, now: Instant) -> bool {
        self.used = now;
        let was_asked = self.was_asked(number);
        if number == self.next {
            self.run = self.run.saturating_add(1);
            self.next += 1;
            self.width = self.width.max(width);
        } else if number > self.next && was_asked {
            self.next = number + 1; // another thread of the program overtakes
        } else if number + 1 != self.next && !was_asked {
            (self.run, self.next) = (1, number + 1);
        }
        if !self.is_running() {
            return false;
        }
        let is_hit = was_asked && is_told;
        if is_hit {
            self.hits = self.hits.saturating_add(1);
            self.missed_in_row = 0;
        } else {
            self.misses = self.misses.saturating_add(1);
            self.missed_in_row += 1;
        }
        is_hit
    }

    fn is_wrong(&self) -> bool {
        let is_poor = self.hits + self.misses >= WEIGHED && self.hits < HITS_EACH * self.misses;
        self.is_running() && (self.missed_in_row >= MISSED_MAX || is_poor)
    }

    /// Numbers to ask ahead now: when half the window is left, and no answer is on its way.
    fn ahead(&mut self, window_max: u32) -> Option<Range<u64>> {
        let (next, asked) = (self.next, self.asked.max(self.next));
        if self.run < self.run_min || window_max == 0 || self.under_way.is_some() {
            return None;
        }
        if self.end.is_some_and(|end| next < end) {
            return None;
        }
        self.end = None;
        let window = self.window.min(window_max);
        if asked - next > u64::from(window / 2) {
            return None;
        }
        let end = next + u64::from(window);
        if end <= asked {
            return None;
        }
        if self.is_running() {
            self.window = self.window.saturating_mul(2).min(window_max.max(WINDOW_MIN));
        }
        self.first_asked = self.first_asked.min(asked);
        self.asked = end;
        self.under_way = Some(asked..end);
        Some(asked..end)
    }

    fn name(&self, prefix: &[u8], number: u64) -> Vec<u8> {
        let width = self.width;
        [prefix, format!("{number:0width$}").as_bytes()].concat()
    }
}

/// The part before a number at the end, the number, and its digits where they begin with zero.
fn parse(name: &[u8]) -> Option<(&[u8], u64, usize)> {
    let digits = name.iter().rev().take_while(|byte| byte.is_ascii_digit()).count();
    if digits == 0 || digits > DIGITS_MAX {
        return None;
    }
    let (prefix, number) = name.split_at(name.len() - digits);
    let value = number.iter().fold(0, |value, digit| value * 10 + u64::from(digit - b'0'));
    let is_padded = digits > 1 && number[0] == b'0';
    Some((prefix, value, if is_padded { digits } else { 0 }))
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    const DIR: Fid = Fid { seq: 0x2_0000_0401, oid: 7, ver: 0 };

    fn at(secs: u64) -> Instant {
        Instant::default() + Span::secs(secs)
    }

    /// Looks names up, one after another; answers come at once, and all that was asked ahead is
    /// granted. Returns what was asked ahead.
    fn asked(all: &mut AllSeries, names: &str, window_max: u32) -> String {
        let (mut asked, mut granted) = (Vec::new(), BTreeSet::new());
        for name in names.split(' ') {
            let is_known = granted.contains(name.as_bytes());
            let step = all.looked_up((DIR, name.as_bytes()), is_known, window_max, at(0));
            if let Some(ahead) = step.ahead {
                all.answered(&ahead, ahead.names.len());
                granted.extend(ahead.names.clone());
                let names = ahead.names.into_iter().map(|name| String::from_utf8(name).unwrap());
                asked.push(names.collect::<Vec<_>>().join(" "));
            }
        }
        asked.join("; ")
    }

    #[test]
    fn after_four_names_in_a_row_the_next_are_asked_for() {
        let mut all = AllSeries::default();
        let names = "f7 f8 f9 f10 f11 f12 f13";
        let windows = "f11 f12; f13; f14 f15 f16; f17 f18 f19 f20 f21";
        assert_eq!(asked(&mut all, names, 128), windows, "when half the window is left");
        assert_eq!((all.stats.total, all.stats.hit_total, all.stats.miss_total), (1, 3, 0));
    }

    #[test]
    fn names_that_are_known_begin_no_series() {
        let mut all = AllSeries::default();
        let mut known = |name: &[u8]| all.looked_up((DIR, name), true, 128, at(0));
        let names: [&[u8]; 5] = [b"f1", b"f2", b"f3", b"f4", b"f5"];
        assert!(names.map(&mut known).iter().all(|step| *step == Step::default()));
        assert_eq!(asked(&mut all, "f6 f7 f8 f9", 128), "f10 f11");
        let step = all.looked_up((DIR, b"f10"), true, 128, at(0));
        assert!(step.ahead.is_some(), "it was asked ahead");
    }

    #[test]
    fn zeros_before_a_number_stay() {
        let mut all = AllSeries::default();
        assert_eq!(asked(&mut all, "a.0097 a.0098 a.0099 a.0100", 128), "a.0101 a.0102");
        let mut all = AllSeries::default();
        assert_eq!(asked(&mut all, "a7 a8 a9 a10", 128), "a11 a12");
    }

    #[test]
    fn series_of_several_programs_do_not_disturb_each_other() {
        let mut all = AllSeries::default();
        let mixed = "x.1.0 x.2.0 x.1.1 x.2.1 x.1.2 x.2.2 x.1.3 x.2.3";
        assert_eq!(asked(&mut all, mixed, 128), "x.1.4 x.1.5; x.2.4 x.2.5");
    }

    #[test]
    fn names_without_a_pattern_ask_for_nothing() {
        let mut all = AllSeries::default();
        assert_eq!(asked(&mut all, "a b c d e 1 3 5 7 9 9 9 9 9 f", 128), "");
        assert_eq!(asked(&mut all, "f1 f2 f3 f4 f5", 0), "", "it is switched off");
    }

    #[test]
    fn a_series_ends_with_its_misses_and_begins_again() {
        let mut all = AllSeries::default();
        assert_eq!(asked(&mut all, "f1 f2 f3 f4", 128), "f5 f6");
        let scattered: Vec<String> = (0..40).map(|at| format!("f{}", 1_000 + 3 * at)).collect();
        assert_eq!(asked(&mut all, &scattered.join(" "), 128), "");
        assert_eq!(all.stats.wrong, 1);
        assert_eq!(asked(&mut all, "f2000 f2001 f2002 f2003", 128), "f2004 f2005");
    }

    #[test]
    fn where_names_end_no_more_are_asked_for() {
        let mut all = AllSeries::default();
        for name in ["f1", "f2", "f3"] {
            all.looked_up((DIR, name.as_bytes()), false, 128, at(0));
        }
        let ahead = all.looked_up((DIR, b"f4"), false, 128, at(0)).ahead.expect("four in a row");
        assert!(all.looked_up((DIR, b"f5"), false, 128, at(0)).waits, "its answer is on its way");
        all.answered(&ahead, 0);
        assert_eq!(all.looked_up((DIR, b"f5"), false, 128, at(0)), Step::default());
    }

    #[test]
    fn few_names_are_asked_for_where_names_are_being_made() {
        let mut all = AllSeries::default();
        for number in 0..1_000 {
            let name = format!("new.{number}");
            let step = all.looked_up((DIR, name.as_bytes()), false, 128, at(0));
            if let Some(ahead) = step.ahead {
                all.answered(&ahead, 0);
            }
        }
        let asked = all.stats.fname_total;
        assert!((1..=50).contains(&asked), "twice as many in a row each time: {asked}");
    }

    #[test]
    fn names_that_are_asked_ahead_in_vain_end_a_series() {
        let mut all = AllSeries::default();
        for number in 0..100 {
            let name = format!("written.{number}"); // nothing of it is granted
            let step = all.looked_up((DIR, name.as_bytes()), false, 128, at(0));
            if let Some(ahead) = step.ahead {
                all.answered(&ahead, ahead.names.len());
            }
        }
        assert_eq!((all.stats.hit_total, all.stats.wrong > 0), (0, true));
    }

    #[test]
    fn names_that_were_asked_ahead_before_are_asked_ahead_again() {
        let names: Vec<String> = (0..200).map(|number| format!("f{number}")).collect();
        let mut all = AllSeries::default();
        asked(&mut all, &names.join(" "), 128);
        let first = all.stats.hit_total;
        asked(&mut all, &names[..100].join(" "), 128);
        assert!(all.stats.hit_total >= first + 32, "{:?}", all.stats);
    }

    #[test]
    fn a_series_that_rests_is_forgotten() {
        let mut all = AllSeries::default();
        assert_eq!(asked(&mut all, "f1 f2 f3", 128), "");
        assert_eq!(all.looked_up((DIR, b"f4"), false, 128, at(31)), Step::default());
    }

    #[test]
    fn the_window_keeps_its_bound_and_no_name_is_asked_for_twice() {
        bolero::check!().with_type::<(u32, Vec<u8>)>().with_iterations(2_000).for_each(
            |(window_max, jumps)| {
                let window_max = window_max % 300;
                let mut all = AllSeries::default();
                let (mut number, mut highest, mut granted) = (0_u64, 0, BTreeSet::new());
                for jump in jumps {
                    number += if jump % 8 == 0 { u64::from(jump / 8) } else { 1 };
                    let name = format!("f{number}");
                    let is_known = granted.contains(name.as_bytes());
                    let step = all.looked_up((DIR, name.as_bytes()), is_known, window_max, at(0));
                    let Some(ahead) = step.ahead else { continue };
                    granted.extend(ahead.names.clone());
                    let Range { start, end } = ahead.numbers;
                    assert!(start > number && start < end);
                    assert!(start >= highest || all.stats.wrong > 0, "asked for twice");
                    assert!(end - number <= u64::from(window_max) + 1);
                    assert_eq!(ahead.names.len() as u64, end - start);
                    highest = end;
                    if jump % 3 > 0 {
                        all.answered(&ahead, ahead.names.len());
                    }
                }
                assert!(all.by_name.len() <= SERIES_MAX);
            },
        );
    }
}
