//! The superblock: a small file `nacre-super` that says which target a directory belongs to, and
//! which formats it uses.
//!
//! Little-endian, in this order:
//! - magic (8), version u16, length of the whole u16;
//! - CRC-32C u32 (over everything, itself as zero);
//! - compat, ro-compat and incompat words (u64 each);
//! - file system name (8, NUL padded), target u32 (kind and index as on the wire);
//! - count of MGS addresses u32, uuid (16);
//! - created: seconds i64, nanoseconds u32, zero u32;
//! - for each MGS address NID u64, port u16, zero (6).
//!
//! A longer fixed part needs a new version.
//!
//! It is replaced whole: written to another name, synced, renamed, directory synced. So a crash
//! leaves the old one or the new.
//!
//! Bit 0 of compat says that the target has been served ([`COMPAT_SERVED`]), bit 1 that an MDT has
//! a data target ([`COMPAT_DATA`]). The meaning of an unknown bit depends on its word:
//! - compat: nothing
//! - ro-compat: the target may be read, so it is not served (a server writes)
//! - incompat: do not touch

use std::fs::{File, OpenOptions};
use std::io::{ErrorKind, Read, Write};
use std::path::{Path, PathBuf};

use types::{FsName, Nid, NidAddr, TargetId, TargetKind, Timespec};

use crate::DiskError;
use crate::durable::sync_dir;

const FILE: &str = "nacre-super";
const LOCK_FILE: &str = "nacre-lock";
const MAGIC: &[u8; 8] = b"NACRE\0SB";
/// Version of the superblock itself.
pub const VERSION: u16 = 1;
const FIXED_BYTES: usize = 96;
const MGS_BYTES: usize = 16;
/// MGS addresses of one target at most.
pub const MGS_MAX: usize = 16;
/// Bit of `compat`: the target has been served. Its records, and its objects where it has such,
/// must be there from then on.
pub const COMPAT_SERVED: u64 = 1;
/// Bit of `compat`: the MDT has its data target in [`data_dir`], which must be there from then on.
pub const COMPAT_DATA: u64 = 2;
/// Bits of `ro_compat` that this version knows.
pub const RO_COMPAT_KNOWN: u64 = 0;
/// Bits of `incompat` that this version knows.
pub const INCOMPAT_KNOWN: u64 = 0;
/// What a target consists of: formatting anew removes these.
const PARTS: [&str; 5] = [FILE, RECORDS, OBJECTS, "peers", DATA];
const RECORDS: &str = "records";
pub(crate) const RECORDS_FILE: &str = "records/data.mdb";
const OBJECTS: &str = "objects";
const DATA: &str = "data";

const BYTES_MAX: usize = FIXED_BYTES + MGS_MAX * MGS_BYTES;

/// Who a target is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Superblock {
    /// Features that older versions may ignore.
    pub compat: u64,
    /// Features that older versions may ignore if they only read.
    pub ro_compat: u64,
    /// Features that must be known.
    pub incompat: u64,
    pub fsname: FsName,
    pub target: TargetId,
    /// Identity of this storage.
    pub uuid: u128,
    /// Where the MGS is reached, at most [`MGS_MAX`]; none on the MGS itself.
    pub mgs: Vec<NidAddr>,
    /// When it was formatted.
    pub created: Timespec,
}

impl Superblock {
    /// Of a fresh target.
    #[must_use]
    pub fn new(
        fsname: FsName,
        target: TargetId,
        uuid: u128,
        mgs: Vec<NidAddr>,
        created: Timespec,
    ) -> Superblock {
        Superblock { compat: 0, ro_compat: 0, incompat: 0, fsname, target, uuid, mgs, created }
    }

    /// Whether it has been served.
    #[must_use]
    pub fn was_served(&self) -> bool {
        self.compat & COMPAT_SERVED != 0
    }

    /// Its name: `testfs-OST0000`.
    #[must_use]
    pub fn name(&self) -> String {
        self.target.name(self.fsname)
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.mgs.len() <= MGS_MAX, "a target has at most {MGS_MAX} MGS addresses");
        let length = FIXED_BYTES + self.mgs.len() * MGS_BYTES;
        let mut out = Vec::with_capacity(length);
        out.extend_from_slice(MAGIC);
        out.extend_from_slice(&VERSION.to_le_bytes());
        out.extend_from_slice(&(length as u16).to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        for word in [self.compat, self.ro_compat, self.incompat] {
            out.extend_from_slice(&word.to_le_bytes());
        }
        out.extend_from_slice(&self.fsname.to_bytes());
        out.extend_from_slice(&self.target.to_u32().to_le_bytes());
        out.extend_from_slice(&(self.mgs.len() as u32).to_le_bytes());
        out.extend_from_slice(&self.uuid.to_le_bytes());
        out.extend_from_slice(&self.created.sec.to_le_bytes());
        out.extend_from_slice(&self.created.nsec.to_le_bytes());
        out.extend_from_slice(&[0; 4]);
        out.resize(FIXED_BYTES, 0);
        for at in &self.mgs {
            out.extend_from_slice(&at.nid.0.to_le_bytes());
            out.extend_from_slice(&at.port.to_le_bytes());
            out.extend_from_slice(&[0; 6]);
        }
        let crc = crc32c::crc32c(&out);
        out[12..16].copy_from_slice(&crc.to_le_bytes());
        out
    }

    /// From its bytes; the error says what is wrong.
    pub fn decode(bytes: &[u8]) -> Result<Superblock, String> {
        if bytes.get(..8) != Some(MAGIC) {
            return Err("this is not a Nacre superblock".to_owned());
        }
        let short = || format!("cut short: {} bytes", bytes.len());
        let version = u16::from_le_bytes(take(bytes, 8).ok_or_else(short)?);
        if version > VERSION {
            return Err(format!(
                "version {version} is newer than {VERSION}, the newest that this program knows"
            ));
        }
        let length = usize::from(u16::from_le_bytes(take(bytes, 10).ok_or_else(short)?));
        if version == 0 || length < FIXED_BYTES || bytes.len() < length {
            return Err(short());
        }
        let crc = u32::from_le_bytes(take(bytes, 12).ok_or_else(short)?);
        let mut plain = bytes[..length].to_vec();
        plain[12..16].fill(0);
        if crc32c::crc32c(&plain) != crc {
            return Err("the checksum is wrong: it is damaged".to_owned());
        }
        let word = |at| take(bytes, at).map(u64::from_le_bytes).ok_or_else(short);
        let half = |at| take(bytes, at).map(u32::from_le_bytes).ok_or_else(short);
        let superblock = Superblock {
            compat: word(16)?,
            ro_compat: word(24)?,
            incompat: word(32)?,
            fsname: FsName::from_bytes(take(bytes, 40).ok_or_else(short)?)
                .map_err(|error| error.to_string())?,
            target: TargetId::from_u32(half(48)?).ok_or("an unknown kind of target")?,
            uuid: u128::from_le_bytes(take(bytes, 56).ok_or_else(short)?),
            created: Timespec::new(word(72)?.cast_signed(), half(80)?),
            mgs: addresses(&bytes[FIXED_BYTES..length], half(52)? as usize)
                .ok_or("its list of MGS addresses is broken")?,
        };
        superblock.check_features()
    }

    fn check_features(self) -> Result<Superblock, String> {
        let unknown = self.incompat & !INCOMPAT_KNOWN;
        if unknown != 0 {
            return Err(format!(
                "uses incompatible features {unknown:#x} that this program does not know"
            ));
        }
        let unknown = self.ro_compat & !RO_COMPAT_KNOWN;
        if unknown != 0 {
            return Err(format!("uses features {unknown:#x} that this program must not write to"));
        }
        Ok(self)
    }
}

fn take<const N: usize>(bytes: &[u8], at: usize) -> Option<[u8; N]> {
    bytes.get(at..at + N)?.try_into().ok()
}

fn addresses(bytes: &[u8], count: usize) -> Option<Vec<NidAddr>> {
    if count > MGS_MAX || bytes.len() != count * MGS_BYTES {
        return None;
    }
    let one = |at: &[u8]| {
        Some(NidAddr {
            nid: Nid(u64::from_le_bytes(take(at, 0)?)),
            port: u16::from_le_bytes(take(at, 8)?),
        })
    };
    bytes.chunks_exact(MGS_BYTES).map(one).collect()
}

/// Held while a target is served; dropping it lets go.
#[derive(Debug)]
pub struct TargetLock {
    _file: File,
}

/// Is called while a directory of an old target is removed, with the number of entries that are
/// gone and the number of all.
pub type Watch<'a> = dyn FnMut(u64, u64) + 'a;

/// Makes `dir` the target `superblock`; the directory is made if it is not there. A target that is
/// there already is refused without `reformat`. A directory without a superblock is refused when it
/// holds anything else.
pub fn format(dir: &Path, superblock: &Superblock, reformat: bool) -> Result<(), DiskError> {
    format_watched(dir, superblock, reformat, &mut |_, _| ())
}

/// The same, which may take minutes where there are many objects.
pub fn format_watched(
    dir: &Path,
    superblock: &Superblock,
    reformat: bool,
    watch: &mut Watch<'_>,
) -> Result<(), DiskError> {
    let _lock = clear(dir, reformat, &PARTS, watch)?;
    write(dir, superblock)
}

/// Where the data target of the MDT in `dir` is: a target of its own, with another superblock.
#[must_use]
pub fn data_dir(dir: &Path) -> PathBuf {
    dir.join(DATA)
}

/// Whether an MDT has a data target in [`data_dir`].
pub fn has_data(dir: &Path) -> Result<bool, DiskError> {
    exists(&data_dir(dir).join(FILE))
}

/// Notes that the MDT in `dir` has one from now on.
pub fn mark_data(dir: &Path) -> Result<(), DiskError> {
    let there = open(dir)?;
    if there.compat & COMPAT_DATA != 0 {
        return Ok(());
    }
    write(dir, &Superblock { compat: there.compat | COMPAT_DATA, ..there })
}

/// Makes `dir` hold nothing but the data target of an MDT, to be filled and then to get a
/// superblock by [`finish`]. The same is refused as by [`format()`], and without `reformat` also
/// records that have lost their superblock.
pub fn clear_for_records(dir: &Path, reformat: bool) -> Result<TargetLock, DiskError> {
    if has_records(dir) && !exists(&dir.join(FILE))? && !reformat {
        let why = "it holds records, but no superblock (--reformat removes them)";
        return Err(DiskError::io(dir, "is not empty")(std::io::Error::other(why)));
    }
    let parts: Vec<&str> = PARTS.into_iter().filter(|part| *part != DATA).collect();
    clear(dir, reformat, &parts, &mut |_, _| ())
}

/// Gives a directory that was filled its superblock: it is a target that was served from now on,
/// with the data target that it has.
pub fn finish(dir: &Path, superblock: &Superblock, _locked: &TargetLock) -> Result<(), DiskError> {
    sync_dir(dir)?;
    let data = if has_data(dir)? { COMPAT_DATA } else { 0 };
    let compat = superblock.compat & !COMPAT_DATA | COMPAT_SERVED | data;
    write(dir, &Superblock { compat, ..superblock.clone() })
}

fn clear(
    dir: &Path,
    reformat: bool,
    parts: &[&str],
    watch: &mut Watch<'_>,
) -> Result<TargetLock, DiskError> {
    refuse_files(dir)?;
    let made = std::fs::create_dir_all(dir);
    made.map_err(DiskError::io(dir, "cannot be made, name a directory on a disk"))?;
    let formatted = exists(&dir.join(FILE))?;
    if formatted && !reformat {
        let name = open(dir).map_or_else(|_| "a target".to_owned(), |there| there.name());
        return Err(DiskError::Formatted { path: dir.to_owned(), name });
    }
    if !formatted {
        refuse_foreign(dir)?;
    }
    let lock = lock_file(&dir.join(LOCK_FILE), dir)?;
    for part in parts {
        if is_ours(dir, part)? {
            remove(&dir.join(part), watch)?;
        }
    }
    sync_dir(dir)?;
    Ok(TargetLock { _file: lock })
}

/// Reads who `dir` is.
pub fn open(dir: &Path) -> Result<Superblock, DiskError> {
    let path = dir.join(FILE);
    let file = match File::open(&path) {
        Ok(file) => file,
        Err(error) if error.kind() == ErrorKind::NotFound && dir.is_dir() => {
            return Err(DiskError::NotFormatted(dir.to_owned()));
        }
        Err(error) => return Err(DiskError::io(dir, "cannot be opened")(error)),
    };
    let mut bytes = Vec::new();
    file.take(4 * BYTES_MAX as u64)
        .read_to_end(&mut bytes)
        .map_err(DiskError::io(&path, "cannot be read"))?;
    Superblock::decode(&bytes).map_err(|why| DiskError::Superblock { path, why })
}

/// Replaces the superblock of a formatted target: its MGS moved. The caller holds the lock.
pub fn update(dir: &Path, superblock: &Superblock) -> Result<(), DiskError> {
    open(dir)?;
    write(dir, superblock)
}

/// Notes that the target is served from now on. Its records and objects are durable before.
pub fn mark_served(dir: &Path) -> Result<(), DiskError> {
    let there = open(dir)?;
    if there.was_served() {
        return Ok(());
    }
    write(dir, &Superblock { compat: there.compat | COMPAT_SERVED, ..there })
}

/// Whether the target in `dir` has records.
#[must_use]
pub fn has_records(dir: &Path) -> bool {
    std::fs::metadata(dir.join(RECORDS_FILE)).is_ok_and(|metadata| metadata.len() > 0)
}

/// What a target that has been served must have and has not, as paths in `dir`.
pub fn missing_parts(dir: &Path, superblock: &Superblock) -> Result<Vec<PathBuf>, DiskError> {
    let mut missing = Vec::new();
    if !superblock.was_served() {
        return Ok(missing);
    }
    let records = dir.join(RECORDS_FILE);
    let has_records = match std::fs::metadata(&records) {
        Ok(metadata) => metadata.len() > 0,
        Err(error) if error.kind() == ErrorKind::NotFound => false,
        Err(error) => return Err(DiskError::io(&records, "cannot be looked at")(error)),
    };
    if !has_records {
        missing.push(records);
    }
    if superblock.compat & COMPAT_DATA != 0 && !has_data(dir)? {
        missing.push(data_dir(dir));
    }
    if superblock.target.kind == TargetKind::Ost {
        let all =
            (0..crate::obj::DIRS).map(|index| dir.join(OBJECTS).join(crate::obj::dir_name(index)));
        let mut gone = Vec::new();
        for path in all {
            if !exists(&path)? {
                gone.push(path);
            }
        }
        match gone.len() {
            crate::obj::DIRS => missing.push(dir.join(OBJECTS)),
            _ => missing.append(&mut gone),
        }
    }
    Ok(missing)
}

/// Locks the target in `dir` against a second server.
pub fn lock(dir: &Path) -> Result<TargetLock, DiskError> {
    if !dir.is_dir() {
        let missing = std::io::Error::from(ErrorKind::NotFound);
        return Err(DiskError::io(dir, "is not a directory")(missing));
    }
    lock_file(&dir.join(LOCK_FILE), dir).map(|file| TargetLock { _file: file })
}

/// The lock file of `dir`, locked; somebody else's is `InUse`.
pub(crate) fn lock_file(path: &Path, dir: &Path) -> Result<File, DiskError> {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(false)
        .open(path)
        .map_err(DiskError::io(path, "cannot be opened for writing"))?;
    match rustix::fs::flock(&file, rustix::fs::FlockOperation::NonBlockingLockExclusive) {
        Ok(()) => Ok(file),
        Err(rustix::io::Errno::WOULDBLOCK) => Err(DiskError::InUse(dir.to_owned())),
        Err(errno) => Err(DiskError::io(path, "cannot be locked")(errno.into())),
    }
}

fn write(dir: &Path, superblock: &Superblock) -> Result<(), DiskError> {
    let beside = dir.join("nacre-super.new");
    let written = File::create(&beside).and_then(|mut file| {
        file.write_all(&superblock.encode())?;
        file.sync_all()?;
        std::fs::rename(&beside, dir.join(FILE))
    });
    written.map_err(DiskError::io(&beside, "cannot be written"))?;
    sync_dir(dir)
}

fn exists(path: &Path) -> Result<bool, DiskError> {
    path.try_exists().map_err(DiskError::io(path, "cannot be looked at"))
}

/// A directory called `data` may be anybody's: it is ours where a target is in it.
fn is_ours(dir: &Path, part: &str) -> Result<bool, DiskError> {
    if part == DATA { has_data(dir) } else { Ok(true) }
}

/// A target is a directory. A disk's own device is often named in its place.
fn refuse_files(dir: &Path) -> Result<(), DiskError> {
    use std::os::unix::fs::FileTypeExt;
    let Ok(metadata) = std::fs::metadata(dir) else { return Ok(()) };
    let why = match metadata.file_type() {
        kind if kind.is_dir() => return Ok(()),
        kind if kind.is_block_device() => {
            "is a block device: make a file system on it (mkfs.ext4), mount it and name the mount point"
        }
        _ => "is not a directory: name one",
    };
    Err(DiskError::io(dir, "cannot be formatted")(std::io::Error::other(why)))
}

/// A directory with something else in it is not ours to fill.
fn refuse_foreign(dir: &Path) -> Result<(), DiskError> {
    let failed = || DiskError::io(dir, "cannot be read");
    for entry in std::fs::read_dir(dir).map_err(failed())? {
        let name = entry.map_err(failed())?.file_name();
        let ours = name == "lost+found"
            || name == LOCK_FILE
            || name == "nacre-super.new"
            || PARTS.iter().any(|part| name == *part && is_ours(dir, part).unwrap_or(false));
        if !ours {
            let why =
                format!("is not empty (it holds {}): name an empty one", name.to_string_lossy());
            return Err(DiskError::io(dir, "cannot be formatted")(std::io::Error::other(why)));
        }
    }
    Ok(())
}

fn remove(path: &Path, watch: &mut Watch<'_>) -> Result<(), DiskError> {
    let removed = match std::fs::symlink_metadata(path) {
        Ok(meta) if meta.is_dir() => remove_dir(path, watch),
        Ok(_) => std::fs::remove_file(path),
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        Err(error) => Err(error),
    };
    removed.map_err(DiskError::io(path, "cannot be removed"))
}

/// Entry by entry: objects are in a few directories of the same size.
fn remove_dir(path: &Path, watch: &mut Watch<'_>) -> std::io::Result<()> {
    let entries: Vec<_> = std::fs::read_dir(path)?.collect::<Result<_, _>>()?;
    for (gone, entry) in entries.iter().enumerate() {
        watch(gone as u64, entries.len() as u64);
        if entry.file_type()?.is_dir() {
            std::fs::remove_dir_all(entry.path())?;
        } else {
            std::fs::remove_file(entry.path())?;
        }
    }
    std::fs::remove_dir(path)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testdir::TestDir;

    fn superblock() -> Superblock {
        let mgs = vec![
            "10.0.0.1@tcp".parse().expect("a NID"),
            "10.0.0.2:1988@tcp".parse().expect("a NID"),
        ];
        Superblock::new(
            "testfs".parse().expect("a name"),
            TargetId::ost(3),
            7 << 100,
            mgs,
            Timespec::new(1_700_000_000, 5),
        )
    }

    #[test]
    fn a_target_is_formatted_once_and_knows_itself() {
        let dir = TestDir::new();
        let path = dir.path().join("ost");
        assert!(matches!(open(&path), Err(DiskError::Io { .. })), "missing directory");
        format(&path, &superblock(), false).expect("formats");
        assert_eq!(open(&path).expect("opens"), superblock());
        let again = format(&path, &superblock(), false).expect_err("refused").to_string();
        assert!(again.contains("testfs-OST0003"), "{again}");
        format(&path, &superblock(), true).expect("reformats");
        update(&path, &Superblock { mgs: Vec::new(), ..superblock() }).expect("updates");
        assert_eq!(open(&path).expect("opens").mgs, []);
    }

    /// Written byte by byte from docs/formats/superblock.md, not by this code: later versions must
    /// open it too.
    #[test]
    fn the_superblock_of_version_1_is_still_written() {
        let frozen = include_bytes!("../../../../fixtures/superblock-v1.bin");
        assert_eq!(Superblock::decode(frozen), Ok(superblock()));
        assert_eq!(superblock().encode(), frozen);
    }

    #[test]
    fn an_empty_or_foreign_directory_is_no_target() {
        let dir = TestDir::new();
        assert!(matches!(open(dir.path()), Err(DiskError::NotFormatted(_))));
        std::fs::write(dir.path().join("thesis.tex"), "x").expect("writes");
        let text = format(dir.path(), &superblock(), true).expect_err("refused").to_string();
        assert!(text.contains("thesis.tex"), "{text}");
    }

    #[test]
    fn formatting_anew_removes_all_that_a_target_had() {
        let dir = TestDir::new();
        let leave_behind =
            || std::fs::write(dir.path().join("peers"), "of another file system").expect("writes");
        leave_behind();
        format(dir.path(), &superblock(), false)
            .expect("what a broken-off format left is not an obstacle");
        assert!(!dir.path().join("peers").exists());
        leave_behind();
        format(dir.path(), &superblock(), true).expect("reformats");
        assert!(!dir.path().join("peers").exists());
    }

    #[test]
    fn removal_of_objects_shows_how_far_it_is() {
        let dir = TestDir::new();
        format(dir.path(), &superblock(), false).expect("formats");
        let objects = dir.path().join(OBJECTS);
        for index in 0..3 {
            let some = objects.join(format!("d{index:02}"));
            std::fs::create_dir_all(&some).expect("made");
            std::fs::write(some.join("2-1f-0"), "bytes").expect("written");
        }
        std::os::unix::fs::symlink(dir.path(), objects.join("link")).expect("made");
        let mut seen = Vec::new();
        format_watched(dir.path(), &superblock(), true, &mut |gone, all| seen.push((gone, all)))
            .expect("reformats");
        assert_eq!(seen, [(0, 4), (1, 4), (2, 4), (3, 4)]);
        assert!(!objects.exists());
        assert_eq!(open(dir.path()).expect("a link is not followed"), superblock());
    }

    #[test]
    fn a_directory_that_is_filled_is_no_target_before_its_end() {
        let dir = TestDir::new();
        let lock = clear_for_records(dir.path(), false).expect("an empty directory");
        std::fs::create_dir(dir.path().join(RECORDS)).expect("made");
        std::fs::write(dir.path().join(RECORDS_FILE), "some").expect("written");
        assert!(matches!(open(dir.path()), Err(DiskError::NotFormatted(_))), "a crash here");
        assert!(matches!(clear_for_records(dir.path(), true), Err(DiskError::InUse(_))));
        drop(lock);
        let refused = clear_for_records(dir.path(), false).expect_err("records").to_string();
        assert!(refused.contains("--reformat"), "{refused}");
        let lock = clear_for_records(dir.path(), true).expect("it was said to");
        assert!(!has_records(dir.path()));
        finish(dir.path(), &superblock(), &lock).expect("written");
        assert!(open(dir.path()).expect("a target").was_served());
        drop(lock);
        let there = clear_for_records(dir.path(), false).expect_err("a target");
        assert!(matches!(there, DiskError::Formatted { .. }));
    }

    #[test]
    fn what_a_served_target_lacks_is_named() {
        let dir = TestDir::new();
        let there = || open(dir.path()).expect("a target");
        let missing = || missing_parts(dir.path(), &there()).expect("looked at");
        format(dir.path(), &superblock(), false).expect("formats");
        assert_eq!(missing(), [""; 0].map(PathBuf::from), "it was never served");
        mark_served(dir.path()).expect("marks");
        assert_eq!(there(), Superblock { compat: COMPAT_SERVED, ..superblock() });
        let (records, objects) = (dir.path().join(RECORDS_FILE), dir.path().join(OBJECTS));
        assert_eq!(missing(), [records.clone(), objects.clone()]);
        std::fs::create_dir(dir.path().join(RECORDS)).expect("made");
        std::fs::write(&records, "").expect("written");
        for index in 0..crate::obj::DIRS {
            std::fs::create_dir_all(objects.join(crate::obj::dir_name(index))).expect("made");
        }
        assert_eq!(missing(), std::slice::from_ref(&records), "an empty file holds no records");
        std::fs::write(&records, "records").expect("written");
        assert_eq!(missing(), [""; 0].map(PathBuf::from));
        let one = objects.join(crate::obj::dir_name(7));
        std::fs::remove_dir(&one).expect("removed");
        assert_eq!(missing(), [one]);
        std::fs::create_dir_all(objects.join(crate::obj::dir_name(7))).expect("made");
        let data = data_dir(dir.path());
        mark_data(dir.path()).expect("marked");
        assert_eq!(missing(), std::slice::from_ref(&data), "an MDT's data");
        format(&data, &superblock(), false).expect("formats");
        assert_eq!(missing(), [""; 0].map(PathBuf::from));
        let lock = clear_for_records(dir.path(), true).expect("cleared");
        finish(dir.path(), &superblock(), &lock).expect("filled");
        drop(lock);
        assert!(there().compat & COMPAT_DATA != 0 && data.exists(), "its data stay");
        format(dir.path(), &superblock(), true).expect("formats anew");
        assert!(!there().was_served() && !data.exists());
    }

    #[test]
    fn somebody_elses_data_stay() {
        let dir = TestDir::new();
        let file = data_dir(dir.path()).join("mine");
        std::fs::create_dir_all(data_dir(dir.path())).expect("made");
        std::fs::write(&file, "mine").expect("written");
        let refused = format(dir.path(), &superblock(), true).expect_err("not empty").to_string();
        assert!(refused.contains("it holds data"), "{refused}");
        write(dir.path(), &superblock()).expect("written");
        format(dir.path(), &superblock(), true).expect("formats anew");
        assert!(file.exists());
    }

    #[test]
    fn a_target_is_served_once() {
        let dir = TestDir::new();
        let held = lock(dir.path()).expect("free");
        let second = lock(dir.path()).expect_err("held").to_string();
        assert!(
            second.contains("in use") && second.contains(&*dir.path().to_string_lossy()),
            "{second}"
        );
        assert!(matches!(format(dir.path(), &superblock(), true), Err(DiskError::InUse(_))));
        drop(held);
        lock(dir.path()).expect("free again");
        assert!(lock(&dir.path().join("missing")).is_err());
    }

    #[test]
    fn newer_unknown_and_damaged_superblocks_are_refused_in_words() {
        let good = superblock().encode();
        assert_eq!(good.len(), FIXED_BYTES + 2 * MGS_BYTES);
        for len in 0..good.len() {
            assert!(Superblock::decode(&good[..len]).is_err(), "{len}");
        }
        for at in 0..good.len() {
            let mut bad = good.clone();
            bad[at] ^= 0x40;
            assert!(Superblock::decode(&bad).is_err(), "byte {at}");
        }
        let newer = {
            let mut bytes = good;
            bytes[8] = 2;
            bytes
        };
        assert!(Superblock::decode(&newer).expect_err("newer").contains("newer"));
        let unknown = Superblock { incompat: 4, ..superblock() }.encode();
        assert!(Superblock::decode(&unknown).expect_err("unknown").contains("0x4"));
        let unknown = Superblock { ro_compat: 1, ..superblock() }.encode();
        assert!(Superblock::decode(&unknown).is_err());
        assert!(
            Superblock::decode(&Superblock { compat: 1 << 63, ..superblock() }.encode()).is_ok()
        );
    }
}
