//! Rare control messages, encoded with postcard: what the MGS knows of a file system.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// Bytes of a configuration at most.
pub const CONFIG_BYTES_MAX: usize = 1 << 20;

/// One target and where it is served.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TargetInfo {
    /// [`types::TargetId::to_u32`].
    pub id: u32,
    /// NID of its node.
    pub nid: u64,
    /// Port of its node.
    pub port: u16,
    /// Its instance when it registered.
    pub instance: u64,
}

/// Everything that a client or server needs to find its peers. Buffer 1 of the reply to MgsConfig.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FsConfig {
    /// File system.
    pub fsname: String,
    /// Rises with each change.
    pub version: u64,
    /// All targets that ever registered, MDTs first, by index.
    pub targets: Vec<TargetInfo>,
    /// Persistent parameters.
    pub params: Vec<(String, String)>,
}

/// Body of MgsRegister (buffer 0).
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Register {
    /// File system.
    pub fsname: String,
    /// The target.
    pub target: TargetInfo,
    /// Identity of the target's storage: the same index from another storage is refused.
    pub uuid: u128,
}

/// As a buffer.
#[must_use]
pub fn encode<T: Serialize>(value: &T) -> Bytes {
    Bytes::from(postcard::to_stdvec(value).expect("plain values always encode"))
}

/// From a buffer.
#[must_use]
pub fn decode<T: for<'de> Deserialize<'de>>(bytes: &[u8]) -> Option<T> {
    if bytes.len() > CONFIG_BYTES_MAX { None } else { postcard::from_bytes(bytes).ok() }
}
