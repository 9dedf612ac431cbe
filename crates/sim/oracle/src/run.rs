//! Runs operations on a mounted client and on the model, and compares every answer.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, Listing, SeekFor, SetAttr, SetTime};
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::{Asked, Template};
use types::{Errno, Fid, Timespec};
use wire::Attr;

use crate::check::compare;
use crate::model::{Expect, Ino, Model, ROOT};
use crate::op::{Op, Path, pattern, xattr_name};
use crate::{mkdir_at, mkdir_striped};

/// Of so many directories that a runner makes in turn on MDTs, one has names on all of them.
const STRIPED_ONE_OF: u32 = 4;

const O_RDWR: u32 = 0o2;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;

/// What a call answered.
#[derive(Clone, Debug)]
pub enum Answer {
    Done,
    Attr(Box<Attr>),
    Data(Bytes),
    /// So many bytes.
    Count(u64),
    /// Names with the files behind them.
    Names(Vec<(String, Fid)>),
    /// Names of extended attributes.
    Xattrs(Vec<Vec<u8>>),
}

/// An answer that is not the model's.
#[derive(Clone, Debug)]
pub struct Mismatch {
    /// Place in the sequence.
    pub index: usize,
    pub op: Op,
    pub what: String,
}

impl std::fmt::Display for Mismatch {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "operation {} {:?}: {}", self.index, self.op, self.what)
    }
}

/// What the model's side of a run knows. It outlives the client that runs: a test that cuts the
/// power asks it what must still be there.
pub struct Mirror {
    /// The reference file system, as the last step left it.
    pub model: Model,
    /// FIDs of its nodes, as they were first told.
    pub fids: BTreeMap<Ino, Fid>,
    /// All FIDs ever told: none is given twice.
    told: BTreeSet<Fid>,
    /// When they were born, as they were first told: a replay repeats what was answered.
    births: BTreeMap<Ino, (i64, u32)>,
    /// Summaries after each operation since the last one that made everything durable, that one
    /// first.
    pub trail: Vec<BTreeMap<Path, String>>,
    /// Whether `trail` is kept.
    pub keeps_trail: bool,
}

impl Mirror {
    fn new(base: Fid) -> Mirror {
        Mirror {
            model: Model::new(),
            fids: BTreeMap::from([(ROOT, base)]),
            told: BTreeSet::new(),
            births: BTreeMap::new(),
            trail: Vec::new(),
            keeps_trail: false,
        }
    }

    /// Names and data so far are durable: what is done to them from here on is kept.
    pub fn all_is_durable(&mut self) {
        self.model.keep_changes();
        self.start_trail();
    }

    /// Starts the trail: all names so far are durable.
    fn start_trail(&mut self) {
        self.keeps_trail = true;
        self.trail = vec![self.model.summary()];
    }

    /// `op` begins: its effect may be durable from now on.
    fn begin(&mut self, op: &Op) -> Expect {
        let expect = self.model.apply(op);
        if self.keeps_trail && !matches!(expect, Expect::Skip) {
            self.trail.push(self.model.summary());
        }
        expect
    }

    /// `op` was answered as expected.
    fn finish(&mut self, op: &Op, expect: &Expect) {
        let durable = matches!(op, Op::Sync | Op::Fsync { .. }) && *expect == Expect::Done;
        if durable {
            self.model.synced(op);
        }
        if self.keeps_trail && durable {
            self.start_trail();
        }
    }

    /// A node keeps its FID; no two nodes ever have the same.
    fn check_fid(&mut self, ino: Ino, fid: Fid) -> Result<(), String> {
        match self.fids.get(&ino) {
            Some(known) if *known == fid => Ok(()),
            Some(known) => Err(format!("FID {fid}, but it was {known} before")),
            None if self.told.insert(fid) => {
                self.fids.insert(ino, fid);
                Ok(())
            }
            None => Err(format!("FID {fid} was given to another file before")),
        }
    }

    fn check_answer(
        &mut self,
        expect: &Expect,
        answer: &Result<Answer, client::Error>,
    ) -> Result<(), String> {
        compare(&self.model, expect, answer)?;
        match (expect, answer) {
            (Expect::Attr(ino), Ok(Answer::Attr(attr))) => {
                let born = (attr.btime, attr.btime_nsec);
                let first = *self.births.entry(*ino).or_insert(born);
                if first != born {
                    return Err(format!("born at {born:?}, but it was {first:?} before"));
                }
                self.check_fid(*ino, attr.fid())
            }
            (Expect::Names(names), Ok(Answer::Names(found))) => {
                found.iter().try_for_each(|(name, fid)| self.check_fid(names[name], *fid))
            }
            _ => Ok(()),
        }
    }
}

/// One sequential user of a directory, with the model beside it.
pub struct Runner {
    client: Client,
    ctx: Ctx,
    base: Fid,
    mirror: Rc<RefCell<Mirror>>,
    files: BTreeMap<u8, File>,
    index: usize,
    placing: Placing,
}

/// On which MDTs a runner makes its directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Placing {
    /// On that of the directory above, or as that one says.
    Default,
    /// In turn on so many.
    InTurn(u32),
    /// On the one whose number the name ends with; `*` and a number before it is for names on so
    /// many.
    Named,
}

impl Placing {
    /// The first MDT, and the number of MDTs, of the directory that the `index`th operation makes.
    fn of(self, index: usize, name: &[u8]) -> Option<(u32, u32)> {
        match self {
            Placing::Default | Placing::InTurn(..=1) => None,
            Placing::InTurn(mdts) => {
                let index = index as u32;
                let count = if index.is_multiple_of(STRIPED_ONE_OF) { mdts } else { 1 };
                Some((index % mdts, count))
            }
            Placing::Named => {
                let digit = |byte: &u8| char::from(*byte).to_digit(10);
                let (last, rest) = name.split_last()?;
                let count = rest.strip_prefix(b"*").and_then(<[u8]>::last).and_then(digit);
                Some((digit(last)?, count.unwrap_or(1)))
            }
        }
    }
}

/// The user of the tests: root, no umask.
#[must_use]
pub fn test_ctx() -> Ctx {
    Ctx { umask: 0, pid: 1, ..Ctx::root() }
}

impl Runner {
    /// Over the empty directory `base`.
    #[must_use]
    pub fn new(client: Client, base: Fid) -> Runner {
        let mirror = Rc::new(RefCell::new(Mirror::new(base)));
        let (ctx, files) = (test_ctx(), BTreeMap::new());
        Runner { client, ctx, base, mirror, files, index: 0, placing: Placing::Default }
    }

    /// The same, with its directories on these MDTs.
    #[must_use]
    pub fn placing(self, placing: Placing) -> Runner {
        Runner { placing, ..self }
    }

    /// Carries `op` out in the real world alone.
    ///
    /// # Errors
    /// The client's error.
    pub async fn call(&mut self, op: &Op) -> Result<Answer, client::Error> {
        self.index += 1;
        self.perform(op).await
    }

    /// The model's side, shared.
    #[must_use]
    pub fn mirror(&self) -> Rc<RefCell<Mirror>> {
        self.mirror.clone()
    }

    /// The directory that it works in.
    #[must_use]
    pub fn base(&self) -> Fid {
        self.base
    }

    /// What `draw` makes of the model: the next operation, usually.
    pub fn with_model<T>(&self, draw: impl FnOnce(&Model) -> T) -> T {
        draw(&self.mirror.borrow().model)
    }

    /// Carries `op` out in both worlds. False if it was skipped, because it makes no sense in the
    /// present state.
    pub async fn step(&mut self, op: &Op) -> Result<bool, Mismatch> {
        let index = self.index;
        self.index += 1;
        let mismatch = |what: String| Mismatch { index, op: op.clone(), what };
        let expect = self.mirror.borrow_mut().begin(op);
        if expect == Expect::Skip {
            return Ok(false);
        }
        let answer = self.perform(op).await;
        let freed = {
            let mut mirror = self.mirror.borrow_mut();
            mirror.check_answer(&expect, &answer).map_err(mismatch)?;
            mirror.finish(op, &expect);
            let freed = mirror.model.take_freed();
            freed.into_iter().filter_map(|ino| mirror.fids.remove(&ino)).collect::<Vec<_>>()
        };
        for fid in freed {
            self.check_freed(fid).await.map_err(mismatch)?;
        }
        Ok(true)
    }

    /// A file without names and opens is gone.
    async fn check_freed(&mut self, fid: Fid) -> Result<(), String> {
        match self.client.getattr(&self.ctx, fid, None).await {
            Err(error) if [Errno::ENOENT, Errno::ESTALE].contains(&error.errno()) => Ok(()),
            Err(error) => Err(format!("asking for a removed file: {error}")),
            Ok(attr) => Err(format!("the removed file {fid} is still there: {attr:?}")),
        }
    }

    /// Closes what is open.
    pub async fn close_all(&mut self) -> Result<(), Mismatch> {
        let open = self.with_model(Model::open_slots);
        for slot in open {
            self.step(&Op::Close { slot }).await?;
        }
        Ok(())
    }

    async fn find(&self, path: &[String]) -> Result<Fid, client::Error> {
        let mut fid = self.base;
        for name in path {
            fid = self.client.lookup(&self.ctx, fid, name.as_bytes()).await?.fid();
        }
        Ok(fid)
    }

    async fn place<'a>(&self, path: &'a Path) -> Result<(Fid, &'a [u8]), client::Error> {
        let (name, parents) =
            path.0.split_last().expect("the directory under test is not named itself");
        Ok((self.find(parents).await?, name.as_bytes()))
    }

    fn file(&self, slot: u8) -> File {
        self.files.get(&slot).expect("the model knows which slots are open").clone()
    }

    async fn perform(&mut self, op: &Op) -> Result<Answer, client::Error> {
        let (client, ctx) = (self.client.clone(), self.ctx.clone());
        Ok(match op {
            Op::Mkdir { path, mode } => {
                let at = self.place(path).await?;
                attr(match self.placing.of(self.index, at.1) {
                    None => client.mkdir(&ctx, at.0, at.1, *mode).await?,
                    Some((mdt, 1)) => mkdir_at(&client, &ctx, at, *mode, mdt).await?,
                    Some(mdts) => mkdir_striped(&client, &ctx, at, *mode, mdts).await?,
                })
            }
            Op::Mkfifo { path, mode } => {
                let (parent, name) = self.place(path).await?;
                attr(client.mknod(&ctx, parent, name, wire::attr::S_IFIFO | mode, 0).await?)
            }
            Op::Symlink { path, target } => {
                let (parent, name) = self.place(path).await?;
                attr(client.symlink(&ctx, parent, name, target.as_bytes()).await?)
            }
            Op::Rmdir { path } => {
                let (parent, name) = self.place(path).await?;
                client.rmdir(&ctx, parent, name).await?;
                Answer::Done
            }
            Op::Unlink { path } => {
                let (parent, name) = self.place(path).await?;
                client.unlink(&ctx, parent, name).await?;
                Answer::Done
            }
            Op::Rename { from, to, flags } => {
                let (from, from_name) = self.place(from).await?;
                let (to, to_name) = self.place(to).await?;
                client.rename(&ctx, from, from_name, to, to_name, *flags).await?;
                Answer::Done
            }
            Op::Link { from, to } => {
                let fid = self.find(&from.0).await?;
                let (parent, name) = self.place(to).await?;
                attr(client.link(&ctx, fid, parent, name).await?)
            }
            Op::Readlink { path } => {
                Answer::Data(client.readlink(&ctx, self.find(&path.0).await?).await?)
            }
            Op::Stat { path } => attr(client.getattr(&ctx, self.find(&path.0).await?, None).await?),
            Op::Readdir { path, page_bytes } => self.readdir(path, *page_bytes).await?,
            Op::LinkOpen { slot, to } => {
                let (parent, name) = self.place(to).await?;
                attr(client.link(&ctx, self.file(*slot).fid(), parent, name).await?)
            }
            Op::Create { .. } | Op::Open { .. } | Op::Tmpfile { .. } | Op::Close { .. } => {
                self.perform_open(op).await?
            }
            Op::Fallocate { .. } | Op::Extents { .. } | Op::CopyRange { .. } => {
                self.perform_range(op).await?
            }
            Op::Write { .. } | Op::Read { .. } | Op::Fsync { .. } | Op::Fstat { .. } | Op::Sync => {
                self.perform_data(op).await?
            }
            Op::Setxattr { .. }
            | Op::Getxattr { .. }
            | Op::Listxattr { .. }
            | Op::Removexattr { .. } => self.perform_xattr(op).await?,
            Op::Truncate { path, .. }
            | Op::Chmod { path, .. }
            | Op::Chown { path, .. }
            | Op::Utimens { path, .. } => {
                let fid = self.find(&path.0).await?;
                attr(client.setattr(&ctx, fid, &set_attr(op), None).await?)
            }
            Op::Ftruncate { slot, .. } => {
                let file = self.file(*slot);
                attr(client.setattr(&ctx, file.fid(), &set_attr(op), Some(&file)).await?)
            }
        })
    }

    async fn perform_open(&mut self, op: &Op) -> Result<Answer, client::Error> {
        Ok(match op {
            Op::Create { path, slot, excl, trunc, append, mode, stripe } => {
                let (parent, name) = self.place(path).await?;
                let flags = open_flags(*trunc, *append) | if *excl { O_EXCL } else { 0 };
                let asked = stripe.map(|(size, count)| striping(size, count));
                let (attributes, file) = self
                    .client
                    .create(&self.ctx, parent, name, *mode, flags, asked.as_ref())
                    .await?;
                self.files.insert(*slot, file);
                attr(attributes)
            }
            Op::Open { path, slot, trunc, append } => {
                let fid = self.find(&path.0).await?;
                let file = self.client.open(&self.ctx, fid, open_flags(*trunc, *append)).await?;
                let attributes = self.client.getattr(&self.ctx, fid, Some(&file)).await?;
                self.files.insert(*slot, file);
                attr(attributes)
            }
            Op::Tmpfile { path, slot, mode, excl } => {
                let dir = self.find(&path.0).await?;
                let flags = open_flags(false, false) | if *excl { O_EXCL } else { 0 };
                let (attributes, file) = self.client.tmpfile(&self.ctx, dir, *mode, flags).await?;
                self.files.insert(*slot, file);
                attr(attributes)
            }
            Op::Close { slot } => {
                let file = self.files.remove(slot).expect("the model knows which slots are open");
                file.close().await?;
                Answer::Done
            }
            _ => unreachable!("the caller gives opens only"),
        })
    }

    async fn perform_data(&self, op: &Op) -> Result<Answer, client::Error> {
        Ok(match op {
            Op::Write { slot, offset, len, salt } => {
                let data = Bytes::from(pattern(*salt, *len as usize));
                let written = self.file(*slot).write(*offset, data).await?;
                assert_eq!(written, *len as usize, "a write is whole or fails");
                Answer::Done
            }
            Op::Read { slot, offset, len } => {
                Answer::Data(self.file(*slot).read(*offset, *len as usize).await?)
            }
            Op::Fsync { slot } => {
                self.file(*slot).fsync(false).await?;
                Answer::Done
            }
            Op::Fstat { slot } => {
                let file = self.file(*slot);
                attr(self.client.getattr(&self.ctx, file.fid(), Some(&file)).await?)
            }
            Op::Sync => {
                self.client.sync().await?;
                Answer::Done
            }
            _ => unreachable!("the caller gives data operations only"),
        })
    }

    async fn perform_range(&self, op: &Op) -> Result<Answer, client::Error> {
        Ok(match op {
            Op::Fallocate { slot, mode, offset, len } => {
                self.file(*slot).fallocate(*mode, *offset, u64::from(*len)).await?;
                Answer::Done
            }
            Op::Extents { slot, offset } => {
                Answer::Data(self.read_extents(&self.file(*slot), *offset).await?)
            }
            Op::CopyRange { from, from_offset, to, to_offset, len } => {
                let (from, to) = (self.file(*from), self.file(*to));
                let copied =
                    from.copy_range(*from_offset, &to, *to_offset, u64::from(*len)).await?;
                Answer::Count(copied)
            }
            _ => unreachable!("the caller gives operations on ranges only"),
        })
    }

    /// Everything from `offset` to the end; holes are not read.
    async fn read_extents(&self, file: &File, offset: u64) -> Result<Bytes, client::Error> {
        let size = self.client.getattr(&self.ctx, file.fid(), Some(file)).await?.size;
        let mut out = Vec::new();
        let mut at = offset;
        loop {
            let data = match file.seek(SeekFor::Data, at).await {
                Err(error) if error.errno() == Errno::ENXIO && offset < size => size,
                found => found?,
            };
            out.resize((data - offset) as usize, 0);
            if data >= size {
                return Ok(out.into());
            }
            at = file.seek(SeekFor::Hole, data).await?;
            out.extend_from_slice(&file.read(data, (at - data) as usize).await?);
            if at >= size {
                return Ok(out.into());
            }
        }
    }

    async fn perform_xattr(&self, op: &Op) -> Result<Answer, client::Error> {
        let (client, ctx) = (&self.client, &self.ctx);
        Ok(match op {
            Op::Setxattr { path, name, len, salt, flags } => {
                let value = Bytes::from(pattern(*salt, *len as usize));
                client
                    .setxattr(
                        ctx,
                        self.find(&path.0).await?,
                        xattr_name(*name).as_bytes(),
                        value,
                        *flags,
                    )
                    .await?;
                Answer::Done
            }
            Op::Getxattr { path, name } => Answer::Data(
                client
                    .getxattr(ctx, self.find(&path.0).await?, xattr_name(*name).as_bytes())
                    .await?,
            ),
            Op::Listxattr { path } => {
                Answer::Xattrs(client.listxattr(ctx, self.find(&path.0).await?).await?)
            }
            Op::Removexattr { path, name } => {
                client
                    .removexattr(ctx, self.find(&path.0).await?, xattr_name(*name).as_bytes())
                    .await?;
                Answer::Done
            }
            _ => unreachable!("the caller gives extended attributes only"),
        })
    }

    async fn readdir(&self, path: &Path, page_bytes: u32) -> Result<Answer, client::Error> {
        let dir = self.find(&path.0).await?;
        let names = read_names(&self.client, &self.ctx, dir, page_bytes).await?;
        Ok(Answer::Names(names.into_iter().map(|(name, attr)| (name, attr.fid())).collect()))
    }
}

/// All entries of a directory with the attributes beside them, of users whose names are text.
pub async fn read_names(
    client: &Client,
    ctx: &Ctx,
    dir: Fid,
    page_bytes: u32,
) -> Result<Vec<(String, Attr)>, client::Error> {
    let entries = read_entries(client, ctx, dir, page_bytes).await?;
    let text = |name: Vec<u8>| String::from_utf8_lossy(&name).into_owned();
    Ok(entries.into_iter().map(|(name, attr)| (text(name), attr)).collect())
}

/// All entries of a directory with the attributes beside them, whatever bytes their names are.
pub async fn read_entries(
    client: &Client,
    ctx: &Ctx,
    dir: Fid,
    page_bytes: u32,
) -> Result<Vec<(Vec<u8>, Attr)>, client::Error> {
    let (mut names, mut cookie) = (Vec::new(), 0);
    let listing = Listing::new(dir);
    loop {
        let page = client.readdir_on(ctx, &listing, cookie, page_bytes).await?;
        for entry in &page.entries {
            assert!(entry.cookie > cookie, "cookies rise");
            cookie = entry.cookie;
            let attr = match entry.has_attr || entry.attr.nlink > 0 {
                true => entry.attr,
                false => ask(client, ctx, entry.attr).await?,
            };
            names.push((entry.name.to_vec(), attr));
        }
        if page.at_end {
            return Ok(names);
        }
        assert!(!page.entries.is_empty(), "a page that is not the last one holds an entry");
    }
}

/// Attributes of a file of which FID and type are known: it is on another MDT than its name. One
/// that has gone meanwhile keeps what is known.
async fn ask(client: &Client, ctx: &Ctx, known: Attr) -> Result<Attr, client::Error> {
    match client.getattr(ctx, known.fid(), None).await {
        Err(error) if [Errno::ENOENT, Errno::ESTALE].contains(&error.errno()) => Ok(known),
        asked => asked,
    }
}

fn attr(attr: Attr) -> Answer {
    Answer::Attr(Box::new(attr))
}

/// A striping of `count` stripes; instead of three, components that small files reach.
fn striping(size: u32, count: i32) -> Asked {
    if count != 3 {
        return Template { stripe_size: size, stripe_count: count, ..Template::default() }.into();
    }
    let stripe = u64::from(size);
    let of = |stripe_count| Template { stripe_size: size, stripe_count, ..Template::default() };
    let parts = [
        (stripe, Wanted::Striped(of(1))),
        (4 * stripe, Wanted::Extendable(of(2), stripe)),
        (END_OF_FILE, Wanted::Extendable(of(3), 2 * stripe)),
    ];
    let components = parts.map(|(end, wanted)| TemplateComponent { end, wanted });
    Asked::Composite(CompositeTemplate { components: components.into() })
}

fn open_flags(trunc: bool, append: bool) -> u32 {
    O_RDWR | if trunc { O_TRUNC } else { 0 } | if append { O_APPEND } else { 0 }
}

fn set_attr(op: &Op) -> SetAttr {
    match op {
        Op::Truncate { size, .. } | Op::Ftruncate { size, .. } => {
            SetAttr { size: Some(*size), ..SetAttr::default() }
        }
        Op::Chmod { mode, .. } => SetAttr { mode: Some(*mode), ..SetAttr::default() },
        Op::Chown { uid, gid, .. } => {
            SetAttr { uid: Some(*uid), gid: Some(*gid), ..SetAttr::default() }
        }
        Op::Utimens { sec, nsec, .. } => {
            let time = SetTime::At(Timespec::new(*sec, *nsec));
            SetAttr { mtime: Some(time), atime: Some(time), ..SetAttr::default() }
        }
        _ => unreachable!("the caller gives changes of attributes only"),
    }
}
