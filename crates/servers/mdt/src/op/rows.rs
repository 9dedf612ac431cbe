//! The row of an operation: what the MDT must know of it besides its execution.

use service::ServiceSpec;
#[cfg(doc)]
use service::limits::ANSWER_BYTES_SMALL;
use target::Decided;
use types::Fid;
use wire::body::GetattrFlags;
use wire::{Reply, Request};

use super::answer::Answer;
use super::operation::Op;

/// One operation. Whether it has a place in history is said by [`wire::Opcode::modifies`].
pub(crate) struct Row {
    pub(crate) run: Run,
    /// Where its requests queue.
    pub(crate) service: &'static ServiceSpec,
    /// Its name in `md_stats`.
    pub(crate) stat: Stat,
    /// What it means for short leases.
    pub(crate) leases: Scope,
    /// Where it may change something.
    pub(crate) reach: Reach,
    /// Most that its answer may hold.
    pub(crate) answer: Length,
    /// What other clients may wait for until it is answered.
    pub(crate) holds: Holds,
    /// What it means for data that clients keep.
    pub(crate) data: Data,
    /// Whether it needs the bytes of the files that it decides on.
    pub(crate) bytes: UsesBytes,
    /// The handles that its stored reply says are closed.
    pub(crate) closed: Option<fn(&Reply) -> Vec<u64>>,
    /// What it does while the MDT is read-only.
    pub(crate) read_only: ReadOnly,
}

/// How an operation is executed.
pub(crate) enum Run {
    /// In one transaction over the running image.
    Decide(fn(&mut Op<'_, '_>) -> Decided<Answer>),
    /// Around the store: it may wait ([`super::serving`]).
    Serve,
}

/// How an operation is counted.
pub(crate) enum Stat {
    /// Not at all.
    None,
    /// Under this name.
    Name(&'static str),
    /// Under a name that depends on the request.
    Of(fn(&Request) -> &'static str),
}

/// Where an operation may change something.
pub(crate) enum Reach {
    /// On this MDT alone, or nowhere.
    Here,
    /// On several MDTs.
    Several,
    /// On several MDTs, and it may need room for good on another one.
    Grows,
}

/// Most that an answer may hold.
pub(crate) enum Length {
    /// Attributes, or less than [`ANSWER_BYTES_SMALL`].
    Small,
    /// So many bytes.
    Max(usize),
    /// As many as the request says.
    Of(fn(&Request) -> usize),
}

/// What an operation means for short leases. A change waits for those on all that it touches,
/// unless it is unseen.
pub(crate) enum Scope {
    /// Grants none.
    Plain,
    /// Grants one on the attributes that it tells.
    Attributes,
    /// The same, and one on the names of this directory.
    Name(fn(&Request) -> Fid),
    /// Grants one on each file that it tells, and where they are named in a directory, on the names
    /// of this directory.
    Each(fn(&Request) -> Option<Fid>),
    /// Grants one on each entry that it lists, and one on the names of this directory, where they
    /// are wanted.
    Lists(fn(&Request) -> Option<Fid>),
    /// The same as [`Scope::Name`] for a name that it makes; the directory as it is then comes
    /// along.
    Makes(fn(&Request) -> Fid),
    /// Removes a name of this directory, which comes along as it is then.
    Removes(fn(&Request) -> Fid),
    /// Moves names between these two directories.
    Moves(fn(&Request) -> (Fid, Fid)),
    /// Changes something of a file of which the caller's kernel goes on using its own copy.
    Kept,
    /// Changes attributes and grants one on those that it tells, unless this says that it changes
    /// nothing that a lease covers.
    Sets(fn(&Request) -> bool),
    /// Changes nothing that a lease covers, where this says so.
    Unseen(fn(&Request) -> bool),
    /// Closes handles of these files, which changes nothing that a lease covers. Grants the
    /// attributes until they are called back where the closer of one has stated its size, so that
    /// it need not ask for them.
    Closes(fn(&Request) -> Vec<Fid>),
    /// Opens a file. Grants its attributes until they are called back where its bytes may come
    /// along, because these hold for as long, and where its data may be kept.
    Opens,
}

impl Scope {
    /// Whether what an operation tells of a directory depends on all names there.
    pub(crate) fn tells_directories(&self) -> bool {
        match self {
            Scope::Attributes | Scope::Each(_) | Scope::Lists(_) => true,
            Scope::Plain
            | Scope::Name(_)
            | Scope::Makes(_)
            | Scope::Removes(_)
            | Scope::Moves(_)
            | Scope::Kept
            | Scope::Sets(_)
            | Scope::Unseen(_)
            | Scope::Closes(_)
            | Scope::Opens => false,
        }
    }
}

/// What a client may hold while it sends a request of an operation, and until it is answered.
pub(crate) enum Holds {
    /// Nothing that other clients wait for.
    Nothing,
    /// Its kernel keeps this directory locked.
    Dir(fn(&Request) -> Fid),
    /// Its kernel keeps these two directories locked.
    Dirs(fn(&Request) -> (Fid, Fid)),
    /// The client holds the file's own lock.
    File(fn(&Request) -> Fid),
}

/// What an operation means for data of files, and for their sizes.
pub(crate) enum Data {
    /// Nothing.
    None,
    /// It tells of one file. This says whether writers are asked for its size, and whether their
    /// data must be with the OSTs first.
    Size(fn(&Request) -> GetattrFlags),
    /// It tells of many files. This says whether writers are asked for their sizes.
    Sizes(fn(&Request) -> bool),
    /// It opens the file that its answer tells of, where this says how.
    Opens(fn(&Request) -> Option<Opened>),
    /// It changes attributes of its file and, where this names the file, its size: then its client
    /// cuts the objects.
    Cuts(fn(&Request) -> Option<Fid>),
    /// It changes extended attributes of its file and, where this says so, where its data is.
    Moves(fn(&Request) -> bool),
    /// It changes extended attributes of its file.
    Attributes,
}

/// How a request opens a file.
#[derive(Clone, Copy)]
pub(crate) struct Opened {
    /// Of open(2).
    pub(crate) flags: u32,
    /// A kernel wants to keep what it reads.
    pub(crate) keeps_reads: bool,
    /// A client wants to keep what it writes.
    pub(crate) keeps_writes: bool,
    /// Bytes of the file that may come along with the answer.
    pub(crate) room: u32,
}

/// Whether an operation lets its client use or change bytes of the files that it decides on.
pub(crate) enum UsesBytes {
    No,
    Yes,
    /// Depends on the request.
    If(fn(&Request) -> bool),
}

/// What an operation does while its MDT is read-only.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReadOnly {
    /// It goes on.
    Serves,
    /// It is refused. Only for what is decided in one transaction ([`super::Run::Decide`]).
    Refuses,
    /// It looks for itself whether it would change something that it must not.
    Judges,
}
