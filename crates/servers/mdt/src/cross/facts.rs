//! The state of other MDTs' keys, as an operation of several MDTs knows it. A fact holds for as
//! long as its key is reserved there.

use std::collections::{BTreeMap, BTreeSet};

use wire::updates::{Fact, Key, Want};

/// Facts by key, each with whether the operation may change it.
#[derive(Clone, Debug, Default)]
pub(crate) struct Facts(BTreeMap<Key, (Fact, bool)>);

impl Facts {
    /// What is known of a key; nothing if it was not asked for, or only to look at it.
    pub(crate) fn get(&self, want: &Want) -> Option<&Fact> {
        let (fact, may_change) = self.0.get(&want.key)?;
        (*may_change || !want.changes).then_some(fact)
    }

    /// What an MDT said, in the order of the wants.
    pub(crate) fn learn(&mut self, wants: &BTreeSet<Want>, facts: Vec<Fact>) {
        assert_eq!(wants.len(), facts.len(), "each want has its fact");
        for (want, fact) in wants.iter().zip(facts) {
            let known = self.0.entry(want.key.clone()).or_insert((fact.clone(), false));
            *known = (fact, known.1 || want.changes);
        }
    }

    /// Nothing is known of this MDT's keys any more.
    pub(crate) fn forget(&mut self, mdt: u32) {
        self.0.retain(|key, _| key.mdt() != mdt);
    }
}
