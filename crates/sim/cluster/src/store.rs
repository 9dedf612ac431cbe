//! A server's store: in memory, or in some seeds on `osd-disk` with the store in memory beside it.
//!
//! Beside `osd-disk`, the store in memory is the fault model and the witness. It decides which
//! operations fail, how much space there is and how long operations take. It also gives file times,
//! because the kernel's times are not the simulation's. Every read comes from `osd-disk` and must
//! equal the store in memory.
//!
//! `osd-disk` runs without threads: blocking calls are made at once, and commits are tasks of the
//! server's node, in two steps with a pause before each. Its directory is on a tmpfs, which loses
//! nothing while the kernel runs. So:
//! - A **killed process** loses everything that its last completed commit does not cover. The next
//!   process must find the state after some set since that commit ([`records`]). The store in
//!   memory is then made equal.
//! - After a **power cut** records are found in the same way. Pages that were written out but not
//!   synced do not count. They are overwritten first, as a disk may have them. A tmpfs loses no
//!   objects, so the store in memory decides what is lost, and the files are made equal.

mod objects;
mod records;
mod scratch;

use std::cell::{Cell, RefCell};
use std::path::PathBuf;
use std::rc::Rc;

use env::Env;
use osd::mem::{MemDisk, MemMeta, MemObjects};
use osd::{MetaStore, ObjStore, StoreError};
use osd_disk::{DiskMeta, DiskObjects, Inline, MetaOptions, ObjOptions};
use types::{Span, TargetId};

use objects::TwinObjects;
use records::{History, TwinRecords};
pub(crate) use scratch::Scratch;

/// Bytes of records that a server has room for: far more than a run makes. What is allocated ahead
/// is a share of it.
const RECORD_BYTES_MAX: u64 = 64 << 20;
/// Before each step of a commit.
const COMMIT_STEP_MAX: Span = Span::millis(5);

/// The directory of a server, and what must be in it.
pub(crate) struct Dir {
    path: PathBuf,
    history: RefCell<History>,
    is_cut: Cell<bool>,
    /// What the running process has open. A killed one leaves nothing open, whatever else it
    /// leaves in memory.
    records: RefCell<Option<Rc<DiskMeta>>>,
    objects: RefCell<Option<Rc<DiskObjects>>>,
}

impl Dir {
    fn records(&self) -> Result<Rc<DiskMeta>, StoreError> {
        let open = self.records.borrow().clone();
        open.ok_or_else(|| StoreError::Failed("its process was killed".into()))
    }

    fn objects(&self) -> Rc<DiskObjects> {
        self.objects.borrow().clone().expect("who asks runs, and has them open")
    }
}

/// The storage of one server, which outlives what runs on it.
#[derive(Clone)]
pub(crate) struct Store {
    pub(crate) mem: MemDisk,
    dir: Option<Rc<Dir>>,
    /// Of an MDT: the storage of its data target, on the same machine.
    data: Option<Box<Store>>,
}

/// Tells the chances of a power cut on data from those on records of the same seed.
const DATA: u64 = 0xda7a_0000;

impl Store {
    pub(crate) fn new(mem: MemDisk, target: TargetId, scratch: Option<&Scratch>) -> Store {
        let dir = scratch.map(|scratch| {
            Rc::new(Dir {
                path: scratch.path().join(target.to_string()),
                history: RefCell::default(),
                is_cut: Cell::new(false),
                records: RefCell::default(),
                objects: RefCell::default(),
            })
        });
        Store { mem, dir, data: None }
    }

    /// The same, with another one for the MDT's data target.
    pub(crate) fn beside(self, data: Option<Store>) -> Store {
        Store { data: data.map(Box::new), ..self }
    }

    pub(crate) fn data(&self) -> Option<&Store> {
        self.data.as_deref()
    }

    /// Whether it is on `osd-disk`.
    pub(crate) fn is_on_disk(&self) -> bool {
        self.dir.is_some()
    }

    /// The process that had it open is dead.
    pub(crate) fn close(&self) {
        if let Some(dir) = &self.dir {
            drop((dir.records.take(), dir.objects.take()));
        }
        if let Some(data) = &self.data {
            data.close();
        }
    }

    /// The power goes: a part of what was not synced is lost, chosen by `seed`. Whatever ran on the
    /// machine is dead.
    pub(crate) fn power_cut(&self, seed: u64) {
        self.mem.power_cut(seed);
        if let Some(dir) = self.dir.as_ref().filter(|dir| dir.path.exists()) {
            dir.is_cut.set(true);
            osd_disk::tear_records(&dir.path, seed).expect("the records have a durable root");
        }
        if let Some(data) = &self.data {
            data.power_cut(seed ^ DATA);
        }
    }

    /// Opens the records. What memory has of them is told as well.
    pub(crate) fn records(&self, env: &Env) -> Result<(Rc<dyn MetaStore>, Rc<MemMeta>), String> {
        let Some(dir) = &self.dir else {
            let mem = Rc::new(MemMeta::open(env, &self.mem));
            return Ok((mem.clone(), mem));
        };
        std::fs::create_dir_all(&dir.path).map_err(|error| error.to_string())?;
        let options = MetaOptions { map_bytes: Some(RECORD_BYTES_MAX), ..MetaOptions::default() };
        let inline = Inline { env: env.clone(), step_max: COMMIT_STEP_MAX };
        let disk = DiskMeta::open_inline(&dir.path, &options, inline);
        let disk = disk.map_err(|error| error.to_string())?;
        dir.history.borrow_mut().settle(&*disk)?;
        self.mem.replace_records(dir.history.borrow().durable());
        let mem = Rc::new(MemMeta::open(env, &self.mem));
        dir.records.replace(Some(disk));
        Ok((Rc::new(TwinRecords::new(mem.clone(), dir.clone())), mem))
    }

    /// Opens the objects.
    pub(crate) async fn objects(&self, env: &Env) -> Result<Rc<dyn ObjStore>, String> {
        let mem = MemObjects::open(env, &self.mem);
        let Some(dir) = &self.dir else { return Ok(Rc::new(mem)) };
        let disk = DiskObjects::open(&dir.path, &ObjOptions::inline());
        dir.objects.replace(Some(disk.map_err(|error| error.to_string())?));
        let twin = TwinObjects::new(mem, dir.clone());
        if dir.is_cut.replace(false) {
            twin.lose().await;
        }
        twin.check().await;
        Ok(Rc::new(twin))
    }
}
