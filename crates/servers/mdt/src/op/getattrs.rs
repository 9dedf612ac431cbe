//! getattr of many files, by FIDs or by names in one directory: read only, no locks, no
//! transaction. A file that is not there is an error of its own and ends nothing.
//!
//! The answer holds the first files of those asked for that fit, at least one. It ends after the
//! file with which it has taken [`LONG_ANSWER_MAX`](crate::limits::LONG_ANSWER_MAX). The caller
//! asks for the others again. Lustre: batched getattr of statahead (`MDS_BATCH`).

use target::{Decided, OpError};
use types::{Errno, Fid};
use wire::body::{AttrRep, Disposition, GetattrsFlags, GetattrsReq, WireFid};
use wire::stats::{self, LAYOUT_BYTES_MAX, StatRecord};
use wire::{Attr, Request, SizeState, decode_body};

use crate::limits::{GETATTRS_BYTES_MAX, GETATTRS_MAX};
use crate::op::believed::is_whole;
use crate::op::{Answer, ManyAnswer, Op, Told, checked_name};
use crate::perm::X;
use crate::record::Inode;

/// Attributes of all files that fit.
pub(crate) fn getattrs(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: GetattrsReq = op.request.body();
    let asked = op.request.buf(1);
    let count = (body.count as usize).min(GETATTRS_MAX);
    let mut files = Files { told: Vec::new(), bytes: 0, bytes_max: bytes_max(&body) };
    let layouts = body.flags.contains(GetattrsFlags::LAYOUTS);
    if Fid::from(body.parent).is_zero() {
        for fid in asked.chunks_exact(size_of::<WireFid>()).take(count) {
            let told = op.by_fid(decode_body::<WireFid>(fid).into(), layouts)?;
            if !files.take(told) || (op.is_long)() {
                break;
            }
        }
    } else {
        let dir = op.tx.dir(body.parent.into())?;
        op.access(&dir, X)?;
        let mut must_move = false;
        for name in asked.split_inclusive(|byte| *byte == 0).take(count) {
            let name = name.strip_suffix(&[0]).unwrap_or(name);
            let told = match op.by_name(&dir, name, layouts) {
                Err(OpError::Elsewhere) => {
                    must_move = true; // with all others in one go
                    continue;
                }
                told => told?,
            };
            if !files.take(told) || (op.is_long)() {
                break;
            }
        }
        if must_move {
            return Err(OpError::Elsewhere);
        }
    }
    if files.told.is_empty() {
        return Err(Errno::EINVAL.into());
    }
    assert!(files.told.len() <= count, "no more files are told than were asked for");
    Ok(Answer::Many(ManyAnswer { files: files.told }))
}

/// Files that are told so far.
struct Files {
    told: Vec<Told>,
    bytes: usize,
    bytes_max: usize,
}

impl Files {
    /// One more. False: it does not fit.
    fn take(&mut self, told: Told) -> bool {
        self.bytes += stats::encoded_len(told.record.layout.len());
        let fits = self.bytes <= self.bytes_max || self.told.is_empty();
        if fits {
            self.told.push(told);
        }
        fits
    }
}

impl Op<'_, '_> {
    /// A record that is damaged is an error of its file.
    fn by_fid(&mut self, fid: Fid, layouts: bool) -> Decided<Told> {
        let told = match self.tx.find_here(fid) {
            Ok(Some(inode)) => self.tell(&inode, layouts),
            Ok(None) => return Ok(refused(Errno::ESTALE)),
            Err(error) => Err(error),
        };
        match told {
            Err(OpError::Broken(what)) => {
                tracing::error!(target: "mdt", %fid, what, "a record cannot be read");
                Ok(refused(Errno::EIO))
            }
            told => told,
        }
    }

    fn by_name(&mut self, dir: &Inode, name: &[u8], layouts: bool) -> Decided<Told> {
        let name = match checked_name(&bytes::Bytes::copy_from_slice(name)) {
            Ok(name) => name.to_vec(),
            Err(OpError::Refused(errno)) => return Ok(refused(errno)),
            Err(error) => return Err(error),
        };
        let entry = match self.entry(dir, &name) {
            Ok(Some(entry)) => entry,
            Ok(None) => return Ok(refused(Errno::ENOENT)),
            Err(OpError::Refused(errno)) => return Ok(refused(errno)),
            Err(error) => return Err(error),
        };
        let fid = entry.record.fid;
        if !self.tx.is_here(fid) {
            let attr = Attr { mode: entry.record.file_type, ..Attr::default() }.with_fid(fid);
            let rep = AttrRep { attr, disposition: Disposition::REMOTE, ..AttrRep::default() };
            return Ok(Told {
                record: StatRecord { rep, ..StatRecord::default() },
                is_offered: false,
                parent: Fid::ZERO,
            });
        }
        self.by_fid(fid, layouts)
    }

    fn tell(&self, inode: &Inode, layouts: bool) -> Decided<Told> {
        let attr = inode.attr;
        let is_dirty = attr.is_file() && attr.size_state() == SizeState::Dirty;
        let record = if layouts && is_dirty { self.tx.layout_record(inode)? } else { Vec::new() };
        let layout = layout::with_stripes(record, &inode.stripes);
        let rep = AttrRep {
            attr,
            write_epoch: self.state.opens.write_epoch(inode.fid()),
            mtime_set: inode.mtime_set.sec,
            mtime_set_nsec: inode.mtime_set.nsec,
            stripes: inode.stripes.first_part(),
            ..AttrRep::default()
        };
        Ok(Told {
            record: StatRecord { errno: 0, rep, layout },
            is_offered: is_whole(inode),
            parent: inode.parent,
        })
    }
}

fn refused(errno: Errno) -> Told {
    let record = StatRecord { errno: errno.raw().unsigned_abs(), ..StatRecord::default() };
    Told { record, is_offered: false, parent: Fid::ZERO }
}

/// The directory in which files are named.
pub(crate) fn parent(request: &Request) -> Option<Fid> {
    Some(request.body::<GetattrsReq>().parent.into()).filter(|parent: &Fid| !parent.is_zero())
}

/// Whether sizes of files that are being written are wanted.
pub(crate) fn asks(request: &Request) -> bool {
    request.body::<GetattrsReq>().flags.contains(GetattrsFlags::SIZES)
}

/// Bytes of an answer at most: one file may be more than the caller has room for.
pub(crate) fn answer_bytes(request: &Request) -> usize {
    bytes_max(&request.body()) + LAYOUT_BYTES_MAX
}

/// Bytes of an answer at most, but for one file.
fn bytes_max(body: &GetattrsReq) -> usize {
    match body.bytes_max {
        0 => GETATTRS_BYTES_MAX,
        wanted => (wanted as usize).min(GETATTRS_BYTES_MAX),
    }
}
