//! Open files: handles, and which client may report how large a file is.
//!
//! Invariants
//! - A file's `writers` is the number of its handles that are open for writing.
//! - `write_epoch` of a file changes with each open for writing, with each truncate and with its
//!   end, and when several clients wrote at once. A size that was determined under another epoch
//!   may be old, or of objects that were cut in part, and is not trusted.
//! - This MDT may have begun again while a session cut a file, and know only its lock (`restated`):
//!   the end of the lock is the end of the cut.
//! - Only the one writer of an undisturbed period makes a size clean.
//! - While a session cuts the objects of a file, a size that another session has found out is not
//!   trusted: the objects may still have what is cut. A client's next session is another one: OSTs
//!   may still take what the client sent in the session before.
//! - A client does not write a file that another runs as a program, nor the reverse. A client's own
//!   kernel decides whether that client may do both.
//! - The end of a session costs what that session has, however much others have: `own` and `cuts`
//!   have each handle and each cut, and nothing else.

use std::collections::{BTreeMap, BTreeSet};

use queues::FixedMap;
use types::{ClientId, Fid};
use wire::SizeState;

use crate::limits::{IDLE_EPOCHS_MAX, OPENS_MAX, OPENS_OF_SESSION_MAX};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    pub(crate) fid: Fid,
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    pub(crate) read: bool,
    pub(crate) write: bool,
    /// It runs as a program.
    pub(crate) runs: bool,
    /// Of a directory: its client may list it whatever the mode is now, because this store is known
    /// to have given the handle.
    pub(crate) lists: bool,
}

impl OpenFile {
    fn opener(&self) -> Cutter {
        Cutter { client: self.client, session: self.session }
    }
}

/// A client that may cut the objects of files, in one of its sessions.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Cutter {
    pub(crate) client: ClientId,
    pub(crate) session: u64,
}

/// Handles of one use, and whose.
#[derive(Clone, Copy, Debug, Default)]
struct Users {
    count: u32,
    /// The one client that had any of these since there were none; `None`: several did.
    only: Option<ClientId>,
}

impl Users {
    fn enter(&mut self, client: ClientId) {
        self.only = (self.count == 0 || self.only == Some(client)).then_some(client);
        self.count += 1;
    }

    fn leave(&mut self) {
        assert!(self.count > 0, "a file counts its users");
        self.count -= 1;
    }

    /// Whether it may be another than `client`: where several were, one that is alone now has its
    /// own kernel to ask.
    fn has_other(&self, client: ClientId) -> bool {
        self.count > 0 && self.only != Some(client)
    }
}

#[derive(Clone, Copy, Debug, Default)]
struct FileState {
    handles: u32,
    /// Who has any handle.
    users: Users,
    writers: Users,
    runners: Users,
    epoch: u64,
    /// Several writers since the last time there was none.
    mixed: bool,
    /// Somebody wrote, or may have, in this period.
    wrote: bool,
    /// Whose handle for writing was closed last.
    last_writer: Option<ClientId>,
    /// State of the size before this period, where it is known.
    prior: Option<SizeState>,
    /// Who has truncated the file and not said since what its size is.
    cut_by: Option<Cutter>,
}

impl FileState {
    fn is_cut_by_another(&self, than: Cutter) -> bool {
        self.cut_by.is_some_and(|by| by != than)
    }
}

// docs/sizing.md counts with these bytes. At `OPENS_MAX`, a power of two, a table has two places
// for each entry, with a byte beside each. The tree of a client takes some 50 bytes for a handle.
const _: () = assert!(2 * (size_of::<(u64, OpenFile)>() + 1) <= 130);
const _: () = assert!(2 * (size_of::<(Fid, FileState)>() + 1) <= 550);

/// What a close means for the size.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Others write, or nobody can tell.
    StayDirty,
    /// Nobody wrote: it is what it was.
    Restore(SizeState),
    /// The closer knows it.
    Clean,
}

/// What belongs to each key; none of the sets is empty. A tree, because clients choose their ids.
type Sets<K, V> = BTreeMap<K, BTreeSet<V>>;

/// `value` belongs to `key` no longer.
fn leave<K: Ord, V: Ord>(sets: &mut Sets<K, V>, key: K, value: &V) {
    let Some(set) = sets.get_mut(&key) else { return };
    set.remove(value);
    if set.is_empty() {
        sets.remove(&key);
    }
}

/// Nobody cuts the objects of the file.
fn end_cut(cuts: &mut Sets<Cutter, Fid>, fid: Fid, file: &mut FileState) {
    if let Some(by) = file.cut_by.take() {
        leave(cuts, by, &fid);
    }
}

#[derive(Default)]
pub(crate) struct Opens {
    handles: FixedMap<u64, OpenFile>,
    files: FixedMap<Fid, FileState>,
    /// Epoch of files without a state of their own.
    base: u64,
    next_epoch: u64,
    next_handle: u64,
    /// How many handles each session has.
    held: FixedMap<u64, usize>,
    /// Handles of each client, by their files.
    own: Sets<ClientId, (Fid, u64)>,
    /// Files that each session cuts.
    cuts: Sets<Cutter, Fid>,
    /// Files whose own lock a session, the key, has stated again since the start.
    restated: Sets<u64, Fid>,
}

impl Opens {
    /// Empty; epochs and handles of this instance differ from those of all earlier ones.
    pub(crate) fn new(instance: u32) -> Opens {
        let first = u64::from(instance) << 32;
        Opens { base: first, next_epoch: first + 1, next_handle: first + 1, ..Opens::default() }
    }

    /// A fresh handle.
    pub(crate) fn draw_handle(&mut self) -> u64 {
        self.next_handle += 1;
        self.next_handle - 1
    }

    /// A fresh epoch.
    pub(crate) fn draw_epoch(&mut self) -> u64 {
        self.next_epoch += 1;
        self.next_epoch - 1
    }

    pub(crate) fn get(&self, handle: u64) -> Option<OpenFile> {
        self.handles.get(&handle).copied()
    }

    pub(crate) fn is_open(&self, fid: Fid) -> bool {
        self.files.get(&fid).is_some_and(|file| file.handles > 0)
    }

    /// Whether a session has as many handles as it may, or all together have.
    pub(crate) fn are_too_many(&self, session: u64) -> bool {
        let held = self.held.get(&session).copied().unwrap_or(0);
        held >= OPENS_OF_SESSION_MAX || self.handles.len() >= OPENS_MAX
    }

    fn count(&mut self, session: u64, change: impl FnOnce(usize) -> usize) {
        let held = self.held.entry(session).or_default();
        *held = change(*held);
        if *held == 0 {
            self.held.remove(&session);
        }
    }

    /// Whether an earlier run can have given `handle` to `client` for `fid`: none of this run, and
    /// nobody has it for anything else. Restarts leave the epochs of handles in order.
    pub(crate) fn may_have_been(&self, handle: u64, fid: Fid, client: ClientId) -> bool {
        let is_free = self.get(handle).is_none_or(|open| (open.fid, open.client) == (fid, client));
        handle >> 32 != 0 && handle >> 32 < self.base >> 32 && is_free
    }

    /// Whether this client has the directory open, by a handle that was given to it.
    pub(crate) fn may_go_on_listing(&self, dir: Fid, client: ClientId) -> bool {
        let Some(own) = self.own.get(&client) else { return false };
        let lists = |handle: &u64| self.get(*handle).is_some_and(|open| open.lists);
        own.range((dir, 0)..=(dir, u64::MAX)).any(|(_, handle)| lists(handle))
    }

    /// Whether `handle` is the only one of its file.
    pub(crate) fn is_last(&self, handle: u64) -> bool {
        self.get(handle)
            .and_then(|open| self.files.get(&open.fid))
            .is_some_and(|file| file.handles == 1)
    }

    pub(crate) fn writers(&self, fid: Fid) -> u32 {
        self.files.get(&fid).map_or(0, |file| file.writers.count)
    }

    /// Whether a client other than this one has the file open for writing.
    pub(crate) fn another_writes(&self, fid: Fid, client: ClientId) -> bool {
        self.files.get(&fid).is_some_and(|file| file.writers.has_other(client))
    }

    /// The client with the one handle for writing, if there was no other since there were none: its
    /// word counts at a close, and so it counts before.
    pub(crate) fn only_writer(&self, fid: Fid) -> Option<ClientId> {
        let file = self.files.get(&fid)?;
        let is_alone = file.writers.count == 1 && !file.mixed;
        if is_alone { file.writers.only } else { None }
    }

    /// Whether a client other than this one has the file open, or may have.
    pub(crate) fn another_has(&self, fid: Fid, client: ClientId) -> bool {
        self.files.get(&fid).is_some_and(|file| file.users.has_other(client))
    }

    /// Whether a client other than this one runs the file.
    pub(crate) fn another_runs(&self, fid: Fid, client: ClientId) -> bool {
        self.files.get(&fid).is_some_and(|file| file.runners.has_other(client))
    }

    /// The client that closed a handle for writing last, where that is remembered.
    pub(crate) fn last_writer(&self, fid: Fid) -> Option<ClientId> {
        self.files.get(&fid).and_then(|file| file.last_writer)
    }

    /// Guards a size that comes back later.
    pub(crate) fn write_epoch(&self, fid: Fid) -> u64 {
        self.files.get(&fid).map_or(self.base, |file| file.epoch)
    }

    /// Handles of a session.
    pub(crate) fn of_session(&self, client: ClientId, session: u64) -> Vec<u64> {
        let own = self.own.get(&client).into_iter().flatten().map(|(_, handle)| *handle);
        let is_its = |handle: &u64| self.get(*handle).is_some_and(|open| open.session == session);
        let mut handles: Vec<_> = own.filter(is_its).collect();
        handles.sort_unstable();
        handles
    }

    pub(crate) fn len(&self) -> usize {
        self.handles.len()
    }

    /// `handle` is open; `epoch` where it writes; `prior`: state of the size before.
    pub(crate) fn open(
        &mut self,
        handle: u64,
        open: OpenFile,
        epoch: Option<u64>,
        prior: Option<SizeState>,
    ) {
        self.next_handle = self.next_handle.max(handle + 1);
        if let Some(before) = self.handles.get_mut(&handle) {
            assert_eq!(
                (before.fid, before.client),
                (open.fid, open.client),
                "a handle names one open for ever"
            );
            let of = before.session;
            let (write, runs) = (before.write, before.runs); // its file counts it as that
            let lists = before.lists || open.lists;
            *before = OpenFile { write, runs, lists, ..open };
            self.count(of, |held| held - 1);
            self.count(open.session, |held| held + 1);
            return;
        }
        self.handles.insert(handle, open);
        self.own.entry(open.client).or_default().insert((open.fid, handle));
        self.count(open.session, |held| held + 1);
        let base = self.base;
        let file =
            self.files.entry(open.fid).or_insert(FileState { epoch: base, ..FileState::default() });
        file.handles += 1;
        file.users.enter(open.client);
        if let Some(epoch) = epoch {
            if file.writers.count == 0 {
                (file.mixed, file.wrote, file.prior) = (false, false, prior);
            } else {
                file.mixed = true;
            }
            file.writers.enter(open.client);
            file.epoch = epoch;
        }
        if open.runs {
            file.runners.enter(open.client);
        }
        assert!(file.writers.count <= file.handles, "every writer has a handle");
    }

    /// What a close of `handle` with these words means.
    pub(crate) fn judge(&self, handle: u64, wrote: bool, size_epoch: Option<u64>) -> Verdict {
        let Some(open) = self.get(handle).filter(|open| open.write) else {
            return Verdict::StayDirty;
        };
        let file = self.files[&open.fid];
        if file.writers.count > 1 || file.is_cut_by_another(open.opener()) {
            return Verdict::StayDirty;
        }
        match file.prior {
            Some(prior) if !wrote && !file.wrote => Verdict::Restore(prior),
            _ if size_epoch == Some(file.epoch) && !file.mixed => Verdict::Clean,
            _ => Verdict::StayDirty,
        }
    }

    /// `handle` is closed. `wrote`: it wrote, or may have. `cleaned`: its verdict made the size
    /// clean.
    pub(crate) fn close(&mut self, handle: u64, wrote: bool, cleaned: bool) {
        let Some(open) = self.handles.remove(&handle) else { return };
        leave(&mut self.own, open.client, &(open.fid, handle));
        self.count(open.session, |held| held - 1);
        let fresh = self.draw_epoch();
        let file = self.files.get_mut(&open.fid).expect("an open file has a state");
        assert!(file.handles > 0, "a file counts its handles");
        file.handles -= 1;
        file.users.leave();
        if open.write {
            file.writers.leave();
            file.wrote |= wrote;
            file.last_writer = Some(open.client);
            if file.mixed || !cleaned {
                file.epoch = fresh;
            }
            if cleaned {
                end_cut(&mut self.cuts, open.fid, file);
            }
            file.mixed &= file.writers.count > 0;
        }
        if open.runs {
            file.runners.leave();
        }
        assert!(file.writers.count <= file.handles, "every writer has a handle");
        let idle = file.handles == 0;
        if idle && (cleaned || file.epoch == self.base) {
            end_cut(&mut self.cuts, open.fid, file);
            self.files.remove(&open.fid);
        }
        self.bound();
    }

    /// The size is to be asked from the OSTs, from now on.
    pub(crate) fn dirtied(&mut self, fid: Fid, epoch: u64) {
        let file = self.files.entry(fid).or_default();
        file.epoch = epoch;
        file.prior = None;
        self.bound();
    }

    /// The size is known and nobody writes, or the file is gone.
    pub(crate) fn cleaned(&mut self, fid: Fid) {
        let Some(file) = self.files.get_mut(&fid) else { return };
        end_cut(&mut self.cuts, fid, file);
        if file.handles == 0 {
            self.files.remove(&fid);
        }
    }

    /// A client has truncated the file, and cuts its objects now.
    pub(crate) fn cut(&mut self, fid: Fid, by: Cutter) {
        if let Some(file) = self.files.get_mut(&fid) {
            end_cut(&mut self.cuts, fid, file);
            file.cut_by = Some(by);
            self.cuts.entry(by).or_default().insert(fid);
        }
    }

    /// The objects of the file are cut, if it was this session that did so.
    pub(crate) fn cut_ended(&mut self, fid: Fid, by: Cutter) {
        let fresh = self.draw_epoch();
        if let Some(file) = self.files.get_mut(&fid)
            && file.cut_by == Some(by)
        {
            end_cut(&mut self.cuts, fid, file);
            file.epoch = fresh;
        }
    }

    /// A session holds the file's own lock since before the start, and may be cutting it.
    pub(crate) fn lock_restated(&mut self, session: u64, fid: Fid) {
        self.restated.entry(session).or_default().insert(fid);
    }

    /// A session holds the file's own lock no more.
    pub(crate) fn lock_ended(&mut self, session: u64, fid: Fid) {
        if self.restated.get(&session).is_some_and(|files| files.contains(&fid)) {
            leave(&mut self.restated, session, &fid);
            let fresh = self.draw_epoch();
            self.files.entry(fid).or_default().epoch = fresh;
            self.bound();
        }
    }

    /// A session is over: OSTs refuse what was not sent in it. Returns the files that its client
    /// was about to cut.
    pub(crate) fn cuts_ended(&mut self, by: Cutter) -> Vec<Fid> {
        let ended: Vec<Fid> = self.cuts.remove(&by).into_iter().flatten().collect();
        for fid in &ended {
            let fresh = self.draw_epoch();
            let file = self.files.get_mut(fid).expect("a file that is cut has a state");
            (file.cut_by, file.epoch) = (None, fresh);
        }
        for fid in self.restated.get(&by.session).cloned().unwrap_or_default() {
            self.lock_ended(by.session, fid);
        }
        ended
    }

    /// Whether another session than this one may be cutting the objects of the file.
    pub(crate) fn is_cut_by_another(&self, fid: Fid, than: Cutter) -> bool {
        self.files.get(&fid).is_some_and(|file| file.is_cut_by_another(than))
    }

    /// Forgets the epochs of files that nobody has open, when there are too many: all their sizes
    /// under way are refused.
    fn bound(&mut self) {
        if self.files.len() > IDLE_EPOCHS_MAX + self.handles.len() {
            let cuts = &mut self.cuts;
            self.files.retain(|fid, file| {
                let is_open = file.handles > 0;
                if !is_open {
                    end_cut(cuts, *fid, file);
                }
                is_open
            });
            self.base = self.draw_epoch();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn file(client: u128) -> OpenFile {
        let (client, session) = (ClientId(client), 1);
        let (write, runs, lists) = (false, false, true);
        OpenFile { fid: Fid::ROOT, client, session, read: true, write, runs, lists }
    }

    fn open(opens: &mut Opens, client: u128, write: bool) -> (u64, u64) {
        let file = OpenFile { write, ..file(client) };
        let (handle, epoch) = (opens.draw_handle(), opens.draw_epoch());
        opens.open(handle, file, write.then_some(epoch), Some(SizeState::NeverWritten));
        (handle, epoch)
    }

    #[test]
    fn the_only_writer_knows_the_size() {
        let mut opens = Opens::new(1);
        let (a, epoch) = open(&mut opens, 1, true);
        assert_eq!(opens.judge(a, true, Some(epoch)), Verdict::Clean);
        assert_eq!(opens.judge(a, true, None), Verdict::StayDirty);
        assert_eq!(opens.judge(a, false, None), Verdict::Restore(SizeState::NeverWritten));
        opens.close(a, true, true);
        assert_eq!((opens.len(), opens.files.len()), (0, 0));
    }

    #[test]
    fn two_writers_leave_the_size_dirty_until_somebody_asks() {
        let mut opens = Opens::new(1);
        let (a, first) = open(&mut opens, 1, true);
        let (b, second) = open(&mut opens, 2, true);
        assert_eq!(opens.judge(a, true, Some(first)), Verdict::StayDirty);
        opens.close(a, true, false);
        assert_eq!(
            opens.judge(b, true, Some(second)),
            Verdict::StayDirty,
            "a wrote while b had it open"
        );
        opens.close(b, true, false);
        assert!(opens.write_epoch(Fid::ROOT) > second, "what b knows is old");
        opens.cleaned(Fid::ROOT);
        assert_eq!(opens.write_epoch(Fid::ROOT), opens.base);
    }

    #[test]
    fn a_session_has_so_many_handles_and_all_together_so_many() {
        let mut opens = Opens::new(2);
        let file = |session| OpenFile { session, ..file(1) };
        let mut handles = Vec::new();
        for _ in 0..OPENS_OF_SESSION_MAX {
            assert!(!opens.are_too_many(7));
            handles.push(opens.draw_handle());
            opens.open(handles[handles.len() - 1], file(7), None, None);
        }
        assert!(opens.are_too_many(7) && !opens.are_too_many(8));
        opens.open(handles[0], file(8), None, None);
        assert!(!opens.are_too_many(7), "its client goes on with it in another session");
        handles.iter().for_each(|handle| opens.close(*handle, false, false));
        assert_eq!((opens.held.len(), opens.len()), (0, 0));
    }

    #[test]
    fn a_program_is_not_written_by_others_than_who_runs_it() {
        let (mut opens, mut handles) = (Opens::new(1), Vec::new());
        let mut run = |opens: &mut Opens, client| {
            handles.push(opens.draw_handle());
            let program = OpenFile { runs: true, ..file(client) };
            opens.open(handles[handles.len() - 1], program, None, None);
            handles[handles.len() - 1]
        };
        let runs = |opens: &Opens, client| opens.another_runs(Fid::ROOT, ClientId(client));
        let writes = |opens: &Opens, client| opens.another_writes(Fid::ROOT, ClientId(client));
        let first = run(&mut opens, 1);
        let second = run(&mut opens, 1);
        assert_eq!((runs(&opens, 1), runs(&opens, 2)), (false, true));
        opens.close(first, false, false);
        assert!(runs(&opens, 2), "once more");
        let other = run(&mut opens, 2);
        assert!(runs(&opens, 1) && runs(&opens, 2));
        opens.close(second, false, false);
        assert!(runs(&opens, 1));
        opens.close(other, false, false);
        assert!(!runs(&opens, 1) && !runs(&opens, 2));

        let (writer, _) = open(&mut opens, 1, true);
        assert_eq!((writes(&opens, 1), writes(&opens, 2)), (false, true));
        opens.close(writer, true, false);
        assert!(!writes(&opens, 2));
    }

    #[test]
    fn nobody_wrote_though_two_could_have() {
        let mut opens = Opens::new(1);
        let (a, _) = open(&mut opens, 1, true);
        let (b, _) = open(&mut opens, 2, true);
        opens.close(a, false, false);
        assert_eq!(opens.judge(b, false, None), Verdict::Restore(SizeState::NeverWritten));
    }

    #[test]
    fn the_end_of_a_session_ends_no_cut_of_its_clients_next_one() {
        let mut opens = Opens::new(1);
        let [before, next] = [1, 2].map(|session| Cutter { client: ClientId(1), session });
        let other = Cutter { client: ClientId(2), session: 3 };
        let fresh = opens.draw_epoch();
        opens.dirtied(Fid::ROOT, fresh);
        opens.cut(Fid::ROOT, next);
        opens.cuts_ended(before);
        assert!(opens.is_cut_by_another(Fid::ROOT, other));
        opens.cut_ended(Fid::ROOT, before);
        assert!(opens.is_cut_by_another(Fid::ROOT, before), "a late word of the session before");
        assert!(!opens.is_cut_by_another(Fid::ROOT, next));
        opens.cuts_ended(next);
        assert!(!opens.is_cut_by_another(Fid::ROOT, other));
    }

    /// What a walk over all handles and all files finds.
    fn check_indexes(opens: &Opens) {
        let mut own: Sets<ClientId, (Fid, u64)> = Sets::new();
        for (handle, open) in &opens.handles {
            own.entry(open.client).or_default().insert((open.fid, *handle));
            assert!(opens.of_session(open.client, open.session).contains(handle));
            assert!(opens.may_go_on_listing(open.fid, open.client));
        }
        assert_eq!(opens.own, own);
        let mut cuts: Sets<Cutter, Fid> = Sets::new();
        for (fid, file) in &opens.files {
            if let Some(by) = file.cut_by {
                cuts.entry(by).or_default().insert(*fid);
            }
        }
        assert_eq!(opens.cuts, cuts);
    }

    #[test]
    fn what_belongs_to_a_session_is_known_through_all_changes() {
        let (mut opens, mut chance) = (Opens::new(1), types::SplitMix64::new(3));
        for _ in 0..5_000 {
            let client = chance.below(3);
            let session = 2 * client + chance.below(2);
            let by = Cutter { client: ClientId(u128::from(client)), session };
            let fid = Fid::new(1, chance.below(4) as u32 + 1);
            let is_odd = chance.below(2) == 1;
            let any = opens.handles.keys().copied().nth(chance.below(8) as usize);
            match (chance.below(10), any) {
                (0..=3, _) => {
                    let (handle, epoch) = (opens.draw_handle(), opens.draw_epoch());
                    let (client, write) = (by.client, is_odd);
                    let open = OpenFile { fid, client, session, write, ..file(1) };
                    opens.open(handle, open, write.then_some(epoch), None);
                }
                (4, Some(any)) => {
                    let open = opens.get(any).expect("it is open");
                    let next = OpenFile { session: open.session ^ 1, ..open };
                    opens.open(any, next, None, None);
                }
                (5 | 6, Some(any)) => opens.close(any, true, is_odd),
                (7, _) => {
                    let epoch = opens.draw_epoch();
                    opens.dirtied(fid, epoch);
                    opens.cut(fid, by);
                }
                (8, _) if is_odd => opens.cut_ended(fid, by),
                (8, _) => opens.cleaned(fid),
                (9, _) => {
                    for handle in opens.of_session(by.client, session) {
                        opens.close(handle, true, false);
                    }
                    opens.cuts_ended(by);
                    assert!(opens.handles.values().all(|open| open.opener() != by));
                    assert!(opens.files.values().all(|file| file.cut_by != Some(by)));
                }
                _ => {}
            }
            check_indexes(&opens);
        }
    }

    #[test]
    fn files_that_are_forgotten_are_cut_by_nobody() {
        let mut opens = Opens::new(1);
        let by = Cutter { client: ClientId(1), session: 1 };
        for oid in 0..=IDLE_EPOCHS_MAX as u32 {
            let (fid, epoch) = (Fid::new(1, oid + 1), opens.draw_epoch());
            opens.dirtied(fid, epoch);
            opens.cut(fid, by);
        }
        assert_eq!((opens.files.len(), opens.cuts.len()), (0, 0));
        assert!(opens.cuts_ended(by).is_empty());
    }

    #[test]
    fn what_was_seen_during_a_cut_is_old_after_it() {
        let mut opens = Opens::new(1);
        let by = Cutter { client: ClientId(1), session: 1 };
        let ends: [fn(&mut Opens, Cutter); 2] =
            [|opens, by| opens.cut_ended(Fid::ROOT, by), |opens, by| drop(opens.cuts_ended(by))];
        for end in ends {
            let during = opens.draw_epoch();
            opens.dirtied(Fid::ROOT, during);
            opens.cut(Fid::ROOT, by);
            end(&mut opens, by);
            assert_ne!(opens.write_epoch(Fid::ROOT), during);
        }
    }

    #[test]
    fn what_was_seen_under_a_lock_of_the_run_before_is_old_after_it() {
        let by = Cutter { client: ClientId(1), session: 1 };
        let ends: [fn(&mut Opens, Cutter); 2] = [
            |opens, by| opens.lock_ended(by.session, Fid::ROOT),
            |opens, by| drop(opens.cuts_ended(by)),
        ];
        for end in ends {
            let mut opens = Opens::new(2);
            opens.lock_restated(by.session, Fid::ROOT);
            let during = opens.write_epoch(Fid::ROOT);
            opens.lock_ended(by.session + 1, Fid::ROOT);
            assert_eq!(opens.write_epoch(Fid::ROOT), during, "of another session");
            end(&mut opens, by);
            assert_ne!(opens.write_epoch(Fid::ROOT), during);
            assert!(opens.restated.is_empty());
            let after = opens.write_epoch(Fid::ROOT);
            opens.lock_ended(by.session, Fid::ROOT);
            assert_eq!(opens.write_epoch(Fid::ROOT), after, "of a lock of this run");
        }
    }

    #[test]
    fn a_truncate_makes_what_was_known_old() {
        let mut opens = Opens::new(1);
        let (a, epoch) = open(&mut opens, 1, true);
        let fresh = opens.draw_epoch();
        opens.dirtied(Fid::ROOT, fresh);
        assert_eq!(opens.judge(a, true, Some(epoch)), Verdict::StayDirty);
        assert_eq!(opens.judge(a, false, None), Verdict::StayDirty);
        assert_eq!(opens.judge(a, true, Some(fresh)), Verdict::Clean);
    }
}
