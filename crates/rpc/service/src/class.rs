//! A target's description of a request when it arrives: where it queues and which data it moves.

use types::{Extent, Fid};

use crate::ServiceSpec;
#[cfg(doc)]
use crate::limits;
use crate::limits::ANSWER_BYTES_ONE_MAX;

/// Where a request queues, and the object data that it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Class {
    /// Which service handles it.
    pub service: &'static ServiceSpec,
    /// Whether it goes to the high-priority head.
    pub high_priority: bool,
    /// For a read or a write of object data: what it moves.
    pub io: Option<ObjectIo>,
    /// Most that its answer may hold, where that is more than [`limits::ANSWER_BYTES_SMALL`]; what
    /// it reads of an object not counted.
    pub answer_bytes: u64,
}

impl Class {
    /// In the regular head of `service`, moving no object data.
    #[must_use]
    pub const fn of(service: &'static ServiceSpec) -> Class {
        Class { service, high_priority: false, io: None, answer_bytes: 0 }
    }

    /// The same, with an answer of at most so many bytes.
    #[must_use]
    pub const fn answering(self, bytes: u64) -> Class {
        Class { answer_bytes: bytes, ..self }
    }

    /// Most that its answer may hold, with what it reads: no more than a message holds, whatever
    /// its client asks for.
    pub(crate) fn answer(&self) -> u64 {
        let reads = self.io.as_ref().filter(|io| io.direction == Direction::Read);
        let read = reads.map_or(0, |io| io.bytes);
        self.answer_bytes.saturating_add(read).min(ANSWER_BYTES_ONE_MAX)
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::spec;

    #[test]
    fn no_answer_is_larger_than_a_message() {
        let reads =
            |bytes| ObjectIo { direction: Direction::Read, object: Fid::ROOT, range: None, bytes };
        let class = Class::of(&spec::OST_IO).answering(u64::from(u32::MAX));
        assert_eq!(class.answer(), ANSWER_BYTES_ONE_MAX);
        let class = Class { io: Some(reads(u64::MAX)), ..class };
        assert_eq!(class.answer(), ANSWER_BYTES_ONE_MAX);
        let class = Class { io: Some(reads(4_096)), ..Class::of(&spec::OST_IO).answering(100) };
        assert_eq!(class.answer(), 4_196);
    }
}
