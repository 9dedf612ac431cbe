//! create: files, directories, symbolic links and devices. With `OPEN` it also opens the file, even
//! one that already exists.
//!
//! Locks: none beyond the thread. Transaction: inode, entry, back-link, parent, layout, inherited
//! attributes, all or nothing. With `DATA` its object is written before ([`put`]). A replay uses
//! the FID, the layout and the handle of the first reply. If the file already exists, the replay
//! only opens it again.

use layout::{Asked, StripeSet};
use osd::Table;
use target::Decided;
use types::{Errno, Fid, SYMLINK_BYTES_MAX};
use wire::Request;
use wire::attr::{S_IFBLK, S_IFCHR, S_IFDIR, S_IFIFO, S_IFLNK, S_IFMT, S_IFREG, S_IFSOCK, S_ISGID};
use wire::body::{CreateFlags, CreateReq, Disposition};

use crate::keys;
use crate::op::names::{At, Inherited};
use crate::op::open::{O_EXCL, Opening, wants_write};
use crate::op::rename::shown;
use crate::op::rows::Opened;
use crate::op::{Answer, Op, checked_name, dirs, put};
use crate::perm::{ACL_ACCESS, ACL_DEFAULT, W, X, is_root};
use crate::record::{DirentRecord, INODE_HAS_DEFAULT_ACL, Inode};
use crate::tx::new_attr;

/// Makes a file; see the module.
pub(crate) fn create(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: CreateReq = op.request.body();
    if body.flags.contains(CreateFlags::TMPFILE) {
        return super::tmpfile::tmpfile(op, &body);
    }
    let has_bytes = put::is_wanted(op.request, &body)?;
    let name = op.request.buf(1);
    let name = checked_name(&name)?;
    if let Some(answer) = replay_of_existing(op, &body)? {
        return Ok(answer);
    }
    let parent = op.tx.dir(Fid::from(body.parent))?;
    op.decides_on(parent.fid());
    op.access(&parent, X)?;
    if let Some(entry) = op.entry(&parent, name)? {
        if !body.flags.contains(CreateFlags::OPEN) || body.open_flags & O_EXCL != 0 {
            return Err(Errno::EEXIST.into());
        }
        let DirentRecord { fid, file_type, .. } = entry.record;
        if !op.tx.is_here(fid) {
            return Ok(Answer::elsewhere(fid, file_type));
        }
        let inode = op.tx.inode(fid)?;
        return op.open_inode(
            inode,
            &Opening { flags: body.open_flags, fresh: false, no_layout: false },
        );
    }
    op.check_writable()?;
    if parent.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    op.access(&parent, W | X)?;
    let at = At { dir: parent.fid(), name };
    if body.mode & S_IFMT == S_IFDIR {
        return dirs::make(op, &body, &parent, at);
    }
    let drawn = op.put.map(|written| written.fid);
    let mut inode = make_inode(op, &body, &parent, drawn)?;
    store_inherited(op, &body, &parent, &mut inode)?;
    if inode.attr.is_file() {
        place(op, &body, &parent, &mut inode)?;
    }
    if has_bytes {
        put::fill(op, &mut inode)?;
    }
    op.enter(at, &inode)?;
    op.touch(parent.fid(), at.bytes(), 0)?;
    op.change(inode.clone());
    if body.flags.contains(CreateFlags::OPEN) && inode.attr.is_file() {
        let no_layout = body.flags.contains(CreateFlags::NO_LAYOUT);
        return op.open_inode(inode, &Opening { flags: body.open_flags, fresh: true, no_layout });
    }
    op.full_answer(&inode, 0, Disposition::CREATED)
}

/// A replay whose file is there: it was durable, or its name was open before. Only the handle is
/// missing.
///
/// A file that was made and has gone since is ENOENT, which no client tries anew: its name was
/// there, and others may have seen it. Of a file without a name there is nothing to be seen, nor of
/// an open of a file that was there. Their ESTALE asks for another try.
pub(super) fn replay_of_existing(op: &mut Op<'_, '_>, body: &CreateReq) -> Decided<Option<Answer>> {
    let Some(first) = op.replay else { return Ok(None) };
    if first.disposition.contains(Disposition::REMOTE) {
        // nothing was changed, and the handle is another MDT's to give
        return Ok(Some(Answer::elsewhere(first.attr.fid(), first.attr.file_type())));
    }
    let existing = op.tx.find_here(first.attr.fid())?;
    let makes_name = first.disposition.contains(Disposition::CREATED)
        && !body.flags.contains(CreateFlags::TMPFILE);
    match existing {
        Some(inode) if body.flags.contains(CreateFlags::OPEN) => {
            let no_layout = body.flags.contains(CreateFlags::NO_LAYOUT);
            op.open_inode(inode, &Opening { flags: body.open_flags, fresh: false, no_layout })
                .map(Some)
        }
        Some(inode) => op.full_answer(&inode, 0, first.disposition).map(Some),
        None if op.committed && makes_name => Err(Errno::ENOENT.into()),
        None if op.committed || !first.disposition.contains(Disposition::CREATED) => {
            Err(Errno::ESTALE.into())
        }
        None => Ok(None),
    }
}

/// A fresh inode, with this FID where another MDT gave it, or an object of it is written.
pub(super) fn make_inode(
    op: &mut Op<'_, '_>,
    body: &CreateReq,
    parent: &Inode,
    fid: Option<Fid>,
) -> Decided<Inode> {
    let file_type = if body.mode & S_IFMT == 0 { S_IFREG } else { body.mode & S_IFMT };
    let target = op.request.buf(2);
    match file_type {
        S_IFREG | S_IFDIR | S_IFIFO | S_IFSOCK => {}
        S_IFLNK if target.is_empty() => return Err(Errno::ENOENT.into()),
        S_IFLNK if target.len() > SYMLINK_BYTES_MAX => return Err(Errno::ENAMETOOLONG.into()),
        S_IFLNK => {}
        S_IFCHR | S_IFBLK if is_root(&op.creds) => {}
        S_IFCHR | S_IFBLK => return Err(Errno::EPERM.into()),
        _ => return Err(Errno::EINVAL.into()),
    }
    let fid = match &op.replay {
        _ if let Some(fid) = fid => fid,
        Some(first) if !op.config.bugs.replay_draws_new_fid() => {
            let fid = first.attr.fid();
            if op.state.files.may_have_given(fid) { fid } else { return Err(Errno::EPROTO.into()) }
        }
        _ => op.state.draw_fid()?,
    };
    let setgid = parent.attr.mode & S_ISGID != 0;
    let gid = if setgid { parent.attr.gid } else { op.creds.gid };
    let mode = if file_type == S_IFLNK { 0o777 } else { body.mode & 0o7777 };
    let mut attr = new_attr(fid, file_type | mode, op.creds.uid, gid, op.tx.now);
    attr.projid = body.projid;
    match file_type {
        S_IFDIR => {
            attr.nlink = 2;
            attr.mode |= if setgid { S_ISGID } else { 0 };
            attr.blocks = 8;
        }
        S_IFLNK => attr.size = target.len() as u64,
        S_IFCHR | S_IFBLK => attr.rdev = body.rdev,
        _ => {}
    }
    let is_program = attr.mode & (S_ISGID | 0o010) == S_ISGID | 0o010;
    if file_type != S_IFDIR && is_program && !op.may_setgid(gid) {
        attr.mode &= !S_ISGID;
    }
    let symlink = if file_type == S_IFLNK { target.to_vec() } else { Vec::new() };
    let depth = if attr.is_dir() { parent.depth.saturating_add(1) } else { 0 };
    Ok(Inode {
        attr,
        flags: 0,
        parent: parent.fid(),
        mtime_set: op.tx.now,
        stripes: StripeSet::default(),
        depth,
        symlink,
    })
}

/// Stores what a new file inherits.
pub(super) fn store_inherited(
    op: &mut Op<'_, '_>,
    body: &CreateReq,
    parent: &Inode,
    inode: &mut Inode,
) -> Decided<()> {
    let inherited = inherit(op, body, parent, inode)?;
    inherited.mark(inode);
    for (name, value) in inherited.xattrs {
        op.tx.set.put(Table::Xattrs, keys::xattr(inode.fid(), &name), value);
    }
    Ok(())
}

/// Mode and lists from the parent's default list, or the mode under the umask; a directory's
/// default layout too.
pub(super) fn inherit(
    op: &mut Op<'_, '_>,
    body: &CreateReq,
    parent: &Inode,
    inode: &mut Inode,
) -> Decided<Inherited> {
    let file_type = inode.attr.file_type();
    let mut inherited = Inherited::default();
    if file_type == S_IFLNK {
        return Ok(inherited);
    }
    let default =
        if parent.has(INODE_HAS_DEFAULT_ACL) { op.acl(parent, ACL_DEFAULT)? } else { None };
    match default {
        None => inode.attr.mode &= !(body.umask & 0o777),
        Some(default) => {
            let (access, mode) = default.inherit(inode.attr.mode);
            inode.attr.mode = mode;
            if !access.is_minimal() {
                inherited.xattrs.push((ACL_ACCESS.to_vec(), access.encode()));
            }
            if file_type == S_IFDIR {
                inherited.xattrs.push((ACL_DEFAULT.to_vec(), default.encode()));
            }
        }
    }
    if file_type == S_IFDIR {
        inherited.layout = inherited_template(op, parent)?;
    }
    Ok(inherited)
}

/// A directory takes over its parent's default layout, unless the parent is the root, whose default
/// holds everywhere without being copied, as in Lustre.
fn inherited_template(op: &mut Op<'_, '_>, parent: &Inode) -> Decided<Vec<u8>> {
    let asked = op.request.buf(3);
    let template = if !asked.is_empty() {
        Some(decode_asked(&asked)?)
    } else if shown(parent) == Fid::ROOT || !op.tx.is_here(parent.fid()) {
        None
    } else {
        op.tx.template(parent)?
    };
    let template = template.filter(|template| !template.is_default());
    Ok(template.map(|template| template.encode()).unwrap_or_default())
}

fn decode_asked(record: &[u8]) -> Decided<Asked> {
    Asked::decode(record).map_err(|error| error.errno().into())
}

/// The layout of a new file, unless it shall have none yet.
pub(super) fn place(
    op: &mut Op<'_, '_>,
    body: &CreateReq,
    parent: &Inode,
    inode: &mut Inode,
) -> Decided<()> {
    if body.flags.contains(CreateFlags::NO_LAYOUT) {
        return Ok(());
    }
    let asked = op.request.buf(3);
    let asked = if asked.is_empty() { Asked::default() } else { decode_asked(&asked)? };
    let writes = body.flags.contains(CreateFlags::OPEN) && wants_write(body.open_flags)
        || body.flags.contains(CreateFlags::DATA);
    if !writes && op.replay.is_none() && (op.osts)().is_empty() {
        // a name may exist before the first OST does; the first open for writing places it
        return Ok(());
    }
    op.give_layout(inode, Some(parent), &asked)
}

/// The directory that gets the name.
pub(crate) fn parent(request: &Request) -> Fid {
    request.body::<CreateReq>().parent.into()
}

/// How it opens the file, if it does. What a kernel reads is kept after an open by FID alone.
pub(crate) fn opened(request: &Request) -> Option<Opened> {
    let body: CreateReq = request.body();
    body.flags.contains(CreateFlags::OPEN).then(|| Opened {
        flags: body.open_flags,
        keeps_reads: false,
        keeps_writes: body.flags.contains(CreateFlags::KEEPS),
        room: 0,
    })
}

/// What a create is counted as. One that also opens is an open, and a `mknod` where the file is
/// new.
pub(crate) fn stat(request: &Request) -> &'static str {
    let body: CreateReq = request.body();
    if body.mode & S_IFMT == S_IFDIR {
        "mkdir"
    } else if body.flags.contains(CreateFlags::OPEN) {
        "open"
    } else {
        "mknod"
    }
}
