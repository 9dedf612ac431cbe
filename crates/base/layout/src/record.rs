//! Records of layouts and templates: buffer 1 of attributes on the wire, and the table of layouts
//! on disk.
//!
//! ```text
//! 0 type u8 | 1 version u8 | 2 length u16, of the whole record
//! layout   (type 1): 4 stripe size u32 | 8 stripe count u16 | 10 generation u16 | 12 pattern u32 (1)
//!                    16 object base, FID 16 | 32 pool 16 | 48 OST index u32 each
//!                    and behind them, if it is known: origin u8, three zeros
//! template (type 2): 4 stripe size u32 | 8 stripe count i32 | 12 start i32 | 16 OSTs u32
//!                    20 overstriping u32: 0 no, 1 yes, n that many on each OST (the count is -1 then)
//!                    24 pool 16 | 40 OST index u32 each
//! ```
//! Numbers are little-endian. The tail of a longer record is ignored; a shorter record is refused.
//!
//! In an answer about a file, the second part of a [`StripeSet`] may follow its layout record
//! ([`with_stripes`]). It is behind the record's length, so that older readers ignore it.

use types::Fid;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

use crate::composite::Composite;
use crate::{
    Asked, ComponentError, FileLayout, Layout, LayoutError, Origin, POOL_BYTES, Raid0,
    STRIPE_COUNT_MAX, StripeSet, Template,
};

#[cfg(target_endian = "big")]
compile_error!(
    "records are little-endian structs used in place: a big-endian host needs conversions first"
);

const KIND_LAYOUT: u8 = 1;
const KIND_TEMPLATE: u8 = 2;
const VERSION: u8 = 1;
const PATTERN_RAID0: u32 = 1;

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct LayoutHead {
    kind: u8,
    version: u8,
    length: u16,
    stripe_size: u32,
    stripe_count: u16,
    generation: u16,
    pattern: u32,
    base_seq: u64,
    base_oid: u32,
    base_ver: u32,
    pool: [u8; POOL_BYTES],
}

#[derive(Clone, Copy, FromBytes, IntoBytes, Immutable, KnownLayout)]
#[repr(C)]
struct TemplateHead {
    kind: u8,
    version: u8,
    length: u16,
    stripe_size: u32,
    stripe_count: i32,
    start: i32,
    ost_count: u32,
    overstriping: u32,
    pool: [u8; POOL_BYTES],
}

const LAYOUT_BYTES: usize = size_of::<LayoutHead>();
const TEMPLATE_BYTES: usize = size_of::<TemplateHead>();
const _: () = assert!(LAYOUT_BYTES == 48 && TEMPLATE_BYTES == 40);
const _: () = assert!(
    LAYOUT_BYTES + 4 * (STRIPE_COUNT_MAX as usize) + Origin::TAIL_BYTES <= u16::MAX as usize
);

/// What a record says of striping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Striping {
    /// An empty record: nothing said.
    None,
    /// What a file has.
    Layout(FileLayout),
    /// A directory's default, or what is asked for.
    Template(Asked),
}

impl Striping {
    /// From any of the records, or from no bytes; of `file`, where it is a file's.
    pub fn decode(file: Fid, record: &[u8]) -> Result<Striping, ComponentError> {
        match record.first() {
            None => Ok(Striping::None),
            Some(&(KIND_TEMPLATE | crate::composite::KIND_TEMPLATE)) => {
                Asked::decode(record).map(Striping::Template)
            }
            Some(&crate::composite::KIND) => {
                let composite = Composite::decode(record)?;
                Ok(Striping::Layout(FileLayout::composite(file, composite)))
            }
            Some(_) => Ok(Striping::Layout(Layout::decode(record)?.into())),
        }
    }
}

/// A layout record as an answer carries it: with the stripes from 64 on that must have an object
/// behind it. An empty record stays empty.
#[must_use]
pub fn with_stripes(mut record: Vec<u8>, stripes: &StripeSet) -> Vec<u8> {
    if let Some(length) = length_of(&record) {
        record.truncate(length);
        record.extend(stripes.second_part());
    }
    record
}

/// The second part of the set of stripes that an answer carries behind a layout record; empty
/// where there is none.
#[must_use]
pub fn stripes_behind(record: &[u8]) -> &[u8] {
    length_of(record).and_then(|length| record.get(length..)).unwrap_or_default()
}

/// The length that a record says of itself.
fn length_of(record: &[u8]) -> Option<usize> {
    let length: [u8; 2] = record.get(2..4)?.try_into().expect("these are two bytes");
    Some(usize::from(u16::from_le_bytes(length)))
}

impl Layout {
    /// As a record. The layout has passed [`Layout::check`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.check(), Ok(()), "a layout is checked where it is made");
        let tail = self.origin.tail();
        let head = LayoutHead {
            kind: KIND_LAYOUT,
            version: VERSION,
            length: (LAYOUT_BYTES + 4 * self.osts.len() + tail.len()) as u16,
            stripe_size: self.stripe_size,
            stripe_count: self.stripe_count,
            generation: self.generation,
            pattern: PATTERN_RAID0,
            base_seq: self.base.seq,
            base_oid: self.base.oid,
            base_ver: self.base.ver,
            pool: self.pool,
        };
        [head.as_bytes(), self.osts.as_bytes(), &tail[..]].concat()
    }

    /// From the bytes of a record, whose type, version and bounds are checked.
    pub fn decode(record: &[u8]) -> Result<Layout, LayoutError> {
        check_head(record, KIND_LAYOUT)?;
        let (head, rest) =
            LayoutHead::read_from_prefix(record).map_err(|_| short(record, LAYOUT_BYTES))?;
        if head.pattern != PATTERN_RAID0 {
            return Err(LayoutError::Unknown { kind: head.kind, version: head.version });
        }
        if head.stripe_count > STRIPE_COUNT_MAX {
            return Err(LayoutError::StripeCount(i64::from(head.stripe_count)));
        }
        let behind = LAYOUT_BYTES + 4 * usize::from(head.stripe_count);
        let tail = record.get(behind..usize::from(head.length)).unwrap_or_default();
        let layout = Layout {
            stripe_size: head.stripe_size,
            stripe_count: head.stripe_count,
            pattern: Raid0,
            generation: head.generation,
            base: Fid { seq: head.base_seq, oid: head.base_oid, ver: head.base_ver },
            osts: read_osts(record, rest, LAYOUT_BYTES, usize::from(head.stripe_count))?,
            pool: head.pool,
            origin: Origin::from_tail(tail),
        };
        layout.check().map(|()| layout)
    }

    /// Pool's name as text, empty if none.
    #[must_use]
    pub fn pool_name(&self) -> String {
        crate::template::pool_name(&self.pool)
    }
}

impl Template {
    /// As a record. The template has passed [`Template::check`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.check(), Ok(()), "a template is checked where it is made");
        let on_each = if self.stripe_count < -1 { self.stripe_count.unsigned_abs() } else { 1 };
        let head = TemplateHead {
            kind: KIND_TEMPLATE,
            version: VERSION,
            length: (TEMPLATE_BYTES + 4 * self.osts.len()) as u16,
            stripe_size: self.stripe_size,
            stripe_count: self.stripe_count.max(-1),
            start: self.start,
            ost_count: self.osts.len() as u32,
            overstriping: if self.overstriped { on_each } else { 0 },
            pool: self.pool,
        };
        [head.as_bytes(), self.osts.as_bytes()].concat()
    }

    /// From the bytes of a record, whose type, version and bounds are checked.
    pub fn decode(record: &[u8]) -> Result<Template, LayoutError> {
        check_head(record, KIND_TEMPLATE)?;
        let (head, rest) =
            TemplateHead::read_from_prefix(record).map_err(|_| short(record, TEMPLATE_BYTES))?;
        if head.ost_count > u32::from(STRIPE_COUNT_MAX) {
            return Err(LayoutError::StripeCount(i64::from(head.ost_count)));
        }
        let template = Template {
            stripe_size: head.stripe_size,
            stripe_count: count_of(&head)?,
            overstriped: head.overstriping != 0,
            start: head.start,
            pool: head.pool,
            osts: read_osts(record, rest, TEMPLATE_BYTES, head.ost_count as usize)?,
        };
        template.check().map(|()| template)
    }
}

/// Objects that a template asks for.
fn count_of(head: &TemplateHead) -> Result<i32, LayoutError> {
    let (count, on_each) = (head.stripe_count, head.overstriping);
    match i32::try_from(on_each) {
        Ok(0 | 1) => Ok(count),
        Ok(on_each) if count == -1 => Ok(-on_each),
        _ => Err(LayoutError::StripeCount(-i64::from(on_each))),
    }
}

/// Type, version and length agree with what follows.
fn check_head(record: &[u8], kind: u8) -> Result<(), LayoutError> {
    let &[found, version, low, high, ..] = record else { return Err(short(record, 4)) };
    if found != kind || version != VERSION {
        return Err(LayoutError::Unknown { kind: found, version });
    }
    let length = usize::from(u16::from_le_bytes([low, high]));
    if record.len() < length { Err(short(record, length)) } else { Ok(()) }
}

fn read_osts(
    record: &[u8],
    rest: &[u8],
    head: usize,
    count: usize,
) -> Result<Vec<u32>, LayoutError> {
    let bytes = rest.get(..4 * count).ok_or_else(|| short(record, head + 4 * count))?;
    let length = usize::from(u16::from_le_bytes([record[2], record[3]]));
    if length < head + 4 * count {
        return Err(LayoutError::Short { have: length, need: head + 4 * count });
    }
    Ok(bytes
        .chunks_exact(4)
        .map(|word| u32::from_le_bytes([word[0], word[1], word[2], word[3]]))
        .collect())
}

fn short(record: &[u8], need: usize) -> LayoutError {
    LayoutError::Short { have: record.len(), need }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn layout() -> Layout {
        Layout {
            stripe_size: 1 << 20,
            stripe_count: 2,
            pattern: Raid0,
            generation: 3,
            base: Fid::new(0x2_0000_0401, 9),
            osts: vec![1, 0],
            pool: *b"flash\0\0\0\0\0\0\0\0\0\0\0",
            origin: Origin::default(),
        }
    }

    #[test]
    fn the_bytes_of_a_layout_are_frozen() {
        let golden = [
            1, 1, 56, 0, 0, 0, 16, 0, 2, 0, 3, 0, 1, 0, 0, 0, 0x01, 0x04, 0, 0, 2, 0, 0, 0, 9, 0,
            0, 0, 0, 0, 0, 0, b'f', b'l', b'a', b's', b'h', 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1, 0,
            0, 0, 0, 0, 0, 0,
        ];
        assert_eq!(layout().encode(), golden);
        assert_eq!(Layout::decode(&golden), Ok(layout()));
    }

    #[test]
    fn the_bytes_of_a_template_are_frozen() {
        let template = Template { stripe_count: -1, start: 2, ..Template::default() };
        let mut golden = vec![2, 1, 40, 0, 0, 0, 0, 0, 255, 255, 255, 255, 2, 0, 0, 0];
        golden.resize(40, 0);
        assert_eq!(template.encode(), golden);
        assert_eq!(Striping::decode(Fid::ZERO, &golden), Ok(Striping::Template(template.into())));
        assert_eq!(Striping::decode(Fid::ZERO, &[]), Ok(Striping::None));
    }

    #[test]
    fn overstriping_takes_a_word_that_older_readers_skip() {
        let record = |stripe_count| {
            let template = Template { stripe_count, overstriped: true, ..Template::default() };
            let bytes = template.encode();
            assert_eq!(Template::decode(&bytes), Ok(template));
            (bytes[8..12].to_vec(), bytes[20..24].to_vec())
        };
        assert_eq!(record(5), (vec![5, 0, 0, 0], vec![1, 0, 0, 0]));
        assert_eq!(record(-1), (vec![255; 4], vec![1, 0, 0, 0]));
        assert_eq!(record(-32), (vec![255; 4], vec![32, 0, 0, 0]));
        let mut bytes = Template { stripe_count: 5, ..Template::default() }.encode();
        bytes[20] = 2;
        assert_eq!(Template::decode(&bytes), Err(LayoutError::StripeCount(-2)));
        bytes[8..12].fill(255);
        bytes[20] = 33;
        assert_eq!(Template::decode(&bytes), Err(LayoutError::StripeCount(-33)));
    }

    #[test]
    fn every_cut_is_refused_and_a_tail_is_ignored() {
        let mut bytes = layout().encode();
        for len in 0..bytes.len() {
            assert!(Layout::decode(&bytes[..len]).is_err(), "{len}");
        }
        bytes.extend([7; 9]);
        assert_eq!(Layout::decode(&bytes), Ok(layout()));
        assert!(Template::decode(&bytes).is_err());
    }

    #[test]
    fn an_origin_is_behind_all_that_older_readers_take() {
        let origin = Origin::ASKED.with(Origin::SPILLED, true).with(Origin::ROOT, false);
        let made = Layout { origin, ..layout() };
        let bytes = made.encode();
        let mut older = layout().encode();
        older[2] = 60; // the length
        older.extend([17, 0, 0, 0]);
        assert_eq!(bytes, older);
        let must_exist: StripeSet = [64].into_iter().collect();
        for sent in [bytes.clone(), with_stripes(bytes, &must_exist)] {
            assert_eq!(Layout::decode(&sent).as_ref(), Ok(&made));
        }
    }

    #[test]
    fn stripes_behind_a_record_are_seen_by_newer_readers_alone() {
        let must_exist: StripeSet = [0, 64, 130].into_iter().collect();
        let sent = with_stripes(layout().encode(), &must_exist);
        assert_eq!(sent.len(), layout().encode().len() + 16);
        assert_eq!(Layout::decode(&sent), Ok(layout()));
        let told = StripeSet::from_parts(must_exist.first_part(), stripes_behind(&sent));
        assert_eq!(told, must_exist);
        assert_eq!(with_stripes(sent.clone(), &must_exist), sent, "not twice");
        assert_eq!(with_stripes(layout().encode(), &StripeSet::from(5u64)), layout().encode());
        assert!(with_stripes(Vec::new(), &must_exist).is_empty(), "of a file without a layout");
        for len in 0..layout().encode().len() {
            assert!(stripes_behind(&sent[..len]).is_empty(), "{len}");
        }
    }

    #[test]
    fn a_length_that_leaves_out_the_osts_is_refused() {
        let mut bytes = layout().encode();
        bytes[2] = 48;
        assert_eq!(Layout::decode(&bytes), Err(LayoutError::Short { have: 48, need: 56 }));
    }

    proptest! {
        #[test]
        fn no_bytes_make_it_panic(mut bytes in proptest::collection::vec(any::<u8>(), 0..120), kind in 0u8..6, plausible: bool) {
            if plausible && bytes.len() > 8 {
                (bytes[0], bytes[1], bytes[3]) = (kind, VERSION, 0);
            }
            let file = Fid::new(5, 6);
            let read = Striping::decode(file, &bytes);
            let again = match &read {
                Ok(Striping::Layout(layout)) => Striping::decode(file, &layout.encode()),
                Ok(Striping::Template(template)) => Striping::decode(file, &template.encode()),
                Ok(Striping::None) | Err(_) => return Ok(()),
            };
            prop_assert_eq!(again, read);
        }

        #[test]
        fn a_changed_byte_never_gives_a_layout_out_of_bounds(at in 0usize..56, value: u8) {
            let mut bytes = layout().encode();
            bytes[at] = value;
            if let Ok(changed) = Layout::decode(&bytes) {
                prop_assert_eq!(changed.check(), Ok(()));
            }
        }
    }
}
