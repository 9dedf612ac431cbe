//! Bulk data that goes with a request, and the account of written bytes that are not known to be
//! durable.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env::BulkTicket;
use tokio::sync::Notify;

/// Written bytes that a target has not made durable.
#[derive(Default)]
pub(crate) struct Gauge {
    bytes: Cell<u64>,
    pub(crate) fell: Notify,
}

impl Gauge {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.get()
    }
}

/// A share in a [`Gauge`]; given back when dropped.
pub(crate) struct Unstable {
    bytes: u64,
    gauge: Rc<Gauge>,
}

impl Unstable {
    pub(crate) fn new(gauge: &Rc<Gauge>, bytes: usize) -> Unstable {
        let bytes = bytes as u64;
        gauge.bytes.set(gauge.bytes.get() + bytes);
        Unstable { bytes, gauge: Rc::clone(gauge) }
    }
}

impl Drop for Unstable {
    fn drop(&mut self) {
        assert!(self.bytes <= self.gauge.bytes(), "a share is part of its gauge");
        self.gauge.bytes.set(self.gauge.bytes.get() - self.bytes);
        self.gauge.fell.notify_waiters();
    }
}

/// What an import keeps beside a request.
#[derive(Default)]
pub(crate) struct BulkState {
    /// To be pulled.
    pub(crate) source: Vec<Bytes>,
    pub(crate) source_len: u32,
    /// Room for data to be pushed as bulk; zero where it comes inline.
    pub(crate) sink: u32,
    /// Id of the last send.
    pub(crate) id: u64,
    pub(crate) ticket: Option<BulkTicket>,
    /// Held until the request is forgotten.
    pub(crate) _unstable: Option<Unstable>,
}

/// One buffer from parts.
pub(crate) fn concat(parts: &[Bytes]) -> Bytes {
    match parts {
        [] => Bytes::new(),
        [one] => one.clone(),
        many => many.concat().into(),
    }
}
