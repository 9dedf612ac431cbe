//! Sweeps under way: objects that were listed and not yet asked for.

use types::Fid;

use crate::limits::LISTINGS_MAX;

/// First and last possible object.
pub(crate) type Span = (Fid, Fid);

/// What a session's sweep knows of the store: all objects of a stretch of FIDs.
pub(crate) struct Listed {
    pub(crate) session: u64,
    pub(crate) from: Fid,
    pub(crate) upto: Fid,
    pub(crate) objects: Vec<Fid>,
}

impl Listed {
    fn covers(&self, session: u64, at: Fid) -> bool {
        self.session == session && self.from <= at && at <= self.upto
    }

    /// The objects inside `spans` up to `upto`; they and those before are forgotten.
    pub(crate) fn take(&mut self, spans: &[Span], upto: Fid) -> Vec<Fid> {
        let behind = self.objects.partition_point(|object| *object <= upto);
        let rest = self.objects.split_off(behind);
        let mut taken = std::mem::replace(&mut self.objects, rest);
        taken.retain(|object| is_inside(spans, *object));
        self.from = upto;
        taken
    }
}

/// What is kept of a session's listing, if it begins at `from` or before.
pub(crate) fn kept(all: &mut Vec<Listed>, session: u64, from: Fid) -> Option<Listed> {
    let at = all.iter().position(|listed| listed.session == session)?;
    Some(all.remove(at)).filter(|listed| listed.covers(session, from))
}

/// The listing used last is the last one.
pub(crate) fn keep(all: &mut Vec<Listed>, listed: Listed) {
    all.retain(|other| other.session != listed.session);
    if all.len() == LISTINGS_MAX {
        all.remove(0);
    }
    all.push(listed);
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
