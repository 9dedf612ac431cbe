//! Sizes of files that are being written, asked of the clients that write them.
//!
//! ```text
//!  getattr, getattrs --> attributes; dirty files by their only writer --one vector each--> clients
//!                    <-- with sizes, as far as the epoch is still that of the question <--'
//! ```
//! A file that one client writes grows only through that client, so its word is the size. One
//! question to a client covers all its files of the request, whatever their stripe counts. The
//! caller asks the objects of the other files. These have several writers, or a writer that does
//! not know the size, does not answer, or may have been replaced.
//!
//! Invariants
//! - A size is returned only if two things hold from before the question until after the answer.
//!   The same client is the only one with a handle for writing, and no size is changed.
//! - A size that is returned comes without a grant.
//! - Questions leave room in a client's lane for recalls. A client that did not answer one is not
//!   asked for a while.
//!
//! Lustre: the glimpse callback of an OST to the holder of the highest lock.

use std::collections::{BTreeMap, BTreeSet};

use service::{CallingBack, Incoming};
use types::{ClientId, Fid, Timespec};
use wire::body::{AttrRep, Disposition, GetattrFlags, GetattrsRep, GrantSize, GrantWord};
use wire::grants::{self, Callback, VECTOR_MAX};
use wire::stats::{self, StatRecord};
use wire::{Reply, Request, SizeState, encode_body};

use crate::limits::{FILE_BYTES_MAX, GLIMPSES_UNANSWERED_MAX, WRITER_PATIENCE};
use crate::op::Data;
use crate::state::State;
use crate::target::Mdt;

/// A file whose writer is asked.
struct Asked {
    /// Its place in the answer.
    at: usize,
    fid: Fid,
    epoch: u64,
}

/// Whether sizes are to be asked of writers.
fn wants_sizes(request: &Request) -> bool {
    match Data::of(request) {
        Data::Sizes(asks) => asks(request),
        Data::Size(flags) => flags(request).contains(GetattrFlags::SIZE),
        Data::None | Data::Opens(_) | Data::Cuts(_) | Data::Moves(_) | Data::Attributes => false,
    }
}

/// Whether an answer tells of many files.
fn is_of_many(request: &Request) -> bool {
    matches!(Data::of(request), Data::Sizes(_))
}

/// The files of an answer.
fn files_of(request: &Request, reply: &Reply) -> Option<Vec<StatRecord>> {
    if is_of_many(request) {
        let head: GetattrsRep = reply.body();
        return stats::decode(&reply.buf(1), head.count as usize);
    }
    Some(vec![StatRecord { rep: reply.body(), ..StatRecord::default() }])
}

/// Puts them back. A page has no layouts of files whose size is told.
fn put_back(request: &Request, reply: &mut Reply, mut files: Vec<StatRecord>) {
    if !is_of_many(request) {
        assert_eq!(files.len(), 1, "a getattr is about one file");
        reply.bufs[0] = encode_body::<AttrRep>(&files[0].rep);
        return;
    }
    let mut bytes = Vec::with_capacity(reply.buf(1).len());
    for file in &mut files {
        if file.rep.attr.size_state() != SizeState::Dirty {
            file.rep.stripes = 0;
            file.layout.clear();
        }
        stats::push(&mut bytes, file);
    }
    reply.bufs[1] = bytes.into();
}

/// The client that alone can change the size of a file now.
fn writer(state: &State, fid: Fid) -> Option<ClientId> {
    // a client that is given up may write until all OSTs refuse it
    if state.fences.is_unsure() { None } else { state.opens.only_writer(fid) }
}

impl Mdt {
    /// Adds sizes to the answer of a getattr, where they are wanted.
    pub(crate) async fn ask_writers(&self, incoming: &Incoming, reply: &mut Reply) {
        let request = &incoming.request;
        let is_over = reply.errno().is_some() || self.exports.is_recovering();
        if is_over || !wants_sizes(request) {
            return;
        }
        let Some(mut records) = files_of(request, reply) else { return };
        let asked = self.written(&records, incoming.session.client);
        if asked.is_empty() {
            return;
        }
        let calls: Vec<_> =
            asked.into_iter().flat_map(|(client, files)| self.ask_writer(client, files)).collect();
        let _had_a_slot = incoming.step_aside();
        for (client, files, calling) in calls {
            match calling.await {
                Ok(answer) => match grants::answered::<GrantSize>(&answer) {
                    Ok(sizes) => self.take_sizes(client, &files, &sizes, &mut records),
                    Err(error) => {
                        tracing::warn!(target: "mdt", %client, %error, "sizes from a client cannot be understood")
                    }
                },
                Err(error) => {
                    self.silent.borrow_mut().begin(client, self.env.now());
                    tracing::debug!(target: "mdt", %client, %error, "a writer reports no sizes")
                }
            }
        }
        put_back(request, reply, records);
    }

    /// Dirty files with one writer, by that writer. The caller knows its own.
    fn written(&self, records: &[StatRecord], caller: ClientId) -> BTreeMap<ClientId, Vec<Asked>> {
        let (state, silent, now) =
            (self.engine.state.borrow(), self.silent.borrow(), self.env.now());
        let mut asked: BTreeMap<ClientId, Vec<Asked>> = BTreeMap::new();
        let mut seen = BTreeSet::new();
        for (at, record) in records.iter().enumerate() {
            let attr = &record.rep.attr;
            let fid = attr.fid();
            let is_dirty = attr.is_file() && attr.size_state() == SizeState::Dirty;
            if record.errno != 0 || !is_dirty || !seen.insert(fid) {
                continue;
            }
            let may_ask = |client: &ClientId| *client != caller && !silent.has(*client, now);
            let Some(client) = writer(&state, fid).filter(may_ask) else { continue };
            let epoch = state.opens.write_epoch(fid);
            asked.entry(client).or_default().push(Asked { at, fid, epoch });
        }
        asked
    }

    /// Questions to one client, which are on their way then.
    fn ask_writer(
        &self,
        client: ClientId,
        mut files: Vec<Asked>,
    ) -> Vec<(ClientId, Vec<Asked>, CallingBack)> {
        let Some(session) = self.exports.session_of(client) else { return Vec::new() };
        let mut calls = Vec::new();
        while !files.is_empty() && session.callbacks_unanswered() < GLIMPSES_UNANSWERED_MAX {
            let rest = files.split_off(files.len().min(VECTOR_MAX));
            let word = |file: &Asked| GrantWord {
                fid: file.fid.into(),
                number: file.epoch,
                ..GrantWord::default()
            };
            let callback = Callback::Glimpse(files.iter().map(word).collect());
            let calling = self.exports.call_back(&session, &callback, WRITER_PATIENCE);
            calls.push((client, files, calling));
            files = rest;
        }
        calls
    }

    /// What a writer told, as far as it is still the only one.
    fn take_sizes(
        &self,
        client: ClientId,
        files: &[Asked],
        sizes: &[GrantSize],
        records: &mut [StatRecord],
    ) {
        let state = self.engine.state.borrow();
        for (file, size) in files.iter().zip(sizes) {
            let is_same = size.known == 1
                && size.size <= FILE_BYTES_MAX
                && Fid::from(size.fid) == file.fid
                && size.write_epoch == file.epoch
                && state.opens.write_epoch(file.fid) == file.epoch
                && writer(&state, file.fid) == Some(client);
            if is_same {
                put_size(&mut records[file.at], size);
            }
        }
    }
}

/// The size is known for this answer. A modification time that was set by hand holds until a later
/// write.
fn put_size(record: &mut StatRecord, told: &GrantSize) {
    let (rep, written) = (&mut record.rep, Timespec::new(told.mtime, told.mtime_nsec));
    let attr = &mut rep.attr;
    (attr.size, attr.blocks) = (told.size, told.blocks);
    attr.size_state = SizeState::Clean as u32;
    rep.disposition.remove(Disposition::KEPT); // the writer keeps nothing, or would not tell
    if written != Timespec::default() {
        if written > Timespec::new(rep.mtime_set, rep.mtime_set_nsec) {
            attr.set_mtime(written);
        }
        attr.set_ctime(attr.ctime().max(written));
    }
    rep.lease_ms = 0;
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::Attr;

    #[test]
    fn a_time_that_was_set_by_hand_holds_until_a_later_write() {
        let put = |mtime_set, written| {
            let attr = Attr { mtime: 50, ctime: 60, ..Attr::default() };
            let rep = AttrRep { attr, mtime_set, lease_ms: 7, ..AttrRep::default() };
            let mut record = StatRecord { rep, ..StatRecord::default() };
            let told = GrantSize { known: 1, size: 9, mtime: written, ..GrantSize::default() };
            put_size(&mut record, &told);
            let attr = record.rep.attr;
            assert_eq!((attr.size, record.rep.lease_ms), (9, 0));
            (attr.mtime, attr.ctime)
        };
        assert_eq!(put(52, 55), (55, 60));
        assert_eq!(put(58, 55), (50, 60), "written before it was set");
        assert_eq!(put(0, 70), (70, 70));
        assert_eq!(put(0, 0), (50, 60), "no object was written");
    }
}
