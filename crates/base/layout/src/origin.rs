//! The requests and defaults that a file's layout was made of, for people.

/// A set of them. An empty one says nothing: the layout is older than this, or a program that is
/// older has changed it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Origin(u8);

impl Origin {
    /// A request for this file.
    pub const ASKED: Origin = Origin(1);
    /// The default of its directory.
    pub const DIRECTORY: Origin = Origin(2);
    /// The default of the root.
    pub const ROOT: Origin = Origin(4);
    /// The default of the file system.
    pub const SYSTEM: Origin = Origin(8);
    /// A pool was filling up, so objects are in another one.
    pub const SPILLED: Origin = Origin(16);

    const ALL: u8 = 31;
    pub(crate) const TAIL_BYTES: usize = 4;

    /// With `other`, if `is_so`.
    #[must_use]
    pub fn with(self, other: Origin, is_so: bool) -> Origin {
        if is_so { Origin(self.0 | other.0) } else { self }
    }

    /// Whether all of `other` is in it.
    #[must_use]
    pub fn has(self, other: Origin) -> bool {
        self.0 & other.0 == other.0
    }

    /// As the last bytes of a record, which older readers ignore.
    pub(crate) fn tail(self) -> Vec<u8> {
        let bytes = [self.0, 0, 0, 0];
        if self == Origin::default() { Vec::new() } else { bytes.to_vec() }
    }

    /// From the bytes of a record behind all else.
    pub(crate) fn from_tail(bytes: &[u8]) -> Origin {
        let tail: Option<&[u8; Origin::TAIL_BYTES]> = bytes.first_chunk();
        tail.map_or_else(Origin::default, |[first, ..]| Origin(first & Origin::ALL))
    }
}
