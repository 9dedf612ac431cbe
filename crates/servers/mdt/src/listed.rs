//! The files of which a client holds a grant, in the store while its link is gone.
//!
//! The next instance lets changes of all other files go on at once
//! ([`ldlm::grants::Mdt::claims`]). Without a list, every change waits for the client's lease.
//!
//! Invariants
//! - A list names every file of which its client may hold something. While the store may have it,
//!   in memory or durably, the client is given nothing that is called back. So requests that were
//!   in a queue when the list was made add nothing to what it lacks.
//! - The set that says of a client that it is back removes its list.
//! - A list counts if the instance before has known of lists. An older version would not remove
//!   the list of a client that came back.

use std::collections::{BTreeMap, BTreeSet};

use osd::{StoreError, Table, View, WriteSet};
use service::ClientRecord;
use target::StartError;
use types::{Fid, Instance};

use crate::keys;

/// FIDs as keys, one after the other.
pub(crate) fn encode(files: &[Fid]) -> Vec<u8> {
    files.iter().flat_map(|file| file.to_key()).collect()
}

/// None if it is not a list.
fn decode(list: &[u8]) -> Option<BTreeSet<Fid>> {
    let (keys, rest) = list.as_chunks::<16>();
    if !rest.is_empty() {
        return None;
    }
    keys.iter().map(|key| Fid::from_key(key)).collect()
}

/// The lists of sessions that are silent, for `instance`, which knows of lists. All others go with
/// `set`: without a list, all changes wait for a session.
pub(crate) fn open(
    view: &dyn View,
    known: &[ClientRecord],
    instance: Instance,
    set: &mut WriteSet,
) -> Result<BTreeMap<u64, BTreeSet<Fid>>, StartError> {
    let known_by = target::word(view, keys::META_LISTED_OF)?;
    let counts = known_by.and_then(|of| of.checked_add(1)) == Some(instance.0);
    let silent: BTreeSet<u64> =
        known.iter().filter(|known| known.silent).map(|known| known.session).collect();
    let (mut lists, mut from) = (BTreeMap::new(), keys::META_LISTED.to_vec());
    loop {
        let mut take = |key: &[u8], list: &[u8]| {
            let session = key.strip_prefix(keys::META_LISTED).and_then(|id| id.try_into().ok());
            let session = session.map(u64::from_be_bytes);
            match session.filter(|id| counts && silent.contains(id)).zip(decode(list)) {
                Some((session, files)) => drop(lists.insert(session, files)),
                None => set.delete(Table::Meta, key),
            }
            true
        };
        let scanned = view.scan_within((Table::Meta, keys::META_LISTED), &from, &mut take);
        match scanned {
            Err(StoreError::Damaged { mut key, .. }) => {
                set.delete(Table::Meta, key.clone());
                key.push(0);
                from = key; // the next one
            }
            scanned => {
                scanned?;
                break;
            }
        }
    }
    set.put(Table::Meta, keys::META_LISTED_OF, instance.0.to_le_bytes());
    Ok(lists)
}

#[cfg(test)]
mod tests {
    use osd::MetaStore;
    use types::{ClientId, Nid};

    use super::*;
    use crate::tests::store::TestStore;

    #[test]
    fn a_list_goes_there_and_back_and_a_cut_one_is_refused() {
        let files = [Fid::ROOT, Fid::new(0x400, 7)];
        let list = encode(&files);
        assert_eq!(decode(&list), Some(BTreeSet::from(files)));
        assert_eq!(decode(&[]), Some(BTreeSet::new()));
        assert_eq!(decode(&list[1..]), None);
    }

    /// Lists of sessions 1 to 5, which the instance `of` has made: the sessions whose lists the
    /// seventh instance takes, and those whose lists are left after its start.
    fn taken(of: u64) -> (Vec<u64>, Vec<u64>) {
        let meta = TestStore::default();
        let mut set = WriteSet::new();
        set.put(Table::Meta, keys::META_LISTED_OF, of.to_le_bytes());
        for session in 1..=5 {
            set.put(Table::Meta, keys::listed(session), encode(&[Fid::ROOT]));
        }
        set.put(Table::Meta, keys::listed(4), [9_u8]);
        meta.apply(&set).expect("room");
        let known = |session: u64, silent: bool| ClientRecord {
            client: ClientId(session.into()),
            session,
            name: String::new(),
            is_server: false,
            silent,
            silent_secs: 0,
            nid: Nid::default(),
        };
        // the second one is back, and the third one is over
        let known = [known(1, true), known(2, false), known(4, true), known(5, true)];
        *meta.damaged.borrow_mut() = Some((Table::Meta, keys::listed(1)));
        let mut set = WriteSet::new();
        let view = meta.running().expect("ready");
        let lists = open(&*view, &known, Instance(7), &mut set).expect("a start does without");
        drop(view);
        meta.apply(&set).expect("room");
        let (last, stored): (Vec<_>, Vec<_>) = meta
            .table(Table::Meta)
            .into_iter()
            .partition(|(key, _)| key.as_slice() == keys::META_LISTED_OF);
        assert_eq!(last[0].1, 7_u64.to_le_bytes());
        let session = |key: &[u8]| {
            let id = key.strip_prefix(keys::META_LISTED).and_then(|id| id.try_into().ok());
            id.map(u64::from_be_bytes).expect("a list")
        };
        let stored = stored.iter().map(|(key, _)| session(key)).collect();
        (lists.into_keys().collect(), stored)
    }

    #[test]
    fn lists_of_silent_sessions_count_if_the_instance_before_has_known_of_lists() {
        assert_eq!(taken(6), (vec![5], vec![5]));
        assert_eq!(taken(5), (vec![], vec![]), "an older version ran meanwhile");
    }
}
