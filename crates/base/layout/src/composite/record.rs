//! Records of composite layouts and of their templates, beside the records of plain ones.
//!
//! ```text
//! layout:
//! 0 type u8 (3) | 1 version u8 | 2 length u16, of the whole record | 4 generation u32
//! 8 last id u32 | 12 components u32 | then each component:
//!   0 id u32 | 4 place u32 (1 MDT, 2 wanted, 3 objects, 4 MDT, 5 extendable, 6 extension)
//!   8 start u64 | 16 end u64
//!   24 a template's record (wanted), a layout's (objects), the FID of the object (4),
//!      the bytes of a step u64 (6), these and then a template's record (5)
//! and behind them, if it is known: origin u8, three zeros
//! template:
//! 0 type u8 (4) | 1 version u8 | 2 length u16 | 4 zero u64 | 12 components u32 | then each:
//!   0 zero u32 | 4 place u32 (1 MDT, 2 wanted, 5 extendable) | 8 zero u64 | 16 end u64
//!   24 a template's record (2), or the bytes of a step u64 and then a template's record (5)
//! ```
//! Numbers are little-endian. The tail of a longer record is ignored; a shorter record is refused.

use types::{Extent, Fid};

use super::{
    Component, ComponentError, Composite, CompositeTemplate, Place, TemplateComponent, Wanted,
};
use crate::{Layout, LayoutError, Origin, Template};

/// Type of a layout's record.
pub(crate) const KIND: u8 = 3;
/// Type of a template's record.
pub(crate) const KIND_TEMPLATE: u8 = 4;
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;
const COMPONENT_BYTES: usize = 24;
const AT_MDT: u32 = 1;
const WANTED: u32 = 2;
const OBJECTS: u32 = 3;
/// At the MDT, in an object that is not the file's own.
const MDT_OBJECT: u32 = 4;
const EXTENDABLE: u32 = 5;
const EXTENSION: u32 = 6;
const FID_BYTES: usize = 16;
const STEP_BYTES: usize = 8;

impl Composite {
    /// As a record. The layout has passed [`Composite::check`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.check(), Ok(()), "a layout is checked where it is made");
        let mut out = vec![KIND, VERSION, 0, 0];
        out.extend(self.generation.to_le_bytes());
        out.extend(self.last_id.to_le_bytes());
        out.extend((self.components.len() as u32).to_le_bytes());
        for component in &self.components {
            let (place, nested) = match &component.place {
                Place::Mdt => match self.mdt_object {
                    None => (AT_MDT, Vec::new()),
                    Some(object) => (MDT_OBJECT, fid_bytes(object)),
                },
                Place::Wanted(template) => (WANTED, template.encode()),
                Place::Extendable(template, step) => (EXTENDABLE, stepped(*step, template)),
                Place::Extension(step) => (EXTENSION, step.to_le_bytes().to_vec()),
                Place::Objects(layout) => (OBJECTS, layout.encode()),
            };
            out.extend(component.id.to_le_bytes());
            out.extend(place.to_le_bytes());
            out.extend(component.extent.start().to_le_bytes());
            out.extend(component.extent.end().to_le_bytes());
            out.extend(nested);
        }
        out.extend(self.origin.tail());
        // smaller than Lustre's form, which is bounded
        let length = u16::try_from(out.len()).expect("a layout that is checked fits");
        out[2..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// From the bytes of a record, whose type, version and bounds are checked.
    pub fn decode(record: &[u8]) -> Result<Composite, ComponentError> {
        let (head, mut rest) = head(record, KIND)?;
        let (mut components, mut mdt_object) = (Vec::new(), None);
        for _ in 0..head.components {
            let (component, object, tail) = component(rest)?;
            components.push(component);
            mdt_object = mdt_object.or(object);
            rest = tail;
        }
        let Head { generation, last_id, .. } = head;
        let origin = Origin::from_tail(rest);
        let composite = Composite { generation, last_id, components, mdt_object, origin };
        composite.check().map(|()| composite)
    }
}

impl CompositeTemplate {
    /// As a record. The template has passed [`CompositeTemplate::check`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert_eq!(self.check(), Ok(()), "a template is checked where it is made");
        let mut out = vec![KIND_TEMPLATE, VERSION, 0, 0];
        out.extend([0; 8]);
        out.extend((self.components.len() as u32).to_le_bytes());
        for component in &self.components {
            let (place, nested) = match &component.wanted {
                Wanted::Mdt => (AT_MDT, Vec::new()),
                Wanted::Striped(template) => (WANTED, template.encode()),
                Wanted::Extendable(template, step) => (EXTENDABLE, stepped(*step, template)),
            };
            out.extend(0u32.to_le_bytes());
            out.extend(place.to_le_bytes());
            out.extend(0u64.to_le_bytes());
            out.extend(component.end.to_le_bytes());
            out.extend(nested);
        }
        // smaller than Lustre's form, which is bounded
        let length = u16::try_from(out.len()).expect("a template that is checked fits");
        out[2..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// From the bytes of a record, whose type, version and bounds are checked.
    pub fn decode(record: &[u8]) -> Result<CompositeTemplate, ComponentError> {
        let (head, mut rest) = head(record, KIND_TEMPLATE)?;
        let mut components = Vec::new();
        for _ in 0..head.components {
            let short = LayoutError::Short { have: rest.len(), need: COMPONENT_BYTES };
            let (first, tail) = rest.split_first_chunk::<COMPONENT_BYTES>().ok_or(short)?;
            let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| first[at + byte]));
            let end = u64::from_le_bytes(std::array::from_fn(|byte| first[16 + byte]));
            let (wanted, nested) = match word(4) {
                AT_MDT => (Wanted::Mdt, 0),
                WANTED => (Wanted::Striped(Template::decode(tail)?), nested_bytes(tail)),
                EXTENDABLE => {
                    let (step, template) = step(tail)?;
                    let nested = STEP_BYTES + nested_bytes(template);
                    (Wanted::Extendable(Template::decode(template)?, step), nested)
                }
                other => return Err(ComponentError::Id(other)),
            };
            components.push(TemplateComponent { end, wanted });
            let need = COMPONENT_BYTES + nested;
            rest = tail.get(nested..).ok_or(LayoutError::Short { have: rest.len(), need })?;
        }
        let template = CompositeTemplate { components };
        template.check().map(|()| template)
    }
}

/// What both records begin with.
struct Head {
    generation: u32,
    last_id: u32,
    components: u32,
}

/// The head of a record of this type, and what of it follows.
fn head(record: &[u8], want: u8) -> Result<(Head, &[u8]), ComponentError> {
    let short = |need| LayoutError::Short { have: record.len(), need };
    let head: &[u8; HEAD_BYTES] = record.first_chunk().ok_or(short(HEAD_BYTES))?;
    let [kind, version, low, high, ..] = *head;
    if (kind, version) != (want, VERSION) {
        return Err(LayoutError::Unknown { kind, version }.into());
    }
    let length = usize::from(u16::from_le_bytes([low, high]));
    let rest = record.get(HEAD_BYTES..length).ok_or(short(length.max(HEAD_BYTES)))?;
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    Ok((Head { generation: word(4), last_id: word(8), components: word(12) }, rest))
}

fn fid_bytes(fid: Fid) -> Vec<u8> {
    [&fid.seq.to_le_bytes()[..], &fid.oid.to_le_bytes(), &fid.ver.to_le_bytes()].concat()
}

/// A step's bytes, then the record of a template.
fn stepped(step: u64, template: &Template) -> Vec<u8> {
    [&step.to_le_bytes()[..], &template.encode()[..]].concat()
}

/// The bytes of a step, and what follows them.
fn step(bytes: &[u8]) -> Result<(u64, &[u8]), ComponentError> {
    let short = LayoutError::Short { have: bytes.len(), need: STEP_BYTES };
    let (step, rest) = bytes.split_first_chunk::<STEP_BYTES>().ok_or(short)?;
    Ok((u64::from_le_bytes(*step), rest))
}

/// The component that these bytes begin with, its object at the MDT if that is named, and what
/// follows it.
fn component(bytes: &[u8]) -> Result<(Component, Option<Fid>, &[u8]), ComponentError> {
    let short = |need| LayoutError::Short { have: bytes.len(), need };
    let head: &[u8; COMPONENT_BYTES] = bytes.first_chunk().ok_or(short(COMPONENT_BYTES))?;
    let rest = &bytes[COMPONENT_BYTES..];
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let (start, end) = (long(8), long(16));
    let extent = Extent::new(start, end).ok_or(ComponentError::Gap { start: end, end: start })?;
    let mut object = None;
    let (place, nested) = match word(4) {
        AT_MDT => (Place::Mdt, 0),
        MDT_OBJECT => {
            let need = COMPONENT_BYTES + FID_BYTES;
            let fid: &[u8; FID_BYTES] = rest.first_chunk().ok_or(short(need))?;
            let half = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| fid[at + byte]));
            let seq = u64::from_le_bytes(std::array::from_fn(|byte| fid[byte]));
            object = Some(Fid { seq, oid: half(8), ver: half(12) });
            (Place::Mdt, FID_BYTES)
        }
        WANTED => (Place::Wanted(Template::decode(rest)?), nested_bytes(rest)),
        EXTENDABLE => {
            let (step, template) = step(rest)?;
            let nested = STEP_BYTES + nested_bytes(template);
            (Place::Extendable(Template::decode(template)?, step), nested)
        }
        EXTENSION => (Place::Extension(step(rest)?.0), STEP_BYTES),
        OBJECTS => (Place::Objects(Layout::decode(rest)?), nested_bytes(rest)),
        other => return Err(ComponentError::Id(other)),
    };
    let rest = rest.get(nested..).ok_or(short(COMPONENT_BYTES + nested))?;
    Ok((Component { id: word(0), extent, place }, object, rest))
}

/// Length that a nested record, which was decoded, says of itself.
fn nested_bytes(record: &[u8]) -> usize {
    record.get(2..4).map_or(0, |length| usize::from(u16::from_le_bytes([length[0], length[1]])))
}
