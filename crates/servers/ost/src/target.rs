//! One OST being served: its parts, its start and its end.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use env::{Env, Task};
use osd::{MetaStore, ObjStore, StoreError, Table, WriteSet};
use service::{Exports, Incoming};
use target::{Marks, Pace, StartError, Store};
use tokio::sync::Mutex;
use types::{Errno, Extent, Fid, Instant, TargetId};

use crate::OstConfig;
use crate::fences::{Fences, UnderWay};
use crate::limits::{READCACHE_FILE_BYTES_DEFAULT, SPACE_UNIT};
use crate::locks::Locks;
use crate::mdts::Mdts;
use crate::owners::Owners;
use crate::reserve::Reserved;
use crate::sizes::Sizes;
use crate::swept::Listed;
use crate::tally::Tally;
use crate::tombstones::Tombstones;

/// One OST being served.
pub struct Ost {
    pub(crate) env: Env,
    pub(crate) config: OstConfig,
    pub(crate) store: Store,
    pub(crate) objects: Rc<dyn ObjStore>,
    pub(crate) exports: Rc<Exports>,
    pub(crate) locks: Locks,
    pub(crate) owners: Owners,
    pub(crate) tombstones: RefCell<Tombstones>,
    pub(crate) fences: RefCell<Fences>,
    pub(crate) mdts: RefCell<Mdts>,
    pub(crate) under_way: UnderWay,
    /// Room that is reserved for clients.
    pub(crate) reserved: RefCell<Reserved>,
    /// The first change that it saw since it is read-only.
    pub(crate) read_only_since: Cell<Option<Instant>>,
    /// What sweeps under way know of the store.
    pub(crate) listed: RefCell<Vec<Listed>>,
    /// Listings of the store since the start.
    pub(crate) listings: Cell<u64>,
    pub(crate) pace: Rc<Pace>,
    pub(crate) tally: Tally,
    pub(crate) sizes: RefCell<Sizes>,
    /// What its administrator said of it.
    pub(crate) marks: Marks,
    pub(crate) dirty_data: Cell<u64>,
    /// Largest object of which large reads stay in the page cache.
    pub(crate) readcache_max: Cell<u64>,
    pub(crate) committing: Mutex<()>,
    pub(crate) commit_task: RefCell<Option<Task>>,
}

/// A change that takes room which is not reserved for it, until it is made.
pub(crate) struct Taking<'o> {
    reserved: &'o RefCell<Reserved>,
    bytes: u64,
}

impl Drop for Taking<'_> {
    fn drop(&mut self) {
        self.reserved.borrow_mut().ended(self.bytes);
    }
}

/// What a disk may take for so many bytes at any offset.
fn room_of(bytes: u64) -> u64 {
    (bytes / SPACE_UNIT + 2).saturating_mul(SPACE_UNIT)
}

impl Ost {
    /// Boots: raises the epoch durably, reads what is known of clients, starts committing.
    pub async fn start(
        env: &Env,
        config: OstConfig,
        meta: Rc<dyn MetaStore>,
        objects: Rc<dyn ObjStore>,
    ) -> Result<Rc<Ost>, StartError> {
        let booted = crate::boot::boot(env, &config, &*meta).await?;
        let ost = Rc::new(Ost {
            env: env.clone(),
            pace: Pace::new(config.commit_interval),
            store: Store::new(TargetId::ost(config.index).name(config.fsname), meta),
            config,
            objects,
            exports: booted.exports,
            locks: Locks::default(),
            owners: Owners::default(),
            tombstones: RefCell::new(booted.tombstones),
            fences: RefCell::new(booted.fences),
            mdts: RefCell::new(booted.mdts),
            under_way: UnderWay::default(),
            reserved: RefCell::default(),
            read_only_since: Cell::default(),
            listed: RefCell::default(),
            listings: Cell::new(0),
            tally: Tally::default(),
            sizes: RefCell::default(),
            marks: Marks::default(),
            dirty_data: Cell::new(0),
            readcache_max: Cell::new(READCACHE_FILE_BYTES_DEFAULT),
            committing: Mutex::new(()),
            commit_task: RefCell::new(None),
        });
        if ost.config.device.is_some() {
            let space = ost.objects.space().await.unwrap_or_default();
            ost.store.device().set(env, space.bytes, ost.config.device.clone());
        }
        ost.start_committing();
        Ok(ost)
    }

    /// Commits everything and marks the end as clean. Serve nothing afterwards.
    pub async fn stop(&self) -> Result<(), StoreError> {
        let committed = self.commit_all().await;
        self.store.failure().check()?;
        committed.map_err(|errno| StoreError::Failed(errno.to_string()))?;
        if let Some(task) = self.commit_task.borrow_mut().take() {
            task.abort();
        }
        let mut set = WriteSet::new();
        set.put(Table::Meta, crate::record::META_CLEAN, [1]);
        self.try_apply(&set).await?;
        self.store.commit().await
    }

    /// Waits until the pretended device has read or written `extent`, if there is one.
    pub(crate) async fn transfer(&self, kind: device::Kind, object: Fid, extent: Extent) {
        self.store.device().object(kind, &*self.objects, object, extent).await;
    }

    /// The device that it pretends to be on, if there is one.
    #[must_use]
    pub fn device(&self) -> &target::Device {
        self.store.device()
    }

    /// Ends this instance as if its storage had failed: it is of no use without another target.
    pub fn fail(&self, reason: &str) {
        self.store.failure().fail(reason);
    }

    /// The MGS has forgotten these MDTs, and no others. Recovery does not wait for a client whose
    /// changes only they could still want.
    pub fn set_forgotten_mdts(&self, mdts: BTreeSet<u32>) {
        let given_up = self.mdts.borrow_mut().set_forgotten(mdts);
        for client in given_up {
            planted::reached("ost: a forgotten MDT was the last one that a recovery waited for");
            self.exports.give_up_absent(client);
        }
    }

    /// Listings of all objects since the start.
    #[must_use]
    pub fn listings(&self) -> u64 {
        self.listings.get()
    }

    /// Refuses a change of so many bytes whose room is reserved for clients. What it returns is to
    /// be dropped when the change is made. A replay has had its room.
    pub(crate) async fn take_room(
        &self,
        incoming: &Incoming,
        bytes: u64,
    ) -> Result<Option<Taking<'_>>, Errno> {
        if incoming.is_replay() { Ok(None) } else { self.take_free_room(bytes).await }
    }

    /// The same of a change that is not a replay.
    pub(crate) async fn take_free_room(&self, bytes: u64) -> Result<Option<Taking<'_>>, Errno> {
        let (now, bytes) = (self.env.now(), room_of(bytes));
        let done = self.reserved.borrow().done();
        if self.reserved.borrow().must_look(bytes, now) {
            let space = self.objects.space().await?;
            self.reserved.borrow_mut().saw(space.bytes, space.bytes_free, done, now);
        }
        match self.reserved.borrow_mut().may_take(bytes) {
            true => Ok(Some(Taking { reserved: &self.reserved, bytes })),
            false => Err(Errno::ENOSPC),
        }
    }
}

impl Drop for Ost {
    fn drop(&mut self) {
        if let Some(task) = self.commit_task.borrow_mut().take() {
            task.abort();
        }
    }
}
