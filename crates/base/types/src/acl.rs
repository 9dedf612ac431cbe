//! POSIX access control lists in the binary form of `system.posix_acl_*` (version 2).
//!
//! ```text
//! version u32 = 2 | entries: tag u16, perm u16, id u32
//! ```

use crate::{Creds, Errno};

const VERSION: u32 = 2;
const USER_OBJ: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OBJ: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;
const ID_NONE: u32 = u32::MAX;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Entry {
    tag: u16,
    perm: u16,
    id: u32,
}

/// A valid list: one owner, one group and one other entry; a mask where anybody is named.
///
/// Clients and servers read it with the same code, so a list that a client takes for a mode is one
/// that an MDT stores as a mode.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Acl(Vec<Entry>);

impl Acl {
    /// From the value of the attribute; an empty list is `None`.
    ///
    /// # Errors
    /// EOPNOTSUPP for another version; EINVAL if it is not a list.
    pub fn decode(value: &[u8]) -> Result<Option<Acl>, Errno> {
        let (version, rest) = value.split_first_chunk::<4>().ok_or(Errno::EINVAL)?;
        if u32::from_le_bytes(*version) != VERSION {
            return Err(Errno::EOPNOTSUPP);
        }
        if !rest.len().is_multiple_of(8) {
            return Err(Errno::EINVAL);
        }
        let entries: Vec<Entry> = rest
            .chunks_exact(8)
            .map(|raw| Entry {
                tag: u16::from_le_bytes([raw[0], raw[1]]),
                perm: u16::from_le_bytes([raw[2], raw[3]]),
                id: u32::from_le_bytes([raw[4], raw[5], raw[6], raw[7]]),
            })
            .collect();
        if entries.is_empty() {
            return Ok(None);
        }
        let acl = Acl(entries);
        if acl.is_valid() { Ok(Some(acl)) } else { Err(Errno::EINVAL) }
    }

    /// As the attribute's value.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in &self.0 {
            let id = if matches!(entry.tag, USER | GROUP) { entry.id } else { ID_NONE };
            out.extend_from_slice(&entry.tag.to_le_bytes());
            out.extend_from_slice(&entry.perm.to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    fn is_valid(&self) -> bool {
        let count = |tag| self.0.iter().filter(|entry| entry.tag == tag).count();
        let named = count(USER) + count(GROUP);
        let known = self
            .0
            .iter()
            .all(|entry| entry.perm <= 7 && entry.tag.count_ones() == 1 && entry.tag <= OTHER);
        let ordered = self.0.windows(2).all(|pair| pair[0].tag <= pair[1].tag);
        let once =
            count(USER_OBJ) == 1 && count(GROUP_OBJ) == 1 && count(OTHER) == 1 && count(MASK) <= 1;
        known && ordered && once && (named == 0 || count(MASK) == 1)
    }

    fn perm(&self, tag: u16) -> Option<u16> {
        self.0.iter().find(|entry| entry.tag == tag).map(|entry| entry.perm)
    }

    fn set_perm(&mut self, tag: u16, perm: u16) {
        for entry in self.0.iter_mut().filter(|entry| entry.tag == tag) {
            entry.perm = perm;
        }
    }

    /// Whether it says nothing that the mode bits cannot.
    #[must_use]
    pub fn is_minimal(&self) -> bool {
        self.0.len() == 3
    }

    /// The permission bits that it stands for: the group bits show the mask.
    #[must_use]
    pub fn mode(&self) -> u32 {
        let user = self.perm(USER_OBJ).unwrap_or(0);
        let group = self.perm(MASK).or(self.perm(GROUP_OBJ)).unwrap_or(0);
        let other = self.perm(OTHER).unwrap_or(0);
        u32::from(user) << 6 | u32::from(group) << 3 | u32::from(other)
    }

    /// After a chmod to `mode`.
    pub fn chmod(&mut self, mode: u32) {
        self.set_perm(USER_OBJ, (mode >> 6 & 7) as u16);
        let group = if self.perm(MASK).is_some() { MASK } else { GROUP_OBJ };
        self.set_perm(group, (mode >> 3 & 7) as u16);
        self.set_perm(OTHER, (mode & 7) as u16);
    }

    /// As access list of a new file that was asked for with `mode`: nothing that neither allows.
    #[must_use]
    pub fn inherit(&self, mode: u32) -> (Acl, u32) {
        let mut acl = self.clone();
        let both = acl.mode() & mode;
        acl.chmod(both);
        (acl, mode & !0o777 | both)
    }

    /// Whether `creds` may do `mask` (r 4, w 2, x 1) to a file of `uid` and `gid`.
    #[must_use]
    pub fn allows(&self, creds: &Creds, uid: u32, gid: u32, mask: u32) -> bool {
        let limit = self.perm(MASK).unwrap_or(7);
        let grants = |perm: u16| u32::from(perm) & mask == mask;
        if creds.uid == uid {
            return grants(self.perm(USER_OBJ).unwrap_or(0));
        }
        if let Some(entry) = self.0.iter().find(|entry| entry.tag == USER && entry.id == creds.uid)
        {
            return grants(entry.perm & limit);
        }
        let mut member = false;
        for entry in &self.0 {
            let group = match entry.tag {
                GROUP_OBJ => gid,
                GROUP => entry.id,
                _ => continue,
            };
            if creds.in_group(group) {
                member = true;
                if grants(entry.perm & limit) {
                    return true;
                }
            }
        }
        !member && grants(self.perm(OTHER).unwrap_or(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn acl(text: &str) -> Vec<u8> {
        let mut out = VERSION.to_le_bytes().to_vec();
        for entry in text.split_whitespace() {
            let (tag, perm) = entry.split_once(':').expect("tag:perm");
            let (code, id) = match (&tag[..1], &tag[1..]) {
                ("u", "") => (USER_OBJ, ID_NONE),
                ("g", "") => (GROUP_OBJ, ID_NONE),
                ("m", "") => (MASK, ID_NONE),
                ("o", "") => (OTHER, ID_NONE),
                ("u", id) => (USER, id.parse().expect("number")),
                (_, id) => (GROUP, id.parse().expect("number")),
            };
            out.extend_from_slice(&code.to_le_bytes());
            out.extend_from_slice(&perm.parse::<u16>().expect("number").to_le_bytes());
            out.extend_from_slice(&id.to_le_bytes());
        }
        out
    }

    fn parse(text: &str) -> Acl {
        Acl::decode(&acl(text)).expect("valid").expect("not empty")
    }

    #[test]
    fn lists_that_are_none_are_refused() {
        for text in [
            "u:7",
            "u:7 g:5",
            "u:7 g:5 o:9",
            "g:5 u:7 o:0",
            "u:7 u5:7 g:5 o:0",
            "u:7 g:5 m:7 m:7 o:0",
        ] {
            assert_eq!(Acl::decode(&acl(text)), Err(Errno::EINVAL), "{text}");
        }
        assert_eq!(Acl::decode(&acl("")), Ok(None));
        assert_eq!(Acl::decode(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        assert_eq!(parse("u:7 u5:6 g:5 m:7 o:0").encode(), acl("u:7 u5:6 g:5 m:7 o:0"));
    }

    #[test]
    fn a_value_that_is_cut_or_goes_on_is_refused() {
        let whole = acl("u:6 g:4 o:0");
        for length in (0..whole.len()).filter(|length| *length != 4) {
            assert_eq!(Acl::decode(&whole[..length]), Err(Errno::EINVAL), "{length} bytes");
        }
        assert_eq!(Acl::decode(&[&whole[..], b"x"].concat()), Err(Errno::EINVAL));
        assert_eq!(Acl::decode(&[&whole[..], &whole[4..]].concat()), Err(Errno::EINVAL), "twice");
        let long = [&whole[..4], &[0xff_u8; 8_000]].concat();
        assert_eq!(Acl::decode(&long), Err(Errno::EINVAL));
        let tagged = |tag: u16| {
            let mut list = whole.clone();
            list[4..6].copy_from_slice(&tag.to_le_bytes());
            Acl::decode(&list)
        };
        for tag in [0, 0x03, 0x40, 0x8000, u16::MAX] {
            assert_eq!(tagged(tag), Err(Errno::EINVAL), "tag {tag:#x}");
        }
        assert!(tagged(USER_OBJ).is_ok());
    }

    #[test]
    fn a_list_of_three_entries_is_a_mode() {
        let plain = parse("u:6 g:4 o:0");
        assert_eq!((plain.is_minimal(), plain.mode()), (true, 0o640));
        for more in ["u:6 g:4 m:4 o:0", "u:6 u5:4 g:4 m:4 o:0", "u:6 g:4 g5:4 m:4 o:0"] {
            assert!(!parse(more).is_minimal(), "{more}");
        }
    }

    #[test]
    fn named_users_come_before_groups_and_the_mask_limits_both() {
        let list = parse("u:7 u5:6 g:4 g20:7 m:5 o:1");
        let may = |uid, gid, mask| list.allows(&Creds { uid, gid, groups: vec![] }, 1, 10, mask);
        assert!(may(1, 99, 7), "the owner is not masked");
        assert!(may(5, 99, 4) && !may(5, 99, 2) && !may(5, 20, 1));
        assert!(may(6, 10, 4) && !may(6, 10, 1));
        assert!(may(6, 20, 5) && !may(6, 20, 2));
        assert!(may(6, 99, 1) && !may(6, 99, 4));
    }

    #[test]
    fn modes_and_lists_follow_each_other() {
        let mut list = parse("u:7 u5:6 g:4 m:6 o:1");
        assert_eq!(list.mode(), 0o761);
        list.chmod(0o640);
        assert_eq!(list, parse("u:6 u5:6 g:4 m:4 o:0"));
        let (inherited, mode) = parse("u:7 g:5 o:5").inherit(0o100_666);
        assert_eq!((inherited.is_minimal(), mode), (true, 0o100_644));
    }
}
