//! A simulated device, slower than the real one, and the waits of the target's tasks for it.
//!
//! The effect of a scheduler or a layout is visible only where requests wait for something. With a
//! device of [`device::Model`], object I/O, committed records and syncs wait here. They hold the
//! slots of their service, and others wait behind them in its NRS heads, as with a real device.
//! Without such a device nothing waits.

use std::cell::RefCell;
use std::rc::Rc;

use device::{Kind, Model, Request, Stats, Ticket};
use env::Env;
use osd::ObjStore;
use tokio::sync::{Notify, oneshot};
use types::{Extent, Fid};

/// Objects begin at places that are multiples of this, where the store does not say where they are.
const REGION_BYTES: u64 = 64 << 20;
/// Over how many bytes places are spread where a store does not know its size.
const STORE_BYTES: u64 = 1 << 40;

struct Queue {
    env: Env,
    device: device::Device,
    waiters: Vec<(Ticket, oneshot::Sender<()>)>,
}

#[derive(Default)]
struct Shared {
    queue: RefCell<Option<Queue>>,
    submitted: Notify,
}

#[derive(Default)]
struct Inner {
    shared: Rc<Shared>,
    /// Ends the others' waits.
    task: RefCell<Option<env::Task>>,
}

/// The device of one target, if it has one.
#[derive(Default)]
pub struct Device(RefCell<Rc<Inner>>);

impl Device {
    /// Two targets are on one storage: whatever is set, asked or done here is so there as well.
    pub fn join(&self, other: &Device) {
        let other = other.inner();
        self.0.replace(other);
    }

    fn inner(&self) -> Rc<Inner> {
        Rc::clone(&self.0.borrow())
    }

    fn shared(&self) -> Rc<Shared> {
        Rc::clone(&self.0.borrow().shared)
    }

    /// Puts a device in place of the one that is there, over a store of `store_bytes` (zero where
    /// that is not known). What waits for the old one goes on at once.
    pub fn set(&self, env: &Env, store_bytes: u64, model: Option<Model>) {
        let is_there = model.is_some();
        let size = if store_bytes == 0 { STORE_BYTES } else { store_bytes };
        let queue = model.map(|model| Queue {
            env: env.clone(),
            device: device::Device::new(model, size),
            waiters: Vec::new(),
        });
        let inner = self.inner();
        drop(inner.shared.queue.replace(queue));
        inner.shared.submitted.notify_one();
        if is_there && inner.task.borrow().is_none() {
            let (shared, env) = (Rc::clone(&inner.shared), env.clone());
            let task = env.clone().spawn("device", async move { drive(&env, &shared).await });
            inner.task.replace(Some(task));
        }
    }

    /// As [`Model::parse`] reads it.
    #[must_use]
    pub fn told(&self) -> String {
        let shared = self.shared();
        let queue = shared.queue.borrow();
        queue.as_ref().map_or("off".to_owned(), |queue| queue.device.model().to_string())
    }

    /// The numbers of the device that is there.
    #[must_use]
    pub fn model(&self) -> Option<Model> {
        self.shared().queue.borrow().as_ref().map(|queue| queue.device.model().clone())
    }

    /// What it has done since it was set.
    #[must_use]
    pub fn stats(&self) -> Option<Stats> {
        let shared = self.shared();
        let queue = shared.queue.borrow();
        queue.as_ref().map(|queue| queue.device.stats(queue.env.now()))
    }

    /// Waits until the device has read or written `range` of `object`.
    pub async fn object(&self, kind: Kind, store: &dyn ObjStore, object: Fid, range: Extent) {
        let Some(size) = self.places() else { return };
        let place = match size {
            None => 0,
            Some(size) => match store.locate(object, range).await {
                Ok(Some(place)) => place,
                _ => region(object, size) + range.start(),
            },
        };
        self.wait(Request { kind, place, bytes: range.end() - range.start() }).await;
    }

    /// Waits until the device has written so many bytes of records, one behind the other, and made
    /// durable what came before.
    pub async fn commit(&self, bytes: u64) {
        if self.shared().queue.borrow().is_none() {
            return;
        }
        if bytes > 0 {
            self.wait(Request { kind: Kind::Write, place: 0, bytes }).await;
        }
        self.wait(Request { kind: Kind::Sync, place: 0, bytes: 0 }).await;
    }

    /// Of a device: over how many bytes its places are spread, where they matter.
    fn places(&self) -> Option<Option<u64>> {
        let shared = self.shared();
        let queue = shared.queue.borrow();
        let device = &queue.as_ref()?.device;
        Some(device.model().has_arm().then(|| device.size()))
    }

    async fn wait(&self, request: Request) {
        let (done, wait) = oneshot::channel();
        let shared = self.shared();
        {
            let mut queue = shared.queue.borrow_mut();
            let Some(Queue { env, device, waiters }) = &mut *queue else { return };
            let ticket = device.submit(request, env.now());
            waiters.push((ticket, done));
        }
        shared.submitted.notify_one();
        drop(shared);
        let _gone = wait.await; // an error: the device was taken away
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if let Some(task) = self.task.take() {
            task.abort();
        }
    }
}

/// Where an object is taken to be that the store cannot place.
fn region(object: Fid, size: u64) -> u64 {
    let mixed = (object.seq ^ u64::from(object.oid).rotate_left(32) ^ u64::from(object.ver))
        .wrapping_mul(0x9E37_79B9_7F4A_7C15);
    (mixed >> 16) % (size / REGION_BYTES).max(1) * REGION_BYTES
}

/// Wakes those whose requests are done.
async fn drive(env: &Env, shared: &Shared) {
    loop {
        let next = match &mut *shared.queue.borrow_mut() {
            None => None,
            Some(Queue { device, waiters, .. }) => {
                device.handle_timeout(env.now());
                while let Some(ticket) = device.poll_done() {
                    let at = waiters.iter().position(|(waits, _)| *waits == ticket);
                    let (_, done) = waiters.swap_remove(at.expect("each is done once"));
                    let _ = done.send(()); // whoever waited may be gone
                }
                device.poll_timeout()
            }
        };
        match next {
            None => shared.submitted.notified().await,
            Some(at) => {
                let submitted = shared.submitted.notified();
                let _in_time = env.timeout_at(at, submitted).await;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use env_sim::{Sim, SimConfig};
    use osd::mem::{MemDisk, MemDiskConfig, MemObjects};
    use types::Span;

    const OBJECT: Fid = Fid { seq: 0x2_0000_0500, oid: 9, ver: 1 };

    fn range(offset: u64, len: u64) -> Extent {
        Extent::new(offset, offset + len).expect("not empty")
    }

    #[test]
    fn what_waits_for_a_disk_takes_its_time_and_goes_on_when_it_is_taken_away() {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("oss", "10.0.0.1@tcp".parse().expect("a NID"));
        let env = node.env();
        sim.block_on(&node, async move {
            let store = MemObjects::open(&env, &MemDisk::new(MemDiskConfig::default()));
            let device = Device::default();
            let write = async |gib: u64| {
                let begin = env.now();
                device.object(Kind::Write, &store, OBJECT, range(gib << 30, 4096)).await;
                env.now() - begin
            };
            assert_eq!(
                (write(0).await, device.stats(), device.told()),
                (Span::ZERO, None, "off".into())
            );

            device.set(&env, 0, Some(Model::disk()));
            write(0).await;
            for gib in [1, 2, 3] {
                let took = write(gib).await;
                assert!((Span::millis(4)..Span::millis(12)).contains(&took), "{took:?}");
            }
            let begin = env.now();
            device.commit(1 << 20).await;
            assert!(env.now() - begin > Span::millis(16), "8 for the bytes, 8 for the sync");
            let stats = device.stats().expect("it is there");
            assert_eq!((stats.done, stats.bytes), ([0, 5, 1], [0, 4 * 4096 + (1 << 20)]));
            assert_eq!(device.told(), "disk");

            let taken = async {
                env.sleep(Span::millis(1)).await;
                device.set(&env, 0, None);
            };
            let begin = env.now();
            tokio::join!(write(9), taken);
            assert!(env.now() - begin < Span::millis(2), "not 8");
            assert_eq!(write(0).await, Span::ZERO);

            let beside = Device::default();
            beside.join(&device);
            beside.set(&env, 0, Some(Model::disk()));
            let begin = env.now();
            tokio::join!(write(1), beside.commit(0));
            assert!(env.now() - begin > Span::millis(12), "one after the other");
            assert_eq!(device.stats(), beside.stats());
            assert_eq!(device.stats().expect("it is there").done, [0, 1, 1]);
        });
    }
}
