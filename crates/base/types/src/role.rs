//! Roles of peers, in the order of the operations that each may ask for.
//!
//! A role is decided once: when a session connects, or when a local user asks a daemon's socket.
//! Which operations are for which role is a table of the operations (`wire::Opcode::least_role`).
//! Certificates will decide roles too, once HELLO carries them.

use crate::Nid;

/// See the head of the file. A higher role may all that a lower one may.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Role {
    /// Any admitted peer.
    #[default]
    Client,
    /// A server, at an address where servers are known.
    Server,
    /// Root or the server's own user, on the server's machine.
    Administrator,
}

impl Role {
    /// Of an admitted peer at `nid` that is a server or is not. From this machine only root and the
    /// server's own user are admitted.
    #[must_use]
    pub fn of_peer(nid: Nid, is_server: bool) -> Role {
        match is_server {
            false => Role::Client,
            true if nid.is_on_this_machine() => Role::Administrator,
            true => Role::Server,
        }
    }

    /// Of the local user `uid`, for a daemon that runs as the user `own`.
    #[must_use]
    pub fn of_user(uid: u32, own: u32) -> Role {
        if uid == 0 || uid == own { Role::Administrator } else { Role::Client }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_peer_has_its_role_by_its_address_and_its_word() {
        let role = |nid: &str, is_server| Role::of_peer(nid.parse().expect("a NID"), is_server);
        for nid in ["10.0.0.1@tcp", "127.0.0.1@tcp", "127.9.9.9@tcp1", "0@lo", "7@lo"] {
            assert_eq!(role(nid, false), Role::Client, "{nid}");
        }
        for nid in ["127.0.0.1@tcp", "127.9.9.9@tcp1", "0@lo", "7@lo"] {
            assert_eq!(role(nid, true), Role::Administrator, "{nid}");
        }
        for nid in ["10.0.0.1@tcp", "128.0.0.1@tcp", "10.0.0.1@o2ib"] {
            assert_eq!(role(nid, true), Role::Server, "{nid}");
        }
    }

    #[test]
    fn root_and_the_own_user_administer_a_daemon() {
        assert_eq!(Role::of_user(0, 1_000), Role::Administrator);
        assert_eq!(Role::of_user(1_000, 1_000), Role::Administrator);
        assert_eq!(Role::of_user(1_001, 1_000), Role::Client);
    }
}
