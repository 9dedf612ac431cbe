//! Checks every page of `data.mdb` that is in use, before LMDB reads it.
//!
//! LMDB follows numbers that it finds in pages, inside a map of the file. A damaged number ends the
//! process by a signal or, worse, does not. So the whole tree is read here first, with plain reads,
//! and every number is checked against its bounds. A tree that passes cannot lead LMDB out of the
//! file, into a page of another kind or to one page twice.
//!
//! Checked:
//! - each page's number, kind and bounds, and that its nodes fill it exactly
//! - the order of keys within a page and against its parent, and the depth
//! - the counts of pages and entries of each table, and the pages of large values
//! - the lists of free pages, and that no page is used twice
//!
//! Checksums of records are checked on the way. A damaged record does not count as damage of the
//! tree.
//!
//! Layout: LMDB data version 1, 64 bits, little-endian (`mdb.c`: `MDB_page`, `MDB_node`, `MDB_db`).

use std::fs::File;
use std::os::unix::fs::FileExt;

const HEAD_BYTES: usize = 16;
const NODE_BYTES: usize = 8;
const DB_BYTES: usize = 48;
const BRANCH: u16 = 1;
const LEAF: u16 = 2;
const OVERFLOW: u16 = 4;
const BIG: u16 = 1;
const TREE: u16 = 2;
const INTEGER_KEYS: u16 = 8;
const NO_PAGE: u64 = u64::MAX;
const DEPTH_MAX: u16 = 32;
const META_PAGES: u64 = 2;

/// A page that LMDB must not see.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Damage {
    page: u64,
    what: String,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "page {} of data.mdb is damaged ({})", self.page, self.what)
    }
}

fn bad<T>(page: u64, what: impl Into<String>) -> Result<T, Damage> {
    Err(Damage { page, what: what.into() })
}

/// What the root page says of a table.
#[derive(Clone, Copy)]
struct Db {
    flags: u16,
    depth: u16,
    branches: u64,
    leaves: u64,
    overflows: u64,
    entries: u64,
    root: u64,
}

fn u16_at(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("eight bytes"))
}

impl Db {
    fn decode(bytes: &[u8]) -> Db {
        Db {
            flags: u16_at(bytes, 4),
            depth: u16_at(bytes, 6),
            branches: u64_at(bytes, 8),
            leaves: u64_at(bytes, 16),
            overflows: u64_at(bytes, 24),
            entries: u64_at(bytes, 32),
            root: u64_at(bytes, 40),
        }
    }
}

/// What a tree holds.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Lists of free pages, by transaction.
    Free,
    /// Tables, by name.
    Names,
    Records,
}

#[derive(Default)]
struct Counts {
    branches: u64,
    leaves: u64,
    overflows: u64,
    entries: u64,
}

/// What was seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Walked {
    pub(super) pages: u64,
    pub(super) records: u64,
}

/// Told of each record: name of the table, key, value.
type Visit<'a> = dyn FnMut(&[u8], &[u8], &[u8]) + 'a;

struct Walk<'a> {
    file: &'a File,
    page_bytes: usize,
    end: u64, // pages of the file
    used: Vec<u64>,
    visit: &'a mut Visit<'a>,
    walked: Walked,
    slice: Option<Slice<'a>>, // none: all
    free: Option<Vec<u64>>,   // free pages, where they are wanted
}

/// Name of a table and key in it.
pub(super) type Place = (Vec<u8>, Vec<u8>);

/// A part of a walk.
struct Slice<'a> {
    from: &'a Place,
    pages_max: u64,
    next: Option<Place>,
}

/// Keys of a subtree are at or above the first and below the second.
type Range<'a> = (Option<&'a [u8]>, Option<&'a [u8]>);

/// Walks the tree of a root page (its first 152 bytes) in `file`.
pub(super) fn walk<'a>(
    file: &'a File,
    page_bytes: usize,
    meta: &[u8],
    visit: &'a mut Visit<'a>,
) -> Result<Walked, Damage> {
    Ok(start(file, page_bytes, meta, visit, None)?.walked)
}

/// Walks a part of the tree from `from` on, of some `pages_max` pages: how many they were, and
/// where the next part begins. Counts are not checked, and a page that is used twice only within
/// the part.
pub(super) fn slice<'a>(
    file: &'a File,
    page_bytes: usize,
    meta: &[u8],
    from: &'a Place,
    pages_max: u64,
    visit: &'a mut Visit<'a>,
) -> Result<(u64, Option<Place>), Damage> {
    let part = Slice { from, pages_max, next: None };
    let walk = start(file, page_bytes, meta, visit, Some(part))?;
    Ok((walk.walked.pages, walk.slice.and_then(|slice| slice.next)))
}

/// Pages of the file that the tree of a root page does not hold, without the root pages: nobody
/// reads what is there.
pub(super) fn unused(file: &File, page_bytes: usize, meta: &[u8]) -> Result<Vec<u64>, Damage> {
    let mut visit = |_: &[u8], _: &[u8], _: &[u8]| {};
    let mut walk = Walk::new(file, page_bytes, meta, &mut visit, None)?;
    walk.free = Some(Vec::new());
    walk.all(meta)?;
    let mut unused = walk.free.take().unwrap_or_default();
    let end = file.metadata().map_or(walk.end, |found| found.len() / page_bytes as u64);
    unused.extend(walk.end..end);
    Ok(unused)
}

fn start<'a>(
    file: &'a File,
    page_bytes: usize,
    meta: &[u8],
    visit: &'a mut Visit<'a>,
    slice: Option<Slice<'a>>,
) -> Result<Walk<'a>, Damage> {
    let mut walk = Walk::new(file, page_bytes, meta, visit, slice)?;
    walk.all(meta)?;
    Ok(walk)
}

impl<'a> Walk<'a> {
    fn new(
        file: &'a File,
        page_bytes: usize,
        meta: &[u8],
        visit: &'a mut Visit<'a>,
        slice: Option<Slice<'a>>,
    ) -> Result<Walk<'a>, Damage> {
        let len = match file.metadata() {
            Ok(found) => found.len() / page_bytes as u64,
            Err(error) => return bad(0, error.to_string()),
        };
        let end = u64_at(meta, HEAD_BYTES + 120).saturating_add(1).min(len);
        let words = usize::try_from(end.div_ceil(64)).unwrap_or(usize::MAX);
        let (used, walked) = (vec![0; words], Walked::default());
        Ok(Walk { file, page_bytes, end, used, visit, walked, slice, free: None })
    }

    fn all(&mut self, meta: &[u8]) -> Result<(), Damage> {
        let is_first = self.slice.as_ref().is_none_or(|slice| *slice.from == Place::default());
        let free = Db::decode(&meta[HEAD_BYTES + 24..]);
        let names = Db::decode(&meta[HEAD_BYTES + 24 + DB_BYTES..]);
        if is_first {
            self.tree(free, Kind::Free, b"", 0)?;
        }
        self.tree(names, Kind::Names, b"", 0)
    }

    fn read(&self, page: u64, pages: u64) -> Result<Vec<u8>, Damage> {
        let mut bytes = vec![0; self.page_bytes * pages as usize];
        match self.file.read_exact_at(&mut bytes, page * self.page_bytes as u64) {
            Ok(()) => Ok(bytes),
            Err(error) => bad(page, error.to_string()),
        }
    }

    /// A page is used once.
    fn claim(&mut self, page: u64, from: u64) -> Result<(), Damage> {
        if !(META_PAGES..self.end).contains(&page) {
            return bad(from, format!("it leads to page {page}, which is not there"));
        }
        let (word, bit) = ((page / 64) as usize, 1 << (page % 64));
        if self.used[word] & bit != 0 {
            return bad(from, format!("it leads to page {page}, which is used elsewhere too"));
        }
        self.used[word] |= bit;
        Ok(())
    }

    fn tree(&mut self, db: Db, kind: Kind, name: &[u8], from: u64) -> Result<(), Damage> {
        let flags = if kind == Kind::Free { INTEGER_KEYS } else { 0 };
        if db.flags != flags || db.depth > DEPTH_MAX || (db.depth == 0) != (db.root == NO_PAGE) {
            return bad(from, "a table's head");
        }
        let mut counts = Counts::default();
        if db.depth > 0 {
            self.claim(db.root, from)?;
            self.page(db.root, db.depth, kind, name, (None, None), &mut counts)?;
        }
        let Counts { branches, leaves, overflows, entries } = counts;
        let is_whole = self.slice.is_none();
        if is_whole
            && (branches, leaves, overflows, entries)
                != (db.branches, db.leaves, db.overflows, db.entries)
        {
            return bad(from, "a table's counts");
        }
        Ok(())
    }

    /// A page that was claimed, and all below it.
    fn page(
        &mut self,
        number: u64,
        depth: u16,
        kind: Kind,
        name: &[u8],
        range: Range<'_>,
        counts: &mut Counts,
    ) -> Result<(), Damage> {
        let bytes = self.read(number, 1)?;
        self.walked.pages += 1;
        let is_leaf = depth == 1;
        let nodes = nodes(&bytes, number, is_leaf)?;
        let least = if is_leaf || kind == Kind::Free { 1 } else { 2 };
        if nodes.len() < least {
            return bad(number, "too few nodes");
        }
        order(&nodes, number, kind, is_leaf, range)?;
        if is_leaf && kind == Kind::Records && self.is_enough(name, nodes[0].key) {
            return Ok(());
        }
        if is_leaf {
            counts.leaves += 1;
            counts.entries += nodes.len() as u64;
            return nodes.iter().try_for_each(|node| self.leaf(node, number, kind, name, counts));
        }
        counts.branches += 1;
        for (index, node) in nodes.iter().enumerate() {
            let low = if index == 0 { range.0 } else { Some(node.key) };
            let high = nodes.get(index + 1).map(|next| next.key).or(range.1);
            if kind == Kind::Records && self.is_done(name, high) {
                continue;
            }
            self.claim(node.child(), number)?;
            self.page(node.child(), depth - 1, kind, name, (low, high), counts)?;
        }
        Ok(())
    }

    /// Whether the part ends before this leaf; the next one begins with its first key then.
    fn is_enough(&mut self, name: &[u8], first: &[u8]) -> bool {
        let seen = self.walked.pages;
        match &mut self.slice {
            Some(slice) if slice.next.is_some() => true,
            Some(slice) if seen > slice.pages_max => {
                slice.next = Some((name.to_vec(), first.to_vec()));
                true
            }
            _ => false,
        }
    }

    /// Whether a subtree is no part of this one: keys below `high` are before it or behind it.
    fn is_done(&self, name: &[u8], high: Option<&[u8]>) -> bool {
        self.slice.as_ref().is_some_and(|Slice { from, next, .. }| {
            next.is_some() || from.0 == name && high.is_some_and(|high| high <= &from.1[..])
        })
    }

    /// Whether a table is no part of this one. The first table is one of all: it says which records
    /// have checksums.
    fn is_left_out(&self, name: &[u8]) -> bool {
        self.slice.as_ref().is_some_and(|Slice { from, next, .. }| {
            next.is_some() || name < &from.0[..] && name != super::sums::TABLE.as_bytes()
        })
    }

    fn leaf(
        &mut self,
        node: &Node<'_>,
        page: u64,
        kind: Kind,
        name: &[u8],
        counts: &mut Counts,
    ) -> Result<(), Damage> {
        let large;
        let value = if node.flags & BIG == 0 {
            node.data
        } else {
            large = self.large(u64_at(node.data, 0), node.size, page, counts)?;
            &large[..node.size]
        };
        match kind {
            Kind::Free => self.free(value, page),
            Kind::Names if self.is_left_out(node.key) => Ok(()),
            Kind::Names => self.tree(Db::decode(value), Kind::Records, node.key, page),
            Kind::Records => {
                self.walked.records += 1;
                (self.visit)(name, node.key, value);
                Ok(())
            }
        }
    }

    /// A value on pages of its own.
    fn large(
        &mut self,
        first: u64,
        size: usize,
        from: u64,
        counts: &mut Counts,
    ) -> Result<Vec<u8>, Damage> {
        self.claim(first, from)?;
        let head = self.read(first, 1)?;
        let pages = u64::from(u32::from_le_bytes(head[12..16].try_into().expect("four bytes")));
        let needed = ((HEAD_BYTES - 1 + size) / self.page_bytes + 1) as u64;
        if u64_at(&head, 0) != first || u16_at(&head, 10) != OVERFLOW || pages < needed {
            return bad(first, "head of a large value");
        }
        for page in 1..pages {
            self.claim(first + page, first)?;
        }
        counts.overflows += pages;
        self.walked.pages += pages;
        let mut bytes = self.read(first, needed)?;
        bytes.drain(..HEAD_BYTES);
        Ok(bytes)
    }

    /// A list of free pages: its length, then their numbers, falling.
    fn free(&mut self, list: &[u8], page: u64) -> Result<(), Damage> {
        let count = list.get(..8).map_or(u64::MAX, |count| u64_at(count, 0));
        let pages = usize::try_from(count).ok().and_then(|count| {
            let end = count.checked_add(1)?.checked_mul(8)?;
            list.get(8..end)
        });
        let Some(pages) = pages else { return bad(page, "a list of free pages") };
        let mut before = u64::MAX;
        for free in pages.chunks_exact(8).map(|free| u64_at(free, 0)) {
            if free >= before {
                return bad(page, "order of a list of free pages");
            }
            self.claim(free, page)?;
            if let Some(all) = &mut self.free {
                all.push(free);
            }
            before = free;
        }
        Ok(())
    }
}

/// An entry of a page. `data` is empty in branches.
struct Node<'a> {
    flags: u16,
    low: u32,
    size: usize, // of the value, which may be elsewhere
    key: &'a [u8],
    data: &'a [u8],
}

impl Node<'_> {
    fn child(&self) -> u64 {
        u64::from(self.low) | u64::from(self.flags) << 32
    }
}

/// The nodes of a page, which fill it from the end.
fn nodes(page: &[u8], number: u64, is_leaf: bool) -> Result<Vec<Node<'_>>, Damage> {
    let (lower, upper) = (usize::from(u16_at(page, 12)), usize::from(u16_at(page, 14)));
    let flags = if is_leaf { LEAF } else { BRANCH };
    if u64_at(page, 0) != number || u16_at(page, 10) != flags {
        return bad(number, "number or kind");
    }
    if lower < HEAD_BYTES || lower % 2 != 0 || lower > upper || upper > page.len() {
        return bad(number, "bounds");
    }
    let mut spans = Vec::with_capacity((lower - HEAD_BYTES) / 2);
    let mut nodes = Vec::with_capacity((lower - HEAD_BYTES) / 2);
    for slot in (HEAD_BYTES..lower).step_by(2) {
        let at = usize::from(u16_at(page, slot));
        if at < upper || at % 2 != 0 || at + NODE_BYTES > page.len() {
            return bad(number, "place of a node");
        }
        let low = u32::from_le_bytes(page[at..at + 4].try_into().expect("four bytes"));
        let (flags, key) = (u16_at(page, at + 4), usize::from(u16_at(page, at + 6)));
        let data = match (is_leaf, flags & BIG) {
            (false, _) => 0,
            (true, 0) => low as usize,
            (true, _) => 8,
        };
        let end = at + NODE_BYTES + key + data;
        if end > page.len() {
            return bad(number, "length of a node");
        }
        spans.push((at, end.next_multiple_of(2)));
        let (key, data) = page[at + NODE_BYTES..end].split_at(key);
        nodes.push(Node { flags, low, size: low as usize, key, data });
    }
    spans.sort_unstable();
    let mut filled = upper;
    for (at, end) in spans {
        if at != filled {
            return bad(number, "nodes overlap or leave gaps");
        }
        filled = end;
    }
    if filled != page.len() {
        return bad(number, "nodes do not fill it");
    }
    Ok(nodes)
}

/// Keys rise, and lie within what the parent says. The first of a branch is not used.
fn order(
    nodes: &[Node<'_>],
    number: u64,
    kind: Kind,
    is_leaf: bool,
    (low, high): Range<'_>,
) -> Result<(), Damage> {
    let keyed = if is_leaf { nodes } else { &nodes[1..] };
    let mut before: Option<&[u8]> = None;
    for node in keyed {
        let sound = match (kind, is_leaf) {
            (Kind::Free, true) => node.key.len() == 8 && node.flags & !BIG == 0,
            (Kind::Free, false) => node.key.len() == 8,
            (Kind::Names, true) => node.flags == TREE && node.data.len() == DB_BYTES,
            (Kind::Records, true) => node.flags & !BIG == 0,
            (_, false) => true,
        };
        if !sound || !(1..=osd::KEY_BYTES_MAX).contains(&node.key.len()) {
            return bad(number, "a key");
        }
        let rises = before.is_none_or(|before| below(kind, before, node.key));
        let inside = low.is_none_or(|low| !below(kind, node.key, low))
            && high.is_none_or(|high| below(kind, node.key, high));
        if !(rises && inside) {
            return bad(number, "order of keys");
        }
        before = Some(node.key);
    }
    Ok(())
}

fn below(kind: Kind, one: &[u8], other: &[u8]) -> bool {
    if kind == Kind::Free { u64_at(one, 0) < u64_at(other, 0) } else { one < other }
}
