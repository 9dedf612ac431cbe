//! How long an answer holds, and what it grants.

use ldlm::grants::{Bits, Kind};
use types::{Instant, Span};
use wire::body::CALLED_BACK;

/// Links, times, mode, owner: what a getattr tells.
pub(super) const STAT: Bits = Bits::UPDATE.union(Bits::PERM).union(Bits::LAYOUT);

/// All that attributes tell: whether there are extended ones too.
pub(super) const ATTRS: Bits = STAT.union(Bits::XATTR);

/// The same, and that the name stands for the file.
pub(super) const NAMED: Bits = ATTRS.union(Bits::LOOKUP);

/// Until when, by this client's clock, the servers promise that no other client changes what an
/// answer told.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Lease {
    /// The attributes; of a directory its entries too.
    pub attrs: Instant,
    /// That the name stands for this file.
    pub name: Instant,
    /// How often anything had been called back or in doubt by then.
    pub(super) recalls: u64,
}

impl Lease {
    /// Of attributes that were made of two answers, this one and `other`.
    pub(crate) fn and(self, other: Lease) -> Lease {
        let attrs = self.attrs.min(other.attrs);
        Lease { attrs, name: self.name, recalls: self.recalls.min(other.recalls) }
    }

    /// Of a name by this answer, and the attributes of its file by `attrs`.
    pub(crate) fn naming(self, attrs: Lease) -> Lease {
        let recalls = self.recalls.min(attrs.recalls);
        Lease { attrs: attrs.attrs, name: self.name, recalls }
    }

    /// The attributes alone may be old.
    pub(crate) fn without_attrs(self) -> Lease {
        Lease { attrs: NEVER, ..self }
    }
}

/// What an answer grants of a file, or of a name.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Gift {
    /// Nothing.
    #[default]
    None,
    /// For so long from when it was asked for.
    Timed(Span),
    /// Until it is called back.
    Called,
}

impl Gift {
    /// As it travels.
    pub(crate) fn of(ms: u32) -> Gift {
        match ms {
            0 => Gift::None,
            CALLED_BACK => Gift::Called,
            ms => Gift::Timed(Span::millis(u64::from(ms))),
        }
    }

    pub(super) fn kind(self) -> Option<Kind> {
        match self {
            Gift::None => None,
            Gift::Timed(_) => Some(Kind::Timed),
            Gift::Called => Some(Kind::Recall),
        }
    }
}

/// What a change of a file's data affects.
pub(super) const DATA: Bits = Bits::CACHE;

/// Not at all.
pub(super) const NEVER: Instant = Instant(0);
