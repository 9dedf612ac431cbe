//! Common state: the files and directories, and the answers that users got.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use client::Client;
use env_sim::Control;
use layout::composite::{CompositeTemplate, END_OF_FILE};
use layout::{Asked, Template};
use oracle::diary::Diary;
use oracle::history::{
    self, Block, BlockCall, EndCall, Entry, Names, NamesCall, Pages, PagesCall, Told,
};
use oracle::{mkdir_at, test_ctx};
use types::{Fid, Instant, TargetKind};

use crate::nemesis::{Fullness, PowerLost};

/// Names in each directory.
pub(super) const PLACES: u8 = 3;
/// Directories at one MDT.
const DIRS: usize = 2;
/// Directories at several MDTs, at most: a file of one is moved from the second to the third.
const DIRS_MAX: u32 = 3;
/// Owner of the file that create 0 made; the owner tells which create made a file.
pub(super) const FIRST_OWNER: u32 = 1_000;
/// Bytes of a block of a disk: a power cut keeps some blocks of a write.
const BLOCK: usize = 4_096;
/// Bytes that name a write.
const WORD: usize = 4;
/// Stripes of the file in several objects.
pub(super) const STRIPE_BYTES: usize = 64 << 10;

const O_RDWR: u32 = 0o2;
const O_EXCL: u32 = 0o200;

/// How a file is used.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Use {
    /// Written anywhere, cut, punched; in one object.
    Pages,
    /// Appended to and cut; in one object.
    Log,
    /// Written anywhere; in several objects.
    Wide,
}

/// A file that everybody works on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Shared {
    pub(super) fid: Fid,
    pub(super) usage: Use,
    pub(super) cell_bytes: usize,
    /// Nothing is written behind them.
    pub(super) cells: usize,
}

const FILES: [(Use, usize, usize); 4] = [
    (Use::Pages, 4_096, 24),
    // cells that no block of a disk begins or ends with
    (Use::Pages, 1_000, 20),
    (Use::Log, 4_096, 40),
    (Use::Wide, 4_096, 64),
];

#[derive(Clone, Debug, Default)]
pub(crate) struct Arena {
    pub(super) dirs: Vec<Fid>,
    pub(super) files: Vec<Shared>,
}

/// The parts of the bytes from `at` on that are in one block each.
fn by_blocks(at: usize, bytes: &[u8]) -> Vec<&[u8]> {
    let (first, rest) = bytes.split_at(bytes.len().min(BLOCK - at % BLOCK));
    std::iter::once(first).chain(rest.chunks(BLOCK)).collect()
}

fn is_all(bytes: &[u8], word: &[u8]) -> bool {
    bytes.chunks(WORD).all(|other| other == word)
}

fn count_of(id: u32, found: &[u32]) -> usize {
    found.iter().filter(|other| **other == id).count()
}

fn striping(usage: Use, has_components: bool) -> Asked {
    let stripe_size = STRIPE_BYTES as u32;
    let stripe_count = if usage == Use::Wide { 3 } else { 1 };
    if usage != Use::Wide || !has_components {
        return Template { stripe_size, stripe_count, ..Template::default() }.into();
    }
    let stripe = STRIPE_BYTES as u64;
    let parts = [(stripe, 1), (3 * stripe, 2), (END_OF_FILE, 1)];
    Asked::Composite(CompositeTemplate::striped(stripe_size, parts))
}

/// Where the directories are: on the only MDT, or in turn on `mdts` ones from `first` on.
pub(super) fn places(mdts: u32, first: u32) -> Vec<u32> {
    match mdts {
        1 => vec![0; DIRS],
        _ => (0..mdts.clamp(DIRS as u32, DIRS_MAX)).map(|dir| (first + dir) % mdts).collect(),
    }
}

pub(super) async fn make_arena(
    client: &Client,
    has_components: bool,
    places: &[u32],
) -> client::Result<Arena> {
    let (ctx, mut arena) = (test_ctx(), Arena::default());
    let mut bases = vec![Fid::ROOT];
    for (dir, mdt) in places.iter().enumerate() {
        let name = format!("dir{dir}");
        let made = mkdir_at(client, &ctx, (Fid::ROOT, name.as_bytes()), 0o777, *mdt).await?;
        arena.dirs.push(made.fid());
    }
    for mdt in places.iter().filter(|mdt| **mdt != 0) {
        let name = format!("files{mdt}");
        let made = mkdir_at(client, &ctx, (Fid::ROOT, name.as_bytes()), 0o777, *mdt).await?;
        bases.push(made.fid());
    }
    for (index, (usage, cell_bytes, cells)) in FILES.into_iter().enumerate() {
        let asked = striping(usage, has_components);
        let (base, name) = (bases[index % bases.len()], format!("file{index}"));
        let flags = O_RDWR | O_EXCL;
        let (attr, file) =
            client.create(&ctx, base, name.as_bytes(), 0o666, flags, Some(&asked)).await?;
        file.close().await?;
        arena.files.push(Shared { fid: attr.fid(), usage, cell_bytes, cells });
    }
    Ok(arena)
}

/// A call whose outcome is not known yet, in the history of its key.
#[derive(Clone, Copy, Debug)]
pub(super) struct Ticket(usize);

/// What explains calls that fail, and reads of half a write.
pub(super) struct Troubles {
    pub(super) fullness: Rc<Fullness>,
    pub(super) power_lost: PowerLost,
}

/// Histories of all keys.
pub(crate) struct Board {
    clock: Control,
    /// Calls may fail, and then nobody knows what they did.
    pub(super) is_hard: bool,
    troubles: Troubles,
    pub(super) arena: Arena,
    /// Names of a directory are on several MDTs: a listing is no image of one moment.
    pub(super) are_spread: bool,
    pages: BTreeMap<usize, Vec<Entry<PagesCall>>>,
    blocks: BTreeMap<usize, Vec<Entry<BlockCall>>>,
    ends: Vec<Entry<EndCall>>,
    names: Vec<Entry<NamesCall>>,
    /// Those of them that were not done.
    refused: BTreeSet<usize>,
    /// What users keep to themselves.
    diaries: BTreeMap<u32, (Fid, Diary)>,
    /// Which create made what, as far as anybody has seen it.
    made: BTreeMap<u32, Fid>,
    next_id: u32,
    /// Nobody begins anything before; right after it directories are leased.
    pub(super) quiet_until: Instant,
    calls: u64,
    /// What users do, since when.
    doing: BTreeMap<u32, (String, u64)>,
    failure: Option<String>,
}

impl Board {
    pub(super) fn new(clock: Control, is_hard: bool, troubles: Troubles) -> Board {
        Board {
            clock,
            is_hard,
            troubles,
            arena: Arena::default(),
            are_spread: false,
            pages: BTreeMap::new(),
            blocks: BTreeMap::new(),
            ends: Vec::new(),
            names: Vec::new(),
            refused: BTreeSet::new(),
            diaries: BTreeMap::new(),
            made: BTreeMap::new(),
            next_id: 0,
            quiet_until: Instant(0),
            calls: 0,
            doing: BTreeMap::new(),
            failure: None,
        }
    }

    pub(super) fn now(&self) -> u64 {
        self.clock.now().0
    }

    pub(crate) fn calls(&self) -> u64 {
        self.calls
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.failure.clone()
    }

    /// The first one counts.
    pub(super) fn fail(&mut self, what: String) {
        self.failure.get_or_insert(what);
    }

    /// A number for a write or a create.
    pub(super) fn next_id(&mut self) -> u32 {
        self.next_id += 1;
        self.next_id
    }

    pub(super) fn begins(&mut self, who: u32, what: String) {
        self.doing.insert(who, (what, self.now()));
    }

    pub(super) fn ended(&mut self, who: u32) {
        self.doing.remove(&who);
        self.calls += 1;
    }

    /// Whether disks of such targets were full while this user's call was under way.
    pub(super) fn may_lack_room(&self, who: u32, on: TargetKind) -> bool {
        let doing = self.doing.get(&who);
        doing.is_some_and(|(_, since)| self.troubles.fullness.was_since(on, Instant(*since)))
    }

    pub(crate) fn under_way(&self) -> String {
        self.doing
            .iter()
            .map(|(who, (what, since))| {
                format!("user {who}: {what} since {:.3} s", *since as f64 / 1e9)
            })
            .collect::<Vec<_>>()
            .join("; ")
    }

    /// Who was seen, with the number of its create. No create makes two files.
    pub(super) fn saw(&mut self, fid: Fid, owner: u32) -> u32 {
        let id = owner.wrapping_sub(FIRST_OWNER);
        let known = *self.made.entry(id).or_insert(fid);
        if known != fid {
            self.fail(format!("create {id} made {known} and {fid}"));
        }
        id
    }

    /// Which create made a file, if anybody has seen it.
    pub(super) fn id_of(&self, fid: Fid) -> Option<u32> {
        self.made.iter().find(|(_, made)| **made == fid).map(|(id, _)| *id)
    }

    /// Files that somebody has seen.
    pub(super) fn seen(&self) -> Vec<(u32, Fid)> {
        self.made.iter().map(|(id, fid)| (*id, *fid)).collect()
    }

    pub(super) fn begin_diary(&mut self, who: u32, fid: Fid) {
        self.diaries.insert(who, (fid, Diary::default()));
    }

    pub(super) fn diary(&mut self, who: u32) -> &mut (Fid, Diary) {
        self.diaries.get_mut(&who).expect("whoever keeps a diary has begun it")
    }

    pub(super) fn keepers(&self) -> Vec<u32> {
        self.diaries.keys().copied().collect()
    }

    // ---- histories; a change is there from its begin on, since it may come to pass ----

    pub(super) fn names_change(&mut self, who: u32, call: NamesCall) -> Ticket {
        let begin = self.now();
        self.names.push(Entry { who, begin, end: None, call });
        Ticket(self.names.len() - 1)
    }

    pub(super) fn names_told(&mut self, ticket: Ticket, call: NamesCall) {
        if let NamesCall::Create { told: Told::Absent, .. } = call {
            // made, but taken away by another client before its maker could open it anew
            return;
        }
        let end = Some(self.now());
        let entry = &mut self.names[ticket.0];
        (entry.end, entry.call) = (end, call);
    }

    /// It was refused before anything was done.
    pub(super) fn names_refused(&mut self, ticket: Ticket) {
        self.refused.insert(ticket.0);
    }

    pub(super) fn names_read(&mut self, who: u32, begin: u64, call: NamesCall) {
        let end = Some(self.now());
        self.names.push(Entry { who, begin, end, call });
    }

    pub(super) fn pages_change(&mut self, who: u32, file: usize, call: PagesCall) -> Ticket {
        let begin = self.now();
        let entries = self.pages.entry(file).or_default();
        entries.push(Entry { who, begin, end: None, call });
        Ticket(entries.len() - 1)
    }

    pub(super) fn pages_done(&mut self, file: usize, ticket: Ticket) {
        let end = Some(self.now());
        self.pages.get_mut(&file).expect("the change is there")[ticket.0].end = end;
    }

    /// Whether half a write explains a cell of a file, which begins at byte `at`. The machine of
    /// its server lost power during the write, and kept some blocks that were on their way to its
    /// disk. A read sees those until the write, which is not answered yet, is sent again.
    pub(super) fn is_half_written(&self, file: usize, begin: u64, at: usize, cell: &[u8]) -> bool {
        let blocks = by_blocks(at, cell);
        let is_half = |call: &PagesCall| {
            let PagesCall::Write { id, .. } = call else { return false };
            blocks.iter().any(|block| is_all(block, &id.to_le_bytes()))
        };
        blocks.iter().all(|block| is_all(block, &block[..WORD]))
            && self.interrupted(file, begin).any(is_half)
    }

    /// The same of a call that looks at whole cells or at the size. It may have found a part of a
    /// change that was interrupted. The server may have cut its object, forgotten that, and taken
    /// earlier writes again.
    pub(super) fn sees_half(&self, file: usize, begin: u64, look: &PagesCall) -> bool {
        let is_half = |change: &PagesCall| match (change, look) {
            (PagesCall::Truncate { .. }, _) | (PagesCall::Punch { .. }, PagesCall::Read { .. }) => {
                true
            }
            (PagesCall::Write { .. } | PagesCall::Append(_), PagesCall::Size { .. }) => true,
            (
                PagesCall::Write { at: first, count: cells, id },
                PagesCall::Read { at, count, found },
            ) => {
                let all = (first + cells).min(at + count).saturating_sub(*at.max(first));
                (1..all).contains(&count_of(*id, found))
            }
            (PagesCall::Append(append), PagesCall::Read { found, .. }) => {
                (1..append.count).contains(&count_of(append.id, found))
            }
            _ => false,
        };
        self.interrupted(file, begin).any(is_half)
    }

    /// Changes of a file that were under way when a machine lost its power, and still at `begin`.
    fn interrupted(&self, file: usize, begin: u64) -> impl Iterator<Item = &PagesCall> {
        let lost = self.troubles.power_lost.get().0;
        let is_cut = move |entry: &&Entry<PagesCall>| {
            entry.begin < lost && entry.end.is_none_or(|end| end > begin)
        };
        self.pages.get(&file).into_iter().flatten().filter(is_cut).map(|entry| &entry.call)
    }

    pub(super) fn pages_read(&mut self, who: u32, file: usize, begin: u64, call: PagesCall) {
        if self.sees_half(file, begin, &call) {
            return;
        }
        let end = Some(self.now());
        self.pages.entry(file).or_default().push(Entry { who, begin, end, call });
    }

    /// A write to some cells of the wide file; each stripe's share is a write of its own.
    pub(super) fn wide_write(&mut self, who: u32, (at, count, id): (usize, usize, u32)) -> Wide {
        let begin = self.now();
        let mut wide = Wide::default();
        for cell in at..at + count {
            let entries = self.blocks.entry(cell).or_default();
            wide.cells.push((cell, entries.len()));
            entries.push(Entry { who, begin, end: None, call: BlockCall::Write(id) });
        }
        let per_stripe = STRIPE_BYTES / FILES[3].1;
        let borders =
            (at + 1..=at + count).filter(|end| *end == at + count || end % per_stripe == 0);
        for end in borders {
            wide.ends.push(self.ends.len());
            self.ends.push(Entry { who, begin, end: None, call: EndCall::Raise(end) });
        }
        wide
    }

    pub(super) fn wide_done(&mut self, wide: &Wide) {
        let end = Some(self.now());
        for (cell, index) in &wide.cells {
            self.blocks.get_mut(cell).expect("the write is there")[*index].end = end;
        }
        wide.ends.iter().for_each(|index| self.ends[*index].end = end);
    }

    /// What was read of the wide file: less than asked for where it ends.
    pub(super) fn wide_read(
        &mut self,
        who: u32,
        begin: u64,
        (at, count): (usize, usize),
        found: &[u32],
    ) {
        let end = Some(self.now());
        for (cell, id) in (at..at + count).zip(found.iter().chain(std::iter::repeat(&0))) {
            let call = BlockCall::Read(*id);
            self.blocks.entry(cell).or_default().push(Entry { who, begin, end, call });
        }
        let high = if found.len() < count { at + found.len() } else { usize::MAX };
        let low = if found.is_empty() { 0 } else { at + found.len() };
        self.wide_saw(who, begin, low, high);
    }

    /// The client of this user dies, and keeps writes to a file that were acknowledged since then:
    /// nobody knows what becomes of these.
    pub(super) fn may_be_lost(&mut self, who: u32, file: usize, since: u64) {
        let is_late = |end: &mut Option<u64>| end.take_if(|end| *end >= since).is_some();
        let mut lost = 0;
        for entry in self.pages.get_mut(&file).into_iter().flatten() {
            if entry.who == who && matches!(entry.call, PagesCall::Write { .. }) {
                lost += u32::from(is_late(&mut entry.end));
            }
        }
        if self.arena.files[file].usage == Use::Wide {
            for entry in self.blocks.values_mut().flatten() {
                if entry.who == who && matches!(entry.call, BlockCall::Write(_)) {
                    lost += u32::from(is_late(&mut entry.end));
                }
            }
            for entry in &mut self.ends {
                if entry.who == who && matches!(entry.call, EndCall::Raise(_)) {
                    is_late(&mut entry.end);
                }
            }
        }
        if lost > 0 {
            planted::reached("sim: a client died with writes that it had not sent");
        }
    }

    pub(super) fn wide_saw(&mut self, who: u32, begin: u64, low: usize, high: usize) {
        let end = Some(self.now());
        self.ends.push(Entry { who, begin, end, call: EndCall::Saw(low, high) });
    }

    /// Whether some order explains each history.
    pub(crate) fn check(&self) -> Result<(), String> {
        let names = Names { dirs: vec![PLACES; self.arena.dirs.len()] };
        let done = (0..).zip(&self.names).filter(|(index, _)| !self.refused.contains(index));
        let done: Vec<_> = done.map(|(_, entry)| entry.clone()).collect();
        history::check(&names, &done).map_err(|breach| format!("names: {breach}"))?;
        for (file, entries) in &self.pages {
            history::check(&Pages, entries).map_err(|breach| format!("file{file}: {breach}"))?;
        }
        for (cell, entries) in &self.blocks {
            history::check(&Block, entries)
                .map_err(|breach| format!("cell {cell} of the wide file: {breach}"))?;
        }
        history::check_ends(&self.ends).map_err(|breach| format!("size of the wide file: {breach}"))
    }
}

/// A write under way in the histories of its cells and of the size.
#[derive(Default)]
pub(super) struct Wide {
    cells: Vec<(usize, usize)>,
    ends: Vec<usize>,
}

#[cfg(test)]
mod tests {
    use env_sim::{Sim, SimConfig};

    use super::*;

    #[test]
    fn half_a_write_is_explained_by_a_power_cut_during_it() {
        let sim = Sim::new(1, SimConfig::default());
        let troubles = Troubles { fullness: Rc::default(), power_lost: PowerLost::default() };
        let power_lost = troubles.power_lost.clone();
        let mut board = Board::new(sim.control(), false, troubles);
        let ticket = board.pages_change(0, 1, PagesCall::Write { at: 7, count: 4, id: 246 });
        let cell = |border: usize| {
            let written = std::iter::repeat_n(246_u32.to_le_bytes(), (1_000 - border) / WORD);
            [vec![0; border], written.flatten().collect()].concat()
        };
        let is_half =
            |board: &Board, border| board.is_half_written(1, board.now() + 1, 8_000, &cell(border));
        assert!(!is_half(&board, 192), "no server has lost power");
        power_lost.set(Instant(board.now() + 1));
        assert!(is_half(&board, 192) && !is_half(&board, 196), "a block begins at 8,192");
        assert!(!board.is_half_written(0, board.now() + 1, 8_000, &cell(192)), "of another file");
        let read = |found: &[u32]| PagesCall::Read { at: 6, count: 10, found: found.to_vec() };
        let sees_half =
            |board: &Board, found: &[u32]| board.sees_half(1, board.now() + 1, &read(found));
        assert!(sees_half(&board, &[0, 246, 246, 0, 246]));
        assert!(!sees_half(&board, &[0, 246, 246, 246, 246]), "all of it");
        assert!(!sees_half(&board, &[0, 0, 0]), "nothing of it");
        assert!(board.sees_half(1, board.now() + 1, &PagesCall::Size { found: 9 }));
        board.pages_done(1, ticket);
        assert!(!is_half(&board, 192), "the write has been answered");
        assert!(!sees_half(&board, &[0, 246, 246, 0, 246]));
        board.pages_change(0, 1, PagesCall::Truncate { to: 7 });
        power_lost.set(Instant(board.now() + 1));
        assert!(sees_half(&board, &[0, 246, 246, 0, 246]), "the cut may be forgotten");
    }
}
