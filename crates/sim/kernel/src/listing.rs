//! Listings, with the caching of `fs/fuse/readdir.c`.

use std::rc::Rc;

use fusedev::{Body, Op, abi};
use types::{Errno, Span};
use zerocopy::FromBytes;

use crate::cache::{Asked, Node};
use crate::calls::Found;
use crate::kept::Entry;
use crate::{Kernel, Who};

/// What `getdents` asks for.
const PAGE_BYTES: u32 = 4_096;

/// Names and their inode numbers, in pages as they were answered. Each page is of one moment.
pub type Listed = Vec<Vec<(Vec<u8>, u64)>>;

/// An open directory.
pub struct OpenDir {
    node: Rc<Node>,
    fh: u64,
    /// Names are kept, and read from what is kept.
    keeps: bool,
}

/// An entry as the handler tells it.
struct Told {
    plus: Option<abi::EntryOut>,
    entry: Entry,
}

impl Kernel {
    /// All names of a directory but the dots.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn list(&self, who: Who, dir: &Found) -> Result<Listed, Errno> {
        let open = self.opendir(who, dir).await?;
        let listed = self.read_from_start(who, &open).await;
        self.closedir(who, &open).await?;
        listed
    }

    /// `opendir`.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn opendir(&self, who: Who, dir: &Found) -> Result<OpenDir, Errno> {
        let node = dir.0.clone();
        let open = match self.ask(who, node.id, Op::Opendir(abi::OpenIn::default())).await? {
            Body::Open(open) => open,
            other => panic!("a handle was due: {other:?}"),
        };
        if open.open_flags & abi::FOPEN_KEEP_CACHE == 0 {
            node.kept.borrow_mut().drop_pages();
        }
        let keeps = open.open_flags & abi::FOPEN_CACHE_DIR != 0;
        Ok(OpenDir { node, fh: open.fh, keeps })
    }

    /// `closedir`.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn closedir(&self, who: Who, open: &OpenDir) -> Result<(), Errno> {
        let args = abi::ReleaseIn { fh: open.fh, ..Default::default() };
        self.ask_nothing(who, open.node.id, Op::Releasedir(args)).await
    }

    /// `rewinddir`, and all names but the dots.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn read_from_start(&self, who: Who, open: &OpenDir) -> Result<Listed, Errno> {
        let (mut pages, mut offset) = (Vec::new(), 0);
        loop {
            let entries = self.getdents(who, open, offset).await?;
            let Some(last) = entries.last() else { return Ok(pages) };
            offset = last.off;
            let is_dot = |entry: &Entry| entry.name == b"." || entry.name == b"..";
            let listed = entries.into_iter().filter(|entry| !is_dot(entry));
            let listed: Vec<_> = listed.map(|entry| (entry.name, entry.ino)).collect();
            if !listed.is_empty() {
                pages.push(listed);
            }
        }
    }

    /// `fuse_readdir`: what is kept of a directory is read only under attributes that are
    /// believed.
    async fn getdents(&self, who: Who, open: &OpenDir, offset: u64) -> Result<Vec<Entry>, Errno> {
        let OpenDir { node, fh, keeps } = open;
        let _shared = self.shared(who, node).await;
        if *keeps {
            if offset == 0 {
                self.attr(who, node).await?;
                let late = self.lateness();
                if late > Span::ZERO {
                    self.0.env.sleep(late).await;
                }
            }
            let kept = node.kept.borrow_mut().read(offset).map(<[Entry]>::to_vec);
            if let Some(entries) = kept {
                return Ok(entries);
            }
        }
        let plus = self.0.traits.plus;
        let asked = self.0.cache.borrow().asked();
        let args = abi::ReadIn { fh: *fh, offset, size: PAGE_BYTES, ..Default::default() };
        let page = match self.ask(who, node.id, Op::Readdir { args, plus }).await? {
            Body::Dir(page) => page,
            other => panic!("entries were due: {other:?}"),
        };
        if *keeps && page.is_empty() {
            node.kept.borrow_mut().end(offset);
        }
        let (mut at, mut entries) = (offset, Vec::new());
        for told in entries_of(page.as_bytes(), plus) {
            if *keeps {
                node.kept.borrow_mut().add(at, &told.entry);
            }
            at = told.entry.off;
            self.link_told(node, &told, asked);
            entries.push(told.entry);
        }
        Ok(entries)
    }

    /// `fuse_direntplus_link`.
    fn link_told(&self, dir: &Rc<Node>, told: &Told, asked: Asked) {
        let Some(out) = told.plus.filter(|out| out.nodeid != 0) else { return };
        let (mut cache, now) = (self.0.cache.borrow_mut(), self.0.env.now());
        let name = &told.entry.name[..];
        let known = cache.name(dir, name);
        let node = cache.take(&out, asked, now);
        match known {
            Some(dentry) if dentry.node.id == out.nodeid => cache.renew(&dentry, &out, now),
            _ => cache.tell((dir, name), &node, &out, asked, now),
        }
    }
}

/// Bytes that are too few for an entry are none.
fn entries_of(mut bytes: &[u8], plus: bool) -> Vec<Told> {
    let front = if plus { size_of::<abi::EntryOut>() } else { 0 };
    let mut all = Vec::new();
    while bytes.len() >= front + size_of::<abi::Dirent>() {
        let whole = bytes;
        let out = plus.then(|| {
            let (out, rest) = abi::EntryOut::read_from_prefix(bytes).expect("a whole entry");
            bytes = rest;
            out
        });
        let (dirent, rest) = abi::Dirent::read_from_prefix(bytes).expect("a whole name");
        let name = rest[..dirent.namelen as usize].to_vec();
        let len = whole.len() - rest.len() + name.len();
        bytes = &whole[len.next_multiple_of(8)..];
        all.push(Told { plus: out, entry: Entry { name, ino: dirent.ino, off: dirent.off } });
    }
    all
}
