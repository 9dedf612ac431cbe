//! O_TMPFILE: a regular file without a name, opened as it is made. `MdtCreate` with flag TMPFILE.
//!
//! Transaction: inode with its orphan record, layout, inherited attributes. The directory does not
//! change. The file goes with its last close, like any orphan, unless a link gave it a name.
//! Replay: as create; a durable one is opened again.

use osd::Table;
use target::Decided;
use types::{Errno, Fid};
use wire::body::{CreateFlags, CreateReq, Disposition};

use crate::op::create::{make_inode, place, replay_of_existing, store_inherited};
use crate::op::open::{O_EXCL, Opening, wants_write};
use crate::op::{Answer, Op};
use crate::perm::{W, X};
use crate::record::{INODE_LINKABLE, INODE_ORPHAN};

/// Makes the file and opens it.
pub(crate) fn tmpfile(op: &mut Op<'_, '_>, body: &CreateReq) -> Decided<Answer> {
    if !body.flags.contains(CreateFlags::OPEN) || !wants_write(body.open_flags) {
        return Err(Errno::EINVAL.into());
    }
    if let Some(answer) = replay_of_existing(op, body)? {
        return Ok(answer);
    }
    op.check_writable()?;
    let parent = op.tx.dir(Fid::from(body.parent))?;
    op.decides_on(parent.fid());
    op.access(&parent, W | X)?;
    if parent.attr.nlink == 0 {
        return Err(Errno::ENOENT.into());
    }
    let mut inode = make_inode(op, body, &parent, None)?;
    if !inode.attr.is_file() {
        return Err(Errno::EINVAL.into());
    }
    store_inherited(op, body, &parent, &mut inode)?;
    place(op, body, &parent, &mut inode)?;
    inode.attr.nlink = 0;
    inode.flags |= INODE_ORPHAN;
    if body.open_flags & O_EXCL == 0 {
        inode.flags |= INODE_LINKABLE;
    }
    op.tx.set.put(Table::Orphans, inode.fid().to_key(), []);
    op.change(inode.clone());
    let answer =
        op.open_inode(inode, &Opening { flags: body.open_flags, fresh: true, no_layout: false })?;
    debug_assert!(
        matches!(&answer, Answer::Attr(answer) if answer.disposition.contains(Disposition::CREATED))
    );
    Ok(answer)
}
