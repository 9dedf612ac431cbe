//! Which answers come with a short lease, and which changes wait for one ([`crate::grants`]).
//!
//! [`plan`] reads the current leases and changes nothing. Its grants go out with the reply and
//! become effects in memory once the operation is applied. So a change that the store refuses
//! leaves no lease behind.
//!
//! The plan draws one thing: the number of the answer ([`ldlm::grants::Mdt::draw`]). The reply is
//! part of the write set, so it has its number before the store takes the set. A number without a
//! grant means nothing, and one that is not used is a gap.
//!
//! [`hear`] comes first. A session's lease counts from when the MDT last heard from it, whatever
//! becomes of its request.

use std::collections::BTreeSet;

use bytes::Bytes;
use ldlm::grants::{Bits, Gifts, HolderId, Number, Want};
use types::{Fid, Instant, Span};
use wire::body::{CloseFlags, CloseReq, Disposition, ReaddirState, WireFid};
use wire::stats::StatRecord;
use wire::updates::Update;
use wire::{Opcode, Request};
use zerocopy::IntoBytes;

use super::answer::{Answer, AttrAnswer, Extras, Told};
use super::believed::may_be_believed;
use super::caching::{self, Taken};
use super::operation::Caller;
use super::rows::Scope;
use crate::attempt::OwnCaller;
use crate::effect::Effect;
use crate::grants::{ATTRS, Gift, Grants};
use crate::tx::Tx;
use target::{Decided, OpError};

/// Grants that go out with an answer.
#[derive(Default)]
pub(crate) struct Plan {
    /// Of the attributes that the answer tells, and of the name.
    pub(crate) lease: Gift,
    pub(crate) name_lease: Gift,
    /// Of a directory that comes along.
    pub(crate) dir: Option<(Fid, Gift)>,
    /// Of the file's data.
    caches: bool,
    /// Names all of them.
    pub(crate) number: u64,
    /// What happens to leases once the operation is applied.
    pub(crate) effects: Vec<Effect>,
}

impl Extras {
    pub(crate) fn new(plan: &Plan, version: Option<u64>, epoch: u64) -> Extras {
        Extras {
            version,
            epoch,
            lease: plan.lease,
            name_lease: plan.name_lease,
            number: plan.number,
        }
    }
}

/// The caller was heard of: its lease counts from then, where the answer may grant until a recall.
pub(crate) fn hear(scope: &Scope, caller: &Caller<'_>, grants: &mut Grants) {
    if grants.calls_back() && Subject::granted(scope, caller).is_some() {
        let holder = HolderId(caller.session);
        grants.heard_of(holder, (caller.heard)(holder));
    }
}

/// What `answer` grants to the caller, and what the operation means for grants that are out. In a
/// page the entries that are granted are marked.
pub(crate) fn plan(
    scope: &Scope,
    caller: &Caller<'_>,
    answer: &mut Answer,
    tx: &Tx<'_>,
    grants: &Grants,
) -> Plan {
    let mut plan = Plan::default();
    let offered = caching::take_offer(answer);
    follow(scope, caller, answer, tx, &mut plan.effects);
    let Some(subject) = Subject::granted(scope, caller) else { return plan };
    if matches!(answer, Answer::Page(page) if page.state.contains(ReaddirState::NAMES_MOVE)) {
        return plan;
    }
    let mut gifts = Gifts::new(HolderId(caller.session), caller.clock);
    if grants.calls_back() {
        plan_called(scope, &subject, caller, (answer, tx), grants, (&mut plan, &mut gifts));
        plan.caches = caching::offer(caller, answer, offered, grants, &mut gifts);
    } else if !matches!(scope, Scope::Opens | Scope::Closes(_)) {
        plan_timed(scope, &subject, caller, (answer, tx), grants, &mut plan);
    }
    if plan.lease.is_some() || plan.name_lease.is_some() || plan.dir.is_some() || plan.caches {
        plan.number = grants.called.draw().0;
    }
    if !gifts.is_empty() {
        plan.effects.push(Effect::Given { gifts, number: Number(plan.number) });
    }
    plan
}

/// What an answer tells that may be granted.
struct Subject {
    /// Attributes of its file.
    tells: bool,
    /// A directory.
    dir: Option<Fid>,
}

impl Subject {
    /// Nothing, where the answer to this caller grants nothing.
    fn granted(scope: &Scope, caller: &Caller<'_>) -> Option<Subject> {
        if caller.replay || caller.recovering {
            return None;
        }
        let subject = Subject::of(scope, caller.request);
        (subject.tells || subject.dir.is_some()).then_some(subject)
    }

    fn of(scope: &Scope, request: &Request) -> Subject {
        let (tells, dir) = match scope {
            Scope::Attributes => (true, None),
            Scope::Sets(is_unseen) => (!is_unseen(request), None),
            Scope::Name(parent) | Scope::Makes(parent) => (true, Some(parent(request))),
            Scope::Removes(parent) => (false, Some(parent(request))),
            Scope::Lists(dir) => (false, dir(request)),
            Scope::Each(dir) => (true, dir(request)),
            Scope::Opens => {
                let keeps = caching::is_wanted(request) || caching::is_write_wanted(request);
                (caching::room(request) > 0 || keeps, None)
            }
            Scope::Closes(_) => (states_size(request), None),
            Scope::Plain | Scope::Moves(_) | Scope::Kept | Scope::Unseen(_) => (false, None),
        };
        Subject { tells, dir }
    }
}

/// Whether this is the close of one file, with its size.
fn states_size(request: &Request) -> bool {
    request.opcode() == Opcode::MdtClose
        && request.body::<CloseReq>().flags.intersects(CloseFlags::SIZE | CloseFlags::DATA)
}

/// By time: a directory's grant covers its names.
fn plan_timed(
    scope: &Scope,
    subject: &Subject,
    caller: &Caller<'_>,
    (answer, tx): (&mut Answer, &Tx<'_>),
    grants: &Grants,
    plan: &mut Plan,
) {
    let clock = caller.clock;
    let effects = &mut plan.effects;
    let mut lease = |fid: Fid| {
        let span = grants.offer(fid, clock);
        if span == Span::ZERO {
            return Gift::None;
        }
        effects.push(Effect::Leased { fid, client: caller.client, from: clock });
        Gift::Timed(span)
    };
    let dir_lease = subject.dir.map_or(Gift::None, &mut lease);
    if let Answer::Page(page) = answer {
        // Without the name the attributes are of no use: the caller asks for it with them.
        if dir_lease.is_some() {
            for listed in page.entries.iter_mut().filter(|listed| listed.is_offered) {
                listed.entry.leased = lease(listed.entry.attr.fid()).is_some();
            }
        }
        (plan.lease, plan.name_lease) = (dir_lease, dir_lease);
    } else if let Answer::Many(many) = answer {
        for told in many.files.iter_mut().filter(|told| told.record.errno == 0) {
            let Told { record: StatRecord { rep, .. }, is_offered, parent } = told;
            let quiet = rep.attr.is_dir() || !grants.is_contended(*parent, clock);
            let gift = if quiet && *is_offered { lease(rep.attr.fid()) } else { Gift::None };
            (rep.lease_ms, rep.name_lease_ms) = (gift.to_ms(), dir_lease.to_ms());
            plan.lease = if gift.is_some() { gift } else { plan.lease };
        }
        plan.name_lease = dir_lease;
    } else if let (true, Answer::Attr(answer)) = (subject.tells, answer) {
        // On a file only where nobody was after its directory too: files are many, and a client
        // that takes over what another has just made would wait for each.
        let quiet = answer.attr.is_dir() || !grants.is_contended(answer.parent, clock);
        if quiet && is_known(answer, tx) {
            plan.lease = lease(answer.attr.fid());
        }
        plan.name_lease = dir_lease;
    }
    if matches!(scope, Scope::Makes(_) | Scope::Removes(_)) && dir_lease.is_some() {
        plan.dir = subject.dir.map(|dir| (dir, dir_lease));
    }
}

/// Until a recall: a name is granted with the file that it stands for, a directory's attributes
/// where they are told.
fn plan_called(
    scope: &Scope,
    subject: &Subject,
    caller: &Caller<'_>,
    (answer, tx): (&mut Answer, &Tx<'_>),
    grants: &Grants,
    (plan, gifts): (&mut Plan, &mut Gifts),
) {
    let mut give = |fid: Fid, bits: Bits| grants.offer_called(gifts, fid, bits, caller.clock);
    if let Answer::Page(page) = answer {
        for listed in page.entries.iter_mut().filter(|listed| listed.is_offered) {
            let gift = give(listed.entry.attr.fid(), ATTRS | Bits::LOOKUP);
            listed.entry.leased = gift == Gift::Called;
        }
        (plan.lease, plan.name_lease) = (Gift::Called, Gift::Called);
        return;
    }
    if let Answer::Many(many) = answer {
        for told in many.files.iter_mut().filter(|told| told.record.errno == 0) {
            let rep = &mut told.record.rep;
            let (fid, is_named) = (rep.attr.fid(), subject.dir.is_some());
            let gift = if told.is_offered { give(fid, ATTRS) } else { Gift::None };
            let name_gift = if is_named { give(fid, Bits::LOOKUP) } else { Gift::None };
            (rep.lease_ms, rep.name_lease_ms) = (gift.to_ms(), name_gift.to_ms());
        }
        plan.lease = Gift::Called;
        return;
    }
    if let (true, Answer::Attr(answer)) = (subject.tells, answer) {
        let fid = answer.attr.fid();
        let is_gone = matches!(scope, Scope::Closes(_)) && answer.attr.nlink == 0;
        if is_known(answer, tx) && !is_gone {
            plan.lease = give(fid, ATTRS);
        }
        if matches!(scope, Scope::Name(_) | Scope::Makes(_)) {
            plan.name_lease = give(fid, Bits::LOOKUP);
        }
    }
    if let (Scope::Makes(_) | Scope::Removes(_), Some(dir)) = (scope, subject.dir) {
        let gift = give(dir, ATTRS);
        plan.dir = gift.is_some().then_some((dir, gift));
    }
}

/// What an operation that succeeds means for leases that are out, and for those to come.
fn follow(
    scope: &Scope,
    caller: &Caller<'_>,
    answer: &Answer,
    tx: &Tx<'_>,
    effects: &mut Vec<Effect>,
) {
    let at = caller.clock;
    match scope {
        Scope::Moves(parents) => {
            let (from, to) = parents(caller.request);
            if from != to {
                effects.push(Effect::NamesMoved { from, to, at });
                effects.push(Effect::NamesMoved { from: to, to: from, at }); // an exchange
            }
        }
        Scope::Kept => effects.extend(answer.fid().map(|fid| Effect::Settles { fid, at })),
        Scope::Closes(files) => {
            let ended = |fid| Effect::KeepsNoMore { session: caller.session, fid, at };
            effects.extend(files(caller.request).into_iter().map(ended));
        }
        _ => {}
    }
    if matches!(scope, Scope::Moves(_) | Scope::Removes(_)) {
        // The kernel that takes one of several names away counts down by itself, perhaps after it
        // was told the new count.
        let moved = answer.fid().filter(|_| matches!(scope, Scope::Moves(_)));
        let named = |fid: &Fid| {
            tx.seen(*fid).is_some_and(|inode| !inode.attr.is_dir() && inode.attr.nlink > 0)
        };
        let others = tx.touched().filter(named).filter(|fid| Some(*fid) != moved);
        effects.extend(others.map(|fid| Effect::Settles { fid, at }));
    }
}

/// Whether the attributes are the whole truth: the size is known, or the file is new and only its
/// maker has it. A write takes set-user-id away without a word to the kernel of the writer; an
/// access list is kept by the kernel beside them.
fn is_known(answer: &AttrAnswer, tx: &Tx<'_>) -> bool {
    let made = answer.disposition.contains(Disposition::CREATED);
    tx.is_here(answer.attr.fid()) && may_be_believed(&answer.attr, answer.has_acl, made)
}

/// Whether a change may be executed in this step: not where others hold grants on what it changes,
/// or may do so since before this instance. False: it is parked until they have given them up.
/// Timed ones are waited for; what is in the way is contended from then on, whatever becomes of
/// the change. `told`: the file that the answer tells of, and what of its data is taken too.
pub(crate) fn check(
    scope: &Scope,
    caller: &Caller<'_>,
    tx: &Tx<'_>,
    (told, taken): (Option<Fid>, Taken),
    grants: &mut Grants,
) -> Decided<bool> {
    if let Scope::Sets(is_unseen) | Scope::Unseen(is_unseen) = scope
        && is_unseen(caller.request)
    {
        return Ok(true);
    }
    if matches!(scope, Scope::Closes(_)) {
        return Ok(true);
    }
    let clock = caller.clock;
    // the reply tells of no shard, so the caller keeps nothing of them either
    let spreads = tx.departs.is_some()
        || tx.updates.iter().any(|update| matches!(update, Update::Own(_) | Update::Stripe { .. }));
    let blocks = |fid| match spreads {
        true => grants.blocks_all(fid, clock),
        false => grants.blocks(fid, caller.client, clock),
    };
    let blocked = tx.touched().filter_map(blocks).max();
    if blocked.is_some() {
        // all that was there, so that nothing is leased again meanwhile and it waits only once
        for fid in tx.touched().filter(|fid| tx.was_there(*fid)) {
            grants.contend(fid, clock);
            if let Some(inode) = tx.seen(fid).filter(|inode| !inode.attr.is_dir()) {
                grants.contend(inode.parent, clock);
            }
        }
    }
    if blocked.is_some() {
        planted::reached("mdt: a change waited for a lease");
    } else if grants.inherited(clock).is_some() {
        planted::reached("mdt: a change waited for leases of the instance before");
    }
    let end: Option<Instant> = grants.inherited(clock).max(blocked);
    if let Some(end) = end {
        return Err(OpError::LeasedUntil(end));
    }
    let wants = || {
        let mut wants = wants(scope, caller.request, tx);
        caching::add_wants(caller.request, told, taken, &mut wants);
        wants
    };
    Ok(match spreads {
        true => grants.begin_for_all(caller.change, wants, caller.heard, clock),
        false => grants.begin(caller.change, caller.session, wants, caller.heard, clock),
    })
}

/// The same for an operation of the MDT's own: no client keeps anything that it changes.
pub(crate) fn check_own(tx: &Tx<'_>, caller: &OwnCaller<'_>, grants: &mut Grants) -> Decided<bool> {
    let clock = caller.clock;
    let blocked = tx.touched().filter_map(|fid| grants.blocks_all(fid, clock)).max();
    if let Some(end) = grants.inherited(clock).max(blocked) {
        return Err(OpError::LeasedUntil(end));
    }
    let wants = || {
        let of = |pick: fn(&Update) -> Option<Fid>| -> BTreeSet<Fid> {
            tx.updates.iter().filter_map(pick).collect()
        };
        let resized = of(|update| match update {
            Update::Size { dir, .. } => Some(*dir),
            _ => None,
        });
        let rehomed = of(|update| match update {
            Update::Rehome { fid, .. } => Some(*fid),
            _ => None,
        });
        // A name that moves to another shard leads to the same file, whose attributes stay. What a
        // client knows of both by this MDT's word stays true: each later change of the name changes
        // the file too, and calls that back here.
        let stays = |fid: &Fid| {
            let is_file = tx.seen(*fid).is_some_and(|inode| !inode.attr.is_dir());
            is_file && rehomed.contains(fid)
        };
        let touched = once_each(tx).filter(|fid| !stays(fid) && tx.was_there(*fid));
        let want = |fid: Fid| {
            let bits = if resized.contains(&fid) { Bits::UPDATE } else { ATTRS | Bits::LOOKUP };
            Want { fid, bits }
        };
        let unnamed = tx.unnamed.iter().map(|fid| Want { fid: *fid, bits: Bits::LOOKUP });
        touched.map(want).chain(unnamed).collect()
    };
    Ok(grants.begin_for_all(caller.change, wants, caller.heard, clock))
}

/// All files that a rename touched, for its client: the answer tells of one.
pub(crate) fn touched(scope: &Scope, tx: &Tx<'_>) -> Option<Bytes> {
    let Scope::Moves(_) = scope else { return None };
    let elsewhere = tx.updates.iter().map(Update::fid);
    let touched: BTreeSet<Fid> = tx.touched().chain(elsewhere).collect();
    let fids: Vec<WireFid> = touched.into_iter().map(WireFid::from).collect();
    Some(Bytes::copy_from_slice(fids.as_bytes()))
}

/// What a change changes of files that were there. Of a directory in which names come and go that
/// is what it is like; of everything else all that attributes tell, and where a name went or moved
/// also that it stands for the file.
fn wants(scope: &Scope, request: &Request, tx: &Tx<'_>) -> Vec<Want> {
    let (dirs, names_go) = match scope {
        Scope::Makes(parent) => ([Some(parent(request)), None], false),
        Scope::Removes(parent) => ([Some(parent(request)), None], true),
        Scope::Moves(parents) => {
            let (from, to) = parents(request);
            ([Some(from), Some(to)], true)
        }
        _ => ([None; 2], tx.departs.is_some()),
    };
    let want = |fid: Fid| {
        let bits = match (dirs.contains(&Some(fid)), names_go) {
            (true, _) => Bits::UPDATE,
            (false, true) => ATTRS | Bits::LOOKUP,
            (false, false) => ATTRS,
        };
        Want { fid, bits }
    };
    let touched = once_each(tx).filter(|fid| tx.was_there(*fid));
    // this MDT grants names of files on others, and nothing else of them
    let unnamed = tx.unnamed.iter().map(|fid| Want { fid: *fid, bits: Bits::LOOKUP });
    touched.map(want).chain(unnamed).collect()
}

/// What an operation touches, each file once: a directory of which it changes many names, too.
fn once_each(tx: &Tx<'_>) -> impl Iterator<Item = Fid> {
    tx.touched().collect::<BTreeSet<Fid>>().into_iter()
}
