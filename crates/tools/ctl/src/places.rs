//! Places of askers at a control socket. Root and the daemon's own user have places that no other
//! user can take. Of the other places, a user gets no more than it leaves free.

use std::collections::BTreeMap;

use types::Role;

/// Askers of root and the daemon's own user that are served at once.
const OF_ADMINISTRATORS_MAX: u32 = 32;

/// Askers of all other users that are served at once.
const OF_OTHERS_MAX: u32 = 32;

/// The places that are taken.
pub(crate) struct Places {
    /// The daemon's own user.
    own: u32,
    of_administrators: u32,
    of_others: BTreeMap<u32, u32>,
}

impl Places {
    /// All free, of a daemon that runs as the user `own`.
    pub(crate) fn new(own: u32) -> Places {
        Places { own, of_administrators: 0, of_others: BTreeMap::new() }
    }

    /// Takes a place for an asker of this user; says whether there was one.
    pub(crate) fn take(&mut self, uid: u32) -> bool {
        if self.is_administrator(uid) {
            let is_free = self.of_administrators < OF_ADMINISTRATORS_MAX;
            self.of_administrators += u32::from(is_free);
            return is_free;
        }
        let taken: u32 = self.of_others.values().sum();
        let of_user = self.of_others.get(&uid).copied().unwrap_or(0);
        let is_free = taken + of_user + 2 <= OF_OTHERS_MAX;
        if is_free {
            self.of_others.insert(uid, of_user + 1);
        }
        is_free
    }

    /// Gives back a place that `take` gave to an asker of this user.
    pub(crate) fn give_back(&mut self, uid: u32) {
        if self.is_administrator(uid) {
            self.of_administrators -= 1;
            return;
        }
        let of_user = self.of_others.get_mut(&uid).expect("a place is given back once");
        *of_user -= 1;
        if *of_user == 0 {
            self.of_others.remove(&uid);
        }
    }

    fn is_administrator(&self, uid: u32) -> bool {
        Role::of_user(uid, self.own) >= Role::Administrator
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const OWN: u32 = 1_000;

    fn take_all(places: &mut Places, uid: u32) -> u32 {
        (0..1_000).map(|_| u32::from(places.take(uid))).sum()
    }

    #[test]
    fn other_users_take_no_place_of_an_administrator_and_leave_places_to_each_other() {
        let mut places = Places::new(OWN);
        assert_eq!([1, 2, 3, 4, 5, 6].map(|uid| take_all(&mut places, uid)), [16, 8, 4, 2, 1, 0]);
        assert_eq!([0, OWN].map(|uid| take_all(&mut places, uid)), [32, 0]);
        places.give_back(0);
        assert!(places.take(OWN) && !places.take(0));
        for _ in 0..16 {
            places.give_back(1);
        }
        assert!(places.take(6) && take_all(&mut places, 1) == 8);
    }

    #[test]
    fn a_user_without_askers_costs_nothing() {
        let mut places = Places::new(OWN);
        for uid in 1..100 {
            assert!(uid == OWN || places.take(uid));
            places.give_back(uid);
        }
        assert!(places.of_others.is_empty());
    }
}
