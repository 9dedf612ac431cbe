//! Keys of the MDT's tables. FIDs are big-endian, so that all records of one file lie together.
//!
//! ```text
//! Inodes    FID 16
//! Dirents   directory 16 | cookie 8 BE          cookie = hash47 << 16 | d16
//! Links     file 16 | directory 16 | cookie 8 BE
//! Xattrs    file 16 | name
//! Layouts   FID 16
//! Orphans   FID 16
//! Destroys  number 8 BE
//! Updates   coordinating MDT 4 BE | number 8 BE
//! Meta      text
//! ```

use types::Fid;

/// Attribute under which a striped directory's shards are stored.
pub(crate) const LMV: &[u8] = b"trusted.lmv";

/// Highest transno, u64.
pub(crate) const META_LAST_TRANSNO: &[u8] = b"last_transno";
/// Key of the name hash, two u64.
pub(crate) const META_HASH_KEY: &[u8] = b"hash_key";
/// Drawn when the store was made, u64, not zero: OSTs keep objects of different stores apart.
pub(crate) const META_STORE: &[u8] = b"store";
/// First bytes of the key of a session that ended and whose fences are not told: the session
/// follows, big-endian.
pub(crate) const META_FENCE: &[u8] = b"fence/";
/// Clients may hold grants that are called back: after a restart changes wait until they have
/// stated them again. Empty.
pub(crate) const META_CALLS_BACK: &[u8] = b"calls_back";
/// First bytes of the key of a session whose grants are void, while its client may not know: the
/// session follows, big-endian. Empty.
pub(crate) const META_EXPELLED: &[u8] = b"expelled/";
/// Sessions were evicted whose leases may last: after a restart changes wait for that long. Empty.
pub(crate) const META_LAPSING: &[u8] = b"lapsing";
/// First bytes of the key of a session whose link went without a word: the session follows,
/// big-endian. The files of which it holds a grant ([`crate::listed`]).
pub(crate) const META_LISTED: &[u8] = b"listed/";
/// The last instance that has known of such lists, u64.
pub(crate) const META_LISTED_OF: &[u8] = b"listed_of";
/// First bytes of the key of a coordinating MDT, of which the index follows, big-endian: its
/// operations below this number are done everywhere, u64.
pub(crate) const META_DONE: &[u8] = b"updates_done/";
/// First bytes of the key of an MDT with which this one changed something together; its index
/// follows, big-endian. Empty.
pub(crate) const META_PEER: &[u8] = b"peer/";
/// First bytes of the key of a directory or shard whose names this MDT has to move; its FID
/// follows. Empty.
pub(crate) const META_MOVE: &[u8] = b"move/";
/// First FID that the scrub of sizes has not looked at, big-endian, while it is far from both ends.
pub(crate) const META_SOM_SCRUB: &[u8] = b"som_scrub";
/// File ids: sequence u64, first id that is not reserved u32.
pub(crate) const META_FILE_IDS: &[u8] = b"file_ids";
pub(crate) const META_OBJECT_IDS: &[u8] = b"object_ids";
/// Object ids that earlier runs gave out and that are to be swept: 16 bytes a range, sequence u64,
/// first u32, end u32.
pub(crate) const META_BURNT_OBJECTS: &[u8] = b"burnt_objects";
/// The same for ids of files, which are those of objects in the data target.
pub(crate) const META_BURNT_FILES: &[u8] = b"burnt_files";

/// Key of a session whose grants are void.
pub(crate) fn expelled(session: u64) -> Vec<u8> {
    [META_EXPELLED, &session.to_be_bytes()].concat()
}

/// Key of the list of a session.
pub(crate) fn listed(session: u64) -> Vec<u8> {
    [META_LISTED, &session.to_be_bytes()].concat()
}

pub(crate) fn dirent(dir: Fid, cookie: u64) -> Vec<u8> {
    let mut key = dir.to_key().to_vec();
    key.extend_from_slice(&cookie.to_be_bytes());
    key
}

/// What the keys of all entries begin with that have the hash of this one's name.
pub(crate) fn of_hash(dirent: &[u8]) -> &[u8] {
    &dirent[..22]
}

/// Cookie of a directory entry's key.
pub(crate) fn dirent_cookie(key: &[u8]) -> Option<u64> {
    Some(u64::from_be_bytes(key.get(16..24)?.try_into().ok()?))
}

pub(crate) fn link(file: Fid, dir: Fid, cookie: u64) -> Vec<u8> {
    let mut key = file.to_key().to_vec();
    key.extend_from_slice(&dir.to_key());
    key.extend_from_slice(&cookie.to_be_bytes());
    key
}

/// [`META_DONE`] or [`META_PEER`] of an MDT.
pub(crate) fn of_mdt(prefix: &[u8], mdt: u32) -> Vec<u8> {
    [prefix, &mdt.to_be_bytes()].concat()
}

/// [`META_MOVE`] of a directory or shard.
pub(crate) fn moves(dir: Fid) -> Vec<u8> {
    [META_MOVE, &dir.to_key()].concat()
}

pub(crate) fn xattr(file: Fid, name: &[u8]) -> Vec<u8> {
    let mut key = file.to_key().to_vec();
    key.extend_from_slice(name);
    key
}
