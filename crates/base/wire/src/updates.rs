//! Changes that one operation makes on several MDTs, as MDTs send them to each other and as their
//! stores keep them. Encoded with postcard.
//!
//! A [`Record`] has the parts of all MDTs. Each MDT that takes part stores it in the transaction
//! that carries out its own part. So every copy is enough to complete the operation everywhere.

pub use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use types::{Fid, Timespec};

/// Bytes of a record at most.
pub const RECORD_BYTES_MAX: usize = 1 << 20;

/// Bytes of what MDTs send each other about operations: a record, and the few bytes by which a list
/// or an option of it is longer.
const MESSAGE_BYTES_MAX: usize = RECORD_BYTES_MAX + 16;

/// Keys of one [`Opcode::MdtPrepare`](crate::Opcode::MdtPrepare) at most.
pub const KEYS_MAX: usize = 4_096;

/// First bytes of a record in a reply.
pub const RECORD_MAGIC: [u8; 8] = *b"nacre-up";

/// Names an operation over several MDTs. Never given twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct OpId {
    /// Index of the MDT that coordinates it.
    pub mdt: u32,
    /// Rises: the instance of that MDT in the upper 32 bits, a count in the lower.
    pub number: u64,
}

impl OpId {
    /// Key of the record in a store: big-endian, so that the operations of one MDT lie together in
    /// the order of their numbers.
    #[must_use]
    pub fn to_key(self) -> [u8; 12] {
        let mut key = [0; 12];
        key[..4].copy_from_slice(&self.mdt.to_be_bytes());
        key[4..].copy_from_slice(&self.number.to_be_bytes());
        key
    }

    /// From a key made by [`OpId::to_key`].
    #[must_use]
    pub fn from_key(key: &[u8]) -> Option<OpId> {
        Some(OpId {
            mdt: u32::from_be_bytes(key.get(..4)?.try_into().ok()?),
            number: u64::from_be_bytes(key.get(4..12)?.try_into().ok()?),
        })
    }

    /// Instance of the MDT that drew it.
    #[must_use]
    pub fn instance(self) -> u64 {
        self.number >> 32
    }
}

/// A name in a directory.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Place {
    /// The directory, or the shard that holds the name.
    #[serde(with = "fid")]
    pub dir: Fid,
    /// One part of a path, 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// One change at one MDT.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Update {
    /// A name that is free gets a file.
    Enter {
        /// The name.
        at: Place,
        /// The file.
        #[serde(with = "fid")]
        child: Fid,
        /// Type bits of its mode.
        file_type: u32,
    },
    /// A name goes.
    Leave {
        /// The name.
        at: Place,
        /// The file that it leads to.
        #[serde(with = "fid")]
        child: Fid,
    },
    /// A name leads to another file and keeps its place in the directory.
    Repoint {
        /// The name.
        at: Place,
        /// The file that it leads to before.
        #[serde(with = "fid")]
        old: Fid,
        /// The new file.
        #[serde(with = "fid")]
        child: Fid,
        /// Type bits of its mode.
        file_type: u32,
    },
    /// Names and subdirectories of a directory changed. Commutes.
    Touch {
        /// The directory.
        #[serde(with = "fid")]
        dir: Fid,
        /// Bytes of names that came, less those that went.
        name_bytes: i64,
        /// Subdirectories that came, less those that went.
        subdirs: i32,
    },
    /// A file comes to be.
    Make(Made),
    /// Names of a file changed.
    Named(Named),
    /// Mode, owner and defaults of a directory, or of a shard of it. A file that moves to another
    /// MDT has no layout any more, and goes.
    Own(Own),
    /// A directory, or a shard of it, has this striping.
    Stripe {
        /// The directory or shard.
        #[serde(with = "fid")]
        fid: Fid,
        /// As `layout::dir::Stripes` encodes it; empty: none.
        value: Vec<u8>,
    },
    /// A name of a file is in another shard of its directory. Its times stay.
    Rehome {
        /// The file.
        #[serde(with = "fid")]
        fid: Fid,
        /// The name before.
        from: Place,
        /// The same name in the other shard.
        to: Place,
    },
    /// As [`Update::Touch`], but the times of the directory stay.
    Size {
        /// The directory or shard.
        #[serde(with = "fid")]
        dir: Fid,
        /// Bytes of names that came, less those that went.
        name_bytes: i64,
        /// Subdirectories that came, less those that went.
        subdirs: i32,
    },
}

/// Buffer 1 of [`Opcode::MdtMove`](crate::Opcode::MdtMove).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Move {
    /// The shard that names leave.
    #[serde(with = "fid")]
    pub dir: Fid,
    /// The name; empty: none, the reply says how many are left.
    pub name: Vec<u8>,
}

/// Buffer 1 of the reply to it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// The name was there and has moved. Otherwise it is absent there, for ever.
    pub was_there: bool,
    /// Names that are left, as far as they are counted. All ones: the MDT does not know.
    pub left: u64,
    /// Names that have moved since the MDT's start.
    pub moved: u64,
}

impl Moved {
    /// Whether the name is absent there also for operations that come later. An MDT that does not
    /// know of the move of names may have lost it, and hears of it from another MDT.
    #[must_use]
    pub const fn lasts(&self) -> bool {
        !self.was_there && self.left != u64::MAX
    }
}

/// What a striped directory and its shards have in common.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Own {
    /// The directory or shard.
    #[serde(with = "fid")]
    pub fid: Fid,
    /// Permission bits.
    pub mode: u32,
    /// User id.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Project id.
    pub projid: u32,
    /// Access time, if it is set: seconds and nanoseconds.
    pub atime: Option<(i64, u32)>,
    /// The same for the modification time.
    pub mtime: Option<(i64, u32)>,
    /// Default layout, empty if none.
    pub layout: Vec<u8>,
    /// Access lists and the default for subdirectories: name and value, empty if there is none.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
}

/// A file that comes to be, as its MDT stores it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Made {
    /// Drawn by its MDT for it.
    #[serde(with = "fid")]
    pub fid: Fid,
    /// Inode record.
    pub inode: Vec<u8>,
    /// Layout or default layout, empty if none.
    pub layout: Vec<u8>,
    /// Extended attributes: name and value.
    pub xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Its name, unless it is a shard.
    pub at: Option<Place>,
}

impl Update {
    /// The file or directory that changes.
    #[must_use]
    pub fn fid(&self) -> Fid {
        match self {
            Update::Enter { at, .. } | Update::Leave { at, .. } | Update::Repoint { at, .. } => {
                at.dir
            }
            Update::Touch { dir, .. } | Update::Size { dir, .. } => *dir,
            Update::Stripe { fid, .. } | Update::Rehome { fid, .. } => *fid,
            Update::Make(made) => made.fid,
            Update::Named(named) => named.fid,
            Update::Own(own) => own.fid,
        }
    }

    /// Whether it needs room for good: a name, a file or a back-link comes. What replaces or
    /// removes something does not.
    #[must_use]
    pub fn adds(&self) -> bool {
        match self {
            Update::Enter { .. } | Update::Make(_) => true,
            Update::Named(named) => named.links > 0,
            _ => false,
        }
    }
}

/// What happens to the names of a file.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Named {
    /// The file.
    #[serde(with = "fid")]
    pub fid: Fid,
    /// A name that it gets.
    pub gets: Option<Place>,
    /// A name that it loses.
    pub loses: Option<Place>,
    /// Links that come, less those that go. A file without a link goes, or becomes an orphan.
    pub links: i32,
    /// Whether the directory of the new name becomes its parent.
    pub moves: bool,
}

/// The changes at one MDT, in order.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Index of the MDT.
    pub mdt: u32,
    /// What changes there.
    pub updates: Vec<Update>,
}

/// A whole operation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Record {
    /// Its name.
    pub id: OpId,
    /// Time of the operation: seconds and nanoseconds.
    pub time: (i64, u32),
    /// One for each MDT that takes part, by index.
    pub parts: Vec<Part>,
    /// Key and value of the reply record, without the operation's own record: the coordinator
    /// answers a resend with it. Empty if there is none.
    pub reply: (Vec<u8>, Vec<u8>),
}

impl Record {
    /// Time of the operation.
    #[must_use]
    pub fn timespec(&self) -> Timespec {
        Timespec::new(self.time.0, self.time.1)
    }

    /// The part of this MDT.
    #[must_use]
    pub fn part(&self, mdt: u32) -> Option<&Part> {
        self.parts.iter().find(|part| part.mdt == mdt)
    }

    /// Whether each name that it enters, moves or removes can be one, and each name of an
    /// attribute. The key of its reply is no longer than a name. Nothing of another record is
    /// executed.
    #[must_use]
    pub fn has_good_names(&self) -> bool {
        let is_good = |name: &[u8]| (1..=types::NAME_BYTES_MAX).contains(&name.len());
        let can_be = |at: &Option<Place>| at.as_ref().is_none_or(|at| is_good(&at.name));
        let are_good = |xattrs: &[(Vec<u8>, Vec<u8>)]| xattrs.iter().all(|(name, _)| is_good(name));
        let mut updates = self.parts.iter().flat_map(|part| &part.updates);
        let is_key_short = self.reply.0.len() <= types::NAME_BYTES_MAX;
        is_key_short
            && updates.all(|update| match update {
                Update::Enter { at, .. }
                | Update::Leave { at, .. }
                | Update::Repoint { at, .. } => is_good(&at.name),
                Update::Rehome { from, to, .. } => is_good(&from.name) && is_good(&to.name),
                Update::Named(named) => can_be(&named.gets) && can_be(&named.loses),
                Update::Make(made) => are_good(&made.xattrs) && can_be(&made.at),
                Update::Own(own) => are_good(&own.xattrs),
                Update::Touch { .. } | Update::Stripe { .. } | Update::Size { .. } => true,
            })
    }

    /// MDTs that take part, but for `mdt`.
    pub fn others(&self, mdt: u32) -> impl Iterator<Item = u32> {
        self.parts.iter().map(|part| part.mdt).filter(move |of| *of != mdt)
    }
}

/// What a decision depends on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum Key {
    /// An inode: that it exists, and its attributes.
    Inode(#[serde(with = "fid")] Fid),
    /// A name: whether it exists, and the file that it leads to.
    Name(Place),
    /// That a directory has no names.
    Empty(#[serde(with = "fid")] Fid),
    /// A FID of this MDT for a new file; the number tells several apart.
    New(u32, u32),
}

impl Key {
    /// Index of the MDT that has it.
    #[must_use]
    pub fn mdt(&self) -> u32 {
        match self {
            Key::Inode(fid) | Key::Empty(fid) => fid.mdt_index(),
            Key::Name(place) => place.dir.mdt_index(),
            Key::New(mdt, _) => *mdt,
        }
    }
}

/// A key that an operation needs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct Want {
    /// What must stay as it is until the operation has ended.
    pub key: Key,
    /// The operation changes it. Otherwise it must only stay as it is.
    pub changes: bool,
}

/// The state of a key, which stays so until the operation that asked has ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Fact {
    /// There is no such file or name.
    Absent,
    /// A file that exists.
    Inode {
        /// Inode record.
        record: Vec<u8>,
        /// Access list, empty if none.
        acl: Vec<u8>,
        /// Striping of a directory, empty if none.
        stripes: Vec<u8>,
    },
    /// A name that exists.
    Name {
        /// The file that it leads to.
        #[serde(with = "fid")]
        child: Fid,
        /// Type bits of its mode.
        file_type: u32,
    },
    /// Whether a directory has no names.
    Empty(bool),
    /// A FID that no file has.
    New(#[serde(with = "fid")] Fid),
}

/// Buffer 1 of [`Opcode::MdtPrepare`](crate::Opcode::MdtPrepare).
///
/// Buffer 2 is a `bool`: the operation may need room for good ([`Update::adds`]). Buffer 2 of the
/// reply is a `bool`, too: there is no such room. Buffer 3 is a `bool`: the operation mends what a
/// check has found. An MDT that serves without another one, which may know operations that it has
/// lost, refuses that (EBUSY). Buffer 4 is a `bool`: the operation is a step of something that has
/// begun, such as names that move. A read-only MDT refuses to begin a change (EROFS), and takes
/// such a step. Where a buffer is absent, it is false. Buffer 5 may be absent: the number (`u128`)
/// of the client that counts the change of directories itself
/// ([`RenameReq`](crate::body::RenameReq)).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Prepare {
    /// The operation that asks.
    pub id: OpId,
    /// In the order of the keys; the facts in the reply are in the same order.
    pub wants: Vec<Want>,
}

/// Buffer 1 of [`Opcode::MdtUpdatesDone`](crate::Opcode::MdtUpdatesDone).
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Index of the MDT that says so.
    pub mdt: u32,
    /// Its instance: nothing of earlier ones is under way any more; zero: says nothing.
    pub instance: u64,
    /// Its operations below this number are durable everywhere.
    pub below: u64,
    /// These operations are given up before anything changed.
    pub released: Vec<u64>,
}

/// Body of [`Opcode::MdtUpdates`](crate::Opcode::MdtUpdates): index of the asking MDT, operation
/// behind which the records are to begin, instance.
pub type Question = (u32, Option<OpId>, u64);

/// Which time a recovering MDT asks another one for records. The first time, a body is a
/// [`Question`] alone, as older versions send it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Round {
    /// The other one answers as soon as its clients have replayed.
    First,
    /// The other one answers when it has asked all others for the first time, too.
    Last,
}

/// As it travels and is stored.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Vec<u8> {
    postcard::to_stdvec(value).expect("plain values have a form")
}

/// From bytes, of which none may be left over.
#[must_use]
pub fn decode<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    if bytes.len() > MESSAGE_BYTES_MAX {
        return None;
    }
    let (value, rest) = postcard::take_from_bytes(bytes).ok()?;
    rest.is_empty().then_some(value)
}

/// FIDs as three numbers.
mod fid {
    use serde::{Deserialize, Deserializer, Serialize, Serializer};
    use types::Fid;

    pub(super) fn serialize<S: Serializer>(fid: &Fid, to: S) -> Result<S::Ok, S::Error> {
        (fid.seq, fid.oid, fid.ver).serialize(to)
    }

    pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Fid, D::Error> {
        let (seq, oid, ver) = Deserialize::deserialize(from)?;
        Ok(Fid { seq, oid, ver })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_record_goes_there_and_back_and_no_cut_of_it_is_taken() {
        let dir = Fid::new(7, 8);
        let at = Place { dir, name: b"name".to_vec() };
        let updates = vec![
            Update::Enter { at: at.clone(), child: Fid::new(9, 1), file_type: 0o40_000 },
            Update::Touch { dir, name_bytes: -4, subdirs: 1 },
        ];
        let id = OpId { mdt: 1, number: 5 << 32 | 7 };
        let parts = vec![Part { mdt: 0, updates }, Part { mdt: 3, updates: Vec::new() }];
        let reply = (vec![1], vec![2, 3]);
        let record = Record { id, time: (-1, 5), parts, reply };
        let bytes = encode(&record);
        assert_eq!(decode(&bytes), Some(record.clone()));
        assert!((0..bytes.len()).all(|len| decode::<Record>(&bytes[..len]).is_none()));
        assert_eq!(decode::<Record>(&[&bytes[..], &[0]].concat()), None, "a longer one");
        assert_eq!(record.others(0).collect::<Vec<_>>(), [3]);
        assert_eq!(id.instance(), 5);
    }

    #[test]
    fn each_name_of_a_record_can_be_one() {
        let (dir, child) = (Fid::new(7, 8), Fid::new(9, 1));
        let is_taken = |update: Update| {
            let id = OpId { mdt: 1, number: 7 };
            let parts = vec![Part { mdt: 0, updates: vec![update] }];
            Record { id, time: (0, 0), parts, reply: Default::default() }.has_good_names()
        };
        let named =
            |gets, loses| Update::Named(Named { fid: child, gets, loses, links: 0, moves: false });
        let made = |xattrs, at| {
            let (inode, layout) = (Vec::new(), Vec::new());
            Update::Make(Made { fid: child, inode, layout, xattrs, at })
        };
        let own = |xattrs| {
            let (mode, uid, gid, projid) = (0, 0, 0, 0);
            let (atime, mtime, layout) = (None, None, Vec::new());
            Update::Own(Own { fid: dir, mode, uid, gid, projid, atime, mtime, layout, xattrs })
        };
        let max = types::NAME_BYTES_MAX;
        for (len, can_be) in [(0, false), (1, true), (max, true), (max + 1, false)] {
            let name = vec![b'n'; len];
            let at = Place { dir, name: name.clone() };
            let good = Place { dir, name: b"name".to_vec() };
            let (old, file_type) = (dir, 0o40_000);
            let updates = [
                Update::Enter { at: at.clone(), child, file_type },
                Update::Leave { at: at.clone(), child },
                Update::Repoint { at: at.clone(), old, child, file_type },
                Update::Rehome { fid: child, from: at.clone(), to: good.clone() },
                Update::Rehome { fid: child, from: good, to: at.clone() },
                named(Some(at.clone()), None),
                named(None, Some(at.clone())),
                made(Vec::new(), Some(at)),
                made(vec![(name.clone(), vec![1])], None),
                own(vec![(name, vec![1])]),
            ];
            for update in updates {
                assert_eq!(is_taken(update.clone()), can_be, "{len} bytes: {update:?}");
            }
        }
        assert!(is_taken(named(None, None)) && is_taken(made(Vec::new(), None)));
    }

    #[test]
    fn the_longest_record_is_also_read_from_a_list_and_an_option() {
        let id = OpId { mdt: 0, number: 1 };
        let of =
            |len| Record { id, time: (0, 0), parts: Vec::new(), reply: (Vec::new(), vec![7; len]) };
        let beside = encode(&of(RECORD_BYTES_MAX / 2)).len() - RECORD_BYTES_MAX / 2;
        let record = of(RECORD_BYTES_MAX - beside);
        assert_eq!(encode(&record).len(), RECORD_BYTES_MAX);
        assert!(decode::<Vec<Record>>(&encode(&vec![record.clone()])).is_some());
        assert!(decode::<Option<Record>>(&encode(&Some(record))).is_some());
        assert!(decode::<Record>(&encode(&of(RECORD_BYTES_MAX + 16))).is_none());
    }

    #[test]
    fn keys_of_records_are_in_the_order_of_their_ids() {
        let ids = [(0, 1), (0, 256), (1, 0), (1, u64::MAX), (256, 3)];
        let ids = ids.map(|(mdt, number)| OpId { mdt, number });
        assert!(ids.map(OpId::to_key).is_sorted());
        assert!(ids.iter().all(|id| OpId::from_key(&id.to_key()) == Some(*id)));
    }
}
