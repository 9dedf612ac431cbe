//! Blocks of 64 KiB over all servers, overwritten in place and read back through both mounts.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;

use super::{Worker, all_servers, pause};
use crate::chaos::chance::Chance;
use crate::chaos::found::{Found, Kind};
use crate::chaos::life::{Life, Over};
use crate::chaos::times::{Nodes, mount, name};

const BLOCKS: usize = 64;
/// A stripe.
const BLOCK: usize = 65_536;
/// What a disk writes whole.
const PAGE: usize = 4_096;

/// A block's turns: each overwriting has the next number, from 1.
#[derive(Clone, Copy, Default)]
struct Turns {
    /// The last one that an fsync covers.
    synced: u64,
    /// The last one that was acknowledged.
    acked: u64,
    /// The last one that was begun.
    begun: u64,
}

/// The file of one life.
struct Story {
    path: String,
    turns: [Turns; BLOCKS],
}

pub(super) struct Blocks {
    index: usize,
    stories: Vec<Story>,
    chance: Chance,
}

fn page(path: &str, block: usize, turn: u64) -> Vec<u8> {
    let text = format!("{turn:012} {block:04} {path} ");
    text.into_bytes().iter().copied().cycle().take(PAGE).collect()
}

fn content(path: &str, block: usize, turn: u64) -> Vec<u8> {
    page(path, block, turn).repeat(BLOCK / PAGE)
}

/// The turn that wrote a page; nothing where no turn did.
fn turn_of(path: &str, block: usize, there: &[u8]) -> Option<u64> {
    let turn = std::str::from_utf8(there.get(..12)?).ok()?.parse().ok()?;
    (there == page(path, block, turn)).then_some(turn)
}

impl Blocks {
    pub(super) fn new(index: usize, chance: Chance) -> Blocks {
        Blocks { index, stories: Vec::new(), chance }
    }

    fn one(&mut self, life: &Life<'_>, file: &File) -> Result<(), Over> {
        let story = self.stories.last_mut().expect("of this life");
        let block = self.chance.below(BLOCKS as u64) as usize;
        let (at, place) = (life.at(&story.path), (block * BLOCK) as u64);
        let turns = &mut story.turns[block];
        turns.begun += 1;
        let bytes = content(&story.path, block, turns.begun);
        life.call("write of a block", &at, || file.write_all_at(&bytes, place))?;
        turns.acked = turns.begun;
        if self.chance.one_in(3) {
            let read = || read_block(file, block);
            let there = life.call("read of a block", &at, read)?;
            story.compare(life, block, &there, "its own mount")?;
        }
        if self.chance.one_in(5) {
            let other = life.other(&story.path);
            let read = || File::open(&other).and_then(|file| read_block(&file, block));
            if let Some(there) = life.call_other("read of the other's block", &other, read) {
                story.compare(life, block, &there, "the other mount")?;
            }
        }
        if self.chance.one_in(8) { story.sync(life, file) } else { Ok(()) }
    }
}

/// A block, or what there is of it.
fn read_block(file: &File, block: usize) -> std::io::Result<Vec<u8>> {
    let (mut bytes, mut len) = (vec![0; BLOCK], 0);
    while len < BLOCK {
        match file.read_at(&mut bytes[len..], (block * BLOCK + len) as u64)? {
            0 => break,
            more => len += more,
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}

impl Story {
    fn sync(&mut self, life: &Life<'_>, file: &File) -> Result<(), Over> {
        life.call("fsync of blocks", &life.at(&self.path), || file.sync_all())?;
        self.turns.iter_mut().for_each(|turns| turns.synced = turns.acked);
        Ok(())
    }

    /// While the life goes on a block is what was written last.
    fn compare(
        &self,
        life: &Life<'_>,
        block: usize,
        there: &[u8],
        through: &str,
    ) -> Result<(), Over> {
        let turn = self.turns[block].acked;
        if there == content(&self.path, block, turn) {
            return Ok(());
        }
        let pages: Vec<_> =
            there.chunks(PAGE).map(|page| turn_of(&self.path, block, page)).collect();
        let text = format!("{} block {block}: {pages:?} instead of {turn} at {through}", self.path);
        Err(life.wrong(Kind::Wrong, text))
    }

    fn verify(&self, file: &File, found: &Found) {
        for (block, turns) in self.turns.iter().enumerate().filter(|(_, turns)| turns.begun > 0) {
            match read_block(file, block) {
                Ok(there) => self.verify_block(block, *turns, &there, found),
                Err(_) if turns.synced == 0 => found.count("blocks that went with their mount", 1),
                Err(error) => {
                    let text = format!("{} block {block} was fsynced: {error}", self.path);
                    found.at_the_end(Kind::Lost, text);
                }
            }
        }
    }

    fn verify_block(&self, block: usize, turns: Turns, there: &[u8], found: &Found) {
        let mut pages = there.to_vec();
        pages.resize(BLOCK, 0);
        let mut seen = std::collections::BTreeSet::new();
        for (number, page) in pages.chunks(PAGE).enumerate() {
            let is_empty = page.iter().all(|byte| *byte == 0);
            let turn = if is_empty { Some(0) } else { turn_of(&self.path, block, page) };
            let place = format!("{} block {block} page {number}", self.path);
            match turn {
                Some(turn) if turn < turns.synced => {
                    let text = format!("{place}: turn {turn}, {} was fsynced", turns.synced);
                    found.at_the_end(Kind::Lost, text);
                }
                Some(turn) if turn > turns.begun => {
                    let text = format!("{place}: turn {turn} of {}", turns.begun);
                    found.at_the_end(Kind::Wrong, text);
                }
                Some(turn) => _ = seen.insert(turn),
                None => found.at_the_end(Kind::Wrong, format!("{place}: foreign bytes")),
            }
        }
        found.count("blocks", 1);
        found.count("blocks of several turns, outcome unknown", u64::from(seen.len() > 1));
    }
}

impl Worker for Blocks {
    fn place(&self) -> (usize, Nodes) {
        (self.index, all_servers())
    }

    fn live(&mut self, life: &Life<'_>) -> Result<(), Over> {
        let path = format!("blocks/{}-{}", name(mount(self.index)), life.number);
        let at = life.at(&path);
        self.stories.push(Story { path, turns: [Turns::default(); BLOCKS] });
        let open = || File::options().read(true).write(true).create_new(true).open(&at);
        let file = life.call("create of blocks", &at, open)?;
        while life.goes_on() {
            self.one(life, &file)?;
            pause(&mut self.chance);
        }
        self.stories.last_mut().expect("of this life").sync(life, &file)
    }

    fn verify(&self, fresh: &Path, found: &Found) {
        for story in &self.stories {
            match File::open(fresh.join(&story.path)) {
                Ok(file) => story.verify(&file, found),
                Err(error) if story.turns.iter().any(|turns| turns.synced > 0) => {
                    found.at_the_end(Kind::Lost, format!("{} was fsynced: {error}", story.path));
                }
                Err(_) => found.count("files of blocks that went with their mount", 1),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{BLOCK, BLOCKS, Found, Story, Turns, content};

    #[test]
    fn old_future_and_foreign_pages_are_found() {
        let turns = Turns { synced: 2, acked: 3, begun: 4 };
        let story = Story { path: "blocks/a-0".to_owned(), turns: [Turns::default(); BLOCKS] };
        let kinds = |bytes: &[u8]| {
            let found = Found::default();
            story.verify_block(7, turns, bytes, &found);
            let wrong = found.wrong().1;
            wrong.into_iter().map(|wrong| format!("{:?}", wrong.kind)).collect::<Vec<_>>()
        };
        let of = |turn| content("blocks/a-0", 7, turn);
        assert!(kinds(&of(2)).is_empty() && kinds(&of(4)).is_empty());
        assert!(kinds(&[&of(3)[..BLOCK / 2], &of(4)[BLOCK / 2..]].concat()).is_empty());
        assert!(kinds(&of(1)).iter().all(|kind| kind == "Lost"));
        assert!(kinds(&of(5)).iter().all(|kind| kind == "Wrong"));
        assert_eq!(kinds(&[&of(3)[..BLOCK - 1], b"x"].concat()), ["Wrong"]);
        assert_eq!(kinds(&of(3)[..BLOCK - 4096]), ["Lost"]);
    }
}
