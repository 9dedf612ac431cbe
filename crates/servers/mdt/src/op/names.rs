//! Changes of names: each one is an update of one MDT. Those of this MDT go into the operation's
//! own set, and those of others into its record.
//!
//! [`Op::carry_out`] repeats an update from a record. All that an update needs was checked when the
//! operation was decided, and is reserved since. Only if an MDT was away longer than others waited
//! for it, an update may find another state. It is then left out and logged, and a check of the
//! file system finds what is left.

use osd::Table;
use target::{Decided, OpError};
use types::{Errno, Fid, NAME_BYTES_MAX};
use wire::attr::AttrFlags;
use wire::updates::{Made, Named, Place, Record, Update};

use crate::effect::Effect;
use crate::keys;
use crate::op::{Op, dirs};
use crate::perm::{ACL_ACCESS, ACL_DEFAULT};
use crate::record::{
    INODE_HAS_ACL, INODE_HAS_DEFAULT_ACL, INODE_HAS_LAYOUT, INODE_HAS_XATTR, INODE_LINKABLE,
    INODE_MOVES, INODE_ORPHAN, Inode,
};
use crate::tx::Entry;

/// A name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct At<'n> {
    pub(crate) dir: Fid,
    pub(crate) name: &'n [u8],
}

impl At<'_> {
    fn place(self) -> Place {
        Place { dir: self.dir, name: self.name.to_vec() }
    }

    pub(crate) fn bytes(self) -> i64 {
        self.name.len() as i64
    }
}

impl Op<'_, '_> {
    /// A free name gets a file.
    pub(crate) fn enter(&mut self, at: At<'_>, child: &Inode) -> Decided<()> {
        let (fid, file_type) = (child.fid(), child.attr.file_type());
        if self.tx.is_here(at.dir) {
            self.tx.insert_entry(at.dir, at.name, (fid, file_type))?;
        }
        self.tx.updates.push(Update::Enter { at: at.place(), child: fid, file_type });
        Ok(())
    }

    /// A name goes.
    pub(crate) fn leave(&mut self, at: At<'_>, entry: &Entry) {
        if self.tx.is_here(at.dir) {
            self.tx.remove_entry(at.dir, entry);
        }
        self.tx.updates.push(Update::Leave { at: at.place(), child: entry.record.fid });
    }

    /// A name leads to another file.
    pub(crate) fn repoint(&mut self, at: At<'_>, entry: &Entry, child: &Inode) {
        let (fid, file_type) = (child.fid(), child.attr.file_type());
        if self.tx.is_here(at.dir) {
            self.tx.unlink_back(at.dir, entry);
            self.tx.set_entry(at.dir, entry.cookie, at.name, (fid, file_type));
        }
        let old = entry.record.fid;
        self.tx.updates.push(Update::Repoint { at: at.place(), old, child: fid, file_type });
    }

    /// Names and subdirectories of a directory changed.
    pub(crate) fn touch(&mut self, dir: Fid, name_bytes: i64, subdirs: i32) -> Decided<()> {
        if self.tx.is_here(dir) {
            self.tx.touch_dir(dir, name_bytes, subdirs)?;
            self.watch(dir, name_bytes > 0);
        }
        self.tx.updates.push(Update::Touch { dir, name_bytes, subdirs });
        Ok(())
    }

    /// A directory that has many names may be split by itself, and a shard that has few merged. A
    /// name has a byte at least, and [`NAME_BYTES_MAX`] at most.
    fn watch(&mut self, dir: Fid, has_grown: bool) {
        let split = self.state.split;
        let Some(inode) = self.tx.seen(dir).filter(|_| split.is_on) else { return };
        let (bytes, flags) = (inode.attr.size, inode.attr.flags);
        let is_far = match has_grown {
            true => bytes >= split.count && !flags.contains(AttrFlags::STRIPED),
            false => {
                let least = split.count.saturating_mul(NAME_BYTES_MAX as u64);
                bytes < least && flags.contains(AttrFlags::SHARD)
            }
        };
        if is_far && !inode.has(INODE_MOVES) {
            self.tx.effects.push(Effect::Resized { dir, bytes, has_grown });
        }
    }

    /// Names of a file changed; returns the file as it is then, as far as that is known here.
    pub(crate) fn rename_file(&mut self, named: Named) -> Decided<Inode> {
        let here = self.tx.is_here(named.fid);
        let inode = self.tx.inode(named.fid)?;
        let inode = if here { self.named(&named, inode)? } else { inode };
        self.tx.updates.push(Update::Named(named));
        Ok(inode)
    }

    fn named(&mut self, named: &Named, mut inode: Inode) -> Decided<Inode> {
        let fid = named.fid;
        if let Some(at) = named.loses.as_ref().filter(|at| !self.tx.is_here(at.dir)) {
            self.tx.unlink_elsewhere(fid, at)?;
        }
        if let Some(at) = named.gets.as_ref().filter(|at| !self.tx.is_here(at.dir)) {
            self.tx.link_elsewhere(fid, at)?;
        }
        inode.attr.set_ctime(self.tx.now);
        if let Some(at) = named.gets.as_ref().filter(|_| named.moves) {
            inode.parent = at.dir;
        }
        if named.links > 0 && inode.attr.nlink == 0 {
            inode.flags &= !(INODE_ORPHAN | INODE_LINKABLE);
            self.tx.set.delete(Table::Orphans, fid.to_key());
            inode.parent = named.gets.as_ref().map_or(inode.parent, |at| at.dir);
        }
        if named.links < 0 {
            self.drop_links(&mut inode, named.links.unsigned_abs())?;
        } else {
            inode.attr.nlink = inode.attr.nlink.saturating_add_signed(named.links);
            self.change(inode.clone());
        }
        Ok(inode)
    }

    /// Carries out the part of this MDT from a record.
    pub(crate) fn repeat_part(&mut self, record: &Record) -> Decided<()> {
        let Some(part) = record.part(self.tx.mdt()) else { return Ok(()) };
        if let Some(update) = part.updates.iter().find(|update| !self.tx.is_here(update.fid())) {
            tracing::error!(target: "mdt", ?update, "a record has an update of another MDT");
            return Err(OpError::Broken("record of an operation"));
        }
        part.updates.iter().try_for_each(|update| self.carry_out(update))
    }

    /// Carries out an update of this MDT from a record.
    fn carry_out(&mut self, update: &Update) -> Decided<()> {
        let done = match update {
            Update::Enter { at, child, file_type } => self.enter_again(at, *child, *file_type),
            Update::Leave { at, child } => self.leave_again(at, *child),
            Update::Repoint { at, old, child, file_type } => {
                self.repoint_again(at, *old, (*child, *file_type))
            }
            Update::Touch { dir, name_bytes, subdirs } => {
                self.touch_again(*dir, *name_bytes, *subdirs)
            }
            Update::Make(made) => self.make(made),
            Update::Named(named) => {
                self.tx.inode(named.fid).and_then(|inode| self.named(named, inode)).map(drop)
            }
            Update::Own(own) => self.own(own),
            Update::Stripe { fid, value } => self.stripe(*fid, value),
            Update::Rehome { fid, from, to } => self.rehome(*fid, from, to),
            Update::Size { dir, name_bytes, subdirs } => {
                self.tx.resize_dir(*dir, *name_bytes, *subdirs)
            }
        };
        match done {
            Err(OpError::Refused(errno)) => {
                tracing::error!(target: "mdt", ?update, %errno, "an update of another MDT came too late and is left out: check the file system");
                Ok(())
            }
            done => done,
        }
    }

    /// Other names may have changed before the part came: the directory's times do not go back.
    fn touch_again(&mut self, dir: Fid, name_bytes: i64, subdirs: i32) -> Decided<()> {
        match self.tx.inode(dir)?.attr.ctime() > self.tx.now {
            true => self.tx.resize_dir(dir, name_bytes, subdirs),
            false => self.tx.touch_dir(dir, name_bytes, subdirs),
        }
    }

    fn enter_again(&mut self, at: &Place, child: Fid, file_type: u32) -> Decided<()> {
        self.tx.dir(at.dir)?;
        match self.tx.entry(at.dir, &at.name)? {
            Some(entry) if entry.record.fid == child => Ok(()),
            Some(_) => Err(Errno::EEXIST.into()),
            None => self.tx.insert_entry(at.dir, &at.name, (child, file_type)),
        }
    }

    fn leave_again(&mut self, at: &Place, child: Fid) -> Decided<()> {
        let entry = self.tx.entry(at.dir, &at.name)?;
        let entry = entry.filter(|entry| entry.record.fid == child).ok_or(Errno::ENOENT)?;
        self.tx.remove_entry(at.dir, &entry);
        Ok(())
    }

    fn repoint_again(&mut self, at: &Place, old: Fid, child: (Fid, u32)) -> Decided<()> {
        let entry = self.tx.entry(at.dir, &at.name)?;
        let entry = entry.filter(|entry| entry.record.fid == old).ok_or(Errno::ENOENT)?;
        self.tx.unlink_back(at.dir, &entry);
        self.tx.set_entry(at.dir, entry.cookie, &at.name, child);
        Ok(())
    }

    /// A file comes to be here.
    pub(crate) fn make(&mut self, made: &Made) -> Decided<()> {
        let inode = Inode::decode(&made.inode).ok_or(OpError::Broken("inode of a record"))?;
        if inode.fid() != made.fid {
            return Err(OpError::Broken("inode of a record"));
        }
        if self.tx.find(made.fid)?.is_some() {
            return Err(Errno::EEXIST.into());
        }
        let key = made.fid.to_key();
        if !made.layout.is_empty() {
            self.tx.set.put(Table::Layouts, key, made.layout.clone());
        }
        for (name, value) in &made.xattrs {
            self.tx.set.put(Table::Xattrs, keys::xattr(made.fid, name), value.clone());
        }
        if let Some(at) = made.at.as_ref().filter(|at| !self.tx.is_here(at.dir)) {
            self.tx.link_elsewhere(made.fid, at)?;
        }
        self.change(inode);
        Ok(())
    }
}

/// What a new file inherits from its directory.
#[derive(Debug, Default)]
pub(crate) struct Inherited {
    /// Name and value.
    pub(crate) xattrs: Vec<(Vec<u8>, Vec<u8>)>,
    /// Default layout of a directory, empty if none.
    pub(crate) layout: Vec<u8>,
}

impl Inherited {
    /// Flags of the lists among it.
    pub(crate) const LISTS: u32 = INODE_HAS_ACL | INODE_HAS_DEFAULT_ACL;

    /// Marks in the inode that it is there.
    pub(crate) fn mark(&self, inode: &mut Inode) {
        for (name, _) in &self.xattrs {
            inode.flags |= INODE_HAS_XATTR;
            if dirs::is_shown(name) {
                inode.attr.flags |= AttrFlags::HAS_XATTR;
            }
            inode.flags |= match &name[..] {
                ACL_ACCESS => INODE_HAS_ACL,
                ACL_DEFAULT => INODE_HAS_DEFAULT_ACL,
                _ => 0,
            };
        }
        if !self.layout.is_empty() {
            inode.flags |= INODE_HAS_LAYOUT;
        }
    }
}
