//! Cost of each container beside its counterpart in the standard library: `cargo run --release -p
//! queues --example containers [CONTAINER]`.
//!
//! A step is a pair: one entry comes and one leaves, at a constant depth. A run takes 0.3 s, and
//! the best of three counts. Figures are nanoseconds of the thread's CPU time, including the making
//! of keys and random numbers.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap, VecDeque};
use std::hint::black_box;

use queues::{
    Ascending, Blocks, Chained, FixedMap, Index, IndexedHeap, Key, NIL, Ring, Slab, Vacant, Wheel,
};
use types::{Fid, Instant, SplitMix64};

/// Pairs between two looks at the time.
const PAIRS: u64 = 100_000;
/// A run takes so many nanoseconds at least: the kernel counts CPU time by ticks of some
/// milliseconds.
const TIME_MIN: f64 = 300e6;
const DEPTHS: [u64; 3] = [1_000, 100_000, 1_000_000];

/// Nanoseconds of CPU that this thread has had: on a busy machine the clock says little.
fn cpu() -> f64 {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number")
}

/// A container under test: filled by `put`, then `put` and `take` in turns.
trait Case {
    fn put(&mut self, chance: &mut SplitMix64);
    fn take(&mut self);
}

fn pair<C: Case>(make: impl Fn() -> C, depth: u64) -> f64 {
    let mut best = f64::MAX;
    for _ in 0..3 {
        let (mut case, mut chance) = (make(), SplitMix64::new(1));
        (0..depth).for_each(|_| case.put(&mut chance));
        let (start, mut pairs) = (cpu(), 0);
        while cpu() - start < TIME_MIN {
            for _ in 0..PAIRS {
                case.put(&mut chance);
                case.take();
            }
            pairs += PAIRS;
        }
        best = best.min((cpu() - start) / pairs as f64);
    }
    best
}

fn row<A: Case, B: Case>(names: [&str; 2], ours: impl Fn() -> A, theirs: impl Fn() -> B) {
    if std::env::args().nth(1).is_some_and(|wanted| wanted != names[0]) {
        return;
    }
    let figures: Vec<String> = DEPTHS
        .iter()
        .map(|depth| format!("{:6.1} {:6.1}", pair(&ours, *depth), pair(&theirs, *depth)))
        .collect();
    println!("{:>11} beside {:<10} {}", names[0], names[1], figures.join(" | "));
}

/// A value as large as a queued request, with its key and its link.
struct Item {
    key: u64,
    link: u32,
    _rest: [u64; 6],
}

fn item(key: u64) -> Item {
    Item { key, link: NIL, _rest: [key; 6] }
}

impl Vacant for Item {
    fn vacant() -> Item {
        item(0)
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.link
    }
}

impl Chained for Item {
    fn key(&self) -> Key {
        [self.key, 0]
    }
    fn next(&self) -> u32 {
        self.link
    }
    fn set_next(&mut self, place: u32) {
        self.link = place;
    }
}

/// Values at places; the oldest place leaves.
#[derive(Default)]
struct Places {
    slab: Slab<Item>,
    order: VecDeque<u32>,
}

impl Case for Places {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.order.push_back(self.slab.insert(item(chance.bits())));
    }
    fn take(&mut self) {
        let place = self.order.pop_front().expect("filled before");
        black_box(self.slab.remove(place).key);
    }
}

/// The same with a box for each value.
#[derive(Default)]
struct Boxes(VecDeque<Box<Item>>);

impl Case for Boxes {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.0.push_back(Box::new(item(chance.bits())));
    }
    fn take(&mut self) {
        black_box(self.0.pop_front().expect("filled before").key);
    }
}

/// A list of ids, from which the first leaves.
struct Ids {
    blocks: Blocks,
    ring: Ring,
}

impl Case for Ids {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.ring.push(&mut self.blocks, chance.bits() as u32);
    }
    fn take(&mut self) {
        black_box(self.ring.pop(&mut self.blocks));
    }
}

impl Case for VecDeque<u32> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.push_back(chance.bits() as u32);
    }
    fn take(&mut self) {
        black_box(self.pop_front());
    }
}

/// Places found by key.
#[derive(Default)]
struct Keyed {
    slab: Slab<Item>,
    index: Index,
    order: VecDeque<u64>,
}

impl Case for Keyed {
    fn put(&mut self, chance: &mut SplitMix64) {
        let key = chance.bits();
        let place = self.slab.insert(item(key));
        self.index.insert(&mut self.slab, place);
        self.order.push_back(key);
    }
    fn take(&mut self) {
        let key = self.order.pop_front().expect("filled before");
        let place = self.index.find(&self.slab, [key, 0]).expect("was put there");
        self.index.remove(&mut self.slab, place);
        black_box(self.slab.remove(place).key);
    }
}

/// The same in a tree.
#[derive(Default)]
struct Tree {
    map: BTreeMap<u64, Item>,
    order: VecDeque<u64>,
}

impl Case for Tree {
    fn put(&mut self, chance: &mut SplitMix64) {
        let key = chance.bits();
        self.map.insert(key, item(key));
        self.order.push_back(key);
    }
    fn take(&mut self) {
        let key = self.order.pop_front().expect("filled before");
        black_box(self.map.remove(&key).expect("was put there").key);
    }
}

impl Case for IndexedHeap<u64> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.insert(chance.bits());
    }
    fn take(&mut self) {
        black_box(self.pop());
    }
}

impl Case for BinaryHeap<Reverse<u64>> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.push(Reverse(chance.bits()));
    }
    fn take(&mut self) {
        black_box(self.pop());
    }
}

/// Timers of up to 1 s ahead of a time that goes on.
struct Timers {
    wheel: Wheel<u64>,
    now: Instant,
}

fn later(now: Instant, chance: &mut SplitMix64) -> Instant {
    Instant(now.0 + chance.below(1_000_000_000))
}

impl Case for Timers {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.wheel.insert(later(self.now, chance), self.now.0);
    }
    fn take(&mut self) {
        while self.wheel.pop(self.now).is_none() {
            self.now = self.wheel.next().expect("filled before");
        }
    }
}

/// The same in a tree, ordered by time and arrival.
#[derive(Default)]
struct TimerTree {
    map: BTreeMap<(Instant, u64), u64>,
    now: Instant,
    arrival: u64,
}

impl Case for TimerTree {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.arrival += 1;
        self.map.insert((later(self.now, chance), self.arrival), self.now.0);
    }
    fn take(&mut self) {
        let ((due, _), _) = self.map.pop_first().expect("filled before");
        self.now = due;
    }
}

/// Numbers that rise, of which the oldest leaves.
#[derive(Default)]
struct Rising<M> {
    map: M,
    put: u64,
    taken: u64,
}

impl Case for Rising<Ascending<u64, u64>> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.put += 1;
        self.map.insert(self.put, chance.bits());
    }
    fn take(&mut self) {
        self.taken += 1;
        black_box(self.map.remove(self.taken));
    }
}

impl Case for Rising<BTreeMap<u64, u64>> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.put += 1;
        self.map.insert(self.put, chance.bits());
    }
    fn take(&mut self) {
        self.taken += 1;
        black_box(self.map.remove(&self.taken));
    }
}

fn fid(number: u64) -> Fid {
    Fid::new(0x2_0000_0400 + (number >> 16), (number & 0xffff) as u32)
}

impl Case for Rising<FixedMap<Fid, u64>> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.put += 1;
        self.map.insert(fid(self.put), chance.bits());
    }
    fn take(&mut self) {
        self.taken += 1;
        black_box(self.map.remove(&fid(self.taken)));
    }
}

impl Case for Rising<BTreeMap<Fid, u64>> {
    fn put(&mut self, chance: &mut SplitMix64) {
        self.put += 1;
        self.map.insert(fid(self.put), chance.bits());
    }
    fn take(&mut self) {
        self.taken += 1;
        black_box(self.map.remove(&fid(self.taken)));
    }
}

fn main() {
    println!("ns a pair, ours and the other's, at {DEPTHS:?} entries");
    row(["Slab", "Box"], Places::default, Boxes::default);
    let ids = || Ids { blocks: Blocks::default(), ring: Ring::EMPTY };
    row(["Ring", "VecDeque"], ids, VecDeque::new);
    row(["Index", "BTreeMap"], Keyed::default, Tree::default);
    row(["IndexedHeap", "BinaryHeap"], IndexedHeap::default, BinaryHeap::new);
    let timers = || Timers { wheel: Wheel::new(Instant(0)), now: Instant(0) };
    row(["Wheel", "BTreeMap"], timers, TimerTree::default);
    row(
        ["Ascending", "BTreeMap"],
        Rising::<Ascending<u64, u64>>::default,
        Rising::<BTreeMap<u64, u64>>::default,
    );
    row(
        ["FixedMap", "BTreeMap"],
        Rising::<FixedMap<Fid, u64>>::default,
        Rising::<BTreeMap<Fid, u64>>::default,
    );
}
