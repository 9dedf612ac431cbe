//! `delay` holds requests back for a random time, for tests of software above a slow server.
//!
//! Invariants
//! - Of all requests, `pct` percent are held, each decided on its own; FIFO takes the others.
//! - A held request leaves no earlier than `min` after its arrival at the head. If the head is
//!   asked for it, it leaves no later than a tick after `max`.
//!
//! Lustre: `nrs_delay.c`, which holds 51 % at `pct` 50 and takes whole seconds only.

use queues::{Wheel, WheelHandle};
use types::{Instant, Span, SplitMix64};

use crate::{
    Broken, Descriptor, Id, Mode, Next, Policy, Queue, Refusal, Refused, Removal, Request, Start,
    Tunable, number_in,
};
use std::rc::Rc;

/// `nrs_delay_min`.
const MIN_DEFAULT: Span = Span::secs(5);
/// `nrs_delay_max`.
const MAX_DEFAULT: Span = Span::secs(300);
/// `nrs_delay_pct`.
const PCT_DEFAULT: u64 = 100;
/// Either bound at most, seconds.
const SECS_MAX: u64 = 65_535;

const DELAY_MIN: &str = "delay_min";
const DELAY_MAX: &str = "delay_max";
const DELAY_PCT: &str = "delay_pct";

const TUNABLES: &[Tunable] = &[
    Tunable::labelled("nrs_delay_min", DELAY_MIN),
    Tunable::labelled("nrs_delay_max", DELAY_MAX),
    Tunable::labelled("nrs_delay_pct", DELAY_PCT),
    Tunable::reset("nrs_delay_reset"),
];

/// See the head of the file.
struct Delay {
    min: Span,
    max: Span,
    pct: u64,
    held: Wheel<Id>,
    chance: SplitMix64,
}

/// The policy, for registration.
pub fn delay<R: Request + 'static>() -> Descriptor<R> {
    let make = |start: &Start<'_>| {
        if !start.arg.is_empty() {
            return Err(Refusal::invalid(format!("delay takes no argument, not '{}'", start.arg)));
        }
        let one = |part: &crate::Part| {
            let seed = SplitMix64::new(start.seed ^ u64::from(part.number())).bits();
            Box::new(Delay::new(seed, start.now)) as Box<dyn Policy<R>>
        };
        Ok(start.partitions.iter().map(one).collect())
    };
    Descriptor { name: "delay", service: None, tunables: TUNABLES, make: Rc::new(make) }
}

impl Delay {
    fn new(seed: u64, now: Instant) -> Delay {
        Delay {
            min: MIN_DEFAULT,
            max: MAX_DEFAULT,
            pct: PCT_DEFAULT,
            held: Wheel::new(now),
            chance: SplitMix64::new(seed),
        }
    }

    fn draw(&mut self) -> Span {
        let ticks = (self.max.0 - self.min.0) / Span::millis(1).0;
        Span(self.min.0 + Span::millis(self.chance.below(ticks + 1)).0)
    }
}

impl<R: Request> Policy<R> for Delay {
    fn enqueue(&mut self, queue: &mut Queue<R>, id: Id, now: Instant) -> Result<(), Refused> {
        if self.chance.below(100) >= self.pct {
            return Err(Refused::NotMine);
        }
        let until = now + self.draw();
        let handle = self.held.insert(until, id);
        queue.set_tag(id, u64::from(handle.number()));
        Ok(())
    }

    fn dequeue(&mut self, _queue: &mut Queue<R>, now: Instant, force: bool) -> Next {
        let next =
            self.held.pop(now).or_else(|| if force { self.held.pop_earliest() } else { None });
        match (next, self.held.next()) {
            (Some(id), _) => Next::Take(id),
            (None, Some(until)) => Next::NotBefore(until),
            (None, None) => Next::Empty,
        }
    }

    fn remove(
        &mut self,
        queue: &mut Queue<R>,
        id: Id,
        _now: Instant,
        _why: Removal,
    ) -> Result<(), Broken> {
        let handle = u32::try_from(queue.tag(id))
            .map_err(|_| Broken::new("a held request without a time"))?;
        self.held.remove(WheelHandle::from_number(handle));
        Ok(())
    }

    fn get(&self, label: &str, _now: Instant) -> Result<String, Refusal> {
        match label {
            DELAY_MIN => Ok(print_time(self.min)),
            DELAY_MAX => Ok(print_time(self.max)),
            DELAY_PCT => Ok(self.pct.to_string()),
            _ => Err(Refusal::invalid(format!("'{label}' is not a tunable"))),
        }
    }

    /// A new bound counts for requests that come from then on.
    fn set(
        &mut self,
        _queue: &mut Queue<R>,
        label: &str,
        value: &str,
        mode: Mode,
        _now: Instant,
    ) -> Result<(), Refusal> {
        let (mut min, mut max, mut pct) = (self.min, self.max, self.pct);
        match label {
            DELAY_MIN => min = parse_time(label, value, SECS_MAX)?,
            DELAY_MAX => max = parse_time(label, value, SECS_MAX)?,
            DELAY_PCT => pct = number_in(label, value, 0..=100)?,
            _ => return Err(Refusal::invalid(format!("'{label}' is not a tunable"))),
        }
        if min > max {
            let text = format!(
                "{label} '{value}': delay_min {} would be above delay_max {}",
                print_time(min),
                print_time(max)
            );
            return Err(Refusal::invalid(text));
        }
        if mode == Mode::Apply {
            (self.min, self.max, self.pct) = (min, max, pct);
        }
        Ok(())
    }

    fn reset(&mut self, _queue: &mut Queue<R>, _now: Instant) {
        (self.min, self.max, self.pct) = (MIN_DEFAULT, MAX_DEFAULT, PCT_DEFAULT);
    }

    fn stats(&self, out: &mut String) {
        out.push_str(&format!("  held: {}\n", self.held.len()));
    }

    fn log(&self, queue: &Queue<R>, id: Id) -> String {
        format!(
            "NRS start delay request from 12345-{}, seq: {}",
            queue.request(id).nid(),
            queue.seq(id)
        )
    }
}

/// `5` in seconds, or `250ms`; at most `secs_max` seconds.
pub(crate) fn parse_time(label: &str, value: &str, secs_max: u64) -> Result<Span, Refusal> {
    let (number, max, unit) = match value.strip_suffix("ms") {
        Some(ms) => (ms, secs_max * 1_000, Span::millis as fn(u64) -> Span),
        None => (value, secs_max, Span::secs as fn(u64) -> Span),
    };
    let number = number_in(label, number, 0..=max);
    number.map(unit).map_err(|_| {
        Refusal::invalid(format!(
            "{label} '{value}': 0 to {secs_max} seconds, or as 250ms, is expected"
        ))
    })
}

/// The same way round.
pub(crate) fn print_time(span: Span) -> String {
    let ms = span.as_millis();
    if ms.is_multiple_of(1_000) { (ms / 1_000).to_string() } else { format!("{ms}ms") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{Req, Server, ms};

    fn delayed(tunables: &[(&str, &str)]) -> Server {
        let mut server = Server::new(1, &[delay()]);
        server.select("delay").expect("it starts");
        for (parameter, value) in tunables {
            server
                .set(parameter, value)
                .unwrap_or_else(|error| panic!("{parameter}={value}: {error}"));
        }
        server
    }

    #[test]
    fn requests_leave_between_the_bounds_and_spread_over_them() {
        let mut server = delayed(&[("nrs_delay_min", "250ms"), ("nrs_delay_max", "2")]);
        for number in 0..2_000 {
            server.enqueue(0, Req { number, ..Req::default() });
        }
        let left = server.run(ms(3_000), u64::MAX);
        let times: Vec<u64> = left.iter().map(|left| left.at.0 / 1_000_000).collect();
        assert_eq!(times.len(), 2_000);
        assert!(times.iter().all(|at| (250..=2_001).contains(at)), "{:?}", times.iter().max());
        assert!(times[0] < 270 && times[1_999] > 1_980, "both ends are reached");
        let middle = times.iter().filter(|at| **at < 1_125).count();
        assert!((900..1_100).contains(&middle), "uniform: {middle} of 2,000 in the first half");
    }

    #[test]
    fn the_percentage_is_exact_at_its_ends_and_near_in_between() {
        for (pct, range) in
            [("0", 0..=0), ("100", 10_000..=10_000), ("50", 4_800..=5_200), ("1", 60..=140)]
        {
            let mut server = delayed(&[("nrs_delay_pct", pct)]);
            (0..10_000).for_each(|number| server.enqueue(0, Req { number, ..Req::default() }));
            let at_once = server.run(ms(1), u64::MAX).len();
            assert!(range.contains(&(10_000 - at_once)), "pct {pct}: {at_once} were not held");
        }
    }

    #[test]
    fn bounds_are_checked_and_printed() {
        let mut server = delayed(&[]);
        assert_eq!(server.get("nrs_delay_min"), "reg_delay_min:5\n");
        assert_eq!(server.get("nrs_delay_max"), "reg_delay_max:300\n");
        assert_eq!(server.get("nrs_delay_pct"), "reg_delay_pct:100\n");
        for (parameter, value) in [
            ("nrs_delay_min", "301"),
            ("nrs_delay_max", "4"),
            ("nrs_delay_max", "65536"),
            ("nrs_delay_max", "65535001ms"),
            ("nrs_delay_min", "-1"),
            ("nrs_delay_min", "1s"),
            ("nrs_delay_pct", "101"),
        ] {
            let refusal = server.set(parameter, value).expect_err(value);
            assert_eq!(refusal.errno, types::Errno::EINVAL);
            assert!(refusal.text.contains(value), "{refusal}");
        }
        server.set("nrs_delay_min", "reg_delay_min:1500ms").expect("in range");
        assert_eq!(server.get("nrs_delay_min"), "reg_delay_min:1500ms\n");
        assert!(server.select("delay 5").is_err());
        assert!(server.set("nrs_delay_reset", "0").is_err());
        server.set("nrs_delay_pct", "7").expect("in range");
        server.set("nrs_delay_reset", "1").expect("its only value");
        assert_eq!(
            server.get("nrs_delay_min") + &server.get("nrs_delay_pct"),
            "reg_delay_min:5\nreg_delay_pct:100\n"
        );
        assert_eq!(server.get("nrs_delay_reset"), "reg_reset:0\n");
    }

    #[test]
    fn held_requests_can_be_removed_or_released_in_order() {
        let mut server = delayed(&[]);
        let handles: Vec<_> =
            (0..100).map(|number| server.put(0, Req { number, ..Req::default() })).collect();
        for handle in handles.iter().step_by(2) {
            assert!(server.heads[0].remove(*handle, ms(0), Removal::Gone).is_some());
        }
        server.heads[0].end();
        let mut left: Vec<u64> =
            server.run(ms(1), u64::MAX).iter().map(|left| left.number).collect();
        left.sort_unstable();
        assert_eq!(left, (0..100).skip(1).step_by(2).collect::<Vec<_>>());
        assert!(server.heads[0].take_disabled().is_empty());
    }
}
