//! Names of file systems and their targets: `testfs-OST0002`, the index in hex.

use std::fmt;
use std::str::FromStr;

/// Places for the data of MDTs: the data target of MDT n is an OST in all but name, with the index
/// of an OST from here on. OSTs are below.
pub const DOM_FIRST: u32 = 0xf000;

/// Highest index of an OST or MDT. An OST's fits 16 bits in `lustre.lov`, where 0xffff means "any".
pub const TARGET_INDEX_MAX: u32 = DOM_FIRST - 1;

/// Highest index of a data target: 0xffff means "any OST".
const DOM_INDEX_MAX: u32 = 0xfffe - DOM_FIRST;

/// Name of a file system: 1 to 8 characters of `[A-Za-z0-9_-]`.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FsName([u8; 8]);

impl FsName {
    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        let end = self.0.iter().position(|byte| *byte == 0).unwrap_or(8);
        std::str::from_utf8(&self.0[..end]).expect("a name is ASCII by construction")
    }

    /// NUL-padded bytes, as records and messages hold it.
    #[must_use]
    pub fn to_bytes(self) -> [u8; 8] {
        self.0
    }

    /// From NUL-padded bytes.
    pub fn from_bytes(bytes: [u8; 8]) -> Result<FsName, ParseTargetError> {
        let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(8);
        String::from_utf8_lossy(&bytes[..end]).parse()
    }
}

impl fmt::Display for FsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.as_str())
    }
}

impl fmt::Debug for FsName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for FsName {
    type Err = ParseTargetError;

    fn from_str(text: &str) -> Result<FsName, ParseTargetError> {
        let fits = (1..=8).contains(&text.len());
        if !fits || !text.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'_' || b == b'-') {
            return Err(ParseTargetError::FsName(text.chars().take(80).collect()));
        }
        let mut bytes = [0; 8];
        bytes[..text.len()].copy_from_slice(text.as_bytes());
        Ok(FsName(bytes))
    }
}

/// What a target holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum TargetKind {
    /// Configuration (management target).
    Mgt,
    /// Names, inodes, layouts.
    Mdt,
    /// File data.
    Ost,
    /// Nothing: the LNet self-test that every node serves. It is never stored and no name of a
    /// target parses to it.
    Lst,
}

impl TargetKind {
    /// As it stands in names: `MGT`, `MDT`, `OST`.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            TargetKind::Mgt => "MGT",
            TargetKind::Mdt => "MDT",
            TargetKind::Ost => "OST",
            TargetKind::Lst => "LST",
        }
    }
}

/// A target of some file system: `MDT0000`, `OST000a`. The MGT's index is 0.
///
/// The data target of an MDT is an OST with an index from [`DOM_FIRST`] on and is called `DOM0000`
/// after that MDT: a name of its own kind, so that no pattern for OSTs or MDTs (`*OST*`) means it
/// too, and without a further `-`, behind which the last part of a target's name begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TargetId {
    /// What it holds.
    pub kind: TargetKind,
    /// At most [`TARGET_INDEX_MAX`]; that of a data target is above it.
    pub index: u32,
}

impl TargetId {
    /// The management target.
    pub const MGT: TargetId = TargetId { kind: TargetKind::Mgt, index: 0 };
    /// The self-test of a node.
    pub const LST: TargetId = TargetId { kind: TargetKind::Lst, index: 0 };

    /// The MDT of this index.
    #[must_use]
    pub fn mdt(index: u32) -> TargetId {
        TargetId { kind: TargetKind::Mdt, index }
    }

    /// The OST of this index.
    #[must_use]
    pub fn ost(index: u32) -> TargetId {
        TargetId { kind: TargetKind::Ost, index }
    }

    /// Where the MDT of this index keeps data.
    #[must_use]
    pub fn dom(mdt: u32) -> TargetId {
        TargetId::ost(DOM_FIRST + mdt)
    }

    /// Whether it is the data target of an MDT.
    #[must_use]
    pub fn is_dom(self) -> bool {
        self.dom_of().is_some()
    }

    /// The MDT whose data target it is.
    #[must_use]
    pub fn dom_of(self) -> Option<TargetId> {
        let index = self.index.checked_sub(DOM_FIRST)?;
        (self.kind == TargetKind::Ost).then(|| TargetId::mdt(index))
    }

    /// Whether it is an OST that files are striped over, and no data target of an MDT.
    #[must_use]
    pub fn is_ost(self) -> bool {
        self.kind == TargetKind::Ost && !self.is_dom()
    }

    /// `testfs-OST0002`; the MGT is `MGS`, of no file system.
    #[must_use]
    pub fn name(self, fsname: FsName) -> String {
        match self.kind {
            TargetKind::Mgt => "MGS".to_owned(),
            TargetKind::Lst => "LST".to_owned(),
            _ => format!("{fsname}-{self}"),
        }
    }

    /// As one word for a message header: kind in the upper 16 bits (0 MGT, 1 MDT, 2 OST, 3
    /// self-test), index below.
    #[must_use]
    pub fn to_u32(self) -> u32 {
        let kind = match self.kind {
            TargetKind::Mgt => 0,
            TargetKind::Mdt => 1,
            TargetKind::Ost => 2,
            TargetKind::Lst => 3,
        };
        (kind << 16) | (self.index & 0xffff)
    }

    /// A target that a store can hold, from its word.
    #[must_use]
    pub fn from_u32(word: u32) -> Option<TargetId> {
        let kind = match word >> 16 {
            0 => TargetKind::Mgt,
            1 => TargetKind::Mdt,
            2 => TargetKind::Ost,
            _ => return None,
        };
        Some(TargetId { kind, index: word & 0xffff })
    }
}

impl fmt::Display for TargetId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.kind {
            TargetKind::Mgt => f.write_str("MGS"),
            TargetKind::Lst => f.write_str("LST"),
            kind => match self.dom_of() {
                Some(mdt) => write!(f, "DOM{:04x}", mdt.index),
                None => write!(f, "{}{:04x}", kind.as_str(), self.index),
            },
        }
    }
}

/// Text that names no file system or target.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ParseTargetError {
    /// Not 1 to 8 characters of the allowed set.
    #[error("'{0}' is not a file system name: 1 to 8 characters of A-Z a-z 0-9 _ -")]
    FsName(String),
    /// Neither `MDTxxxx` nor `OSTxxxx` nor `DOMxxxx` nor `MGS`.
    #[error("'{0}' is not a target: expected MGS, MDTxxxx or OSTxxxx with four hex digits")]
    Target(String),
}

impl FromStr for TargetId {
    type Err = ParseTargetError;

    /// Takes `OST0002`, `testfs-OST0002` and `testfs-OST0002_UUID`.
    fn from_str(text: &str) -> Result<TargetId, ParseTargetError> {
        let bad = || ParseTargetError::Target(text.chars().take(80).collect());
        let short = text.strip_suffix("_UUID").unwrap_or(text);
        let short = short.rsplit_once('-').map_or(short, |(_, tail)| tail);
        if short == "MGS" || short == "MGT" {
            return Ok(TargetId::MGT);
        }
        let (kind, digits) = short.split_at_checked(3).ok_or_else(bad)?;
        let (make, max): (fn(u32) -> TargetId, u32) = match kind {
            "MDT" => (TargetId::mdt, TARGET_INDEX_MAX),
            "OST" => (TargetId::ost, TARGET_INDEX_MAX),
            "DOM" => (TargetId::dom, DOM_INDEX_MAX),
            _ => return Err(bad()),
        };
        if digits.len() != 4 || !digits.bytes().all(|b| b.is_ascii_hexdigit()) {
            return Err(bad());
        }
        let index = u32::from_str_radix(digits, 16).map_err(|_| bad())?;
        if index > max { Err(bad()) } else { Ok(make(index)) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_go_there_and_back() {
        let fs: FsName = "testfs".parse().expect("a name");
        assert_eq!(TargetId::ost(10).name(fs), "testfs-OST000a");
        assert_eq!("testfs-OST000a_UUID".parse(), Ok(TargetId::ost(10)));
        assert_eq!("MDT0000".parse(), Ok(TargetId::mdt(0)));
        assert_eq!(TargetId::from_u32(TargetId::ost(7).to_u32()), Some(TargetId::ost(7)));
        assert_eq!(TargetId::from_u32(TargetId::LST.to_u32()), None, "nobody stores a self-test");
        for text in ["", "OST", "OST1", "OSTxxxx", "XST0000", "OSTffff", "LST", "LST0000"] {
            assert!(text.parse::<TargetId>().is_err(), "{text}");
        }
    }

    #[test]
    fn a_data_target_is_named_after_its_mdt_and_is_no_ost() {
        let fs: FsName = "a-b".parse().expect("a name");
        let data = TargetId::dom(0x1f);
        assert_eq!((data.kind, data.index), (TargetKind::Ost, DOM_FIRST + 0x1f));
        assert_eq!(data.name(fs), "a-b-DOM001f");
        for text in ["DOM001f", "a-b-DOM001f", "a-b-DOM001f_UUID"] {
            assert_eq!(text.parse(), Ok(data), "{text}");
        }
        assert_eq!(TargetId::from_u32(data.to_u32()), Some(data));
        assert_eq!(data.dom_of(), Some(TargetId::mdt(0x1f)));
        assert!(data.is_dom() && !data.is_ost());
        let last = TargetId::ost(TARGET_INDEX_MAX);
        assert!(last.is_ost() && !last.is_dom() && !TargetId::mdt(DOM_FIRST).is_dom());
        assert_eq!("OSTefff".parse(), Ok(last));
        assert_eq!("DOM0ffe".parse(), Ok(TargetId::dom(0xffe)));
        for text in ["OSTf000", "MDTf000", "DOM0fff", "DOMf000", "DOM", "DOM1"] {
            assert!(text.parse::<TargetId>().is_err(), "{text}");
        }
    }

    #[test]
    fn file_system_names_are_short_and_plain() {
        for text in ["", "ninechars", "a b", "ä", "a/b"] {
            assert!(text.parse::<FsName>().is_err(), "{text}");
        }
        assert_eq!(
            "a-b_9".parse::<FsName>().map(|fs| FsName::from_bytes(fs.to_bytes())),
            Ok("a-b_9".parse())
        );
    }
}
