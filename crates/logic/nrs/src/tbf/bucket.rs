//! A token bucket by virtual scheduling (the GCRA of ITU-T I.371): it keeps one time instead of a
//! counter, and never loses a fraction.
//!
//! `tat` is the theoretical arrival time of the next unit. A bucket whose `tat` is now is full, and
//! one whose `tat` is `burst` units ahead is empty. A class takes a [`Ticket`] for the request at
//! the head of its queue:
//!
//! ```text
//! base  = max(tat, now - slack)              slack: 0 for an idle bucket, see below
//! ready = base + min(k, burst) * T - burst * T
//! tat   = base + k * T                       k: cost of the request, T: time of one unit
//! ```
//! There is one ticket per class and partition. Holders of tickets of one bucket take turns in the
//! order in which they asked. Classes or partitions with equal backlogs therefore get equal shares,
//! whichever of them is looked at first.
//!
//! Slack: a timer is late. Without slack, the units that a late bucket did not hand out are lost,
//! and a class gets less than its rate. A bucket with waiting requests may therefore lag behind the
//! present by [`LATE_SLACK`]. With `realtime=1` it may lag by `nrs_tbf_rt_lag`, and also when it is
//! idle. An idle normal bucket is at most full: its burst is `depth` exactly.
//!
//! Invariants
//! - Within any time t, tickets that come ready carry at most `t * rate + burst + slack * rate`
//!   units, and one request per holder.
//! - For requests of one size, tickets of one bucket come ready in the order in which they were
//!   taken.
//! - Requests that leave early put an empty bucket back by [`DEBT_MAX`] at most, or by the time of
//!   one of them.

use types::{Instant, Span};

use super::grammar::Rate;

/// How far a bucket with waiting requests may lag: ten wakeups that may be a millisecond late
/// each.
pub(crate) const LATE_SLACK: Span = Span::millis(10);

/// How far into its future a bucket pays for requests that could not wait for their turn. Without
/// a bound, a class whose overload lasted for hours would stay locked out for as long afterwards.
pub(crate) const DEBT_MAX: Span = Span::secs(60);

/// Bytes that one unit of `depth` stands for in a bucket of bytes: what a bulk transfer moves at
/// once.
pub(crate) const DEPTH_BYTES: u64 = 1 << 20;

/// Times are nanoseconds with this many bits behind the point: a byte at 1 TiB/s is 0.0009 ns.
const FRACTION_BITS: u32 = 32;

fn fine(now: Instant) -> u128 {
    u128::from(now.0) << FRACTION_BITS
}

/// How fast a bucket fills.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Pace {
    per_unit: u128, // fine nanoseconds
    burst: u64,     // units
    realtime: bool,
    lag: Span,
    bytes: bool,
}

impl Pace {
    /// Of a bucket that nobody has.
    pub(crate) const NONE: Pace =
        Pace { per_unit: 0, burst: 0, realtime: false, lag: Span::ZERO, bytes: false };

    /// `lag` is `nrs_tbf_rt_lag`; it counts for `realtime` only.
    pub(crate) fn new(rate: Rate, depth: u32, realtime: bool, lag: Span) -> Pace {
        let (per_unit, burst, bytes) = match rate {
            Rate::Rpc { milli } => (
                (1_000_000_000_000_u128 << FRACTION_BITS) / u128::from(milli),
                u64::from(depth),
                false,
            ),
            Rate::Bytes { per_second } => {
                let burst = u64::from(depth) * DEPTH_BYTES;
                ((1_000_000_000_u128 << FRACTION_BITS) / u128::from(per_second), burst, true)
            }
        };
        Pace { per_unit, burst, realtime, lag: if realtime { lag } else { LATE_SLACK }, bytes }
    }

    /// Units that a request of `bytes` costs.
    pub(crate) fn cost(&self, bytes: u64) -> u64 {
        /// What a request without data counts as.
        const PAGE: u64 = 4_096;
        if !self.bytes {
            1
        } else if bytes == 0 {
            PAGE
        } else {
            // the length is the client's word, and is checked only when the request is handled
            bytes.min(u64::from(wire::BULK_BYTES_MAX))
        }
    }

    fn time(&self, units: u64) -> u128 {
        u128::from(units) * self.per_unit
    }

    /// Between two requests without data.
    pub(crate) fn interval(&self) -> Span {
        let nanos = self.time(self.cost(0)).div_ceil(1 << FRACTION_BITS);
        Span(u64::try_from(nanos).unwrap_or(u64::MAX))
    }
}

/// A place in a bucket's order, held for the request at the head of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Ticket {
    /// The request may leave from then on.
    pub(crate) ready: Instant,
    /// It was not ready when it was taken: there were no tokens.
    pub(crate) waits: bool,
    epoch: u32,
    cost: u64,
}

/// See the head of the file. A [`Pace`] without its padding and what has happened: a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
pub(crate) struct Bucket {
    per_unit: u128,
    tat: u128,
    burst: u64,
    lag: Span,
    tickets: u32,
    epoch: u32, // raised with each change of pace
    realtime: bool,
    bytes: bool,
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    pub(crate) fn new(pace: Pace, now: Instant) -> Bucket {
        let Pace { per_unit, burst, realtime, lag, bytes } = pace;
        Bucket { per_unit, tat: fine(now), burst, lag, tickets: 0, epoch: 0, realtime, bytes }
    }

    #[inline]
    pub(crate) fn pace(&self) -> Pace {
        let Bucket { per_unit, burst, realtime, lag, bytes, .. } = *self;
        Pace { per_unit, burst, realtime, lag, bytes }
    }

    /// Whether a ticket was taken at the pace of now.
    pub(crate) fn is_current(&self, ticket: &Ticket) -> bool {
        ticket.epoch == self.epoch
    }

    /// Another pace; the bucket is full then, and tickets taken before are to be taken anew.
    pub(crate) fn set_pace(&mut self, pace: Pace, now: Instant) {
        if pace != self.pace() {
            let (tickets, epoch) = (self.tickets, self.epoch.wrapping_add(1));
            *self = Bucket { tickets, epoch, ..Bucket::new(pace, now) };
        }
    }

    /// Takes a ticket for `cost` units. `busy`: the holder has just spent or returned one, its
    /// class did not run empty.
    #[inline]
    pub(crate) fn reserve(&mut self, cost: u64, busy: bool, now: Instant) -> Ticket {
        let pace = self.pace();
        let slack = if pace.realtime || busy || self.tickets > 0 { pace.lag } else { Span::ZERO };
        let base = self.tat.max(fine(Instant(now.0.saturating_sub(slack.0))));
        let missing = pace.time(pace.burst.saturating_sub(cost));
        let ready = base.saturating_sub(missing) + ((1 << FRACTION_BITS) - 1);
        self.tat = base + pace.time(cost);
        self.tickets += 1;
        let ready = Instant(u64::try_from(ready >> FRACTION_BITS).unwrap_or(u64::MAX));
        Ticket { ready, waits: ready > now, epoch: self.epoch, cost }
    }

    /// The request of `ticket` leaves.
    #[inline]
    pub(crate) fn spend(&mut self, ticket: &Ticket, now: Instant) {
        self.tickets -= 1;
        if self.is_current(ticket) {
            let lag = Instant(now.0.saturating_sub(self.lag.0));
            self.tat = self.tat.max(fine(lag) + self.pace().time(ticket.cost));
        }
    }

    /// The request of `ticket` leaves, whether it is its time or not. It pays unless the bucket
    /// owes too much already.
    pub(crate) fn spend_early(&mut self, ticket: &Ticket, now: Instant) {
        let pace = self.pace();
        let debt_max = fine(Instant(DEBT_MAX.0)).max(pace.time(ticket.cost));
        if self.tat <= fine(now) + pace.time(pace.burst) + debt_max {
            self.spend(ticket, now);
        } else {
            self.cancel(ticket);
        }
    }

    /// The request of `ticket` went another way: its units go to whoever asks next.
    pub(crate) fn cancel(&mut self, ticket: &Ticket) {
        self.tickets -= 1;
        if self.is_current(ticket) {
            self.tat = self.tat.saturating_sub(self.pace().time(ticket.cost));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::SplitMix64;

    const RPC_100: Rate = Rate::Rpc { milli: 100_000 };

    fn ms(ms: u64) -> Instant {
        Instant(ms * 1_000_000)
    }

    /// Times, in ms, at which requests of one class leave that is asked at each millisecond of
    /// `asked`.
    fn departures(bucket: &mut Bucket, asked: impl Iterator<Item = u64>, from: u64) -> Vec<u64> {
        let mut ticket = bucket.reserve(1, false, ms(from));
        let mut out = Vec::new();
        for now in asked {
            while ticket.ready <= ms(now) {
                bucket.spend(&ticket, ms(now));
                out.push(now);
                ticket = bucket.reserve(1, true, ms(now));
            }
        }
        bucket.cancel(&ticket);
        out
    }

    #[test]
    fn a_full_bucket_gives_its_depth_at_once_and_then_its_rate() {
        let mut bucket = Bucket::new(Pace::new(RPC_100, 3, false, Span::ZERO), ms(50));
        assert_eq!(departures(&mut bucket, 50..100, 50), [50, 50, 50, 60, 70, 80, 90]);
        // idle for a second: full again, no more
        assert_eq!(departures(&mut bucket, 1_100..1_120, 1_100), [1_100, 1_100, 1_100, 1_110]);
    }

    #[test]
    fn late_looks_lose_nothing_while_requests_wait() {
        let mut bucket =
            Bucket::new(Pace::new(Rate::Rpc { milli: 5_000_000 }, 3, false, Span::ZERO), ms(0));
        let count = departures(&mut bucket, (0..10_000).step_by(7), 0).len();
        assert!((49_950..=50_010).contains(&count), "{count} of 50,000 in 10 s");
    }

    #[test]
    fn a_realtime_bucket_catches_a_stall_up_a_normal_one_not() {
        let late = |realtime| {
            let mut bucket = Bucket::new(Pace::new(RPC_100, 3, realtime, Span::secs(1)), ms(0));
            let asked = (0..1_000).chain(1_500..2_000).chain(12_000..13_000);
            departures(&mut bucket, asked, 0).len()
        };
        // awake 2.5 s of 13: the depth, and at each stall what the slack and the depth hold
        let normal = late(false);
        assert!((250..=262).contains(&normal), "{normal}");
        // the 0.5 s stall is caught up whole, the 10 s stall by the lag of one second
        let realtime = late(true);
        assert!((400..=410).contains(&realtime), "{realtime}");
    }

    #[test]
    fn a_request_beyond_the_depth_waits_for_a_full_bucket() {
        let rate = Rate::Bytes { per_second: 1 << 20 };
        let mut bucket = Bucket::new(Pace::new(rate, 1, false, Span::ZERO), ms(0));
        let first = bucket.reserve(4 << 20, false, ms(0));
        assert_eq!(first.ready, ms(0));
        bucket.spend(&first, ms(0));
        assert_eq!(bucket.reserve(1 << 20, true, ms(0)).ready, ms(4_000));
    }

    #[test]
    fn rates_below_one_work() {
        let mut bucket =
            Bucket::new(Pace::new(Rate::Rpc { milli: 1 }, 1, false, Span::ZERO), ms(0));
        assert_eq!(
            departures(&mut bucket, (0..2_000_500).step_by(100), 0),
            [0, 1_000_000, 2_000_000]
        );
    }

    #[test]
    fn a_change_of_pace_fills_the_bucket_and_voids_its_tickets() {
        let mut bucket = Bucket::new(Pace::new(RPC_100, 1, false, Span::ZERO), ms(0));
        let spent = bucket.reserve(1, false, ms(0));
        bucket.spend(&spent, ms(0));
        let waiting = bucket.reserve(1, true, ms(0));
        bucket.set_pace(Pace::new(RPC_100, 1, false, Span::ZERO), ms(1));
        assert!(bucket.is_current(&waiting), "the same pace changes nothing");
        bucket.set_pace(Pace::new(RPC_100, 2, false, Span::ZERO), ms(1));
        assert!(!bucket.is_current(&waiting));
        bucket.cancel(&waiting);
        assert_eq!(bucket.reserve(1, false, ms(1)).ready, Instant(0));
    }

    /// Any mixture of holders, costs, cancellations and late looks stays below the bound at the
    /// head of the file.
    #[test]
    fn no_mixture_exceeds_the_rate() {
        for seed in 0..40 {
            let mut chance = SplitMix64::new(seed);
            let rate = 1 + chance.below(100_000);
            let depth = 1 + chance.below(8) as u32;
            let realtime = chance.below(2) == 0;
            let mut bucket = Bucket::new(
                Pace::new(Rate::Rpc { milli: rate * 1_000 }, depth, realtime, Span::secs(1)),
                ms(0),
            );
            let holders = 1 + chance.below(6) as usize;
            let mut tickets: Vec<Option<(Ticket, u64)>> = vec![None; holders];
            let (mut now, mut units, mut most) = (Instant(0), 0_u64, 0_u64);
            for _ in 0..20_000 {
                now = now + Span(chance.below(3_000_000_000 / rate));
                let at = chance.below(holders as u64) as usize;
                match tickets[at] {
                    None => {
                        let cost = 1 + chance.below(4);
                        most = most.max(cost);
                        tickets[at] = Some((bucket.reserve(cost, chance.below(2) == 0, now), cost));
                    }
                    Some((ticket, _)) if chance.below(10) == 0 => {
                        bucket.cancel(&ticket);
                        tickets[at] = None;
                    }
                    Some((ticket, cost)) if ticket.ready <= now => {
                        bucket.spend(&ticket, now);
                        units += cost;
                        tickets[at] = None;
                    }
                    Some(_) => {}
                }
                let lag = if realtime { 1.0 } else { LATE_SLACK.as_secs_f64() };
                let held = (holders as u64 * most) as f64;
                let bound = (now - Instant(0)).as_secs_f64() * rate as f64
                    + f64::from(depth)
                    + lag * rate as f64
                    + held
                    + 1.0;
                assert!(units as f64 <= bound, "seed {seed}: {units} units, bound {bound}");
            }
        }
    }
}
