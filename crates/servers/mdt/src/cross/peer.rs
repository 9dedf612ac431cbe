//! Requests of other MDTs: keys that an operation wants reserved, parts to execute, operations that
//! a recovering MDT asks for, and operations that are over.

use std::collections::BTreeSet;
use std::rc::Rc;

use bytes::Bytes;
use env::LocalFuture;
use layout::dir::Stripes;
use ldlm::grants::{Bits, ChangeId, HolderId, Want as WantedBits};
use osd::{StoreError, Table, View};
use service::Incoming;
use target::{Decided, OpError};
use types::{ClientId, Errno, Fid, Instance, MDTS_MAX, TargetId};
use wire::body::{StatfsState, SyncRep};
use wire::updates::{
    self, Done, Fact, Key, Named, OpId, Own, Prepare, Question, Record, Round, Update, Want,
};
use wire::{Reply, Request, encode_body};

use super::Claim;
use crate::grants::ATTRS;
use crate::keys::{self, LMV};
use crate::limits::{FORGET_FULL_MAX, FORGET_MAX, FORGET_PAUSE, HELD_WAIT, RECORDS_BYTES_MAX};
use crate::perm::ACL_ACCESS;
use crate::record::{DirentRecord, INODE_HAS_ACL, INODE_MOVES, Inode};
use crate::share::ShareKey;
use crate::target::Mdt;

/// Where [`wire::Opcode::MdtPrepare`] names the client that keeps its grants of directories.
pub(super) const KEEPER_BUF: usize = 5;

/// What a step of a preparation came to.
enum Step {
    Ready(Vec<Fact>),
    /// Grants are called back first.
    Recalling,
    /// Another operation has reserved a key.
    Held,
}

/// Serves [`wire::Opcode::MdtPrepare`].
pub(crate) fn prepare<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async move {
        let ask: Prepare = asked(incoming)?;
        let here = mdt.engine.config.index;
        let is_own = |want: &Want| want.key.mdt() == here;
        let is_ours = is_another(ask.id.mdt, here) && ask.wants.iter().all(is_own);
        if !is_ours || ask.wants.len() > updates::KEYS_MAX {
            return Err(Errno::EPROTO);
        }
        if mdt.is_forgotten(ask.id.mdt) {
            return Err(Errno::ESTALE);
        }
        let flag = |at| updates::decode::<bool>(&incoming.request.buf(at)).unwrap_or_default();
        let (is_check, goes_on) = (flag(3), flag(4));
        if is_check && mdt.deliveries.is_owed() {
            return Err(Errno::EBUSY); // for longer than a key is waited for
        }
        if !is_check && !goes_on && is_closed_for(mdt, &ask.wants) {
            mdt.free_here(ask.id); // an earlier try may have reserved them
            return Err(Errno::EROFS);
        }
        mdt.note_peer(ask.id.mdt).await?;
        let prepared = reserve_with_room(mdt, incoming, &ask).await;
        let mut prepared = prepared.and_then(|(facts, is_full)| Ok((fitting(&facts)?, is_full)));
        if mdt.is_forgotten(ask.id.mdt) {
            prepared = Err(Errno::ESTALE); // meanwhile, and what it reserved may have been freed
        }
        if prepared.is_err() {
            mdt.free_here(ask.id);
        }
        let (body, is_full) = prepared?;
        let bufs = vec![Bytes::new(), body.into(), updates::encode(&is_full).into()];
        Ok(Reply::ok(&incoming.request.header, bufs))
    })
}

/// Whether this MDT is read-only, and an operation that begins would change something here. A new
/// file is refused in another way (EREMOTEIO), because another MDT may take it.
fn is_closed_for(mdt: &Mdt, wants: &[Want]) -> bool {
    let changes = |want: &Want| want.changes && !matches!(want.key, Key::New(..));
    let has_part = wants.is_empty() || wants.iter().any(changes);
    has_part && mdt.engine.marks.has(StatfsState::READ_ONLY)
}

/// Reserves keys; says whether this MDT is full for an operation that may add something. A new file
/// is refused then (ENOSPC), because it adds something in any case.
async fn reserve_with_room(
    mdt: &Mdt,
    incoming: &Incoming,
    ask: &Prepare,
) -> Result<(Vec<Fact>, bool), Errno> {
    let makes = ask.wants.iter().any(|want| matches!(want.key, Key::New(..)));
    let may_add = updates::decode::<bool>(&incoming.request.buf(2)).unwrap_or_default();
    let incoming = Some(incoming);
    match reserve(mdt, incoming, ask, makes || may_add).await {
        Err(Errno::ENOSPC) if !makes => Ok((reserve(mdt, incoming, ask, false).await?, true)),
        reserved => Ok((reserved?, false)),
    }
}

/// Facts as they travel. Access lists make them long.
fn fitting(facts: &[Fact]) -> Result<Vec<u8>, Errno> {
    let body = updates::encode(&facts);
    if body.len() <= updates::RECORD_BYTES_MAX { Ok(body) } else { Err(Errno::E2BIG) }
}

/// Reserves keys. ENOSPC: room is needed, and there is none.
async fn reserve(
    mdt: &Mdt,
    incoming: Option<&Incoming>,
    ask: &Prepare,
    needs_room: bool,
) -> Result<Vec<Fact>, Errno> {
    let changing = mdt.recalls.change();
    let keeper = incoming.and_then(|incoming| keeper(mdt, incoming));
    let until = mdt.env.now() + HELD_WAIT;
    loop {
        let freed = mdt.guests.freed.notified();
        let attempt = || {
            if needs_room && mdt.engine.store.meta().is_full()? {
                return Err(StoreError::Full.into());
            }
            step(mdt, incoming, ask, changing.id, keeper)
        };
        let step = mdt.persist(attempt).await?;
        match step {
            Step::Ready(facts) => return Ok(facts),
            Step::Recalling => {
                if let Some(incoming) = incoming {
                    incoming.park();
                }
                changing.ready(|_names| {}).await;
            }
            Step::Held => {
                if let Some(incoming) = incoming {
                    incoming.step_aside();
                }
                if mdt.env.timeout_at(until, freed).await.is_none() {
                    return Err(Errno::EAGAIN);
                }
            }
        }
    }
}

/// The client for which the operation is done and its session here, if it counts the change of
/// directories itself.
fn keeper(mdt: &Mdt, incoming: &Incoming) -> Option<(ClientId, HolderId)> {
    let client = ClientId(updates::decode(&incoming.request.buf(KEEPER_BUF))?);
    Some((client, HolderId(mdt.exports.session_of(client)?.id)))
}

fn step(
    mdt: &Mdt,
    incoming: Option<&Incoming>,
    ask: &Prepare,
    change: ChangeId,
    keeper: Option<(ClientId, HolderId)>,
) -> Decided<Step> {
    let view = mdt.engine.store.meta().running()?;
    let mut guard = mdt.engine.state.borrow_mut();
    let state = &mut *guard;
    let is_ended = incoming.is_some_and(|incoming| incoming.session.is_ended());
    if state.crossed.is_over(ask.id) || is_ended {
        return Err(Errno::ESTALE.into());
    }
    let hash = |name: &[u8]| state.hash_key.name(name);
    let claims: Vec<Claim> = ask.wants.iter().filter_map(|want| claim(want, hash)).collect();
    let bugs = mdt.engine.config.bugs;
    if !bugs.reserve_nothing() && !state.crossed.reserved.reserve(ask.id, &claims) {
        return Ok(Step::Held);
    }
    let is_uncommitted = |(key, _): &Claim| state.share.is_uncommitted(key);
    if claims.iter().any(is_uncommitted) && !bugs.prepare_uncommitted() {
        return Err(OpError::CommitFirst);
    }
    let mut facts = Vec::with_capacity(ask.wants.len());
    for want in &ask.wants {
        facts.push(match &want.key {
            Key::New(..) => Fact::Absent, // drawn when nothing is in the way
            key => fact(&*view, key, hash_of(state, key))?,
        });
    }
    let is_called_back = |want: &Want| want.changes && !bugs.prepare_without_recall();
    let changed = ask.wants.iter().zip(&facts).filter(|(want, _)| is_called_back(want));
    let wants: Vec<_> = changed.flat_map(|(want, fact)| wanted_bits(want, fact)).collect();
    mdt.guests.hold(ask.id, &wants, &mut state.grants);
    let clock = mdt.env.now();
    // of files its client must forget all names and attributes, as any other
    let keeper = keeper.filter(|_| wants.iter().all(|want| want.bits == Bits::UPDATE));
    let timed = wants.iter().filter_map(|want| match keeper {
        Some((client, _)) => state.grants.blocks(want.fid, client, clock),
        None => state.grants.blocks_all(want.fid, clock),
    });
    if let Some(end) = timed.max().max(state.grants.inherited(clock)) {
        return Err(OpError::LeasedUntil(end));
    }
    let heard = |session| mdt.recalls.heard(session);
    let is_free = match keeper {
        Some((_, holder)) => state.grants.begin(change, holder.0, || wants, &heard, clock),
        None => state.grants.begin_for_all(change, || wants, &heard, clock),
    };
    if !is_free {
        return Ok(Step::Recalling);
    }
    for (want, fact) in ask.wants.iter().zip(&mut facts) {
        if let Key::New(..) = want.key {
            let takes_none = StatfsState::NO_CREATE | StatfsState::READ_ONLY;
            if state.marks.all().intersects(takes_none) {
                return Err(Errno::EREMOTEIO.into());
            }
            *fact = Fact::New(loop {
                let fid = state.draw_fid()?;
                // a client may learn of the file before it is here
                let claims = [(ShareKey::Inode(fid), true)];
                if bugs.reserve_nothing() || state.crossed.reserved.reserve(ask.id, &claims) {
                    break fid; // otherwise a client has guessed it
                }
            });
        }
    }
    if ask.id.mdt != state.crossed.here {
        state.crossed.reserved.promise(ask.id);
    }
    Ok(Step::Ready(facts))
}

fn hash_of(state: &crate::state::State, key: &Key) -> u64 {
    match key {
        Key::Name(place) => state.hash_key.name(&place.name),
        _ => 0,
    }
}

fn claim(want: &Want, hash: impl Fn(&[u8]) -> u64) -> Option<Claim> {
    let key = match &want.key {
        Key::Inode(fid) => ShareKey::Inode(*fid),
        Key::Empty(fid) => ShareKey::Contents(*fid),
        Key::Name(place) => ShareKey::Entry(place.dir, hash(&place.name)),
        Key::New(..) => return None,
    };
    Some((key, want.changes))
}

/// The key that an update of this MDT changes. Sizes and times of directories commute.
fn wanted(update: &Update) -> Option<Want> {
    let key = match update {
        Update::Enter { at, .. } | Update::Leave { at, .. } | Update::Repoint { at, .. } => {
            Key::Name(at.clone())
        }
        Update::Named(Named { fid, .. })
        | Update::Own(Own { fid, .. })
        | Update::Stripe { fid, .. }
        | Update::Rehome { fid, .. } => Key::Inode(*fid),
        Update::Touch { .. } | Update::Size { .. } | Update::Make(_) => return None,
    };
    Some(Want { key, changes: true })
}

/// Grants that must not be out while a key changes. A name is granted with the file that it leads
/// to, wherever that file is.
fn wanted_bits(want: &Want, fact: &Fact) -> Vec<WantedBits> {
    match &want.key {
        Key::Inode(fid) => vec![WantedBits { fid: *fid, bits: ATTRS | Bits::LOOKUP }],
        Key::Name(place) => {
            let names = WantedBits { fid: place.dir, bits: Bits::UPDATE };
            let child = match fact {
                Fact::Name { child, .. } => Some(WantedBits { fid: *child, bits: Bits::LOOKUP }),
                _ => None,
            };
            child.into_iter().chain([names]).collect()
        }
        Key::Empty(_) | Key::New(..) => Vec::new(),
    }
}

/// The state of a key.
fn fact(view: &dyn View, key: &Key, hash: u64) -> Decided<Fact> {
    match key {
        Key::Inode(fid) => inode(view, *fid),
        Key::Name(place) => {
            let (from, mut found) = (keys::dirent(place.dir, hash << 16), Ok(Fact::Absent));
            view.scan_within((Table::Dirents, keys::of_hash(&from)), &from, &mut |_, value| {
                match DirentRecord::decode(value) {
                    None => found = Err(OpError::Broken("directory entry")),
                    Some(record) if record.name == place.name => {
                        let DirentRecord { fid: child, file_type, .. } = record;
                        found = Ok(Fact::Name { child, file_type });
                    }
                    Some(_) => return true,
                }
                false
            })?;
            found
        }
        Key::Empty(fid) => {
            let (prefix, mut empty) = (fid.to_key(), true);
            view.scan_within((Table::Dirents, &prefix), &prefix, &mut |_, _| {
                empty = false;
                false
            })?;
            Ok(Fact::Empty(empty))
        }
        Key::New(..) => Ok(Fact::Absent),
    }
}

fn inode(view: &dyn View, fid: Fid) -> Decided<Fact> {
    let Some(record) = view.get(Table::Inodes, &fid.to_key())? else { return Ok(Fact::Absent) };
    let inode = Inode::decode(&record).ok_or(OpError::Broken("inode"))?;
    let stored = |name: &[u8]| view.get(Table::Xattrs, &keys::xattr(fid, name));
    let acl = if inode.has(INODE_HAS_ACL) { stored(ACL_ACCESS)? } else { None };
    let is_striped =
        inode.attr.flags.contains(wire::attr::AttrFlags::STRIPED) || inode.has(INODE_MOVES);
    let stripes = if is_striped { stored(LMV)? } else { None };
    let (acl, stripes) = (acl.unwrap_or_default(), stripes.unwrap_or_default());
    Ok(Fact::Inode { record, acl, stripes })
}

/// Serves [`wire::Opcode::MdtUpdate`].
pub(crate) fn update<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async move {
        let record: Record = asked(incoming)?;
        if !is_sound(&record, mdt.engine.config.index) {
            return Err(Errno::EPROTO);
        }
        mdt.replays_over(incoming).await?;
        let is_passed_on: bool = updates::decode(&incoming.request.buf(2)).unwrap_or_default();
        if mdt.is_forgotten(record.id.mdt) {
            if !is_passed_on {
                return Err(Errno::ESTALE); // all others decide without it what has happened
            }
            if !mdt.engine.state.borrow().crossed.has(record.id) {
                mdt.note_peer(record.id.mdt).await?; // the record goes as others do
            }
        }
        // a later run of its coordinator decides without it what has happened
        let (of, session) = (record.id.mdt, incoming.session.id);
        let is_void = || !is_passed_on && mdt.deliveries.has_asked_since(of, session);
        mdt.take_part(&record, &is_void).await?;
        let last_committed = mdt.exports.last_assigned().0;
        let body = SyncRep { last_committed, reserved: 0 };
        Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
    })
}

/// Serves [`wire::Opcode::MdtUpdates`].
pub(crate) fn list<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async move {
        // the asked one takes the next instance from its own words, because it may be new here
        let first = || asked(incoming).map(|question: Question| (question, Round::First));
        let (question, round): (Question, Round) = asked(incoming).or_else(|_| first())?;
        let (of, from, instance) = question;
        if !is_another(of, mdt.engine.config.index) {
            return Err(Errno::EPROTO);
        }
        match round {
            Round::First => mdt.replays_over(incoming).await?,
            Round::Last => mdt.all_gathered(incoming).await?,
        }
        mdt.deliveries.asked(of, Instance(instance), incoming.session.id);
        let read = || records(&*mdt.engine.store.meta().running()?, of, from);
        let found = mdt.persist(read).await?;
        let body: Bytes = updates::encode(&found).into();
        Ok(Reply::ok(&incoming.request.header, vec![Bytes::new(), body]))
    })
}

/// Records with a part of an MDT, behind an operation; as many as fit a reply. A longer one is in a
/// reply of its own. Those before one that cannot be read come first.
pub(super) fn records(view: &dyn View, of: u32, from: Option<OpId>) -> Decided<Vec<Record>> {
    let start = from.map_or(vec![0], |id| [&id.to_key()[..], &[0]].concat());
    let (mut found, mut bytes, mut is_broken) = (Vec::new(), 0, false);
    let scanned = view.scan(Table::Updates, &start, &mut |_, value| {
        let record: Option<Record> = updates::decode(value);
        is_broken = record.is_none();
        let Some(record) = record.filter(|record| record.part(of).is_some()) else {
            return !is_broken;
        };
        bytes += value.len();
        let fits = found.is_empty() || bytes <= RECORDS_BYTES_MAX;
        found.extend(Some(record).filter(|_| fits));
        bytes < RECORDS_BYTES_MAX
    });
    if found.is_empty() {
        scanned?;
        if is_broken {
            return Err(OpError::Broken("record of an operation"));
        }
    }
    Ok(found)
}

/// Serves [`wire::Opcode::MdtUpdatesDone`].
pub(crate) fn done<'a>(
    mdt: &'a Rc<Mdt>,
    incoming: &'a Incoming,
) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async move {
        let done: Done = asked(incoming)?;
        if !is_another(done.mdt, mdt.engine.config.index) {
            return Err(Errno::EPROTO);
        }
        for number in done.released {
            mdt.release_here(OpId { mdt: done.mdt, number });
        }
        if done.instance != 0 {
            mdt.deliveries.asked(done.mdt, Instance(done.instance), incoming.session.id);
            let over = mdt.engine.state.borrow_mut().crossed.instance_over(done.mdt, done.instance);
            over.into_iter().for_each(|id| mdt.free_here(id));
        }
        if done.below > 0 {
            if mdt.exports.is_recovering() {
                return Err(Errno::EAGAIN); // others may still ask for what is done
            }
            mdt.forget_done(done.mdt, done.below).await?;
        }
        Ok(Reply::ok(&incoming.request.header, Vec::new()))
    })
}

/// Whether there may be such an MDT besides this one.
fn is_another(mdt: u32, here: u32) -> bool {
    mdt != here && mdt < MDTS_MAX
}

/// Whether a record from another MDT is of its own operation, and can be executed here. Keys of a
/// record that cannot would stay reserved.
fn is_sound(record: &Record, here: u32) -> bool {
    let is_good = |update: &Update| {
        let is_readable = match update {
            Update::Make(made) => {
                Inode::decode(&made.inode).is_some_and(|inode| inode.fid() == made.fid)
            }
            Update::Stripe { value, .. } => value.is_empty() || Stripes::decode(value).is_ok(),
            _ => true,
        };
        is_readable && update.fid().mdt_index() == here
    };
    let part = record.part(here);
    is_another(record.id.mdt, here)
        && record.has_good_names()
        && part.is_some_and(|part| part.updates.iter().all(is_good))
}

/// What a server asks for.
pub(super) fn asked<T: updates::DeserializeOwned>(incoming: &Incoming) -> Result<T, Errno> {
    incoming.check_role()?;
    let request: &Request = &incoming.request;
    updates::decode(&request.buf(1)).ok_or(Errno::EPROTO)
}

impl Mdt {
    /// An operation is over here: whatever it reserved is free.
    pub(crate) fn free_here(&self, id: OpId) {
        let mut state = self.engine.state.borrow_mut();
        for fid in self.guests.held.borrow_mut().remove(&id).into_iter().flatten() {
            state.grants.let_go(fid);
        }
        if state.crossed.reserved.release(id) {
            drop(state);
            self.guests.freed.notify_waiters();
        }
    }

    /// An operation of another MDT needs nothing here any more. A preparation of it that comes late
    /// reserves nothing.
    pub(super) fn release_here(&self, id: OpId) {
        self.engine.state.borrow_mut().crossed.release(id);
        self.free_here(id);
    }

    /// Executes the part of this MDT, if it has not. It has one: a store has no other records.
    /// `is_void`: a later run of its coordinator has asked for what this MDT has (ESTALE).
    pub(crate) async fn take_part(
        &self,
        record: &Record,
        is_void: &dyn Fn() -> bool,
    ) -> Result<(), Errno> {
        if is_void() {
            return Err(Errno::ESTALE);
        }
        self.make_way(record).await?;
        let next = || self.exports.next_own();
        let recovering = self.exports.is_recovering();
        let is_new = !self.engine.state.borrow().crossed.has(record.id);
        let attempt = || match is_void() {
            true => Err(Errno::ESTALE.into()),
            false => self.engine.take_part(record, recovering, &next),
        };
        self.persist(attempt).await?;
        let (key, value) = &record.reply;
        if is_new && record.id.mdt == self.engine.config.index && !key.is_empty() {
            self.exports.restore(key, value);
        }
        if is_new {
            self.commit_restriped(record);
        }
        self.free_here(record.id);
        Ok(())
    }

    /// Nothing is reserved for a part that comes after a recovery went on without its MDT. Other
    /// operations with its keys end first, and grants on them are called back.
    async fn make_way(&self, record: &Record) -> Result<(), Errno> {
        let config = &self.engine.config;
        let is_ready = {
            let crossed = &self.engine.state.borrow().crossed;
            crossed.is_over(record.id) || crossed.reserved.has(record.id)
        };
        if is_ready || self.exports.is_recovering() || config.bugs.reserve_nothing() {
            return Ok(());
        }
        let updates = record.part(config.index).map_or(&[][..], |part| &part.updates);
        let wants: BTreeSet<Want> = updates.iter().filter_map(wanted).collect();
        let ask = Prepare { id: record.id, wants: wants.into_iter().collect() };
        loop {
            match reserve(self, None, &ask, false).await {
                Err(Errno::EAGAIN) if !self.is_stopped() => {}
                Err(Errno::ESTALE) => return Ok(()), // it came in another way
                reserved => return reserved.map(drop),
            }
        }
    }

    /// Waits until clients have replayed what may come before anything new.
    pub(super) async fn replays_over(&self, incoming: &Incoming) -> Result<(), Errno> {
        self.past(incoming, &|| self.exports.is_replaying()).await
    }

    /// Waits until this MDT also knows what other MDTs have of its operations.
    pub(super) async fn all_gathered(&self, incoming: &Incoming) -> Result<(), Errno> {
        let gathers = || self.exports.is_recovering() && !self.deliveries.has_gathered();
        self.past(incoming, &gathers).await
    }

    async fn past(&self, incoming: &Incoming, is_before: &dyn Fn() -> bool) -> Result<(), Errno> {
        while is_before() {
            incoming.step_aside();
            self.env.sleep(crate::limits::REPLAYS_LOOK).await;
            if self.is_stopped() || incoming.session.is_ended() {
                return Err(Errno::ESTALE);
            }
        }
        Ok(())
    }

    /// Says durably that this MDT and another one change something together: after a restart each
    /// asks the other.
    pub(crate) async fn note_peer(&self, mdt: u32) -> Result<(), Errno> {
        if self.engine.state.borrow().crossed.peers.contains(&mdt) {
            return Ok(());
        }
        let mut set = osd::WriteSet::new();
        set.put(Table::Meta, keys::of_mdt(keys::META_PEER, mdt), []);
        target::reserve(&mut set);
        self.persist(|| Ok(self.engine.apply_own(&set)?)).await?;
        self.commit().await?;
        self.engine.state.borrow_mut().crossed.peers.insert(mdt);
        self.deliveries.wake(); // the other MDT hears what is done
        tracing::info!(target: "mdt", target_id = %TargetId::mdt(mdt).name(self.engine.config.fsname), "changes together with this MDT begin");
        Ok(())
    }

    /// Nothing is under way with other MDTs when this one stops in good order, and those that know
    /// it forgot their records: its next run need not wait for them.
    pub(crate) fn part_from_peers(&self) {
        let parts = {
            let crossed = &self.engine.state.borrow().crossed;
            if self.exports.is_recovering() || !crossed.is_idle() {
                return;
            }
            let is_off = |mdt: u32| {
                let endpoint = self.osts.as_ref();
                endpoint.is_some_and(|endpoint| endpoint.is_off(TargetId::mdt(mdt)))
            };
            let mark = crossed.own_mark();
            let knows = |mdt: &u32| is_off(*mdt) || self.deliveries.has_told(*mdt, mark);
            crossed.peers.iter().copied().filter(knows).collect::<Vec<_>>()
        };
        let mut set = osd::WriteSet::new();
        for mdt in &parts {
            set.delete(Table::Meta, keys::of_mdt(keys::META_PEER, *mdt));
        }
        if !parts.is_empty() && self.engine.apply_own(&set).is_ok() {
            self.engine.state.borrow_mut().crossed.peers.retain(|mdt| !parts.contains(mdt));
        }
    }

    /// Forgets operations of a coordinator that are done everywhere. There are many if another MDT
    /// was away, so requests of clients get in between. A full store takes few at a time, and gets
    /// room by that.
    pub(crate) async fn forget_done(&self, mdt: u32, below: u64) -> Result<(), Errno> {
        let mut most = FORGET_MAX;
        loop {
            let forget = || {
                let some = self.engine.state.borrow().crossed.forget(mdt, below, most);
                let Some((mut set, upto)) = some else { return Ok(below) };
                target::reserve(&mut set);
                self.engine.apply_own(&set)?;
                self.engine.state.borrow_mut().crossed.forgot(mdt, upto);
                Ok(upto)
            };
            let forgot = self.persist(forget).await;
            match forgot {
                Ok(upto) if upto >= below => return Ok(()),
                Ok(_) => self.env.sleep(FORGET_PAUSE).await,
                Err(Errno::ENOSPC) if most > FORGET_FULL_MAX => most = FORGET_FULL_MAX,
                Err(errno) => return Err(errno),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, WriteSet};
    use wire::updates::{Part, RECORD_BYTES_MAX};

    use super::*;
    use crate::tests::store::TestStore;

    #[test]
    fn every_reply_with_records_can_be_read() {
        let meta = TestStore::default();
        let bytes = [100, RECORDS_BYTES_MAX - 6_000, RECORD_BYTES_MAX - 130_000, 100, 100];
        let mut set = WriteSet::new();
        for (number, bytes) in (1..).zip(bytes) {
            let id = OpId { mdt: 1, number };
            let parts = vec![Part { mdt: 0, updates: Vec::new() }];
            let record = Record { id, time: (0, 0), parts, reply: (Vec::new(), vec![7; bytes]) };
            set.put(Table::Updates, id.to_key(), updates::encode(&record));
        }
        meta.apply(&set).expect("room");
        let (mut from, mut lists) = (None, Vec::new());
        loop {
            let view = meta.running().expect("ready");
            let reply = updates::encode(&records(&*view, 0, from).expect("readable"));
            let list: Vec<Record> = updates::decode(&reply).expect("within the bound");
            let Some(last) = list.last() else { break };
            from = Some(last.id);
            lists.push(list.iter().map(|record| record.id.number).collect::<Vec<_>>());
        }
        assert_eq!(lists, [vec![1, 2], vec![3], vec![4, 5]]);
    }
}
