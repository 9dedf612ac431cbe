//! Files to list.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use anyhow::{Context, Result};
use bytes::Bytes;
use client::{Client, Ctx, File, flags};
use env::Env;
use layout::{Asked, Template};
use tokio::sync::Semaphore;
use types::Fid;

use super::LsArgs;
use super::ways::Way;

const IN_FLIGHT: u32 = 64;
/// Bytes of a stripe: the smallest.
const STRIPE_BYTES: u32 = 64 << 10;
/// Files that all ways list, at least.
const WHOLE_MIN: u32 = 64;

/// Directories of files with one stripe count.
pub(super) struct Dirs {
    pub(super) stripes: u32,
    /// Clean files with a byte in the first object.
    many: Dir,
    /// Clean files with a byte in every object.
    whole: Dir,
    /// The same of which some are open.
    open: Dir,
    held: RefCell<Vec<File>>,
}

/// One of them.
pub(super) struct Dir {
    pub(super) fid: Fid,
    /// In the root.
    pub(super) name: String,
    pub(super) files: u32,
}

impl Dirs {
    /// Makes them, the open files by the second client.
    pub(super) async fn make(
        env: &Env,
        args: &LsArgs,
        stripes: u32,
        [maker, writer]: [&Client; 2],
    ) -> Result<Dirs> {
        let count = (args.objects / stripes.max(1)).min(args.files).max(WHOLE_MIN);
        let dir = async |name: &str, files: u32| -> Result<Dir> {
            let name = format!("{name}.{stripes}");
            let made = maker.mkdir(&Ctx::root(), Fid::ROOT, name.as_bytes(), 0o755).await?;
            Ok(Dir { fid: made.fid(), name, files })
        };
        let dirs = Dirs {
            stripes,
            many: dir("many", args.files).await?,
            whole: dir("whole", count).await?,
            open: dir("open", count).await?,
            held: RefCell::default(),
        };
        let clean = args.states.iter().any(|state| state == "clean");
        let older = args.ways.iter().any(|way| way != "nacre");
        if clean && args.ways.iter().any(|way| way == "nacre") {
            fill(
                env,
                maker,
                &Batch {
                    dir: dirs.many.fid,
                    stripes,
                    bytes: 1,
                    from: 0,
                    step: 1,
                    count: args.files,
                    stays_open: false,
                },
            )
            .await?;
        }
        let whole = Batch {
            dir: dirs.whole.fid,
            stripes,
            bytes: stripes,
            from: 0,
            step: 1,
            count,
            stays_open: false,
        };
        if clean && older {
            fill(env, maker, &whole).await?;
        }
        if args.states.iter().any(|state| state == "open") {
            let opened = (count * args.open).div_ceil(100).max(1);
            let step = (count / opened).max(1);
            let open = Batch { dir: dirs.open.fid, count: opened, step, stays_open: true, ..whole };
            *dirs.held.borrow_mut() = fill(env, writer, &open).await?;
            // the others have the names between
            let closed = Batch {
                stays_open: false,
                from: count * step,
                step: 1,
                count: count - opened,
                ..open
            };
            fill(env, maker, &closed).await?;
        }
        Ok(dirs)
    }

    /// What one way lists in one state.
    pub(super) fn of(&self, state: &str, way: Way) -> &Dir {
        match (state, way) {
            ("open", _) => &self.open,
            (_, Way::Nacre) => &self.many,
            _ => &self.whole,
        }
    }

    /// Closes what is open.
    pub(super) async fn close(&self) {
        let held = std::mem::take(&mut *self.held.borrow_mut());
        for file in held {
            let _what_was_measured_stays = file.close().await;
        }
    }
}

/// Files of one sort.
#[derive(Clone, Copy)]
struct Batch {
    dir: Fid,
    stripes: u32,
    /// Objects that get a byte.
    bytes: u32,
    /// Numbers in the names.
    from: u32,
    step: u32,
    count: u32,
    stays_open: bool,
}

struct Shared {
    client: Client,
    batch: Batch,
    next: Cell<u32>,
    held: RefCell<Vec<File>>,
    failure: RefCell<Option<anyhow::Error>>,
}

/// Makes all files of a batch, many at a time. Returns those that stay open.
async fn fill(env: &Env, client: &Client, batch: &Batch) -> Result<Vec<File>> {
    let shared = Rc::new(Shared {
        client: client.clone(),
        batch: *batch,
        next: Cell::new(0),
        held: RefCell::default(),
        failure: RefCell::default(),
    });
    let done = Rc::new(Semaphore::new(0));
    for _ in 0..IN_FLIGHT {
        let (shared, done) = (shared.clone(), done.clone());
        env.spawn("ls files", async move {
            if let Err(error) = make_some(&shared).await {
                shared.failure.borrow_mut().get_or_insert(error);
            }
            done.add_permits(1);
        });
    }
    done.acquire_many(IN_FLIGHT).await.context("the semaphore is never closed")?.forget();
    match shared.failure.borrow_mut().take() {
        Some(error) => Err(error),
        None => Ok(std::mem::take(&mut *shared.held.borrow_mut())),
    }
}

async fn make_some(shared: &Shared) -> Result<()> {
    let batch = &shared.batch;
    while shared.next.get() < batch.count {
        let number = shared.next.get();
        shared.next.set(number + 1);
        let name = format!("file.{:08}", batch.from + number * batch.step);
        if let Some(file) = make_one(&shared.client, batch, name.as_bytes()).await? {
            shared.held.borrow_mut().push(file);
        }
    }
    Ok(())
}

async fn make_one(client: &Client, batch: &Batch, name: &[u8]) -> Result<Option<File>> {
    let me = Ctx::root();
    if batch.stripes == 0 && !batch.stays_open {
        client.mknod(&me, batch.dir, name, 0o644, 0).await?;
        return Ok(None);
    }
    let template = Template {
        stripe_count: batch.stripes.max(1).cast_signed(),
        stripe_size: STRIPE_BYTES,
        ..Template::default()
    };
    let asked = Asked::Plain(template);
    let made = client.create(&me, batch.dir, name, 0o644, flags::O_RDWR, Some(&asked));
    let (_, file) = made.await?;
    let writes = (0..batch.bytes).map(|stripe| {
        file.write(u64::from(stripe) * u64::from(STRIPE_BYTES), Bytes::from_static(b"x"))
    });
    for write in writes {
        write.await?;
    }
    if batch.stays_open {
        return Ok(Some(file));
    }
    file.close().await?;
    Ok(None)
}
