//! Extended attributes: `user.`, `trusted.`, `security.`, the access lists, and `lustre.lov`, which
//! is the layout.
//!
//! Transaction: the attribute and the inode. Replay: the same again; a layout that the first reply
//! created comes from that reply. `lustre.lov` and `trusted.lov` behave as in Lustre:
//! - On a file without a layout, they create one.
//! - On a file with a layout, they change nothing and succeed.
//! - A list has the first alone: tools that copy attributes would get and set the same twice.
//! - On a directory, they set or delete the default. One without a default shows that of the root
//!   as `lustre.lov`, and nothing as `trusted.lov`.

use bytes::Bytes;
use layout::lov::{self, LovError};
use layout::{Asked, Template};
use osd::{StoreError, Table};
use target::Decided;
use types::{Acl, Errno, Fid};
use wire::Request;
use wire::attr::{AttrFlags, S_IFREG, S_ISGID, S_ISVTX};
use wire::body::{Disposition, FidReq, SetxattrReq};

use super::dirs::{self, DMV};
use super::{components, inodes, moves, swap, why};
use crate::keys::{self, LMV};
use crate::limits::{XATTR_LIST_BYTES_MAX, XATTR_NAME_BYTES_MAX, XATTR_VALUE_BYTES_MAX};
use crate::op::{Answer, Op};
use crate::perm::{ACL_ACCESS, ACL_DEFAULT, CAPABILITY, R, W, is_root};
use crate::record::{
    INODE_HAS_ACL, INODE_HAS_DEFAULT_ACL, INODE_HAS_LAYOUT, INODE_HAS_XATTR, Inode,
};

const LUSTRE_LOV: &[u8] = b"lustre.lov";
const TRUSTED_LOV: &[u8] = b"trusted.lov";
/// They are set only: a file's layout changes by them.
const LOV_ADD: &[u8] = b"lustre.lov.add";
const LOV_DEL: &[u8] = b"lustre.lov.del";
const LOV_SWAP: &[u8] = b"lustre.lov.swap";
/// It is read only: which defaults and pools decide.
const LOV_WHY: &[u8] = b"lustre.lov.why";
/// It is read only: a plain layout that fills what a directory's default leaves open.
const LOV_DEFAULT: &[u8] = b"lustre.lov.default";
/// Shards of a directory. Setting it begins to move the names to other shards.
const LUSTRE_LMV: &[u8] = b"lustre.lmv";
/// It is set only: moves the names of a directory to the MDTs that are named.
const LMV_MIGRATE: &[u8] = b"lustre.lmv.migrate";
/// It is set only: moves an inode to the MDT that is named, under another FID.
const INODE_MIGRATE: &[u8] = b"lustre.inode.migrate";
/// It is read only: how many names of a directory have moved, and how many are left.
const LMV_MOVES: &[u8] = b"lustre.lmv.moves";
/// A directory's default for new subdirectories.
const LUSTRE_DMV: &[u8] = b"lustre.dmv";
const CREATE: u32 = 1;
const REPLACE: u32 = 2;

/// What a name is.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Space {
    User,
    Trusted,
    Security,
    AclAccess,
    AclDefault,
    Layout,
    Shards,
    DirDefault,
}

impl Space {
    /// Whether a striped directory and its shards have it in common.
    fn is_shared(self) -> bool {
        matches!(self, Space::AclAccess | Space::AclDefault | Space::Layout | Space::DirDefault)
    }
}

fn space(name: &[u8]) -> Decided<Space> {
    if name.is_empty() || name.len() > XATTR_NAME_BYTES_MAX || name.contains(&0) {
        return Err(Errno::ERANGE.into());
    }
    let has = |prefix: &[u8]| name.starts_with(prefix) && name.len() > prefix.len();
    match name {
        LUSTRE_LOV | TRUSTED_LOV => Ok(Space::Layout),
        LUSTRE_LMV | LMV => Ok(Space::Shards),
        LUSTRE_DMV | DMV => Ok(Space::DirDefault),
        ACL_ACCESS => Ok(Space::AclAccess),
        ACL_DEFAULT => Ok(Space::AclDefault),
        _ if has(b"user.") => Ok(Space::User),
        _ if has(b"trusted.") => Ok(Space::Trusted),
        _ if has(b"security.") => Ok(Space::Security),
        _ => Err(Errno::EOPNOTSUPP.into()),
    }
}

pub(crate) fn get(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: FidReq = op.request.body();
    let name = op.request.buf(1);
    let inode = op.tx.inode(Fid::from(body.fid))?;
    if name == LMV_MOVES {
        let progress = op.state.moves.of(inode.fid()).ok_or(Errno::ENODATA)?;
        let (left, moved) = progress.elsewhere;
        let left = progress.left.unwrap_or(0).saturating_add(left);
        return Ok(Answer::data(format!("{} {left}", progress.moved.saturating_add(moved))));
    }
    if name == LOV_WHY {
        return Ok(Answer::data(why::text(op, &inode)?));
    }
    if name == LOV_DEFAULT {
        return Ok(Answer::data(lov::encode_dir(&fallback(op, &inode)?)));
    }
    match space(&name)? {
        Space::Layout => return layout_value(op, &inode, &name),
        Space::Shards => return dirs::value(op, &inode, LMV),
        Space::DirDefault => return dirs::value(op, &inode, DMV),
        Space::User if !takes_user(&inode) => return Err(Errno::ENODATA.into()),
        Space::User => op.access(&inode, R)?,
        Space::Trusted if !is_root(&op.creds) => return Err(Errno::ENODATA.into()),
        _ => {}
    }
    let value = match op.tx.view.get(Table::Xattrs, &keys::xattr(inode.fid(), &name)) {
        Err(StoreError::Damaged { .. }) if op.config.bugs.damaged_is_absent() => None,
        found => found?,
    };
    Ok(Answer::data(value.ok_or(Errno::ENODATA)?))
}

/// The striping that fills what the default of a directory leaves open. Components are filled from
/// the file system's own default only.
fn fallback(op: &mut Op<'_, '_>, inode: &Inode) -> Decided<Template> {
    let system = op.state.lod.template();
    match (op.tx.template(inode)?, op.tx.root_template()?) {
        (None | Some(Asked::Plain(_)), Some(Asked::Plain(root))) => Ok(root.or(&system)),
        _ => Ok(system),
    }
}

fn layout_value(op: &mut Op<'_, '_>, inode: &Inode, name: &[u8]) -> Decided<Answer> {
    if name == TRUSTED_LOV && !is_root(&op.creds) {
        return Err(Errno::ENODATA.into());
    }
    if let Some(layout) = op.tx.layout(inode)? {
        return Ok(Answer::data(lov::encode_any_file(&layout, inode.fid())));
    }
    let default = match op.tx.template(inode)? {
        None if inode.attr.is_dir() && name == LUSTRE_LOV => op.tx.root_template()?,
        own => own,
    };
    match default {
        Some(asked) => {
            let value = lov::encode_any_dir(&asked).map_err(|error| error.errno())?;
            Ok(Answer::data(value))
        }
        None => Err(Errno::ENODATA.into()),
    }
}

/// Files and directories have `user.` attributes, nothing else has.
fn takes_user(inode: &Inode) -> bool {
    inode.attr.is_dir() || inode.attr.file_type() == S_IFREG
}

/// Names that the caller may see.
pub(crate) fn list(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: FidReq = op.request.body();
    let inode = op.tx.inode(Fid::from(body.fid))?;
    let mut out = Vec::new();
    let root = is_root(&op.creds);
    for name in names(op, &inode)?.iter().filter(|name| dirs::is_shown(name)) {
        if root || !name.starts_with(b"trusted.") {
            out.extend_from_slice(name);
            out.push(0);
        }
    }
    if inode.has(INODE_HAS_LAYOUT) {
        out.extend_from_slice(b"lustre.lov\0");
    }
    Ok(Answer::data(out))
}

fn names(op: &Op<'_, '_>, inode: &Inode) -> Decided<Vec<Vec<u8>>> {
    let mut found = Vec::new();
    if !inode.has(INODE_HAS_XATTR) {
        return Ok(found);
    }
    let prefix = inode.fid().to_key();
    op.tx.view.scan_within((Table::Xattrs, &prefix), &prefix, &mut |key, _| {
        found.push(key[16..].to_vec());
        true
    })?;
    Ok(found)
}

pub(crate) fn set(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: SetxattrReq = op.request.body();
    let (name, value) = (op.request.buf(1), op.request.buf(2));
    if matches!(&name[..], LOV_ADD | LOV_DEL | LOV_SWAP) {
        return set_components(op, &body, &name, &value);
    }
    if name == LMV_MIGRATE {
        let dir = op.tx.find_here(Fid::from(body.fid))?.ok_or(Errno::ESTALE)?;
        op.decides_on(dir.fid());
        return moves::migrate(op, dir, &value);
    }
    if name == INODE_MIGRATE {
        let inode = op.tx.find_here(Fid::from(body.fid))?.ok_or(Errno::ESTALE)?;
        op.decides_on(inode.fid());
        return inodes::migrate(op, inode, &value, body.refused);
    }
    let space = space(&name)?;
    if value.len() > XATTR_VALUE_BYTES_MAX {
        return Err(Errno::E2BIG.into());
    }
    if body.flags & !(CREATE | REPLACE) != 0 {
        return Err(Errno::EINVAL.into());
    }
    let mut inode = op.tx.find_here(Fid::from(body.fid))?.ok_or(Errno::ESTALE)?;
    op.decides_on(inode.fid());
    check_write(op, &inode, space)?;
    match space {
        Space::Shards => return moves::restripe(op, inode, &value),
        Space::DirDefault => dirs::set_default(op, &mut inode, &value)?,
        Space::Layout => return set_layout(op, inode, &name, &value),
        Space::AclAccess | Space::AclDefault => set_acl(op, &mut inode, space, &name, &value)?,
        _ => {
            check_presence(op, &inode, &name, body.flags)?;
            put(op, &mut inode, &name, &value);
            if name == CAPABILITY {
                inode.attr.flags |= AttrFlags::HAS_CAPABILITY;
            }
        }
    }
    done(op, inode, space.is_shared())
}

fn check_presence(op: &Op<'_, '_>, inode: &Inode, name: &[u8], flags: u32) -> Decided<()> {
    let exists = op.tx.view.get(Table::Xattrs, &keys::xattr(inode.fid(), name))?.is_some();
    if exists && flags & CREATE != 0 {
        return Err(Errno::EEXIST.into());
    }
    if !exists && flags & REPLACE != 0 {
        return Err(Errno::ENODATA.into());
    }
    let listed: usize = names(op, inode)?.iter().map(|name| name.len() + 1).sum();
    if !exists && listed + name.len() + 1 > XATTR_LIST_BYTES_MAX {
        return Err(Errno::ENOSPC.into());
    }
    Ok(())
}

fn check_write(op: &Op<'_, '_>, inode: &Inode, space: Space) -> Decided<()> {
    let root = is_root(&op.creds);
    match space {
        Space::User if !takes_user(inode) => Err(Errno::EPERM.into()),
        Space::User
            if inode.attr.is_dir() && inode.attr.mode & S_ISVTX != 0 && !op.is_owner(inode) =>
        {
            Err(Errno::EPERM.into())
        }
        Space::User => op.access(inode, W),
        Space::Trusted | Space::Security if !root => Err(Errno::EPERM.into()),
        Space::AclAccess | Space::AclDefault | Space::Layout | Space::DirDefault
            if !op.is_owner(inode) =>
        {
            Err(Errno::EPERM.into())
        }
        _ => Ok(()),
    }
}

fn put(op: &mut Op<'_, '_>, inode: &mut Inode, name: &[u8], value: &[u8]) {
    op.tx.set.put(Table::Xattrs, keys::xattr(inode.fid(), name), value);
    inode.flags |= INODE_HAS_XATTR;
    inode.attr.flags |= AttrFlags::HAS_XATTR;
}

/// `is_shared`: the shards of a striped directory have the attribute, too. Others are the master's
/// alone, and no record of an operation has them.
fn done(op: &mut Op<'_, '_>, mut inode: Inode, is_shared: bool) -> Decided<Answer> {
    inode.attr.set_ctime(op.tx.now);
    op.change(inode.clone());
    if is_shared {
        dirs::spread(op, &inode, false)?;
    }
    op.full_answer(&inode, 0, Disposition::empty())
}

/// An access list that says no more than the mode is only the mode; an empty default list is none.
fn set_acl(
    op: &mut Op<'_, '_>,
    inode: &mut Inode,
    space: Space,
    name: &[u8],
    value: &Bytes,
) -> Decided<()> {
    let acl = if value.is_empty() { None } else { Acl::decode(value)? };
    if inode.attr.file_type() == wire::attr::S_IFLNK {
        return Err(Errno::EOPNOTSUPP.into());
    }
    if space == Space::AclDefault {
        if !inode.attr.is_dir() {
            return if acl.is_none() { Ok(()) } else { Err(Errno::EACCES.into()) };
        }
        return store_acl(op, inode, name, acl.as_ref(), INODE_HAS_DEFAULT_ACL);
    }
    if let Some(acl) = &acl {
        inode.attr.mode = inode.attr.mode & !0o777 | acl.mode();
        if !op.may_setgid(inode.attr.gid) {
            inode.attr.mode &= !S_ISGID;
        }
    }
    let acl = acl.filter(|acl| !acl.is_minimal());
    store_acl(op, inode, name, acl.as_ref(), INODE_HAS_ACL)
}

fn store_acl(
    op: &mut Op<'_, '_>,
    inode: &mut Inode,
    name: &[u8],
    acl: Option<&Acl>,
    flag: u32,
) -> Decided<()> {
    match acl {
        Some(acl) => {
            put(op, inode, name, &acl.encode());
            inode.flags |= flag;
        }
        None => {
            op.tx.set.delete(Table::Xattrs, keys::xattr(inode.fid(), name));
            inode.flags &= !flag;
        }
    }
    Ok(())
}

fn set_layout(op: &mut Op<'_, '_>, mut inode: Inode, name: &[u8], value: &[u8]) -> Decided<Answer> {
    if name == TRUSTED_LOV && !is_root(&op.creds) {
        return Err(Errno::EPERM.into());
    }
    if inode.attr.is_dir() {
        return set_default(op, inode, value);
    }
    if inode.attr.file_type() != S_IFREG {
        return Err(Errno::EINVAL.into());
    }
    let asked = match lov::decode_any(value) {
        // So that cp, rsync and tar do not fail, wherever the layout comes from.
        Ok(_) | Err(LovError::Unsupported(_)) if inode.has(INODE_HAS_LAYOUT) => {
            return op.full_answer(&inode, 0, Disposition::empty());
        }
        asked => asked.map_err(|error| error.errno())?,
    };
    let parent = op.tx.find_here(inode.parent)?.filter(|parent| parent.attr.is_dir());
    op.give_layout(&mut inode, parent.as_ref(), &asked)?;
    done(op, inode, false)
}

fn set_components(
    op: &mut Op<'_, '_>,
    body: &SetxattrReq,
    name: &[u8],
    value: &[u8],
) -> Decided<Answer> {
    let fid = Fid::from(body.fid);
    let inode = op.tx.find_here(fid)?.ok_or(Errno::ESTALE)?;
    op.decides_on(fid);
    check_write(op, &inode, Space::Layout)?;
    match name {
        LOV_ADD => components::add(op, inode, value),
        LOV_SWAP => swap::swap(op, inode, value),
        _ => components::delete(op, inode, value, body.refused),
    }
}

fn set_default(op: &mut Op<'_, '_>, mut inode: Inode, value: &[u8]) -> Decided<Answer> {
    let template = if value.is_empty() {
        None
    } else {
        Some(lov::decode_any(value).map_err(|error| error.errno())?)
    };
    match template.filter(|template| !template.is_default()) {
        Some(template) => {
            template.check().map_err(|error| error.errno())?;
            check_osts(op, &template)?;
            op.tx.set.put(Table::Layouts, inode.fid().to_key(), template.encode());
            inode.flags |= INODE_HAS_LAYOUT;
        }
        None => {
            op.tx.set.delete(Table::Layouts, inode.fid().to_key());
            inode.flags &= !INODE_HAS_LAYOUT;
        }
    }
    done(op, inode, true)
}

/// A default must not make every create below fail: the OSTs that it names exist.
fn check_osts(op: &Op<'_, '_>, asked: &Asked) -> Decided<()> {
    let known = (op.osts)();
    if op.replay.is_some() || known.is_empty() {
        return Ok(());
    }
    let mut named = asked.templates().flat_map(|template| {
        template.osts.iter().copied().chain(u32::try_from(template.start).ok())
    });
    if named.all(|index| known.iter().any(|ost| ost.index == index)) {
        Ok(())
    } else {
        Err(Errno::EINVAL.into())
    }
}

/// The file of which an attribute is asked.
pub(crate) fn file_read(request: &Request) -> Fid {
    request.body::<FidReq>().fid.into()
}

/// The file of which an attribute is set.
pub(crate) fn file_changed(request: &Request) -> Fid {
    request.body::<SetxattrReq>().fid.into()
}

/// Whether setting the attribute changes where a file's data is, or whose it is.
pub(crate) fn moves_data(request: &Request) -> bool {
    let name = request.buf(1);
    name.starts_with(LUSTRE_LOV) || name == INODE_MIGRATE
}

pub(crate) fn remove(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: FidReq = op.request.body();
    let name = op.request.buf(1);
    let space = space(&name)?;
    let mut inode = op.tx.find_here(Fid::from(body.fid))?.ok_or(Errno::ESTALE)?;
    op.decides_on(inode.fid());
    match check_write(op, &inode, space) {
        // Who may write the content takes a capability away by writing; a kernel with a page cache
        // does it beforehand.
        Err(_) if name == CAPABILITY => op.access(&inode, W)?,
        checked => checked?,
    }
    if space == Space::Layout {
        return remove_layout(op, inode, &name);
    }
    let name = match space {
        Space::Shards => return Err(Errno::EPERM.into()),
        Space::DirDefault => Bytes::from_static(DMV),
        _ => name,
    };
    let key = keys::xattr(inode.fid(), &name);
    if op.tx.view.get(Table::Xattrs, &key)?.is_none() {
        return Err(Errno::ENODATA.into());
    }
    op.tx.set.delete(Table::Xattrs, key);
    match space {
        Space::AclAccess => inode.flags &= !INODE_HAS_ACL,
        Space::AclDefault => inode.flags &= !INODE_HAS_DEFAULT_ACL,
        _ if name == CAPABILITY => inode.attr.flags &= !AttrFlags::HAS_CAPABILITY,
        _ => {}
    }
    if names(op, &inode)?.len() == 1 {
        inode.flags &= !INODE_HAS_XATTR;
        inode.attr.flags &= !AttrFlags::HAS_XATTR;
    }
    done(op, inode, space.is_shared())
}

/// A directory loses its default; a file keeps its layout, for its data hangs on it.
fn remove_layout(op: &mut Op<'_, '_>, inode: Inode, name: &[u8]) -> Decided<Answer> {
    if name == TRUSTED_LOV && !is_root(&op.creds) {
        return Err(Errno::EPERM.into());
    }
    if !inode.has(INODE_HAS_LAYOUT) {
        return Err(Errno::ENODATA.into());
    }
    if inode.attr.is_dir() { set_default(op, inode, &[]) } else { Err(Errno::EPERM.into()) }
}
