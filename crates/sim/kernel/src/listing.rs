//! Listings, with the caching of `fs/fuse/readdir.c`.

use std::rc::Rc;

use fusedev::{Body, Op, abi};
use types::Errno;
use zerocopy::FromBytes;

use crate::cache::{Asked, Node};
use crate::calls::Found;
use crate::{Kernel, Who};

/// What `getdents` asks for.
const PAGE_BYTES: u32 = 4_096;

/// Names and their inode numbers, in pages as they were answered. Each page is of one moment.
pub type Listed = Vec<Vec<(Vec<u8>, u64)>>;

/// An entry as the handler tells it.
struct Told {
    plus: Option<abi::EntryOut>,
    dirent: abi::Dirent,
    name: Vec<u8>,
}

impl Kernel {
    /// All names of a directory but the dots.
    ///
    /// # Errors
    /// What the handler answers.
    pub async fn list(&self, who: Who, dir: &Found) -> Result<Listed, Errno> {
        let dir = &dir.0;
        let open = match self.ask(who, dir.id, Op::Opendir(abi::OpenIn::default())).await? {
            Body::Open(open) => open,
            other => panic!("a handle was due: {other:?}"),
        };
        let listed = self.read_all(who, dir, open.fh).await;
        let args = abi::ReleaseIn { fh: open.fh, ..Default::default() };
        self.ask_nothing(who, dir.id, Op::Releasedir(args)).await?;
        listed
    }

    async fn read_all(&self, who: Who, dir: &Rc<Node>, fh: u64) -> Result<Listed, Errno> {
        let (mut pages, mut offset, plus) = (Vec::new(), 0, self.0.traits.plus);
        loop {
            let _shared = self.shared(who, dir).await;
            let asked = self.0.cache.borrow().asked();
            let args = abi::ReadIn { fh, offset, size: PAGE_BYTES, ..Default::default() };
            let page = match self.ask(who, dir.id, Op::Readdir { args, plus }).await? {
                Body::Dir(page) => page,
                other => panic!("entries were due: {other:?}"),
            };
            if page.is_empty() {
                return Ok(pages);
            }
            let mut listed = Vec::new();
            for told in entries(page.as_bytes(), plus) {
                offset = told.dirent.off;
                if told.name == b"." || told.name == b".." {
                    continue;
                }
                self.link_told(dir, &told, asked);
                listed.push((told.name, told.dirent.ino));
            }
            if !listed.is_empty() {
                pages.push(listed);
            }
        }
    }

    /// `fuse_direntplus_link`.
    fn link_told(&self, dir: &Rc<Node>, told: &Told, asked: Asked) {
        let Some(out) = told.plus.filter(|out| out.nodeid != 0) else { return };
        let (mut cache, now) = (self.0.cache.borrow_mut(), self.0.env.now());
        let known = cache.name(dir, &told.name);
        let node = cache.take(&out, asked, now);
        match known {
            Some(dentry) if dentry.node.id == out.nodeid => cache.renew(&dentry, &out, now),
            _ => cache.tell((dir, &told.name), &node, &out, asked, now),
        }
    }
}

fn entries(mut bytes: &[u8], plus: bool) -> Vec<Told> {
    let mut all = Vec::new();
    while !bytes.is_empty() {
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
        all.push(Told { plus: out, dirent, name });
    }
    all
}
