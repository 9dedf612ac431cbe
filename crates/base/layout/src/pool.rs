//! Names of OST pools.

use crate::POOL_BYTES;

/// Names that mean something else where a pool is asked for.
const RESERVED: [&str; 3] = ["none", "ignore", "inherit"];

/// In the place of a pool's name: no pool, whatever the default says (Lustre: `LOV_POOL_IGNORE`). A
/// request and a directory's default can have it, a file cannot.
pub const IGNORE: [u8; POOL_BYTES] = *b"ignore\0\0\0\0\0\0\0\0\0\0";

/// A name that no pool can have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum PoolNameError {
    /// Too long, or with other characters.
    #[error("a pool's name is 1 to 15 characters of A-Z a-z 0-9 _ -")]
    Form,
    /// A word that means something else.
    #[error("'none', 'ignore' and 'inherit' are not names of pools")]
    Reserved,
}

/// The name as layouts have it, NUL padded.
pub fn padded(name: &str) -> Result<[u8; POOL_BYTES], PoolNameError> {
    let is_named = |byte: u8| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'-';
    if name.is_empty() || name.len() >= POOL_BYTES || !name.bytes().all(is_named) {
        return Err(PoolNameError::Form);
    }
    if RESERVED.contains(&name) {
        return Err(PoolNameError::Reserved);
    }
    let mut pool = [0; POOL_BYTES];
    pool[..name.len()].copy_from_slice(name.as_bytes());
    Ok(pool)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_short_and_plain() {
        assert_eq!(padded("flash"), Ok(*b"flash\0\0\0\0\0\0\0\0\0\0\0"));
        assert_eq!(padded("A-1_23456789012"), Ok(*b"A-1_23456789012\0"));
        for bad in ["", "A-1_234567890123", "a b", "a.b", "\u{e4}"] {
            assert_eq!(padded(bad), Err(PoolNameError::Form), "{bad}");
        }
        assert_eq!(padded("none"), Err(PoolNameError::Reserved));
    }
}
