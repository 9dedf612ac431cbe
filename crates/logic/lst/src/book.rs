//! A console's book: nodes and their states, groups, batches and their tests, and the lists that
//! `lst` prints.
//!
//! Invariants
//! - A node is in the book as long as a group names it.
//! - A group that a test names is not deleted; nodes that leave it take no part in later tests.
//! - A refused change changes nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use serde::{Deserialize, Serialize};
use types::{Errno, Nid};
use wire::lst::{Kind, TestSpec};

use crate::Distribute;
use crate::limits::{BATCHES_MAX, GROUPS_MAX, NAME_CHARS_MAX, NODES_MAX, TESTS_MAX};

/// How a node is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum NodeState {
    /// In this session.
    Active,
    /// In another one.
    Busy,
    /// It was active, and does not answer.
    Down,
    /// It never answered, or has lost the session.
    Unknown,
}

impl NodeState {
    /// All of them, in the order of columns.
    pub const ALL: [NodeState; 4] =
        [NodeState::Active, NodeState::Busy, NodeState::Down, NodeState::Unknown];

    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            NodeState::Active => "Active",
            NodeState::Busy => "Busy",
            NodeState::Down => "Down",
            NodeState::Unknown => "Unknown",
        }
    }
}

/// Why the book refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BookError {
    /// As an exit status.
    pub errno: Errno,
    pub text: String,
}

impl BookError {
    fn new(errno: Errno, text: impl Into<String>) -> BookError {
        BookError { errno, text: text.into() }
    }

    fn missing(name: &str) -> BookError {
        BookError::new(Errno::ENOENT, format!("Can't find {name} in current session"))
    }
}

/// A test of a batch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Test {
    pub spec: TestSpec,
    /// Group of sources.
    pub from: String,
    /// Group of destinations.
    pub to: String,
    /// Sources that take part, as they were when it was added.
    pub sources: Vec<Nid>,
    /// Destinations that take part.
    pub destinations: Vec<Nid>,
    /// Who talks to whom.
    pub distribute: Distribute,
}

/// Tests that run together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Batch {
    /// By number, from 1.
    pub tests: Vec<Test>,
    /// It was started and not stopped.
    pub is_running: bool,
}

impl Batch {
    /// Every node of its tests, or of one of them: sources first.
    #[must_use]
    pub fn nodes(&self, test: u32) -> (BTreeSet<Nid>, BTreeSet<Nid>) {
        let mut all = (BTreeSet::new(), BTreeSet::new());
        let asked = (1_u32..).zip(&self.tests).filter(|(number, _)| test == 0 || *number == test);
        for (_, test) in asked {
            all.0.extend(&test.sources);
            all.1.extend(&test.destinations);
        }
        all
    }
}

#[derive(Debug, Default)]
pub struct Book {
    nodes: BTreeMap<Nid, NodeState>,
    groups: BTreeMap<String, Vec<Nid>>,
    batches: BTreeMap<String, Batch>,
}

impl Book {
    #[must_use]
    pub fn nodes(&self) -> &BTreeMap<Nid, NodeState> {
        &self.nodes
    }

    /// A node of a group answered, or did not.
    pub fn set_state(&mut self, nid: Nid, state: NodeState) {
        if let Some(node) = self.nodes.get_mut(&nid) {
            *node = match (*node, state) {
                (NodeState::Unknown, NodeState::Down) => NodeState::Unknown,
                _ => state,
            };
        }
    }

    /// Adds nodes to a group, which is made if need be. Returns those that are new to the session.
    pub fn add_to_group(&mut self, group: &str, nids: &[Nid]) -> Result<Vec<Nid>, BookError> {
        name_is_good(group)?;
        let fresh: Vec<Nid> =
            nids.iter().copied().filter(|nid| !self.nodes.contains_key(nid)).collect();
        if self.nodes.len() + fresh.len() > NODES_MAX {
            return Err(BookError::new(
                Errno::E2BIG,
                format!("A session has at most {NODES_MAX} nodes"),
            ));
        }
        if !self.groups.contains_key(group) && self.groups.len() >= GROUPS_MAX {
            return Err(BookError::new(
                Errno::E2BIG,
                format!("A session has at most {GROUPS_MAX} groups"),
            ));
        }
        self.nodes.extend(fresh.iter().map(|nid| (*nid, NodeState::Unknown)));
        let members = self.groups.entry(group.to_owned()).or_default();
        members
            .extend(nids.iter().filter(|nid| !members.contains(nid)).copied().collect::<Vec<_>>());
        Ok(fresh)
    }

    /// Members of a group in the order added.
    pub fn group(&self, group: &str) -> Result<&[Nid], BookError> {
        self.groups.get(group).map(Vec::as_slice).ok_or_else(|| BookError::missing(group))
    }

    /// Names of the groups.
    #[must_use]
    pub fn has_group(&self, group: &str) -> bool {
        self.groups.contains_key(group)
    }

    /// Deletes a group. Returns the nodes that no other group names: they leave the session.
    pub fn delete_group(&mut self, group: &str) -> Result<Vec<Nid>, BookError> {
        let members = self.group(group)?.to_vec();
        let uses = |test: &Test| test.from == group || test.to == group;
        if self.batches.values().any(|batch| batch.tests.iter().any(uses)) {
            return Err(BookError::new(Errno::EBUSY, format!("{group} is used by a test")));
        }
        self.groups.remove(group);
        Ok(self.forget(&members))
    }

    /// Takes nodes out of a group. Returns the nodes that no other group names.
    pub fn remove_from_group(&mut self, group: &str, nids: &[Nid]) -> Result<Vec<Nid>, BookError> {
        self.group(group)?;
        if let Some(members) = self.groups.get_mut(group) {
            members.retain(|nid| !nids.contains(nid));
        }
        Ok(self.forget(nids))
    }

    fn forget(&mut self, nids: &[Nid]) -> Vec<Nid> {
        let named: BTreeSet<Nid> = self.groups.values().flatten().copied().collect();
        let gone: Vec<Nid> = nids.iter().copied().filter(|nid| !named.contains(nid)).collect();
        gone.into_iter().filter(|nid| self.nodes.remove(nid).is_some()).collect()
    }

    /// Members of a group in one of these states.
    pub fn members_in(&self, group: &str, states: &[NodeState]) -> Result<Vec<Nid>, BookError> {
        let is_in = |nid: &&Nid| self.nodes.get(nid).is_some_and(|state| states.contains(state));
        Ok(self.group(group)?.iter().filter(is_in).copied().collect())
    }

    /// Adds an empty batch.
    pub fn add_batch(&mut self, name: &str) -> Result<(), BookError> {
        name_is_good(name)?;
        if self.batches.contains_key(name) {
            return Err(BookError::new(Errno::EEXIST, format!("{name} already exists")));
        }
        if self.batches.len() >= BATCHES_MAX {
            return Err(BookError::new(
                Errno::E2BIG,
                format!("A session has at most {BATCHES_MAX} batches"),
            ));
        }
        self.batches.insert(name.to_owned(), Batch::default());
        Ok(())
    }

    pub fn batch(&self, name: &str) -> Result<&Batch, BookError> {
        self.batches.get(name).ok_or_else(|| BookError::missing(name))
    }

    /// It was started or stopped.
    pub fn set_running(&mut self, name: &str, is_running: bool) {
        if let Some(batch) = self.batches.get_mut(name) {
            batch.is_running = is_running;
        }
    }

    /// Adds a test between the active nodes of two groups. Returns its number.
    pub fn add_test(
        &mut self,
        batch: &str,
        spec: TestSpec,
        from: &str,
        to: &str,
        distribute: Distribute,
    ) -> Result<u32, BookError> {
        let active = |group: &str| {
            let nodes = self.members_in(group, &[NodeState::Active])?;
            let none =
                || BookError::new(Errno::EINVAL, format!("No active nodes in group {group}"));
            if nodes.is_empty() { Err(none()) } else { Ok(nodes) }
        };
        let (sources, destinations) = (active(from)?, active(to)?);
        if !self.batches.contains_key(batch) {
            return Err(BookError::missing(batch));
        }
        let tests = &mut self.batches.get_mut(batch).ok_or_else(|| BookError::missing(batch))?;
        if tests.is_running {
            return Err(BookError::new(Errno::EBUSY, format!("{batch} is running")));
        }
        if tests.tests.len() >= TESTS_MAX {
            return Err(BookError::new(
                Errno::E2BIG,
                format!("A batch has at most {TESTS_MAX} tests"),
            ));
        }
        tests.tests.push(Test {
            spec,
            from: from.to_owned(),
            to: to.to_owned(),
            sources,
            destinations,
            distribute,
        });
        Ok(u32::try_from(tests.tests.len()).expect("bounded above"))
    }

    /// Takes the newest test of a batch back.
    pub fn drop_test(&mut self, batch: &str) {
        if let Some(batch) = self.batches.get_mut(batch) {
            batch.tests.pop();
        }
    }

    fn counts<'a>(&self, nids: impl Iterator<Item = &'a Nid>) -> [usize; 5] {
        let mut counts = [0; 5];
        for nid in nids {
            let state = self.nodes.get(nid).copied().unwrap_or(NodeState::Unknown);
            counts[NodeState::ALL.iter().position(|each| *each == state).unwrap_or(3)] += 1;
            counts[4] += 1;
        }
        counts
    }

    // ---- what `lst` prints
    // ------------------------------------------------------------------------------------

    /// `lst list_group` without a group.
    #[must_use]
    pub fn list_groups(&self) -> String {
        listed(self.groups.keys(), "groups")
    }

    /// `lst list_group GROUP`: counts, or the nodes in these states.
    pub fn list_group(&self, group: &str, states: &[NodeState]) -> Result<String, BookError> {
        if states.is_empty() {
            let counts = self.counts(self.group(group)?.iter());
            return Ok(format!("{}\t{group}\n", columns(counts)));
        }
        let nodes = self.members_in(group, states)?;
        let mut out = format!("Group [ {group} ]\n");
        if self.group(group)?.is_empty() {
            return Ok(format!("{out}No nodes found [ {group} ]\n"));
        }
        self.write_nodes(&mut out, nodes.iter());
        Ok(format!("{out}Total {} nodes [ {group} ]\n", nodes.len()))
    }

    fn write_nodes<'a>(&self, out: &mut String, nids: impl Iterator<Item = &'a Nid>) {
        for nid in nids {
            let state = self.nodes.get(nid).copied().unwrap_or(NodeState::Unknown);
            let _ = writeln!(out, "\t12345-{nid}: {}", state.name());
        }
    }

    /// `lst list_batch` without a batch.
    #[must_use]
    pub fn list_batches(&self) -> String {
        listed(self.batches.keys(), "batches")
    }

    /// `lst list_batch BATCH [--test N]`.
    pub fn list_batch(&self, name: &str, test: Option<u32>) -> Result<String, BookError> {
        let batch = self.batch(name)?;
        let state = if batch.is_running { "Running" } else { "Idle" };
        let mut out = format!("Batch: {name} Tests: {} State: {state}\n", batch.tests.len());
        let mut found = test.is_none();
        for (number, one) in (1_u32..)
            .zip(&batch.tests)
            .filter(|(number, _)| test.is_none_or(|test| test == *number))
        {
            found = true;
            let loops = one.spec.loops.map_or_else(|| "-1".to_owned(), |loops| loops.to_string());
            let kind = kind_name(one.spec.kind);
            let _ = writeln!(
                out,
                "\tTest {number}({kind}) (loop: {loops}, concurrency: {})",
                one.spec.concurrency
            );
        }
        if !found {
            return Err(BookError::missing(&format!("test {}", test.unwrap_or_default())));
        }
        let (sources, destinations) = batch.nodes(test.unwrap_or(0));
        let (client, server) = (self.counts(sources.iter()), self.counts(destinations.iter()));
        Ok(format!("{out}{COUNTS_TITLE}client{}\nserver{}\n", columns(client), columns(server)))
    }

    /// `lst list_batch BATCH --all`, `--server`: the nodes.
    pub fn list_batch_nodes(
        &self,
        name: &str,
        test: Option<u32>,
        servers: bool,
    ) -> Result<String, BookError> {
        let (sources, destinations) = self.batch(name)?.nodes(test.unwrap_or(0));
        let nodes = if servers { destinations } else { sources };
        let mut out = String::new();
        self.write_nodes(&mut out, nodes.iter());
        Ok(format!("{out}Total {} nodes\n", nodes.len()))
    }
}

/// Head of the columns of [`Book::list_group`] without states: once above all groups.
pub const COUNTS_TITLE: &str = "\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\n";

fn columns(counts: [usize; 5]) -> String {
    counts.iter().map(|count| format!("\t{count}")).collect()
}

fn listed<'a>(names: impl Iterator<Item = &'a String>, what: &str) -> String {
    let mut out = String::new();
    let mut total = 0;
    for name in names {
        total += 1;
        let _ = writeln!(out, "{total}) {name}");
    }
    format!("{out}Total {total} {what}\n")
}

fn kind_name(kind: Kind) -> &'static str {
    match kind {
        Kind::Ping => "ping",
        Kind::Brw { .. } => "brw",
    }
}

fn name_is_good(name: &str) -> Result<(), BookError> {
    match name.chars().count() {
        0 => Err(BookError::new(Errno::EINVAL, "A name has at least one character")),
        1..=NAME_CHARS_MAX => Ok(()),
        _ => Err(BookError::new(
            Errno::ENAMETOOLONG,
            format!("Name length is limited to {NAME_CHARS_MAX}"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PING: TestSpec = TestSpec { kind: Kind::Ping, loops: None, concurrency: 8 };

    fn nid(last: u8) -> Nid {
        Nid::tcp(std::net::Ipv4Addr::new(10, 0, 0, last))
    }

    fn book() -> Book {
        let mut book = Book::default();
        assert_eq!(book.add_to_group("a", &[nid(1), nid(2)]), Ok(vec![nid(1), nid(2)]));
        assert_eq!(book.add_to_group("b", &[nid(2), nid(3)]), Ok(vec![nid(3)]));
        [1, 3].into_iter().for_each(|last| book.set_state(nid(last), NodeState::Active));
        book.add_batch("bulk").expect("new");
        book
    }

    #[test]
    fn a_node_leaves_with_the_last_group_that_names_it() {
        let mut book = book();
        assert_eq!(book.remove_from_group("a", &[nid(2)]), Ok(vec![]));
        assert_eq!(book.delete_group("b"), Ok(vec![nid(2), nid(3)]));
        assert_eq!(book.nodes().keys().copied().collect::<Vec<_>>(), [nid(1)]);
        assert_eq!(
            book.delete_group("b").map_err(|error| error.text),
            Err("Can't find b in current session".into())
        );
    }

    #[test]
    fn a_test_is_between_the_active_nodes_and_holds_its_groups() {
        let mut book = book();
        assert_eq!(book.add_test("bulk", PING, "a", "b", Distribute::default()), Ok(1));
        let test = &book.batch("bulk").expect("there").tests[0];
        assert_eq!((&test.sources[..], &test.destinations[..]), (&[nid(1)][..], &[nid(3)][..]));
        assert_eq!(book.delete_group("a").map_err(|error| error.errno), Err(Errno::EBUSY));
        book.set_state(nid(1), NodeState::Down);
        let refused = book.add_test("bulk", PING, "a", "b", Distribute::default());
        assert_eq!(refused.map_err(|error| error.text), Err("No active nodes in group a".into()));
    }

    #[test]
    fn a_node_that_never_answered_is_unknown_and_not_down() {
        let mut book = book();
        book.set_state(nid(2), NodeState::Down);
        book.set_state(nid(1), NodeState::Down);
        assert_eq!(
            (book.nodes()[&nid(1)], book.nodes()[&nid(2)]),
            (NodeState::Down, NodeState::Unknown)
        );
    }

    #[test]
    fn lists_look_as_in_lustre() {
        let mut book = book();
        book.add_test("bulk", PING, "a", "b", Distribute::default()).expect("active nodes");
        assert_eq!(book.list_groups(), "1) a\n2) b\nTotal 2 groups\n");
        let counts = "\t1\t0\t0\t1\t2\ta\n";
        assert_eq!(book.list_group("a", &[]), Ok(counts.into()));
        let nodes = "Group [ a ]\n\t12345-10.0.0.1@tcp: Active\n\t12345-10.0.0.2@tcp: Unknown\nTotal 2 nodes [ a ]\n";
        assert_eq!(book.list_group("a", &NodeState::ALL), Ok(nodes.into()));
        assert_eq!(book.list_batches(), "1) bulk\nTotal 1 batches\n");
        let batch = "Batch: bulk Tests: 1 State: Idle\n\tTest 1(ping) (loop: -1, concurrency: 8)\n\tACTIVE\tBUSY\tDOWN\tUNKNOWN\tTOTAL\nclient\t1\t0\t0\t0\t1\nserver\t1\t0\t0\t0\t1\n";
        assert_eq!(book.list_batch("bulk", None), Ok(batch.into()));
        assert_eq!(
            book.list_batch("bulk", Some(2)).map_err(|error| error.errno),
            Err(Errno::ENOENT)
        );
    }

    #[test]
    fn names_have_bounds() {
        let mut book = book();
        for name in ["", &"x".repeat(32)] {
            assert!(book.add_batch(name).is_err() && book.add_to_group(name, &[]).is_err());
        }
        assert!(book.add_batch(&"x".repeat(31)).is_ok());
        assert_eq!(
            book.add_batch("bulk").map_err(|error| error.text),
            Err("bulk already exists".into())
        );
    }
}
