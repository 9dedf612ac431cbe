//! Lustre's binary layouts, as the `lustre.lov` attribute shows and takes them (Lustre:
//! `lov_user_md` in `lustre_user.h`).
//!
//! ```text
//!  v1 (0x0BD10BD0): 0 magic u32 | 4 pattern u32 | 8 file oid u64 | 16 file seq u64 | 24 stripe size u32
//!                   28 stripe count u16 | 30 start (set) or generation (get) u16 | 32 stripes, 24 each
//!  v3 (0x0BD30BD0): the same, 32 pool 16 | 48 stripes        specific list (0x0BD50BD0): as v3
//!  stripe: 0 object FID 16 | 16 generation u32 | 20 OST index u32
//! ```
//! Written little-endian; a byte-swapped magic on input means that every number is swapped.

use types::{Errno, Fid};

use crate::{Layout, LayoutError, POOL_BYTES, STRIPE_COUNT_MAX, Template};

/// Plain layout.
pub const MAGIC_V1: u32 = 0x0BD1_0BD0;
/// Plain layout with a pool.
pub const MAGIC_V3: u32 = 0x0BD3_0BD0;
/// Plain layout on a list of OSTs.
pub const MAGIC_SPECIFIC: u32 = 0x0BD5_0BD0;
/// Composite layout.
pub const MAGIC_COMPOSITE: u32 = 0x0BD6_0BD0;
/// A string instead of objects.
pub const MAGIC_FOREIGN: u32 = 0x0BD7_0BD0;

const PATTERN_RAID0: u32 = 0x001;
const PATTERN_MDT: u32 = 0x100;
const PATTERN_OVERSTRIPED: u32 = 0x201;
const V1_BYTES: usize = 32;
const V3_BYTES: usize = V1_BYTES + POOL_BYTES;
const STRIPE_BYTES: usize = 24;
const ANY: u16 = 0xffff;
const OVERSTRIPE_FIRST: u16 = 0xffe0;

/// Why a value is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum LovError {
    /// Shorter than its header or its list of OSTs.
    #[error("the layout has {have} bytes of {need}")]
    Short {
        /// Bytes there.
        have: usize,
        /// Bytes needed.
        need: usize,
    },
    /// No layout at all.
    #[error("{0:#x} begins no layout")]
    Magic(u32),
    /// A sort of layout that the field knows and whose mechanism is not there yet: progressive,
    /// data on MDT, foreign, and more objects on an OST than one. Refused, never taken for another
    /// sort: README, "What works".
    #[error("{0} layouts are not supported")]
    Unsupported(&'static str),
    /// A pattern that does not exist.
    #[error("pattern {0:#x} is not known")]
    Pattern(u32),
    /// A field out of bounds.
    #[error(transparent)]
    Layout(#[from] LayoutError),
}

impl LovError {
    /// For the application that set the value.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            LovError::Short { .. } => Errno::ERANGE,
            LovError::Unsupported(_) => Errno::EOPNOTSUPP,
            LovError::Magic(_) | LovError::Pattern(_) | LovError::Layout(_) => Errno::EINVAL,
        }
    }
}

/// The layout of file `file` with its objects: v1, or v3 if it has a pool.
#[must_use]
pub fn encode_file(layout: &Layout, file: Fid) -> Vec<u8> {
    let pattern = if layout.is_overstriped() { PATTERN_OVERSTRIPED } else { PATTERN_RAID0 };
    let pooled = layout.pool != [0; POOL_BYTES];
    let mut out = Vec::with_capacity(V3_BYTES + STRIPE_BYTES * layout.osts.len());
    let head = Head {
        magic: if pooled { MAGIC_V3 } else { MAGIC_V1 },
        pattern,
        file,
        stripe_size: layout.stripe_size,
        stripe_count: layout.stripe_count,
        start_or_generation: layout.generation,
    };
    head.put(&mut out);
    if pooled {
        out.extend(layout.pool);
    }
    for (_, object, ost) in layout.objects() {
        put_stripe(&mut out, object, ost.0);
    }
    out
}

/// A directory's default: v1, v3 if it has a pool, the specific form if it lists OSTs.
#[must_use]
pub fn encode_dir(template: &Template) -> Vec<u8> {
    let pooled = template.pool != [0; POOL_BYTES];
    let listed = !template.osts.is_empty();
    let mut out = Vec::with_capacity(V3_BYTES + STRIPE_BYTES * template.osts.len());
    let magic = match (listed, pooled) {
        (true, _) => MAGIC_SPECIFIC,
        (false, true) => MAGIC_V3,
        (false, false) => MAGIC_V1,
    };
    let stripe_count = if listed { template.osts.len() as i32 } else { template.stripe_count };
    let head = Head {
        magic,
        pattern: PATTERN_RAID0,
        file: Fid::ZERO,
        stripe_size: template.stripe_size,
        stripe_count: u16::try_from(stripe_count).unwrap_or(ANY),
        start_or_generation: u16::try_from(template.start).unwrap_or(ANY),
    };
    head.put(&mut out);
    if listed || pooled {
        out.extend(template.pool);
    }
    for ost in &template.osts {
        put_stripe(&mut out, Fid::ZERO, *ost);
    }
    out
}

/// What a user asks for. Objects of another file's layout are ignored, and so is the number in the
/// place of its start: read from a file, it is a generation.
pub fn decode(value: &[u8]) -> Result<Template, LovError> {
    let mut input = Input { bytes: value, at: 0, swapped: false };
    let magic = input.u32(4)?;
    input.swapped = is_magic(magic.swap_bytes());
    let magic = if input.swapped { magic.swap_bytes() } else { magic };
    let head_bytes = match magic {
        MAGIC_V1 => V1_BYTES,
        MAGIC_V3 | MAGIC_SPECIFIC => V3_BYTES,
        MAGIC_COMPOSITE => return Err(LovError::Unsupported("composite")),
        MAGIC_FOREIGN => return Err(LovError::Unsupported("foreign")),
        other => return Err(LovError::Magic(other)),
    };
    match input.u32(head_bytes)? {
        0 | PATTERN_RAID0 | PATTERN_OVERSTRIPED => {}
        PATTERN_MDT => return Err(LovError::Unsupported("data-on-MDT")),
        other => return Err(LovError::Pattern(other)),
    }
    input.at = 24;
    let stripe_size = input.u32(head_bytes)?;
    let stripe_count = stripe_count(input.u16(head_bytes)?)?;
    let start = input.u16(head_bytes)?;
    let mut template = Template { stripe_size, stripe_count, start: -1, ..Template::default() };
    if magic != MAGIC_V1 {
        template.pool = input.pool(head_bytes)?;
    }
    if magic == MAGIC_SPECIFIC {
        template.osts = input.osts(usize::try_from(stripe_count).unwrap_or(0))?;
    } else if start != ANY && value.len() < head_bytes + STRIPE_BYTES {
        template.start = i32::from(start);
    }
    template.check()?;
    Ok(template)
}

fn is_magic(word: u32) -> bool {
    [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC, MAGIC_COMPOSITE, MAGIC_FOREIGN].contains(&word)
}

fn stripe_count(count: u16) -> Result<i32, LovError> {
    match count {
        ANY => Ok(-1),
        OVERSTRIPE_FIRST.. => Err(LovError::Unsupported("multiply overstriped")),
        count if count > STRIPE_COUNT_MAX => Err(LayoutError::StripeCount(i64::from(count)).into()),
        count => Ok(i32::from(count)),
    }
}

struct Head {
    magic: u32,
    pattern: u32,
    file: Fid,
    stripe_size: u32,
    stripe_count: u16,
    start_or_generation: u16,
}

impl Head {
    fn put(&self, out: &mut Vec<u8>) {
        out.extend(self.magic.to_le_bytes());
        out.extend(self.pattern.to_le_bytes());
        out.extend(u64::from(self.file.oid).to_le_bytes());
        out.extend(self.file.seq.to_le_bytes());
        out.extend(self.stripe_size.to_le_bytes());
        out.extend(self.stripe_count.to_le_bytes());
        out.extend(self.start_or_generation.to_le_bytes());
    }
}

fn put_stripe(out: &mut Vec<u8>, object: Fid, ost: u32) {
    out.extend(object.seq.to_le_bytes());
    out.extend(object.oid.to_le_bytes());
    out.extend(object.ver.to_le_bytes());
    out.extend(0u32.to_le_bytes());
    out.extend(ost.to_le_bytes());
}

/// Reads numbers in the value's own byte order; `need` names how long the value should have been.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    swapped: bool,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self, need: usize) -> Result<[u8; N], LovError> {
        let bytes = self.bytes.get(self.at..self.at + N).and_then(|bytes| bytes.try_into().ok());
        self.at += N;
        bytes.ok_or(LovError::Short { have: self.bytes.len(), need })
    }

    fn u32(&mut self, need: usize) -> Result<u32, LovError> {
        let word = u32::from_le_bytes(self.take(need)?);
        Ok(if self.swapped { word.swap_bytes() } else { word })
    }

    fn u16(&mut self, need: usize) -> Result<u16, LovError> {
        let word = u16::from_le_bytes(self.take(need)?);
        Ok(if self.swapped { word.swap_bytes() } else { word })
    }

    /// The name up to its NUL: what stands behind it is left-over memory of the writer.
    fn pool(&mut self, need: usize) -> Result<[u8; POOL_BYTES], LovError> {
        let mut pool: [u8; POOL_BYTES] = self.take(need)?;
        let end = pool.iter().position(|byte| *byte == 0).unwrap_or(POOL_BYTES);
        pool[end..].fill(0);
        Ok(pool)
    }

    fn osts(&mut self, count: usize) -> Result<Vec<u32>, LovError> {
        let need = V3_BYTES + STRIPE_BYTES * count;
        if count == 0 || self.bytes.len() < need {
            return Err(LovError::Short {
                have: self.bytes.len(),
                need: need.max(V3_BYTES + STRIPE_BYTES),
            });
        }
        (0..count)
            .map(|stripe| {
                self.at = V3_BYTES + STRIPE_BYTES * stripe + 20;
                self.u32(need)
            })
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Raid0;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout {
            stripe_size: 1 << 20,
            stripe_count: 2,
            pattern: Raid0,
            generation: 1,
            base: Fid::new(0x2_4000_0400, 0x1f),
            osts: vec![3, 0],
            pool: [0; 16],
        }
    }

    const FILE: Fid = Fid { seq: 0x2_0000_0402, oid: 7, ver: 0 };

    #[test]
    fn the_bytes_of_a_plain_layout_are_lustres() {
        #[rustfmt::skip]
        let golden = [
            0xd0, 0x0b, 0xd1, 0x0b, 1, 0, 0, 0,  7, 0, 0, 0, 0, 0, 0, 0,  0x02, 4, 0, 0, 2, 0, 0, 0,
            0, 0, 0x10, 0, 2, 0, 1, 0,
            0, 4, 0, 0x40, 2, 0, 0, 0,  0x1f, 0, 0, 0, 0, 0, 0, 0,  0, 0, 0, 0, 3, 0, 0, 0,
            0, 4, 0, 0x40, 2, 0, 0, 0,  0x1f, 0, 0, 0, 1, 0, 0, 0,  0, 0, 0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(encode_file(&layout(), FILE), golden);
    }

    #[test]
    fn a_pool_makes_version_three() {
        let bytes =
            encode_file(&Layout { pool: *b"flash\0\0\0\0\0\0\0\0\0\0\0", ..layout() }, FILE);
        assert_eq!(
            (&bytes[..4], &bytes[32..38], bytes.len()),
            (&[0xd0, 0x0b, 0xd3, 0x0b][..], &b"flash\0"[..], 96)
        );
        assert_eq!(decode(&bytes).map(|template| template.pool_name()), Ok("flash".to_owned()));
    }

    #[test]
    fn a_layout_copied_from_a_file_asks_for_its_shape_anywhere() {
        assert_eq!(
            decode(&encode_file(&layout(), FILE)),
            Ok(Template { stripe_size: 1 << 20, stripe_count: 2, ..Template::default() })
        );
    }

    #[test]
    fn repeated_osts_are_marked_overstriped() {
        let bytes = encode_file(&Layout { osts: vec![1, 1], ..layout() }, FILE);
        assert_eq!(bytes[4..8], [1, 2, 0, 0]);
    }

    #[test]
    fn templates_go_there_and_back() {
        let pool = *b"a\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0";
        for template in [
            Template::default(),
            Template { stripe_count: -1, start: 0, ..Template::default() },
            Template { stripe_size: 1 << 16, stripe_count: 2_000, pool, ..Template::default() },
            Template { stripe_count: 3, osts: vec![5, 0, 5], pool, ..Template::default() },
        ] {
            assert_eq!(decode(&encode_dir(&template)), Ok(template));
        }
    }

    #[test]
    fn a_swapped_value_means_the_same() {
        let mut bytes = encode_dir(&Template {
            stripe_size: 1 << 20,
            stripe_count: 4,
            start: 2,
            ..Template::default()
        });
        for (at, len) in [(0, 4), (4, 4), (8, 8), (16, 8), (24, 4), (28, 2), (30, 2)] {
            bytes[at..at + len].reverse();
        }
        assert_eq!(
            decode(&bytes).map(|t| (t.stripe_size, t.stripe_count, t.start)),
            Ok((1 << 20, 4, 2))
        );
    }

    #[test]
    fn what_is_wrong_gets_the_errno_of_lustre() {
        let errno = |bytes: &[u8]| decode(bytes).err().map(|error| error.errno());
        let good = encode_dir(&Template::default());
        assert_eq!((errno(&[]), errno(&good[..31])), (Some(Errno::ERANGE), Some(Errno::ERANGE)));
        assert_eq!(errno(&[0; 64]), Some(Errno::EINVAL));
        let with = |at: usize, value: &[u8]| {
            let mut bytes = good.clone();
            bytes[at..at + value.len()].copy_from_slice(value);
            errno(&bytes)
        };
        assert_eq!(with(0, &MAGIC_COMPOSITE.to_le_bytes()), Some(Errno::EOPNOTSUPP));
        assert_eq!(with(4, &[9]), Some(Errno::EINVAL));
        assert_eq!(with(4, &PATTERN_MDT.to_le_bytes()), Some(Errno::EOPNOTSUPP));
        assert_eq!(with(24, &[1]), Some(Errno::EINVAL));
        assert_eq!(with(28, &[0xd1, 0x07]), Some(Errno::EINVAL));
        let list = encode_dir(&Template { osts: vec![1, 2], ..Template::default() });
        assert_eq!(errno(&list[..list.len() - 1]), Some(Errno::ERANGE));
    }

    proptest! {
        #[test]
        fn no_value_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in 0usize..6, swap: bool) {
            let magics = [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC, MAGIC_COMPOSITE, MAGIC_FOREIGN];
            if let (Some(head), Some(magic)) = (bytes.first_chunk_mut::<4>(), magics.get(magic)) {
                *head = if swap { magic.to_be_bytes() } else { magic.to_le_bytes() };
            }
            if bytes.len() > 32 && swap {
                bytes[4..32].fill(0);
            }
            if let Ok(template) = decode(&bytes) {
                prop_assert_eq!(template.check(), Ok(()));
            }
        }
    }
}
