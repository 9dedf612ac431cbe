//! Mends that this MDT makes while it serves. `nacre fsck` says where copies of the records break a
//! rule. The MDT looks at its running image and decides in one step, as for every operation. It
//! waits for keys that others have reserved, and calls grants back. If nothing is wrong there, it
//! changes nothing.
//!
//! The MDT of a file mends breaches that concern the file and a name on another MDT (module
//! [`pair`]). It has all records of the file, and only the name is a fact of another MDT. Such a
//! mend is an operation of several MDTs: the keys are reserved on both, so an operation that is
//! under way ends first. A mend is in no client's history.

mod pair;

use std::rc::Rc;

use osd::Table;
use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::attr::S_IFDIR;
use wire::updates::{Named, Place, Update};

use crate::fsck::{self, Suspect};
use crate::keys::{self, LMV};
use crate::limits::MEND_NAMES_MAX;
use crate::op::Op;
use crate::op::names::At;
use crate::record::{DirentRecord, INODE_ORPHAN, Inode};
use crate::share::ShareKey;
use crate::target::Mdt;
use crate::tx::Entry;

/// What was done.
pub(crate) type Done = Option<&'static str>;

impl Mdt {
    /// Looks again at a name or a file, and mends what is wrong with it. Returns what was done:
    /// none if nothing is wrong that this MDT can mend.
    ///
    /// # Errors
    /// EAGAIN: it is in recovery, or it serves without an MDT that may know more. Or other
    /// operations stood in the way for too long, or another MDT is away. E2BIG: there are too many
    /// names to count while clients are served. EINVAL: a file of another MDT. EIO: a record
    /// cannot be read.
    pub async fn mend(self: &Rc<Self>, suspect: &Suspect) -> Result<Option<&'static str>, Errno> {
        // replays and other MDTs bring back what is missing
        if self.exports.is_recovering() || self.deliveries.is_owed() {
            return Err(Errno::EAGAIN);
        }
        let done = match self.run_check(|op| decide(op, suspect)).await {
            Err(Errno::EBUSY) => return Err(Errno::EAGAIN), // so does the MDT of a name
            done => done?,
        };
        if let Some(done) = done {
            tracing::warn!(target: "mdt", ?suspect, done, "a check of the file system mended a record");
        }
        Ok(done)
    }
}

/// Decides what is wrong, and mends it.
pub(crate) fn decide(op: &mut Op<'_, '_>, suspect: &Suspect) -> Decided<Done> {
    if suspect.mdt() != op.tx.mdt() {
        return Err(Errno::EINVAL.into());
    }
    match suspect {
        Suspect::Name { dir, name } => look_at_name(op, At { dir: *dir, name }),
        Suspect::Pair { fid, dir, name } => pair::look_at(op, *fid, At { dir: *dir, name }),
        Suspect::Counts(fid) => count(op, *fid),
    }
}

fn look_at_name(op: &mut Op<'_, '_>, at: At<'_>) -> Decided<Done> {
    let parent = op.tx.find(at.dir)?;
    if !parent.is_some_and(|parent| parent.attr.is_dir()) {
        return Ok(None);
    }
    let Some(entry) = op.tx.entry(at.dir, at.name)? else { return Ok(None) };
    let fid = entry.record.fid;
    if !op.tx.is_here(fid) {
        return Ok(None);
    }
    match op.tx.find(fid)? {
        Some(inode) if inode.fid() != fid => Ok(None), // a damage that no MDT mends
        Some(inode) => fit(op, at, &entry, &inode),
        None => remove(op, at, &entry),
    }
}

/// A name of a file of this MDT that leads nowhere goes, unless other records say what the file
/// was.
fn remove(op: &mut Op<'_, '_>, at: At<'_>, entry: &Entry) -> Decided<Done> {
    let fid = entry.record.fid;
    assert!(op.tx.is_here(fid), "other records of a file are on its MDT");
    let (layout, stripes) = (fid.to_key(), keys::xattr(fid, LMV));
    let is_known = op.tx.view.get(Table::Layouts, &layout)?.is_some()
        || op.tx.view.get(Table::Xattrs, &stripes)?.is_some()
        || !op.tx.is_empty(fid)?;
    if is_known {
        return Ok(None);
    }
    op.leave(at, entry);
    op.resize(at.dir, -at.bytes(), -i32::from(entry.record.file_type == S_IFDIR))?;
    Ok(Some("removed the name"))
}

/// An entry has the type of its file, and the file knows the name.
fn fit(op: &mut Op<'_, '_>, at: At<'_>, entry: &Entry, inode: &Inode) -> Decided<Done> {
    let fid = inode.fid();
    assert!(op.tx.is_here(fid) && op.tx.is_here(at.dir), "an MDT mends its own records");
    if inode.attr.file_type() != entry.record.file_type {
        op.decides_on(fid);
        op.repoint(at, entry, inode);
        op.resize(at.dir, 0, 0)?; // listings are called back
        return Ok(Some("set the type"));
    }
    let key = keys::link(fid, at.dir, entry.cookie);
    if op.tx.view.get(Table::Links, &key)?.is_some() {
        return Ok(None);
    }
    op.decides_on(fid);
    op.tx.changes.push(ShareKey::Inode(fid));
    op.tx.set.put(Table::Links, key, at.name);
    let gets = Some(Place { dir: at.dir, name: at.name.to_vec() });
    named(op, fid, gets, 0);
    Ok(Some("added the name to the file"))
}

/// The counts are those of the names. A file without a name, or a directory with several, is left
/// to a repair of a stopped file system.
fn count(op: &mut Op<'_, '_>, fid: Fid) -> Decided<Done> {
    let is_whole = |inode: &Inode| inode.fid() == fid && !inode.has(INODE_ORPHAN);
    let Some(mut inode) = op.tx.find(fid)?.filter(is_whole) else { return Ok(None) };
    let is_dir = inode.attr.is_dir();
    let names = names_of(op, fid)?;
    let sum = if is_dir { names_in(op, fid)? } else { Sum::default() };
    let (count, links) = fsck::links(fid, &inode, (names, sum.subdirs));
    let size = if is_dir { sum.bytes } else { inode.attr.size };
    let is_right = (inode.attr.nlink, inode.attr.size) == (links, size);
    if is_right || count == 0 || (is_dir && count > 1) {
        return Ok(None);
    }
    assert!(links > 0, "a file with a name has a link");
    let more = i64::from(links) - i64::from(inode.attr.nlink);
    (inode.attr.nlink, inode.attr.size) = (links, size);
    op.change(inode);
    named(op, fid, None, i32::try_from(more).unwrap_or_default());
    Ok(Some("set the count"))
}

/// A change of the MDT's own is told by its updates.
fn named(op: &mut Op<'_, '_>, fid: Fid, gets: Option<Place>, links: i32) {
    let named = Named { fid, gets, loses: None, links, moves: false };
    op.tx.updates.push(Update::Named(named));
}

/// Names that a file knows.
fn names_of(op: &Op<'_, '_>, fid: Fid) -> Decided<u32> {
    let (prefix, mut names) = (fid.to_key(), 0);
    op.tx.view.scan_within((Table::Links, &prefix), &prefix, &mut |_, _| {
        names += 1;
        names <= MEND_NAMES_MAX
    })?;
    if names <= MEND_NAMES_MAX { Ok(names) } else { Err(Errno::E2BIG.into()) }
}

/// What the names in a directory add up to.
#[derive(Default)]
struct Sum {
    names: u32,
    subdirs: u32,
    bytes: u64,
}

fn names_in(op: &Op<'_, '_>, dir: Fid) -> Decided<Sum> {
    let (mut sum, mut is_broken) = (Sum::default(), false);
    op.tx.scan_dir(dir, 0, &mut |_, value| {
        match DirentRecord::decode(value) {
            Some(record) => {
                sum.names += 1;
                sum.subdirs += u32::from(record.file_type == S_IFDIR);
                sum.bytes += record.name.len() as u64;
            }
            None => is_broken = true,
        }
        !is_broken && sum.names <= MEND_NAMES_MAX
    })?;
    match sum.names {
        _ if is_broken => Err(OpError::Broken("directory entry")),
        0..=MEND_NAMES_MAX => Ok(sum),
        _ => Err(Errno::E2BIG.into()),
    }
}
