//! The inodes, names and bits that a change of this client is about.

use ldlm::grants::{Bits, Want};
use types::Fid;

use super::hash::hash_of;
use super::lease::{ATTRS, DATA, NAMED, STAT};

/// What a change of this client's is about.
#[derive(Clone, Debug)]
pub(crate) struct Scope {
    /// Files that are known before it is executed.
    pub(super) wants: Vec<Want>,
    /// What it changes of the file that its answer tells of.
    pub(super) told: Bits,
    /// It may change files that neither names.
    pub(super) is_wide: bool,
    /// Names that come and go.
    pub(super) names: Vec<NameChange>,
    /// Boxed: a scope is a part of many futures.
    pub(super) taking: Option<Box<Taking>>,
}

/// Names that a change takes from files: they get fewer names, or other ones.
#[derive(Clone, Debug, Default)]
pub(super) struct Taking {
    pub(super) names: Vec<(Fid, Box<[u8]>)>,
    /// The files that are known. The answer tells what it has changed of them.
    pub(super) files: Vec<Want>,
    /// How many are not known.
    pub(super) unknown: usize,
}

/// A name, as its directory's set knows it.
#[derive(Clone, Copy, Debug)]
pub(super) struct NameChange {
    pub(super) dir: Fid,
    pub(super) hash: u64,
    pub(super) comes: bool,
}

impl Scope {
    fn of(fids: &[Fid], told: Bits) -> Scope {
        let wants = fids.iter().map(|fid| Want { fid: *fid, bits: Bits::UPDATE }).collect();
        Scope { wants, told, is_wide: false, names: Vec::new(), taking: None }
    }

    /// The directories in which names come, go or move.
    pub(super) fn dirs(&self) -> impl Iterator<Item = Fid> {
        let is_wide = self.is_wide;
        let moved = self.wants.iter().filter(move |_| is_wide).map(|want| want.fid);
        self.names.iter().map(|name| name.dir).chain(moved)
    }

    /// The directories in which names come.
    pub(crate) fn named_in(&self) -> impl Iterator<Item = Fid> {
        let wide = self.wants.iter().filter(|_| self.is_wide).map(|want| want.fid);
        self.names.iter().filter(|name| name.comes).map(|name| name.dir).chain(wide)
    }

    fn naming(mut self, dir: Fid, name: &[u8], comes: bool) -> Scope {
        self.names.push(NameChange { dir, hash: hash_of(name), comes });
        self
    }

    fn taking(mut self, dir: Fid, name: &[u8]) -> Scope {
        self.taking.get_or_insert_default().names.push((dir, name.into()));
        self
    }

    /// A file is opened for reading: nothing changes but that it is open.
    pub(crate) fn open() -> Scope {
        Scope::of(&[], Bits::empty())
    }

    /// A file is opened so that its data may change, and perhaps cut.
    pub(crate) fn open_to_change(fid: Fid) -> Scope {
        let wants = vec![Want { fid, bits: DATA }];
        Scope { wants, ..Scope::of(&[], Bits::UPDATE | DATA) }
    }

    /// The file that a name stands for may be opened so that its data may change.
    pub(crate) fn or_changed(mut self) -> Scope {
        self.told |= DATA;
        self
    }

    /// Size and place of a file's data, with its attributes.
    pub(crate) fn shape(fid: Fid) -> Scope {
        let bits = NAMED | DATA;
        Scope { wants: vec![Want { fid, bits }], ..Scope::of(&[], bits) }
    }

    /// A name comes.
    pub(crate) fn entry(dir: Fid, name: &[u8]) -> Scope {
        Scope::of(&[dir], Bits::UPDATE).naming(dir, name, true)
    }

    /// A name goes.
    pub(crate) fn removal(dir: Fid, name: &[u8]) -> Scope {
        Scope::of(&[dir], NAMED).naming(dir, name, false).taking(dir, name)
    }

    /// A file that has other names gets one more.
    pub(crate) fn link(file: Fid, dir: Fid, name: &[u8]) -> Scope {
        Scope::of(&[dir, file], NAMED).naming(dir, name, true)
    }

    /// Owner, mode, times or project of a file or directory. No such change gives it an extended
    /// attribute, so one that has none still has none.
    pub(crate) fn stat(fid: Fid) -> Scope {
        let bits = STAT | Bits::LOOKUP;
        Scope { wants: vec![Want { fid, bits }], ..Scope::of(&[], bits) }
    }

    /// All attributes of a file or directory, extended ones too.
    pub(crate) fn attrs(fid: Fid) -> Scope {
        Scope { wants: vec![Want { fid, bits: NAMED }], ..Scope::of(&[], NAMED) }
    }

    /// Data of a file, and the times and the size that go with it.
    pub(crate) fn data(fid: Fid) -> Scope {
        Scope { wants: vec![Want { fid, bits: ATTRS }], ..Scope::of(&[], ATTRS) }
    }

    /// The same, where a handle for writing is closed: what is written is kept no more.
    pub(crate) fn written(fid: Fid) -> Scope {
        let bits = ATTRS | Bits::WRITE;
        Scope { wants: vec![Want { fid, bits }], ..Scope::of(&[], bits) }
    }

    /// Names move; what is replaced the answer tells if it is the first.
    pub(crate) fn rename(from: (Fid, &[u8]), to: (Fid, &[u8]), is_exchange: bool) -> Scope {
        let scope = Scope { is_wide: true, ..Scope::of(&[from.0, to.0], NAMED) };
        let scope = scope.taking(from.0, from.1).taking(to.0, to.1);
        match is_exchange {
            true => scope,
            false => scope.naming(from.0, from.1, false).naming(to.0, to.1, true),
        }
    }
}
