//! Cost of rate limits: `cargo run --release -p nrs --example speed_tbf [CLASSES [RULES]]`, 10,000
//! of each by default.
//!
//! - `idle`: every request finds its class empty, passes and leaves it empty.
//! - `backlog`: ten requests of each class wait, one comes and one leaves.
//! - `throttled`: classes at their rate, on virtual time: the share of the rate that leaves, and
//!   the cost of a pair.
//! - `match`: a class that does not exist yet is made and finds its rule among RULES rules.
//!
//! Times are CPU times of enqueue, get and finish, and of making the request. They are the shortest
//! of several rounds, except for `throttled`. CPU times depend less on neighbours on the machine.

use nrs::{Dequeued, Head, HeadKind, Moment, Request, ServiceHeads};
use types::{CptIndex, Instant, Nid, Span, SplitMix64};
use wire::Opcode;

struct Rpc {
    jobid: [u8; 16],
    at: Instant,
}

impl Rpc {
    fn new(class: u64, at: Instant) -> Rpc {
        let mut jobid = *b"job.000000000000";
        let mut rest = class;
        for digit in jobid[4..].iter_mut().rev() {
            *digit = b'0' + (rest % 10) as u8;
            rest /= 10;
        }
        Rpc { jobid, at }
    }
}

impl Request for Rpc {
    fn nid(&self) -> Nid {
        Nid::LO
    }
    fn export(&self) -> Option<u64> {
        Some(1)
    }
    fn opcode(&self) -> Opcode {
        Opcode::OstWrite
    }
    fn jobid(&self) -> &str {
        std::str::from_utf8(&self.jobid).unwrap_or_default()
    }
    fn arrival(&self) -> Instant {
        self.at
    }
    fn leave_by(&self) -> Instant {
        Instant(u64::MAX)
    }
}

fn head(rules: &[String]) -> Head<Rpc> {
    let mut head = Head::new("ost_io", HeadKind::Reg, CptIndex(0), &nrs::policies());
    let moment = Moment { now: Instant(0), seed: 1 };
    let mut all = ServiceHeads { reg: vec![&mut head], hp: vec![] };
    all.select("tbf jobid", moment).expect("a known policy");
    for rule in rules {
        all.set("nrs_tbf_rule", rule, moment).unwrap_or_else(|error| panic!("{rule}: {error}"));
    }
    head
}

fn take(head: &mut Head<Rpc>, now: Instant) -> bool {
    let Dequeued::Taken(taken) = head.dequeue(now) else { return false };
    head.finished(taken.policy, now);
    true
}

/// Time that this process has run, nanoseconds.
fn cpu_ns() -> u64 {
    let text = std::fs::read_to_string("/proc/self/schedstat").expect("Linux");
    text.split(' ').next().and_then(|ns| ns.parse().ok()).expect("a number")
}

fn report(name: &str, ns: f64) {
    println!("{name:>10}: {ns:.0} ns a pair, {:.2} M/s", 1e3 / ns);
}

fn pairs(name: &str, classes: u64, waiting: u64) {
    const PAIRS: u64 = 500_000;
    const ROUNDS: u32 = 8; // the first ones warm up; what else runs on the machine lengthens some
    let mut head = head(&["start fast jobid={*} rate=999999 depth=1000000".to_owned()]);
    let mut chance = SplitMix64::new(7);
    for request in 0..classes * waiting {
        head.enqueue(Rpc::new(request % classes, Instant(0)), Instant(0));
    }
    let mut best = f64::MAX;
    for _ in 0..ROUNDS {
        let start = cpu_ns();
        for _ in 0..PAIRS {
            head.enqueue(Rpc::new(chance.below(classes), Instant(0)), Instant(0));
            assert!(take(&mut head, Instant(0)), "within the depth");
        }
        best = best.min((cpu_ns() - start) as f64 / PAIRS as f64);
    }
    report(name, best);
}

fn throttled(classes: u64) {
    const SECS: u64 = 2;
    let rate = 1_000_000 / classes;
    let mut head = head(&[format!("start r jobid={{*}} rate={rate}")]);
    for request in 0..classes * 4 {
        head.enqueue(Rpc::new(request % classes, Instant(0)), Instant(0));
    }
    let (mut now, mut left) = (Instant(0), 0);
    let start = cpu_ns();
    while now < Instant(0) + Span::secs(SECS) {
        now = now + Span::millis(1);
        while let Dequeued::Taken(taken) = head.dequeue(now) {
            head.finished(taken.policy, now);
            left += 1;
            head.enqueue(Rpc { at: now, ..taken.request }, now);
        }
    }
    report("throttled", (cpu_ns() - start) as f64 / left as f64);
    println!("{:>10}  {left} of {} left in {SECS} s of virtual time", "", SECS * rate * classes);
}

fn matching(rules: u64) {
    let rule = |number: u64| {
        let rpc = Rpc::new(number, Instant(0));
        format!("start r{number} jobid={{{}}} rate=999999", rpc.jobid())
    };
    let names: Vec<String> = (0..rules).map(rule).collect();
    let start = cpu_ns();
    let mut head = head(&names);
    println!("{:>10}: {rules} started in {} ms", "rules", (cpu_ns() - start) / 1_000_000);
    // a head of its own for each round of first requests: the shortest round counts
    let (mut first, mut again) = (f64::MAX, f64::MAX);
    for _ in 0..5 {
        let start = cpu_ns();
        enqueue_each(&mut head, rules);
        first = first.min((cpu_ns() - start) as f64 / rules as f64);
        let start = cpu_ns();
        (0..10).for_each(|_| enqueue_each(&mut head, rules));
        again = again.min((cpu_ns() - start) as f64 / (10 * rules) as f64);
        head = self::head(&names);
    }
    println!(
        "{:>10}: {first:.0} ns for the first request of a class, {again:.0} ns for the next",
        "match"
    );
}

fn enqueue_each(head: &mut Head<Rpc>, classes: u64) {
    for class in 0..classes {
        head.enqueue(Rpc::new(class, Instant(0)), Instant(0));
    }
}

fn main() {
    let mut args = std::env::args().skip(1).filter_map(|word| word.parse().ok());
    let (classes, rules) = (args.next().unwrap_or(10_000), args.next().unwrap_or(10_000));
    pairs("idle", classes, 0);
    pairs("backlog", classes, 10);
    throttled(classes);
    matching(rules);
}
