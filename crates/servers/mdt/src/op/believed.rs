//! Attributes that a client may cache, because they say all that is to know of a file.

use wire::attr::{S_ISGID, S_ISUID};
use wire::{Attr, SizeState};

use crate::record::{INODE_HAS_ACL, Inode};

/// Whether the attributes of an inode that is listed are the whole truth.
pub(super) fn is_whole(inode: &Inode) -> bool {
    may_be_believed(&inode.attr, inode.has(INODE_HAS_ACL), false)
}

/// Whether these attributes are the whole truth.
pub(super) fn may_be_believed(attr: &Attr, has_acl: bool, made: bool) -> bool {
    let is_sized = made || attr.size_state() != SizeState::Dirty;
    !has_acl && (!attr.is_file() || (attr.mode & (S_ISUID | S_ISGID) == 0 && is_sized))
}
