//! Buckets that several classes and partitions share.
//!
//! A bucket lives as long as a class of any partition is attached to it. The partitions of a
//! service share one set of buckets, and all services of a node share another. Each set is one
//! value behind an `Rc`, because the partitions of a process run on one executor thread.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use queues::{NIL, Slab, Vacant};
use types::Instant;

use super::bucket::{Bucket, Pace};
use super::fields::Key;
use super::grammar::Name;

/// What a bucket is for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Owner {
    /// A rule in one partition (its index).
    Cpt(u32, u64),
    /// A rule of a service.
    Service(u64),
    /// All rules of one name and pace on the node. Rules of one name whose paces differ have
    /// buckets of their own: each class of one would fill the bucket for those of the other.
    /// Behind a pointer, because this is the rarest kind.
    Node(Rc<(Name, Pace)>),
}

struct Held {
    bucket: Bucket,
    owner: Owner,
    key: Key,
    classes: u32,
    vacant: u32, // of a vacant place: the next one
}

impl Vacant for Held {
    fn vacant() -> Held {
        let bucket = Bucket::new(Pace::NONE, Instant(0));
        Held { bucket, owner: Owner::Service(0), key: Key::default(), classes: 0, vacant: NIL }
    }
    fn link(&mut self) -> &mut u32 {
        &mut self.vacant
    }
}

/// Buckets by what they are for.
#[derive(Default)]
pub(crate) struct Buckets {
    by_key: BTreeMap<(Owner, Key), u32>,
    held: Slab<Held>,
}

pub(crate) type Shared = Rc<RefCell<Buckets>>;

/// Where a class's bucket is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct BucketRef {
    /// In the node's set, or in the service's.
    pub(crate) on_node: bool,
    slot: u32,
}

impl BucketRef {
    /// Of a class that has not been attached yet.
    pub(crate) const NONE: BucketRef = BucketRef { on_node: false, slot: NIL };
}

impl Buckets {
    /// Attaches one more class; the bucket takes `pace` if it had another one.
    pub(crate) fn attach(&mut self, owner: Owner, key: Key, pace: Pace, now: Instant) -> BucketRef {
        let on_node = matches!(owner, Owner::Node(_));
        let of = (owner, key);
        if let Some(slot) = self.by_key.get(&of).copied() {
            let held = self.held.get_mut(slot);
            held.classes += 1;
            held.bucket.set_pace(pace, now);
            return BucketRef { on_node, slot };
        }
        let slot = self.held.insert(Held {
            bucket: Bucket::new(pace, now),
            owner: of.0.clone(),
            key,
            classes: 1,
            vacant: NIL,
        });
        self.by_key.insert(of, slot);
        BucketRef { on_node, slot }
    }

    /// Detaches a class; the last one takes the bucket with it.
    pub(crate) fn detach(&mut self, at: BucketRef) {
        // nobody's only before a class is attached, or where a policy panicked in between
        if self.held.find(at.slot).is_none_or(|held| held.classes == 0) {
            return;
        }
        let held = self.held.get_mut(at.slot);
        held.classes -= 1;
        if held.classes == 0 {
            let Held { owner, key, .. } = self.held.remove(at.slot);
            self.by_key.remove(&(owner, key));
        }
    }

    #[inline]
    pub(crate) fn get_mut(&mut self, at: BucketRef) -> &mut Bucket {
        &mut self.held.get_mut(at.slot).bucket
    }

    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        self.by_key.len()
    }
}
