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

use super::{ranges, removal};
use crate::limits::{DESTROY_OBJECTS_AT_ONCE, SWEEP_LISTED_MAX, SWEEP_RANGES_MAX};
use crate::swept::{Listed, Span, keep, kept};
use crate::target::Ost;

/// No object is behind this one.
const LAST: Fid = Fid { seq: u64::MAX, oid: u32::MAX, ver: u32::MAX };

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
            let (_held, set) = removal::remove(ost, incoming, some).await?;
            ost.apply(&set).await?;
        }
        if upto >= last {
            break;
        }
        from = next(upto);
    }
    // Whoever asks waits for the commit of this, and with it of all that was destroyed before.
    let mut reply = removal::reply(incoming, count);
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_no_fid_between_one_and_the_next() {
        let (most, seq) = (u32::MAX, 5);
        assert_eq!(next(Fid { seq, oid: 2, ver: 3 }), Fid { seq, oid: 2, ver: 4 });
        assert_eq!(next(Fid { seq, oid: 2, ver: most }), Fid { seq, oid: 3, ver: 0 });
        assert_eq!(next(Fid { seq, oid: most, ver: most }), Fid { seq: 6, oid: 0, ver: 0 });
    }
}
