//! Lost acknowledged work, and how the affected handles learn of it.
//!
//! A change is lost when its target restarts without it and the client cannot repeat it. That is so
//! if the client was evicted or the replay was refused. Then
//! - the next fsync of each open handle of the file returns EIO, once per handle; a handle that is
//!   opened before any other handle got the error gets it too;
//! - each close of such a handle returns EIO until its fsync has done so;
//! - all calls on the handles of a file return EIO if its create was refused, because the file does
//!   not exist;
//! - the log has one line per file, with range and target.
//!
//! Lustre: `mapping_set_error` of `osc`, `lli_async_rc`. The kernel itself reports pages of a
//! mapping that could not be written back.

mod errseq;
mod losses;
mod touched;

use std::collections::BTreeMap;
use std::fmt;
use std::rc::Rc;

use endpoint::Undone;
use types::{Errno, Fid, TargetId};
use wire::Request;

use crate::client::{Client, Inner};
use crate::limits::{LOST_LOGGED_MAX, LOST_NAME_WAIT, LOST_NAMED_MAX};
use crate::{Ctx, Error, Result};

pub use losses::Heard;
pub(crate) use losses::Losses;
pub(crate) use touched::{Part, made, touched};

/// What the caller is told.
pub(crate) fn error(fid: Fid, stage: &'static str) -> Error {
    let error = Error::local(Errno::EIO, stage).saying("acknowledged work is lost".to_owned());
    if fid.is_zero() { error } else { error.about(fid) }
}

impl Client {
    /// Changes of this mount that were acknowledged and are lost.
    #[must_use]
    pub fn lost(&self) -> u64 {
        self.0.losses.count.get()
    }

    /// For a directory that is opened now: [`Client::fsync_dir`] tells of what is lost from here
    /// on.
    #[must_use]
    pub fn listen(&self, dir: Fid) -> Heard {
        self.0.losses.listen(dir)
    }
}

impl Inner {
    /// Answered changes that `target` will not have.
    pub(crate) fn lose(self: &Rc<Self>, target: TargetId, changes: &[Request], why: Undone) {
        let lost = gather(changes);
        let work = changes.iter().filter(|change| !touched(change).is_empty()).count();
        self.losses.count.set(self.losses.count.get() + work as u64);
        let shown = |fid: &Fid| self.striped.master(*fid); // nobody has a shard open
        let files: std::collections::BTreeSet<Fid> =
            lost.keys().map(|(fid, _)| shown(fid)).collect();
        if !self.config.bugs.forget_lost_work() {
            files.iter().for_each(|fid| self.losses.note(*fid));
        }
        if matches!(why, Undone::Refused(_)) {
            changes.iter().filter_map(made).for_each(|fid| self.lose_made(fid));
        }
        let why = match why {
            Undone::Evicted => "this client was evicted".to_owned(),
            Undone::Refused(errno) => format!("repeating it was refused: {errno}"),
        };
        for ((fid, _), part) in lost.iter().take(LOST_LOGGED_MAX) {
            tracing::warn!(target_id = %target.name(self.config.fsname), %fid, %part, why, "acknowledged work is lost");
        }
        if lost.len() > LOST_LOGGED_MAX {
            let more = lost.len() - LOST_LOGGED_MAX;
            tracing::warn!(target_id = %target.name(self.config.fsname), more, "acknowledged work is lost: more of it");
        }
        self.log_paths(files.into_iter().take(LOST_NAMED_MAX).collect());
    }

    /// A file does not exist that this client has made. Its handles are void: what is written by
    /// them would be at no place that a name leads to.
    fn lose_made(self: &Rc<Self>, fid: Fid) {
        if let Some(inode) = self.inodes.lose_file(fid) {
            self.lose_kept_in(&inode);
        }
    }

    /// Acknowledged writes of a file are lost that no server has seen.
    pub(crate) fn lose_file(self: &Rc<Self>, fid: Fid) {
        self.losses.count.set(self.losses.count.get() + 1);
        if !self.config.bugs.forget_lost_work() {
            self.losses.note(fid);
        }
        self.log_paths(vec![fid]);
    }

    /// Adds to the log under which names people know the files.
    fn log_paths(self: &Rc<Self>, files: Vec<Fid>) {
        let (env, client) = (self.env.clone(), Client(self.clone()));
        self.env.spawn("names of lost work", async move {
            let ask = async {
                for fid in files {
                    let paths = client.fid2path(&Ctx::root(), fid).await.unwrap_or_default();
                    let paths: Vec<_> =
                        paths.iter().map(|path| String::from_utf8_lossy(path)).collect();
                    tracing::warn!(%fid, ?paths, "work of this file is lost");
                }
            };
            env.timeout(LOST_NAME_WAIT, ask).await;
        });
    }
}

/// What is lost of one object, one name or one file's attributes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lost {
    part: Part,
    changes: u64,
}

impl fmt::Display for Lost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} changes)", self.part, self.changes)
    }
}

/// By file and object, or name: the range from the first byte to the last.
pub(crate) fn gather<'a>(
    changes: impl IntoIterator<Item = &'a Request>,
) -> BTreeMap<(Fid, Part), Lost> {
    let mut all: BTreeMap<(Fid, Part), Lost> = BTreeMap::new();
    for (fid, part) in changes.into_iter().flat_map(touched) {
        let key = match &part {
            Part::Bytes { object, .. } => Part::Bytes { object: *object, start: 0, end: 0 },
            other => other.clone(),
        };
        let lost = all.entry((fid, key)).or_insert_with(|| Lost { part: part.clone(), changes: 0 });
        lost.changes += 1;
        if let (Part::Bytes { start, end, .. }, Part::Bytes { start: from, end: to, .. }) =
            (&mut lost.part, &part)
        {
            (*start, *end) = ((*start).min(*from), (*end).max(*to));
        }
    }
    all
}

/// EIO if the owner of a handle has to hear of lost work.
pub(crate) fn check(is_news: bool, fid: Fid, stage: &'static str) -> Result<()> {
    if is_news { Err(error(fid, stage)) } else { Ok(()) }
}

#[cfg(test)]
mod tests {
    use wire::body::OstIoReq;
    use wire::{Opcode, encode_body};

    use super::*;

    const FILE: Fid = Fid { seq: 1, oid: 2, ver: 0 };

    #[test]
    fn writes_of_one_object_are_one_line() {
        let object = Fid::new(0x400, 9);
        let write = |offset, length| {
            let body = OstIoReq {
                object: object.into(),
                parent: FILE.into(),
                offset,
                length,
                ..OstIoReq::default()
            };
            Request::new(Opcode::OstWrite, vec![encode_body(&body)])
        };
        let lost = gather(&[write(100, 50), write(10, 5), write(60, 10)]);
        let texts: Vec<_> = lost.values().map(ToString::to_string).collect();
        assert_eq!(texts, ["bytes 10..150 of [0x400:0x9:0x0] (3 changes)"]);
    }
}
