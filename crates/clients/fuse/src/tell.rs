//! Answers about files, and how long the kernel may cache them.
//!
//! The kernel may cache an answer for long if a notification can make it forget it
//! ([`crate::recall`]). It may cache any other answer only for a moment, because a recall waits for
//! the end of that time.

use client::{Attr, Glance, Lease};
use fusedev::{Body, abi};
use types::{Fid, Instant};

use crate::convert::{self, Valid};
use crate::fs::Fs;
use crate::guard::Guard;
use crate::limits::{GUARDED_MAX, KERNEL_SLACK, NAMED_MAX, UNGUARDED_MAX};

/// Exact attributes, to be believed for no time.
pub(crate) fn exact(attr: Attr) -> Glance {
    Glance { attr, lease: Lease::default(), size_known: true }
}

impl Fs {
    /// Tells the kernel of a file, which it may not know yet, and that a name in a directory stands
    /// for it: counts a reference, lets it believe that for as long as the lease allows, and the
    /// attributes not at all where the size is not known.
    pub(crate) fn entry(&self, glance: &Glance, name: Option<(u64, &[u8])>) -> abi::EntryOut {
        let guard = if self.counts_evictions { Guard::Version } else { Guard::None };
        self.entry_guarded(glance, name, guard)
    }

    /// The same, where `guard` is what guards the attributes.
    pub(crate) fn entry_guarded(
        &self,
        glance: &Glance,
        name: Option<(u64, &[u8])>,
        guard: Guard,
    ) -> abi::EntryOut {
        let mut attr = glance.attr;
        let nodeid = self.nodes.borrow_mut().look_up(attr.fid(), attr.mode);
        self.nodes.borrow_mut().saw_times(&attr);
        self.nodes.borrow_mut().tell(&mut attr, glance.size_known);
        let attr_valid = self.believe_attr(glance, guard);
        let entry_valid = self.believe_name(glance, nodeid, name);
        abi::EntryOut {
            nodeid,
            generation: self.generations.of(nodeid).into(),
            attr: convert::attr(&attr, self.ino),
            attr_valid: attr_valid.secs,
            attr_valid_nsec: attr_valid.nanos,
            entry_valid: entry_valid.secs,
            entry_valid_nsec: entry_valid.nanos,
        }
    }

    pub(crate) fn attr(&self, glance: &Glance, guard: Guard) -> Body {
        let mut attr = glance.attr;
        self.nodes.borrow_mut().saw(attr.fid(), attr.mode);
        self.nodes.borrow_mut().saw_times(&attr);
        self.nodes.borrow_mut().tell(&mut attr, glance.size_known);
        Body::Attr(convert::attr_out(&attr, self.ino, self.believe_attr(glance, guard)))
    }

    /// For how long the kernel may believe the attributes, which it is about to be told.
    pub(crate) fn believe_attr(&self, glance: &Glance, guard: Guard) -> Valid {
        let fid = glance.attr.fid();
        let valid = match glance.size_known && !self.must_ask(fid, guard) {
            true => self.believe(fid, self.uncalled(glance.lease).attrs, guard),
            false => Valid::default(),
        };
        self.nodes.borrow_mut().heard(fid, self.env.now() + valid.span());
        valid
    }

    /// What is left of a lease: nothing of one that may have been called back before the kernel
    /// hears of it, or that a killed caller's change may end without a word to the kernel.
    fn uncalled(&self, lease: Lease) -> Lease {
        let may_be_told = self.client.may_be_told(lease) || self.bugs.tell_old_pages();
        if may_be_told { lease } else { Lease::default() }
    }

    /// The same of a name.
    fn believe_name(&self, glance: &Glance, nodeid: u64, name: Option<(u64, &[u8])>) -> Valid {
        let (fid, now) = (glance.attr.fid(), self.env.now());
        let end = self.uncalled(glance.lease).name;
        let lasting = name.filter(|(parent, name)| {
            let nodes = self.nodes.borrow();
            end > now + UNGUARDED_MAX
                && (!glance.attr.is_dir() || self.notifier.has_epochs())
                && self.notifier.tells_names()
                && nodes.names.has_room(nodeid, *parent, name)
                && !nodes.is_stuck(*parent, now)
        });
        let Some(name) = lasting else {
            if let Some(name) = name {
                self.nodes.borrow_mut().names.told_briefly(name, nodeid, now);
            }
            return self.believe(fid, end, Guard::Name);
        };
        let most = if self.notifier.has_epochs() { GUARDED_MAX } else { NAMED_MAX };
        let end = end.min(now + most);
        self.nodes.borrow_mut().names.told(name, nodeid, now, end);
        self.client.told_kernel(fid, end);
        self.validity(end, now)
    }

    /// For how long the kernel may believe what holds until `end`.
    fn believe(&self, fid: Fid, end: Instant, guard: Guard) -> Valid {
        let now = self.env.now();
        let most = match guard {
            Guard::None | Guard::Name => UNGUARDED_MAX,
            Guard::Version => GUARDED_MAX,
        };
        let end = end.min(now + most);
        let valid = self.validity(end, now);
        if !valid.is_none() {
            self.nodes.borrow_mut().told(fid, end, guard);
            self.client.told_kernel(fid, end);
        }
        valid
    }

    fn validity(&self, end: Instant, now: Instant) -> Valid {
        match self.bugs.believe_whole_leases() {
            true => convert::validity(end + KERNEL_SLACK, now),
            false => convert::validity(end, now),
        }
    }
}
