//! Destroy by ranges of ids: of those, the objects that are here, all stripes.
//!
//! An MDT asks so for ids that it gave out and that no file holds. Objects without a record are
//! found too: a power cut between data and record leaves them. Ids without an object get no
//! tombstone, they are far too many.

use osd::Table;
use service::Incoming;
use types::{Errno, Fid};

use super::ranges;
use crate::limits::SWEEP_RANGES_MAX;
use crate::target::Ost;

/// First and last possible object.
type Span = (Fid, Fid);

/// The objects to destroy, sorted, each once; there may be none.
pub(crate) async fn found(ost: &Ost, incoming: &Incoming) -> Result<Vec<Fid>, Errno> {
    let spans = spans(incoming)?;
    let mut objects = ost.objects.list().await?;
    objects.retain(|object| is_inside(&spans, *object));
    for (first, last) in &spans {
        let recorded = ost.store.look(|view| {
            let mut recorded = Vec::new();
            view.scan(Table::Objects, &first.to_key(), &mut |key, _| {
                let inside = Fid::from_key(key).filter(|object| object <= last);
                recorded.extend(inside);
                inside.is_some()
            })?;
            Ok(recorded)
        });
        objects.extend(recorded.await?);
    }
    objects.sort_unstable();
    objects.dedup();
    Ok(objects)
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
