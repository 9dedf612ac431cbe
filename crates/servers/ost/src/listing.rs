//! The objects that have a record on an OST, for a comparison with the objects that files name.

use osd::{StoreError, Table, View};
use types::Fid;

use crate::record::ObjectRecord;

/// An object and whose it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Listed {
    pub object: Fid,
    /// The file for which it was made; zero where its record cannot be read.
    pub file: Fid,
    /// Number of the store of the file's MDT; zero in a record of the first version.
    pub store: u64,
}

/// The first `max` objects from `from` on, in the order of their FIDs: fewer only at the end.
pub fn objects(view: &dyn View, from: Fid, max: usize) -> Result<Vec<Listed>, StoreError> {
    let mut all = Vec::new();
    view.scan(Table::Objects, &from.to_key(), &mut |key, value| {
        if all.len() == max {
            return false;
        }
        let record = ObjectRecord::decode(value);
        if record.is_some_and(|record| record.is_gone()) {
            return true;
        }
        let (file, store) = record.map_or((Fid::ZERO, 0), |record| record.made_for());
        all.extend(Fid::from_key(key).map(|object| Listed { object, file, store }));
        true
    })?;
    Ok(all)
}

#[cfg(test)]
pub(crate) mod tests {
    use std::collections::BTreeMap;

    use types::Timespec;
    use zerocopy::IntoBytes;

    use super::*;
    use crate::record::Owner;

    /// Records of objects alone.
    #[derive(Default)]
    pub(crate) struct Records(pub(crate) BTreeMap<Vec<u8>, Vec<u8>>);

    impl View for Records {
        fn get(&self, _table: Table, key: &[u8]) -> Result<Option<Vec<u8>>, StoreError> {
            Ok(self.0.get(key).cloned())
        }

        fn scan(
            &self,
            _table: Table,
            from: &[u8],
            visit: &mut dyn FnMut(&[u8], &[u8]) -> bool,
        ) -> Result<(), StoreError> {
            let _stopped = self.0.range(from.to_vec()..).all(|(key, value)| visit(key, value));
            Ok(())
        }
    }

    #[test]
    fn pages_of_a_listing_meet_and_end() {
        let mut records = Records::default();
        let owner = Owner { parent: Fid::new(5, 6), store: 9 };
        for stripe in 0..5 {
            let record = ObjectRecord::new(owner, Timespec::default());
            let key = Fid::new(7, 8).stripe(stripe).to_key();
            records.0.insert(key.to_vec(), record.as_bytes().to_vec());
        }
        records.0.insert(Fid::new(7, 9).to_key().to_vec(), b"damaged".to_vec());
        let first = objects(&records, Fid::ZERO, 4).expect("reads");
        let listed = |stripe| Listed {
            object: Fid::new(7, 8).stripe(stripe),
            file: owner.parent,
            store: owner.store,
        };
        assert_eq!(first, [0, 1, 2, 3].map(listed));
        let next = first[3].object.stripe(4);
        let unknown = Listed { object: Fid::new(7, 9), file: Fid::ZERO, store: 0 };
        assert_eq!(objects(&records, next, 4).expect("reads"), [listed(4), unknown]);
    }
}
