//! The requested striping of new files.

use crate::{LayoutError, OVERSTRIPES_MAX, POOL_BYTES, STRIPE_COUNT_MAX, error, pool};

/// Striping asked for by `setstripe`, or a directory's default for new files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Template {
    /// Bytes, 0: default.
    pub stripe_size: u32,
    /// Objects, 0: default, -1: one on every usable OST; if overstriped, -n: n on each.
    pub stripe_count: i32,
    /// Several objects may be on one OST, where the OSTs are too few.
    pub overstriped: bool,
    /// OST of the first stripe, -1: any.
    pub start: i32,
    /// Pool to take OSTs from, NUL padded. Zeros: default, [`pool::IGNORE`]: none.
    pub pool: [u8; POOL_BYTES],
    /// Exactly these OSTs, in this order; empty: the server chooses.
    pub osts: Vec<u32>,
}

impl Default for Template {
    fn default() -> Template {
        Template {
            stripe_size: 0,
            stripe_count: 0,
            overstriped: false,
            start: -1,
            pool: [0; POOL_BYTES],
            osts: Vec::new(),
        }
    }
}

impl Template {
    /// Asks for nothing in particular: setting it on a directory removes the directory's own
    /// default.
    #[must_use]
    pub fn is_default(&self) -> bool {
        *self == Template::default()
    }

    /// Whether every field is within its bounds.
    pub fn check(&self) -> Result<(), LayoutError> {
        if self.stripe_size != 0 {
            error::check_stripe_size(self.stripe_size)?;
        }
        let least = if self.overstriped { -i32::from(OVERSTRIPES_MAX) } else { -1 };
        if !(least..=i32::from(STRIPE_COUNT_MAX)).contains(&self.stripe_count) {
            return Err(LayoutError::StripeCount(i64::from(self.stripe_count)));
        }
        if !(-1..=types::TARGET_INDEX_MAX as i32).contains(&self.start) {
            return Err(LayoutError::OstIndex(i64::from(self.start)));
        }
        error::check_osts(&self.osts)?;
        error::check_pool(&self.pool)?;
        self.check_list()
    }

    /// A list of OSTs is the stripe count, and its first is the start.
    fn check_list(&self) -> Result<(), LayoutError> {
        let Some(first) = self.osts.first() else { return Ok(()) };
        let count = self.osts.len();
        let bounded = count <= usize::from(STRIPE_COUNT_MAX);
        if !bounded || (self.stripe_count != 0 && usize::try_from(self.stripe_count) != Ok(count)) {
            return Err(LayoutError::OstCount {
                stripes: i64::from(self.stripe_count),
                osts: count,
            });
        }
        let listed = self.start < 0 || self.osts.contains(&self.start.unsigned_abs());
        if listed { Ok(()) } else { Err(LayoutError::OstIndex(i64::from(*first))) }
    }

    /// This, with `fallback` where it asks for nothing: file, then directory, then root, then the
    /// file system's own. A list of OSTs excludes any start or count from elsewhere.
    #[must_use]
    pub fn or(&self, fallback: &Template) -> Template {
        let own_place = !self.osts.is_empty() || self.start >= 0;
        let own_count = self.stripe_count != 0 || !self.osts.is_empty();
        let own_pool = self.pool != [0; POOL_BYTES];
        Template {
            stripe_size: if self.stripe_size == 0 {
                fallback.stripe_size
            } else {
                self.stripe_size
            },
            stripe_count: if own_count { self.stripe_count } else { fallback.stripe_count },
            overstriped: if own_count { self.overstriped } else { fallback.overstriped },
            start: if own_place || own_pool { self.start } else { fallback.start },
            pool: if own_pool || own_place { self.pool } else { fallback.pool },
            osts: if own_place || own_count || own_pool {
                self.osts.clone()
            } else {
                fallback.osts.clone()
            },
        }
    }

    /// Whether it asks for no pool, whatever the default says.
    #[must_use]
    pub fn ignores_pool(&self) -> bool {
        self.pool == pool::IGNORE
    }

    /// As a file has it: a request for no pool names none.
    #[must_use]
    pub fn settled(mut self) -> Template {
        if self.ignores_pool() {
            self.pool = [0; POOL_BYTES];
        }
        self
    }

    /// Pool's name as text, empty if none, `ignore` for [`pool::IGNORE`].
    #[must_use]
    pub fn pool_name(&self) -> String {
        pool_name(&self.pool)
    }
}

/// The text in a NUL-padded name.
pub(crate) fn pool_name(pool: &[u8; POOL_BYTES]) -> String {
    let end = pool.iter().position(|byte| *byte == 0).unwrap_or(POOL_BYTES);
    String::from_utf8_lossy(&pool[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fields_not_asked_for_come_from_the_fallback() {
        let file = Template { stripe_count: 4, ..Template::default() };
        let root = Template { stripe_size: 1 << 20, stripe_count: 2, ..Template::default() };
        assert_eq!(
            file.or(&root),
            Template { stripe_size: 1 << 20, stripe_count: 4, ..Template::default() }
        );
        assert_eq!(Template::default().or(&root), root);
        let list = Template { osts: vec![3, 1], ..Template::default() };
        let merged = list.or(&root);
        assert_eq!(
            (merged.stripe_count, merged.osts.clone(), merged.check()),
            (0, vec![3, 1], Ok(()))
        );
        let counted = Template { stripe_count: 1, ..Template::default() }.or(&list);
        assert_eq!((counted.osts.len(), counted.check()), (0, Ok(())));
    }

    #[test]
    fn no_pool_can_be_asked_for_against_the_default() {
        let pool = *b"flash\0\0\0\0\0\0\0\0\0\0\0";
        let flash = Template { stripe_count: 2, pool, ..Template::default() };
        let none = Template { pool: pool::IGNORE, ..Template::default() };
        assert_eq!((none.check(), Template::decode(&none.encode())), (Ok(()), Ok(none.clone())));
        let merged = none.or(&flash).or(&flash);
        assert_eq!((merged.stripe_count, merged.pool_name().as_str()), (2, "ignore"));
        assert_eq!(merged.settled().pool_name(), "");
        assert_eq!(flash.clone().settled(), flash);
    }

    #[test]
    fn bounds_are_told_by_name() {
        let with = |change: fn(&mut Template)| {
            let mut template = Template::default();
            change(&mut template);
            template.check()
        };
        assert_eq!(with(|t| t.stripe_size = 65_537), Err(LayoutError::StripeSize(65_537)));
        assert_eq!(with(|t| t.stripe_count = 2_001), Err(LayoutError::StripeCount(2_001)));
        assert_eq!(with(|t| t.stripe_count = -2), Err(LayoutError::StripeCount(-2)));
        assert_eq!(with(|t| t.start = 0xffff), Err(LayoutError::OstIndex(0xffff)));
        assert_eq!(with(|t| t.pool = *b"a pool\0\0\0\0\0\0\0\0\0\0"), Err(LayoutError::Pool));
        assert_eq!(
            with(|t| (t.osts, t.stripe_count) = (vec![1], 2)),
            Err(LayoutError::OstCount { stripes: 2, osts: 1 })
        );
        assert_eq!(with(|t| t.stripe_count = -1), Ok(()));
        assert_eq!(with(|t| (t.stripe_count, t.overstriped) = (-32, true)), Ok(()));
        let error = Err(LayoutError::StripeCount(-33));
        assert_eq!(with(|t| (t.stripe_count, t.overstriped) = (-33, true)), error);
    }
}
