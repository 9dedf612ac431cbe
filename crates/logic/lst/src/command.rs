//! The commands that `lst` sends to its console, and how it prints the answers.

use serde::{Deserialize, Serialize};
use types::{Nid, Span};
use wire::lst::{Kind, Stat};

use crate::NodeState;

/// A session to be made, by a console of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewSession {
    /// Its key at the console's node (`LST_SESSION`).
    pub key: u32,
    /// Name of the session.
    pub name: String,
    /// Time without commands after which it ends; zero never.
    pub timeout: Span,
    /// An older session of this key ends, and nodes leave other sessions for this one.
    pub force: bool,
    /// Port of the nodes.
    pub port: u16,
    /// Own address, where nodes should see a certain one.
    pub nid: Option<Nid>,
}

/// A command of `lst` to a running console.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Command {
    ShowSession,
    /// All nodes leave, the console ends.
    EndSession,
    /// Nodes join the session under the name of a group.
    AddGroup {
        name: String,
        nids: Vec<String>,
    },
    /// Nodes that no other group names leave.
    DelGroup {
        name: String,
    },
    /// Takes nodes out of a group or asks them again.
    UpdateGroup {
        name: String,
        /// Take out nodes in these states.
        clean: Vec<NodeState>,
        /// Ask nodes that are not active to join again.
        refresh: bool,
        remove: Option<String>,
    },
    /// Groups, or one's nodes.
    ListGroup {
        /// None: names of all.
        groups: Vec<String>,
        /// None: counts by state.
        states: Vec<NodeState>,
    },
    /// A batch without tests.
    AddBatch {
        name: String,
    },
    /// Batches, or one's tests.
    ListBatch {
        /// None: names of all.
        name: Option<String>,
        /// One of its tests.
        test: Option<u32>,
        /// Its nodes instead: sources.
        all: bool,
        /// Its nodes instead: destinations.
        server: bool,
    },
    /// A test between two groups.
    AddTest {
        batch: String,
        /// Requests of each loop.
        loops: Option<u32>,
        /// Loops for each pair.
        concurrency: u32,
        /// `D:S`.
        distribute: String,
        from: String,
        to: String,
        kind: Kind,
    },
    /// Start a batch.
    Run {
        batch: String,
        /// Seconds to wait for a node.
        timeout_secs: u32,
    },
    /// Stop a batch and wait until its loops have ended.
    Stop {
        batch: String,
        /// Without waiting for requests.
        force: bool,
    },
    /// Does a batch run?
    Query {
        batch: String,
        /// One of its tests; 0: all.
        test: u32,
        /// At its destinations.
        server: bool,
        /// Node by node.
        all: bool,
        /// Seconds to wait for a node.
        timeout_secs: u32,
    },
    Sample {
        /// Groups or NID lists.
        of: Vec<String>,
        /// Seconds to wait for a node.
        timeout_secs: u32,
    },
    ShowError {
        /// Groups or NID lists.
        of: Vec<String>,
        /// Of tests only.
        session: bool,
    },
    /// Are nodes alive in the session?
    Ping {
        /// Whose; all nodes of the session where nothing is named.
        group: Option<String>,
        /// Sources and destinations of this batch.
        batch: Option<String>,
        nodes: Option<String>,
    },
}

/// What a console answers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Answer {
    /// For stdout.
    pub out: String,
    /// For stderr.
    pub err: String,
    /// Exit status: zero, or an error number.
    pub status: i32,
    /// To [`Command::Sample`].
    pub samples: Vec<Sample>,
    /// The console ends behind this answer.
    pub ends: bool,
}

/// Counters of the nodes of a group or list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Sample {
    /// As it was asked for.
    pub name: String,
    /// By NID; none where a node did not answer.
    pub nodes: Vec<(u64, Option<Stat>)>,
}
