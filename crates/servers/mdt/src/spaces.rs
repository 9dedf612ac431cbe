//! The free space of OSTs, as they last reported it, and the choice of OSTs by it. In memory only:
//! a restart asks again.

use std::collections::BTreeMap;
use std::rc::Rc;

use layout::composite::extend::Chosen;
use layout::{POOL_BYTES, Template};
use placement::{Allocator, Ost, PlacementError, Policy, Rule, Space};
use tokio::sync::Notify;
use types::{FsName, TargetId};

/// Lustre: without a value of its own a pool spills when nothing is left.
const SPILL_PERCENT_DEFAULT: u8 = 100;
/// Pools that a file passes on its way, so that a circle of them ends.
const SPILLS_MAX: usize = 10;

/// An OST of the file system, as the configuration knows it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OstAt {
    pub index: u32,
    /// Its node: stripes side by side go to different nodes where they can.
    pub node: u64,
    /// Not taken out of use by an administrator.
    pub is_active: bool,
}

impl From<u32> for OstAt {
    /// An active one, on a node that is like any other.
    fn from(index: u32) -> OstAt {
        OstAt { index, node: 0, is_active: true }
    }
}

/// Why an OST gets no new files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Closed {
    /// It has no room, or too little: others are better, but what is removed gives it room.
    Full,
    /// Its disk takes nothing.
    ReadOnly,
    /// Its administrator is emptying it.
    Draining,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    space: Space,
    closed: Option<Closed>,
    is_degraded: bool,
}

/// Bytes by which files may grow on an OST, and that its last word may not know of. They count
/// until it has told its room twice: what it tells first may be older than they are.
#[derive(Clone, Copy, Debug, Default)]
struct Promised {
    since_last: u64,
    before: u64,
}

/// Bytes that an operation promised on an OST.
#[derive(Clone, Copy, Debug)]
struct Pending {
    ost: u32,
    bytes: u64,
    /// Those of one step.
    step: u64,
}

/// Where files go that want a pool which is filling up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Spill {
    /// Another pool; empty: nowhere.
    pub(crate) target: String,
    /// So much of the pool's room is used then, per cent.
    pub(crate) threshold_percent: u8,
}

impl Default for Spill {
    fn default() -> Spill {
        Spill { target: String::new(), threshold_percent: SPILL_PERCENT_DEFAULT }
    }
}

/// A set of OSTs that files can ask for.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Pool {
    osts: Vec<u32>,
    pub(crate) spill: Spill,
}

/// The rule by which a file would get OSTs, and these.
pub(crate) type Foretold = Result<(Rule, Vec<u32>), PlacementError>;

pub(crate) struct Spaces {
    fsname: FsName,
    seen: BTreeMap<u32, Seen>,
    promised: BTreeMap<u32, Promised>,
    /// Those of an operation that is not applied yet.
    pending: Vec<Pending>,
    seed: u64,
    /// By pool, and of no pool with an empty name: each has its own turns and balance.
    allocators: BTreeMap<String, Allocator>,
    pub(crate) pools: BTreeMap<String, Pool>,
    /// Somebody chose by the figures: they should be fresh.
    pub(crate) wanted: Rc<Notify>,
    /// They should be fresh now.
    pub(crate) doubted: Rc<Notify>,
}

impl Spaces {
    /// Knows nothing yet; all chance comes from `seed`.
    pub(crate) fn new(fsname: FsName, seed: u64) -> Spaces {
        Spaces {
            fsname,
            seen: BTreeMap::new(),
            promised: BTreeMap::new(),
            pending: Vec::new(),
            seed,
            allocators: BTreeMap::new(),
            pools: BTreeMap::new(),
            wanted: Rc::new(Notify::new()),
            doubted: Rc::new(Notify::new()),
        }
    }

    /// A client may have met a full OST that the figures do not show.
    pub(crate) fn doubt(&self) {
        self.doubted.notify_one();
        self.wanted.notify_one();
    }

    /// An OST told its room, and whether it takes anything.
    pub(crate) fn told(&mut self, index: u32, space: Space, closed: Option<Closed>) {
        let was = self.seen.get(&index).and_then(|seen| seen.closed);
        let closed = closed.or_else(|| space.is_full(was.is_some()).then_some(Closed::Full));
        if closed != was {
            let word = match closed {
                Some(Closed::Full) => "no new files while others have room: it is full",
                Some(Closed::ReadOnly) => "no new files: it is read-only",
                Some(Closed::Draining) => "no new files: no_create is set",
                None => "new files again",
            };
            let target_id = TargetId::ost(index).name(self.fsname);
            tracing::info!(target: "mdt", %target_id, bytes_avail = space.bytes_avail, "gets {word}");
        }
        let is_degraded = self.seen.get(&index).is_some_and(|seen| seen.is_degraded);
        self.seen.insert(index, Seen { space, closed, is_degraded });
        self.take_back_promises(); // no operation decides now, so these were not kept
        if let Some(promised) = self.promised.get_mut(&index) {
            *promised = Promised { since_last: 0, before: promised.since_last };
        }
    }

    /// An OST that has told its room also told whether its redundancy is lost.
    pub(crate) fn told_degraded(&mut self, index: u32, is_degraded: bool) {
        if let Some(seen) = self.seen.get_mut(&index) {
            seen.is_degraded = is_degraded;
        }
    }

    /// Whether an OST has room for new files, as far as is known.
    pub(crate) fn any_open(&self, osts: &[OstAt]) -> bool {
        osts.iter().any(|ost| self.is_open(ost))
    }

    /// Whether an OST or data target said that it has no room for new files.
    pub(crate) fn is_closed(&self, index: u32) -> bool {
        self.seen.get(&index).is_some_and(|seen| seen.closed.is_some())
    }

    /// Bytes by which files may still grow on an OST; without bound while it has told nothing.
    fn room(&self, ost: &OstAt) -> u64 {
        let seen = self.seen.get(&ost.index);
        let told = seen.map_or(u64::MAX, |seen| seen.space.bytes_avail);
        let Promised { since_last, before } =
            self.promised.get(&ost.index).copied().unwrap_or_default();
        let promised = since_last.saturating_add(before);
        if self.is_open(ost) { told.saturating_sub(promised) } else { 0 }
    }

    /// How often `bytes` fit on each of the `chosen` OSTs. An OST that is not there has no room;
    /// while none is known, nothing is said against them.
    pub(crate) fn fits(&self, chosen: &[u32], bytes: u64, osts: &[OstAt]) -> u64 {
        self.wanted.notify_one();
        let mut stripes: BTreeMap<u32, u64> = BTreeMap::new();
        for index in chosen {
            *stripes.entry(*index).or_default() += 1;
        }
        let times = osts.iter().filter_map(|ost| {
            let count = stripes.get(&ost.index)?;
            Some(self.room(ost) / bytes.saturating_mul(*count).max(1))
        });
        let times: Vec<u64> = times.collect();
        match times.iter().min() {
            _ if osts.is_empty() => u64::MAX,
            Some(least) if times.len() == stripes.len() => *least,
            _ => 0,
        }
    }

    /// A file may grow by so many steps of `bytes` on each of these OSTs.
    pub(crate) fn promise(&mut self, chosen: &[u32], bytes: u64, steps: u64) {
        for index in chosen {
            let pending = Pending { ost: *index, bytes: bytes.saturating_mul(steps), step: bytes };
            let promised = self.promised.entry(*index).or_default();
            promised.since_last = promised.since_last.saturating_add(pending.bytes);
            self.pending.push(pending);
        }
    }

    /// The operation that promised last is applied. Of many steps one is kept: a file that was cut
    /// to a large size may never write the others, and must not keep other files from growing.
    pub(crate) fn keep_promises(&mut self) {
        self.take_back(|pending| pending.bytes.saturating_sub(pending.step));
    }

    /// It is not: it decides again, or was refused.
    pub(crate) fn take_back_promises(&mut self) {
        self.take_back(|pending| pending.bytes);
    }

    fn take_back(&mut self, bytes: impl Fn(&Pending) -> u64) {
        for pending in self.pending.drain(..) {
            if let Some(promised) = self.promised.get_mut(&pending.ost) {
                promised.since_last = promised.since_last.saturating_sub(bytes(&pending));
            }
        }
    }

    fn is_open(&self, ost: &OstAt) -> bool {
        ost.is_active && self.closed(ost).is_none()
    }

    fn closed(&self, ost: &OstAt) -> Option<Closed> {
        self.seen.get(&ost.index)?.closed
    }

    /// Takes over which pools there are. What was set of those that stay is kept.
    pub(crate) fn set_pools(&mut self, pools: &BTreeMap<String, Vec<u32>>) {
        self.pools.retain(|name, _| pools.contains_key(name));
        self.allocators.retain(|name, _| name.is_empty() || pools.contains_key(name));
        for (name, osts) in pools {
            self.pools.entry(name.clone()).or_default().osts.clone_from(osts);
        }
        assert_eq!(self.pools.len(), pools.len(), "the pools are those of the configuration");
    }

    /// How much of a pool's room is used, per cent; nothing while no member has told its room.
    fn used_percent(&self, pool: &Pool) -> u8 {
        let rooms = pool.osts.iter().filter_map(|ost| self.seen.get(ost));
        let (all, left) = rooms.fold((0_u128, 0_u128), |(all, left), seen| {
            (all + u128::from(seen.space.bytes), left + u128::from(seen.space.bytes_avail))
        });
        let used = all.saturating_sub(left) * 100 / all.max(1);
        assert!(used <= 100, "no more is used than there is");
        u8::try_from(used).unwrap_or(100)
    }

    /// Whether no member of a pool has room for new files. An OST is full before its last byte is
    /// used, so the used share may never reach 100 %.
    fn is_full(&self, pool: &Pool) -> bool {
        let closed = |ost: &u32| self.seen.get(ost).and_then(|seen| seen.closed);
        !pool.osts.is_empty() && pool.osts.iter().all(|ost| closed(ost) == Some(Closed::Full))
    }

    /// What there is to say of a pool that a file wants.
    pub(crate) fn pool_state(&self, name: &str) -> String {
        let Some(pool) = self.pools.get(name) else {
            return "is not there: it does not matter".to_owned();
        };
        let mut out = format!("{} OSTs, {} % used", pool.osts.len(), self.used_percent(pool));
        if !pool.spill.target.is_empty() {
            let Spill { target, threshold_percent } = &pool.spill;
            out.push_str(&format!("; spills into {target} from {threshold_percent} % on"));
        }
        let gets = self.spilled(name.to_owned());
        if gets != name {
            out.push_str(&format!("; now files go to {gets}"));
        }
        out
    }

    /// OSTs that get no new files, and why.
    pub(crate) fn left_out(&self, osts: &[OstAt]) -> Vec<(u32, &'static str)> {
        let why = |ost: &OstAt| match self.closed(ost) {
            _ if !ost.is_active => Some("out of use"),
            Some(Closed::Full) => Some("full: no new files while others have room"),
            Some(Closed::ReadOnly) => Some("read-only: no new files"),
            Some(Closed::Draining) => Some("no_create: no new files"),
            None if self.seen.get(&ost.index).is_some_and(|seen| seen.is_degraded) => {
                Some("degraded: new files only if others are too few")
            }
            None => None,
        };
        osts.iter().filter_map(|ost| Some((ost.index, why(ost)?))).collect()
    }

    /// The pool that a file gets which wants `name`: another one while that is filling up.
    pub(crate) fn spilled(&self, name: String) -> String {
        let mut name = name;
        for _ in 0..SPILLS_MAX {
            let Some(pool) = self.pools.get(&name) else { break };
            let Spill { target, threshold_percent } = &pool.spill;
            let spills = self.used_percent(pool) >= *threshold_percent || self.is_full(pool);
            if !spills || !self.pools.contains_key(target) {
                break;
            }
            name.clone_from(target);
        }
        name
    }

    /// Which OSTs a file may go to, and the pool of its layout. A pool that is not there does not
    /// matter, nor one that does not have the OSTs which are asked for by number. A request for no
    /// pool leaves no name in the layout.
    fn members<'a>(
        &self,
        template: &Template,
        osts: &'a [OstAt],
    ) -> (Vec<&'a OstAt>, String, [u8; POOL_BYTES]) {
        let wanted = template.clone().settled().pool;
        let name = template.pool_name();
        let Some(pool) = self.pools.get(&name) else {
            return (osts.iter().collect(), String::new(), wanted);
        };
        let start = u32::try_from(template.start).ok();
        let mut asked = template.osts.iter().chain(&start).peekable();
        if asked.peek().is_some() {
            if asked.any(|ost| !pool.osts.contains(ost)) {
                return (osts.iter().collect(), String::new(), [0; POOL_BYTES]);
            }
            let members = osts.iter().filter(|ost| pool.osts.contains(&ost.index)).collect();
            return (members, name, template.pool);
        }
        let name = self.spilled(name);
        let of = &self.pools[&name].osts;
        let members = osts.iter().filter(|ost| of.contains(&ost.index)).collect();
        let pool = layout::pool::padded(&name).unwrap_or(template.pool);
        (members, name, pool)
    }

    /// OSTs for a file, those with room for `bytes` each if there are such and none is named; `now`
    /// in seconds. While all are full the full ones are taken: objects are made by the first write,
    /// which asks the OST itself, while the figures here may be older than what has been removed
    /// since.
    pub(crate) fn place(
        &mut self,
        template: &Template,
        osts: &[OstAt],
        policy: &Policy,
        now: u64,
        bytes: u64,
    ) -> Result<Chosen, PlacementError> {
        self.wanted.notify_one();
        let (known, name, pool) = self.candidates(template, osts, bytes)?;
        let seed = seed_of(self.seed, &name);
        let allocator = self.allocators.entry(name).or_insert_with(|| Allocator::new(seed));
        let osts = allocator.choose(template, &known, policy, now)?;
        Ok(Chosen { osts, pool })
    }

    /// The rules and the OSTs that files would get now, one after the other. They take no turn.
    pub(crate) fn foretell<'a>(
        &self,
        templates: impl Iterator<Item = &'a Template>,
        osts: &[OstAt],
        policy: &Policy,
        now: u64,
    ) -> Vec<Foretold> {
        let mut allocators = self.allocators.clone();
        let foretell = |template: &Template| -> Foretold {
            let (known, name, _) = self.candidates(template, osts, 0)?;
            let seed = seed_of(self.seed, &name);
            let allocator = allocators.entry(name).or_insert_with(|| Allocator::new(seed));
            let chosen = allocator.choose(template, &known, policy, now)?;
            Ok((Allocator::rule(template, &known, policy), chosen))
        };
        templates.map(foretell).collect()
    }

    /// The OSTs that a file may go to as they are now, the pool whose turns count, and the one that
    /// its layout names.
    fn candidates(
        &self,
        template: &Template,
        osts: &[OstAt],
        bytes: u64,
    ) -> Result<(Vec<Ost>, String, [u8; POOL_BYTES]), PlacementError> {
        let (members, name, pool) = self.members(template, osts);
        if members.is_empty() && !osts.is_empty() {
            return Err(PlacementError::NoneUsable); // not "none is known yet", for which one waits
        }
        let is_full_taken = !members.iter().any(|ost| self.is_open(ost));
        let is_named = template.start >= 0 || !template.osts.is_empty();
        let bytes = if is_named || bytes == 0 {
            0
        } else {
            least_room(template, members.iter().map(|ost| self.room(ost)), bytes)
        };
        let known = members.iter().map(|ost| self.candidate(ost, is_full_taken, bytes));
        Ok((known.collect(), name, pool))
    }

    fn candidate(&self, ost: &OstAt, is_full_taken: bool, bytes: u64) -> Ost {
        let bytes_avail = self.seen.get(&ost.index).map(|seen| seen.space.bytes_avail);
        let takes = match self.closed(ost) {
            None => true,
            Some(Closed::Full) => is_full_taken,
            Some(Closed::ReadOnly | Closed::Draining) => false,
        };
        let is_degraded = self.seen.get(&ost.index).is_some_and(|seen| seen.is_degraded);
        let usable = ost.is_active && takes && (bytes == 0 || self.room(ost) >= bytes);
        Ost { index: ost.index, node: ost.node, usable, is_degraded, bytes_avail }
    }
}

/// Bytes for which an OST must have room where a stripe takes `bytes`. An overstriped file puts
/// several stripes on an OST where the OSTs are too few, or where its count says so; as many OSTs
/// as possible are used. 0 where no OST has room for a stripe.
fn least_room(template: &Template, rooms: impl Iterator<Item = u64>, bytes: u64) -> u64 {
    let mut rooms: Vec<u64> = rooms.collect();
    rooms.sort_unstable_by_key(|room| std::cmp::Reverse(*room));
    let all = rooms.iter().enumerate().rev().filter(|_| template.overstriped);
    let stripes = u64::from(template.stripe_count.unsigned_abs());
    let of_all = all.map(|(index, room)| {
        let on_each = match template.stripe_count {
            ..0 => stripes,
            _ => stripes.div_ceil(index as u64 + 1).max(1),
        };
        (bytes.saturating_mul(on_each), *room)
    });
    let fits = of_all.filter(|(least, room)| room >= least).map(|(least, _)| least).next();
    let one = rooms.first().is_some_and(|room| *room >= bytes).then_some(bytes);
    fits.or(one).unwrap_or(0)
}

/// Each pool has turns of its own.
fn seed_of(seed: u64, pool: &str) -> u64 {
    pool.bytes().fold(seed, |seed, byte| seed.rotate_left(8) ^ u64::from(byte))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spaces(seed: u64) -> Spaces {
        Spaces::new("testfs".parse().expect("a name"), seed)
    }

    fn check(spaces: &mut Spaces, osts: &[OstAt]) -> Result<Vec<u32>, PlacementError> {
        let all = Template { stripe_count: -1, ..Template::default() };
        let mut chosen = spaces.place(&all, osts, &Policy::default(), 0, 0)?.osts;
        chosen.sort_unstable();
        Ok(chosen)
    }

    #[test]
    fn full_and_inactive_osts_are_left_out() {
        let mut spaces = spaces(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1, 2]));
        spaces.told(1, room(10), None);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]));
        spaces.told(1, room(1_500), None);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]), "not at once");
        spaces.told(1, room(2_000), None);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1, 2]));
        let one_inactive = [osts[0], OstAt { is_active: false, ..osts[1] }, osts[2]];
        assert_eq!(check(&mut spaces, &one_inactive), Ok(vec![0, 2]));
    }

    #[test]
    fn while_all_osts_are_full_full_ones_are_taken() {
        let mut spaces = spaces(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = Space { bytes: 1_000_000, bytes_avail: 10, files_free: 1_000 };
        spaces.told(0, room, None);
        spaces.told(1, room, Some(Closed::Full));
        spaces.told(2, Space { bytes_avail: 5_000, ..room }, Some(Closed::ReadOnly));
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 1]));
        assert!(!spaces.any_open(&osts), "they are asked often");
        let one_inactive = [osts[0], OstAt { is_active: false, ..osts[1] }, osts[2]];
        assert_eq!(check(&mut spaces, &one_inactive), Ok(vec![0]));
        (0..2).for_each(|index| spaces.told(index, room, Some(Closed::ReadOnly)));
        assert_eq!(check(&mut spaces, &osts), Err(PlacementError::NoneUsable));
    }

    #[test]
    fn a_draining_ost_gets_nothing_and_a_degraded_one_only_what_others_cannot_take() {
        let mut spaces = spaces(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = Space { bytes: 1_000_000, bytes_avail: 900_000, files_free: 1_000 };
        spaces.told(1, room, Some(Closed::Draining));
        spaces.told(2, room, None);
        spaces.told_degraded(2, true);
        assert_eq!(check(&mut spaces, &osts), Ok(vec![0, 2]));
        let mut chosen = |template: &Template| {
            spaces.place(template, &osts, &Policy::default(), 0, 0).map(|chosen| chosen.osts)
        };
        assert_eq!(chosen(&Template::default()), Ok(vec![0]));
        let listed = Template { stripe_count: 1, osts: vec![1], ..Template::default() };
        assert_eq!(chosen(&listed), Err(PlacementError::Unusable(1)));
        let from = Template { start: 1, ..Template::default() };
        assert_eq!(chosen(&from), Ok(vec![0]), "another one");
        assert_eq!(spaces.fits(&[1], 100_000, &osts), 0, "no more room is promised on it");
        let left_out = spaces.left_out(&osts);
        assert_eq!(left_out.iter().map(|(ost, _)| *ost).collect::<Vec<_>>(), [1, 2]);
        (0..3).for_each(|index| spaces.told(index, room, Some(Closed::Draining)));
        assert_eq!(check(&mut spaces, &osts), Err(PlacementError::NoneUsable));
    }

    fn pools(all: &[(&str, &[u32])]) -> BTreeMap<String, Vec<u32>> {
        all.iter().map(|(name, osts)| ((*name).to_owned(), osts.to_vec())).collect()
    }

    fn wanting(pool: &str) -> Template {
        let pool = layout::pool::padded(pool).expect("a name");
        Template { stripe_count: -1, pool, ..Template::default() }
    }

    fn place(
        spaces: &mut Spaces,
        template: &Template,
    ) -> Result<(Vec<u32>, String), PlacementError> {
        let osts = [0, 1, 2, 3].map(OstAt::from);
        let Chosen { osts: mut chosen, pool } =
            spaces.place(template, &osts, &Policy::default(), 0, 0)?;
        chosen.sort_unstable();
        Ok((chosen, Template { pool, ..Template::default() }.pool_name()))
    }

    #[test]
    fn a_file_keeps_to_its_pool() {
        let mut spaces = spaces(0);
        spaces.set_pools(&pools(&[("flash", &[1, 3, 9]), ("empty", &[])]));
        let told = |osts: &[u32], pool: &str| Ok((osts.to_vec(), pool.to_owned()));
        assert_eq!(place(&mut spaces, &wanting("flash")), told(&[1, 3], "flash"));
        assert_eq!(place(&mut spaces, &wanting("empty")), Err(PlacementError::NoneUsable));
        let gone = place(&mut spaces, &wanting("gone"));
        assert_eq!(gone, told(&[0, 1, 2, 3], "gone"), "its name stays, and says nothing");
        let ignore = Template { pool: layout::pool::IGNORE, ..wanting("flash") };
        assert_eq!(place(&mut spaces, &ignore), told(&[0, 1, 2, 3], ""));
        let list = |osts: &[u32]| Template {
            stripe_count: osts.len() as i32,
            osts: osts.to_vec(),
            ..wanting("flash")
        };
        assert_eq!(place(&mut spaces, &list(&[3])), told(&[3], "flash"));
        assert_eq!(place(&mut spaces, &list(&[0, 3])), told(&[0, 3], ""), "not of this pool");
        let from = |start| Template { start, stripe_count: 1, ..wanting("flash") };
        assert_eq!(place(&mut spaces, &from(1)), told(&[1], "flash"));
        assert_eq!(place(&mut spaces, &from(2)), told(&[2], ""));
    }

    #[test]
    fn a_foretold_choice_is_the_next_one() {
        let mut spaces = spaces(3);
        spaces.set_pools(&pools(&[("flash", &[1, 3])]));
        let osts = [0, 1, 2, 3].map(OstAt::from);
        let (any, policy) = (Template { stripe_count: 1, ..wanting("flash") }, Policy::default());
        let empty = Template { pool: [0; POOL_BYTES], ..any.clone() };
        for _ in 0..5 {
            let told = spaces.foretell([&any, &empty, &any].into_iter(), &osts, &policy, 0);
            let made = [&any, &empty, &any].map(|template| {
                let chosen = spaces.place(template, &osts, &policy, 0, 0);
                chosen.map(|chosen| (Rule::RoundRobin, chosen.osts))
            });
            assert_eq!(told, made);
        }
        let gone = Template { start: 9, ..empty };
        let told = spaces.foretell([&gone].into_iter(), &osts, &policy, 0);
        assert_eq!(told, [Err(PlacementError::Unknown(9))]);
    }

    #[test]
    fn a_pool_that_fills_up_spills_into_another_as_it_is_told() {
        let mut spaces = spaces(0);
        spaces.set_pools(&pools(&[("flash", &[0, 1]), ("disk", &[2, 3]), ("tape", &[3])]));
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        let spill = |target: &str, threshold_percent| Spill {
            target: target.to_owned(),
            threshold_percent,
        };
        spaces.told(0, room(100_000), None);
        spaces.told(1, room(300_000), None);
        let pool = |spaces: &mut Spaces| place(spaces, &wanting("flash")).map(|(_, pool)| pool);
        assert_eq!(pool(&mut spaces), Ok("flash".to_owned()), "nobody said where to");
        let set = |spaces: &mut Spaces, name: &str, spill| {
            spaces.pools.get_mut(name).expect("it is there").spill = spill;
        };
        set(&mut spaces, "flash", spill("disk", 81));
        assert_eq!(pool(&mut spaces), Ok("flash".to_owned()), "80 % are used");
        set(&mut spaces, "flash", spill("disk", 80));
        let spilled = place(&mut spaces, &wanting("flash"));
        assert_eq!(spilled, Ok((vec![2, 3], "disk".to_owned())));
        set(&mut spaces, "disk", spill("flash", 0));
        assert!(pool(&mut spaces).is_ok(), "a circle ends");
        set(&mut spaces, "disk", spill("tape", 0));
        assert_eq!(pool(&mut spaces), Ok("tape".to_owned()));
        set(&mut spaces, "flash", spill("gone", 80));
        assert_eq!(pool(&mut spaces), Ok("flash".to_owned()));
        spaces.set_pools(&pools(&[("flash", &[1])]));
        assert_eq!(spaces.pools["flash"].spill, spill("gone", 80), "what was set stays");
        assert_eq!(spaces.pools.len(), 1);
    }

    #[test]
    fn a_pool_whose_osts_are_all_full_spills_below_100_percent() {
        let mut spaces = spaces(0);
        spaces.set_pools(&pools(&[("flash", &[0, 1]), ("disk", &[2])]));
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        let pool = |spaces: &mut Spaces| place(spaces, &wanting("flash")).map(|(_, pool)| pool);
        spaces.told(0, room(900), None);
        spaces.told(1, room(900), None);
        assert_eq!(pool(&mut spaces), Ok("flash".to_owned()), "no other pool is set");
        spaces.pools.get_mut("flash").expect("it is there").spill.target = "disk".to_owned();
        assert_eq!(pool(&mut spaces), Ok("disk".to_owned()));
        spaces.told(1, room(3_000), None);
        assert_eq!(pool(&mut spaces), Ok("flash".to_owned()), "one has room again");
        spaces.told(1, room(900), None);
        spaces.told(0, room(900), Some(Closed::ReadOnly));
        assert_eq!(pool(&mut spaces), Ok("flash".to_owned()), "a read-only OST is not full");
    }

    #[test]
    fn files_grow_where_there_is_room_that_was_not_promised() {
        let mut spaces = spaces(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        assert_eq!(spaces.fits(&[0], 100_000, &osts), u64::MAX / 100_000, "it told nothing");
        spaces.told(0, room(500_000), None);
        spaces.told(1, room(250_000), None);
        assert_eq!(spaces.fits(&[0, 1], 100_000, &osts), 2);
        assert_eq!(spaces.fits(&[1, 1], 100_000, &osts), 1, "two stripes on one OST");
        assert_eq!(spaces.fits(&[0, 9], 100_000, &osts), 0, "an OST that is not there");
        assert_eq!(spaces.fits(&[9], 100_000, &[]), u64::MAX, "none is known yet");
        spaces.promise(&[0, 1], 100_000, 2);
        assert_eq!([0, 1].map(|ost| spaces.fits(&[ost], 100_000, &osts)), [3, 0]);
        spaces.take_back_promises();
        assert_eq!([0, 1].map(|ost| spaces.fits(&[ost], 100_000, &osts)), [5, 2]);
        spaces.promise(&[0, 1], 100_000, 2);
        spaces.keep_promises();
        assert_eq!([0, 1].map(|ost| spaces.fits(&[ost], 100_000, &osts)), [4, 1], "one step");
        spaces.promise(&[0, 1], 100_000, 1);
        spaces.keep_promises();
        spaces.take_back_promises();
        assert_eq!([0, 1].map(|ost| spaces.fits(&[ost], 100_000, &osts)), [3, 0]);
        spaces.told(1, room(250_000), None);
        assert_eq!(spaces.fits(&[1], 100_000, &osts), 0, "this may be older than the promise");
        spaces.told(1, room(250_000), None);
        assert_eq!(spaces.fits(&[1], 100_000, &osts), 2, "it counts what was written itself");
        spaces.told(0, room(500_000), Some(Closed::ReadOnly));
        assert_eq!(spaces.fits(&[0], 1, &osts), 0);
        let inactive = osts.map(|ost| OstAt { is_active: false, ..ost });
        assert_eq!(spaces.fits(&[1], 1, &inactive), 0);
    }

    #[test]
    fn components_that_grow_go_to_osts_with_room_for_a_step() {
        let mut spaces = spaces(0);
        let osts = [0, 1, 2].map(OstAt::from);
        let room = |bytes_avail| Space { bytes: 1_000_000, bytes_avail, files_free: 1_000 };
        for (index, left) in [(0, 20_000), (1, 900_000), (2, 30_000)] {
            spaces.told(index, room(left), None);
        }
        let mut chosen = |template: &Template, bytes| {
            let chosen = spaces.place(template, &osts, &Policy::default(), 0, bytes);
            let mut osts = chosen.expect("OSTs").osts;
            osts.sort_unstable();
            osts
        };
        let all = Template { stripe_count: -1, ..Template::default() };
        assert_eq!(chosen(&all, 100_000), [1]);
        assert_eq!(chosen(&all, 25_000), [1, 2]);
        assert_eq!(chosen(&all, 1_000_000), [0, 1, 2], "none has so much");
        let listed = Template { stripe_count: 1, osts: vec![0], ..Template::default() };
        assert_eq!(chosen(&listed, 100_000), [0], "it was asked for");
        let four = Template { stripe_count: 4, overstriped: true, ..Template::default() };
        assert_eq!(chosen(&four, 15_000), [1, 1, 2, 2], "the other one has no room for two");
        assert_eq!(chosen(&four, 20_000), [1; 4], "only one has room for more than one");
        assert_eq!(chosen(&four, 250_000), [1; 4], "for one of them");
        let two_on_each = Template { stripe_count: -2, ..four };
        assert_eq!(chosen(&two_on_each, 15_000), [1, 1, 2, 2], "not all have room for two");
    }
}
