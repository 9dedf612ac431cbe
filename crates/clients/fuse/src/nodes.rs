//! Node ids, which are the kernel's names for files, and their FIDs.
//!
//! The id of a file is computed from its FID, so it is the same on every mount while the file
//! exists. Therefore a file handle (`name_to_handle_at`, an NFS server's) outlives caches and
//! mounts.
//!
//! ```text
//!  63            32 31             0
//! | seq - SEQ_BASE |      oid       |   1 is the root; a FID that does not fit gets a number of
//! |       0        | 2, 3, 4, ...   |   this mount
//! ```
//!
//! Invariants
//! - A FID that the kernel knows has exactly one node id.
//! - A node id never names two files, because neither FIDs nor a mount's own numbers are reused.
//! - A node lives while the kernel holds references to it: each entry in an answer counts one,
//!   FORGET drops them.
//! - The root always exists.
//! - The kernel truncates its cached pages to any size that it is given. Therefore, if an answer's
//!   size is not known, the kernel gets the previous size again: [`Nodes::tell`].

use std::collections::BTreeMap;

use client::Attr;
use fusedev::abi::ROOT_ID;
use types::{Fid, Instant, Timespec};

use crate::guard::Guard;
use crate::limits::{BELIEF_MAX, FRESH_LEAST};
use crate::names::Names;

/// What is known of a node.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Node {
    pub(crate) fid: Fid,
    /// Mode as the last attributes said; type bits never change.
    pub(crate) mode: u32,
    lookups: u64,
    /// Of a file: size and modification time as the kernel has them.
    told: Option<(u64, Timespec)>,
    /// Who was told last that its attributes may be believed.
    believer: Option<Believer>,
    /// Until when the kernel believes at most: attributes that it can be made to forget, those that
    /// it cannot, and names.
    guarded_until: Instant,
    unguarded_until: Instant,
    named_until: Instant,
    /// Until when the kernel has the attributes that it heard last, unless it doubts them.
    fresh_until: Instant,
    /// Requests under way that take a name of it away, and until when the kernel may still have to
    /// count the last of these.
    unlinks: u32,
    unlinked_until: Instant,
}

/// What the kernel may believe of a file.
pub(crate) struct Believed {
    pub(crate) nodeid: u64,
    /// Attributes that it can be made to forget.
    pub(crate) is_kept: bool,
    /// Until when, attributes that it cannot be made to forget, and names.
    pub(crate) attrs_until: Instant,
    pub(crate) names_until: Instant,
}

/// Threads that were told to believe attributes, and may not have run since.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Believer {
    at: Instant,
    thread: u32,
    /// Others were told shortly before.
    several: bool,
}

/// Sequences of files begin somewhat above it ([`types::FID_FIRST_NORMAL_SEQ`]).
const SEQ_BASE: u64 = 0x2_0000_0000;

/// The node id of a file on every mount, if its FID fits into one.
fn derived(fid: Fid) -> Option<u64> {
    if fid == Fid::ROOT {
        return Some(ROOT_ID);
    }
    let seq = fid.seq.checked_sub(SEQ_BASE).filter(|seq| *seq > 0)?;
    let seq = u32::try_from(seq).ok().filter(|_| fid.ver == 0)?;
    Some(u64::from(seq) << 32 | u64::from(fid.oid))
}

/// The file of a node id that was computed from its FID.
fn origin(id: u64) -> Option<Fid> {
    let (seq, oid) = (id >> 32, id as u32);
    (seq != 0).then(|| Fid::new(SEQ_BASE + seq, oid))
}

/// Generations that go with node ids in file handles: the kernel refuses (ESTALE) a handle whose
/// generation is not the one that it hears now.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Generations {
    /// Of ids that are the same on every mount: of the file system.
    lasting: u32,
    /// Of numbers of this mount.
    passing: u32,
}

impl Generations {
    /// `identity` of the file system, zero where it is not known; `random`: another one per mount.
    pub(crate) fn new(identity: u128, random: u32) -> Generations {
        let folded = identity ^ (identity >> 64);
        let folded = (folded ^ (folded >> 32)) as u32;
        let lasting = if identity == 0 { random } else { folded };
        Generations { lasting: lasting.max(1), passing: random.max(1) }
    }

    /// The kernel has made up the root's itself.
    pub(crate) fn of(self, id: u64) -> u32 {
        match origin(id) {
            _ if id == ROOT_ID => 0,
            Some(_) => self.lasting,
            None => self.passing,
        }
    }
}

pub(crate) struct Nodes {
    by_id: BTreeMap<u64, Node>,
    /// Of files whose FID does not fit.
    by_fid: BTreeMap<Fid, u64>,
    /// What directories and symbolic links looked like last: `fstat` of a directory that is open
    /// and removed shows it, and whether a read changes an access time depends on it.
    seen: BTreeMap<u64, Attr>,
    /// Names that the kernel believes for long.
    pub(crate) names: Names,
    /// Directories that were locked for long when the kernel was told of a name; until when none is
    /// believed for long.
    stuck: BTreeMap<u64, Instant>,
    /// How many entries of each known directory the kernel has had for less long than it was told,
    /// since [`Nodes::take_lost`] was asked last.
    lost: BTreeMap<u64, u32>,
    last: u64,
}

impl Nodes {
    pub(crate) fn new() -> Nodes {
        let root = Node { fid: Fid::ROOT, mode: libc::S_IFDIR, ..Node::default() };
        let root = Node { lookups: 1, ..root };
        Nodes {
            by_id: BTreeMap::from([(ROOT_ID, root)]),
            by_fid: BTreeMap::new(),
            seen: BTreeMap::new(),
            names: Names::default(),
            stuck: BTreeMap::new(),
            lost: BTreeMap::new(),
            last: ROOT_ID,
        }
    }

    pub(crate) fn get(&self, id: u64) -> Option<Node> {
        self.by_id.get(&id).copied()
    }

    /// The file of an id that the kernel has from a file handle: it may have forgotten the file, or
    /// another mount may have given the handle.
    pub(crate) fn of_handle(&self, id: u64) -> Option<Fid> {
        self.get(id).map(|node| node.fid).or_else(|| origin(id))
    }

    pub(crate) fn id_of(&self, fid: Fid) -> Option<u64> {
        derived(fid).or_else(|| self.by_fid.get(&fid).copied())
    }

    fn node_mut(&mut self, fid: Fid) -> Option<&mut Node> {
        let id = self.id_of(fid)?;
        self.by_id.get_mut(&id)
    }

    /// The kernel is being told of this file: one more reference.
    pub(crate) fn look_up(&mut self, fid: Fid, mode: u32) -> u64 {
        let id = derived(fid).unwrap_or_else(|| {
            *self.by_fid.entry(fid).or_insert_with(|| {
                self.last += 1;
                self.last
            })
        });
        let node = self.by_id.entry(id).or_insert(Node { fid, mode, ..Node::default() });
        node.lookups += 1;
        node.mode = mode;
        id
    }

    /// The kernel is about to hear these attributes. Where the size is not known it hears the size
    /// and the modification time of before: another size would cut its pages, another time drop
    /// them.
    pub(crate) fn tell(&mut self, attr: &mut Attr, size_known: bool) {
        let Some(node) = self.node_mut(attr.fid()).filter(|_| attr.is_file()) else { return };
        match node.told {
            Some((size, mtime)) if !size_known => {
                attr.size = size;
                attr.set_mtime(mtime);
            }
            _ => node.told = Some((attr.size, attr.mtime())),
        }
    }

    /// The kernel is about to hear something of a file that it may believe until `end`.
    pub(crate) fn told(&mut self, fid: Fid, end: Instant, guard: Guard) {
        let Some(node) = self.node_mut(fid) else { return };
        let until = match guard {
            Guard::Version => &mut node.guarded_until,
            Guard::None => &mut node.unguarded_until,
            Guard::Name => &mut node.named_until,
        };
        *until = end.max(*until);
    }

    /// The kernel is about to hear attributes of a file that replace those of before, and hold
    /// until `end`.
    pub(crate) fn heard(&mut self, fid: Fid, end: Instant) {
        let Some(id) = self.id_of(fid) else { return };
        let Some(node) = self.by_id.get_mut(&id) else { return };
        let ends_early = end + FRESH_LEAST < node.fresh_until;
        node.fresh_until = end;
        if ends_early {
            self.lose(id);
        }
    }

    /// The kernel asks to take a name of the node away.
    pub(crate) fn begin_unlink(&mut self, id: u64) {
        if let Some(node) = self.by_id.get_mut(&id) {
            node.unlinks += 1;
        }
    }

    /// That is being answered: until `until` the kernel lowers the link count that it has.
    pub(crate) fn end_unlink(&mut self, id: u64, until: Instant) {
        let Some(node) = self.by_id.get_mut(&id) else { return };
        // the kernel may have forgotten the node meanwhile, and have heard of it again
        node.unlinks = node.unlinks.saturating_sub(1);
        node.unlinked_until = until;
    }

    /// Whether the kernel is about to lower the link count of the node by itself.
    pub(crate) fn is_unlinking(&self, id: u64, now: Instant) -> bool {
        self.by_id.get(&id).is_some_and(|node| node.unlinks > 0 || node.unlinked_until > now)
    }

    /// The kernel will ask for the attributes.
    pub(crate) fn doubts(&mut self, id: u64) {
        let Some(node) = self.by_id.get_mut(&id) else { return };
        let had_attrs = node.fresh_until != Instant::default();
        node.fresh_until = Instant::default();
        if had_attrs {
            self.lose(id);
        }
    }

    /// The kernel will ask for the attributes of a directory that it has listed, where a caller
    /// wants the access time. Callers that walk through directories do not.
    pub(crate) fn doubts_atime(&mut self, id: u64) {
        if let Some(node) = self.by_id.get_mut(&id) {
            node.fresh_until = Instant::default();
        }
    }

    /// The kernel will ask for a node that it would have had for longer.
    fn lose(&mut self, id: u64) {
        for dir in self.names.dirs_of(id) {
            if self.by_id.contains_key(&dir) {
                let lost = self.lost.entry(dir).or_default();
                *lost = lost.saturating_add(1);
            }
        }
    }

    /// How many entries of a directory the kernel has lost since this was asked last.
    pub(crate) fn take_lost(&mut self, dir: u64) -> u32 {
        self.lost.remove(&dir).unwrap_or_default()
    }

    /// Until when the kernel has the attributes of a file, and that a name in a directory stands
    /// for it.
    pub(crate) fn fresh_until(&self, fid: Fid, (dir, name): (u64, &[u8])) -> Instant {
        let attrs = self.id_of(fid).and_then(|id| Some((id, self.by_id.get(&id)?.fresh_until)));
        let Some((id, attrs)) = attrs else { return Instant::default() };
        let named = self.names.told_of(dir, name).filter(|(of, _)| *of == id);
        named.map_or(Instant::default(), |(_, until)| until.min(attrs))
    }

    /// What the kernel may believe of a file at `now`.
    pub(crate) fn believed(&self, fid: Fid, now: Instant) -> Option<Believed> {
        let nodeid = self.id_of(fid)?;
        let node = self.by_id.get(&nodeid)?;
        Some(Believed {
            nodeid,
            is_kept: node.guarded_until > now,
            attrs_until: node.unguarded_until,
            names_until: node.named_until,
        })
    }

    /// Until when the kernel believes attributes of a node if it is not made to forget them.
    pub(crate) fn guarded_until(&self, id: u64) -> Instant {
        self.by_id.get(&id).map_or(Instant::default(), |node| node.guarded_until)
    }

    /// The nodes of which the kernel believes something that it can be made to forget.
    pub(crate) fn all_believed(&self, now: Instant) -> Vec<u64> {
        let believed = self.by_id.iter().filter(|(_, node)| node.guarded_until > now);
        believed.map(|(id, _)| *id).collect()
    }

    /// A directory stays locked: until then no name in it is believed for long.
    pub(crate) fn stuck(&mut self, dir: u64, until: Instant, now: Instant) {
        self.stuck.retain(|_, until| *until > now);
        self.stuck.insert(dir, until);
    }

    pub(crate) fn is_stuck(&self, dir: u64, now: Instant) -> bool {
        self.stuck.get(&dir).is_some_and(|until| *until > now)
    }

    /// A thread is told that it may believe the attributes.
    pub(crate) fn believes(&mut self, id: u64, thread: u32, now: Instant) {
        let Some(node) = self.by_id.get_mut(&id) else { return };
        let before = node.believer.filter(|before| now - before.at < BELIEF_MAX);
        let several = before.is_some_and(|before| before.several || before.thread != thread);
        node.believer = Some(Believer { at: now, thread, several });
    }

    /// A change that `thread` has asked for was made. Whether another thread may still have to take
    /// in attributes of before, which the kernel would then believe: it does not count its own
    /// changes of a directory as news. A thread that asks again has taken in what it was told.
    pub(crate) fn outdates(&mut self, id: u64, thread: u32, now: Instant) -> bool {
        let Some(node) = self.by_id.get_mut(&id) else { return false };
        let told = node.believer.filter(|told| now - told.at < BELIEF_MAX);
        let outdates = told.is_some_and(|told| told.several || told.thread != thread);
        if outdates {
            node.believer = None;
            node.fresh_until = Instant::default();
        }
        outdates
    }

    /// The kernel takes the file for at least as long as `end`, because it wrote there.
    pub(crate) fn grew(&mut self, id: u64, end: u64) {
        if let Some((size, _)) = self.by_id.get_mut(&id).and_then(|node| node.told.as_mut()) {
            *size = end.max(*size);
        }
    }

    /// The kernel takes the file for empty, because it opened it so.
    pub(crate) fn was_cut(&mut self, id: u64) {
        if let Some((size, _)) = self.by_id.get_mut(&id).and_then(|node| node.told.as_mut()) {
            *size = 0;
        }
    }

    /// Attributes of a directory or symbolic link that the kernel knows came.
    pub(crate) fn saw_times(&mut self, attr: &Attr) {
        let known = self.id_of(attr.fid()).filter(|id| self.by_id.contains_key(id));
        let kept = matches!(attr.file_type(), libc::S_IFDIR | libc::S_IFLNK);
        if let Some(id) = known.filter(|_| kept) {
            self.seen.insert(id, *attr);
        }
    }

    /// What a directory or symbolic link looked like last.
    pub(crate) fn seen(&self, id: u64) -> Option<Attr> {
        self.seen.get(&id).copied()
    }

    pub(crate) fn saw(&mut self, fid: Fid, mode: u32) {
        if let Some(node) = self.node_mut(fid) {
            node.mode = mode;
        }
    }

    pub(crate) fn forget(&mut self, id: u64, lookups: u64) {
        if id == ROOT_ID {
            return;
        }
        let Some(node) = self.by_id.get_mut(&id) else { return };
        node.lookups = node.lookups.saturating_sub(lookups);
        if node.lookups == 0 {
            let fid = node.fid;
            self.lose(id);
            self.by_id.remove(&id);
            self.by_fid.remove(&fid);
            self.seen.remove(&id);
            self.names.forget(id);
            self.lost.remove(&id);
        }
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    const A: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };

    #[test]
    fn a_file_has_one_id_until_all_references_are_forgotten() {
        let mut nodes = Nodes::new();
        let id = nodes.look_up(A, 0);
        assert_eq!(nodes.look_up(A, 0), id);
        nodes.forget(id, 1);
        assert_eq!(nodes.get(id).map(|node| node.fid), Some(A));
        nodes.forget(id, 1);
        assert_eq!(nodes.get(id), None);
    }

    #[test]
    fn what_the_kernel_has_is_what_it_heard_last_under_that_name() {
        let (mut nodes, at) = (Nodes::new(), Instant);
        let id = nodes.look_up(A, 0);
        nodes.heard(A, at(10));
        assert!(nodes.fresh_until(A, (1, b"a")) <= at(5), "no name was told");
        nodes.names.told((1, b"a"), id, at(0), at(8));
        assert!(
            nodes.fresh_until(A, (1, b"a")) > at(5) && nodes.fresh_until(A, (1, b"a")) <= at(8)
        );
        assert!(
            nodes.fresh_until(A, (1, b"b")) <= at(5) && nodes.fresh_until(A, (2, b"a")) <= at(5)
        );
        nodes.heard(A, at(4));
        assert!(nodes.fresh_until(A, (1, b"a")) <= at(5), "the last answer counts");
        nodes.heard(A, at(10));
        nodes.doubts(id);
        assert!(nodes.fresh_until(A, (1, b"a")) <= at(5));
        nodes.heard(A, at(10));
        nodes.names.told((1, b"a"), id + 1, at(0), at(8));
        assert!(nodes.fresh_until(A, (1, b"a")) <= at(5), "the name is another file's");
        nodes.names.told((1, b"a"), id, at(0), at(8));
        nodes.forget(id, 1);
        assert!(nodes.fresh_until(A, (1, b"a")) <= at(5));
    }

    #[test]
    fn entries_that_the_kernel_has_to_ask_for_are_counted_in_their_directories() {
        let (mut nodes, at) = (Nodes::new(), |secs: u64| Instant::default() + Span::secs(secs));
        let id = nodes.look_up(A, 0);
        let lost = |nodes: &mut Nodes| [nodes.take_lost(ROOT_ID), nodes.take_lost(77)];
        nodes.names.told((ROOT_ID, b"a"), id, at(0), at(30));
        nodes.names.told((77, b"a"), id, at(0), at(30));
        nodes.heard(A, at(10));
        nodes.heard(A, at(20));
        assert_eq!(lost(&mut nodes), [0, 0]);
        nodes.doubts(id);
        nodes.doubts(id);
        assert_eq!(lost(&mut nodes), [1, 0], "once, and nothing of an unknown directory");
        assert_eq!(lost(&mut nodes), [0, 0]);
        nodes.heard(A, at(20));
        nodes.doubts_atime(id);
        assert!(nodes.fresh_until(A, (ROOT_ID, b"a")) < at(1));
        assert_eq!(lost(&mut nodes), [0, 0], "few callers ask for it");
        nodes.heard(A, at(20));
        nodes.heard(A, at(5));
        assert_eq!(lost(&mut nodes), [1, 0], "the answer to a change holds for a moment");
        nodes.forget(id, 1);
        assert_eq!(lost(&mut nodes), [1, 0]);
        nodes.doubts(id);
        assert!(nodes.lost.is_empty());
    }

    #[test]
    fn a_directory_is_remembered_as_it_was_until_it_is_forgotten() {
        let mut nodes = Nodes::new();
        let attr = Attr { mode: libc::S_IFDIR | 0o700, uid: 5, ..Attr::default() }.with_fid(A);
        nodes.saw_times(&attr);
        let id = nodes.look_up(A, attr.mode);
        assert_eq!(nodes.seen(id), None, "the kernel did not know it when it was seen");
        nodes.saw_times(&attr);
        assert_eq!(nodes.seen(id).map(|attr| attr.uid), Some(5));
        nodes.forget(id, 1);
        assert_eq!((nodes.seen(id), nodes.seen.len()), (None, 0));
    }

    #[test]
    fn a_size_that_is_not_known_is_the_one_of_before() {
        let told = |nodes: &mut Nodes, size, sec, known| {
            let mut attr = Attr { mode: libc::S_IFREG, size, mtime: sec, ..Attr::default() };
            attr = attr.with_fid(A);
            nodes.tell(&mut attr, known);
            (attr.size, attr.mtime)
        };
        let mut nodes = Nodes::new();
        let id = nodes.look_up(A, libc::S_IFREG);
        assert_eq!(told(&mut nodes, 5, 1, false), (5, 1), "there is no size of before");
        assert_eq!(told(&mut nodes, 100, 2, true), (100, 2));
        assert_eq!(told(&mut nodes, 7, 3, false), (100, 2));
        nodes.grew(id, 300);
        nodes.grew(id, 200);
        assert_eq!(told(&mut nodes, 7, 3, false), (300, 2), "the kernel wrote up to there");
        nodes.was_cut(id);
        assert_eq!(told(&mut nodes, 7, 3, false), (0, 2));
        assert_eq!(told(&mut nodes, 7, 3, true), (7, 3));
    }

    #[test]
    fn an_id_is_the_same_on_every_mount_and_names_its_file_when_all_is_forgotten() {
        let fids = [Fid::new(0x2_0000_0400, 1), Fid::new(0x2_ffff_ffff, u32::MAX)];
        for fid in fids.into_iter().chain([Fid::ROOT]) {
            let mut nodes = Nodes::new();
            let id = nodes.look_up(fid, 0);
            assert_eq!(Nodes::new().look_up(fid, 0), id);
            nodes.forget(id, 1);
            assert_eq!(nodes.of_handle(id), Some(fid));
            assert_eq!(nodes.get(id).is_some(), fid == Fid::ROOT);
        }
        assert_eq!(Nodes::new().of_handle(0), None);
    }

    #[test]
    fn a_number_of_the_mount_is_never_given_twice_and_names_nothing_when_forgotten() {
        let short = Fid { seq: 0x400, oid: 1, ver: 0 };
        let strange = [
            short,
            Fid { seq: 0x2_0000_0000, ..short },
            Fid { seq: 0x3_0000_0000, ..short },
            Fid { seq: 0x2_0000_0400, oid: 1, ver: 1 },
        ];
        let mut nodes = Nodes::new();
        let mut given: Vec<u64> = strange.iter().map(|fid| nodes.look_up(*fid, 0)).collect();
        assert_eq!(nodes.look_up(short, 0), given[0]);
        given.iter().for_each(|id| nodes.forget(*id, 2));
        assert!(given.iter().all(|id| nodes.of_handle(*id).is_none()));
        given.push(nodes.look_up(short, 0));
        assert!(given.is_sorted_by(|a, b| a < b) && given.iter().all(|id| origin(*id).is_none()));
    }

    #[test]
    fn a_handle_holds_on_every_mount_of_its_file_system_and_on_no_other() {
        let lasting = derived(A).expect("it fits");
        let of = |identity, random| Generations::new(identity, random).of(lasting);
        assert_eq!(of(7 << 100, 1), of(7 << 100, 2));
        assert_ne!(of(7 << 100, 1), of(8 << 100, 1));
        assert_ne!(of(0, 1), of(0, 2), "an MGS that says no identity");
        let passing = |random| Generations::new(7, random).of(ROOT_ID + 1);
        assert_ne!(passing(1), passing(2));
        assert_eq!((Generations::new(7, 1).of(ROOT_ID), passing(0)), (0, 1));
    }

    #[test]
    fn the_root_is_never_forgotten() {
        let mut nodes = Nodes::new();
        nodes.forget(ROOT_ID, u64::MAX);
        assert_eq!(nodes.look_up(Fid::ROOT, 0), ROOT_ID);
    }

    #[test]
    fn forgetting_too_much_or_the_unknown_harms_nobody() {
        let mut nodes = Nodes::new();
        let id = nodes.look_up(A, 0);
        nodes.forget(id, 100);
        nodes.forget(id, 1);
        nodes.forget(77, 1);
        assert_eq!(nodes.get(id), None);
    }
}
