//! Lustre's binary form of composite layouts (Lustre: `lov_comp_md_v1` in `lustre_user.h`).
//!
//! ```text
//!  0 magic u32 (0x0BD60BD0) | 4 bytes of the whole u32 | 8 generation u32 | 12 flags u16 | 14 entries u16
//! 16 mirrors less one u16 | 18 zero 14 | 32 entries, 48 each | then the components' own values
//!  entry: 0 id u32 | 4 flags u32 | 8 start u64 | 16 end u64 | 24 offset of its value u32
//!         28 bytes of its value u32 | 32 generation u32 | 36 time u64 | 44 zero u32
//! ```

use types::Fid;

use super::{
    Input, Lov, LovError, MAGIC_COMPOSITE, MAGIC_V1, PATTERN_MDT, STRIPE_BYTES, V1_BYTES, V3_BYTES,
    is_magic, template_of,
};
use crate::composite::{
    Component, ComponentError, Composite, CompositeTemplate, Place, TemplateComponent, Wanted,
};
use crate::{POOL_BYTES, Template};

const HEAD_BYTES: usize = 32;
const ENTRY_BYTES: usize = 48;
/// The component has what it needs to take data.
pub const FLAG_INIT: u32 = 0x10;
/// Room for the component before it to grow into.
pub const FLAG_EXTENSION: u32 = 0x40;
/// Bits of a template that change nothing here: which mirror is preferred.
const FLAGS_OF_MIRRORS: u32 = 0x6;

/// A value field by field: its lengths are checked, its numbers are not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LovComposite {
    /// Rises with every change.
    pub generation: u32,
    /// State of the mirrors.
    pub flags: u16,
    /// Mirrors less one.
    pub mirrors: u16,
    /// In the order of the value.
    pub entries: Vec<LovEntry>,
}

/// One component of a [`LovComposite`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LovEntry {
    /// Its name in commands.
    pub id: u32,
    /// [`FLAG_INIT`] and others.
    pub flags: u32,
    /// First byte.
    pub start: u64,
    /// First byte behind it, or [`crate::composite::END_OF_FILE`].
    pub end: u64,
    /// Its own layout.
    pub lov: Lov,
}

impl LovEntry {
    /// Whether it has what it needs to take data.
    #[must_use]
    pub fn is_instantiated(&self) -> bool {
        self.flags & FLAG_INIT != 0
    }
}

impl LovComposite {
    /// The layout of file `file` with its objects.
    #[must_use]
    pub fn of_file(composite: &Composite, file: Fid) -> LovComposite {
        let entries = composite.components.iter().map(|component| LovEntry {
            id: component.id,
            flags: if component.is_instantiated() { FLAG_INIT } else { 0 },
            start: component.extent.start(),
            end: component.extent.end(),
            lov: lov_of(component, file),
        });
        let generation = composite.generation;
        LovComposite { generation, flags: 0, mirrors: 0, entries: entries.collect() }
    }

    /// A directory's default, as it would make the next file.
    pub fn of_dir(template: &CompositeTemplate) -> Result<LovComposite, LovError> {
        let mut shown = LovComposite::of_file(&template.resolve(&Template::default())?, Fid::ZERO);
        for (entry, component) in shown.entries.iter_mut().zip(&template.components) {
            entry.flags = 0;
            if let Wanted::Striped(template) = &component.wanted {
                entry.lov.stripe_size = template.stripe_size; // 0: left to the file's creation
            }
        }
        Ok(shown)
    }

    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let values: Vec<Vec<u8>> = self.entries.iter().map(|entry| entry.lov.encode()).collect();
        let first = HEAD_BYTES + ENTRY_BYTES * self.entries.len();
        let bytes = first + values.iter().map(Vec::len).sum::<usize>();
        let mut out = Vec::with_capacity(bytes);
        out.extend(MAGIC_COMPOSITE.to_le_bytes());
        out.extend((bytes as u32).to_le_bytes());
        out.extend(self.generation.to_le_bytes());
        out.extend(self.flags.to_le_bytes());
        out.extend((self.entries.len() as u16).to_le_bytes());
        out.extend(self.mirrors.to_le_bytes());
        out.resize(HEAD_BYTES, 0);
        let mut offset = first;
        for (entry, value) in self.entries.iter().zip(&values) {
            out.extend(entry.id.to_le_bytes());
            out.extend(entry.flags.to_le_bytes());
            out.extend(entry.start.to_le_bytes());
            out.extend(entry.end.to_le_bytes());
            out.extend((offset as u32).to_le_bytes());
            out.extend((value.len() as u32).to_le_bytes());
            out.extend([0; 16]);
            offset += value.len();
        }
        values.iter().for_each(|value| out.extend(value));
        out
    }
}

/// Bytes of a file's layout in this form.
pub(crate) fn bytes_of(composite: &Composite) -> usize {
    let pooled =
        |pool: &[u8; POOL_BYTES]| if *pool == [0; POOL_BYTES] { V1_BYTES } else { V3_BYTES };
    let value = |component: &Component| match &component.place {
        Place::Mdt => V1_BYTES,
        // with the objects that it will have, as far as that is known
        Place::Wanted(template) => {
            let stripes = usize::try_from(template.stripe_count).unwrap_or(0);
            pooled(&template.pool) + STRIPE_BYTES * stripes.max(template.osts.len())
        }
        Place::Objects(layout) => pooled(&layout.pool) + STRIPE_BYTES * layout.osts.len(),
    };
    let entries = composite.components.iter().map(|component| ENTRY_BYTES + value(component));
    HEAD_BYTES + entries.sum::<usize>()
}

fn lov_of(component: &Component, file: Fid) -> Lov {
    match &component.place {
        Place::Objects(layout) => Lov::of_file(layout, file),
        Place::Wanted(template) => {
            Lov { oid: u64::from(file.oid), seq: file.seq, ..Lov::of_dir(template) }
        }
        Place::Mdt => Lov {
            magic: MAGIC_V1,
            pattern: PATTERN_MDT,
            oid: u64::from(file.oid),
            seq: file.seq,
            stripe_size: u32::try_from(component.extent.end()).unwrap_or(0),
            stripe_count: 0,
            generation: 0,
            pool: [0; POOL_BYTES],
            stripes: Vec::new(),
        },
    }
}

/// Reads a value that is to be shown.
pub fn inspect(value: &[u8]) -> Result<LovComposite, LovError> {
    let mut input = Input { bytes: value, at: 0, need: HEAD_BYTES, swapped: false };
    let magic = input.u32()?;
    input.swapped = is_magic(magic.swap_bytes());
    let magic = if input.swapped { magic.swap_bytes() } else { magic };
    if magic != MAGIC_COMPOSITE {
        return Err(LovError::Magic(magic));
    }
    let bytes = input.u32()? as usize;
    let generation = input.u32()?;
    let (flags, count, mirrors) = (input.u16()?, input.u16()?, input.u16()?);
    input.need = bytes.max(HEAD_BYTES + ENTRY_BYTES * usize::from(count));
    if value.len() < input.need {
        return Err(LovError::Short { have: value.len(), need: input.need });
    }
    input.at = HEAD_BYTES;
    let entries = (0..count).map(|_| entry(&mut input)).collect::<Result<_, _>>()?;
    Ok(LovComposite { generation, flags, mirrors, entries })
}

fn entry(input: &mut Input<'_>) -> Result<LovEntry, LovError> {
    let (id, flags) = (input.u32()?, input.u32()?);
    let (start, end) = (input.u64()?, input.u64()?);
    let (offset, bytes) = (input.u32()? as usize, input.u32()? as usize);
    let _generation_time_padding: [u8; 16] = input.take()?;
    let behind = offset.saturating_add(bytes);
    let short = LovError::Short { have: input.bytes.len(), need: behind };
    let lov = super::inspect(input.bytes.get(offset..behind).ok_or(short)?)?;
    Ok(LovEntry { id, flags, start, end, lov })
}

/// Reads a value that a user sets. Objects of another file's layout are ignored.
pub fn decode(value: &[u8]) -> Result<CompositeTemplate, LovError> {
    let template = decode_from(value, Some(0))?;
    template.check()?;
    Ok(template)
}

/// Reads components that are to follow those that a file has; where the first one starts is left
/// to the file.
pub fn decode_tail(value: &[u8]) -> Result<CompositeTemplate, LovError> {
    decode_from(value, None)
}

fn decode_from(value: &[u8], start: Option<u64>) -> Result<CompositeTemplate, LovError> {
    let shown = inspect(value)?;
    if shown.mirrors != 0 {
        return Err(LovError::Unsupported("mirrored"));
    }
    let components = shown.entries.into_iter().map(wanted).collect::<Result<Vec<_>, _>>()?;
    let starts = components.iter().map(|(start, _)| *start);
    let first = start.or(components.first().map(|(start, _)| *start)).unwrap_or(0);
    let ends = std::iter::once(first).chain(components.iter().map(|(_, component)| component.end));
    if let Some((start, end)) = starts.zip(ends).find(|(start, end)| start != end) {
        return Err(ComponentError::Gap { start, end }.into());
    }
    let components = components.into_iter().map(|(_, component)| component).collect();
    Ok(CompositeTemplate { components })
}

/// Where a component starts, and what it asks for.
fn wanted(entry: LovEntry) -> Result<(u64, TemplateComponent), LovError> {
    if entry.flags & FLAG_EXTENSION != 0 {
        return Err(LovError::Unsupported("self-extending"));
    }
    if entry.flags & !(FLAG_INIT | FLAGS_OF_MIRRORS) != 0 {
        return Err(LovError::Pattern(entry.flags));
    }
    let LovEntry { start, end, lov, .. } = entry;
    let wanted = match lov.pattern {
        PATTERN_MDT => Wanted::Mdt,
        _ => Wanted::Striped(template_of(lov)?),
    };
    Ok((start, TemplateComponent { end, wanted }))
}
