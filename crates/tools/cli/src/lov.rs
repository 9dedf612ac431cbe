//! The `lustre.lov` xattr as users see it: plain layouts of version 1 and 3.
//!
//! Read here rather than through the layout crate's decoder, because a command shows what is there,
//! byte for byte, also where it would be refused as an input.

use std::ffi::CString;
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

/// Name of the xattr.
pub(crate) const XATTR: &str = "lustre.lov";

const MAGIC_V1: u32 = 0x0BD1_0BD0;
const MAGIC_V3: u32 = 0x0BD3_0BD0;
const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
const ENTRY_BYTES: usize = 24;

/// Largest value that the kernel hands out (XATTR_SIZE_MAX).
const VALUE_BYTES_MAX: usize = 65_536;

/// One object of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Object {
    pub(crate) ost: u32,
    /// Sequence, number, stripe.
    pub(crate) fid: types::Fid,
}

/// A layout or a directory's default as the xattr tells it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Lov {
    pub(crate) magic: u32,
    pub(crate) pattern: u32,
    /// MDT object: the file's FID without its version.
    pub(crate) oid: u64,
    pub(crate) seq: u64,
    pub(crate) stripe_size: u32,
    /// 0xffff: all.
    pub(crate) stripe_count: u16,
    /// Layout generation of a file; start index of a default (0xffff: any).
    pub(crate) generation: u16,
    pub(crate) pool: String,
    pub(crate) objects: Vec<Object>,
}

impl Lov {
    /// From the xattr's value.
    pub(crate) fn parse(value: &[u8]) -> Result<Lov, String> {
        let short = || "the layout is shorter than it says".to_owned();
        let u16_at = |at: usize| Some(u16::from_le_bytes(value.get(at..at + 2)?.try_into().ok()?));
        let u32_at = |at: usize| Some(u32::from_le_bytes(value.get(at..at + 4)?.try_into().ok()?));
        let u64_at = |at: usize| Some(u64::from_le_bytes(value.get(at..at + 8)?.try_into().ok()?));
        let magic = u32_at(0).ok_or_else(short)?;
        let (pool, first) = match magic {
            MAGIC_V1 => (String::new(), 32),
            MAGIC_V3 => (pool_name(value.get(32..48).ok_or_else(short)?), 48),
            MAGIC_COMPOSITE => {
                return Err("a composite layout, which this version does not show".into());
            }
            other => return Err(format!("a layout of unknown magic {other:#010x}")),
        };
        let entry = |bytes: &[u8]| -> Option<Object> {
            let number =
                |at: usize| Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?));
            let seq = u64::from_le_bytes(bytes.get(..8)?.try_into().ok()?);
            Some(Object {
                ost: number(20)?,
                fid: types::Fid { seq, oid: number(8)?, ver: number(12)? },
            })
        };
        let objects = value
            .get(first..)
            .ok_or_else(short)?
            .chunks_exact(ENTRY_BYTES)
            .filter_map(entry)
            .collect();
        Ok(Lov {
            magic,
            pattern: u32_at(4).ok_or_else(short)?,
            oid: u64_at(8).ok_or_else(short)?,
            seq: u64_at(16).ok_or_else(short)?,
            stripe_size: u32_at(24).ok_or_else(short)?,
            stripe_count: u16_at(28).ok_or_else(short)?,
            generation: u16_at(30).ok_or_else(short)?,
            pool,
            objects,
        })
    }

    /// `raid0`, `mdt` and so on.
    pub(crate) fn pattern_name(&self) -> String {
        match self.pattern {
            0 | 1 => "raid0".into(),
            0x100 => "mdt".into(),
            0x201 => "raid0,overstriped".into(),
            other => format!("{other:#x}"),
        }
    }

    /// Count as commands print it: -1 for all.
    pub(crate) fn count(&self) -> i32 {
        if self.stripe_count == u16::MAX { -1 } else { i32::from(self.stripe_count) }
    }
}

fn pool_name(bytes: &[u8]) -> String {
    let end = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

/// The xattr of `path`; nothing where there is no layout.
pub(crate) fn read(path: &Path) -> io::Result<Option<Vec<u8>>> {
    let mut value = vec![0; VALUE_BYTES_MAX];
    match rustix::fs::getxattr(c_path(path)?.as_c_str(), XATTR, value.as_mut_slice()) {
        Ok(len) => {
            value.truncate(len);
            Ok(Some(value).filter(|value| !value.is_empty()))
        }
        Err(rustix::io::Errno::NODATA) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes()).map_err(|_| io::ErrorKind::InvalidInput.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A version 3 layout of one object, written down by hand from the byte table.
    fn sample() -> Vec<u8> {
        let mut bytes = Vec::new();
        bytes.extend(MAGIC_V3.to_le_bytes());
        bytes.extend(1_u32.to_le_bytes());
        bytes.extend(0x1f_u64.to_le_bytes());
        bytes.extend(0x2_0000_0402_u64.to_le_bytes());
        bytes.extend(1_048_576_u32.to_le_bytes());
        bytes.extend(1_u16.to_le_bytes());
        bytes.extend(7_u16.to_le_bytes());
        bytes.extend(b"disk\0\0\0\0\0\0\0\0\0\0\0\0");
        bytes.extend(0x1_0003_0000_u64.to_le_bytes());
        bytes.extend(2_u32.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(0_u32.to_le_bytes());
        bytes.extend(3_u32.to_le_bytes());
        bytes
    }

    #[test]
    fn a_layout_is_read_field_by_field() {
        let lov = Lov::parse(&sample()).expect("a layout");
        assert_eq!(
            (lov.oid, lov.seq, lov.stripe_size, lov.count(), lov.generation),
            (0x1f, 0x2_0000_0402, 1 << 20, 1, 7)
        );
        assert_eq!((lov.pool.as_str(), lov.pattern_name().as_str()), ("disk", "raid0"));
        assert_eq!(lov.objects, [Object { ost: 3, fid: types::Fid::new(0x1_0003_0000, 2) }]);
    }

    #[test]
    fn a_broken_layout_is_refused_in_words() {
        for len in [0, 3, 10, 31, 40] {
            assert!(Lov::parse(&sample()[..len]).is_err(), "{len}");
        }
        assert!(Lov::parse(&[0xff; 64]).is_err());
    }
}
