//! Names that the kernel caches, and until when. A notification makes it forget a single name, or
//! look the name of a directory up again.
//!
//! ```text
//!  told (LOOKUP, CREATE, READDIRPLUS) --> believed --time, recall, FORGET, own unlink--> gone
//!                                             own rename: the kernel takes its time along
//! ```
//! An order to forget the name of a directory would remove the mounts on it. So only its time ends.

use std::collections::BTreeMap;
use std::rc::Rc;

use fusedev::Name;
use types::Instant;

use crate::brief::Brief;
use crate::limits::NAMES_MAX;

/// What a name was told to stand for.
#[derive(Clone, Copy, Debug)]
struct Told {
    nodeid: u64,
    at: Instant,
    until: Instant,
}

#[derive(Default)]
pub(crate) struct Names {
    by_name: BTreeMap<Name, Told>,
    by_node: BTreeMap<u64, Vec<Name>>,
    /// Renames that are not answered: from there to there, and whether the other way too.
    moving: Vec<(Name, Name, bool)>,
    brief: Brief,
}

impl Names {
    /// Whether the kernel may believe one more name of the node for long.
    pub(crate) fn has_room(&self, nodeid: u64, parent: u64, name: &[u8]) -> bool {
        let Some(names) = self.by_node.get(&nodeid) else { return true };
        names.len() < NAMES_MAX || names.iter().any(|of| of.0 == parent && *of.1 == *name)
    }

    /// The kernel is about to hear at `at` that a name stands for a node until `until`.
    pub(crate) fn told(
        &mut self,
        (parent, name): (u64, &[u8]),
        nodeid: u64,
        at: Instant,
        until: Instant,
    ) {
        let key = (parent, Rc::from(name));
        if let Some(told) = self.by_name.get_mut(&key).filter(|told| told.nodeid == nodeid) {
            (told.at, told.until) = (at, until.max(told.until));
            return;
        }
        self.remove(&key);
        self.insert(key, Told { nodeid, at, until });
    }

    /// The same for a moment only, or for none.
    pub(crate) fn told_briefly(&mut self, name: (u64, &[u8]), nodeid: u64, at: Instant) {
        self.brief.told(name, nodeid, at);
    }

    /// The names by which the kernel may believe to find a node, now or when what it asked for is
    /// answered.
    pub(crate) fn of(&self, nodeid: u64, now: Instant) -> Vec<Name> {
        let Some(names) = self.by_node.get(&nodeid) else { return Vec::new() };
        let believed = names.iter().filter(|name| self.until(name) > now);
        self.with_moves(believed.cloned().collect())
    }

    /// All of them.
    pub(crate) fn all(&self, now: Instant) -> Vec<Name> {
        let believed = self.by_name.iter().filter(|(_, told)| told.until > now);
        self.with_moves(believed.map(|(name, _)| name.clone()).collect())
    }

    fn with_moves(&self, mut names: Vec<Name>) -> Vec<Name> {
        for (from, to, is_exchange) in &self.moving {
            let (has_from, has_to) = (names.contains(from), names.contains(to));
            if has_from && !has_to {
                names.push(to.clone());
            }
            if has_to && !has_from && *is_exchange {
                names.push(from.clone());
            }
        }
        names
    }

    /// The kernel has asked for a rename. It may do it before or after it hears anything else.
    pub(crate) fn moves(&mut self, from: &Name, to: &Name, is_exchange: bool) {
        self.moving.push((from.clone(), to.clone(), is_exchange));
    }

    /// Whether the kernel has asked for a rename of one of these names, and keeps the directories
    /// locked until it is answered.
    pub(crate) fn are_moving(&self, names: &[Name]) -> bool {
        self.moving.iter().any(|(from, to, _)| names.contains(from) || names.contains(to))
    }

    /// That rename is over: done, refused or given up.
    pub(crate) fn moves_no_more(&mut self, from: &Name, to: &Name) {
        if let Some(at) = self.moving.iter().position(|(a, b, _)| (a, b) == (from, to)) {
            self.moving.swap_remove(at);
        }
    }

    /// Until when the kernel believes a name.
    pub(crate) fn until(&self, name: &Name) -> Instant {
        self.by_name.get(name).map_or(Instant(0), |told| told.until)
    }

    /// The node that a name was told to stand for, and until when.
    pub(crate) fn told_of(&self, parent: u64, name: &[u8]) -> Option<(u64, Instant)> {
        let key: Name = (parent, Rc::from(name));
        self.by_name.get(&key).map(|told| (told.nodeid, told.until))
    }

    /// The node that the kernel was told last, even if only for a moment.
    pub(crate) fn node_of(&self, parent: u64, name: &[u8]) -> Option<u64> {
        let told = self.by_name.get(&(parent, Rc::from(name))).map(|told| (told.nodeid, told.at));
        let brief = self.brief.get(parent, name);
        let (nodeid, _) = told.into_iter().chain(brief).max_by_key(|(_, at)| *at)?;
        Some(nodeid)
    }

    /// The directories in which a node has names that the kernel was told.
    pub(crate) fn dirs_of(&self, nodeid: u64) -> Vec<u64> {
        let names = self.by_node.get(&nodeid).into_iter().flatten();
        names.map(|(dir, _)| *dir).collect()
    }

    /// When the kernel was told a name last.
    pub(crate) fn told_at(&self, name: &Name) -> Instant {
        self.by_name.get(name).map_or(Instant(0), |told| told.at)
    }

    /// The kernel has forgotten a name.
    pub(crate) fn remove(&mut self, name: &Name) {
        let Some(told) = self.by_name.remove(name) else { return };
        let Some(names) = self.by_node.get_mut(&told.nodeid) else { return };
        names.retain(|of| of != name);
        if names.is_empty() {
            self.by_node.remove(&told.nodeid);
        }
    }

    /// The kernel is told at `at` that it may move a name; in an exchange, the other one too.
    pub(crate) fn moved(&mut self, from: Name, to: Name, is_exchange: bool, at: Instant) {
        let nodes = [&from, &to].map(|name| self.node_of(name.0, &name.1));
        let (old, new) = (self.take(&from), self.take(&to));
        for (name, nodeid) in [(&to, nodes[0]), (&from, nodes[1].filter(|_| is_exchange))] {
            if let Some(nodeid) = nodeid {
                self.brief.told((name.0, &name.1), nodeid, at);
            }
        }
        if let Some(told) = old {
            self.insert(to, Told { at, ..told });
        }
        if let Some(told) = new.filter(|_| is_exchange) {
            self.insert(from, Told { at, ..told });
        }
    }

    /// The kernel has dropped a node, and so all its names.
    pub(crate) fn forget(&mut self, nodeid: u64) {
        for name in self.by_node.remove(&nodeid).unwrap_or_default() {
            self.by_name.remove(&name);
        }
    }

    /// The kernel believes no name any more.
    pub(crate) fn clear(&mut self) {
        self.by_name.clear();
        self.by_node.clear();
    }

    fn take(&mut self, name: &Name) -> Option<Told> {
        let told = self.by_name.get(name).copied();
        self.remove(name);
        told
    }

    fn insert(&mut self, name: Name, told: Told) {
        self.by_node.entry(told.nodeid).or_default().push(name.clone());
        self.by_name.insert(name, told);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn name(parent: u64, name: &str) -> Name {
        (parent, Rc::from(name.as_bytes()))
    }

    fn told(names: &mut Names, parent: u64, of: &str, nodeid: u64, until: u64) {
        names.told((parent, of.as_bytes()), nodeid, Instant(1), Instant(until));
    }

    #[test]
    fn the_node_of_a_name_is_that_of_the_last_answer_however_long_it_holds() {
        let mut names = Names::default();
        assert_eq!(names.node_of(1, b"a"), None);
        names.told_briefly((1, b"a"), 7, Instant(1));
        assert_eq!((names.node_of(1, b"a"), names.of(7, Instant(1))), (Some(7), Vec::new()));
        names.told((1, b"a"), 8, Instant(2), Instant(9));
        assert_eq!(names.node_of(1, b"a"), Some(8));
        names.told_briefly((1, b"a"), 9, Instant(3));
        names.told_briefly((1, b"b"), 6, Instant(3));
        assert_eq!(names.node_of(1, b"a"), Some(9));
        names.moved(name(1, "a"), name(1, "b"), true, Instant(4));
        assert_eq!([&b"a"[..], b"b"].map(|name| names.node_of(1, name)), [Some(6), Some(9)]);
    }

    #[test]
    fn a_name_is_believed_until_its_time_is_over_or_it_is_removed() {
        let mut names = Names::default();
        told(&mut names, 1, "a", 7, 10);
        told(&mut names, 1, "a", 7, 5);
        told(&mut names, 2, "b", 7, 20);
        assert_eq!(names.of(7, Instant(9)), [name(1, "a"), name(2, "b")], "the later time counts");
        assert_eq!(names.of(7, Instant(10)), [name(2, "b")]);
        names.remove(&name(2, "b"));
        assert!(names.of(7, Instant(10)).is_empty());
        told(&mut names, 1, "a", 8, 30);
        assert_eq!(
            (names.of(7, Instant(0)), names.of(8, Instant(0))),
            (vec![], vec![name(1, "a")])
        );
        names.forget(8);
        assert!(names.by_name.is_empty() && names.by_node.is_empty());
    }

    #[test]
    fn a_name_that_is_moved_takes_its_time_along() {
        let mut names = Names::default();
        told(&mut names, 1, "a", 7, 10);
        told(&mut names, 1, "b", 8, 20);
        names.moved(name(1, "a"), name(1, "b"), true, Instant(3));
        assert_eq!(
            (names.until(&name(1, "b")), names.until(&name(1, "a"))),
            (Instant(10), Instant(20))
        );
        names.moved(name(1, "b"), name(2, "a"), false, Instant(3));
        names.moved(name(2, "a"), name(1, "a"), false, Instant(3));
        assert_eq!(names.of(7, Instant(0)), [name(1, "a")]);
        assert!(names.of(8, Instant(0)).is_empty(), "it was replaced");
        names.moved(name(3, "x"), name(1, "a"), false, Instant(3));
        assert!(names.by_name.is_empty(), "a name that was not told replaces one");
    }

    #[test]
    fn a_name_that_is_being_moved_may_be_in_both_places() {
        let mut names = Names::default();
        let (a, b) = (name(1, "a"), name(1, "b"));
        told(&mut names, 1, "a", 7, 10);
        told(&mut names, 1, "b", 8, 10);
        names.moves(&a, &b, false);
        assert_eq!(names.of(7, Instant(0)), [a.clone(), b.clone()]);
        assert_eq!(names.of(8, Instant(0)), vec![b.clone()], "it goes nowhere");
        assert!(names.are_moving(&[name(2, "a"), b.clone()]) && !names.are_moving(&[name(2, "a")]));
        names.moves_no_more(&a, &b);
        assert_eq!(names.of(7, Instant(0)), vec![a.clone()]);
        names.moves(&a, &b, true);
        assert_eq!(names.of(8, Instant(0)), [b, a]);
    }

    #[test]
    fn a_node_has_few_names_that_are_believed_for_long() {
        let mut names = Names::default();
        (0..NAMES_MAX as u64).for_each(|parent| told(&mut names, parent, "a", 7, 10));
        assert!(!names.has_room(7, 1_000, b"a") && names.has_room(7, 1, b"a"));
        assert!(names.has_room(8, 1_000, b"a"));
    }
}
