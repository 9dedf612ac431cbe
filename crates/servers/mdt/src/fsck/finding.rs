//! Breaches of rules, as data.

use osd::Table;
use types::Fid;

/// A rule that must hold. Its name is part of reports and never changes its meaning.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Rule {
    /// A record can be read.
    Unreadable,
    /// An MDT has records of its own files only.
    ForeignRecord,
    /// An operation that is done everywhere has no record.
    DoneOperation,
    /// The MDTs of an operation are there.
    AbsentPartner,
    /// A directory has a name once.
    NameTwice,
    /// A shard has no name.
    NamedShard,
    /// A name leads to an inode.
    DanglingName,
    /// Entries are in a directory that is there.
    StrayEntry,
    /// A striped directory has the shards that it lists.
    MissingShard,
    /// A shard is listed by its directory.
    UnlistedShard,
    /// A name is in the shard that its hash leads to.
    WrongShard,
    /// A directory that says that it is striped lists its shards.
    StripedFlag,
    /// An entry has the type of its file.
    WrongType,
    /// A directory has one name at most.
    SeveralNames,
    /// A file knows each of its names.
    UnknownName,
    /// A file has the names that it knows.
    LostName,
    /// ".." of a directory leads to where its name is.
    WrongParent,
    /// A directory leads to the root.
    Unrooted,
    /// What belongs to an inode has one.
    NoInode,
    /// An inode says whether it has a layout.
    LayoutFlag,
    /// A file has an orphan record exactly if it has no name.
    OrphanRecord,
    /// A file that is not an orphan has a name.
    Nameless,
    /// The link count is the number of names.
    LinkCount,
    /// The size of a directory is that of its names.
    DirectorySize,
    /// An object belongs to the file that names it.
    WrongOwner,
    /// An object has one file.
    SharedObject,
    /// An object that a closed file has is there.
    LostObject,
    /// An object has a file.
    OrphanObject,
}

impl Rule {
    /// Its name in reports.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Rule::Unreadable => "unreadable-record",
            Rule::ForeignRecord => "foreign-record",
            Rule::DoneOperation => "done-operation",
            Rule::AbsentPartner => "absent-partner",
            Rule::NameTwice => "name-twice",
            Rule::NamedShard => "named-shard",
            Rule::DanglingName => "dangling-name",
            Rule::StrayEntry => "stray-entry",
            Rule::MissingShard => "missing-shard",
            Rule::UnlistedShard => "unlisted-shard",
            Rule::WrongShard => "wrong-shard",
            Rule::StripedFlag => "striped-flag",
            Rule::WrongType => "wrong-type",
            Rule::SeveralNames => "several-names",
            Rule::UnknownName => "unknown-name",
            Rule::LostName => "lost-name",
            Rule::WrongParent => "wrong-parent",
            Rule::Unrooted => "unrooted",
            Rule::NoInode => "no-inode",
            Rule::LayoutFlag => "layout-flag",
            Rule::OrphanRecord => "orphan-record",
            Rule::Nameless => "nameless",
            Rule::LinkCount => "link-count",
            Rule::DirectorySize => "directory-size",
            Rule::WrongOwner => "wrong-owner",
            Rule::SharedObject => "shared-object",
            Rule::LostObject => "lost-object",
            Rule::OrphanObject => "orphan-object",
        }
    }

    /// Breaches of an earlier stage are mended first, because those of later stages may be their
    /// consequences. A mend of one stage does not depend on another mend of the same stage.
    pub(super) fn stage(self) -> u32 {
        match self {
            Rule::Unreadable | Rule::ForeignRecord | Rule::AbsentPartner | Rule::SharedObject => 0,
            Rule::DoneOperation | Rule::NameTwice | Rule::NamedShard => 1,
            Rule::DanglingName | Rule::StrayEntry | Rule::MissingShard => 2,
            Rule::NoInode => 3,
            Rule::StripedFlag | Rule::WrongType | Rule::SeveralNames => 4,
            Rule::UnknownName => 5,
            Rule::LostName => 6,
            Rule::WrongParent | Rule::UnlistedShard => 7,
            Rule::Unrooted => 8, // a wrong parent alone makes no circle
            Rule::WrongShard => 9,
            Rule::LayoutFlag => 10,
            Rule::OrphanRecord => 11,
            Rule::Nameless => 12,
            Rule::LinkCount => 13,
            Rule::DirectorySize => 14,
            Rule::WrongOwner => 15,
            Rule::LostObject => 16,
            Rule::OrphanObject => 17,
        }
    }
}

/// How a breach is mended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Mend {
    /// Records go.
    Delete { mdt: u32, keys: Vec<(Table, Vec<u8>)> },
    /// A name goes.
    RemoveName { dir: Fid, cookie: u64 },
    /// An inode that is gone is made again from what other records say of it.
    Remake(Fid),
    /// A directory that was removed and has names is there again.
    Revive(Fid),
    /// An inode becomes a shard of this directory again.
    AsShard { shard: Fid, master: Fid },
    /// A shard becomes a directory of its own.
    Unshard(Fid),
    /// A directory says whether it is striped.
    SetStriped { fid: Fid, has: bool },
    /// A name moves to the shard that its hash leads to.
    MoveName { dir: Fid, cookie: u64, to: Fid },
    /// An entry gets the type of its file.
    SetType { dir: Fid, cookie: u64, file_type: u32 },
    /// A directory keeps one of its names.
    KeepOneName(Fid),
    /// A file learns of one of its names.
    AddLink { dir: Fid, cookie: u64 },
    /// A name that a file knows is entered again, or forgotten if the file has enough names.
    RestoreName { fid: Fid, dir: Fid, cookie: u64 },
    /// ".." of a directory.
    SetParent { fid: Fid, parent: Fid },
    /// A directory that lies in itself loses its name.
    Cut(Fid),
    /// The inode says whether it has a layout.
    SetLayoutFlag { fid: Fid, has: bool },
    /// The orphan record and its flag.
    SetOrphan { fid: Fid, is_orphan: bool },
    /// A file gets a name in lost+found.
    ToLostFound(Fid),
    /// Link count and size of a directory.
    Count { fid: Fid, nlink: u32, size: u64 },
    /// The record of an object names its file.
    SetOwner { ost: u32, object: Fid, file: Fid },
    /// The bytes of a stripe are given up: an object without bytes is made, which reads as zeros.
    GiveUp { file: Fid, stripe: u32 },
    /// Objects without bytes are destroyed, by the destroy log.
    Destroy { base: Fid, ost: u32, stripes: u32 },
    /// Objects with bytes get a file in lost+found.
    Adopt { base: Fid, file: Fid },
}

impl Mend {
    /// What it does, for a report.
    #[must_use]
    pub fn text(&self) -> &'static str {
        match self {
            Mend::Delete { .. } => "remove the record",
            Mend::RemoveName { .. } => "remove the name",
            Mend::Remake(_) => "make the inode again, owned by root",
            Mend::Revive(_) => "bring the directory back",
            Mend::AsShard { .. } => "make it a shard of its directory again",
            Mend::Unshard(_) => "make it a directory of its own",
            Mend::MoveName { .. } => "move the name to its shard",
            Mend::SetType { .. } => "set the type",
            Mend::KeepOneName(_) => "keep one of the names",
            Mend::AddLink { .. } => "add the name to the file",
            Mend::RestoreName { .. } => "enter the name again, unless the file has enough names",
            Mend::SetParent { .. } => "set \"..\"",
            Mend::Cut(_) => "take it out of the circle",
            Mend::SetStriped { .. } | Mend::SetLayoutFlag { .. } => "set the flag",
            Mend::SetOrphan { .. } => "set the orphan record",
            Mend::ToLostFound(_) => "give it a name in lost+found",
            Mend::Count { .. } => "set the count",
            Mend::SetOwner { .. } => "set the file in the object's record",
            Mend::GiveUp { .. } => "make an object without bytes: they read as zeros",
            Mend::Destroy { .. } => "destroy it, because it has no bytes",
            Mend::Adopt { .. } => "give it a file in lost+found",
        }
    }

    /// Whether it gives up bytes that a reader is told to be lost until then. It needs a consent
    /// of its own.
    #[must_use]
    pub fn gives_up_bytes(&self) -> bool {
        matches!(self, Mend::GiveUp { .. })
    }
}

/// A breach of a rule.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub rule: Rule,
    /// What it is about.
    pub fid: Fid,
    /// Directory and name, where it is about a name.
    pub name: Option<(Fid, Vec<u8>)>,
    /// Index of the OST, or of an MDT's data target, where it is about an object.
    pub ost: Option<u32>,
    /// What is wrong, in words: the same text as long as the same thing is wrong.
    pub text: String,
    /// How it is mended, if it can be.
    pub mend: Option<Mend>,
    /// Files and directories that may explain it: it is none while an operation changes one.
    pub(super) of: Vec<Fid>,
}

impl Finding {
    pub(super) fn new(rule: Rule, fid: Fid, text: String) -> Finding {
        Finding { rule, fid, name: None, ost: None, text, mend: None, of: vec![fid] }
    }

    pub(super) fn named(self, dir: Fid, name: &[u8]) -> Finding {
        Finding { name: Some((dir, name.to_vec())), ..self }.with([dir])
    }

    pub(super) fn on(self, ost: u32) -> Finding {
        Finding { ost: Some(ost), ..self }
    }

    pub(super) fn with(mut self, of: impl IntoIterator<Item = Fid>) -> Finding {
        self.of.extend(of);
        self
    }

    pub(super) fn mended_by(self, mend: Mend) -> Finding {
        Finding { mend: Some(mend), ..self }
    }
}
