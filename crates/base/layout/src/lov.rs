//! Lustre's binary layouts, as the `lustre.lov` attribute shows and accepts them (Lustre:
//! `lov_user_md` in `lustre_user.h`).
//!
//! ```text
//!  v1 (0x0BD10BD0): 0 magic u32 | 4 pattern u32 | 8 file oid u64 | 16 file seq u64 | 24 stripe size u32
//!                   28 stripe count u16 | 30 start (set) or generation (get) u16 | 32 stripes, 24 each
//!  v3 (0x0BD30BD0): the same, 32 pool 16 | 48 stripes        specific list (0x0BD50BD0): as v3
//!  stripe: 0 object FID 16 | 16 generation u32 | 20 OST index u32
//! ```
//! The pattern's bit 0x200 says that several objects may be on one OST. A count from 0xffe0 on is
//! then one of objects on every OST, as a negative number.
//!
//! The output is little-endian. A byte-swapped magic on input means that every number is swapped.

mod any;
pub(crate) mod bytes;
pub mod composite;

use types::{Errno, Fid};

use self::bytes::{STRIPE_BYTES, V1_BYTES, V3_BYTES};
use crate::composite::ComponentError;
use crate::template::pool_name;
use crate::{Layout, LayoutError, POOL_BYTES, STRIPE_COUNT_MAX, Template};

pub use any::{LovAny, decode_any, encode_any_dir, encode_any_file, inspect_any};

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
    /// A sort of layout that the field knows and that does not work here: mirrored, foreign. Or one
    /// that a plain record cannot be: composite, data on MDT. It is refused and never taken for
    /// another sort.
    #[error("{0} layouts are not supported")]
    Unsupported(&'static str),
    /// A pattern that does not exist.
    #[error("pattern {0:#x} is not known")]
    Pattern(u32),
    /// A field out of bounds.
    #[error(transparent)]
    Layout(#[from] LayoutError),
    /// Components that make no layout.
    #[error(transparent)]
    Component(#[from] ComponentError),
}

impl LovError {
    /// For the application that set the value.
    #[must_use]
    pub fn errno(&self) -> Errno {
        match self {
            LovError::Short { .. } => Errno::ERANGE,
            LovError::Unsupported(_) => Errno::EOPNOTSUPP,
            LovError::Magic(_) | LovError::Pattern(_) | LovError::Layout(_) => Errno::EINVAL,
            LovError::Component(error) => error.errno(),
        }
    }
}

/// A value field by field, as it is in an inode: its length is checked, its numbers are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lov {
    /// [`MAGIC_V1`], [`MAGIC_V3`] or [`MAGIC_SPECIFIC`]: which form the value has.
    pub magic: u32,
    /// How stripes follow one another; see [`Lov::pattern_name`].
    pub pattern: u32,
    /// Number of the file in its sequence.
    pub oid: u64,
    /// Sequence of the file.
    pub seq: u64,
    /// Bytes on an object before the next one's turn.
    pub stripe_size: u32,
    /// Stripes; 0xffff is one on every OST. See [`Lov::count`].
    pub stripe_count: u16,
    /// Generation of a file's layout; of a directory's default the first OST, 0xffff is any.
    pub generation: u16,
    /// Pool, padded with NULs; absent from [`MAGIC_V1`].
    pub pool: [u8; POOL_BYTES],
    /// Objects of a file; of a list of OSTs, their indexes.
    pub stripes: Vec<Stripe>,
}

/// One stripe of a [`Lov`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Stripe {
    /// The file that holds it on the OST; zero in a list of OSTs.
    pub object: Fid,
    /// Index of the OST.
    pub ost: u32,
}

impl Lov {
    /// The layout of file `file` with its objects: v1, or v3 if it has a pool.
    #[must_use]
    pub fn of_file(layout: &Layout, file: Fid) -> Lov {
        let stripes = layout.objects().map(|(_, object, ost)| Stripe { object, ost: ost.0 });
        Lov {
            magic: if layout.pool == [0; POOL_BYTES] { MAGIC_V1 } else { MAGIC_V3 },
            pattern: if layout.is_overstriped() { PATTERN_OVERSTRIPED } else { PATTERN_RAID0 },
            oid: u64::from(file.oid),
            seq: file.seq,
            stripe_size: layout.stripe_size,
            stripe_count: layout.stripe_count,
            generation: layout.generation,
            pool: layout.pool,
            stripes: stripes.collect(),
        }
    }

    /// A directory's default: v1, v3 if it has a pool, the specific form if it lists OSTs.
    #[must_use]
    pub fn of_dir(template: &Template) -> Lov {
        let listed = !template.osts.is_empty();
        let stripe_count = if listed { template.osts.len() as i32 } else { template.stripe_count };
        Lov {
            magic: match (listed, template.pool == [0; POOL_BYTES]) {
                (true, _) => MAGIC_SPECIFIC,
                (false, true) => MAGIC_V1,
                (false, false) => MAGIC_V3,
            },
            pattern: if template.overstriped || crate::is_repeating(&template.osts) {
                PATTERN_OVERSTRIPED
            } else {
                PATTERN_RAID0
            },
            oid: 0,
            seq: 0,
            stripe_size: template.stripe_size,
            stripe_count: lov_count(stripe_count),
            generation: u16::try_from(template.start).unwrap_or(ANY),
            pool: template.pool,
            stripes: template
                .osts
                .iter()
                .map(|ost| Stripe { object: Fid::ZERO, ost: *ost })
                .collect(),
        }
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut out = Vec::with_capacity(V3_BYTES + STRIPE_BYTES * self.stripes.len());
        out.extend(self.magic.to_le_bytes());
        out.extend(self.pattern.to_le_bytes());
        out.extend(self.oid.to_le_bytes());
        out.extend(self.seq.to_le_bytes());
        out.extend(self.stripe_size.to_le_bytes());
        out.extend(self.stripe_count.to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        if self.magic != MAGIC_V1 {
            out.extend(self.pool);
        }
        for stripe in &self.stripes {
            out.extend(stripe.object.seq.to_le_bytes());
            out.extend(stripe.object.oid.to_le_bytes());
            out.extend(stripe.object.ver.to_le_bytes());
            out.extend(0u32.to_le_bytes());
            out.extend(stripe.ost.to_le_bytes());
        }
        out
    }

    /// `raid0`, `mdt` and so on, as commands print it.
    #[must_use]
    pub fn pattern_name(&self) -> String {
        match self.pattern {
            0 | PATTERN_RAID0 => "raid0".into(),
            PATTERN_MDT => "mdt".into(),
            PATTERN_OVERSTRIPED => "raid0,overstriped".into(),
            other => format!("{other:#x}"),
        }
    }

    /// Whether it is striped over OSTs and does not ask for several objects on one OST.
    #[must_use]
    pub fn is_raid0(&self) -> bool {
        matches!(self.pattern, 0 | PATTERN_RAID0)
    }

    /// Whether several objects may be on one OST.
    #[must_use]
    pub fn is_overstriped(&self) -> bool {
        self.pattern == PATTERN_OVERSTRIPED
    }

    /// Stripe count as commands print it: -n is n on every OST.
    #[must_use]
    pub fn count(&self) -> i32 {
        let is_wide = self.pattern == PATTERN_OVERSTRIPED && self.stripe_count >= OVERSTRIPE_FIRST;
        if is_wide || self.stripe_count == ANY {
            i32::from(self.stripe_count.cast_signed())
        } else {
            i32::from(self.stripe_count)
        }
    }

    /// Pool's name as text, empty if none.
    #[must_use]
    pub fn pool_name(&self) -> String {
        pool_name(&self.pool)
    }
}

/// The bytes of [`Lov::of_file`].
#[must_use]
pub fn encode_file(layout: &Layout, file: Fid) -> Vec<u8> {
    Lov::of_file(layout, file).encode()
}

/// The bytes of [`Lov::of_dir`].
#[must_use]
pub fn encode_dir(template: &Template) -> Vec<u8> {
    Lov::of_dir(template).encode()
}

/// Reads a value that is to be shown. A stripe that is not whole ends the list of stripes.
pub fn inspect(value: &[u8]) -> Result<Lov, LovError> {
    let mut input = Input { bytes: value, at: 0, need: 4, swapped: false };
    let magic = input.u32()?;
    input.swapped = is_magic(magic.swap_bytes());
    let magic = if input.swapped { magic.swap_bytes() } else { magic };
    input.need = match magic {
        MAGIC_V1 => V1_BYTES,
        MAGIC_V3 | MAGIC_SPECIFIC => V3_BYTES,
        MAGIC_COMPOSITE => return Err(LovError::Unsupported("composite")),
        MAGIC_FOREIGN => return Err(LovError::Unsupported("foreign")),
        other => return Err(LovError::Magic(other)),
    };
    Ok(Lov {
        magic,
        pattern: input.u32()?,
        oid: input.u64()?,
        seq: input.u64()?,
        stripe_size: input.u32()?,
        stripe_count: input.u16()?,
        generation: input.u16()?,
        pool: if magic == MAGIC_V1 { [0; POOL_BYTES] } else { input.pool()? },
        stripes: std::iter::from_fn(|| input.stripe().ok()).collect(),
    })
}

/// Reads a value that a user sets. Objects of another file's layout are ignored, and so is the
/// number in the place of its start: read from a file, it is a generation.
pub fn decode(value: &[u8]) -> Result<Template, LovError> {
    template_of(inspect(value)?)
}

/// What a plain layout asks for.
fn template_of(lov: Lov) -> Result<Template, LovError> {
    match lov.pattern {
        0 | PATTERN_RAID0 | PATTERN_OVERSTRIPED => {}
        PATTERN_MDT => return Err(LovError::Unsupported("data-on-MDT")),
        other => return Err(LovError::Pattern(other)),
    }
    let overstriped = lov.pattern == PATTERN_OVERSTRIPED && lov.magic != MAGIC_SPECIFIC;
    let stripe_count = stripe_count(lov.stripe_count, overstriped)?;
    let Lov { magic, stripe_size, generation: start, pool, stripes, .. } = lov;
    let mut template =
        Template { stripe_size, stripe_count, overstriped, pool, ..Template::default() };
    if magic == MAGIC_SPECIFIC {
        let count = usize::try_from(stripe_count).unwrap_or(0);
        if stripes.len() < count.max(1) {
            let bytes = |stripes: usize| V3_BYTES + STRIPE_BYTES * stripes;
            let (have, need) = (bytes(stripes.len()), bytes(count.max(1)));
            return Err(LovError::Short { have, need });
        }
        template.osts = stripes[..count].iter().map(|stripe| stripe.ost).collect();
    } else if start != ANY && stripes.is_empty() {
        template.start = i32::from(start);
    }
    template.check()?;
    Ok(template)
}

fn is_magic(word: u32) -> bool {
    [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC, MAGIC_COMPOSITE, MAGIC_FOREIGN].contains(&word)
}

/// The number in a value's field of stripes.
fn lov_count(count: i32) -> u16 {
    match i16::try_from(count) {
        Ok(count) => count.cast_unsigned(), // -1 is ANY
        Err(_) => ANY,
    }
}

fn stripe_count(count: u16, overstriped: bool) -> Result<i32, LovError> {
    match count {
        ANY => Ok(-1),
        OVERSTRIPE_FIRST.. if overstriped => Ok(i32::from(count.cast_signed())),
        count if count > STRIPE_COUNT_MAX => Err(LayoutError::StripeCount(i64::from(count)).into()),
        count => Ok(i32::from(count)),
    }
}

/// Reads numbers in the value's own byte order.
struct Input<'a> {
    bytes: &'a [u8],
    at: usize,
    /// Bytes that the value should have, for the error.
    need: usize,
    swapped: bool,
}

impl Input<'_> {
    fn take<const N: usize>(&mut self) -> Result<[u8; N], LovError> {
        let bytes = self.bytes.get(self.at..).and_then(|rest| rest.first_chunk());
        self.at += N;
        bytes.copied().ok_or(LovError::Short { have: self.bytes.len(), need: self.need })
    }

    fn u16(&mut self) -> Result<u16, LovError> {
        let word = u16::from_le_bytes(self.take()?);
        Ok(if self.swapped { word.swap_bytes() } else { word })
    }

    fn u32(&mut self) -> Result<u32, LovError> {
        let word = u32::from_le_bytes(self.take()?);
        Ok(if self.swapped { word.swap_bytes() } else { word })
    }

    fn u64(&mut self) -> Result<u64, LovError> {
        let word = u64::from_le_bytes(self.take()?);
        Ok(if self.swapped { word.swap_bytes() } else { word })
    }

    /// The name up to its NUL: the bytes after it are left-over memory of the writer.
    fn pool(&mut self) -> Result<[u8; POOL_BYTES], LovError> {
        let mut pool: [u8; POOL_BYTES] = self.take()?;
        let end = pool.iter().position(|byte| *byte == 0).unwrap_or(POOL_BYTES);
        pool[end..].fill(0);
        Ok(pool)
    }

    fn stripe(&mut self) -> Result<Stripe, LovError> {
        let object = Fid { seq: self.u64()?, oid: self.u32()?, ver: self.u32()? };
        let _generation = self.u32()?;
        Ok(Stripe { object, ost: self.u32()? })
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
            origin: crate::Origin::default(),
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
            Template { stripe_count: 7, overstriped: true, ..Template::default() },
            Template { stripe_count: -1, overstriped: true, ..Template::default() },
            Template { stripe_count: -32, overstriped: true, pool, ..Template::default() },
        ] {
            assert_eq!(decode(&encode_dir(&template)), Ok(template));
        }
    }

    #[test]
    fn overstriping_is_a_bit_and_a_negative_count_as_lustres() {
        let overstriped = true;
        let two = Template { stripe_count: -2, overstriped, ..Template::default() };
        let lov = Lov::of_dir(&two);
        assert_eq!((lov.pattern, lov.stripe_count, lov.count()), (0x201, 0xfffe, -2));
        let mut bytes = lov.encode();
        assert_eq!((&bytes[4..8], &bytes[28..30]), (&[1, 2, 0, 0][..], &[0xfe, 0xff][..]));
        bytes[5] = 0;
        let count = LayoutError::StripeCount(0xfffe);
        assert_eq!(decode(&bytes), Err(count.into()), "without the bit");
        let listed = Template { osts: vec![1, 1], ..Template::default() };
        assert_eq!(Lov::of_dir(&listed).pattern, 0x201);
        let file = Layout { osts: vec![1, 1], ..layout() };
        let asked = Template { stripe_count: 2, overstriped, ..Template::default() };
        let again = Template { stripe_size: 1 << 20, ..asked };
        assert_eq!(decode(&encode_file(&file, FILE)), Ok(again.clone()));
        assert_eq!(file.template(), again);
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
        fn every_field_of_a_layout_is_seen(
            (magic, pattern, size) in (0usize..3, any::<u32>(), any::<u32>()),
            (oid, seq, count, generation) in any::<(u64, u64, u16, u16)>(),
            stripes in proptest::collection::vec(any::<(u64, u32, u32, u32)>(), 0..5),
            cut in 0usize..STRIPE_BYTES,
        ) {
            let stripe = |(seq, oid, ver, ost)| Stripe { object: Fid { seq, oid, ver }, ost };
            let magic = [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC][magic];
            let pool = if magic == MAGIC_V1 { [0; 16] } else { *b"flash\0\0\0\0\0\0\0\0\0\0\0" };
            let mut lov = Lov {
                magic, pattern, oid, seq, stripe_size: size, stripe_count: count, generation, pool,
                stripes: stripes.into_iter().map(stripe).collect(),
            };
            let mut bytes = lov.encode();
            prop_assert_eq!(inspect(&bytes), Ok(lov.clone()));
            if lov.stripes.pop().is_some() {
                bytes.truncate(bytes.len() - 1 - cut);
                prop_assert_eq!(inspect(&bytes), Ok(lov));
            } else {
                bytes.pop();
                let short = matches!(inspect(&bytes), Err(LovError::Short { .. }));
                prop_assert!(short, "a header without its last byte");
            }
        }

        #[test]
        fn no_value_makes_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..200), magic in 0usize..6, swap: bool) {
            let magics = [MAGIC_V1, MAGIC_V3, MAGIC_SPECIFIC, MAGIC_COMPOSITE, MAGIC_FOREIGN];
            if let (Some(head), Some(magic)) = (bytes.first_chunk_mut::<4>(), magics.get(magic)) {
                *head = if swap { magic.to_be_bytes() } else { magic.to_le_bytes() };
            }
            if bytes.len() > 32 && swap {
                bytes[4..32].fill(0);
            }
            let seen = inspect(&bytes);
            if let Ok(lov) = &seen {
                prop_assert!(lov.stripes.len() * STRIPE_BYTES <= bytes.len());
            }
            if let Ok(template) = decode(&bytes) {
                prop_assert_eq!(template.check(), Ok(()));
                prop_assert!(seen.is_ok(), "a value that is taken can be shown");
            }
        }
    }
}
