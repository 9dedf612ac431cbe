//! Requested layouts for new files, of either sort: one striping, or several components.

use crate::composite::{CompositeTemplate, Place, TemplateComponent, Wanted};
use crate::{ComponentError, FileLayout, LayoutError, POOL_BYTES, Template};

/// Layout asked for by `setstripe`, or a directory's default for new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Asked {
    /// One striping for the whole file.
    Plain(Template),
    /// Components, each with its own.
    Composite(CompositeTemplate),
}

impl Default for Asked {
    fn default() -> Asked {
        Asked::Plain(Template::default())
    }
}

impl From<Template> for Asked {
    fn from(template: Template) -> Asked {
        Asked::Plain(template)
    }
}

impl Asked {
    /// Asks for nothing in particular: setting it on a directory removes the directory's own
    /// default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Asked::default()
    }

    /// What would make such a layout again, on whatever OSTs.
    #[must_use]
    pub fn from_layout(layout: &FileLayout) -> Asked {
        let Some(composite) = layout.as_composite() else {
            return layout.as_plain().map_or_else(Asked::default, |one| one.template().into());
        };
        let mut components: Vec<TemplateComponent> = Vec::new();
        for part in &composite.components {
            let wanted = match (&part.place, components.last_mut()) {
                (Place::Mdt, _) => Wanted::Mdt,
                (Place::Wanted(template), _) => Wanted::Striped(template.clone()),
                (Place::Extendable(template, step), _) => {
                    Wanted::Extendable(template.clone(), *step)
                }
                (Place::Objects(objects), _) => Wanted::Striped(objects.template()),
                (Place::Extension(step), before) => {
                    // with the component before it, it is what that one was made of
                    if let Some(before) = before {
                        before.extend(part.extent.end(), *step);
                    }
                    continue;
                }
            };
            components.push(TemplateComponent { end: part.extent.end(), wanted });
        }
        Asked::Composite(CompositeTemplate { components })
    }

    /// Whether it makes a layout, whatever the default is.
    pub fn check(&self) -> Result<(), ComponentError> {
        match self {
            Asked::Plain(template) => Ok(template.check()?),
            Asked::Composite(template) => template.check(),
        }
    }

    /// This, with `fallback` where it asks for nothing: file, then directory, then root, then the
    /// file system's own. Components come from one place only: a file that asks for a striping does
    /// not get a directory's components, and components leave to the default what they leave open.
    #[must_use]
    pub fn or(&self, fallback: &Asked) -> Asked {
        match (self, fallback) {
            (Asked::Plain(own), Asked::Plain(other)) => Asked::Plain(own.or(other)),
            (Asked::Plain(own), Asked::Composite(_)) if own.is_default() => fallback.clone(),
            _ => self.clone(),
        }
    }

    /// With the pool of `fallback`, of its first striping, where components name none (Lustre:
    /// components inherit a pool from the directory or the root).
    #[must_use]
    pub fn pooled(mut self, fallback: &Asked) -> Asked {
        if let Asked::Composite(template) = &mut self {
            let first = fallback.templates().next();
            template.give_pool(first.map_or([0; POOL_BYTES], |first| first.pool));
        }
        self
    }

    /// Whether `fallback` says something that it leaves open.
    #[must_use]
    pub fn needs(&self, fallback: &Template) -> bool {
        self.templates().any(|one| one.or(fallback) != *one)
    }

    /// All stripings that it asks for.
    pub fn templates(&self) -> impl Iterator<Item = &Template> {
        let (plain, composite) = match self {
            Asked::Plain(template) => (Some(template), None),
            Asked::Composite(template) => (None, Some(template)),
        };
        plain.into_iter().chain(composite.into_iter().flat_map(CompositeTemplate::templates))
    }

    /// As a record. It has passed [`Asked::check`].
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        match self {
            Asked::Plain(template) => template.encode(),
            Asked::Composite(template) => template.encode(),
        }
    }

    /// From the bytes of a record of either sort.
    pub fn decode(record: &[u8]) -> Result<Asked, ComponentError> {
        match record.first() {
            Some(&crate::composite::KIND_TEMPLATE) => {
                CompositeTemplate::decode(record).map(Asked::Composite)
            }
            Some(_) => Ok(Asked::Plain(Template::decode(record)?)),
            None => Err(LayoutError::Short { have: 0, need: 4 }.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::composite::END_OF_FILE;

    #[test]
    fn components_come_from_one_place() {
        let striped = |stripe_count| Template { stripe_count, ..Template::default() };
        let part = TemplateComponent { end: END_OF_FILE, wanted: Wanted::Striped(striped(3)) };
        let progressive = Asked::Composite(CompositeTemplate { components: vec![part] });
        let plain = Asked::Plain(striped(2));
        assert_eq!(Asked::default().or(&progressive), progressive);
        assert_eq!(plain.or(&progressive), plain, "a striping was asked for");
        assert_eq!(progressive.or(&plain), progressive);
        assert_eq!(Asked::default().or(&plain), plain);
        let system = Template { stripe_size: 1 << 20, stripe_count: 1, ..Template::default() };
        for asked in [progressive, plain] {
            assert!(asked.needs(&system) && !asked.needs(&striped(1)), "a size is open");
            assert_eq!(Asked::decode(&asked.encode()), Ok(asked));
        }
        assert!(Asked::decode(&[]).is_err());
    }

    #[test]
    fn components_get_a_pool_from_elsewhere_and_nothing_else() {
        let pool = |name| crate::pool::padded(name).expect("a name");
        let part = |wanted| TemplateComponent { end: END_OF_FILE, wanted };
        let of = |one: &Template| {
            let parts = vec![part(Wanted::Mdt), part(Wanted::Striped(one.clone()))];
            Asked::Composite(CompositeTemplate { components: parts })
        };
        let open = Template { stripe_count: 3, ..Template::default() };
        let flash = Template { stripe_count: 5, pool: pool("flash"), ..Template::default() };
        let given = Template { pool: pool("flash"), ..open.clone() };
        for default in [Asked::Plain(flash.clone()), of(&flash)] {
            assert_eq!(of(&open).pooled(&default), of(&given));
            assert_eq!(Asked::Plain(open.clone()).pooled(&default), Asked::Plain(open.clone()));
        }
        let default = Asked::Plain(flash);
        for own in [
            Template { pool: pool("disk"), ..open.clone() },
            Template { pool: crate::pool::IGNORE, ..open.clone() },
            Template { start: 0, ..open.clone() },
            Template { stripe_count: 1, osts: vec![1], ..open.clone() },
        ] {
            assert_eq!(of(&own).pooled(&default), of(&own));
        }
        assert_eq!(of(&open).pooled(&Asked::default()), of(&open));
    }
}
