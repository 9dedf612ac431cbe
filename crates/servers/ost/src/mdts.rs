//! The MDTs whose files have objects here, and clients that they have given up.
//!
//! Recovery need not wait for a client all of whose replays would be refused. Each MDT speaks for
//! its own files only: the client may have lost its session with one MDT and have another one's
//! writes to replay. So recovery gives a client up when every MDT has said that it is gone.
//!
//! A record names the store of each MDT. It is written with the first change that comes for a file
//! of that MDT, so it is there before any change can be replayed.
//!
//! An MDT that the MGS has forgotten gives no client up, so it is not asked for. Its record stays:
//! objects may be lent to its files, and an administrator may bring it back.

use std::collections::{BTreeMap, BTreeSet};

use osd::{StoreError, Table, View, WriteSet};
use types::{ClientId, MDTS_MAX};

use crate::record::{META_MDT, Owner, mdt_key};

/// Pure: the caller keeps the table in step.
#[derive(Default)]
pub(crate) struct Mdts {
    /// Number of the store of each MDT, by its index.
    stores: BTreeMap<u32, u64>,
    /// Clients that recovery waits for, and the stores of the MDTs that have given them up in this
    /// run.
    gone: BTreeMap<ClientId, BTreeSet<u64>>,
    /// Indexes of MDTs that the MGS has forgotten.
    forgotten: BTreeSet<u32>,
}

impl Mdts {
    /// As found at boot. `None` where a record is none of ours.
    pub(crate) fn load(view: &dyn View) -> Result<Option<Mdts>, StoreError> {
        let mut mdts = Mdts::default();
        let mut is_broken = false;
        view.scan(Table::Meta, META_MDT, &mut |key, value| {
            let Some(index) = key.strip_prefix(META_MDT) else { return false };
            is_broken = mdts.take(index, value).is_none();
            !is_broken
        })?;
        Ok((!is_broken).then_some(mdts))
    }

    fn take(&mut self, index: &[u8], store: &[u8]) -> Option<()> {
        let index = u32::from_be_bytes(index.try_into().ok()?);
        let store = u64::from_le_bytes(store.try_into().ok()?);
        self.stores.insert(index, store);
        Some(())
    }

    /// Number of the store of an MDT, if an object has changed for it.
    pub(crate) fn store_of(&self, index: u32) -> Option<u64> {
        self.stores.get(&index).copied()
    }

    /// Adds to `set` what has to be stored because an object changes for `owner`.
    pub(crate) fn remember(&self, owner: &Owner, set: &mut WriteSet) {
        self.remember_store((owner.parent.mdt_index(), owner.store), set);
    }

    /// The same, because an object is lent to files of an MDT: its index, and the number of its
    /// store.
    pub(crate) fn remember_store(&self, (index, store): (u32, u64), set: &mut WriteSet) {
        if index < MDTS_MAX && self.stores.get(&index) != Some(&store) {
            set.put(Table::Meta, mdt_key(index), store.to_le_bytes());
        }
    }

    /// That has been stored.
    pub(crate) fn remembered(&mut self, owner: &Owner) {
        self.remembered_store((owner.parent.mdt_index(), owner.store));
    }

    /// The same of [`Mdts::remember_store`].
    pub(crate) fn remembered_store(&mut self, (index, store): (u32, u64)) {
        if index < MDTS_MAX {
            self.stores.insert(index, store);
        }
    }

    /// An MDT has given up a client that recovery waits for. Whether all have.
    pub(crate) fn gave_up(&mut self, client: ClientId, store: u64) -> bool {
        let by = self.gone.entry(client).or_default();
        if by.len() < MDTS_MAX as usize {
            by.insert(store);
        }
        self.gone.get(&client).is_some_and(|by| self.are_all(by))
    }

    /// Whether these are the stores of all MDTs that are not forgotten.
    fn are_all(&self, by: &BTreeSet<u64>) -> bool {
        let mut asked = self.stores.iter().filter(|(index, _)| !self.forgotten.contains(*index));
        asked.all(|(_, store)| by.contains(store))
    }

    /// The MGS has forgotten these MDTs, and no others. Clients that all others have given up.
    pub(crate) fn set_forgotten(&mut self, mdts: BTreeSet<u32>) -> Vec<ClientId> {
        if self.forgotten == mdts {
            return Vec::new();
        }
        self.forgotten = mdts;
        let given_up = self.gone.iter().filter(|(_, by)| self.are_all(by));
        given_up.map(|(client, _)| *client).collect()
    }

    /// Recovery waits for no client any more.
    pub(crate) fn recovered(&mut self) {
        self.gone.clear();
    }
}

#[cfg(test)]
mod tests {
    use types::{FID_FIRST_NORMAL_SEQ, FID_SEQUENCES_PER_MDT_BITS, Fid};

    use super::*;

    fn owner(mdt: u64, store: u64) -> Owner {
        let seq = FID_FIRST_NORMAL_SEQ + (mdt << FID_SEQUENCES_PER_MDT_BITS);
        Owner { parent: Fid::new(seq, 7), store }
    }

    #[test]
    fn a_client_is_given_up_when_every_mdt_has_given_it_up() {
        let (one, two, mut mdts) = (ClientId(1), ClientId(2), Mdts::default());
        assert!(mdts.gave_up(one, 70), "there is no other");
        mdts.remembered(&owner(0, 70));
        mdts.remembered(&owner(3, 73));
        assert!(!mdts.gave_up(two, 70) && !mdts.gave_up(two, 70), "the other has its own files");
        assert!(mdts.gave_up(two, 73));
        mdts.recovered();
        assert!(!mdts.gave_up(two, 73), "that was another run");
    }

    #[test]
    fn a_forgotten_mdt_gives_no_client_up_and_is_not_waited_for() {
        let (one, two, mut mdts) = (ClientId(1), ClientId(2), Mdts::default());
        mdts.remembered(&owner(0, 70));
        mdts.remembered(&owner(3, 73));
        assert!(!mdts.gave_up(one, 70));
        assert_eq!(mdts.set_forgotten(BTreeSet::from([3])), [one], "the other one has");
        assert!(mdts.set_forgotten(BTreeSet::from([3])).is_empty(), "it is no news");
        assert!(mdts.gave_up(two, 70));
        assert_eq!(mdts.store_of(3), Some(73), "objects may be lent to it");
        mdts.set_forgotten(BTreeSet::new());
        assert!(!mdts.gave_up(two, 70), "it is back");
    }

    #[test]
    fn an_mdt_whose_store_was_made_anew_takes_the_place_of_the_old_one() {
        let mut mdts = Mdts::default();
        mdts.remembered(&owner(1, 71));
        mdts.remembered(&owner(1, 72));
        assert!(mdts.gave_up(ClientId(1), 72));
    }

    #[test]
    fn records_bring_mdts_back_and_damaged_ones_are_refused() {
        let (mut mdts, mut set) = (Mdts::default(), WriteSet::new());
        mdts.remember(&owner(5, 75), &mut set);
        let [(_, key, Some(value))] = &set.changes[..] else { panic!("one record") };
        assert_eq!(mdts.take(&key[META_MDT.len()..], value), Some(()));
        assert!(!mdts.gave_up(ClientId(1), 70));
        assert_eq!(mdts.take(&key[META_MDT.len() + 1..], value), None);
        assert_eq!(mdts.take(&key[META_MDT.len()..], &value[1..]), None);
        let mut set = WriteSet::new();
        mdts.remember(&owner(5, 75), &mut set);
        mdts.remember(&owner(u64::from(MDTS_MAX), 7), &mut set);
        assert_eq!(set.changes.len(), 0, "known, and of no MDT");
    }
}
