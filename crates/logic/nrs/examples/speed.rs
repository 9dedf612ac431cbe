//! Cost of scheduling: `cargo run --release -p nrs --example speed [table | fifo | pairs [POLICY
//! [DEPTH [COUNT]]] | deep [POLICIES [RUNS]]]`.
//!
//! - `deep`: 10,000,000 requests of 10,000 clients queued in one head; then one comes and one
//!   leaves, 10,000,000 times.
//! - `table`: enqueue and get per second of each policy, 10,000 clients or objects, 1,000 and
//!   100,000 queued.
//! - `pairs`: COUNT pairs of one policy at a depth, for a counter of instructions or a profile.
//! - `fifo`: the same pairs of FIFO in a head and of a bare `VecDeque`, for a counter of
//!   instructions.
//!
//! Means are CPU time of the thread, including the making of the requests. Single pairs (the worst
//! ones) are timed by the clock, which includes whatever else the machine did meanwhile.
#![expect(clippy::disallowed_methods, reason = "it measures time")]

use std::collections::VecDeque;
use std::io::Write;
use std::time::Instant as Clock;

use nrs::{Handle, Head, HeadKind, Moment, Removal, Request, ServiceHeads};
use types::{CptIndex, Extent, Fid, Instant, Nid, OstIndex, SplitMix64};
use wire::Opcode;

/// As a service queues it: the request itself stands elsewhere.
struct Rpc {
    client: u32,
    object: u32,
    offset: u64,
}

impl Request for Rpc {
    fn nid(&self) -> Nid {
        Nid((2 << 48) | u64::from(self.client))
    }
    fn export(&self) -> Option<u64> {
        Some(u64::from(self.client))
    }
    fn opcode(&self) -> Opcode {
        Opcode::OstRead
    }
    fn ost_index(&self) -> Option<OstIndex> {
        Some(OstIndex(self.object % 8))
    }
    fn object(&self) -> Option<Fid> {
        Some(Fid { seq: 0x2_0000_0400, oid: self.object, ver: 0 })
    }
    fn range(&self) -> Option<Extent> {
        Extent::new(self.offset, self.offset + (1 << 20))
    }
    fn bytes(&self) -> u64 {
        1 << 20
    }
    fn arrival(&self) -> Instant {
        Instant(0)
    }
    fn leave_by(&self) -> Instant {
        Instant(u64::MAX)
    }
}

struct Chance(SplitMix64);

impl Chance {
    fn rpc(&mut self) -> Rpc {
        let bits = self.0.bits();
        let client = (bits >> 33) as u32 % 10_000;
        Rpc { client, object: client, offset: bits % (1 << 30) }
    }
}

fn head(policy: &str) -> Head<Rpc> {
    let mut head = Head::new("ost_io", HeadKind::Reg, CptIndex(0), &nrs::policies());
    let moment = Moment { now: Instant(0), seed: 1 };
    ServiceHeads { reg: vec![&mut head], hp: vec![] }
        .select(policy, moment)
        .expect("a known policy");
    head
}

fn pair(head: &mut Head<Rpc>, chance: &mut Chance) {
    head.enqueue(chance.rpc(), Instant(0));
    let taken = head.dequeue(Instant(0)).taken().expect("something is queued");
    head.finished(taken.policy, Instant(0));
    std::hint::black_box(taken.request.offset);
}

/// Nanoseconds of CPU that this thread has had: on a busy machine the clock says little.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// Resident memory of this process, bytes.
fn resident() -> u64 {
    let status = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = status.lines().find(|line| line.starts_with("RssAnon:")).expect("RssAnon");
    line.split_whitespace().nth(1).and_then(|kib| kib.parse::<u64>().ok()).expect("a number") * 1024
}

/// What one run of the same steps took.
struct Run {
    fill: f64,
    pair: f64,
    drain: f64,
    bytes: f64,
    inserts: Vec<u32>,
    pairs: Vec<u32>,
}

/// Nanoseconds by the clock.
fn timed(step: impl FnOnce()) -> u32 {
    let at = Clock::now();
    step();
    u32::try_from(at.elapsed().as_nanos()).unwrap_or(u32::MAX)
}

fn run(policy: &str, count: u32) -> Run {
    let (mut head, mut chance) = (head(policy), Chance(SplitMix64::new(7)));
    let each = f64::from(count);
    let (mut inserts, mut pairs) = (vec![0; count as usize], vec![0; count as usize]);
    inserts.fill(1); // both are resident before memory is read
    pairs.fill(1);
    let before = resident();
    let start = cpu();
    for insert in &mut inserts {
        *insert = timed(|| _ = head.enqueue(chance.rpc(), Instant(0)));
    }
    let fill = (cpu() - start) / each;
    let bytes = (resident() - before) as f64 / each - size_of::<Rpc>() as f64;
    let start = cpu();
    (0..count).for_each(|_| pair(&mut head, &mut chance));
    let mean = (cpu() - start) / each;
    for took in &mut pairs {
        *took = timed(|| pair(&mut head, &mut chance));
    }
    let start = cpu();
    while let Some(taken) = head.dequeue(Instant(0)).taken() {
        head.finished(taken.policy, Instant(0));
    }
    Run { fill, pair: mean, drain: (cpu() - start) / each, bytes, inserts, pairs }
}

/// The same steps `runs` times: of each step the shortest time counts, because what else runs on
/// the machine interrupts another step each time.
fn deep(policy: &str, count: u32, runs: u32) {
    let mut best = run(policy, count);
    let mut worst = vec![worst_of(&best)];
    for _ in 1..runs {
        let next = run(policy, count);
        worst.push(worst_of(&next));
        for (best, next) in [(&mut best.inserts, next.inserts), (&mut best.pairs, next.pairs)] {
            best.iter_mut().zip(next).for_each(|(best, next)| *best = next.min(*best));
        }
        best.fill = best.fill.min(next.fill);
        best.pair = best.pair.min(next.pair);
        best.drain = best.drain.min(next.drain);
    }
    println!(
        "{policy:>5} {count} queued, {runs} runs: fill {:.0} ns, pair {:.0} ns, drain {:.0} ns, {:.1} bytes each beside the request",
        best.fill, best.pair, best.drain, best.bytes
    );
    println!("      by the clock, shortest of {runs}: insertion {}", spread(&mut best.inserts));
    println!("      {:>32} {}", "pair", spread(&mut best.pairs));
    println!("      worst insertion and pair of each run, interrupted or not: {worst:?}");
    if policy == "crrn" {
        let worst = |sorted: &[u32]| f64::from(*sorted.last().expect("many steps")) / 1e3;
        figure("deep-pair", "10,000,000 queued, crrn: a pair", "ns", best.pair);
        figure("deep-worst-insertion", "the same: worst insertion", "us", worst(&best.inserts));
        figure("deep-worst-pair", "the same: worst pair", "us", worst(&best.pairs));
        figure("deep-bytes", "the same: memory of a request", "bytes", best.bytes);
    }
    remove(policy, count / 10);
}

fn worst_of(run: &Run) -> (u32, u32) {
    let worst = |times: &[u32]| times.iter().max().copied().unwrap_or_default();
    (worst(&run.inserts), worst(&run.pairs))
}

/// Its distribution; sorts.
fn spread(times: &mut [u32]) -> String {
    times.sort_unstable();
    let part = |part: f64| times[((times.len() - 1) as f64 * part) as usize];
    let parts = [
        ("p50", 0.5),
        ("p99.9", 0.999),
        ("p99.99", 0.9999),
        ("p99.9999", 0.999_999),
        ("worst", 1.0),
    ];
    parts.map(|(name, at)| format!("{name} {}", part(at))).join(" ")
}

fn remove(policy: &str, count: u32) {
    let (mut head, mut chance) = (head(policy), Chance(SplitMix64::new(7)));
    let mut handles: Vec<Handle> =
        (0..count).map(|_| head.enqueue(chance.rpc(), Instant(0))).collect();
    for at in (1..handles.len()).rev() {
        let other = chance.rpc().offset as usize % (at + 1);
        handles.swap(at, other);
    }
    let start = cpu();
    for handle in &handles {
        assert!(head.remove(*handle, Instant(0), Removal::Gone).is_some(), "it was queued");
    }
    println!(
        "      {count} removed in random order: {:.0} ns each",
        (cpu() - start) / f64::from(count)
    );
}

fn table() {
    for policy in ["fifo", "crrn", "crre", "orr", "trr"] {
        let mut line = format!("{policy:>5}");
        for depth in [1_000, 100_000] {
            let (mut head, mut chance) = (head(policy), Chance(SplitMix64::new(7)));
            for _ in 0..depth {
                head.enqueue(chance.rpc(), Instant(0));
            }
            let mut best = f64::MAX;
            for _ in 0..5 {
                let start = cpu();
                for _ in 0..1_000_000 {
                    pair(&mut head, &mut chance);
                }
                best = best.min((cpu() - start) / 1e9);
            }
            let title = format!("{policy}, {depth} queued");
            figure(&format!("pairs-{policy}-{depth}"), &title, "million pairs/s", 1.0 / best);
            line += &format!("  {depth:>6} queued {:>5.2} M/s (best of 5)", 1.0 / best);
        }
        println!("{line}");
    }
}

fn fifo() {
    let (mut head, mut chance) = (head("fifo"), Chance(SplitMix64::new(7)));
    let start = cpu();
    for _ in 0..10_000_000 {
        pair(&mut head, &mut chance);
    }
    let ours = cpu() - start;
    let mut bare = VecDeque::new();
    let start = cpu();
    for _ in 0..10_000_000 {
        bare.push_back(chance.rpc());
        let request = bare.pop_front().expect("just put there");
        std::hint::black_box(request.offset);
    }
    println!("fifo {:.1} ns, bare queue {:.1} ns a pair", ours / 1e7, (cpu() - start) / 1e7);
}

fn pairs(policy: &str, depth: u32, count: u32) {
    let (mut head, mut chance) = (head(policy), Chance(SplitMix64::new(7)));
    (0..depth).for_each(|_| _ = head.enqueue(chance.rpc(), Instant(0)));
    let start = cpu();
    (0..count).for_each(|_| pair(&mut head, &mut chance));
    println!("{policy} {depth} queued: {:.1} ns a pair", (cpu() - start) / f64::from(count));
}

/// Appends a line of JSON to the file that `NACRE_FIGURES` names, for the tables of
/// `bench/README.md`.
fn figure(id: &str, title: &str, unit: &str, value: f64) {
    let Some(path) = std::env::var_os("NACRE_FIGURES") else { return };
    let file = std::fs::OpenOptions::new().create(true).append(true).open(path);
    let figure = serde_json::json!({
        "id": format!("scheduler/{id}"),
        "title": title,
        "unit": unit,
        "value": value,
    });
    let line = format!("{figure}\n");
    file.and_then(|mut file| file.write_all(line.as_bytes())).expect("the file of the figures");
}

fn main() {
    let what = std::env::args().nth(1);
    let wanted = |name: &str| what.as_deref().is_none_or(|what| what == name);
    if wanted("table") {
        table();
    }
    if wanted("fifo") {
        fifo();
    }
    if what.as_deref() == Some("pairs") {
        let number = |at| std::env::args().nth(at).and_then(|number| number.parse().ok());
        let policy = std::env::args().nth(2).unwrap_or_else(|| "crrn".to_owned());
        pairs(&policy, number(3).unwrap_or(100_000), number(4).unwrap_or(1_000_000));
    }
    if wanted("deep") {
        let policies = std::env::args().nth(2);
        let runs = std::env::args().nth(3).and_then(|runs| runs.parse().ok());
        for policy in policies.as_deref().unwrap_or("fifo crrn orr").split(' ') {
            deep(policy, 10_000_000, runs.unwrap_or(4));
        }
    }
}
