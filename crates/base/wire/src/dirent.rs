//! Directory entries in a readdir reply, in hash order. Each carries the file's attributes, so that
//! one round trip serves hundreds of files.
//!
//! ```text
//!  | cookie u64 | attributes 128 | name_len u16 | reserved u16 | flags u32 | name, padded to 8 |
//! ```

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::Attr;
pub use crate::flags::DirentFlags;

/// Fixed part of an entry.
#[derive(Clone, Copy, Debug, Default, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
pub struct DirentHeader {
    /// Ask for what stands behind this entry with it. Unique in the directory, rising, below 2^63.
    pub cookie: u64,
    /// Attributes; only FID and type bits of the mode where `flags` says so.
    pub attr: Attr,
    /// Bytes of the name.
    pub name_len: u16,
    /// Zero.
    pub reserved: u16,
    /// How much of the attributes holds.
    pub flags: DirentFlags,
}

const _: () = assert!(size_of::<DirentHeader>() == 144);

/// An entry, decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Dirent {
    /// Resume behind it with this.
    pub cookie: u64,
    /// Attributes at the time of the listing.
    pub attr: Attr,
    /// Whether all of `attr` is filled.
    pub has_attr: bool,
    /// Whether `attr` is leased.
    pub leased: bool,
    /// Name, 1 to 255 bytes.
    pub name: Vec<u8>,
}

/// Bytes that an entry with a name of this length takes.
#[must_use]
pub fn encoded_len(name_len: usize) -> usize {
    size_of::<DirentHeader>() + name_len.next_multiple_of(8)
}

/// Append an entry.
pub fn push(out: &mut Vec<u8>, entry: &Dirent) {
    let Dirent { cookie, attr, has_attr, leased, ref name } = *entry;
    assert!(
        !name.is_empty() && name.len() <= types::NAME_BYTES_MAX,
        "a stored name is 1 to 255 bytes"
    );
    let header = DirentHeader {
        cookie,
        attr,
        name_len: name.len() as u16,
        reserved: 0,
        flags: DirentFlags::HAS_ATTR.when(has_attr) | DirentFlags::LEASED.when(leased),
    };
    out.extend_from_slice(header.as_bytes());
    out.extend_from_slice(name);
    out.resize(out.len() + (name.len().next_multiple_of(8) - name.len()), 0);
}

/// All entries of a page; `None` where the bytes are no page.
#[must_use]
pub fn decode(mut page: &[u8]) -> Option<Vec<Dirent>> {
    let mut entries = Vec::with_capacity(page.len() / 160);
    while !page.is_empty() {
        let (header, rest) = DirentHeader::read_from_prefix(page).ok()?;
        let len = usize::from(header.name_len);
        if len == 0 || len > types::NAME_BYTES_MAX {
            return None;
        }
        let name = rest.get(..len)?.to_vec();
        page = rest.get(len.next_multiple_of(8)..)?;
        entries.push(Dirent {
            cookie: header.cookie,
            attr: header.attr,
            has_attr: header.flags.contains(DirentFlags::HAS_ATTR),
            leased: header.flags.contains(DirentFlags::LEASED),
            name,
        });
    }
    Some(entries)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_page_goes_there_and_back() {
        let attr = Attr { mode: 0o644, ..Attr::default() };
        let entries: Vec<Dirent> = [(1, "a"), (5, "12345678"), (9, "a longer name")]
            .into_iter()
            .map(|(cookie, name)| Dirent {
                cookie,
                attr,
                has_attr: cookie > 1,
                leased: cookie > 5,
                name: name.into(),
            })
            .collect();
        let mut page = Vec::new();
        entries.iter().for_each(|entry| push(&mut page, entry));
        assert_eq!(decode(&page[..page.len() - 1]), None);
        assert_eq!(decode(&page), Some(entries));
    }
}
