//! File identifiers: the name of every file, directory and object in the cluster, never reused.

use std::fmt;
use std::str::FromStr;

/// First sequence that normal files and objects use (Lustre: `FID_SEQ_NORMAL`).
pub const FID_FIRST_NORMAL_SEQ: u64 = 0x2_0000_0400;

/// Sequences of one MDT, as a power of two.
pub const FID_SEQUENCES_PER_MDT_BITS: u32 = 17;

/// `[seq:oid:ver]`; never given twice. In an object's FID `ver` is the stripe index.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Fid {
    /// Sequence: all FIDs of one sequence live on one target.
    pub seq: u64,
    /// Number inside the sequence, from 1.
    pub oid: u32,
    /// Zero for files; the stripe index for objects.
    pub ver: u32,
}

impl Fid {
    /// The root directory, `[0x200000007:0x1:0x0]`.
    pub const ROOT: Fid = Fid { seq: 0x2_0000_0007, oid: 1, ver: 0 };
    /// Names nothing.
    pub const ZERO: Fid = Fid { seq: 0, oid: 0, ver: 0 };

    /// Version 0, as all FIDs of files have.
    #[must_use]
    pub fn new(seq: u64, oid: u32) -> Fid {
        Fid { seq, oid, ver: 0 }
    }

    /// Whether it names nothing.
    #[must_use]
    pub fn is_zero(self) -> bool {
        self == Fid::ZERO
    }

    /// The object of stripe `stripe` under this object base.
    #[must_use]
    pub fn stripe(self, stripe: u32) -> Fid {
        Fid { ver: stripe, ..self }
    }

    /// Big-endian bytes: their order is the order of (seq, oid, ver), as ordered stores need it.
    #[must_use]
    pub fn to_key(self) -> [u8; 16] {
        let mut key = [0; 16];
        key[..8].copy_from_slice(&self.seq.to_be_bytes());
        key[8..12].copy_from_slice(&self.oid.to_be_bytes());
        key[12..].copy_from_slice(&self.ver.to_be_bytes());
        key
    }

    /// From the first 16 bytes of a key made by [`Fid::to_key`].
    #[must_use]
    pub fn from_key(key: &[u8]) -> Option<Fid> {
        Some(Fid {
            seq: u64::from_be_bytes(key.get(..8)?.try_into().ok()?),
            oid: u32::from_be_bytes(key.get(8..12)?.try_into().ok()?),
            ver: u32::from_be_bytes(key.get(12..16)?.try_into().ok()?),
        })
    }

    /// Inode number as `stat` shows it: stable for the file's life; unique while sequences stay
    /// below 2^24 and object numbers below 2^40 (Lustre: `cl_fid_build_ino`).
    #[must_use]
    pub fn ino(self) -> u64 {
        if self == Fid::ROOT {
            return 1;
        }
        ((self.seq & 0x00ff_ffff) << 40).wrapping_add((self.seq >> 24) ^ u64::from(self.oid)).max(2)
    }

    /// The same in 32 bits, for programs that know no longer ones (Lustre: `32bitapi`). The number
    /// of the file grows from the lowest bit up, that of its MDT from the highest bit down: unique
    /// until they meet.
    #[must_use]
    pub fn ino32(self) -> u64 {
        if self == Fid::ROOT {
            return 1;
        }
        let seq = self.seq.wrapping_sub(FID_FIRST_NORMAL_SEQ) as u32;
        u64::from(self.oid ^ seq.rotate_right(FID_SEQUENCES_PER_MDT_BITS).reverse_bits()).max(2)
    }
}

impl fmt::Display for Fid {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "[{:#x}:{:#x}:{:#x}]", self.seq, self.oid, self.ver)
    }
}

/// Text that is no FID.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("'{0}' is not a FID: expected [0xSEQ:0xOID:0xVER]")]
pub struct ParseFidError(String);

impl FromStr for Fid {
    type Err = ParseFidError;

    fn from_str(text: &str) -> Result<Fid, ParseFidError> {
        let bad = || ParseFidError(text.chars().take(80).collect());
        let inner = match text.strip_prefix('[') {
            Some(rest) => rest.strip_suffix(']').ok_or_else(bad)?,
            None => text,
        };
        let mut parts = inner.split(':');
        let mut next = || -> Option<u64> {
            let part = parts.next()?;
            let hex = part.strip_prefix("0x").or_else(|| part.strip_prefix("0X"))?;
            if hex.is_empty() || hex.starts_with('+') {
                None
            } else {
                u64::from_str_radix(hex, 16).ok()
            }
        };
        let (Some(seq), Some(oid), Some(ver)) = (next(), next(), next()) else { return Err(bad()) };
        let (Ok(oid), Ok(ver)) = (u32::try_from(oid), u32::try_from(ver)) else {
            return Err(bad());
        };
        if parts.next().is_some() { Err(bad()) } else { Ok(Fid { seq, oid, ver }) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn short_inode_numbers_differ_until_files_and_mdts_meet() {
        let of = |mdt: u64, oid| {
            Fid::new(FID_FIRST_NORMAL_SEQ + (mdt << FID_SEQUENCES_PER_MDT_BITS), oid).ino32()
        };
        assert_eq!((of(0, 7), Fid::ROOT.ino32()), (7, 1));
        assert_eq!(of(1, 7), (1 << 31) + 7);
        let mut seen = std::collections::BTreeSet::new();
        for mdt in 0..8 {
            for oid in (2..1000).chain((1 << 29) - 1000..1 << 29) {
                assert!(seen.insert(of(mdt, oid)), "{mdt} {oid}");
            }
        }
        assert!(seen.iter().all(|ino| u32::try_from(*ino).is_ok()));
    }

    #[test]
    fn text_goes_there_and_back() {
        for text in ["[0x200000401:0x1:0x0]", "[0xffffffffffffffff:0xffffffff:0xffffffff]"] {
            assert_eq!(text.parse::<Fid>().map(|fid| fid.to_string()), Ok(text.to_owned()));
        }
        assert_eq!("0x200000007:0x1:0x0".parse(), Ok(Fid::ROOT));
    }

    #[test]
    fn what_is_no_fid_is_refused() {
        for text in [
            "",
            "[]",
            "[0x1:0x2]",
            "[0x1:0x2:0x3",
            "1:2:3",
            "[0x1:0x100000000:0x0]",
            "[0x1:0x2:0x3:0x4]",
        ] {
            assert!(text.parse::<Fid>().is_err(), "{text}");
        }
    }

    #[test]
    fn keys_sort_as_fids_do() {
        let mut fids = [Fid::new(2, 1), Fid::new(1, 256), Fid::new(1, 2), Fid::new(1, 2).stripe(3)];
        fids.sort();
        let keys: Vec<_> = fids.iter().map(|fid| fid.to_key()).collect();
        assert!(keys.is_sorted());
        assert!(fids.iter().all(|fid| Fid::from_key(&fid.to_key()) == Some(*fid)));
    }
}
