//! Commit on share: the keys that changed since the last commit, and the clients that changed them.
//!
//! A change that decides on a key which *another* client changed since the last commit waits for a
//! commit first. Then no client's replay depends on the replay of another client that may never
//! come back. Directory size, link count and times commute and are not keys here. Reads make no
//! dependency.
//!
//! A key that a change waits for is *contested* until a commit covers it. Changes by other clients
//! that decide on it wait for that commit too, including those of its last changer. Otherwise a
//! quick client would change the key again and again while the other one waits.

use queues::FixedMap;
use types::{ClientId, Fid};

/// What a decision can depend on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) enum ShareKey {
    /// Whether a name of this hash exists in a directory.
    Entry(Fid, u64),
    /// An inode: that it exists, and its attributes.
    Inode(Fid),
    /// That a directory is empty.
    Contents(Fid),
}

/// The last change of a key.
struct Changed {
    /// `None`: several clients.
    client: Option<ClientId>,
    /// Count of the operation that changed it last.
    count: u64,
}

/// Keys changed since the last commit.
#[derive(Default)]
pub(crate) struct Share {
    changed: FixedMap<ShareKey, Changed>,
    /// Keys that a change waits for, with the count at that time.
    contested: FixedMap<ShareKey, u64>,
    /// Files of which objects that were there got more, with the count of that operation. No reply
    /// contains such a layout before it is durable, even for the client that made it.
    stretched: FixedMap<Fid, u64>,
    /// Files that were made with all of their bytes, with the count of that operation. Before it is
    /// durable, their bytes may have to be written again.
    put: FixedMap<Fid, u64>,
    count: u64,
}

impl Share {
    /// Whether `client` must wait for a commit before it decides on `key`.
    pub(crate) fn is_foreign(&self, client: ClientId, key: &ShareKey) -> bool {
        self.changed.get(key).is_some_and(|change| change.client != Some(client))
            || self.contested.contains_key(key)
    }

    /// Whether a key changed since the last commit, whoever changed it.
    pub(crate) fn is_uncommitted(&self, key: &ShareKey) -> bool {
        self.changed.contains_key(key)
    }

    /// A change waits for the commit of these, as far as they changed.
    pub(crate) fn contest(&mut self, keys: &[ShareKey]) {
        for key in keys.iter().filter(|key| self.changed.contains_key(*key)) {
            self.contested.entry(*key).or_insert(self.count);
        }
    }

    /// An applied operation of `client` changed these.
    pub(crate) fn changed(&mut self, client: ClientId, keys: &[ShareKey]) {
        self.count += 1;
        let count = self.count;
        for key in keys {
            let change =
                self.changed.entry(*key).or_insert(Changed { client: Some(client), count });
            assert!(change.count <= count, "a key was changed by an earlier operation");
            change.count = count;
            if change.client != Some(client) {
                change.client = None;
            }
        }
    }

    /// Everything up to now, for [`Share::committed`].
    pub(crate) fn mark(&self) -> u64 {
        self.count
    }

    /// Objects of a file got more of it, by the operation that comes to [`Share::changed`] next.
    pub(crate) fn stretched(&mut self, file: Fid) {
        self.stretched.insert(file, self.count + 1);
    }

    /// Whether they did so since the last commit.
    pub(crate) fn is_stretched(&self, file: Fid) -> bool {
        self.stretched.contains_key(&file)
    }

    /// A file was made with all of its bytes, by the operation that comes to [`Share::changed`]
    /// next.
    pub(crate) fn put(&mut self, file: Fid) {
        self.put.insert(file, self.count + 1);
    }

    /// Whether this is such a file since the last commit.
    pub(crate) fn is_put(&self, key: &ShareKey) -> bool {
        matches!(key, ShareKey::Inode(file) if self.put.contains_key(file))
    }

    /// Everything up to `mark` is durable.
    pub(crate) fn committed(&mut self, mark: u64) {
        assert!(mark <= self.count, "a commit covers only what was applied");
        self.contested.retain(|_, count| *count > mark);
        self.stretched.retain(|_, count| *count > mark);
        self.put.retain(|_, count| *count > mark);
        if mark == self.count {
            self.changed.clear();
        } else {
            self.changed.retain(|_, change| change.count > mark);
        }
    }

    /// Keys remembered.
    pub(crate) fn len(&self) -> usize {
        self.changed.len()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_stretched_until_a_commit_covers_it() {
        let (one, other) = (Fid::ROOT, Fid { oid: 9, ..Fid::ROOT });
        let mut share = Share::default();
        share.stretched(one);
        share.changed(ClientId(1), &[ShareKey::Inode(one)]);
        let mark = share.mark();
        share.stretched(other);
        share.changed(ClientId(1), &[ShareKey::Inode(other)]);
        assert!(share.is_stretched(one) && share.is_stretched(other));
        share.committed(mark);
        assert!(!share.is_stretched(one) && share.is_stretched(other));
    }

    #[test]
    fn a_file_with_all_of_its_bytes_is_new_until_a_commit_covers_it() {
        let (one, other) = (Fid::ROOT, Fid { oid: 9, ..Fid::ROOT });
        let keys = [one, other].map(ShareKey::Inode);
        let mut share = Share::default();
        share.put(one);
        share.changed(ClientId(1), &keys[..1]);
        let mark = share.mark();
        share.put(other);
        share.changed(ClientId(1), &keys[1..]);
        assert_eq!(keys.map(|key| share.is_put(&key)), [true, true]);
        share.committed(mark);
        assert_eq!(keys.map(|key| share.is_put(&key)), [false, true]);
        assert!(!share.is_put(&ShareKey::Contents(other)));
    }

    #[test]
    fn only_another_clients_uncommitted_change_is_foreign() {
        let (a, b) = (ClientId(1), ClientId(2));
        let (entry, other) = (ShareKey::Entry(Fid::ROOT, 5), ShareKey::Inode(Fid::ROOT));
        let mut share = Share::default();
        share.changed(a, &[entry]);
        assert!(
            share.is_foreign(b, &entry)
                && !share.is_foreign(a, &entry)
                && !share.is_foreign(b, &other)
        );
        let mark = share.mark();
        share.changed(b, &[entry]);
        assert!(share.is_foreign(a, &entry) && share.is_foreign(b, &entry), "two changed it");
        share.committed(mark);
        assert!(share.is_foreign(a, &entry), "the second change is not durable yet");
        share.committed(share.mark());
        assert!(!share.is_foreign(a, &entry));
        assert_eq!(share.len(), 0);
    }

    #[test]
    fn a_key_that_another_waits_for_is_not_changed_again_before_its_commit() {
        let (a, b) = (ClientId(1), ClientId(2));
        let (entry, other) = (ShareKey::Entry(Fid::ROOT, 5), ShareKey::Inode(Fid::ROOT));
        let mut share = Share::default();
        share.changed(a, &[entry]);
        let early = share.mark();
        share.changed(a, &[other]);
        share.contest(&[entry, ShareKey::Contents(Fid::ROOT)]);
        assert!(share.is_foreign(a, &entry) && share.is_foreign(b, &entry));
        assert!(!share.is_foreign(a, &ShareKey::Contents(Fid::ROOT)), "nobody has changed it");
        share.committed(early);
        assert!(share.is_foreign(a, &entry), "the one who waits has asked for a later commit");
        share.committed(share.mark());
        assert!(!share.is_foreign(a, &entry) && !share.is_foreign(b, &entry));
    }
}
