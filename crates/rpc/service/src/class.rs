//! What a target says of a request when it arrives: where it queues, which data it moves.

use types::{Extent, Fid};

use crate::ServiceSpec;

/// Where a request queues, and the object data that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Which service handles it.
    pub service: &'static ServiceSpec,
    /// Whether it goes to the high-priority head.
    pub high_priority: bool,
    /// For a read or a write of object data: what it moves.
    pub io: Option<ObjectIo>,
}

impl Class {
    /// In the regular head of `service`, moving no object data.
    #[must_use]
    pub const fn of(service: &'static ServiceSpec) -> Class {
        Class { service, high_priority: false, io: None }
    }
}

/// Data of one object that a request asks to read or write. Policies order requests by it and
/// statistics count it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ObjectIo {
    /// Which way the data goes.
    pub direction: Direction,
    pub object: Fid,
    /// From its first to behind its last byte; nothing for no bytes or an offset out of range.
    pub range: Option<Extent>,
    /// How many bytes the request asks for.
    pub bytes: u64,
}

/// Which way data goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// To the client.
    Read,
    /// To the object.
    Write,
}
