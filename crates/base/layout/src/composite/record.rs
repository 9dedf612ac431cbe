//! Records of composite layouts: the third type beside those of layouts and templates.
//!
//! ```text
//! 0 type u8 (3) | 1 version u8 | 2 length u16, of the whole record | 4 generation u32
//! 8 last id u32 | 12 components u32 | then each component:
//!   0 id u32 | 4 place u32 (1 MDT, 2 wanted, 3 objects) | 8 start u64 | 16 end u64
//!   24 a template's record (wanted) or a layout's (objects)
//! ```
//! Little-endian. A longer record's tail is ignored; a shorter one is refused.

use types::Extent;

use super::{Component, ComponentError, Composite, Place};
use crate::{Layout, LayoutError, Template};

const KIND: u8 = 3;
const VERSION: u8 = 1;
const HEAD_BYTES: usize = 16;
const COMPONENT_BYTES: usize = 24;
const AT_MDT: u32 = 1;
const WANTED: u32 = 2;
const OBJECTS: u32 = 3;

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
                Place::Mdt => (AT_MDT, Vec::new()),
                Place::Wanted(template) => (WANTED, template.encode()),
                Place::Objects(layout) => (OBJECTS, layout.encode()),
            };
            out.extend(component.id.to_le_bytes());
            out.extend(place.to_le_bytes());
            out.extend(component.extent.start().to_le_bytes());
            out.extend(component.extent.end().to_le_bytes());
            out.extend(nested);
        }
        // smaller than Lustre's form, which is bounded
        let length = u16::try_from(out.len()).expect("a layout that is checked fits");
        out[2..4].copy_from_slice(&length.to_le_bytes());
        out
    }

    /// From the bytes of a record, whose type, version and bounds are checked.
    pub fn decode(record: &[u8]) -> Result<Composite, ComponentError> {
        let short = |need| LayoutError::Short { have: record.len(), need };
        let head: &[u8; HEAD_BYTES] = record.first_chunk().ok_or(short(HEAD_BYTES))?;
        let [kind, version, low, high, ..] = *head;
        if (kind, version) != (KIND, VERSION) {
            return Err(LayoutError::Unknown { kind, version }.into());
        }
        let length = usize::from(u16::from_le_bytes([low, high]));
        let mut rest = record.get(HEAD_BYTES..length).ok_or(short(length.max(HEAD_BYTES)))?;
        let word =
            |at: usize| u32::from_le_bytes([head[at], head[at + 1], head[at + 2], head[at + 3]]);
        let mut components = Vec::new();
        for _ in 0..word(12) {
            let (component, tail) = component(rest)?;
            components.push(component);
            rest = tail;
        }
        let composite = Composite { generation: word(4), last_id: word(8), components };
        composite.check().map(|()| composite)
    }
}

/// The component that these bytes begin with, and what follows it.
fn component(bytes: &[u8]) -> Result<(Component, &[u8]), ComponentError> {
    let short = |need| LayoutError::Short { have: bytes.len(), need };
    let head: &[u8; COMPONENT_BYTES] = bytes.first_chunk().ok_or(short(COMPONENT_BYTES))?;
    let rest = &bytes[COMPONENT_BYTES..];
    let word = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let long = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
    let (start, end) = (long(8), long(16));
    let extent = Extent::new(start, end).ok_or(ComponentError::Gap { start: end, end: start })?;
    let (place, nested) = match word(4) {
        AT_MDT => (Place::Mdt, 0),
        WANTED => (Place::Wanted(Template::decode(rest)?), nested_bytes(rest)),
        OBJECTS => (Place::Objects(Layout::decode(rest)?), nested_bytes(rest)),
        other => return Err(ComponentError::Id(other)),
    };
    let rest = rest.get(nested..).ok_or(short(COMPONENT_BYTES + nested))?;
    Ok((Component { id: word(0), extent, place }, rest))
}

/// Length that a nested record, which was decoded, says of itself.
fn nested_bytes(record: &[u8]) -> usize {
    record.get(2..4).map_or(0, |length| usize::from(u16::from_le_bytes([length[0], length[1]])))
}
