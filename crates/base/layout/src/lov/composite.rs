//! Lustre's binary form of composite layouts (Lustre: `lov_comp_md_v1` in `lustre_user.h`).
//!
//! ```text
//!  0 magic u32 (0x0BD60BD0) | 4 bytes of the whole u32 | 8 generation u32 | 12 flags u16 | 14 entries u16
//! 16 mirrors less one u16 | 18 zero 14 | 32 entries, 48 each | then the components' own values
//!  entry: 0 id u32 | 4 flags u32 | 8 start u64 | 16 end u64 | 24 offset of its value u32
//!         28 bytes of its value u32 | 32 generation u32 | 36 time u64 | 44 zero u32
//! ```
//! An extendable component is two entries. The first is empty until it has objects. The second has
//! the flag `extension` and covers the rest of the extent. The stripe size of the latter is the
//! step, in KiB.

use types::Fid;

use super::bytes::{ENTRY_BYTES, HEAD_BYTES};
use super::{
    Input, Lov, LovError, MAGIC_COMPOSITE, MAGIC_V1, PATTERN_MDT, PATTERN_RAID0, is_magic,
    template_of,
};
use crate::composite::{
    Component, ComponentError, Composite, CompositeTemplate, Place, TemplateComponent, Wanted,
};
use crate::{POOL_BYTES, Template};

/// The component has what it needs to take data.
pub const FLAG_INIT: u32 = 0x10;
/// Room for the component before it to grow into.
pub const FLAG_EXTENSION: u32 = 0x40;
/// Unit of the step of an entry with [`FLAG_EXTENSION`] (Lustre: `SEL_UNIT_SIZE`).
const STEP_UNIT: u64 = 1 << 10;
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

    /// Bytes that the component before it gets at a time, if this is room for it.
    #[must_use]
    pub fn extension_size(&self) -> Option<u64> {
        let is_extension = self.flags & FLAG_EXTENSION != 0;
        is_extension.then_some(u64::from(self.lov.stripe_size) * STEP_UNIT)
    }
}

impl LovComposite {
    /// The layout of file `file` with its objects.
    #[must_use]
    pub fn of_file(composite: &Composite, file: Fid) -> LovComposite {
        let entries = composite.components.iter().flat_map(|component| entries_of(component, file));
        let generation = composite.generation;
        LovComposite { generation, flags: 0, mirrors: 0, entries: entries.collect() }
    }

    /// A directory's default, as it would make the next file.
    pub fn of_dir(template: &CompositeTemplate) -> Result<LovComposite, LovError> {
        let resolved = template.resolve(&Template::default())?;
        let mut entries = Vec::new();
        for (component, asked) in resolved.components.iter().zip(&template.components) {
            for mut entry in entries_of(component, Fid::ZERO) {
                let is_extension = entry.extension_size().is_some();
                if let Wanted::Striped(one) | Wanted::Extendable(one, _) = &asked.wanted
                    && !is_extension
                {
                    entry.lov = Lov::of_dir(one); // as asked for: the file's creation adds the rest
                }
                entry.flags &= !FLAG_INIT;
                entries.push(entry);
            }
        }
        Ok(LovComposite { generation: resolved.generation, flags: 0, mirrors: 0, entries })
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

/// One entry, or the two of an extendable component.
fn entries_of(component: &Component, file: Fid) -> Vec<LovEntry> {
    let (start, end) = (component.extent.start(), component.extent.end());
    let flags = match &component.place {
        Place::Mdt | Place::Objects(_) => FLAG_INIT,
        Place::Wanted(_) | Place::Extendable(..) => 0,
        Place::Extension(_) => FLAG_EXTENSION,
    };
    let own = LovEntry { id: component.id, flags, start, end, lov: lov_of(component, file) };
    let Place::Extendable(_, step) = &component.place else { return vec![own] };
    let id = component.id.saturating_add(1);
    let rest = LovEntry { id, flags: FLAG_EXTENSION, start, end, lov: extension(*step, file) };
    vec![LovEntry { end: start, ..own }, rest]
}

/// No objects; the step in the place of a stripe size.
fn extension(step: u64, file: Fid) -> Lov {
    let nothing = Lov::of_dir(&Template::default());
    let stripe_size = u32::try_from(step / STEP_UNIT).unwrap_or(0);
    Lov { oid: u64::from(file.oid), seq: file.seq, stripe_size, ..nothing }
}

fn lov_of(component: &Component, file: Fid) -> Lov {
    match &component.place {
        Place::Objects(layout) => Lov::of_file(layout, file),
        Place::Wanted(template) | Place::Extendable(template, _) => {
            Lov { oid: u64::from(file.oid), seq: file.seq, ..Lov::of_dir(template) }
        }
        Place::Extension(step) => extension(*step, file),
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
    let first = start.or(shown.entries.first().map(|entry| entry.start)).unwrap_or(0);
    let mut components: Vec<TemplateComponent> = Vec::new();
    for entry in shown.entries {
        let end = components.last().map_or(first, |last| last.end);
        if entry.start != end {
            return Err(ComponentError::Gap { start: entry.start, end }.into());
        }
        if entry.flags & !(FLAG_INIT | FLAG_EXTENSION | FLAGS_OF_MIRRORS) != 0 {
            return Err(LovError::Pattern(entry.flags));
        }
        match entry.extension_size() {
            Some(step) => extend(components.last_mut(), &entry, step)?,
            None => components.push(wanted(entry)?),
        }
    }
    Ok(CompositeTemplate { components })
}

/// What a component asks for.
fn wanted(entry: LovEntry) -> Result<TemplateComponent, LovError> {
    let LovEntry { end, lov, .. } = entry;
    let wanted = match lov.pattern {
        PATTERN_MDT => Wanted::Mdt,
        _ => Wanted::Striped(template_of(lov)?),
    };
    Ok(TemplateComponent { end, wanted })
}

/// The component before an extension gets its extent, in steps.
fn extend(
    before: Option<&mut TemplateComponent>,
    entry: &LovEntry,
    step: u64,
) -> Result<(), LovError> {
    let is_plain = matches!(entry.lov.pattern, 0 | PATTERN_RAID0);
    let is_begun = entry.flags & FLAG_INIT != 0;
    let before = before.filter(|before| matches!(before.wanted, Wanted::Striped(_)));
    let before = before.filter(|_| is_plain && !is_begun && entry.start <= entry.end);
    let before = before.ok_or(ComponentError::Extension)?;
    before.extend(entry.end, step);
    Ok(())
}
