//! Values of either form: one striping, or components.

use types::Fid;

use super::composite::{self, LovComposite};
use super::{Lov, LovError, MAGIC_COMPOSITE, decode, encode_dir, encode_file, inspect};
use crate::{Asked, FileLayout};

/// The layout of file `file` in the form that it has.
#[must_use]
pub fn encode_any_file(layout: &FileLayout, file: Fid) -> Vec<u8> {
    if let Some(composite) = layout.as_composite() {
        return LovComposite::of_file(composite, file).encode();
    }
    layout.as_plain().map_or_else(Vec::new, |layout| encode_file(layout, file))
}

/// A directory's default in the form that it has.
///
/// # Errors
/// Components that make no layout.
pub fn encode_any_dir(asked: &Asked) -> Result<Vec<u8>, LovError> {
    match asked {
        Asked::Plain(template) => Ok(encode_dir(template)),
        Asked::Composite(template) => Ok(LovComposite::of_dir(template)?.encode()),
    }
}

/// A value of either form, field by field.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LovAny {
    /// One striping.
    Plain(Lov),
    /// Components.
    Composite(LovComposite),
}

impl LovAny {
    /// The components, if there are some.
    #[must_use]
    pub fn components(&self) -> Option<&LovComposite> {
        match self {
            LovAny::Plain(_) => None,
            LovAny::Composite(composite) => Some(composite),
        }
    }

    /// Every striping.
    pub fn stripings(&self) -> impl Iterator<Item = &Lov> {
        let (plain, composite) = match self {
            LovAny::Plain(lov) => (Some(lov), None),
            LovAny::Composite(composite) => (None, Some(composite)),
        };
        let entries = composite.into_iter().flat_map(|composite| &composite.entries);
        plain.into_iter().chain(entries.map(|entry| &entry.lov))
    }

    /// The striping that stands for all where one is asked for: of the last component that has its
    /// objects, of the first one where none has, as in Lustre.
    #[must_use]
    pub fn last(&self) -> Option<&Lov> {
        match self {
            LovAny::Plain(lov) => Some(lov),
            LovAny::Composite(composite) => {
                let mut made = composite.entries.iter().rev();
                let made = made.find(|entry| entry.is_instantiated());
                made.or(composite.entries.first()).map(|entry| &entry.lov)
            }
        }
    }
}

/// Reads a value of either form that is to be shown.
pub fn inspect_any(value: &[u8]) -> Result<LovAny, LovError> {
    if is_composite(value) {
        composite::inspect(value).map(LovAny::Composite)
    } else {
        inspect(value).map(LovAny::Plain)
    }
}

fn is_composite(value: &[u8]) -> bool {
    let magic = value.first_chunk().map(|magic| u32::from_le_bytes(*magic));
    magic.is_some_and(|magic| [magic, magic.swap_bytes()].contains(&MAGIC_COMPOSITE))
}

/// Reads a value of either form that a user sets.
pub fn decode_any(value: &[u8]) -> Result<Asked, LovError> {
    if is_composite(value) {
        composite::decode(value).map(Asked::Composite)
    } else {
        decode(value).map(Asked::Plain)
    }
}
