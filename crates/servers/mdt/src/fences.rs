//! Sessions that ended while they held something, until the OSTs refuse their client.
//!
//! A client that the MDT has given up may be alive: it may be cut off from the MDT only, or it was
//! stopped. Data that it sent to an OST under its locks may still be on the way. So the MDT passes
//! on nothing that the session held before every OST of the files has made the fence durable:
//!
//! - It keeps its lock on a file, handles that write the file, and its right to keep writes until
//!   the file's OSTs have the fence. So no client is granted a lock in between, and no size that
//!   another client determines is trusted. Other handles stay open until all OSTs have it.
//! - If a restart lost the state of a session, it may have held anything at any OST. Until an OST
//!   has the fence, no lock is granted on a file that has an object there, and no size is trusted
//!   at all.
//!
//! A record keeps each of these sessions over restarts. It goes when all OSTs have the fence.
//!
//! No fence is given up while an OST is away, however long that takes. So the number of untold
//! fences is bounded at its source. Beyond [`FENCES_UNTOLD_MAX`] no client gets a new session.
//! Beyond [`FENCES_UNTOLD_OF_CLIENT_MAX`] that client gets none. Clients ask again until the OSTs
//! are back. Sessions that exist at the bound may still end.

use std::collections::{BTreeMap, BTreeSet};

use osd::{StoreError, Table, View, WriteSet};
use target::StartError;
use types::ClientId;

use crate::keys::META_FENCE;
use crate::limits::{FENCES_UNTOLD_MAX, FENCES_UNTOLD_OF_CLIENT_MAX};

/// A session that ended and held something.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lapsed {
    pub(crate) client: ClientId,
    pub(crate) session: u64,
    /// OSTs that must refuse it; nothing where it may have used any.
    pub(crate) osts: Option<BTreeSet<u32>>,
}

/// All of them.
#[derive(Default)]
pub(crate) struct Fences {
    pending: BTreeMap<u64, Pending>,
    /// Sums of [`Pending::untold`].
    untold: usize,
    untold_of: BTreeMap<ClientId, usize>,
    /// How many are unsure.
    unsure: usize,
}

struct Pending {
    /// Not told so far; nothing where that is not known yet.
    left: Option<BTreeSet<u32>>,
    /// What it held is not known any more.
    is_unsure: bool,
    client: ClientId,
    /// Its client has begun a later session since, or may have.
    has_returned: bool,
}

impl Pending {
    /// OSTs that are still to hear of it; one while they are not known.
    fn untold(&self) -> usize {
        self.left.as_ref().map_or(1, BTreeSet::len)
    }
}

impl Lapsed {
    fn key(session: u64) -> Vec<u8> {
        [META_FENCE, &session.to_be_bytes()].concat()
    }

    /// Keeps it over restarts.
    pub(crate) fn remember(&self, set: &mut WriteSet) {
        let mut value = self.client.0.to_le_bytes().to_vec();
        let osts = self.osts.iter().flatten();
        value.extend(osts.flat_map(|ost| ost.to_le_bytes()));
        set.put(Table::Meta, Lapsed::key(self.session), value);
    }

    /// Every OST has the fence.
    pub(crate) fn forget(session: u64, set: &mut WriteSet) {
        set.delete(Table::Meta, Lapsed::key(session));
    }

    fn decode(key: &[u8], value: &[u8]) -> Option<Lapsed> {
        let session = u64::from_be_bytes(key.try_into().ok()?);
        let (client, osts) = value.split_first_chunk::<16>()?;
        let osts = osts.chunks_exact(4);
        if !osts.remainder().is_empty() {
            return None;
        }
        let osts: BTreeSet<u32> =
            osts.filter_map(|ost| ost.try_into().ok()).map(u32::from_le_bytes).collect();
        let client = ClientId(u128::from_le_bytes(*client));
        Some(Lapsed { client, session, osts: (!osts.is_empty()).then_some(osts) })
    }
}

/// Those that an earlier run has left.
pub(crate) fn stored(view: &dyn View) -> Result<Vec<Lapsed>, StartError> {
    let (mut found, mut is_broken) = (Vec::new(), false);
    let scanned: Result<(), StoreError> = view.scan(Table::Meta, META_FENCE, &mut |key, value| {
        let Some(session) = key.strip_prefix(META_FENCE) else { return false };
        match Lapsed::decode(session, value) {
            Some(lapsed) => found.push(lapsed),
            None => is_broken = true,
        }
        !is_broken
    });
    scanned?;
    if is_broken { Err(StartError::Broken("a fence".to_owned())) } else { Ok(found) }
}

impl Fences {
    /// A session has ended. `is_unsure`: what it held is lost.
    pub(crate) fn begin(&mut self, lapsed: &Lapsed, is_unsure: bool) {
        let pending = Pending {
            left: lapsed.osts.clone(),
            is_unsure,
            client: lapsed.client,
            has_returned: false,
        };
        self.end(lapsed.session);
        self.count(lapsed.client, 0, pending.untold());
        self.unsure += usize::from(is_unsure);
        let before = self.pending.insert(lapsed.session, pending);
        assert!(before.is_none(), "an earlier fence of the session has ended");
    }

    /// Whether too much is untold for a new session of this client.
    pub(crate) fn are_too_many(&self, client: ClientId) -> bool {
        let of_client = self.untold_of.get(&client).copied().unwrap_or(0);
        self.untold >= FENCES_UNTOLD_MAX || of_client >= FENCES_UNTOLD_OF_CLIENT_MAX
    }

    fn count(&mut self, client: ClientId, before: usize, after: usize) {
        assert!(before <= self.untold, "a fence is counted as long as it is untold");
        self.untold = self.untold + after - before;
        let of_client = self.untold_of.entry(client).or_default();
        *of_client = *of_client + after - before;
        if *of_client == 0 {
            self.untold_of.remove(&client);
        }
        assert!(self.untold_of.len() <= self.untold, "who is counted has a fence untold");
    }

    fn change(&mut self, session: u64, change: impl FnOnce(&mut Pending)) {
        let Some(pending) = self.pending.get_mut(&session) else { return };
        let before = pending.untold();
        change(pending);
        let (client, after) = (pending.client, pending.untold());
        self.count(client, before, after);
    }

    /// A client has a session again.
    pub(crate) fn returned(&mut self, client: ClientId) {
        let its = self.pending.values_mut().filter(|pending| pending.client == client);
        its.for_each(|pending| pending.has_returned = true);
    }

    /// Whether the client has had no session since that one.
    pub(crate) fn is_gone(&self, session: u64) -> bool {
        self.pending.get(&session).is_some_and(|pending| !pending.has_returned)
    }

    /// The OSTs that must hear of it are these, where that was not known.
    pub(crate) fn found(&mut self, session: u64, osts: &BTreeSet<u32>) {
        self.change(session, |pending| {
            pending.left.get_or_insert_with(|| osts.clone());
        });
    }

    /// An OST refuses that session.
    pub(crate) fn told(&mut self, session: u64, ost: u32) {
        self.change(session, |pending| {
            pending.left.as_mut().map(|left| left.remove(&ost));
        });
    }

    /// OSTs that may still take what that session sent; none where all have been told, or where
    /// they are not known.
    pub(crate) fn left(&self, session: u64) -> BTreeSet<u32> {
        let pending = self.pending.get(&session);
        pending.and_then(|pending| pending.left.clone()).unwrap_or_default()
    }

    /// All OSTs do.
    pub(crate) fn end(&mut self, session: u64) {
        if let Some(pending) = self.pending.remove(&session) {
            self.count(pending.client, pending.untold(), 0);
            self.unsure -= usize::from(pending.is_unsure);
            assert!(self.unsure <= self.pending.len(), "an unsure fence is pending");
        }
    }

    /// Whether a session is pending of which nobody knows what it held.
    pub(crate) fn is_unsure(&self) -> bool {
        self.unsure > 0
    }

    /// Whether such a session may still use one of these OSTs.
    pub(crate) fn is_unsure_of(&self, osts: &[u32]) -> bool {
        self.is_unsure()
            && self.pending.values().filter(|pending| pending.is_unsure).any(|pending| {
                pending.left.as_ref().is_none_or(|left| osts.iter().any(|ost| left.contains(ost)))
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn lapsed(session: u64, osts: &[u32]) -> Lapsed {
        let osts = (!osts.is_empty()).then(|| osts.iter().copied().collect());
        Lapsed { client: ClientId(9), session, osts }
    }

    #[test]
    fn a_record_goes_there_and_back_and_its_cuts_are_refused() {
        for lapsed in [lapsed(7, &[]), lapsed(8, &[1, 5])] {
            let mut set = WriteSet::new();
            lapsed.remember(&mut set);
            let (_, key, value) = set.changes.remove(0);
            let (key, value) = (&key[META_FENCE.len()..], value.expect("a record"));
            assert_eq!(Lapsed::decode(key, &value), Some(lapsed));
            assert_eq!(Lapsed::decode(&key[1..], &value), None);
            assert_eq!(Lapsed::decode(key, &value[..15]), None);
            assert!(value.len() == 16 || Lapsed::decode(key, &value[..17]).is_none());
        }
    }

    /// What a later session did at an OST is to be replayed: the OST must wait for it.
    #[test]
    fn a_client_that_has_returned_is_not_gone_though_its_fence_is_untold() {
        let mut fences = Fences::default();
        fences.begin(&lapsed(7, &[1]), false);
        assert!(fences.is_gone(7));
        fences.returned(ClientId(8));
        assert!(fences.is_gone(7), "somebody else");
        fences.returned(ClientId(9));
        assert!(!fences.is_gone(7));
        fences.begin(&lapsed(8, &[1]), false);
        assert!(fences.is_gone(8) && !fences.is_gone(7), "a session between them may be to replay");
    }

    #[test]
    fn at_the_bound_nobody_gets_a_new_session_until_osts_have_been_told() {
        let mut fences = Fences::default();
        let two = |session, client| Lapsed { client: ClientId(client), ..lapsed(session, &[1, 2]) };
        let of_one = FENCES_UNTOLD_OF_CLIENT_MAX as u64 / 2;
        (0..of_one).for_each(|session| fences.begin(&two(session, 1), false));
        assert!(fences.are_too_many(ClientId(1)) && !fences.are_too_many(ClientId(2)));
        fences.told(0, 2);
        fences.told(0, 2);
        assert!(!fences.are_too_many(ClientId(1)));
        let all = FENCES_UNTOLD_MAX as u64 / 2;
        (of_one..=all).for_each(|session| fences.begin(&two(session, u128::from(session)), false));
        assert!(fences.are_too_many(ClientId(2)), "whoever it is");
        (0..=all).for_each(|session| fences.end(session));
        assert!((fences.untold, fences.untold_of.len()) == (0, 0) && fences.pending.is_empty());
    }

    #[test]
    fn only_lost_holdings_stand_in_the_way_of_others() {
        let mut fences = Fences::default();
        fences.begin(&lapsed(7, &[1]), false);
        assert!(!fences.is_unsure() && !fences.is_unsure_of(&[1]));
        fences.begin(&lapsed(8, &[]), true);
        assert!(fences.is_unsure_of(&[3]) && fences.is_unsure());
        fences.found(8, &BTreeSet::from([1, 2]));
        assert!(fences.is_unsure_of(&[3, 2]) && !fences.is_unsure_of(&[3]));
        fences.told(8, 2);
        assert_eq!(fences.left(8), BTreeSet::from([1]));
        assert!(!fences.is_unsure_of(&[2]) && fences.is_unsure());
        fences.end(8);
        assert!(!fences.is_unsure());
    }
}
