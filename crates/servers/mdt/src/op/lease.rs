//! Which answers come with a short lease, and which changes wait for one ([`crate::grants`]).
//!
//! [`plan`] reads what is leased and changes nothing. What it grants goes out with the reply and
//! comes into memory as effects, once the operation is applied: a change that the store refuses
//! leaves no lease behind.

use types::{Fid, Instant, Span};
use wire::attr::{S_ISGID, S_ISUID};
use wire::body::Disposition;
use wire::{Attr, Request, SizeState};

use super::{Answer, AttrAnswer, Caller};
use crate::grants::Grants;
use crate::record::{INODE_HAS_ACL, Inode};
use crate::state::Effect;
use crate::tx::Tx;
use target::{Decided, OpError};

/// What an operation means for short leases. A change waits for those on all that it touches,
/// unless it is unseen.
pub(crate) enum Scope {
    /// Grants none.
    Plain,
    /// Grants one on the attributes that it tells.
    Attributes,
    /// The same, and one on the names of this directory.
    Name(fn(&Request) -> Fid),
    /// Grants one on each entry that it lists, and one on the names of this directory, where they
    /// are wanted.
    Lists(fn(&Request) -> Option<Fid>),
    /// The same as [`Scope::Name`] for a name that it makes; the directory as it is then comes
    /// along.
    Makes(fn(&Request) -> Fid),
    /// Removes a name of this directory, which comes along as it is then.
    Removes(fn(&Request) -> Fid),
    /// Moves names between these two directories.
    Moves(fn(&Request) -> (Fid, Fid)),
    /// Changes something of a file of which the caller's kernel goes on using its own copy.
    Kept,
    /// Changes attributes and grants one on those that it tells, unless this says that it changes
    /// nothing that a lease covers.
    Sets(fn(&Request) -> bool),
    /// Changes nothing that a lease covers, where this says so.
    Unseen(fn(&Request) -> bool),
}

/// Leases that go out with an answer.
#[derive(Default)]
pub(crate) struct Plan {
    /// On the attributes that the answer tells, and on the name.
    pub(crate) lease: Span,
    pub(crate) name_lease: Span,
    /// On a directory that comes along.
    pub(crate) dir: Option<(Fid, Span)>,
    /// What happens to leases once the operation is applied.
    pub(crate) effects: Vec<Effect>,
}

/// What `answer` leases to the caller, and what the operation means for leases that are out. In a
/// page the entries that are leased are marked.
pub(crate) fn plan(
    scope: &Scope,
    caller: &Caller<'_>,
    answer: &mut Answer,
    tx: &Tx<'_>,
    grants: &Grants,
) -> Plan {
    let mut plan = Plan::default();
    let clock = caller.clock;
    follow(scope, caller, answer, tx, &mut plan.effects);
    if caller.replay || caller.recovering {
        return plan;
    }
    let mut lease = |fid: Fid| {
        let span = grants.offer(fid, clock);
        if span > Span::ZERO {
            plan.effects.push(Effect::Leased { fid, client: caller.client, from: clock });
        }
        span
    };
    let (tells, dir) = match scope {
        Scope::Attributes => (true, None),
        Scope::Sets(is_unseen) if !is_unseen(caller.request) => (true, None),
        Scope::Name(parent) | Scope::Makes(parent) => (true, Some(parent(caller.request))),
        Scope::Removes(parent) => (false, Some(parent(caller.request))),
        Scope::Lists(dir) => (false, dir(caller.request)),
        Scope::Plain | Scope::Moves(_) | Scope::Kept | Scope::Sets(_) | Scope::Unseen(_) => {
            return plan;
        }
    };
    let dir_lease = dir.map_or(Span::ZERO, &mut lease);
    if let Answer::Page(page) = answer {
        // Without the name the attributes are of no use: the caller asks for it with them.
        if dir_lease > Span::ZERO {
            for listed in page.entries.iter_mut().filter(|listed| listed.is_offered) {
                listed.entry.leased = lease(listed.entry.attr.fid()) > Span::ZERO;
            }
        }
        (plan.lease, plan.name_lease) = (dir_lease, dir_lease);
    } else if let (true, Answer::Attr(answer)) = (tells, answer) {
        // On a file only where nobody was after its directory too: files are many, and a client
        // that takes over what another has just made would wait for each.
        let quiet = answer.attr.is_dir() || !grants.is_contended(answer.parent, clock);
        if quiet && is_known(answer) {
            plan.lease = lease(answer.attr.fid());
        }
        plan.name_lease = dir_lease;
    }
    if matches!(scope, Scope::Makes(_) | Scope::Removes(_)) && dir_lease > Span::ZERO {
        plan.dir = dir.map(|dir| (dir, dir_lease));
    }
    plan
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
fn is_known(answer: &AttrAnswer) -> bool {
    let made = answer.disposition.contains(Disposition::CREATED);
    may_be_believed(&answer.attr, answer.has_acl, made)
}

/// The same of an inode that is listed.
pub(crate) fn is_whole(inode: &Inode) -> bool {
    may_be_believed(&inode.attr, inode.has(INODE_HAS_ACL), false)
}

fn may_be_believed(attr: &Attr, has_acl: bool, made: bool) -> bool {
    let is_sized = made || attr.size_state() != SizeState::Dirty;
    !has_acl && (!attr.is_file() || (attr.mode & (S_ISUID | S_ISGID) == 0 && is_sized))
}

/// Refuses a change for now where others hold leases on what it changes, or may do so since before
/// this instance. What is in the way is contended from then on, whatever becomes of the change.
pub(crate) fn check(
    scope: &Scope,
    caller: &Caller<'_>,
    tx: &Tx<'_>,
    grants: &mut Grants,
) -> Decided<()> {
    if let Scope::Sets(is_unseen) | Scope::Unseen(is_unseen) = scope
        && is_unseen(caller.request)
    {
        return Ok(());
    }
    let clock = caller.clock;
    let blocked = tx.touched().filter_map(|fid| grants.blocks(fid, caller.client, clock)).max();
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
    end.map_or(Ok(()), |end| Err(OpError::LeasedUntil(end)))
}
