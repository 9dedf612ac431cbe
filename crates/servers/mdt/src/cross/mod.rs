//! Operations that change something on several MDTs.
//!
//! The MDT that a client asks coordinates ([`coordinate`]). It has the keys of other MDTs reserved
//! ([`peer`] answers) and decides. It applies its own part with the record of the whole operation.
//! It sends the record to the others until they have executed their parts ([`deliver`]). After a
//! restart, MDTs ask each other for lost records ([`roll`]). Operations with an MDT that the MGS
//! has forgotten end without it ([`forgotten`]).

mod coordinate;
mod crossed;
mod deliver;
mod deliveries;
mod facts;
mod forgotten;
mod guests;
pub(crate) mod half;
pub(crate) mod own;
pub(crate) mod peer;
mod reserve;
mod roll;
pub(crate) mod seal;

use std::cell::{Cell, RefCell};
use std::collections::{BTreeMap, BTreeSet};

use types::Errno;
use wire::updates::{OpId, Place, Update, Want};

pub(crate) use self::coordinate::Coordinator;
pub(crate) use self::crossed::Crossed;
pub(crate) use self::deliveries::{Deliveries, Delivery};
pub(crate) use self::facts::Facts;
pub(crate) use self::guests::Guests;
pub(crate) use self::half::Halves;
pub(crate) use self::reserve::Claim;

/// What an operation knows of other MDTs while it is decided.
#[derive(Debug, Default)]
pub(crate) struct Crossing {
    /// Its name, once it has asked another MDT.
    pub(crate) id: Option<OpId>,
    pub(crate) facts: Facts,
    /// Names that are absent for ever in shards that names leave.
    pub(crate) absent: BTreeSet<Place>,
    /// Those of them that further operations need not ask for ([`wire::updates::Moved::lasts`]).
    pub(crate) lasting: BTreeSet<Place>,
    /// MDTs that have answered, and take their part.
    pub(crate) prepared: BTreeSet<u32>,
    /// Those of them that have no room for what is there for good.
    pub(crate) full: BTreeSet<u32>,
    /// MDTs that refused to take a new directory, or did not answer, with what they refused with.
    pub(crate) refused: BTreeMap<u32, Errno>,
    /// The MDT that was chosen for a new directory: every attempt to decide takes the same.
    pub(crate) chosen: Cell<Option<u32>>,
    /// The MDTs that were chosen for further shards, behind that of the first one.
    pub(crate) chosen_others: RefCell<Option<(u32, Vec<u32>)>>,
}

impl Crossing {
    /// Whether one of these changes adds something on another MDT that has no room for it.
    pub(crate) fn lacks_room(&self, updates: &[Update]) -> bool {
        let is_full = |update: &Update| self.full.contains(&update.fid().mdt_index());
        updates.iter().any(|update| update.adds() && is_full(update))
    }
}

/// What an operation must ask for before it can be decided.
#[derive(Debug, Default)]
pub(crate) struct Needs {
    /// Keys by MDT; without any, the MDT takes a part all the same.
    pub(crate) wants: BTreeMap<u32, BTreeSet<Want>>,
    /// Names that are to move first.
    pub(crate) pulls: BTreeSet<Place>,
    /// Keys of this MDT that it depends on so far.
    pub(crate) claims: Vec<Claim>,
}
