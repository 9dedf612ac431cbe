//! Numbers of requests.
//!
//! - An xid names one request of its client for ever, over all imports and restarts of the client.

use std::cell::Cell;
use std::rc::Rc;

use types::Xid;

use crate::limits;

/// Draws xids; shared by the imports of one endpoint, so that an xid names one request of the whole
/// endpoint. The low bits name the lane, that is the import: a reply finds its way without a table.
#[derive(Clone, Debug)]
pub struct XidSource {
    counter: Rc<Cell<u64>>,
    lane: u64,
}

impl XidSource {
    /// Lane 0 of a new endpoint that starts at `wall_secs` (since 1970): its xids are above those
    /// of a former life of the same client, as long as that drew fewer than a million a second.
    #[must_use]
    pub fn new(wall_secs: u64) -> XidSource {
        let first = ((wall_secs & 0x7fff_ffff) << 20).max(1);
        XidSource { counter: Rc::new(Cell::new(first)), lane: 0 }
    }

    /// The same counter, drawing for another import.
    #[must_use]
    pub fn lane(&self, lane: u32) -> XidSource {
        assert!(lane < limits::LANES_MAX, "the endpoint bounds its imports");
        XidSource { counter: Rc::clone(&self.counter), lane: u64::from(lane) }
    }

    /// Which import drew `xid`.
    #[must_use]
    pub fn lane_of(xid: Xid) -> u32 {
        (xid.0 % u64::from(limits::LANES_MAX)) as u32
    }

    #[must_use]
    pub fn draw(&self) -> Xid {
        let count = self.counter.get();
        self.counter.set(count + 1);
        Xid(count * u64::from(limits::LANES_MAX) + self.lane)
    }
}
