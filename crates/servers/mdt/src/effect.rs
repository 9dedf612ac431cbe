//! Effects of applied operations on the memory of an MDT.

use ldlm::grants::{Gifts, Number};
use types::{ClientId, Fid, Instant};

use crate::opens::{Cutter, OpenFile};

/// What an applied operation changes in memory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Effect {
    /// A handle is open.
    Opened { handle: u64, file: OpenFile, epoch: Option<u64>, prior: Option<wire::SizeState> },
    /// A handle is closed.
    Closed { handle: u64, wrote: bool, cleaned: bool },
    /// The size is to be asked from the OSTs: a truncate, or a file whose writer is gone.
    Dirtied { fid: Fid, epoch: u64 },
    /// A client cuts the objects of a file.
    Cut { fid: Fid, by: Cutter },
    /// It has cut them.
    CutEnded { fid: Fid, by: Cutter },
    /// The size is known.
    Cleaned(Fid),
    /// The file is no more.
    Gone(Fid),
    /// A record of the destroy log was written.
    DestroyLogged,
    /// A client holds a lease from then on.
    Leased { fid: Fid, client: ClientId, from: Instant },
    /// A client holds grants until they are called back, by an answer with this number.
    Given { gifts: Gifts, number: Number },
    /// A file took over objects of these ids from another one.
    Swapped { bases: Vec<Fid>, other: Fid },
    /// Leases on names of one directory hold for the other.
    NamesMoved { from: Fid, to: Fid, at: Instant },
    /// Objects that were there got more of a file: replies about it wait for the commit.
    Stretched(Fid),
    /// A file was made with all of its bytes.
    Put(Fid),
    /// The kernel of who changed it judges by itself: it is not leased for a moment.
    Settles { fid: Fid, at: Instant },
    /// A client of the instance before may keep what it writes to a file.
    Keeps { session: u64, fid: Fid },
    /// A handle was closed: without a writer nothing of the file is kept.
    KeepsNoMore { session: u64, fid: Fid, at: Instant },
    /// Names of a directory or shard are to move from now on, or no more.
    Moving { dir: Fid, is_on: bool },
    /// A directory or shard has grown or shrunk to so many bytes of names, and may be split or
    /// merged.
    Resized { dir: Fid, bytes: u64, has_grown: bool },
}
