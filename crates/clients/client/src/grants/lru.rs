//! How many grants a client keeps, and how long.

use types::Span;

/// Grants that a client keeps, and until when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lru {
    /// Files (Lustre: `lru_size`); what was used least goes first.
    pub size: u32,
    /// An unused grant goes after this (Lustre: `lru_max_age`).
    pub max_age: Span,
}

impl Default for Lru {
    fn default() -> Lru {
        Lru { size: ldlm::grants::LRU_SIZE, max_age: ldlm::grants::LRU_MAX_AGE }
    }
}
