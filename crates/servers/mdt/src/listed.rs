//! The files of which a client holds a grant, in the store while its link is gone.
//!
//! The next instance lets changes of all other files go on at once
//! ([`ldlm::grants::Mdt::claims`]). Without a list, every change waits for the client's lease.
//!
//! Invariants
//! - A list names every file of which its client may hold something. It is made when no answer can
//!   reach the client any more. Until it is durably removed, the client is given nothing that is
//!   called back.
//! - The set that says of a client that it is back removes its list.
//! - A list counts if the instance before has known of lists. An older version would not remove
//!   the list of a client that came back.

use std::collections::BTreeSet;

use types::Fid;

/// FIDs as keys, one after the other.
pub(crate) fn encode(files: &[Fid]) -> Vec<u8> {
    files.iter().flat_map(|file| file.to_key()).collect()
}

/// None if it is not a list.
pub(crate) fn decode(list: &[u8]) -> Option<BTreeSet<Fid>> {
    let (keys, rest) = list.as_chunks::<16>();
    if !rest.is_empty() {
        return None;
    }
    keys.iter().map(|key| Fid::from_key(key)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_list_goes_there_and_back_and_a_cut_one_is_refused() {
        let files = [Fid::ROOT, Fid::new(0x400, 7)];
        let list = encode(&files);
        assert_eq!(decode(&list), Some(BTreeSet::from(files)));
        assert_eq!(decode(&[]), Some(BTreeSet::new()));
        assert_eq!(decode(&list[1..]), None);
    }
}
