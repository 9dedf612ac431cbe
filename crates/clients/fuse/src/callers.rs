//! Supplementary groups of callers. The kernel does not send them, so they are read from `/proc`
//! and cached briefly.

use std::collections::BTreeMap;

use fusedev::Header;
use types::{Creds, GROUPS_MAX, Instant};

use crate::limits::{CALLERS_MAX, GROUPS_AGE};

#[derive(Default)]
pub(crate) struct Callers {
    known: BTreeMap<(u32, u32, u32), (Instant, Vec<u32>)>,
}

impl Callers {
    /// Identity of the caller; `read` looks up the groups of a thread.
    pub(crate) fn creds(
        &mut self,
        header: &Header,
        now: Instant,
        read: impl FnOnce(u32) -> Vec<u32>,
    ) -> Creds {
        let (uid, gid) = (header.uid, header.gid);
        // The superuser needs no group to be let in.
        if uid == 0 {
            return Creds { uid, gid, groups: Vec::new() };
        }
        let key = (header.pid, uid, gid);
        if let Some((until, groups)) = self.known.get(&key)
            && now < *until
        {
            return Creds { uid, gid, groups: groups.clone() };
        }
        let mut groups = read(header.pid);
        groups.truncate(GROUPS_MAX);
        if self.known.len() >= CALLERS_MAX {
            self.known.clear();
        }
        self.known.insert(key, (now + GROUPS_AGE, groups.clone()));
        Creds { uid, gid, groups }
    }
}

#[cfg(test)]
mod tests {
    use types::Span;

    use super::*;

    fn header(uid: u32) -> Header {
        Header { opcode: 0, unique: 0, nodeid: 1, uid, gid: 5, pid: 77 }
    }

    #[test]
    fn groups_are_read_anew_when_they_are_old_or_the_user_changed() {
        let (mut callers, start) = (Callers::default(), Instant(0));
        assert_eq!(callers.creds(&header(9), start, |_| vec![1]).groups, [1]);
        assert_eq!(callers.creds(&header(9), start + Span::millis(50), |_| vec![2]).groups, [1]);
        assert_eq!(callers.creds(&header(8), start + Span::millis(50), |_| vec![3]).groups, [3]);
        assert_eq!(callers.creds(&header(9), start + GROUPS_AGE, |_| vec![2]).groups, [2]);
    }

    #[test]
    fn the_superuser_is_not_looked_up() {
        assert_eq!(Callers::default().creds(&header(0), Instant(0), |_| panic!("no need")).gid, 5);
    }
}
