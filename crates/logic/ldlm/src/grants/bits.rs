//! The parts of a file that a grant lets its holder cache. The values are those of Lustre's
//! inodebits.

bitflags::bitflags! {
    /// Parts of a file.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
    pub struct Bits: u8 {
        /// That its names stand for it.
        const LOOKUP = 0x01;
        /// Links, times; of a directory its entries, absent names included.
        const UPDATE = 0x02;
        /// Handles that are opened and closed without a request.
        const OPEN = 0x04;
        /// Where the data is.
        const LAYOUT = 0x08;
        /// Mode, owner, group, ACL.
        const PERM = 0x10;
        /// Other extended attributes.
        const XATTR = 0x20;
        /// Data, in the page cache of readers.
        const CACHE = 0x40;
        /// Data that only this client writes, and that it keeps for a while before it sends it.
        const WRITE = 0x80;
    }
}

/// How many bits there are.
pub const BITS: usize = 8;

const _: () = assert!(Bits::all().bits() as usize == (1 << BITS) - 1);

impl Bits {
    /// The places of the bits that are set.
    pub fn places(self) -> impl Iterator<Item = usize> {
        (0..BITS).filter(move |place| self.bits() & (1 << place) != 0)
    }

    /// The bit at `place`.
    ///
    /// # Panics
    /// If there is none.
    #[must_use]
    pub fn at(place: usize) -> Bits {
        assert!(place < BITS, "a bit has a place below {BITS}");
        Bits::from_bits_truncate(1 << place)
    }
}
