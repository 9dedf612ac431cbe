//! Control messages of the LNet self-test, encoded with postcard: a console's requests to a node,
//! and the node's answers.
//!
//! [`Control`] is buffer 0 of [`crate::Opcode::LstControl`], and [`Told`] is buffer 0 of its reply.

use serde::{Deserialize, Serialize};

/// A session, all over the network.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SessionId {
    /// NID of the console's node, `0@lo` where it does not know its own.
    pub console: u64,
    /// Drawn at random, never zero.
    pub stamp: u64,
}

/// What a console wants of a node.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Control {
    /// The session that the console means; others refuse.
    pub session: SessionId,
    /// What the console wants.
    pub ask: Ask,
}

/// See [`Control`].
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Ask {
    /// Take part in the session.
    Join {
        /// Name that the console gave the session.
        name: String,
        /// Leave any other session for this one.
        force: bool,
    },
    /// Take part no longer: everything stops.
    Leave,
    /// Are you there, and in which session?
    Ping,
    /// Be ready for a test.
    AddTest {
        /// Batch that it belongs to.
        batch: String,
        /// Number within the batch, from 1.
        test: u32,
        /// The load of the test.
        spec: TestSpec,
        /// With whom; empty: serve it.
        with: Vec<At>,
    },
    /// Start the tests of a batch.
    Run {
        /// Name of the batch.
        batch: String,
    },
    /// Stop the tests of a batch.
    Stop {
        /// Name of the batch.
        batch: String,
        /// Do not wait for requests that are under way.
        force: bool,
    },
    /// How many loops run?
    Query {
        /// Name of the batch.
        batch: String,
        /// One of its tests; 0: all.
        test: u32,
    },
    /// All counters.
    Stat,
}

/// Where a node answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct At {
    /// NID of the node.
    pub nid: u64,
    /// TCP port on which it listens.
    pub port: u16,
}

/// What each loop of a test does, and how many run at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TestSpec {
    /// What each loop does.
    pub kind: Kind,
    /// Requests of each loop; none: until it is stopped.
    pub loops: Option<u32>,
    /// Loops for each pair of source and destination.
    pub concurrency: u32,
}

/// What a loop does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Kind {
    /// The smallest request and reply.
    Ping,
    /// A transfer.
    Brw {
        /// Towards the destination.
        write: bool,
        /// How the receiver looks at the data.
        check: Check,
        /// Bytes of one transfer.
        size: u32,
        /// Offset of the first byte in its page.
        offset: u32,
    },
}

/// How the receiver looks at the data.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Check {
    /// The data is not checked.
    None,
    /// At both ends of each page.
    Simple,
    /// At every eight bytes.
    Full,
    /// At every eight bytes of a content that depends on sender and sequence: swapped pages are
    /// seen too.
    Crc,
    /// It drops them unread.
    Discard,
}

impl Check {
    /// As [`crate::body::LstBrwReq::check`] carries it.
    #[must_use]
    pub fn to_u32(self) -> u32 {
        match self {
            Check::None => 0,
            Check::Simple => 1,
            Check::Full => 2,
            Check::Crc => 3,
            Check::Discard => 4,
        }
    }

    /// The sort of this number; none if it is unknown.
    #[must_use]
    pub fn from_u32(value: u32) -> Option<Check> {
        [Check::None, Check::Simple, Check::Full, Check::Crc, Check::Discard]
            .into_iter()
            .find(|check| check.to_u32() == value)
    }

    /// Whether it looks at the data at all.
    #[must_use]
    pub fn looks(self) -> bool {
        matches!(self, Check::Simple | Check::Full | Check::Crc)
    }
}

/// A node's answer.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Told {
    /// It was done; there is nothing to say.
    Done,
    /// The node is in another session.
    Busy {
        /// That session's name.
        name: String,
        /// The session that the node is in.
        session: SessionId,
    },
    /// The node is in no session: it was restarted, or heard nothing for too long.
    NoSession,
    /// It will not, error number.
    Refused(i32),
    /// To [`Ask::Query`]: loops that run, and one for each running test that the node serves.
    Running(u32),
    /// To [`Ask::Stat`].
    Stat(Box<Stat>),
}

/// Counters of a node; those of tests begin with its session.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Stat {
    /// The node's clock, nanoseconds.
    pub now_ns: u64,
    /// Messages of the whole node.
    pub net: Net,
    /// Transfers whose data was wrong.
    pub brw_errors: u64,
    /// Pings whose answer was wrong.
    pub ping_errors: u64,
    /// Requests that failed.
    pub rpc_errors: u64,
    /// Requests of strangers, dropped.
    pub rpc_dropped: u64,
    /// Requests without an answer in time.
    pub rpc_expired: u64,
    /// Loops that run.
    pub running: u32,
    /// Finished requests: pings, reads, writes.
    pub done: [Done; 3],
}

/// LNet messages and their bytes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Net {
    /// Messages sent.
    pub send_count: u64,
    /// Messages received.
    pub recv_count: u64,
    /// Bytes sent, headers of frames left out.
    pub send_bytes: u64,
    /// Bytes received.
    pub recv_bytes: u64,
}

/// Finished requests of one kind.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Done {
    /// Requests that ended.
    pub count: u64,
    /// Their data, bytes.
    pub bytes: u64,
    /// How long they took: buckets of the latency histogram that hold any, and how many.
    pub latency: Vec<(u16, u64)>,
}
