//! Names and attributes: operations of the MDT. Each is one request if the OSTs need not be asked.

mod attr;
mod change;
mod dir;
pub(crate) mod elsewhere;
mod listing;
mod lookup;
mod make;
mod many;
mod open;
pub(crate) mod order;
mod put;
pub(crate) mod refused;
mod remove;
mod rename;
mod separate;
pub(crate) mod shards;
pub(crate) mod striped;

pub(crate) use change::AttrChange;
pub use dir::Behind;
pub(crate) use dir::split_nul;
pub use listing::Listing;
pub use separate::{Looked, Objects};

use types::{Errno, NAME_BYTES_MAX};

use crate::{Error, Result};

/// A name that can stand in a directory.
fn check_name(name: &[u8], stage: &'static str) -> Result<()> {
    if name.len() > NAME_BYTES_MAX {
        return Err(Error::local(Errno::ENAMETOOLONG, stage));
    }
    let good = !name.is_empty() && !name.contains(&b'/') && !name.contains(&0);
    if good { Ok(()) } else { Err(Error::local(Errno::EINVAL, stage)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_before_they_travel() {
        let errno = |name: &[u8]| check_name(name, "test").err().map(|error| error.errno());
        assert_eq!(errno(&[b'x'; 255]), None);
        assert_eq!(errno(&[b'x'; 256]), Some(Errno::ENAMETOOLONG));
        assert_eq!(errno(b"a/b"), Some(Errno::EINVAL));
        assert_eq!(errno(b""), Some(Errno::EINVAL));
    }
}
