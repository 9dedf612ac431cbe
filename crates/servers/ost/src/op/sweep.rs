//! Destroy by ranges of ids: removes all objects of these ids that are here, all stripes.
//!
//! An MDT uses it for ids that it gave out and that no file holds. Objects without a record are
//! found too; a power cut between data and record leaves them. Ids without an object get no
//! tombstone, because there are far too many.
//!
//! A sweep is many requests, in the order of their ids. The store lists its objects for the first
//! request. Objects found beyond that request are kept for the next ones. No object is added to ids
//! that are swept, because an earlier run of the MDT gave them out and no client replays any more.
//! So the listing is valid as long as the MDT's session. Another session's sweep begins with its
//! own listing. Several MDTs may sweep at once, so a few listings are kept.

use osd::{StoreError, Table, View, WriteSet};
use service::Incoming;
use types::{Errno, Fid};
use wire::Reply;

use super::{destroy, ranges};
use crate::limits::{DESTROY_OBJECTS_AT_ONCE, LISTINGS_MAX, SWEEP_LISTED_MAX, SWEEP_RANGES_MAX};
use crate::target::Ost;

/// First and last possible object.
type Span = (Fid, Fid);

/// No object is behind this one.
const LAST: Fid = Fid { seq: u64::MAX, oid: u32::MAX, ver: u32::MAX };

/// What a session's sweep knows of the store: all objects of a stretch of FIDs.
pub(crate) struct Listed {
    session: u64,
    from: Fid,
    upto: Fid,
    objects: Vec<Fid>,
}

impl Listed {
    fn covers(&self, session: u64, at: Fid) -> bool {
        self.session == session && self.from <= at && at <= self.upto
    }

    /// The objects inside `spans` up to `upto`; they and those before are forgotten.
    fn take(&mut self, spans: &[Span], upto: Fid) -> Vec<Fid> {
        let behind = self.objects.partition_point(|object| *object <= upto);
        let rest = self.objects.split_off(behind);
        let mut taken = std::mem::replace(&mut self.objects, rest);
        taken.retain(|object| is_inside(spans, *object));
        self.from = upto;
        taken
    }
}

/// Destroys what is there, a listing's length at a time.
pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let spans = spans(incoming)?;
    let (mut from, last) = (spans[0].0, spans[spans.len() - 1].1);
    let mut count = 0;
    loop {
        let mut listed = list(ost, incoming.session.id, from).await?;
        let mut upto = listed.upto.min(last);
        let recorded = ost.store.look(|view| recorded(view, &spans, from, upto)).await?;
        if recorded.len() == SWEEP_LISTED_MAX {
            upto = recorded[recorded.len() - 1];
        }
        let mut objects = listed.take(&spans, upto);
        keep(&mut ost.listed.borrow_mut(), listed);
        objects.extend(recorded);
        objects.sort_unstable();
        objects.dedup();
        count += objects.len();
        for some in objects.chunks(DESTROY_OBJECTS_AT_ONCE) {
            let (_held, set) = destroy::remove(ost, incoming, some).await?;
            ost.apply(&set).await?;
        }
        if upto >= last {
            break;
        }
        from = next(upto);
    }
    // Whoever asks waits for the commit of this, and with it of all that was destroyed before.
    let mut reply = destroy::reply(incoming, count);
    ost.transact(incoming, &mut reply, |_, _| Ok(WriteSet::new())).await?;
    Ok(reply)
}

/// A listing that begins at `from` or before.
async fn list(ost: &Ost, session: u64, from: Fid) -> Result<Listed, Errno> {
    if let Some(listed) = kept(&mut ost.listed.borrow_mut(), session, from) {
        return Ok(listed);
    }
    let objects = ost.objects.list(from, SWEEP_LISTED_MAX).await?;
    ost.listings.set(ost.listings.get() + 1);
    assert!(objects.is_sorted(), "a store lists in order");
    let is_all = objects.len() < SWEEP_LISTED_MAX;
    let upto = objects.last().copied().filter(|_| !is_all).unwrap_or(LAST);
    Ok(Listed { session, from, upto, objects })
}

/// What is kept of a session's listing, if it begins at `from` or before.
fn kept(all: &mut Vec<Listed>, session: u64, from: Fid) -> Option<Listed> {
    let at = all.iter().position(|listed| listed.session == session)?;
    Some(all.remove(at)).filter(|listed| listed.covers(session, from))
}

/// The listing used last is the last one.
fn keep(all: &mut Vec<Listed>, listed: Listed) {
    all.retain(|other| other.session != listed.session);
    if all.len() == LISTINGS_MAX {
        all.remove(0);
    }
    all.push(listed);
}

/// The first objects with a record inside `spans`, of those between `from` and `upto`.
fn recorded(view: &dyn View, spans: &[Span], from: Fid, upto: Fid) -> Result<Vec<Fid>, StoreError> {
    let mut recorded = Vec::new();
    for (first, last) in spans {
        let (first, last) = ((*first).max(from), (*last).min(upto));
        if first > last || recorded.len() == SWEEP_LISTED_MAX {
            continue;
        }
        view.scan(Table::Objects, &first.to_key(), &mut |key, _| {
            let inside = Fid::from_key(key).filter(|object| *object <= last);
            recorded.extend(inside);
            inside.is_some() && recorded.len() < SWEEP_LISTED_MAX
        })?;
    }
    Ok(recorded)
}

/// The FID behind this one.
fn next(fid: Fid) -> Fid {
    let Fid { seq, oid, ver } = fid;
    match (ver.checked_add(1), oid.checked_add(1)) {
        (Some(ver), _) => Fid { seq, oid, ver },
        (None, Some(oid)) => Fid { seq, oid, ver: 0 },
        (None, None) => Fid { seq: seq.saturating_add(1), oid: 0, ver: 0 },
    }
}

/// Sorted by where they begin.
fn spans(incoming: &Incoming) -> Result<Vec<Span>, Errno> {
    let ranges = ranges(incoming)?;
    if ranges.is_empty() {
        return Err(Errno::EINVAL);
    }
    if ranges.len() > SWEEP_RANGES_MAX {
        return Err(Errno::E2BIG);
    }
    let span = |range: &wire::body::ObjectRange| {
        let base = Fid::from(range.base);
        let last = range
            .count
            .checked_sub(1)
            .and_then(|more| base.oid.checked_add(more))
            .ok_or(Errno::EINVAL)?;
        let names_ids = !base.is_zero() && base.ver == 0 && range.first == 0;
        if names_ids {
            Ok((base, Fid { oid: last, ver: u32::MAX, ..base }))
        } else {
            Err(Errno::EINVAL)
        }
    };
    let mut spans = ranges.iter().map(span).collect::<Result<Vec<_>, _>>()?;
    spans.sort_unstable();
    if spans.windows(2).any(|pair| pair[1].0 <= pair[0].1) {
        return Err(Errno::EINVAL);
    }
    Ok(spans)
}

fn is_inside(spans: &[Span], object: Fid) -> bool {
    let before = spans.partition_point(|(first, _)| *first <= object);
    before.checked_sub(1).is_some_and(|at| object <= spans[at].1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_listing_serves_the_requests_behind_it_and_no_other_session() {
        let id = |oid| Fid { seq: 5, oid, ver: 0 };
        let mut listed =
            Listed { session: 7, from: id(1), upto: id(90), objects: (1..=90).map(id).collect() };
        assert!(listed.covers(7, id(1)) && listed.covers(7, id(90)));
        assert!(!listed.covers(7, id(91)) && !listed.covers(8, id(1)));
        let inside = [(id(3), id(4)), (id(6), id(6))];
        assert_eq!(listed.take(&inside, id(10)), [id(3), id(4), id(6)]);
        assert!(!listed.covers(7, id(9)), "those are forgotten");
        assert!(listed.covers(7, id(11)) && listed.objects.len() == 80);
    }

    #[test]
    fn sweeps_of_several_sessions_keep_their_listings_and_the_oldest_goes() {
        let id = |oid| Fid { seq: 5, oid, ver: 0 };
        let listed = |session| Listed { session, from: id(1), upto: id(9), objects: Vec::new() };
        let mut all = Vec::new();
        (0..=LISTINGS_MAX as u64).for_each(|session| keep(&mut all, listed(session)));
        assert_eq!(all.len(), LISTINGS_MAX);
        assert!(kept(&mut all, 0, id(2)).is_none(), "it was the oldest");
        assert!(kept(&mut all, 1, id(2)).is_some_and(|listed| listed.session == 1));
        assert!(kept(&mut all, 2, id(10)).is_none(), "it ends before");
        assert_eq!(all.len(), LISTINGS_MAX - 2);
    }

    #[test]
    fn there_is_no_fid_between_one_and_the_next() {
        let (most, seq) = (u32::MAX, 5);
        assert_eq!(next(Fid { seq, oid: 2, ver: 3 }), Fid { seq, oid: 2, ver: 4 });
        assert_eq!(next(Fid { seq, oid: 2, ver: most }), Fid { seq, oid: 3, ver: 0 });
        assert_eq!(next(Fid { seq, oid: most, ver: most }), Fid { seq: 6, oid: 0, ver: 0 });
    }

    #[test]
    fn a_range_holds_every_stripe_of_its_ids() {
        let id = |oid, ver| Fid { seq: 5, oid, ver };
        let spans = [(id(3, 0), id(4, u32::MAX)), (id(6, 0), id(6, u32::MAX))];
        let inside = |oid, ver| is_inside(&spans, id(oid, ver));
        assert!(inside(3, 0) && inside(4, 7) && inside(6, 1_999));
        assert!(
            !inside(2, 9) && !inside(5, 0) && !inside(7, 0) && !is_inside(&spans, Fid::new(4, 3))
        );
    }
}
