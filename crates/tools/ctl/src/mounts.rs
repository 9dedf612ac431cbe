//! Our mounts in the kernel's table, and their removal.

use std::ffi::OsString;
use std::io;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// Type of our mounts in the kernel's table.
pub const FUSE_TYPE: &str = "fuse.nacre";

/// A mount of ours.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Mount {
    pub dir: PathBuf,
    /// Device number that its files show.
    pub device: (u32, u32),
    /// `NID:/FSNAME`.
    pub source: String,
    /// Words of the mount point, then of the file system.
    pub options: Vec<String>,
}

impl Mount {
    /// Name of the file system.
    #[must_use]
    pub fn fsname(&self) -> &str {
        self.source.rsplit_once(":/").map_or(self.source.as_str(), |(_, fsname)| fsname)
    }
}

/// All mounts of ours, in the order of the kernel's table.
pub fn all() -> io::Result<Vec<Mount>> {
    Ok(parse(&std::fs::read("/proc/self/mountinfo")?))
}

/// The topmost mount of ours at exactly this place. Asks the kernel's table only, never the mount's
/// daemon.
pub fn at(dir: &Path) -> io::Result<Option<Mount>> {
    Ok(all()?.into_iter().rev().find(|mount| mount.dir == dir))
}

fn parse(table: &[u8]) -> Vec<Mount> {
    table.split(|byte| *byte == b'\n').filter_map(parse_line).collect()
}

/// `36 35 0:44 / /mnt/nacre rw - fuse.nacre 127.0.0.2@tcp:/testfs rw`: type and source follow the
/// lone dash.
fn parse_line(line: &[u8]) -> Option<Mount> {
    let fields: Vec<&[u8]> = line.split(|byte| *byte == b' ').collect();
    let dash = fields.iter().position(|field| *field == b"-")?;
    if *fields.get(dash + 1)? != FUSE_TYPE.as_bytes() {
        return None;
    }
    let (major, minor) = std::str::from_utf8(fields.get(2)?).ok()?.split_once(':')?;
    let words = [fields.get(5)?, fields.get(dash + 3)?]
        .map(|list| String::from_utf8_lossy(list).into_owned());
    Some(Mount {
        dir: PathBuf::from(OsString::from_vec(unescape(fields.get(4)?))),
        device: (major.parse().ok()?, minor.parse().ok()?),
        source: String::from_utf8(unescape(fields.get(dash + 2)?)).ok()?,
        options: words.iter().flat_map(|list| list.split(',')).map(str::to_owned).collect(),
    })
}

/// Blanks stand as `\040` in the table.
fn unescape(field: &[u8]) -> Vec<u8> {
    let mut out = Vec::with_capacity(field.len());
    let mut at = 0;
    while at < field.len() {
        let octal = field
            .get(at + 1..at + 4)
            .filter(|digits| digits.iter().all(|digit| (b'0'..=b'7').contains(digit)));
        match (field[at], octal) {
            (b'\\', Some(digits)) => {
                out.push(
                    digits.iter().fold(0_u8, |value, digit| {
                        value.wrapping_mul(8).wrapping_add(digit - b'0')
                    }),
                );
                at += 4;
            }
            (byte, _) => {
                out.push(byte);
                at += 1;
            }
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_names_our_mounts() {
        let table = b"22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw\n\
            36 22 0:44 / /mnt/a\\040b rw,nosuid shared:9 - fuse.nacre 127.0.0.2@tcp:/testfs rw,user_id=0\n";
        let options = ["rw", "nosuid", "rw", "user_id=0"].map(str::to_owned).to_vec();
        let expected = Mount {
            dir: "/mnt/a b".into(),
            device: (0, 44),
            source: "127.0.0.2@tcp:/testfs".into(),
            options,
        };
        assert_eq!(expected.fsname(), "testfs");
        assert_eq!(parse(table), [expected]);
    }

    /// Fuzz target: a table that is damaged names fewer mounts, and never one that is not ours.
    #[test]
    fn mount_table() {
        const LINE: &[u8] =
            b"36 22 0:44 / /mnt/a\\040b rw,nosuid shared:9 - fuse.nacre 127.0.0.2@tcp:/testfs rw\n";
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .for_each(|input: &[u8]| {
                let mut table = LINE.repeat(2);
                for change in input.chunks_exact(2).take(6) {
                    let at = usize::from(change[0]) % table.len();
                    table[at] = change[1];
                }
                for mount in parse(&table) {
                    assert!(mount.options.len() >= 2 && !mount.fsname().contains(":/"));
                }
                assert_eq!(parse(&[LINE, input].concat())[0].fsname(), "testfs");
            });
    }
}
