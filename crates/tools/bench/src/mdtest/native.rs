//! Tasks as operations in flight of one native client, without a kernel between benchmark and
//! servers.

use std::cell::{Cell, RefCell};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow};
use bytes::Bytes;
use client::{Client, Ctx, MountConfig};
use env::Env;
use layout::Asked;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use types::{ClientId, Fid, NidAddr};

use super::{MdtestArgs, Phase, Sample, Watch};
use crate::steps::Steps;

/// Of a file with `--at-mdt`.
const AT_MDT_BYTES: u64 = 64 << 10;
const O_RDONLY: u32 = 0;
const O_WRONLY_EXCL: u32 = (libc::O_WRONLY | libc::O_CREAT | libc::O_EXCL) as u32;

pub(super) fn run(args: &MdtestArgs, address: &str, steps: &Steps) -> Result<Vec<Sample>> {
    let (mgs, fsname) =
        address.split_once(":/").ok_or_else(|| anyhow!("'{address}' is not a NID:/fsname"))?;
    let mgs: NidAddr = mgs.parse()?;
    let fsname = fsname.parse()?;
    let args = args.clone();
    env_os::run(env_os::OsConfig::default(), move |env| async move {
        let id = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
        let client = Client::mount(&env, MountConfig::new(vec![mgs], fsname, id))
            .await
            .context("cannot mount")?;
        let outcome = phases(&env, &client, &args, steps).await;
        client.unmount().await;
        outcome
    })
}

/// Shared by the loops of a phase.
struct Shared {
    client: Client,
    ctx: Ctx,
    args: MdtestArgs,
    tree: Tree,
    /// Files are renamed to here.
    other: Option<Tree>,
    is_renamed: Cell<bool>,
    next: Cell<u64>,
    items: Cell<u64>,
    until: Cell<Option<Instant>>,
    failure: RefCell<Option<anyhow::Error>>,
    /// Of new files; nothing: their directory's default.
    striping: Option<Asked>,
}

impl Shared {
    /// Directories in which the files are now.
    fn dirs(&self) -> &[Fid] {
        let other = self.other.as_ref().filter(|_| self.is_renamed.get());
        &other.unwrap_or(&self.tree).dirs
    }
}

/// A new directory and those in it that hold files.
struct Tree {
    parent: Fid,
    name: String,
    top: Fid,
    dirs: Vec<Fid>,
}

impl Tree {
    /// In the directory at `path`.
    async fn make(client: &Client, ctx: &Ctx, path: &Path, name: &str, dirs: u32) -> Result<Tree> {
        let named = || format!("{} on the file system", path.display());
        let parent = client.lookup_path(ctx, path.as_os_str().as_bytes()).await;
        let parent = parent.with_context(named)?.fid();
        let top = client.mkdir(ctx, parent, name.as_bytes(), 0o755).await?.fid();
        let mut tree = Tree { parent, name: name.to_owned(), top, dirs: Vec::new() };
        for index in 0..dirs {
            let name = format!("dir.{index}");
            tree.dirs.push(client.mkdir(ctx, top, name.as_bytes(), 0o755).await?.fid());
        }
        Ok(tree)
    }

    /// The directories are empty.
    async fn remove(&self, client: &Client, ctx: &Ctx) -> Result<()> {
        for index in 0..self.dirs.len() {
            client.rmdir(ctx, self.top, format!("dir.{index}").as_bytes()).await?;
        }
        Ok(client.rmdir(ctx, self.parent, self.name.as_bytes()).await?)
    }
}

/// The first bytes of a file are at its MDT.
fn at_mdt() -> Asked {
    let mut parts = CompositeTemplate::striped(0, [(AT_MDT_BYTES, 1), (END_OF_FILE, 1)]);
    parts.components[0] = TemplateComponent { end: AT_MDT_BYTES, wanted: Wanted::Mdt };
    Asked::Composite(parts)
}

async fn phases(
    env: &Env,
    client: &Client,
    args: &MdtestArgs,
    steps: &Steps,
) -> Result<Vec<Sample>> {
    let ctx = Ctx::root();
    let name = format!("mdtest-native.{:x}", env.random());
    let count = if args.unique_dir { args.in_flight } else { 1 };
    let tree = Tree::make(client, &ctx, &args.dir, &name, count).await?;
    let other = match &args.rename_to {
        Some(path) => {
            Some(Tree::make(client, &ctx, path, &format!("{name}.renamed"), count).await?)
        }
        None => None,
    };
    let items = Cell::new(args.items * u64::from(args.tasks));
    let shared = Rc::new(Shared {
        client: client.clone(),
        ctx,
        args: args.clone(),
        tree,
        other,
        is_renamed: Cell::new(false),
        next: Cell::new(0),
        items,
        until: Cell::new(None),
        failure: RefCell::new(None),
        striping: args.at_mdt.then(at_mdt),
    });
    let mut samples = Vec::new();
    for phase in Phase::ALL {
        if !args.wants(phase) && (args.keep || phase != Phase::Remove) {
            continue;
        }
        if args.wants(phase) {
            steps.begin(phase);
        }
        let sample = one_phase(env, &shared, phase).await?;
        if phase == Phase::Create {
            shared.items.set(sample.files);
        }
        if phase == Phase::Rename {
            shared.is_renamed.set(true);
        }
        if args.wants(phase) {
            samples.push(sample);
        }
    }
    if args.keep {
        return Ok(samples);
    }
    for tree in [Some(&shared.tree), shared.other.as_ref()].into_iter().flatten() {
        tree.remove(client, &shared.ctx).await?;
    }
    Ok(samples)
}

async fn one_phase(env: &Env, shared: &Rc<Shared>, phase: Phase) -> Result<Sample> {
    shared.next.set(0);
    let requests = || shared.client.requests().values().sum::<u64>();
    let (watch, before) = (Watch::start(), requests());
    if phase == Phase::Create && shared.args.stonewall > 0 {
        shared.until.set(Some(watch.start + std::time::Duration::from_secs(shared.args.stonewall)));
        shared.items.set(u64::MAX);
    }
    let done = Rc::new(tokio::sync::Semaphore::new(0));
    for _ in 0..shared.args.in_flight {
        let (shared, done) = (shared.clone(), done.clone());
        env.spawn("mdtest", async move {
            if let Err(error) = one_loop(&shared, phase).await {
                shared.failure.borrow_mut().get_or_insert(error);
            }
            done.add_permits(1);
        });
    }
    let all = done.acquire_many(shared.args.in_flight).await;
    all.context("the semaphore is never closed")?.forget();
    if let Some(error) = shared.failure.borrow_mut().take() {
        return Err(error.context(format!("{phase}")));
    }
    let sample = watch.stop(phase, shared.next.get().min(shared.items.get()));
    let each = (requests() - before) as f64 / sample.files.max(1) as f64;
    Ok(Sample { requests: Some(each), ..sample })
}

async fn one_loop(shared: &Shared, phase: Phase) -> Result<()> {
    loop {
        let item = shared.next.get();
        let late = phase == Phase::Create
            && item.is_multiple_of(16)
            && shared.until.get().is_some_and(|until| Instant::now() >= until);
        if late {
            shared.items.set(shared.items.get().min(item));
        }
        if item >= shared.items.get() {
            return Ok(());
        }
        shared.next.set(item + 1);
        let place = (item % shared.dirs().len() as u64) as usize;
        one_item(shared, phase, place, format!("file.mdtest.0.{item}").as_bytes()).await?;
    }
}

/// What a phase does to the file `name` in one of the directories.
async fn one_item(shared: &Shared, phase: Phase, place: usize, name: &[u8]) -> Result<()> {
    let (client, ctx, dir) = (&shared.client, &shared.ctx, shared.dirs()[place]);
    match phase {
        Phase::Create if shared.args.put => {
            let data = Bytes::from(vec![b'm'; shared.args.write_bytes]);
            client.put(ctx, dir, name, 0o644, data, shared.striping.as_ref()).await?;
        }
        Phase::Create => {
            let striping = shared.striping.as_ref();
            let (_, file) = client.create(ctx, dir, name, 0o644, O_WRONLY_EXCL, striping).await?;
            if shared.args.write_bytes > 0 {
                file.write(0, Bytes::from(vec![b'm'; shared.args.write_bytes])).await?;
            }
            file.close().await?;
        }
        Phase::Stat => {
            let attr = client.lookup(ctx, dir, name).await?;
            if client::needs_glimpse(&attr) {
                client.getattr(ctx, attr.fid(), None).await?;
            }
        }
        Phase::Read => {
            let attr = client.lookup(ctx, dir, name).await?;
            let file = client.open(ctx, attr.fid(), O_RDONLY).await?;
            if shared.args.read_bytes > 0 {
                file.read(0, shared.args.read_bytes).await?;
            }
            file.close().await?;
        }
        Phase::Rename => {
            let other = shared.other.as_ref().context("a phase of renames has another tree")?;
            client.rename(ctx, dir, name, other.dirs[place], name, 0).await?;
        }
        Phase::Remove => client.unlink(ctx, dir, name).await?,
    }
    Ok(())
}
