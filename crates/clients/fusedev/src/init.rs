//! The outcome of the negotiation with the kernel.

use crate::abi::{self, cap};
use crate::mount::Channel;

/// Pages in one request where the kernel does not negotiate them.
pub(crate) const PAGES_DEFAULT: u32 = 32;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InitInfo {
    /// Minor version of the protocol, the lower of both sides'.
    pub minor: u32,
    pub capabilities: u64,
    pub max_write: u32,
    pub max_readahead: u32,
}

impl InitInfo {
    /// Whether a capability is in force.
    #[must_use]
    pub fn has(&self, capability: u64) -> bool {
        self.capabilities & capability == capability
    }

    /// By which way requests come: never [`Channel::Auto`].
    #[must_use]
    pub fn transport(&self) -> Channel {
        if self.has(cap::OVER_IO_URING) { Channel::Uring } else { Channel::Classic }
    }

    /// Whether the kernel can be told of names while the process may be killed.
    pub(crate) fn tells_names(&self) -> bool {
        self.transport() == Channel::Classic
    }

    /// What a ring entry must hold, by the kernel's own rule.
    pub(crate) fn payload_size(&self) -> usize {
        let pages = PAGES_DEFAULT as usize * rustix::param::page_size();
        abi::MIN_READ_BUFFER.max(pages).max(self.max_write as usize)
    }
}
