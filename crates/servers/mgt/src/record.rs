//! Records of the MGT in `Table::Config`, and the configuration made of them.
//!
//! Keys: a letter, the file system's name (8 bytes, NUL padded), then for `t` the target's id (u32,
//! big-endian: MDTs before OSTs, by index), for `p` the parameter's name, for `v` nothing. `g` is a
//! whole key. Values:
//! - `v` a version (u64, little-endian), `p` the text;
//! - `t` {type, version, length} and a postcard [`StoredTarget`];
//! - `g` the version below all versions since the records were last created (u64, little-endian;
//!   none is zero).

use osd::{StoreError, Table, View, WriteSet};
use serde::{Deserialize, Serialize};
use types::{FsName, TargetId};
use wire::config::{FsConfig, TargetInfo, first_version};

const TYPE_TARGET: u8 = 3;
/// Key of the version below all that have been given since the records began anew.
const BEGUN: &[u8] = b"g";

/// A target that registered.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct StoredTarget {
    pub(crate) info: TargetInfo,
    pub(crate) uuid: u128,
}

impl StoredTarget {
    pub(crate) fn encode(&self) -> Vec<u8> {
        let body = wire::config::encode(self);
        assert!(body.len() < 256, "a target's record is short");
        let mut out = vec![TYPE_TARGET, 1];
        out.extend_from_slice(&(4 + body.len() as u16).to_le_bytes());
        out.extend_from_slice(&body);
        out
    }

    pub(crate) fn decode(bytes: &[u8]) -> Option<StoredTarget> {
        let (head, body) = bytes.split_first_chunk::<4>()?;
        if head[0] == TYPE_TARGET { wire::config::decode(body) } else { None }
    }
}

fn key(letter: u8, fsname: FsName, rest: &[u8]) -> Vec<u8> {
    [&[letter], &fsname.to_bytes()[..], rest].concat()
}

pub(crate) fn version_key(fsname: FsName) -> Vec<u8> {
    key(b'v', fsname, &[])
}

pub(crate) fn target_key(fsname: FsName, id: u32) -> Vec<u8> {
    key(b't', fsname, &id.to_be_bytes())
}

pub(crate) fn param_key(fsname: FsName, name: &str) -> Vec<u8> {
    key(b'p', fsname, name.as_bytes())
}

pub(crate) fn decode_u64(bytes: &[u8]) -> Option<u64> {
    bytes.try_into().ok().map(u64::from_le_bytes)
}

fn word(view: &dyn View, key: &[u8]) -> Result<u64, StoreError> {
    let stored = view.get(Table::Config, key)?;
    Ok(stored.as_deref().and_then(decode_u64).unwrap_or(0))
}

/// Zero where nobody registered for the file system.
pub(crate) fn version(view: &dyn View, fsname: FsName) -> Result<u64, StoreError> {
    match word(view, &version_key(fsname))? {
        0 => Ok(0),
        stored => Ok(stored.max(word(view, BEGUN)?)),
    }
}

/// The version of the next change.
pub(crate) fn next_version(view: &dyn View, fsname: FsName) -> Result<u64, StoreError> {
    Ok(version(view, fsname)?.max(word(view, BEGUN)?) + 1)
}

/// Adds to `set` that the records are an older copy, or that earlier ones are lost: all versions
/// are higher than any before, by the clock. So clients and servers take what is here for news, and
/// servers see that targets may have to register again.
pub fn begin_anew(set: &mut WriteSet, view: &dyn View, seconds: u32) -> Result<(), StoreError> {
    let begun = FsConfig { version: word(view, BEGUN)?, ..FsConfig::default() };
    let last = u32::try_from(begun.generation()).unwrap_or(u32::MAX);
    let version = first_version(last.saturating_add(1).max(seconds));
    set.put(Table::Config, BEGUN, version.to_le_bytes());
    Ok(())
}

/// File systems that anybody registered for.
pub(crate) fn fs_names(view: &dyn View) -> Result<Vec<FsName>, StoreError> {
    let mut names = Vec::new();
    view.scan(Table::Config, b"v", &mut |key, _| {
        let name = key.strip_prefix(b"v");
        names.extend(name.and_then(|name| {
            std::str::from_utf8(name).ok()?.trim_end_matches('\0').parse::<FsName>().ok()
        }));
        name.is_some()
    })?;
    Ok(names)
}

/// Everything that is known of a file system; a name that nobody registered has version 0 and
/// nothing in it.
pub(crate) fn fs_config(view: &dyn View, fsname: FsName) -> Result<FsConfig, StoreError> {
    let mut config = FsConfig {
        fsname: fsname.to_string(),
        version: version(view, fsname)?,
        ..FsConfig::default()
    };
    let prefix = key(b't', fsname, &[]);
    view.scan(Table::Config, &prefix, &mut |key, value| {
        let its = key.starts_with(&prefix);
        if let Some(target) = its.then(|| StoredTarget::decode(value)).flatten() {
            config.targets.push(target.info);
            config.uuids.push(target.uuid);
        }
        its
    })?;
    let prefix = key(b'p', fsname, &[]);
    view.scan(Table::Config, &prefix, &mut |key, value| {
        let name = key.strip_prefix(&prefix[..]);
        if let Some(name) = name {
            let text = |bytes| String::from_utf8_lossy(bytes).into_owned();
            config.params.push((text(name), text(value)));
        }
        name.is_some()
    })?;
    Ok(config)
}

/// The targets of a file system that have registered, for who reads the records of an MGT that is
/// not served.
pub fn registered(view: &dyn View, fsname: FsName) -> Result<Vec<TargetId>, StoreError> {
    let config = fs_config(view, fsname)?;
    Ok(config.targets.iter().filter_map(|info| TargetId::from_u32(info.id)).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_goes_there_and_back_and_foreign_bytes_are_refused() {
        let info = TargetInfo { id: 1 << 16, nid: 5, port: 988, instance: 3 };
        let stored = StoredTarget { info, uuid: 1 << 127 };
        let bytes = stored.encode();
        assert_eq!(StoredTarget::decode(&bytes), Some(stored));
        assert_eq!(usize::from(u16::from_le_bytes([bytes[2], bytes[3]])), bytes.len());
        assert_eq!(StoredTarget::decode(&bytes[..5]), None);
        assert_eq!(StoredTarget::decode(b"\x09abc"), None);
    }
}
