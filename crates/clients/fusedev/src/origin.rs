//! The transport that a request came by. Its answer must use the same one.

use std::rc::Rc;

use types::Errno;

use crate::device::Device;
use crate::reply::{Body, Reply};
use crate::uring::{EntryId, Ring};

#[derive(Clone)]
pub(crate) enum Origin {
    /// Read from the device.
    Device(Rc<Device>),
    /// In an entry of the ring, which is taken until it is answered.
    Ring(Rc<Ring>, EntryId),
    /// Handed over without a device.
    Direct(Rc<dyn Fn(&Reply)>),
}

impl Origin {
    /// Answers. Once for a request.
    pub(crate) fn reply(&self, unique: u64, reply: &Reply) {
        match self {
            Origin::Device(device) => device.reply(unique, reply),
            Origin::Ring(ring, entry) => ring.reply(*entry, reply),
            Origin::Direct(answer) => answer(reply),
        }
    }

    /// Gives back the entry of a request that has no answer. Linux sends such a FORGET for an entry
    /// of a READDIRPLUS that it cannot use, and waits with its directory locked.
    pub(crate) fn give_back(&self) {
        if let Origin::Ring(ring, entry) = self {
            ring.reply(*entry, &Ok(Body::Empty));
        }
    }

    /// Answers what could not even be read: an entry of a ring must come back, the device keeps no
    /// count.
    pub(crate) fn refuse(&self) {
        if let Origin::Ring(ring, entry) = self {
            ring.reply(*entry, &Err(Errno::EIO));
        }
    }
}
