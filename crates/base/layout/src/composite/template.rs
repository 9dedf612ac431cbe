//! The requested components of new files.

use types::Extent;

use super::{COMPONENT_ID_MAX, Component, ComponentError, Composite, END_OF_FILE, Place, error};
use crate::{Origin, POOL_BYTES, STRIPE_SIZE_UNIT, Template};

/// How a component of a file to come shall be.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Wanted {
    /// With the inode (`-L mdt`).
    Mdt,
    /// In objects; what it leaves open comes from the default.
    Striped(Template),
    /// The same, and the objects get so many bytes at a time (`-z`).
    Extendable(Template, u64),
}

/// One component of a template: it starts where the one before it ends (`setstripe -E`).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TemplateComponent {
    /// First byte behind it, or [`END_OF_FILE`].
    pub end: u64,
    /// Of which sort.
    pub wanted: Wanted,
}

impl TemplateComponent {
    /// It reaches to `end` in steps of so many bytes; at the MDT it stays as it is.
    pub(crate) fn extend(&mut self, end: u64, step: u64) {
        if let Wanted::Striped(template) | Wanted::Extendable(template, _) = &mut self.wanted {
            let template = std::mem::take(template);
            *self = TemplateComponent { end, wanted: Wanted::Extendable(template, step) };
        }
    }
}

/// Components asked for by `setstripe -E`, or a directory's default for new files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CompositeTemplate {
    /// In the order of the file.
    pub components: Vec<TemplateComponent>,
}

impl CompositeTemplate {
    /// Components with ends and stripe counts as given, all with stripes of `stripe_size` bytes (0:
    /// default).
    #[must_use]
    pub fn striped(
        stripe_size: u32,
        parts: impl IntoIterator<Item = (u64, i32)>,
    ) -> CompositeTemplate {
        let part = |(end, stripe_count)| {
            let template = Template { stripe_size, stripe_count, ..Template::default() };
            TemplateComponent { end, wanted: Wanted::Striped(template) }
        };
        CompositeTemplate { components: parts.into_iter().map(part).collect() }
    }

    /// All stripings that it asks for.
    pub(crate) fn templates(&self) -> impl Iterator<Item = &Template> {
        self.components.iter().filter_map(|component| match &component.wanted {
            Wanted::Mdt => None,
            Wanted::Striped(template) | Wanted::Extendable(template, _) => Some(template),
        })
    }

    /// Components that ask for no OST by its number and name no pool get this one.
    pub(crate) fn give_pool(&mut self, pool: [u8; POOL_BYTES]) {
        for component in &mut self.components {
            if let Wanted::Striped(one) | Wanted::Extendable(one, _) = &mut component.wanted
                && one.pool == [0; POOL_BYTES]
                && one.osts.is_empty()
                && one.start < 0
            {
                one.pool = pool;
            }
        }
    }

    /// Whether it wants the first bytes at the MDT.
    #[must_use]
    pub fn is_at_mdt(&self) -> bool {
        self.components.first().is_some_and(|first| first.wanted == Wanted::Mdt)
    }

    /// Whether it makes a layout, whatever the default is.
    pub fn check(&self) -> Result<(), ComponentError> {
        self.resolve(&Template::default()).map(drop)
    }

    /// The layout of a fresh file, none of whose components has objects. Where no stripe size is
    /// asked for and the default's does not divide the component's end, it is the largest power of
    /// two that does (Lustre: `lod_init_comp_entries`).
    pub fn resolve(&self, default: &Template) -> Result<Composite, ComponentError> {
        let composite = self.resolve_from(0, 0, default)?;
        composite.check().map(|()| composite)
    }

    /// The same from `at` on, with ids behind `last_id`; the outcome is not checked whole.
    fn resolve_from(
        &self,
        at: u64,
        last_id: u32,
        default: &Template,
    ) -> Result<Composite, ComponentError> {
        let first = Composite {
            generation: 0,
            last_id,
            components: Vec::new(),
            mdt_object: None,
            origin: Origin::default(),
        };
        self.components.iter().try_fold(first, |mut made, wanted| {
            let start = made.components.last().map_or(at, |last| last.extent.end());
            let gap = ComponentError::Gap { start: wanted.end, end: start };
            let extent = Extent::new(start, wanted.end).ok_or(gap)?;
            error::check_border(wanted.end)?;
            let id = made.last_id.saturating_add(1).min(COMPONENT_ID_MAX + 1);
            let place = match &wanted.wanted {
                Wanted::Mdt => Place::Mdt,
                Wanted::Striped(template) => Place::Wanted(striped(template, default, wanted.end)?),
                Wanted::Extendable(template, step) => {
                    Place::Extendable(striped(template, default, wanted.end)?, *step)
                }
            };
            let component = Component { id, extent, place };
            made.last_id = component.last_id();
            made.components.push(component);
            Ok(made)
        })
    }

    /// With no more than `limit` bytes at the MDT: its component is shortened and the next one
    /// begins earlier; a limit of 0 takes it away (Lustre: 2.12 and later).
    ///
    /// # Errors
    /// [`ComponentError::MdtRefused`]: nothing would be left.
    pub fn with_mdt_limit(mut self, limit: u64) -> Result<CompositeTemplate, ComponentError> {
        let limit = limit - limit % u64::from(STRIPE_SIZE_UNIT);
        let Some(first) = self.components.first_mut().filter(|first| first.wanted == Wanted::Mdt)
        else {
            return Ok(self);
        };
        if limit > 0 {
            first.end = first.end.min(limit);
            return Ok(self);
        }
        self.components.remove(0);
        if self.components.is_empty() { Err(ComponentError::MdtRefused) } else { Ok(self) }
    }
}

impl Composite {
    /// Adds components behind the last one.
    ///
    /// # Errors
    /// The file has an end already that nothing can follow, or they do not fit. Nothing is changed
    /// then.
    pub fn add(
        &mut self,
        more: &CompositeTemplate,
        default: &Template,
    ) -> Result<(), ComponentError> {
        let more = more.resolve_from(self.end(), self.last_id, default)?;
        self.with(|layout| {
            layout.last_id = more.last_id;
            layout.components.extend(more.components);
        })
    }
}

/// What a component asks for, with its stripe size.
fn striped(template: &Template, default: &Template, end: u64) -> Result<Template, ComponentError> {
    let open = template.stripe_size == 0;
    let mut wanted = template.or(default).settled();
    if wanted.stripe_size == 0 {
        wanted.stripe_size = crate::STRIPE_SIZE_DEFAULT;
    }
    if open && end != END_OF_FILE && !end.is_multiple_of(u64::from(wanted.stripe_size)) {
        let bits = end.trailing_zeros().min(u32::BITS - 1);
        wanted.stripe_size = 1 << bits;
    }
    wanted.check()?;
    Ok(wanted)
}
