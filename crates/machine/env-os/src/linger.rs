//! Decides whether an executor that has nothing to do looks for more work for a moment before it
//! sleeps.
//!
//! Waking a thread costs 5 us of CPU. It takes some 50 us if its CPU was halted as well, and more
//! in a virtual machine. An operation of a file system is a chain of such wakes: kernel, client,
//! server, client, kernel. A thread that looks on for a moment instead (50 us by default) is there
//! when the next step of the chain comes. Three rules keep that from costing others:
//!
//! - Between two looks the executor offers its CPU (`sched_yield`). If that took longer than
//!   [`CROWDED`], another thread computes there. A thread that yields goes to the end of the line.
//!   The executor then stops looking for a while, for longer each time.
//! - It looks on only if the last pause was short, so an idle node sleeps.
//! - If looking on brought nothing more often than something, it sleeps through some pauses.
//!
//! The idea and the adaptation are those of the kernel's halt polling
//! (`drivers/cpuidle/governors/haltpoll.c`). Pure: times and events go in, decisions come out.

use types::{Instant, Span};

/// Work that came so many windows after the last work was worth looking for: if both sides look on,
/// it comes sooner.
const SHORT_WINDOWS: u64 = 8;

/// A look that finds nothing is over after some 1 us; what took longer was work.
const LOOK_MAX: Span = Span::micros(3);

/// An offer of the CPU that took so long went to somebody who computes: a request's work takes
/// less, a time slice more.
const CROWDED: Span = Span::millis(1);

/// Looking on stops for so long when the CPU is wanted ...
const PAUSE_MIN: Span = Span::millis(10);

/// ... and for twice as long each time, up to this: a slice of 3 ms then costs 0.3 %.
const PAUSE_MAX: Span = Span::secs(1);

/// After so many hits in sequence the CPU counts as free again.
const HITS_FREE: u32 = 64;

/// After so many misses that no hit made up for ...
const MISSES_MAX: u32 = 8;

/// ... so many pauses are slept through before the next try.
const SKIPS: u32 = 64;

/// Misses that a hit makes up for. A miss takes the whole window, and a hit saves a sleep and a
/// wake, which is less. With [`MISSES_MAX`] here an executor looks on although eight of nine pauses
/// are too long, as those of each of several servers are that share the requests of a client.
const HIT_WORTH: u32 = 1;

const _: () = assert!(HIT_WORTH > 0 && HIT_WORTH <= MISSES_MAX);

/// What an executor without work does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Next {
    /// Offers its CPU and looks again.
    Look,
    /// Sleeps until something wakes it.
    Sleep,
}

/// What one executor has seen.
#[derive(Debug)]
pub(crate) struct Linger {
    window: Span,
    /// While it looks on: since when there is nothing to do.
    since: Option<Instant>,
    /// While it looks on: when the last look began.
    looked: Instant,
    /// While it sleeps: since when.
    asleep: Option<Instant>,
    /// The next work is expected soon.
    expects: bool,
    hits: u32,
    misses: u32,
    skips: u32,
    /// It does not look on before.
    resume: Instant,
    pause: Span,
}

impl Linger {
    /// Looks on for `window` at most.
    pub(crate) fn new(window: Span) -> Linger {
        Linger {
            window,
            since: None,
            looked: Instant(0),
            asleep: None,
            expects: false,
            hits: 0,
            misses: 0,
            skips: 0,
            resume: Instant(0),
            pause: Span::ZERO,
        }
    }

    /// There is nothing to do at `now`.
    pub(crate) fn idle(&mut self, now: Instant) -> Next {
        if let Some(since) = self.since {
            if now - self.looked > LOOK_MAX {
                self.hit();
            } else if now - since < self.window {
                return Next::Look;
            } else {
                self.misses += 1;
                return self.sleep(now);
            }
        }
        if self.may_look(now) {
            self.since = Some(now);
            return Next::Look;
        }
        self.sleep(now)
    }

    /// It slept until `now`.
    pub(crate) fn woke(&mut self, now: Instant) {
        if let Some(asleep) = self.asleep.take() {
            self.expects = now - asleep <= Span(self.window.0 * SHORT_WINDOWS);
        }
    }

    /// An offer of the CPU took so long, up to `now`; a look follows.
    pub(crate) fn offered(&mut self, now: Instant, took: Span) {
        self.looked = now;
        if took < CROWDED {
            return;
        }
        self.pause = Span((self.pause.0 * 2).clamp(PAUSE_MIN.0, PAUSE_MAX.0));
        self.resume = now + self.pause;
        (self.since, self.expects, self.hits) = (None, false, 0);
    }

    fn hit(&mut self) {
        self.expects = true;
        self.misses = self.misses.saturating_sub(HIT_WORTH);
        self.hits += 1;
        if self.hits >= HITS_FREE {
            (self.hits, self.pause) = (0, Span::ZERO);
        }
    }

    fn may_look(&mut self, now: Instant) -> bool {
        if !self.expects || now < self.resume {
            return false;
        }
        if self.misses < MISSES_MAX {
            return true;
        }
        self.skips += 1;
        if self.skips > SKIPS {
            (self.skips, self.misses) = (0, MISSES_MAX - 1);
        }
        false
    }

    fn sleep(&mut self, now: Instant) -> Next {
        (self.since, self.asleep) = (None, Some(now));
        Next::Sleep
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WINDOW: Span = Span::micros(50);

    /// A CPU on which work comes as a test says.
    struct Cpu {
        linger: Linger,
        now: Instant,
        looked: Span,
    }

    impl Cpu {
        fn new() -> Cpu {
            Cpu { linger: Linger::new(WINDOW), now: Instant(1), looked: Span::ZERO }
        }

        /// Work, and the next one `gap` later: true if it was found awake.
        fn work(&mut self, gap: Span) -> bool {
            self.now = self.now + Span::micros(5);
            let next = self.now + gap;
            while self.linger.idle(self.now) == Next::Look {
                self.linger.offered(self.now, Span::ZERO);
                self.now = self.now + Span::micros(1);
                self.looked.0 += Span::micros(1).0;
                if self.now >= next {
                    return true;
                }
            }
            self.now = next;
            self.linger.woke(next);
            false
        }
    }

    #[test]
    fn a_chain_of_work_is_found_awake() {
        let mut cpu = Cpu::new();
        assert!(!cpu.work(Span::micros(200)), "nothing is expected at first");
        assert!((0..1_000).all(|_| cpu.work(Span::micros(20))));
    }

    #[test]
    fn an_idle_node_sleeps() {
        let mut cpu = Cpu::new();
        (0..1_000).for_each(|_| assert!(!cpu.work(Span::millis(5))));
        assert_eq!(cpu.looked, Span::ZERO);
    }

    #[test]
    fn work_that_always_comes_too_late_is_mostly_slept_for() {
        let mut cpu = Cpu::new();
        (0..10_000).for_each(|_| assert!(!cpu.work(Span::micros(100))));
        let tries = cpu.looked.0 / WINDOW.0;
        assert!(
            (10_000 / u64::from(SKIPS) / 2..10_000 / u64::from(SKIPS) * 2).contains(&tries),
            "{tries} tries"
        );
        assert!(
            (0..=SKIPS + 1).any(|_| cpu.work(Span::micros(20))),
            "it notices that work comes sooner"
        );
    }

    #[test]
    fn work_that_mostly_comes_too_late_is_mostly_slept_for() {
        let mut cpu = Cpu::new();
        for gap in [20, 100, 100].into_iter().cycle().take(9_000) {
            cpu.work(Span::micros(gap));
        }
        assert!(cpu.looked < Span::millis(60), "{:?}", cpu.looked);
        assert!((0..=SKIPS + 1).any(|_| cpu.work(Span::micros(20))), "it comes sooner");
        assert!((0..1_000).all(|_| cpu.work(Span::micros(20))));
    }

    #[test]
    fn a_cpu_that_others_want_is_left_to_them() {
        let mut cpu = Cpu::new();
        cpu.work(Span::micros(20));
        let (mut lost, end) = (Span::ZERO, Span::secs(10));
        while cpu.now - Instant(1) < end {
            if cpu.linger.idle(cpu.now) == Next::Look {
                cpu.now = cpu.now + Span::millis(3);
                lost.0 += Span::millis(3).0;
                cpu.linger.offered(cpu.now, Span::millis(3));
                assert_eq!(cpu.linger.idle(cpu.now), Next::Sleep);
            }
            cpu.now = cpu.now + Span::micros(20);
            cpu.linger.woke(cpu.now);
        }
        assert!(lost < Span::millis(60), "{lost:?} of 10 s lost to others");
        cpu.now = cpu.now + PAUSE_MAX;
        let found = (0..1_000).filter(|_| cpu.work(Span::micros(20))).count();
        assert!(
            found > 900 && cpu.linger.pause == Span::ZERO,
            "free again: {found} found awake, pause {:?}",
            cpu.linger.pause
        );
    }
}
