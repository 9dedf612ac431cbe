//! Fences: clients that this OST refuses, because their session with an MDT has ended.
//!
//! The MDT passes on the locks and open files of a lapsed session only when the OSTs of those files
//! refuse the session. Requests that the client sent under the old session and that are still on
//! their way then change nothing. A fence names the MDT's store, the client, and the lowest session
//! that may use objects. It is durable before it is answered, so that a restarted OST refuses
//! replays too.
//!
//! A fence may be for all clients of an MDT ([`ClientId::EVERYBODY`]). Its MDT has lost their locks
//! and open files, because an older copy of its records was put back.
//!
//! A fence goes when its client ends its session here in good order, because no request of that
//! life can come then. Beyond [`FENCES_MAX`] the oldest go.

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use osd::{StoreError, Table, View, WriteSet};
use tokio::sync::Notify;
use types::ClientId;
use wire::body::Claim;

use crate::limits::FENCES_MAX;
use crate::record::{META_FENCE, fence_key};

/// Client and number of the MDT's store.
type Key = (ClientId, u64);

#[derive(Clone, Copy)]
struct Fence {
    /// Lowest session that may use objects.
    session: u64,
    /// Place among all fences of this OST.
    number: u64,
}

/// Pure: the caller keeps the table in step.
#[derive(Default)]
pub(crate) struct Fences {
    by_client: BTreeMap<Key, Fence>,
    by_number: BTreeMap<u64, Key>,
    next: u64,
}

impl Fences {
    /// As found at boot. `None` where a record is none of ours.
    pub(crate) fn load(view: &dyn View) -> Result<Option<Fences>, StoreError> {
        let mut fences = Fences::default();
        let mut is_broken = false;
        view.scan(Table::Meta, META_FENCE, &mut |key, value| {
            let Some(rest) = key.strip_prefix(META_FENCE) else { return false };
            is_broken = fences.take(rest, value).is_none();
            !is_broken
        })?;
        Ok((!is_broken).then_some(fences))
    }

    fn take(&mut self, key: &[u8], value: &[u8]) -> Option<()> {
        let (client, store) = key.split_first_chunk::<16>()?;
        let store = u64::from_be_bytes(store.try_into().ok()?);
        let (session, number) = value.split_first_chunk::<8>()?;
        let number = u64::from_le_bytes(number.try_into().ok()?);
        let fence = Fence { session: u64::from_le_bytes(*session), number };
        let key = (ClientId(u128::from_be_bytes(*client)), store);
        self.next = self.next.max(number.checked_add(1)?);
        self.by_client.insert(key, fence);
        self.by_number.insert(number, key).is_none().then_some(())
    }

    /// Whether `client` may not act on this claim.
    pub(crate) fn refuses(&self, client: ClientId, claim: &Claim) -> bool {
        let fence = |client| self.by_client.get(&(client, claim.store));
        let lowest = |client| fence(client).map(|fence| fence.session);
        let lowest = lowest(client).max(lowest(ClientId::EVERYBODY));
        lowest.is_some_and(|lowest| claim.session < lowest)
    }

    /// Sessions of `client` below `session` are refused from now on; what is to be stored.
    pub(crate) fn add(&mut self, client: ClientId, store: u64, session: u64) -> WriteSet {
        let (key, mut set) = ((client, store), target::from_reserve());
        let old = self.by_client.get(&key).copied();
        if old.is_none_or(|old| old.session < session) {
            let fence = Fence { session, number: self.next };
            self.next += 1;
            self.remove(key);
            self.by_client.insert(key, fence);
            self.by_number.insert(fence.number, key);
        }
        if self.by_number.len() > FENCES_MAX
            && let Some((_, oldest)) = self.by_number.first_key_value().map(|(n, key)| (*n, *key))
        {
            self.remove(oldest);
            set.delete(Table::Meta, fence_key(oldest.0, oldest.1));
        }
        // also where it is known: the record before may not have been taken
        if let Some(fence) = self.by_client.get(&key) {
            let value = [fence.session.to_le_bytes(), fence.number.to_le_bytes()].concat();
            set.put(Table::Meta, fence_key(client, store), value);
        }
        assert_eq!(self.by_client.len(), self.by_number.len(), "a fence has one number");
        set
    }

    /// No request of this life of `client` can come any more; `set` forgets its fences.
    pub(crate) fn client_left(&mut self, client: ClientId, set: &mut WriteSet) {
        let range = (client, 0)..=(client, u64::MAX);
        let keys: Vec<Key> = self.by_client.range(range).map(|(key, _)| *key).collect();
        for key in keys {
            self.remove(key);
            set.delete(Table::Meta, fence_key(key.0, key.1));
        }
    }

    fn remove(&mut self, key: Key) {
        if let Some(fence) = self.by_client.remove(&key) {
            self.by_number.remove(&fence.number);
        }
    }
}

/// Changes that have passed the check and are not over.
#[derive(Default)]
pub(crate) struct UnderWay {
    /// How many have begun since the start: the number of the next one.
    begun: Cell<u64>,
    changes: RefCell<BTreeSet<(ClientId, u64)>>,
    ended: Notify,
}

/// One of them.
pub(crate) struct Counted<'a> {
    of: &'a UnderWay,
    client: ClientId,
    number: u64,
}

impl UnderWay {
    /// A change by `client` begins.
    pub(crate) fn begin(&self, client: ClientId) -> Counted<'_> {
        let number = self.begun.get();
        self.begun.set(number + 1);
        self.changes.borrow_mut().insert((client, number));
        Counted { of: self, client, number }
    }

    /// Waits until every change of `client` that began before is over. Changes that begin later are
    /// not waited for: they belong to another session of the client, or to another MDT's files.
    pub(crate) async fn over(&self, client: ClientId) {
        let begun = self.begun.get();
        while self.has_before(client, begun) {
            self.ended.notified().await;
        }
    }

    /// Whether a change of `client` with a lower number is not over.
    fn has_before(&self, client: ClientId, begun: u64) -> bool {
        let changes = self.changes.borrow();
        if client == ClientId::EVERYBODY {
            return changes.iter().any(|(_, number)| *number < begun);
        }
        changes.range((client, 0)..(client, begun)).next().is_some()
    }
}

impl Drop for Counted<'_> {
    fn drop(&mut self) {
        let was_there = self.of.changes.borrow_mut().remove(&(self.client, self.number));
        assert!(was_there, "a change is listed until it is over");
        self.of.ended.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use std::pin::pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    fn claim(store: u64, session: u64) -> Claim {
        Claim { store, session, ..Claim::default() }
    }

    #[test]
    fn a_fence_refuses_the_sessions_below_it_and_is_never_lowered() {
        let (one, mut fences) = (ClientId(1), Fences::default());
        fences.add(one, 7, 10);
        fences.add(one, 7, 5);
        let refused = |client, store, session| fences.refuses(client, &claim(store, session));
        assert!(refused(one, 7, 9) && !refused(one, 7, 10));
        assert!(!refused(one, 8, 1) && !refused(ClientId(2), 7, 1));
    }

    #[test]
    fn a_fence_for_everybody_refuses_all_sessions_below_it() {
        let mut fences = Fences::default();
        fences.add(ClientId(1), 7, 30);
        fences.add(ClientId::EVERYBODY, 7, 20);
        let refused = |client, store, session| fences.refuses(client, &claim(store, session));
        assert!(refused(ClientId(2), 7, 19) && !refused(ClientId(2), 7, 20));
        assert!(refused(ClientId(1), 7, 29) && !refused(ClientId(1), 7, 30));
        assert!(!refused(ClientId(2), 8, 1), "of another MDT");
    }

    #[test]
    fn the_oldest_goes_beyond_the_bound() {
        let mut fences = Fences::default();
        for client in 0..=FENCES_MAX as u128 {
            fences.add(ClientId(client), 7, 10);
        }
        let refused = |client| fences.refuses(ClientId(client), &claim(7, 1));
        assert_eq!([refused(0), refused(1), refused(FENCES_MAX as u128)], [false, true, true]);
    }

    #[test]
    fn records_bring_fences_back_and_damaged_ones_are_refused() {
        let mut fences = Fences::default();
        let set = fences.add(ClientId(1), 7, 10);
        let (_, key, value) =
            set.changes.iter().find(|(_, _, value)| value.is_some()).expect("a record");
        let (key, value) = (&key[META_FENCE.len()..], value.clone().expect("a record"));
        let mut loaded = Fences::default();
        assert_eq!(loaded.take(key, &value), Some(()));
        assert!(loaded.refuses(ClientId(1), &claim(7, 9)));
        assert_eq!(loaded.take(&key[1..], &value), None);
        assert_eq!(loaded.take(key, &value[1..]), None);
    }

    #[test]
    fn a_fence_waits_for_what_began_before_it_and_for_nothing_else() {
        let (one, under_way) = (ClientId(1), UnderWay::default());
        let (before, of_another) = (under_way.begin(one), under_way.begin(ClientId(2)));
        let mut fence = pin!(under_way.over(one));
        let mut for_everybody = pin!(under_way.over(ClientId::EVERYBODY));
        let mut cx = Context::from_waker(Waker::noop());
        assert_eq!(fence.as_mut().poll(&mut cx), Poll::Pending);
        assert_eq!(for_everybody.as_mut().poll(&mut cx), Poll::Pending);
        let behind = under_way.begin(one);
        drop(before);
        assert_eq!(fence.as_mut().poll(&mut cx), Poll::Ready(()), "a client may go on writing");
        assert_eq!(for_everybody.as_mut().poll(&mut cx), Poll::Pending);
        drop(of_another);
        assert_eq!(for_everybody.as_mut().poll(&mut cx), Poll::Ready(()));
        drop(behind);
    }

    #[test]
    fn a_client_that_left_has_no_fence() {
        let mut fences = Fences::default();
        fences.add(ClientId(1), 7, 10);
        let mut set = WriteSet::new();
        fences.client_left(ClientId(1), &mut set);
        assert!(!fences.refuses(ClientId(1), &claim(7, 1)) && set.changes.len() == 1);
    }
}
