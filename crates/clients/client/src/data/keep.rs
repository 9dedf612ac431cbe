//! Writes that are acknowledged before they are sent, under the WRITE bit of the file's grant.
//!
//! ```text
//! small write --bit held, room reserved--> acknowledged, kept --> sent: when the run is full, rests
//!                                                               or is old; before anything else
//!                                                               that needs the bytes
//! ```
//! Invariants
//! - A write is kept only while no other client has the file open, by the MDT's word that lasts.
//! - Kept writes of a file are sent first ([`flush`]) if this client looks at its objects or
//!   changes them in another way. They are also sent first if it closes the file for writing.
//! - A recall is acknowledged only when all kept writes are sent.
//! - Runs of a file that overlap are executed in the order in which they were kept.
//! - A write that cannot be sent is lost, and its handles report it ([`crate::lost`]).
//! - An eviction by the MDT makes handles void, but OSTs may still execute a run that is under way.
//!   [`flush`] by a newer handle of the file waits for that run too.

mod attrs;
mod brought;
pub(super) mod fresh;
mod kept_attrs;
mod room;
mod run;
mod state;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::Call;
use layout::FileLayout;
use types::{Errno, Extent, Fid, Instant, TargetId, Timespec};
use wire::body::{OstReserveRep, OstReserveReq, ReserveFlags};
use wire::{Opcode, encode_body};

pub(crate) use self::attrs::{flush_attrs, send_attrs};
pub(crate) use self::fresh::begin_flush;
use self::room::{Question, Room};
use self::run::Run;
pub use self::state::KeptStats;
use self::state::{Costs, End, Kept};
pub(crate) use self::state::{Keeper, Keeping, Pause, Reshaping};
use super::left::Left;
use super::set_id::drop_set_id;
use super::write::{Sending, write_kept};
use super::{OFFSET_MAX, layout_for_write, place};
use crate::client::{Client, Inner, mdt_of};
use crate::flags::{O_DIRECT, O_DSYNC};
use crate::handle::Open;
use crate::inode::Inode;
use crate::limits::{
    FULL_PAUSE, FULL_WAIT, KEPT_BYTES_MAX, KEPT_WRITE_BYTES, ROOM_OF_RUN, ROOM_REST, ROOM_UNIT,
};
use crate::{Error, Result, flags};

/// Room that a run takes: every unit that it touches, and what an object costs.
fn costs(layout: &FileLayout, extent: Extent) -> Costs {
    let mut costs = Costs::new();
    for piece in layout.pieces(extent) {
        let (_, ost) = place(layout, piece.stripe);
        *costs.entry(ost).or_default() += room_of(piece.object_offset, piece.len);
    }
    costs
}

/// Room that bytes of an object take.
pub(super) fn room_of(object_offset: u64, len: u64) -> u64 {
    let units = (object_offset + len).div_ceil(ROOM_UNIT) - object_offset / ROOM_UNIT;
    units * ROOM_UNIT + ROOM_OF_RUN
}

/// What is missing of that.
fn missing(whole: Costs, has: &Costs) -> Costs {
    let more = |(ost, bytes): (TargetId, u64)| {
        (ost, bytes.saturating_sub(has.get(&ost).copied().unwrap_or(0)))
    };
    whole.into_iter().map(more).filter(|(_, bytes)| *bytes > 0).collect()
}

/// Whether a write may be kept now. Nothing is awaited between this and the keeping.
fn may_keep(open: &Open, flags: u32, len: usize) -> bool {
    let inner = &open.inner;
    let is_small = len < KEPT_WRITE_BYTES && flags & (O_DIRECT | O_DSYNC) == 0;
    if !is_small || !inner.writeback.get() || open.closed.get() || open.inode.is_lost() {
        return false;
    }
    if inner.config.bugs.keep_without_grant() {
        return true;
    }
    open.inode.keeping.pauses.get() == 0
        && inner.grants.of(open.inode.fid).may_write(open.inode.fid)
}

/// Keeps a write, if it may be kept, and says so. Then `data` may be gone.
pub(super) async fn keep(
    open: &Rc<Open>,
    flags: u32,
    offset: u64,
    data: &mut Bytes,
) -> Result<bool> {
    if !may_keep(open, flags, data.len()) {
        return Ok(false);
    }
    let end = offset.checked_add(data.len() as u64).filter(|end| *end <= OFFSET_MAX);
    let extent = end.and_then(|end| Extent::new(offset, end));
    let extent = extent.ok_or_else(|| Error::local(Errno::EFBIG, "write").about(open.inode.fid))?;
    let layout = layout_for_write(open, extent.end()).await?;
    drop_set_id(open).await?;
    Ok(may_keep(open, flags, data.len()) && put(open, &layout, extent, data))
}

/// Whether the end of a file is known now, and where it is.
fn known_end(open: &Open) -> Option<u64> {
    let keeping = &open.inode.keeping;
    let recalls = open.inner.grants.of(open.inode.fid).recalls();
    let end = keeping.end.get().filter(|end| end.recalls == recalls)?;
    (keeping.reshaping.get() == 0).then_some(end.at)
}

/// A file ends at `at` by a look that began with this shape, while no other client had it open.
pub(super) fn learn_end(open: &Open, shape: u64, at: u64) {
    let keeping = &open.inode.keeping;
    let grants = open.inner.grants.of(open.inode.fid);
    let is_quiet = keeping.reshaping.get() == 0 && keeping.shape() == shape;
    if is_quiet && may_keep(open, open.flags, 1) {
        keeping.end.set(Some(End { at, recalls: grants.recalls() }));
    }
}

/// This client has just made the file, which has no byte.
pub(crate) fn is_made(open: &Open) {
    learn_end(open, open.inode.keeping.shape(), 0);
}

/// Keeps an append, if the end of the file is known; says whether it did.
pub(crate) async fn keep_append(open: &Rc<Open>, flags: u32, data: &Bytes) -> Result<bool> {
    let is_short = |end: u64| end.saturating_add(data.len() as u64) <= OFFSET_MAX;
    let end = known_end(open).filter(|end| is_short(*end));
    let Some(end) = end.filter(|_| may_keep(open, flags, data.len())) else { return Ok(false) };
    let extent = Extent::new(end, end + data.len() as u64).expect("an append has bytes");
    let layout = layout_for_write(open, extent.end()).await?;
    drop_set_id(open).await?;
    let is_there = known_end(open) == Some(end) && may_keep(open, flags, data.len());
    Ok(is_there && put(open, &layout, extent, &mut data.clone()))
}

/// Puts a write into the run of its file, or begins another one, which takes the bytes as they are.
fn put(open: &Rc<Open>, layout: &FileLayout, extent: Extent, data: &mut Bytes) -> bool {
    let (inner, inode) = (&open.inner, &open.inode);
    let (keeper, len) = (&inner.keeper, data.len());
    if keeper.bytes.get() + len > KEPT_BYTES_MAX {
        return false;
    }
    let joins = |kept: &Kept| {
        Rc::ptr_eq(&kept.open, open) && kept.run.growth(extent.start(), len).is_some()
    };
    let (is_new, costs) = {
        let kept = inode.keeping.kept.borrow();
        match kept.as_ref().filter(|kept| joins(kept)) {
            Some(kept) => {
                let whole = costs(layout, extent.hull(kept.run.extent()));
                (false, missing(whole, &kept.costs))
            }
            None => (true, costs(layout, extent)),
        }
    };
    let is_there = keeper.take(&costs);
    for ost in costs.keys() {
        inner.reserve(*ost);
    }
    if !is_there {
        keeper.count(|stats| stats.no_room += 1);
        return false;
    }
    if is_new {
        send_off(inner, inode);
    }
    let (now, mtime) = (inner.env.now(), inode.stamp(inner.env.wall()));
    inode.keeping.reaches(extent.end());
    open.wrote.set(true);
    inode.with_view(|view| view.write_begins());
    let mut kept = inode.keeping.kept.borrow_mut();
    let growth = match &mut *kept {
        Some(kept) => {
            let growth = kept.run.growth(extent.start(), len).unwrap_or(0);
            kept.run.put(extent.start(), data, mtime, now);
            for (ost, bytes) in costs {
                *kept.costs.entry(ost).or_default() += bytes;
            }
            growth
        }
        None => {
            let run = Run::new(extent.start(), std::mem::take(data), mtime, now);
            *kept = Some(Kept { run, open: open.clone(), costs });
            len
        }
    };
    let is_full = kept.as_ref().is_some_and(|kept| kept.run.is_full());
    drop(kept);
    keeper.bytes.set(keeper.bytes.get() + growth);
    keeper.count(|stats| {
        stats.writes += 1;
        stats.bytes += len as u64;
    });
    planted::reached("client: a write was acknowledged before it was sent");
    if is_full {
        send_off(inner, inode);
    } else {
        set_timer(inner, inode);
    }
    true
}

/// Sends what is kept when it is due.
fn set_timer(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    if inode.keeping.has_timer.replace(true) {
        return;
    }
    let (inner, inode) = (inner.clone(), inode.clone());
    inner.env.clone().spawn("kept writes", async move {
        loop {
            let due = inode.keeping.kept.borrow().as_ref().map(|kept| kept.run.due());
            let Some(due) = due else { break };
            if due <= inner.env.now() {
                send_off(&inner, &inode);
                break;
            }
            inner.env.sleep_until(due).await;
        }
        inode.keeping.has_timer.set(false);
    });
}

/// Begins to send what is kept of a file.
pub(crate) fn send_off(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    if let Some(leaving) = leave(inode) {
        send_leaving(inner, inode, leaving);
    }
}

/// A run under way.
struct Leaving {
    number: u64,
    open: Rc<Open>,
    extent: Extent,
    data: Bytes,
    mtime: Timespec,
    costs: Costs,
}

/// Takes what is kept of a file. It is under way until [`landed`].
fn leave(inode: &Inode) -> Option<Leaving> {
    let keeping = &inode.keeping;
    let Kept { run, open, costs } = keeping.kept.take()?;
    let (mtime, begun) = (run.mtime, run.begun());
    let (extent, data) = run.into_parts();
    let number = keeping.drawn.get() + 1;
    keeping.drawn.set(number);
    keeping.flights.borrow_mut().insert(number, (extent, begun));
    Some(Leaving { number, open, extent, data, mtime, costs })
}

/// A run of so many bytes is executed, or is lost.
fn landed(inner: &Inner, inode: &Inode, number: u64, len: usize) {
    inner.keeper.bytes.set(inner.keeper.bytes.get() - len);
    inode.keeping.flights.borrow_mut().remove(&number);
    inner.inodes.landed(inode);
    inode.keeping.landed.notify_waiters();
}

fn send_leaving(inner: &Rc<Inner>, inode: &Rc<Inode>, leaving: Leaving) {
    let (inner, inode) = (inner.clone(), inode.clone());
    inner.env.clone().spawn("sending kept writes", async move {
        let Leaving { number, open, extent, data, mtime, costs } = leaving;
        let len = data.len();
        let until = inner.give_up_at(); // those before it give up at about the same time
        its_turn(&inode.keeping, number, extent).await;
        let (left, room) = (Left::all(extent), RefCell::new(costs.clone()));
        let sending = Sending { extent, data, mtime, left, room, until };
        let sent = send(&open, &sending).await;
        inner.keeper.sent(&costs);
        inner.keeper.count(|stats| stats.runs += 1);
        if let Err(error) = sent {
            if matches!(error.errno(), Errno::EROFS) {
                inner.give_up_room(&costs);
            }
            inner.lose_kept(inode.fid, extent, &error);
        }
        landed(&inner, &inode, number, len);
    });
}

/// Returns when no earlier run of the same bytes is under way.
async fn its_turn(keeping: &Keeping, number: u64, extent: Extent) {
    loop {
        let landed = keeping.landed.notified();
        let must_wait = {
            let flights = keeping.flights.borrow();
            flights.range(..number).any(|(_, (earlier, _))| earlier.overlaps(extent))
        };
        if !must_wait {
            return;
        }
        landed.await;
    }
}

/// Sends a run. Room is reserved for it; where a disk is full in spite of that, others may be
/// giving room back.
async fn send(open: &Rc<Open>, sending: &Sending) -> Result<()> {
    let until = open.inner.env.now() + FULL_WAIT;
    loop {
        match write_kept(open, sending).await {
            Err(error)
                if matches!(error.errno(), Errno::ENOSPC) && open.inner.env.now() < until =>
            {
                tracing::debug!(%error, "a full OST does not take what is kept");
                open.inner.env.sleep(FULL_PAUSE).await;
            }
            sent => return sent,
        }
    }
}

/// Sends everything that was kept of a file until now, and returns when that is at the OSTs, or
/// lost. It also waits for what void handles of the file have under way.
pub(crate) async fn flush(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    flush_own(inner, inode).await;
    inner.orphans_landed(inode.fid).await;
}

/// The same, but it waits for no void handles. A recall and a close need not: the OSTs refuse what
/// such handles have under way before the MDT gives their rights to other handles.
async fn flush_own(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    if inode.keeping.is_clean() {
        return;
    }
    send_off(inner, inode);
    inode.keeping.all_landed().await;
}

/// Begins to send all that is kept of a file.
pub(crate) fn begin_all(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    send_attrs(inner, inode);
    send_off(inner, inode);
}

/// Returns when neither bytes nor attributes of a file are kept that were until now.
pub(crate) async fn flush_whole(inner: &Rc<Inner>, inode: &Rc<Inode>) {
    begin_all(inner, inode);
    flush_own(inner, inode).await;
    flush_attrs(inner, inode).await;
}

impl Inner {
    /// Sends all that is kept of a file that may be open here.
    pub(crate) async fn flush_whole_file(self: &Rc<Self>, fid: Fid) {
        if let Some(inode) = self.inodes.get(fid) {
            flush_whole(self, &inode).await;
        }
    }

    /// Whether anything of a file is kept, or being sent.
    pub(crate) fn has_unsent(&self, fid: Fid) -> bool {
        self.inodes.get(fid).is_some_and(|inode| inode.keeping.has_unsent())
    }

    /// Returns when all is executed or lost that void handles of a file have under way.
    async fn orphans_landed(&self, fid: Fid) {
        for orphan in self.inodes.orphans_of(fid) {
            orphan.keeping.all_landed().await;
        }
    }

    /// [`flush`] of a file that may be open here.
    pub(crate) async fn flush_file(self: &Rc<Self>, fid: Fid) {
        if let Some(inode) = self.inodes.get(fid) {
            flush_own(self, &inode).await;
        }
        self.orphans_landed(fid).await;
    }

    /// Sends what is kept of all files.
    pub(crate) async fn flush_all(self: &Rc<Self>) {
        let inodes = self.inodes.all();
        inodes.iter().for_each(|inode| begin_all(self, inode));
        for inode in inodes {
            flush_whole(self, &inode).await;
        }
        for orphan in self.inodes.orphans() {
            orphan.keeping.all_landed().await;
        }
    }

    /// Bytes that are kept or being sent, by file.
    pub(crate) fn kept_files(&self) -> BTreeMap<Fid, u64> {
        let mut files = BTreeMap::new();
        for inode in self.inodes.all().into_iter().chain(self.inodes.orphans()) {
            *files.entry(inode.fid).or_insert(0) += inode.keeping.bytes();
        }
        files.retain(|_, bytes| *bytes > 0);
        files
    }

    /// Whether something of a file is kept, or being sent.
    pub(crate) fn has_kept(&self, fid: Fid) -> bool {
        self.inodes.get(fid).is_some_and(|inode| !inode.keeping.is_clean())
            || !self.inodes.orphans_of(fid).is_empty()
    }

    /// A grant is called back: nothing of the file is kept from now on, and what is kept is sent.
    /// `give_up` is called then. A recall that came before with this number is still under way.
    pub(crate) async fn give_up_kept(
        self: &Rc<Self>,
        fid: Fid,
        number: u64,
        give_up: impl FnOnce(),
    ) {
        let Some(inode) = self.inodes.get(fid) else { return give_up() };
        if !inode.keeping.recalled.borrow_mut().insert(number) {
            return;
        }
        planted::reached("client: kept writes were called back");
        let _pause = Pause::begin(&inode);
        flush_whole(self, &inode).await;
        give_up();
        inode.keeping.recalled.borrow_mut().remove(&number);
    }

    fn lose_kept(self: &Rc<Self>, fid: Fid, extent: Extent, error: &Error) {
        let target_id = error.target().map(|target| target.name(self.config.fsname));
        let target_id = target_id.map(tracing::field::display);
        tracing::warn!(target_id, %fid, start = extent.start(), end = extent.end(), %error, "acknowledged writes that were not sent are lost");
        self.lose_file(fid);
    }

    /// Files whose handles the MDT has taken away lose what is kept of them.
    pub(crate) fn lose_kept_of(self: &Rc<Self>, mdt: u32) {
        self.lose_attrs_at(mdt);
        let inodes = self.inodes.all().into_iter().filter(|inode| inode.fid.mdt_index() == mdt);
        inodes.for_each(|inode| self.lose_kept_in(&inode));
    }

    /// The same of one file.
    pub(crate) fn lose_kept_in(self: &Rc<Self>, inode: &Inode) {
        let Some(Kept { run, costs, .. }) = inode.keeping.kept.take() else { return };
        self.keeper.give_back(&costs);
        self.keeper.bytes.set(self.keeper.bytes.get() - run.len());
        let (extent, _) = run.into_parts();
        let mdt = mdt_of(inode.fid);
        let error = Error::local(Errno::EIO, "write").about(inode.fid).by(mdt);
        self.lose_kept(inode.fid, extent, &error);
    }

    /// Asks an OST for room, if it is time.
    fn reserve(self: &Rc<Self>, ost: TargetId) {
        let wanted = self.with_room(ost, Room::wants);
        if let Some(question) = wanted {
            self.spawn_ask(ost, question, ReserveFlags::empty());
        }
    }

    fn with_room<R>(&self, ost: TargetId, look: impl FnOnce(&mut Room) -> R) -> R {
        look(self.keeper.rooms.borrow_mut().entry(ost).or_default())
    }

    fn spawn_ask(self: &Rc<Self>, ost: TargetId, question: Question, flags: ReserveFlags) {
        let inner = self.clone();
        self.env.spawn("room", async move {
            let answer = inner.ask(ost, reserve_call(question, flags)).await;
            let promised = answer.map(|answer| answer.reply.body::<OstReserveRep>().total);
            if let Err(error) = &promised {
                tracing::debug!(target_id = %ost.name(inner.config.fsname), %error, "no room is reserved");
            }
            inner.with_room(ost, |room| room.answered(question.period, promised.ok()));
            if inner.with_room(ost, Room::must_be_watched) {
                inner.watch_room(ost);
            }
        });
    }

    /// Gives room at an OST back when it rests.
    fn watch_room(self: &Rc<Self>, ost: TargetId) {
        let (weak, env) = (Rc::downgrade(self), self.env.clone());
        self.env.spawn("resting room", async move {
            loop {
                env.sleep(ROOM_REST).await;
                let Some(inner) = weak.upgrade() else { return };
                if let Some(question) = inner.with_room(ost, Room::look) {
                    inner.spawn_ask(ost, question, ReserveFlags::RELEASE);
                }
                if !inner.with_room(ost, Room::is_watched_on) {
                    return;
                }
            }
        });
    }

    /// OSTs that have become read-only: nothing is kept for them before they promise room again,
    /// so that the next write hears of it.
    fn give_up_room(&self, costs: &Costs) {
        for ost in costs.keys() {
            self.with_room(*ost, Room::give_up);
        }
    }

    /// What an OST that recovers is to promise again before anything else.
    pub(crate) fn reserve_again(&self, ost: TargetId) -> Vec<Call> {
        let owed = self.keeper.rooms.borrow_mut().get_mut(&ost).and_then(Room::begins);
        owed.map(|question| reserve_call(question, ReserveFlags::RESTATE)).into_iter().collect()
    }
}

fn reserve_call(question: Question, flags: ReserveFlags) -> Call {
    let body = OstReserveReq { total: question.total, flags, number: question.number };
    Call::new(Opcode::OstReserve, vec![encode_body(&body)]).repeatable()
}

impl Inner {
    /// Whether an open asks for the right to keep what is written.
    pub(crate) fn may_keep_writes(&self, open_flags: u32) -> bool {
        flags::can_write(open_flags)
            && open_flags & (O_DIRECT | O_DSYNC) == 0
            && self.writeback.get()
    }
}

impl Client {
    /// Whether small writes are acknowledged before they are sent.
    #[must_use]
    pub fn writeback(&self) -> bool {
        self.0.writeback.get()
    }

    /// Whether they are from now on. What is kept is sent when it is due.
    pub fn set_writeback(&self, is_on: bool) {
        self.0.writeback.set(is_on);
    }

    /// What that was good for.
    #[must_use]
    pub fn kept_stats(&self) -> KeptStats {
        self.0.keeper.stats.get()
    }

    /// Since when something of a file is kept: earlier writes are at the OSTs.
    #[must_use]
    pub fn kept_since(&self, fid: Fid) -> Option<Instant> {
        let inodes = self.0.inodes.get(fid).into_iter().chain(self.0.inodes.orphans_of(fid));
        inodes.filter_map(|inode| inode.keeping.since()).min()
    }

    /// Bytes that are acknowledged and not at the OSTs.
    #[must_use]
    pub fn kept_bytes(&self) -> usize {
        self.0.keeper.bytes.get()
    }
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use env::Env;
    use env_sim::{Sim, SimConfig};
    use types::{ClientId, Nid, Span, Transno};
    use wire::Attr;
    use wire::body::AttrRep;

    use super::*;
    use crate::MountConfig;
    use crate::stat::Stat;

    const FILE: Fid = Fid { seq: 0x2_0000_0400, oid: 1, ver: 0 };
    const BYTES: u64 = 7;
    const LATE: Span = Span::secs(1);

    /// A client that reaches no server.
    fn client(env: &Env) -> Rc<Inner> {
        let mgs = vec!["127.0.0.1:1@tcp".parse().expect("a NID")];
        let fsname = "testfs".parse().expect("a name");
        Client::prepare(env, MountConfig::new(mgs, fsname, ClientId(1))).0
    }

    /// An open handle of the file.
    fn open(inner: &Inner) -> Rc<Inode> {
        let body = AttrRep { attr: Attr::default().with_fid(FILE), ..AttrRep::default() };
        let stat = Stat::told(&body, &[], Transno::default(), "open").expect("it has no layout");
        inner.inodes.attach(&stat, flags::O_RDWR)
    }

    #[test]
    fn a_file_that_is_opened_again_waits_for_runs_of_the_handles_that_an_eviction_made_void() {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("client", Nid::default());
        let env = node.env();
        sim.block_on(&node, async move {
            let inner = client(&env);
            let void = open(&inner);
            let extent = Extent::new(0, BYTES).expect("not empty");
            void.keeping.drawn.set(1);
            void.keeping.flights.borrow_mut().insert(1, (extent, env.now()));
            inner.keeper.bytes.set(BYTES as usize);
            inner.inodes.lose(FILE.mdt_index());

            let file = open(&inner);
            assert!(!Rc::ptr_eq(&file, &void) && file.keeping.is_clean());
            assert_eq!(inner.kept_files(), BTreeMap::from([(FILE, BYTES)]));
            assert!(inner.has_kept(FILE));
            let recalled = env.timeout(LATE, flush_whole(&inner, &file)).await;
            assert!(recalled.is_some(), "a recall does not wait");
            let all = env.timeout(LATE, inner.flush_all()).await;
            assert!(all.is_none(), "an unmount waits");
            let is_synced = Rc::new(Cell::new(false));
            let (own, synced) = (inner.clone(), is_synced.clone());
            env.spawn("fsync", async move {
                flush(&own, &file).await;
                synced.set(true);
            });
            env.sleep(LATE).await;
            assert!(!is_synced.get(), "an fsync waits");

            landed(&inner, &void, 1, BYTES as usize);
            env.sleep(LATE).await;
            assert!(is_synced.get(), "it is executed, or lost");
            assert!(inner.kept_files().is_empty() && !inner.has_kept(FILE));
            assert!(inner.inodes.orphans().is_empty());
        });
    }
}
