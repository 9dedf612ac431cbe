//! The reference file system: POSIX in memory, one call after another, and the required answer to
//! each call.
//!
//! Invariants
//! - A node lives as long as it has a name or an open slot.
//! - If POSIX allows several errors, all of them are listed; a result is never left open.

mod ranges;
mod unsynced;

use std::collections::{BTreeMap, BTreeSet};

use types::{Errno, NAME_BYTES_MAX, Timespec};
use wire::attr::{S_IFDIR, S_IFIFO, S_IFLNK, S_IFREG};

pub use unsynced::{BLOCK_BYTES, Unsynced};

use crate::op::{EXCHANGE, NOREPLACE, Op, Path, XATTR_CREATE, XATTR_REPLACE, XattrName, pattern};

/// Number of a node of the model; never given twice.
pub type Ino = u64;
/// The directory under test.
pub const ROOT: Ino = 1;

/// What a node is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Body {
    File { data: Vec<u8> },
    Dir { entries: BTreeMap<String, Ino>, parent: Ino },
    Symlink { target: String },
    Fifo,
}

/// A file, directory, link or pipe.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Node {
    pub body: Body,
    /// Permission bits.
    pub perm: u32,
    pub uid: u32,
    pub gid: u32,
    pub nlink: u32,
    /// Made without a name, and not linked yet.
    pub linkable: bool,
    pub opens: u32,
    /// Where it was set by hand, and nothing has changed it since.
    pub mtime: Option<Timespec>,
    /// Was set by hand, and then the file was written to: not to be seen again.
    pub mtime_before: Option<Timespec>,
    pub xattrs: BTreeMap<XattrName, Vec<u8>>,
    /// Data as the last fsync left it, unless written since.
    pub synced: Option<Vec<u8>>,
    /// What was done to its data since it was durable, if anything was.
    pub unsynced: Option<Unsynced>,
}

impl Node {
    fn new(body: Body, perm: u32) -> Node {
        let nlink = if matches!(body, Body::Dir { .. }) { 2 } else { 1 };
        let xattrs = BTreeMap::new();
        Node {
            body,
            perm: perm & 0o7777,
            uid: 0,
            gid: 0,
            nlink,
            linkable: false,
            opens: 0,
            mtime: None,
            mtime_before: None,
            xattrs,
            synced: None,
            unsynced: None,
        }
    }

    /// Whether it is a directory.
    #[must_use]
    pub fn is_dir(&self) -> bool {
        matches!(self.body, Body::Dir { .. })
    }

    /// Type bits of `st_mode`.
    #[must_use]
    pub fn file_type(&self) -> u32 {
        match self.body {
            Body::File { .. } => S_IFREG,
            Body::Dir { .. } => S_IFDIR,
            Body::Symlink { .. } => S_IFLNK,
            Body::Fifo => S_IFIFO,
        }
    }

    /// Size, where it is defined.
    #[must_use]
    pub fn size(&self) -> Option<u64> {
        match &self.body {
            Body::File { data } => Some(data.len() as u64),
            Body::Symlink { target } => Some(target.len() as u64),
            Body::Dir { .. } | Body::Fifo => None,
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Slot {
    pub ino: Ino,
    /// Opened with O_APPEND.
    pub append: bool,
}

/// What a call must answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Expect {
    /// Success, and nothing to compare.
    Done,
    /// Attributes of this node, as the model has it after the call.
    Attr(Ino),
    /// These bytes.
    Data(Vec<u8>),
    /// So many bytes.
    Count(u64),
    /// These names, with the nodes behind them.
    Names(BTreeMap<String, Ino>),
    Xattrs(BTreeSet<XattrName>),
    /// One of these errors.
    Fails(Vec<Errno>),
    /// The call makes no sense here (an empty slot, a sort of file that the test leaves out): leave
    /// it out.
    Skip,
}

fn fails(errno: Errno) -> Expect {
    Expect::Fails(vec![errno])
}

/// The reference file system.
#[derive(Clone, Debug)]
pub struct Model {
    nodes: BTreeMap<Ino, Node>,
    slots: BTreeMap<u8, Slot>,
    next: Ino,
    freed: Vec<Ino>,
    /// Changes of data are kept until they are durable.
    keeps_changes: bool,
}

impl Default for Model {
    fn default() -> Model {
        Model::new()
    }
}

impl Model {
    #[must_use]
    pub fn new() -> Model {
        let root = Node::new(Body::Dir { entries: BTreeMap::new(), parent: ROOT }, 0o755);
        Model {
            nodes: BTreeMap::from([(ROOT, root)]),
            slots: BTreeMap::new(),
            next: ROOT + 1,
            freed: Vec::new(),
            keeps_changes: false,
        }
    }

    /// A node that lives.
    ///
    /// # Panics
    /// If it does not.
    #[must_use]
    pub fn node(&self, ino: Ino) -> &Node {
        self.nodes.get(&ino).expect("a number that was told lives until it is told as freed")
    }

    fn node_mut(&mut self, ino: Ino) -> &mut Node {
        self.nodes.get_mut(&ino).expect("a number that was told lives until it is told as freed")
    }

    /// An open slot.
    #[must_use]
    pub fn slot(&self, slot: u8) -> Option<Slot> {
        self.slots.get(&slot).copied()
    }

    #[must_use]
    pub fn open_slots(&self) -> Vec<u8> {
        self.slots.keys().copied().collect()
    }

    /// Nodes that lost their last name and slot since the last call.
    pub fn take_freed(&mut self) -> Vec<Ino> {
        std::mem::take(&mut self.freed)
    }

    /// Every path with its node, parents first.
    #[must_use]
    pub fn paths(&self) -> Vec<(Path, Ino)> {
        let mut out = vec![(Path(Vec::new()), ROOT)];
        let mut at = 0;
        while at < out.len() {
            let (path, ino) = out[at].clone();
            if let Body::Dir { entries, .. } = &self.node(ino).body {
                out.extend(entries.iter().map(|(name, ino)| (path.join(name), *ino)));
            }
            at += 1;
        }
        out
    }

    /// The node behind a path.
    pub fn find(&self, path: &Path) -> Result<Ino, Errno> {
        let mut ino = ROOT;
        for name in &path.0 {
            let Body::Dir { entries, .. } = &self.node(ino).body else {
                return Err(Errno::ENOTDIR);
            };
            if name.len() > NAME_BYTES_MAX {
                return Err(Errno::ENAMETOOLONG);
            }
            ino = *entries.get(name).ok_or(Errno::ENOENT)?;
        }
        Ok(ino)
    }

    /// Directory and name that a path speaks of.
    fn place(&self, path: &Path) -> Result<(Ino, String), Errno> {
        let (name, parents) =
            path.0.split_last().expect("the directory under test is not named itself");
        let parent = self.find(&Path(parents.to_vec()))?;
        if !self.node(parent).is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if name.len() > NAME_BYTES_MAX {
            Err(Errno::ENAMETOOLONG)
        } else {
            Ok((parent, name.clone()))
        }
    }

    fn entries(&mut self, dir: Ino) -> &mut BTreeMap<String, Ino> {
        let node = self.node_mut(dir);
        node.mtime = None;
        match &mut node.body {
            Body::Dir { entries, .. } => entries,
            _ => unreachable!("the caller has checked that it is a directory"),
        }
    }

    fn child(&self, dir: Ino, name: &str) -> Option<Ino> {
        match &self.node(dir).body {
            Body::Dir { entries, .. } => entries.get(name).copied(),
            _ => None,
        }
    }

    fn is_empty_dir(&self, ino: Ino) -> bool {
        matches!(&self.node(ino).body, Body::Dir { entries, .. } if entries.is_empty())
    }

    fn is_below(&self, mut ino: Ino, ancestor: Ino) -> bool {
        loop {
            if ino == ancestor {
                return true;
            }
            match self.node(ino).body {
                Body::Dir { parent, .. } if ino != ROOT => ino = parent,
                _ => return false,
            }
        }
    }

    /// Carries `op` out and says what the file system under test must answer.
    pub fn apply(&mut self, op: &Op) -> Expect {
        self.try_apply(op).unwrap_or_else(fails)
    }

    fn try_apply(&mut self, op: &Op) -> Result<Expect, Errno> {
        Ok(match op {
            Op::Mkdir { path, mode } => {
                let (parent, _) = self.place(path)?;
                self.make(path, Node::new(Body::Dir { entries: BTreeMap::new(), parent }, *mode))?
            }
            Op::Mkfifo { path, mode } => self.make(path, Node::new(Body::Fifo, *mode))?,
            Op::Symlink { path, target } => {
                self.make(path, Node::new(Body::Symlink { target: target.clone() }, 0o777))?
            }
            Op::Rmdir { path } => self.rmdir(path)?,
            Op::Readlink { path } => match &self.node(self.find(path)?).body {
                Body::Symlink { target } => Expect::Data(target.clone().into_bytes()),
                _ => fails(Errno::EINVAL),
            },
            Op::Create { path, slot, excl, trunc, append, mode, .. } => {
                self.create(path, *slot, *excl, *trunc, *append, *mode)?
            }
            Op::Open { path, slot, trunc, append } => self.open(path, *slot, *trunc, *append)?,
            Op::Close { slot } => self.close(*slot),
            Op::Unlink { path } => self.unlink(path)?,
            Op::Rename { from, to, flags } => self.rename(from, to, *flags),
            Op::Link { from, to } => self.link(from, to)?,
            Op::Stat { path } => Expect::Attr(self.find(path)?),
            Op::Fstat { slot } => {
                self.slot(*slot).map_or(Expect::Skip, |slot| Expect::Attr(slot.ino))
            }
            Op::Truncate { path, size } => {
                let ino = self.find(path)?;
                self.truncate(ino, *size)
            }
            Op::Ftruncate { slot, size } => match self.slot(*slot) {
                Some(slot) => self.truncate(slot.ino, *size),
                None => Expect::Skip,
            },
            Op::Chmod { path, mode } => {
                let ino = self.find(path)?;
                if matches!(self.node(ino).body, Body::Symlink { .. }) {
                    return Ok(Expect::Skip);
                }
                self.node_mut(ino).perm = mode & 0o777;
                Expect::Attr(ino)
            }
            Op::Chown { path, uid, gid } => {
                let ino = self.find(path)?;
                let node = self.node_mut(ino);
                (node.uid, node.gid) = (*uid, *gid);
                Expect::Attr(ino)
            }
            Op::Utimens { path, sec, nsec } => {
                let ino = self.find(path)?;
                let node = self.node_mut(ino);
                (node.mtime, node.mtime_before) = (Some(Timespec::new(*sec, *nsec)), None);
                Expect::Attr(ino)
            }
            Op::Write { slot, offset, len, salt } => self.write(*slot, *offset, *len, *salt),
            Op::Read { slot, offset, len } => self.read(*slot, *offset, *len),
            Op::Fallocate { slot, mode, offset, len } => {
                self.fallocate(*slot, *mode, *offset, *len)
            }
            Op::Extents { slot, offset } => self.extents(*slot, *offset),
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                self.copy_range((*from, *from_offset), (*to, *to_offset), *len)
            }
            Op::Tmpfile { path, slot, mode, excl } => self.tmpfile(path, *slot, *mode, *excl)?,
            Op::LinkOpen { slot, to } => match self.slot(*slot) {
                Some(slot) => self.link_node(slot.ino, to)?,
                None => Expect::Skip,
            },
            Op::Fsync { slot } => self.slot(*slot).map_or(Expect::Skip, |_| Expect::Done),
            Op::Sync => Expect::Done,
            Op::Readdir { path, .. } => match &self.node(self.find(path)?).body {
                Body::Dir { entries, .. } => Expect::Names(entries.clone()),
                _ => fails(Errno::ENOTDIR),
            },
            Op::Setxattr { path, name, len, salt, flags } => {
                self.setxattr(path, *name, *len, *salt, *flags)?
            }
            Op::Getxattr { path, name } => {
                match self.xattrs(path)?.map(|xattrs| xattrs.get(name)) {
                    None => Expect::Skip,
                    Some(None) => fails(Errno::ENODATA),
                    Some(Some(value)) => Expect::Data(value.clone()),
                }
            }
            Op::Listxattr { path } => self
                .xattrs(path)?
                .map_or(Expect::Skip, |xattrs| Expect::Xattrs(xattrs.keys().copied().collect())),
            Op::Removexattr { path, name } => {
                if self.xattrs(path)?.is_none() {
                    return Ok(Expect::Skip);
                }
                let ino = self.find(path)?;
                match self.node_mut(ino).xattrs.remove(name) {
                    Some(_) => Expect::Done,
                    None => fails(Errno::ENODATA),
                }
            }
        })
    }

    fn insert(&mut self, parent: Ino, name: &str, node: Node) -> Ino {
        let ino = self.next;
        self.next += 1;
        if node.is_dir() {
            self.node_mut(parent).nlink += 1;
        }
        self.nodes.insert(ino, node);
        self.entries(parent).insert(name.to_owned(), ino);
        ino
    }

    fn make(&mut self, path: &Path, node: Node) -> Result<Expect, Errno> {
        let (parent, name) = self.place(path)?;
        if self.child(parent, &name).is_some() {
            return Err(Errno::EEXIST);
        }
        Ok(Expect::Attr(self.insert(parent, &name, node)))
    }

    fn create(
        &mut self,
        path: &Path,
        slot: u8,
        excl: bool,
        trunc: bool,
        append: bool,
        mode: u32,
    ) -> Result<Expect, Errno> {
        if self.slots.contains_key(&slot) {
            return Ok(Expect::Skip);
        }
        let (parent, name) = self.place(path)?;
        if let Some(ino) = self.child(parent, &name) {
            if excl {
                return Err(Errno::EEXIST);
            }
            return Ok(match self.node(ino).body {
                Body::File { .. } => self.open_node(ino, slot, trunc, append),
                Body::Dir { .. } => fails(Errno::EISDIR),
                // the kernel follows links and opens pipes before a file system is asked
                Body::Symlink { .. } | Body::Fifo => Expect::Skip,
            });
        }
        let ino = self.insert(parent, &name, Node::new(Body::File { data: Vec::new() }, mode));
        self.take_slot(ino, slot, append);
        Ok(Expect::Attr(ino))
    }

    fn open(&mut self, path: &Path, slot: u8, trunc: bool, append: bool) -> Result<Expect, Errno> {
        if self.slots.contains_key(&slot) {
            return Ok(Expect::Skip);
        }
        let ino = self.find(path)?;
        Ok(match self.node(ino).body {
            Body::File { .. } => self.open_node(ino, slot, trunc, append),
            Body::Dir { .. } => fails(Errno::EISDIR),
            Body::Symlink { .. } | Body::Fifo => Expect::Skip,
        })
    }

    fn open_node(&mut self, ino: Ino, slot: u8, trunc: bool, append: bool) -> Expect {
        if trunc {
            self.truncate(ino, 0);
        }
        self.take_slot(ino, slot, append);
        Expect::Attr(ino)
    }

    fn take_slot(&mut self, ino: Ino, slot: u8, append: bool) {
        let node = self.node_mut(ino);
        node.opens += 1;
        self.slots.insert(slot, Slot { ino, append });
    }

    fn close(&mut self, slot: u8) -> Expect {
        let Some(open) = self.slots.remove(&slot) else { return Expect::Skip };
        self.node_mut(open.ino).opens -= 1;
        self.sweep(open.ino);
        Expect::Done
    }

    fn sweep(&mut self, ino: Ino) {
        let node = self.node(ino);
        if node.nlink == 0 && node.opens == 0 {
            self.nodes.remove(&ino);
            self.freed.push(ino);
        }
    }

    /// Takes `name` away from its node.
    fn drop_name(&mut self, dir: Ino, name: &str) {
        let ino = self.entries(dir).remove(name).expect("the caller has found it");
        if self.node(ino).is_dir() {
            self.node_mut(ino).nlink = 0;
            self.node_mut(dir).nlink -= 1;
        } else {
            self.node_mut(ino).nlink -= 1;
        }
        self.sweep(ino);
    }

    fn rmdir(&mut self, path: &Path) -> Result<Expect, Errno> {
        let (parent, name) = self.place(path)?;
        let ino = self.child(parent, &name).ok_or(Errno::ENOENT)?;
        if !self.node(ino).is_dir() {
            return Err(Errno::ENOTDIR);
        }
        if !self.is_empty_dir(ino) {
            return Ok(Expect::Fails(vec![Errno::ENOTEMPTY, Errno::EEXIST]));
        }
        self.drop_name(parent, &name);
        Ok(Expect::Done)
    }

    fn unlink(&mut self, path: &Path) -> Result<Expect, Errno> {
        let (parent, name) = self.place(path)?;
        let ino = self.child(parent, &name).ok_or(Errno::ENOENT)?;
        if self.node(ino).is_dir() {
            return Ok(Expect::Fails(vec![Errno::EISDIR, Errno::EPERM]));
        }
        self.drop_name(parent, &name);
        Ok(Expect::Done)
    }

    fn link(&mut self, from: &Path, to: &Path) -> Result<Expect, Errno> {
        let ino = self.find(from)?;
        self.link_node(ino, to)
    }

    fn rename(&mut self, from: &Path, to: &Path, flags: u32) -> Expect {
        let places = (self.place(from), self.place(to));
        let ((from_dir, from_name), (to_dir, to_name)) = match places {
            (Ok(from), Ok(to)) => (from, to),
            (Err(one), Err(other)) => return Expect::Fails(vec![one, other]),
            (Err(errno), Ok(_)) => return fails(errno),
            // a server that looks at the source first may find it missing
            (Ok((dir, name)), Err(errno)) => {
                let missing = self.child(dir, &name).is_none();
                return Expect::Fails(if missing {
                    vec![errno, Errno::ENOENT]
                } else {
                    vec![errno]
                });
            }
        };
        let source = self.child(from_dir, &from_name);
        let target = self.child(to_dir, &to_name);
        let errors = self.rename_errors(source, from_dir, target, to_dir, flags);
        let (Some(source), true) = (source, errors.is_empty()) else {
            return Expect::Fails(errors);
        };
        if target == Some(source) {
            return Expect::Done;
        }
        if flags & EXCHANGE != 0 {
            let target = target.expect("an exchange without it is an error");
            self.entries(from_dir).insert(from_name, target);
            self.entries(to_dir).insert(to_name, source);
            self.moved(target, to_dir, from_dir);
        } else {
            if target.is_some() {
                self.drop_name(to_dir, &to_name);
            }
            self.entries(from_dir).remove(&from_name);
            self.entries(to_dir).insert(to_name, source);
        }
        self.moved(source, from_dir, to_dir);
        Expect::Done
    }

    fn moved(&mut self, ino: Ino, from_dir: Ino, to_dir: Ino) {
        if let Body::Dir { parent, .. } = &mut self.node_mut(ino).body {
            *parent = to_dir;
            self.node_mut(from_dir).nlink -= 1;
            self.node_mut(to_dir).nlink += 1;
        }
    }

    /// Every error that applies: which one is told first is not promised.
    fn rename_errors(
        &self,
        source: Option<Ino>,
        from_dir: Ino,
        target: Option<Ino>,
        to_dir: Ino,
        flags: u32,
    ) -> Vec<Errno> {
        let mut errors = Vec::new();
        if flags & NOREPLACE != 0 && flags & EXCHANGE != 0 {
            errors.push(Errno::EINVAL);
        }
        let Some(source) = source else {
            errors.push(Errno::ENOENT);
            return errors;
        };
        if flags & NOREPLACE != 0 && target.is_some() {
            errors.push(Errno::EEXIST);
        }
        if flags & EXCHANGE != 0 && target.is_none() {
            errors.push(Errno::ENOENT);
        }
        if self.node(source).is_dir() && self.is_below(to_dir, source) {
            errors.push(Errno::EINVAL);
        }
        if let Some(target) = target.filter(|target| *target != source) {
            self.replace_errors(source, from_dir, target, flags, &mut errors);
        }
        errors
    }

    fn replace_errors(
        &self,
        source: Ino,
        from_dir: Ino,
        target: Ino,
        flags: u32,
        errors: &mut Vec<Errno>,
    ) {
        if flags & EXCHANGE != 0 {
            if self.node(target).is_dir() && self.is_below(from_dir, target) {
                errors.push(Errno::EINVAL);
            }
            return;
        }
        match (self.node(source).is_dir(), self.node(target).is_dir()) {
            (true, false) => errors.push(Errno::ENOTDIR),
            (false, true) => {
                errors.push(Errno::EISDIR);
                if !self.is_empty_dir(target) {
                    errors.push(Errno::ENOTEMPTY);
                }
            }
            (true, true) if !self.is_empty_dir(target) => {
                errors.extend([Errno::ENOTEMPTY, Errno::EEXIST])
            }
            _ => {}
        }
    }

    fn truncate(&mut self, ino: Ino, size: u64) -> Expect {
        let end = usize::try_from(size).expect("sizes of the test fit memory");
        self.changes(ino, |unsynced| unsynced.zero(end, usize::MAX));
        let node = self.node_mut(ino);
        match &mut node.body {
            Body::File { data } => {
                data.resize(end, 0);
                (node.mtime, node.synced) = (None, None);
                Expect::Attr(ino)
            }
            Body::Dir { .. } => fails(Errno::EISDIR),
            Body::Symlink { .. } | Body::Fifo => Expect::Skip,
        }
    }

    fn write(&mut self, slot: u8, offset: u64, len: u32, salt: u8) -> Expect {
        let Some(open) = self.slot(slot) else { return Expect::Skip };
        let offset = if open.append {
            self.data(open.ino).len()
        } else {
            usize::try_from(offset).expect("offsets of the test fit memory")
        };
        self.changes(open.ino, |unsynced| unsynced.write(offset, pattern(salt, len as usize)));
        let node = self.node_mut(open.ino);
        let Body::File { data } = &mut node.body else { unreachable!("only files are opened") };
        let end = offset + len as usize;
        if len > 0 && data.len() < end {
            data.resize(end, 0);
        }
        if len > 0 {
            data[offset..end].copy_from_slice(&pattern(salt, len as usize));
            node.mtime_before = node.mtime.take().or(node.mtime_before);
        }
        node.synced = None;
        Expect::Done
    }

    fn read(&mut self, slot: u8, offset: u64, len: u32) -> Expect {
        let Some(open) = self.slot(slot) else { return Expect::Skip };
        let Body::File { data } = &self.node(open.ino).body else {
            unreachable!("only files are opened")
        };
        let start =
            data.len().min(usize::try_from(offset).expect("offsets of the test fit memory"));
        let end = data.len().min(start + len as usize);
        Expect::Data(data[start..end].to_vec())
    }

    /// A sync was acknowledged (not before: the power may go while it is under way).
    pub fn synced(&mut self, op: &Op) {
        let inos = match op {
            Op::Fsync { slot } => self.slot(*slot).map(|slot| slot.ino).into_iter().collect(),
            Op::Sync => self.nodes.keys().copied().collect(),
            _ => Vec::new(),
        };
        inos.into_iter().for_each(|ino| self.mark_synced(ino));
    }

    fn mark_synced(&mut self, ino: Ino) {
        let node = self.node_mut(ino);
        if let Body::File { data } = &node.body {
            (node.synced, node.unsynced) = (Some(data.clone()), None);
        }
    }

    /// Extended attributes of a file or directory; nothing for others, which may not have user
    /// ones.
    fn xattrs(&self, path: &Path) -> Result<Option<&BTreeMap<XattrName, Vec<u8>>>, Errno> {
        let node = self.node(self.find(path)?);
        Ok(matches!(node.body, Body::File { .. } | Body::Dir { .. }).then_some(&node.xattrs))
    }

    fn setxattr(
        &mut self,
        path: &Path,
        name: XattrName,
        len: u32,
        salt: u8,
        flags: u32,
    ) -> Result<Expect, Errno> {
        let Some(xattrs) = self.xattrs(path)? else { return Ok(Expect::Skip) };
        let there = xattrs.contains_key(&name);
        if flags == XATTR_CREATE && there {
            return Err(Errno::EEXIST);
        }
        if flags == XATTR_REPLACE && !there {
            return Err(Errno::ENODATA);
        }
        let ino = self.find(path)?;
        self.node_mut(ino).xattrs.insert(name, pattern(salt, len as usize));
        Ok(Expect::Done)
    }

    /// Names, sorts, permissions, owners, links and extended attributes of everything, without
    /// data: what the MDT alone decides. Paths with a line each.
    #[must_use]
    pub fn summary(&self) -> BTreeMap<Path, String> {
        let line = |ino: Ino| {
            let node = self.node(ino);
            let target =
                if let Body::Symlink { target } = &node.body { target.as_str() } else { "" };
            let xattrs: Vec<_> =
                node.xattrs.iter().map(|(name, value)| (*name, crate::digest(value))).collect();
            crate::summary_line(
                node.file_type() | node.perm,
                node.nlink,
                (node.uid, node.gid),
                target,
                &xattrs,
            )
        };
        self.paths().into_iter().map(|(path, ino)| (path, line(ino))).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn run(ops: &str) -> (Model, Vec<Expect>) {
        let mut model = Model::new();
        let expects = ops.split_whitespace().map(|op| model.apply(&parse(op))).collect();
        (model, expects)
    }

    /// `mkdir:/a`, `rename:/a:/b` and so on.
    fn parse(text: &str) -> Op {
        let parts: Vec<_> = text.split(':').collect();
        let path = |at: usize| Path::new(parts[at]);
        match parts[0] {
            "mkdir" => Op::Mkdir { path: path(1), mode: 0o755 },
            "rmdir" => Op::Rmdir { path: path(1) },
            "file" => Op::Create {
                path: path(1),
                slot: 0,
                excl: true,
                trunc: false,
                append: false,
                mode: 0o644,
                stripe: None,
            },
            "close" => Op::Close { slot: 0 },
            "unlink" => Op::Unlink { path: path(1) },
            "link" => Op::Link { from: path(1), to: path(2) },
            "rename" => Op::Rename { from: path(1), to: path(2), flags: 0 },
            "exchange" => Op::Rename { from: path(1), to: path(2), flags: EXCHANGE },
            other => panic!("{other}"),
        }
    }

    fn check_error(ops: &str, errno: Errno) {
        let (_, expects) = run(ops);
        let last = expects.last().expect("there are calls");
        assert!(
            matches!(last, Expect::Fails(errors) if errors.contains(&errno)),
            "{ops}: {last:?}"
        );
    }

    #[test]
    fn errors_are_those_of_posix() {
        check_error("rmdir:/a", Errno::ENOENT);
        check_error("mkdir:/a mkdir:/a", Errno::EEXIST);
        check_error("mkdir:/a mkdir:/a/b rmdir:/a", Errno::ENOTEMPTY);
        check_error("mkdir:/a mkdir:/a/b rename:/a:/a/b/c", Errno::EINVAL);
        check_error("mkdir:/a mkdir:/a/b rename:/a/b:/a", Errno::ENOTEMPTY);
        check_error("mkdir:/a file:/f rename:/a:/f", Errno::ENOTDIR);
        check_error("mkdir:/a file:/f rename:/f:/a", Errno::EISDIR);
        check_error("file:/f mkdir:/f/a", Errno::ENOTDIR);
        check_error("mkdir:/a link:/a:/b", Errno::EPERM);
        check_error("mkdir:/a unlink:/a", Errno::EISDIR);
    }

    #[test]
    fn link_counts_follow_names() {
        let (model, _) = run("mkdir:/a mkdir:/a/b mkdir:/c rename:/a/b:/c/b file:/f link:/f:/c/g");
        let links = |path: &str| model.node(model.find(&Path::new(path)).expect("there")).nlink;
        assert_eq!([links("/"), links("/a"), links("/c"), links("/f")], [4, 2, 3, 2]);
        let (model, _) = run("mkdir:/a mkdir:/a/b file:/f exchange:/a/b:/f");
        let links = |path: &str| model.node(model.find(&Path::new(path)).expect("there")).nlink;
        assert_eq!([links("/"), links("/a"), links("/f"), links("/a/b")], [4, 2, 2, 1]);
    }

    #[test]
    fn a_file_lives_while_it_is_open() {
        let (mut model, _) = run("file:/f unlink:/f");
        assert!(model.take_freed().is_empty());
        assert_eq!(model.apply(&Op::Fstat { slot: 0 }), Expect::Attr(2));
        model.apply(&Op::Close { slot: 0 });
        assert_eq!(model.take_freed(), [2]);
    }

    #[test]
    fn renaming_one_link_onto_the_other_does_nothing() {
        let (model, expects) = run("file:/f link:/f:/g rename:/f:/g");
        assert_eq!(expects.last(), Some(&Expect::Done));
        assert_eq!(model.paths().len(), 3);
    }
}
