//! A connection without a device: a model of the kernel hands over requests and receives the
//! answers. Simulation uses it.

use std::cell::Cell;
use std::rc::Rc;

use crate::connection::{Handler, LocalFuture};
use crate::op::{Header, Op};
use crate::origin::Origin;
use crate::reply::Reply;
use crate::request::{Interruptible, Replier, Request};

/// A handler and the requests that it has not answered.
pub struct Direct {
    handler: Rc<dyn Handler>,
    flights: Rc<Interruptible>,
    last: Cell<u64>,
}

impl Direct {
    #[must_use]
    pub fn new(handler: Rc<dyn Handler>) -> Direct {
        Direct { handler, flights: Rc::default(), last: Cell::new(0) }
    }

    /// Hands a request over, under a number of its own. The future is the handler's work, which may
    /// go on after `answer` was called.
    pub fn ask(&self, header: Header, op: Op, answer: impl Fn(&Reply) + 'static) -> LocalFuture {
        let unique = self.last.get() + 1;
        self.last.set(unique);
        let replier = Replier::new(Origin::Direct(Rc::new(answer)), self.flights.clone(), unique);
        self.flights.waits(unique, replier.slot.clone());
        self.handler.clone().handle(Request { header: Header { unique, ..header }, op, replier })
    }

    /// A signal comes for the caller of the last request.
    pub fn interrupt(&self) {
        self.flights.interrupt(self.last.get());
    }

    /// The kernel has dropped references to a node.
    pub fn forget(&self, nodeid: u64, nlookup: u64) {
        self.handler.forget(nodeid, nlookup);
    }

    /// Requests without an answer.
    #[must_use]
    pub fn under_way(&self) -> usize {
        self.flights.count()
    }
}
