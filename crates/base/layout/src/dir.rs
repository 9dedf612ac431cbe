//! Directories whose names are spread over several MDTs: a directory's striping, the requested
//! striping, and the shard that a name belongs to.
//!
//! ```text
//!  lmv_mds_md_v1 (0x0CD20CD0): 0 magic | 4 count | 8 master MDT | 12 hash | 16 version | 20 migration 20
//!                              40 pool 16 | 56 shards: FID 16 each
//!    while names move:         20 shards that names go to | 24 their hash before | the shards that
//!                              names leave come last
//!  lmv_user_md_v1 (0x0CD30CD0): 0 magic | 4 count i32 | 8 first MDT | 12 hash | 16 type
//!                              20 max_inherit u8 | 21 max_inherit_rr u8 | 22 zeros | 32 pool 16
//!  with a list (0x0CD40CD0):   the same, 48 MDTs, 24 each: FID 16 | 16 zero | 20 MDT
//! ```
//! Numbers are u32 where nothing else is said. The output is little-endian. A byte-swapped magic on
//! input means that every number is swapped. Lustre: `lustre_user.h`, `lustre_idl.h`.

mod crush;
mod fnv;
mod moving;
#[cfg(test)]
mod tests;

use types::{Errno, Fid, TARGET_INDEX_MAX};

use self::fnv::fnv_1a_64;
pub use self::moving::{Leaving, Standing};

/// Shards of one directory at most, which is also the number of MDTs at most.
pub const SHARDS_MAX: usize = 256;
/// Magic of a directory's striping.
pub const MAGIC_STRIPES: u32 = 0x0CD2_0CD0;
/// Magic of an asked striping.
pub const MAGIC_ASKED: u32 = 0x0CD3_0CD0;
/// Magic of an asked striping with a list of MDTs.
pub const MAGIC_LISTED: u32 = 0x0CD4_0CD0;

/// Sum of the bytes.
pub const HASH_ALL_CHAR: u32 = 1;
/// FNV-1a in 64 bits.
pub const HASH_FNV_1A_64: u32 = 2;
/// CRUSH: the names of temporary files lead to the shard of the final name.
pub const HASH_CRUSH: u32 = 3;
/// CRUSH with a stricter test for temporary names.
pub const HASH_CRUSH2: u32 = 4;
/// Bits of a hash number that name the rule. The others are flags.
pub const HASH_KIND: u32 = 0xffff;
/// Flag of a hash number: several shards may share an MDT.
pub const HASH_OVERSTRIPED: u32 = 0x0100_0000;
/// Flag of a hash number: the directory is not split by itself.
pub const HASH_FIXED: u32 = 0x0200_0000;
/// Flag of a hash number: the directory was split by itself, and may be merged by itself.
pub const HASH_SPLIT: u32 = 0x0800_0000;
/// Flag of a hash number: names move from other shards to these ([`Stripes::leaving`]).
pub const HASH_MOVING: u32 = 0x8000_0000;

/// As [`Asked::count`]: one shard on every MDT.
pub const COUNT_ALL: u32 = u32::MAX;
/// Shards that an MDT gets at most where a count says how many.
pub const SHARDS_PER_MDT: u32 = 5;
/// As [`Asked::index`]: the MDT is chosen by space.
pub const BY_SPACE: i32 = -1;
/// As [`Asked::max_inherit`] and [`Asked::max_inherit_rr`]: without a limit.
pub const UNLIMITED: u8 = 255;

const STRIPES_BYTES: usize = 56;
const SHARD_BYTES: usize = 16;
const ASKED_BYTES: usize = 48;
const LISTED_BYTES: usize = 24;

/// Why a directory's striping is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DirError {
    /// Cut short, or longer than it says.
    #[error("the striping has {have} bytes of {need}")]
    Length {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// Other bytes.
    #[error("{0:#x} begins no striping of a directory")]
    Magic(u32),
    /// Too many shards, or none.
    #[error("a directory has 1 to {SHARDS_MAX} shards (-1: one on every MDT), not {0}")]
    Count(i64),
    /// Not a hash of names, or a flag that only an MDT sets.
    #[error("hash {0:#x} is not known, or has a flag that only an MDT sets")]
    Hash(u32),
    /// Not the index of an MDT.
    #[error("{0} is not the index of an MDT")]
    Mdt(i64),
    /// A list that does not fit the count.
    #[error("stripe count {count} doesn't match the number of MDTs: {mdts}")]
    List {
        /// Shards asked for.
        count: u32,
        /// MDTs listed.
        mdts: usize,
    },
    /// Names leave a shard that they also go to.
    #[error("names move from a shard to itself")]
    Both,
    /// A list that names an MDT twice.
    #[error("MDT {0} is listed twice")]
    Twice(u32),
}

impl DirError {
    /// For the application that asked.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            DirError::Length { .. } => Errno::ERANGE,
            _ => Errno::EINVAL,
        }
    }
}

/// Name of a hash, as commands print it.
#[must_use]
pub fn hash_name(kind: u32) -> Option<&'static str> {
    match kind & HASH_KIND {
        HASH_ALL_CHAR => Some("all_char"),
        HASH_FNV_1A_64 => Some("fnv_1a_64"),
        HASH_CRUSH => Some("crush"),
        HASH_CRUSH2 => Some("crush2"),
        _ => None,
    }
}

/// The hash with this name.
#[must_use]
pub fn hash_kind(name: &str) -> Option<u32> {
    (HASH_ALL_CHAR..=HASH_CRUSH2).find(|kind| hash_name(*kind) == Some(name))
}

/// Shard of a name among `count`. An unknown hash counts as crush2; without shards it is zero.
#[must_use]
pub fn hash(name: &[u8], kind: u32, count: usize) -> usize {
    let count = count.clamp(1, SHARDS_MAX) as u64;
    let shard = match kind & HASH_KIND {
        HASH_ALL_CHAR => name.iter().map(|byte| u64::from(*byte)).sum::<u64>() % count,
        HASH_FNV_1A_64 => fnv_1a_64(name) % count,
        HASH_CRUSH => crush::shard(name, count, false),
        _ => crush::shard(name, count, true),
    };
    shard as usize
}

/// Asked for with `mkdir`, or a directory's default for new subdirectories.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asked {
    /// Shards; 0 and 1: a plain directory; [`COUNT_ALL`]: one on every MDT. With
    /// [`HASH_OVERSTRIPED`], -n as a signed number: n on every MDT, at most [`SHARDS_PER_MDT`].
    pub count: u32,
    /// MDT of the directory itself, [`BY_SPACE`]: any.
    pub index: i32,
    /// Hash of names, with flags.
    pub hash: u32,
    /// Levels of subdirectories that get a default from it: 0 none, [`UNLIMITED`] all.
    pub max_inherit: u8,
    /// Levels of subdirectories that are spread evenly: 0 none, [`UNLIMITED`] all.
    pub max_inherit_rr: u8,
    /// MDTs of the shards in order, empty: they are chosen.
    pub mdts: Vec<u32>,
}

impl Default for Asked {
    fn default() -> Asked {
        Asked {
            count: 1,
            index: BY_SPACE,
            hash: HASH_CRUSH2,
            max_inherit: UNLIMITED,
            max_inherit_rr: 0,
            mdts: Vec::new(),
        }
    }
}

impl Asked {
    /// Whether the directory is to have shards.
    #[must_use]
    pub fn is_striped(&self) -> bool {
        self.count > 1
    }

    /// Shards on every MDT, if several may share one and the count says so.
    #[must_use]
    pub fn on_each(&self) -> Option<u32> {
        let each = self.count.wrapping_neg();
        let is_said = (1..=SHARDS_PER_MDT).contains(&each) && self.hash & HASH_OVERSTRIPED != 0;
        is_said.then_some(each)
    }

    /// Whether every field is within its bounds.
    pub fn check(&self) -> Result<(), DirError> {
        let is_on_each = self.count == COUNT_ALL || self.on_each().is_some();
        if self.count as usize > SHARDS_MAX && !is_on_each {
            return Err(DirError::Count(i64::from(self.count as i32)));
        }
        // only an MDT knows whether names move, and whether it split the directory by itself
        let is_state = self.hash & (HASH_MOVING | HASH_SPLIT) != 0;
        if is_state || hash_name(self.hash).is_none() {
            return Err(DirError::Hash(self.hash));
        }
        if self.index != BY_SPACE {
            check_mdt(self.index as u32)?;
        }
        if self.mdts.is_empty() {
            return Ok(());
        }
        if self.mdts.len() != self.count as usize {
            return Err(DirError::List { count: self.count, mdts: self.mdts.len() });
        }
        self.mdts.iter().try_for_each(|mdt| check_mdt(*mdt))?;
        let mut sorted = self.mdts.clone();
        sorted.sort_unstable();
        let twice = sorted.windows(2).find(|pair| pair[0] == pair[1]);
        match twice.filter(|_| self.hash & HASH_OVERSTRIPED == 0) {
            Some(pair) => Err(DirError::Twice(pair[0])),
            None => Ok(()),
        }
    }

    /// The default that a new subdirectory gets from this one.
    #[must_use]
    pub fn handed_on(&self) -> Option<Asked> {
        let less = |levels: u8| if levels == UNLIMITED { levels } else { levels.saturating_sub(1) };
        let (max_inherit, max_inherit_rr) = (less(self.max_inherit), less(self.max_inherit_rr));
        let next = Asked { max_inherit, max_inherit_rr, ..self.clone() };
        (max_inherit > 0).then_some(next)
    }

    /// As Lustre's `lmv_user_md_v1`.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(ASKED_BYTES + LISTED_BYTES * self.mdts.len());
        let magic = if self.mdts.is_empty() { MAGIC_ASKED } else { MAGIC_LISTED };
        for number in [magic, self.count, self.index as u32, self.hash, 0] {
            out.extend(number.to_le_bytes());
        }
        out.extend([turned(self.max_inherit), self.max_inherit_rr]);
        out.resize(ASKED_BYTES, 0);
        for mdt in &self.mdts {
            out.extend([0; SHARD_BYTES + 4]);
            out.extend(mdt.to_le_bytes());
        }
        out
    }

    /// From Lustre's form. Its pool is ignored. Zero as the hash means the default one.
    pub fn decode(bytes: &[u8]) -> Result<Asked, DirError> {
        let input = Input::new(bytes, &[MAGIC_ASKED, MAGIC_LISTED], ASKED_BYTES)?;
        let (count, hash) = (input.number(4), input.number(12));
        let listed = if input.magic == MAGIC_LISTED { count as usize } else { 0 };
        if listed > SHARDS_MAX || (listed == 0 && input.magic == MAGIC_LISTED) {
            return Err(DirError::Count(i64::from(count as i32)));
        }
        input.ends_at(ASKED_BYTES + LISTED_BYTES * listed)?;
        let mdt = |at: usize| input.number(ASKED_BYTES + LISTED_BYTES * at + SHARD_BYTES + 4);
        let is_default = hash & HASH_KIND == 0;
        let asked = Asked {
            count,
            index: input.number(8) as i32,
            hash: if is_default { hash | HASH_CRUSH2 } else { hash },
            max_inherit: turned(input.bytes[20]),
            max_inherit_rr: input.bytes[21],
            mdts: (0..listed).map(mdt).collect(),
        };
        asked.check()?;
        Ok(asked)
    }
}

/// Levels of inheritance as Lustre's form has them, where 0 has no limit and 255 is none, and back.
fn turned(levels: u8) -> u8 {
    match levels {
        0 => 255,
        255 => 0,
        levels => levels,
    }
}

fn check_mdt(mdt: u32) -> Result<(), DirError> {
    if mdt <= TARGET_INDEX_MAX { Ok(()) } else { Err(DirError::Mdt(i64::from(mdt as i32))) }
}

/// A directory's shards, and the rule by which names are spread over them.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Stripes {
    /// Hash of names, with flags.
    pub hash: u32,
    /// Raised with every change of the shards.
    pub version: u32,
    /// MDT of the directory itself.
    pub master: u32,
    /// The shards in order. Of a directory that becomes plain, the directory itself.
    pub shards: Vec<Fid>,
    /// The shards that names leave, while they move.
    pub leaving: Option<Leaving>,
}

impl Stripes {
    /// Number of the shard that holds a name. An unknown hash counts as crush2.
    #[must_use]
    pub fn shard_of(&self, name: &[u8]) -> usize {
        hash(name, self.hash, self.shards.len())
    }

    /// Whether every field is within its bounds.
    pub fn check(&self) -> Result<(), DirError> {
        if self.shards.is_empty() || self.shards.len() > SHARDS_MAX {
            return Err(DirError::Count(self.shards.len() as i64));
        }
        if hash_name(self.hash).is_none() {
            return Err(DirError::Hash(self.hash));
        }
        check_mdt(self.master)?;
        self.check_leaving()?;
        self.places().try_for_each(|shard| check_mdt(shard.mdt_index()))
    }

    /// As Lustre's `lmv_mds_md_v1`, with the shards.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let leaving = self.leaving.as_ref();
        let old = leaving.map_or(&[][..], |leaving| &leaving.shards);
        let count = (self.shards.len() + old.len()) as u32;
        let mut out = Vec::with_capacity(STRIPES_BYTES + SHARD_BYTES * count as usize);
        let moving = if leaving.is_some() { HASH_MOVING } else { 0 };
        let hash = self.hash & !HASH_MOVING | moving;
        for number in [MAGIC_STRIPES, count, self.master, hash, self.version] {
            out.extend(number.to_le_bytes());
        }
        if let Some(leaving) = leaving {
            out.extend((self.shards.len() as u32).to_le_bytes());
            out.extend(leaving.hash.to_le_bytes());
        }
        out.resize(STRIPES_BYTES, 0);
        for shard in self.shards.iter().chain(old) {
            out.extend(shard.seq.to_le_bytes());
            out.extend(shard.oid.to_le_bytes());
            out.extend(shard.ver.to_le_bytes());
        }
        out
    }

    /// From Lustre's form. Its pool is ignored.
    pub fn decode(bytes: &[u8]) -> Result<Stripes, DirError> {
        let input = Input::new(bytes, &[MAGIC_STRIPES], STRIPES_BYTES)?;
        let (count, hash) = (input.number(4) as usize, input.number(12));
        let is_moving = hash & HASH_MOVING != 0;
        if count > if is_moving { 2 * SHARDS_MAX } else { SHARDS_MAX } {
            return Err(DirError::Count(count as i64));
        }
        input.ends_at(STRIPES_BYTES + SHARD_BYTES * count)?;
        let shard = |at: usize| input.fid(STRIPES_BYTES + SHARD_BYTES * at);
        let new = if is_moving { input.number(20) as usize } else { count };
        if new > count {
            return Err(DirError::Count(new as i64));
        }
        let old = || Leaving { hash: input.number(24), shards: (new..count).map(shard).collect() };
        let stripes = Stripes {
            hash: hash & !HASH_MOVING,
            version: input.number(16),
            master: input.number(8),
            shards: (0..new).map(shard).collect(),
            leaving: is_moving.then(old),
        };
        stripes.check()?;
        Ok(stripes)
    }
}

/// Bytes with numbers of either order.
struct Input<'a> {
    bytes: &'a [u8],
    is_swapped: bool,
    magic: u32,
}

impl<'a> Input<'a> {
    /// It begins with one of `magics` and has `least` bytes.
    fn new(bytes: &'a [u8], magics: &[u32], least: usize) -> Result<Input<'a>, DirError> {
        if bytes.len() < least {
            return Err(DirError::Length { have: bytes.len(), need: least });
        }
        let mut input = Input { bytes, is_swapped: false, magic: 0 };
        let first = input.number(0);
        input.is_swapped = magics.contains(&first.swap_bytes());
        input.magic = input.number(0);
        if magics.contains(&input.magic) { Ok(input) } else { Err(DirError::Magic(first)) }
    }

    fn ends_at(&self, need: usize) -> Result<(), DirError> {
        let have = self.bytes.len();
        if have == need { Ok(()) } else { Err(DirError::Length { have, need }) }
    }

    /// Behind the end there are zeros.
    fn number(&self, at: usize) -> u32 {
        let number = self.bytes.get(at..at + 4).map_or([0; 4], |four| {
            let mut number = [0; 4];
            number.copy_from_slice(four);
            number
        });
        let number = u32::from_le_bytes(number);
        if self.is_swapped { number.swap_bytes() } else { number }
    }

    fn fid(&self, at: usize) -> Fid {
        let [low, high] = [self.number(at), self.number(at + 4)].map(u64::from);
        let seq = if self.is_swapped { low << 32 | high } else { high << 32 | low };
        Fid { seq, oid: self.number(at + 8), ver: self.number(at + 12) }
    }
}
