//! Acknowledged work that is not known to be durable: an unmount waits for it, or gives it up.
//!
//! An open that only reads, an access time and a lock do not count ([`crate::lost`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::rc::Rc;

use env::{LocalFuture, join_bounded};
use types::{Fid, Span, TargetId, TargetKind};
use wire::body::{CloseFlags, CloseReq, OstIoReq};
use wire::{Opcode, Request};

use crate::client::{Client, Inner};
use crate::limits::{
    BATCH_RPCS_MAX, GIVEN_UP_NAME_WAIT, LOST_LOGGED_MAX, LOST_NAMED_MAX, SETTLE_PAUSE,
};
use crate::lost::{gather, touched};
use crate::{Ctx, Result};

/// What one target has not confirmed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unconfirmed {
    /// Which target.
    pub id: TargetId,
    /// `testfs-OST0002`.
    pub name: String,
    /// Files and directories.
    pub files: u64,
    /// Bytes written.
    pub bytes: u64,
    /// Requests that were answered.
    pub changes: u64,
}

impl fmt::Display for Unconfirmed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Unconfirmed { name, files, bytes, changes, .. } = self;
        write!(f, "{name}: {files} files, {bytes} bytes, {changes} changes")
    }
}

impl Client {
    /// What is not known to be durable, by the target that it waits for. Empty: nothing.
    #[must_use]
    pub fn unconfirmed(&self) -> Vec<Unconfirmed> {
        let targets = self.0.all_holders().into_iter();
        targets.map(|id| self.0.unconfirmed(id)).filter(|of| of.changes > 0).collect()
    }

    /// How long [`Client::unmount`] waits for that.
    #[must_use]
    pub fn unmount_wait(&self) -> Span {
        self.0.unmount_wait.get()
    }

    /// Changes how long [`Client::unmount`] waits.
    pub fn set_unmount_wait(&self, wait: Span) {
        self.0.unmount_wait.set(wait);
    }

    /// Waits until nothing is unconfirmed and no file is being closed, however long targets are
    /// away. A soft mount asks once, and a target that is out of use is not waited for.
    pub async fn settle(&self) {
        loop {
            self.0.flush_all().await;
            let outcome = self.0.sync_unconfirmed().await;
            let in_use = |of: &Unconfirmed| !self.0.inactive.borrow().contains(&of.id);
            let is_settled = self.0.closing.get() == 0 && !self.unconfirmed().iter().any(in_use);
            if is_settled || self.0.config.soft {
                return;
            }
            if let Err(error) = outcome {
                tracing::warn!(%error, "a target does not confirm what it has: asking again");
            }
            self.0.env.sleep(SETTLE_PAUSE).await;
        }
    }

    /// Tells the log what is unconfirmed, and the caller: a line for each part of a file.
    pub async fn give_up(&self) -> Vec<String> {
        let targets = self.0.all_holders();
        let mut parts = Vec::new();
        for id in targets {
            let name = id.name(self.fsname());
            let of_target = self.0.remote(id).unconfirmed(|changes| gather(changes));
            let shown = |fid| self.0.striped.master(fid);
            parts.extend(
                of_target.into_iter().map(|((fid, _), lost)| (shown(fid), lost, name.clone())),
            );
        }
        let kept = self.0.kept_files();
        if parts.is_empty() && kept.is_empty() {
            return Vec::new();
        }
        let named = parts.iter().map(|(fid, ..)| *fid).chain(kept.keys().copied());
        let paths = self.paths(named.collect()).await;
        let line = |(fid, lost, target): &(Fid, _, String)| {
            let file = paths.get(fid).cloned().unwrap_or_else(|| fid.to_string());
            format!("{file}: {lost}, not confirmed by {target}")
        };
        let mut lines: Vec<_> = parts.iter().take(LOST_LOGGED_MAX).map(line).collect();
        lines.extend(kept.iter().take(LOST_LOGGED_MAX).map(|(fid, bytes)| {
            let file = paths.get(fid).cloned().unwrap_or_else(|| fid.to_string());
            format!("{file}: {bytes} bytes, not sent")
        }));
        if parts.len() > LOST_LOGGED_MAX {
            lines.push(format!("and {} more", parts.len() - LOST_LOGGED_MAX));
        }
        lines.iter().for_each(|line| tracing::warn!("given up: {line}"));
        lines
    }

    /// A path of each file, of those that can be asked in time.
    async fn paths(&self, files: BTreeSet<Fid>) -> BTreeMap<Fid, String> {
        let mut found = BTreeMap::new();
        let ask = async {
            for fid in files.into_iter().take(LOST_NAMED_MAX) {
                let paths = self.fid2path(&Ctx::root(), fid).await.unwrap_or_default();
                if let Some(path) = paths.into_iter().next() {
                    found.insert(fid, String::from_utf8_lossy(&path).into_owned());
                }
            }
        };
        self.0.env.timeout(GIVEN_UP_NAME_WAIT, ask).await;
        found
    }
}

impl Inner {
    /// What this target has not confirmed.
    pub(crate) fn unconfirmed(self: &Rc<Self>, id: TargetId) -> Unconfirmed {
        let name = id.name(self.config.fsname);
        self.remote(id).unconfirmed(|changes| count(id, name, changes))
    }

    /// Each target in use is asked at once to make durable what it has not confirmed.
    async fn sync_unconfirmed(self: &Rc<Self>) -> Result<()> {
        let ctx = Ctx::root();
        let mut syncs: Vec<LocalFuture<'_, Result<()>>> = Vec::new();
        for id in self.all_holders() {
            if self.unconfirmed(id).changes == 0 || self.inactive.borrow().contains(&id) {
                continue;
            }
            match id.kind {
                TargetKind::Mdt => syncs.push(Box::pin(self.sync_mdt(&ctx, id, Fid::ZERO))),
                _ => syncs.push(Box::pin(self.sync_ost(&ctx, id, Vec::new()))),
            }
        }
        join_bounded(syncs, BATCH_RPCS_MAX).await.into_iter().collect()
    }
}

fn count(id: TargetId, name: String, changes: &mut dyn Iterator<Item = &Request>) -> Unconfirmed {
    let mut of = Unconfirmed { id, name, files: 0, bytes: 0, changes: 0 };
    let mut files = BTreeSet::new();
    for request in changes {
        let parts = touched(request);
        if parts.is_empty() {
            continue;
        }
        files.extend(parts.iter().map(|(fid, _)| *fid));
        of.changes += 1;
        if request.opcode() == Opcode::OstWrite {
            of.bytes += u64::from(request.body::<OstIoReq>().length);
        } else if request.opcode() == Opcode::MdtClose {
            of.bytes += brought(&request.body());
        }
    }
    of.files = files.len() as u64;
    of
}

/// Bytes that a close brings.
fn brought(close: &CloseReq) -> u64 {
    if close.flags.contains(CloseFlags::DATA) { close.size } else { 0 }
}

#[cfg(test)]
mod tests {
    use wire::body::OpenReq;
    use wire::encode_body;

    use super::*;

    #[test]
    fn files_bytes_and_changes_are_counted_and_opens_for_reading_are_none() {
        let write = |oid, length| {
            let parent = Fid::new(1, oid).into();
            let body = OstIoReq { parent, length, ..OstIoReq::default() };
            Request::new(Opcode::OstWrite, vec![encode_body(&body)])
        };
        let open = Request::new(Opcode::MdtOpen, vec![encode_body(&OpenReq::default())]);
        let changes = [write(1, 100), write(1, 50), write(2, 7), open];
        let of = count(TargetId::ost(2), "testfs-OST0002".into(), &mut changes.iter());
        assert_eq!(of.to_string(), "testfs-OST0002: 2 files, 157 bytes, 3 changes");
    }

    #[test]
    fn bytes_that_a_close_brings_are_counted() {
        let close = |flags| {
            let body = CloseReq { flags, size: 9, ..CloseReq::default() };
            Request::new(Opcode::MdtClose, vec![encode_body(&body)])
        };
        let wrote = CloseFlags::WROTE;
        let changes = [close(wrote | CloseFlags::SIZE), close(wrote | CloseFlags::DATA)];
        let of = count(TargetId::mdt(0), "testfs-MDT0000".into(), &mut changes.iter());
        assert_eq!((of.changes, of.bytes), (2, 9));
    }
}
