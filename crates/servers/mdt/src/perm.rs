//! Unix permissions. The MDT checks them whatever the client has checked, because clients are not
//! trusted.

use osd::Table;
use target::{Decided, OpError};
use types::{Acl, Creds, Errno};
use wire::attr::{AttrFlags, S_ISGID, S_ISUID, S_ISVTX};

use crate::keys;
use crate::op::Op;
use crate::record::{INODE_HAS_ACL, Inode};

/// Execute by the group.
const S_IXGRP: u32 = 0o010;
/// Read.
pub(crate) const R: u32 = 4;
/// Write.
pub(crate) const W: u32 = 2;
/// Execute, or search.
pub(crate) const X: u32 = 1;

/// Attribute of the access list.
pub(crate) const ACL_ACCESS: &[u8] = b"system.posix_acl_access";
/// Attribute of the list that new files inherit.
pub(crate) const ACL_DEFAULT: &[u8] = b"system.posix_acl_default";

/// What a program may do beyond its user; falls with the content and the owner that it was given
/// to.
pub(crate) const CAPABILITY: &[u8] = b"security.capability";

pub(crate) fn is_root(creds: &Creds) -> bool {
    creds.uid == 0
}

/// What the mode bits alone say.
fn mode_allows(inode: &Inode, creds: &Creds, mask: u32) -> bool {
    let shift = if creds.uid == inode.attr.uid {
        6
    } else if creds.in_group(inode.attr.gid) {
        3
    } else {
        0
    };
    inode.attr.mode >> shift & mask == mask
}

impl Op<'_, '_> {
    /// Whether the caller may do `mask` to `inode`; `EACCES` if not.
    ///
    /// A replay is asked again: it finds what the first time found, because nothing that it decided
    /// on is lost without it ([`crate::share`]). Only an open that is durable is not asked, because
    /// others may have changed the file since.
    pub(crate) fn access(&self, inode: &Inode, mask: u32) -> Decided<()> {
        if self.may(inode, mask)? { Ok(()) } else { Err(Errno::EACCES.into()) }
    }

    pub(crate) fn may(&self, inode: &Inode, mask: u32) -> Decided<bool> {
        if self.committed {
            return Ok(true);
        }
        if is_root(&self.creds) {
            return Ok(mask & X == 0 || inode.attr.is_dir() || inode.attr.mode & 0o111 != 0);
        }
        // The owner's entry of a list is the owner's bits: no need to read it.
        if inode.has(INODE_HAS_ACL)
            && self.creds.uid != inode.attr.uid
            && let Some(acl) = self.acl(inode, ACL_ACCESS)?
        {
            return Ok(acl.allows(&self.creds, inode.attr.uid, inode.attr.gid, mask));
        }
        Ok(mode_allows(inode, &self.creds, mask))
    }

    /// A stored list.
    pub(crate) fn acl(&self, inode: &Inode, name: &[u8]) -> Decided<Option<Acl>> {
        if !self.tx.is_here(inode.fid()) {
            let list = self.tx.list_elsewhere(inode.fid()).filter(|_| name == ACL_ACCESS);
            let decoded = list.map_or(Ok(None), |list| Acl::decode(&list));
            return decoded.map_err(|_| OpError::Broken("access control list"));
        }
        match self.tx.view.get(Table::Xattrs, &keys::xattr(inode.fid(), name))? {
            Some(value) => Acl::decode(&value).map_err(|_| OpError::Broken("access control list")),
            None => Ok(None),
        }
    }

    /// The content or the owner of `inode` changes: what its program may do beyond its user does
    /// not outlive that.
    pub(crate) fn drop_capability(&mut self, inode: &mut Inode) {
        if inode.attr.flags.contains(AttrFlags::HAS_CAPABILITY) {
            self.tx.set.delete(Table::Xattrs, keys::xattr(inode.fid(), CAPABILITY));
            inode.attr.flags &= !AttrFlags::HAS_CAPABILITY;
        }
    }

    /// Whether the caller owns the file, or is root.
    pub(crate) fn is_owner(&self, inode: &Inode) -> bool {
        self.committed || is_root(&self.creds) || self.creds.uid == inode.attr.uid
    }

    /// In a sticky directory only the owner of the file or of the directory takes a name away.
    pub(crate) fn check_sticky(&self, dir: &Inode, victim: &Inode) -> Decided<()> {
        let free = dir.attr.mode & S_ISVTX == 0 || self.is_owner(victim) || self.is_owner(dir);
        if free { Ok(()) } else { Err(Errno::EPERM.into()) }
    }

    /// Whether the caller may keep set-group-id on a file or directory of `gid`. Nothing is refused
    /// by it, so a replay is asked again, and its caller's groups give the answer of the first
    /// time.
    pub(crate) fn may_setgid(&self, gid: u32) -> bool {
        is_root(&self.creds) || self.creds.in_group(gid)
    }

    /// The caller changes what the file holds or whose it is: the mode loses what it gave by that.
    pub(crate) fn drop_set_id(&self, inode: &mut Inode) {
        inode.attr.mode = without_set_id(inode.attr.mode, self.may_setgid(inode.attr.gid));
    }
}

/// No set-user-id, and no set-group-id that means it. Without execution by the group that bit is
/// the old mark of mandatory locking, which a `member` of the group may have set and may keep; from
/// anybody else's change it falls too.
fn without_set_id(mode: u32, member: bool) -> u32 {
    let mode = mode & !S_ISUID;
    if mode & S_IXGRP != 0 || !member { mode & !S_ISGID } else { mode }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_mark_of_mandatory_locking_stays_for_members_only() {
        assert_eq!(without_set_id(0o6755, true), 0o755);
        assert_eq!(without_set_id(0o6666, true), 0o2666);
        assert_eq!(without_set_id(0o6666, false), 0o666);
        assert_eq!(without_set_id(0o1644, false), 0o1644);
    }
}
