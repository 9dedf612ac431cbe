//! Answers about bytes. Each write has a number of its own, and every byte that it writes carries
//! that number. So a file is a row of numbers, one per cell, and zero is a hole.

use super::{Breach, Entry, Spec};

/// A file in one object: its cells and its size together, because one server decides both.
#[derive(Clone, Copy, Debug)]
pub struct Pages;

/// A call on such a file. Places and counts are cells.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PagesCall {
    Write {
        at: usize,
        count: usize,
        id: u32,
    },
    /// Cells behind the end.
    Append(Append),
    /// The size is this from then on.
    Truncate {
        to: usize,
    },
    /// Zeros; the size stays.
    Punch {
        at: usize,
        count: usize,
    },
    /// Asked for `count` cells: fewer came where the file ends.
    Read {
        at: usize,
        count: usize,
        found: Vec<u32>,
    },
    Size {
        found: usize,
    },
}

/// So many cells behind the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Append {
    pub count: usize,
    pub id: u32,
}

impl Spec for Pages {
    type State = Vec<u32>;
    type Call = PagesCall;

    fn start(&self) -> Vec<u32> {
        Vec::new()
    }

    fn step(&self, cells: &Vec<u32>, call: &PagesCall) -> Option<Vec<u32>> {
        match call {
            PagesCall::Write { at, count, id } => Some(fill(cells, (*at, *count), *id, true)),
            PagesCall::Append(Append { count, id }) => {
                Some(fill(cells, (cells.len(), *count), *id, true))
            }
            PagesCall::Truncate { to } => {
                let mut cells = cells.clone();
                cells.resize(*to, 0);
                Some(cells)
            }
            PagesCall::Punch { at, count } => Some(fill(cells, (*at, *count), 0, false)),
            PagesCall::Read { at, count, found } => {
                let start = cells.len().min(*at);
                let end = cells.len().min(at + count);
                (cells[start..end] == found[..]).then(|| cells.clone())
            }
            PagesCall::Size { found } => (cells.len() == *found).then(|| cells.clone()),
        }
    }

    fn is_read(&self, call: &PagesCall) -> bool {
        matches!(call, PagesCall::Read { .. } | PagesCall::Size { .. })
    }
}

/// `id` in a range of cells, also behind the end where the file may grow.
fn fill(cells: &[u32], (at, count): (usize, usize), id: u32, grow: bool) -> Vec<u32> {
    let mut cells = cells.to_vec();
    if grow && cells.len() < at + count {
        cells.resize(at + count, 0);
    }
    let (start, end) = (cells.len().min(at), cells.len().min(at + count));
    cells[start..end].fill(id);
    cells
}

/// One cell of a file in several objects, where only the bytes of one object are written at once.
#[derive(Clone, Copy, Debug)]
pub struct Block;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BlockCall {
    Write(u32),
    /// Zero behind the end too.
    Read(u32),
}

impl Spec for Block {
    type State = u32;
    type Call = BlockCall;

    fn start(&self) -> u32 {
        0
    }

    fn step(&self, cell: &u32, call: &BlockCall) -> Option<u32> {
        match call {
            BlockCall::Write(id) => Some(*id),
            BlockCall::Read(id) => (cell == id).then_some(*id),
        }
    }

    fn is_read(&self, call: &BlockCall) -> bool {
        matches!(call, BlockCall::Read(_))
    }
}

/// What is known of the size of a file in several objects that nobody makes shorter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EndCall {
    /// Something was written up to here.
    Raise(usize),
    /// The file ended between the two, both included.
    Saw(usize, usize),
}

/// Whether each look saw all that had ended before it, and nothing that began after it.
///
/// The objects are asked one by one. So a look may see a write and miss an earlier one that ended
/// meanwhile: no order explains that, and none is promised.
///
/// # Errors
/// The first look that is wrong.
pub fn check_ends(entries: &[Entry<EndCall>]) -> Result<(), Breach> {
    for look in entries {
        let (EndCall::Saw(low, high), Some(end)) = (look.call, look.end) else { continue };
        let ended = entries.iter().filter(|other| other.end.is_some_and(|end| end < look.begin));
        let least = ended.map(|other| match other.call {
            EndCall::Raise(to) => to,
            EndCall::Saw(low, _) => low,
        });
        let least = least.max().unwrap_or(0);
        let begun = entries.iter().filter(|other| other.begin < end);
        let most = begun.map(|other| if let EndCall::Raise(to) = other.call { to } else { 0 });
        let most = most.max().unwrap_or(0);
        if high < least || low > most {
            return Err(Breach(format!(
                "user {} saw an end in {low}..={high} from {} to {end} ns; it was at least {least}, at most {most}",
                look.who, look.begin
            )));
        }
    }
    Ok(())
}
