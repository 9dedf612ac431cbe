//! The reference's calls on ranges of files, and files without names.

use types::Errno;

use super::{Body, Expect, Ino, Model, Node, fails};
use crate::op::Path;

const KEEP_SIZE: u32 = 1;
const PUNCH_HOLE: u32 = 2;
const ZERO_RANGE: u32 = 16;

fn index(offset: u64) -> usize {
    usize::try_from(offset).expect("offsets of the test fit memory")
}

impl Model {
    pub(super) fn data(&self, ino: Ino) -> &[u8] {
        let Body::File { data } = &self.node(ino).body else {
            unreachable!("only files are opened")
        };
        data
    }

    fn change_data(&mut self, ino: Ino, change: impl FnOnce(&mut Vec<u8>)) {
        let node = self.node_mut(ino);
        let Body::File { data } = &mut node.body else { unreachable!("only files are opened") };
        change(data);
        (node.mtime, node.synced) = (None, None);
    }

    pub(super) fn fallocate(&mut self, slot: u8, mode: u32, offset: u64, len: u32) -> Expect {
        let Some(open) = self.slot(slot) else { return Expect::Skip };
        let known = mode & !KEEP_SIZE == 0
            || mode == PUNCH_HOLE | KEEP_SIZE
            || mode & !KEEP_SIZE == ZERO_RANGE;
        if !known {
            return fails(Errno::EOPNOTSUPP);
        }
        if len == 0 {
            return fails(Errno::EINVAL);
        }
        let (start, end) = (index(offset), index(offset) + len as usize);
        self.changes(open.ino, |unsynced| {
            if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                unsynced.zero(start, end);
            }
        });
        self.change_data(open.ino, |data| {
            if mode & KEEP_SIZE == 0 && data.len() < end {
                data.resize(end, 0);
            }
            if mode & (PUNCH_HOLE | ZERO_RANGE) != 0 {
                let size = data.len();
                data[start.min(size)..end.min(size)].fill(0);
            }
        });
        Expect::Done
    }

    pub(super) fn extents(&self, slot: u8, offset: u64) -> Expect {
        let Some(open) = self.slot(slot) else { return Expect::Skip };
        match self.data(open.ino).get(index(offset)..) {
            None | Some([]) => fails(Errno::ENXIO),
            Some(data) => Expect::Data(data.to_vec()),
        }
    }

    /// Slots with offsets. Ranges of one file that overlap are refused by the kernel before a file
    /// system is asked.
    pub(super) fn copy_range(&mut self, from: (u8, u64), to: (u8, u64), len: u32) -> Expect {
        let (Some(source), Some(target)) = (self.slot(from.0), self.slot(to.0)) else {
            return Expect::Skip;
        };
        let apart = from.1.abs_diff(to.1) >= u64::from(len);
        if source.ino == target.ino && !apart {
            return Expect::Skip;
        }
        if target.append {
            return fails(Errno::EBADF);
        }
        let data = self.data(source.ino);
        let start = index(from.1).min(data.len());
        let piece = data[start..data.len().min(start + len as usize)].to_vec();
        if piece.is_empty() {
            return Expect::Count(0);
        }
        self.changes(target.ino, |unsynced| unsynced.write(index(to.1), piece.clone()));
        self.change_data(target.ino, |data| {
            let (at, end) = (index(to.1), index(to.1) + piece.len());
            if data.len() < end {
                data.resize(end, 0);
            }
            data[at..end].copy_from_slice(&piece);
        });
        Expect::Count(piece.len() as u64)
    }

    pub(super) fn tmpfile(
        &mut self,
        path: &Path,
        slot: u8,
        mode: u32,
        excl: bool,
    ) -> Result<Expect, Errno> {
        if self.slot(slot).is_some() {
            return Ok(Expect::Skip);
        }
        let dir = self.find(path)?;
        if !self.node(dir).is_dir() {
            return Err(Errno::ENOTDIR);
        }
        let node =
            Node { nlink: 0, linkable: !excl, ..Node::new(Body::File { data: Vec::new() }, mode) };
        let ino = self.next;
        self.next += 1;
        self.nodes.insert(ino, node);
        self.take_slot(ino, slot, false);
        Ok(Expect::Attr(ino))
    }

    /// Another name for a file; the first one for a file that was made without.
    pub(super) fn link_node(&mut self, ino: Ino, to: &Path) -> Result<Expect, Errno> {
        let mut errors = Vec::new();
        let node = self.node(ino);
        if node.is_dir() {
            errors.push(Errno::EPERM);
        }
        if node.nlink == 0 && !node.linkable {
            errors.push(Errno::ENOENT);
        }
        match self.place(to) {
            Err(errno) => errors.push(errno),
            Ok((parent, name)) if self.child(parent, &name).is_some() => errors.push(Errno::EEXIST),
            Ok((parent, name)) if errors.is_empty() => {
                self.entries(parent).insert(name, ino);
                let node = self.node_mut(ino);
                if node.nlink == 0 {
                    node.synced = None; // what was fsynced had no name: this one is not durable
                }
                (node.nlink, node.linkable) = (node.nlink + 1, false);
                return Ok(Expect::Attr(ino));
            }
            Ok(_) => {}
        }
        Ok(Expect::Fails(errors))
    }
}
