//! One user's calls: carried out and recorded on the board.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, SetAttr};
use env_sim::Rng;
use oracle::history::{Append, NamesCall, PagesCall, RenameHow, Seen, Told};
use oracle::{EXCHANGE, NOREPLACE, read_names, test_ctx};
use types::{Errno, Fid, Instant, TargetKind};
use wire::Attr;

use super::board::{Board, FIRST_OWNER, PLACES, Shared, Ticket, Use};

const O_RDWR: u32 = 0o2;
const O_EXCL: u32 = 0o200;
const O_TRUNC: u32 = 0o1000;
const O_APPEND: u32 = 0o2000;
/// FALLOC_FL_KEEP_SIZE and FALLOC_FL_PUNCH_HOLE.
const PUNCH: u32 = 3;
const PERMISSIONS: u32 = 0o7777;
/// What calls may fail with when sessions are lost or disks cannot be read.
const HARD: [Errno; 3] = [Errno::EIO, Errno::ESTALE, Errno::ENOENT];

pub(super) struct Caller {
    client: Client,
    ctx: Ctx,
    who: u32,
    board: Rc<RefCell<Board>>,
    open: BTreeMap<usize, File>,
    /// A call has failed: what is open may be void.
    shaken: Cell<bool>,
    /// The targets that the call under way wants room of.
    wants_room: Cell<Option<TargetKind>>,
}

impl Caller {
    pub(super) fn new(client: Client, who: u32, board: Rc<RefCell<Board>>) -> Caller {
        Caller {
            client,
            ctx: test_ctx(),
            who,
            board,
            open: BTreeMap::new(),
            shaken: Cell::default(),
            wants_room: Cell::default(),
        }
    }

    pub(super) fn has_failed(&self) -> bool {
        self.board.borrow().failure().is_some()
    }

    pub(super) fn quiet_until(&self) -> Instant {
        self.board.borrow().quiet_until
    }

    pub(super) fn files(&self) -> Vec<Shared> {
        self.board.borrow().arena.files.clone()
    }

    /// How many directories there are.
    pub(super) fn dirs(&self) -> usize {
        self.board.borrow().arena.dirs.len()
    }

    pub(super) fn is_open(&self, file: usize) -> bool {
        self.open.contains_key(&file)
    }

    /// One of the files with names that anybody has seen, the younger ones mostly.
    pub(super) fn some_file(&self, rng: &mut Rng) -> Option<(u32, Fid)> {
        let seen = self.board.borrow().seen();
        let young = rng.below(4) != 0;
        let from = if young { seen.len().saturating_sub(4) } else { 0 };
        (from < seen.len()).then(|| seen[from + rng.index(seen.len() - from)])
    }

    fn begins(&self, what: String) -> u64 {
        let mut board = self.board.borrow_mut();
        tracing::debug!("user {} {what}", self.who);
        board.begins(self.who, what);
        board.now()
    }

    fn ended(&self) {
        self.wants_room.set(None);
        self.board.borrow_mut().ended(self.who);
    }

    fn fail(&self, what: String) {
        self.board.borrow_mut().fail(format!("user {}: {what}", self.who));
    }

    /// The answer; an error that no call may have is a failure.
    fn answered<T>(&self, what: &str, answer: client::Result<T>) -> Option<T> {
        match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                self.refused(what, &error);
                None
            }
        }
    }

    /// A call has failed: nobody knows what it did. That may only be where sessions are lost, or
    /// where it wanted room while a disk was full.
    fn refused(&self, what: &str, error: &client::Error) {
        let board = self.board.borrow();
        let may_be = match error.errno() {
            Errno::ENOSPC => {
                // the MDT gives the objects of a component that is written for the first time
                let on = match error.stage() {
                    "mds_layout_intent" => Some(TargetKind::Mdt),
                    _ => self.wants_room.get(),
                };
                on.is_some_and(|on| board.may_lack_room(self.who, on))
            }
            errno => board.is_hard && HARD.contains(&errno),
        };
        drop(board);
        tracing::debug!("user {} {what}: {error}", self.who);
        match may_be {
            true => self.shaken.set(true),
            false => self.fail(format!("{what}: {error}")),
        }
    }

    /// Opens anew what an eviction may have made void; says whether a call has failed.
    pub(super) async fn recover(&mut self) -> bool {
        let is_shaken = self.shaken.replace(false);
        if is_shaken {
            self.close_all().await;
            self.shaken.set(false);
        }
        is_shaken
    }

    // ---- names ----

    fn dir_of(&self, place: u8) -> Fid {
        self.board.borrow().arena.dirs[usize::from(place / PLACES)]
    }

    /// How a change ended; nothing where it failed as it may not.
    fn told<T>(&self, what: &str, answer: client::Result<T>) -> Option<Told> {
        match answer.map_err(|error| (error.errno(), error)) {
            Ok(_) => Some(Told::Done),
            Err((Errno::EEXIST, _)) => Some(Told::Taken),
            Err((Errno::ENOENT | Errno::ESTALE, _)) => Some(Told::Absent),
            Err((_, error)) => {
                self.refused(what, &error);
                None
            }
        }
    }

    /// Whether a change adds something to an MDT. What is there already, and what goes, needs no
    /// room, unless a name goes to another MDT.
    fn adds(&self, call: &NamesCall) -> bool {
        match *call {
            NamesCall::Create { .. } | NamesCall::Link { .. } => true,
            NamesCall::Rename { from, to, how, .. } => {
                let [from, to] = [from, to].map(|place| self.dir_of(place).mdt_index());
                how != RenameHow::Exchange && (from != to || self.board.borrow().are_spread)
            }
            _ => false,
        }
    }

    async fn change<T>(
        &self,
        what: String,
        call: impl Fn(Told) -> NamesCall,
        work: impl AsyncFnOnce() -> client::Result<T>,
    ) {
        self.wants_room.set(self.adds(&call(Told::Done)).then_some(TargetKind::Mdt));
        self.begins(what.clone());
        let ticket = self.board.borrow_mut().names_change(self.who, call(Told::Done));
        let answer = work().await;
        if answer.as_ref().is_err_and(|error| error.errno() == Errno::ENOSPC) {
            planted::reached("sim: a full MDT refused a change");
            self.board.borrow_mut().names_refused(ticket);
        }
        if let Some(told) = self.told(&what, answer) {
            self.board.borrow_mut().names_told(ticket, call(told));
        }
        self.ended();
    }

    pub(super) async fn create(&self, place: u8, mode: u32) {
        let id = self.board.borrow_mut().next_id();
        let owner = FIRST_OWNER + id;
        let ctx = Ctx { umask: 0, ..Ctx::user(owner, owner) };
        let (dir, name) = (self.dir_of(place), name_of(place));
        let call = move |told| NamesCall::Create { place, id, mode, told };
        let file = RefCell::new(None);
        self.change(format!("create {id} at {place}"), call, async || {
            let flags = O_RDWR | O_EXCL;
            let (attr, made) =
                self.client.create(&ctx, dir, name.as_bytes(), mode, flags, None).await?;
            self.board.borrow_mut().saw(attr.fid(), attr.uid);
            *file.borrow_mut() = Some(made);
            Ok(())
        })
        .await;
        if let Some(file) = file.take() {
            self.answered("close of a new file", file.close().await);
        }
    }

    pub(super) async fn unlink(&self, place: u8) {
        let (dir, name) = (self.dir_of(place), name_of(place));
        let call = move |told| NamesCall::Unlink { place, told };
        self.change(format!("unlink {place}"), call, async || {
            self.client.unlink(&self.ctx, dir, name.as_bytes()).await
        })
        .await;
    }

    pub(super) async fn rename(&self, from: u8, to: u8, how: u64) {
        let (how, flags) = match how {
            0 => (RenameHow::Keep, NOREPLACE),
            1 => (RenameHow::Exchange, EXCHANGE),
            _ => (RenameHow::Replace, 0),
        };
        let (from_dir, to_dir) = (self.dir_of(from), self.dir_of(to));
        let (from_name, to_name) = (name_of(from), name_of(to));
        let call = move |told| NamesCall::Rename { from, to, how, told };
        self.change(format!("rename {from} to {to}, {how:?}"), call, async || {
            let (from, to) = (from_name.as_bytes(), to_name.as_bytes());
            self.client.rename(&self.ctx, from_dir, from, to_dir, to, flags).await
        })
        .await;
    }

    pub(super) async fn link(&self, (id, fid): (u32, Fid), place: u8) {
        let (dir, name) = (self.dir_of(place), name_of(place));
        let call = move |told| NamesCall::Link { id, place, told };
        self.change(format!("link {id} to {place}"), call, async || {
            self.client.link(&self.ctx, fid, dir, name.as_bytes()).await
        })
        .await;
    }

    pub(super) async fn chmod(&self, (id, fid): (u32, Fid), mode: u32) {
        let call = move |told| NamesCall::Chmod { id, mode, told };
        self.change(format!("chmod {id}"), call, async || {
            let set = SetAttr { mode: Some(mode), ..SetAttr::default() };
            self.client.setattr(&self.ctx, fid, &set, None).await
        })
        .await;
    }

    /// Attributes, or nothing where there is no such name or file.
    fn found(&self, what: &str, answer: client::Result<Attr>) -> Option<Option<Attr>> {
        match answer {
            Err(error) if matches!(error.errno(), Errno::ENOENT | Errno::ESTALE) => Some(None),
            answer => self.answered(what, answer).map(Some),
        }
    }

    pub(super) async fn lookup(&self, place: u8) {
        let begin = self.begins(format!("lookup {place}"));
        let (dir, name) = (self.dir_of(place), name_of(place));
        let answer = self.client.lookup(&self.ctx, dir, name.as_bytes()).await;
        if let Some(found) = self.found("lookup", answer) {
            let mut board = self.board.borrow_mut();
            let is_here = |attr: &Attr| attr.fid().mdt_index() == dir.mdt_index();
            let is_one_call = found.as_ref().is_none_or(is_here);
            let found = found.map(|attr| (board.saw(attr.fid(), attr.uid), seen(&attr)));
            match found.filter(|_| !is_one_call) {
                None => board.names_read(self.who, begin, NamesCall::Lookup { place, found }),
                // the name and the attributes are of two moments
                Some((id, attrs)) => {
                    let found = Some(id);
                    board.names_read(self.who, begin, NamesCall::Find { place, found });
                    let found = Some(attrs);
                    board.names_read(self.who, begin, NamesCall::Stat { id, found });
                }
            }
        }
        self.ended();
    }

    pub(super) async fn stat(&self, (id, fid): (u32, Fid)) {
        let begin = self.begins(format!("stat of {id}"));
        let answer = self.client.getattr(&self.ctx, fid, None).await;
        if let Some(found) = self.found("stat", answer) {
            let found = found.as_ref().map(seen);
            self.board.borrow_mut().names_read(self.who, begin, NamesCall::Stat { id, found });
        }
        self.ended();
    }

    /// The size of a directory is the sum of its names' lengths.
    pub(super) async fn taken(&self, dir: usize) {
        let begin = self.begins(format!("stat of directory {dir}"));
        let fid = self.board.borrow().arena.dirs[dir];
        let answer = self.client.getattr(&self.ctx, fid, None).await;
        let is_one_image = !self.board.borrow().are_spread;
        if let Some(attr) = self.answered("stat of a directory", answer).filter(|_| is_one_image) {
            let call = NamesCall::Taken { dir, found: attr.size };
            self.board.borrow_mut().names_read(self.who, begin, call);
        }
        self.ended();
    }

    /// Which create made a file that is listed; nothing where it is on another MDT and has gone,
    /// and nobody has ever seen it.
    fn id_of(&self, attr: &Attr) -> Option<u32> {
        match attr.nlink {
            0 => self.board.borrow().id_of(attr.fid()),
            _ => Some(self.board.borrow_mut().saw(attr.fid(), attr.uid)),
        }
    }

    pub(super) async fn list(&self, dir: usize) {
        let begin = self.begins(format!("list of {dir}"));
        let fid = self.board.borrow().arena.dirs[dir];
        let names = read_names(&self.client, &self.ctx, fid, 1 << 16).await;
        if let Some(names) = self.answered("readdir", names) {
            let mut found = BTreeMap::new();
            for (name, attr) in names {
                let Some(id) = self.id_of(&attr) else {
                    self.ended();
                    return;
                };
                let first = dir as u8 * PLACES;
                let place = (first..first + PLACES).find(|place| name_of(*place) == name);
                if place.is_none_or(|place| found.insert(place, id).is_some()) {
                    self.fail(format!("'{name}' is listed"));
                }
            }
            let mut board = self.board.borrow_mut();
            if !board.are_spread {
                board.names_read(self.who, begin, NamesCall::List { dir, found });
            }
        }
        self.ended();
    }

    // ---- bytes ----

    fn shared(&self, file: usize) -> Shared {
        self.board.borrow().arena.files[file]
    }

    fn handle(&self, file: usize) -> File {
        self.open.get(&file).expect("the caller has asked whether it is open").clone()
    }

    async fn change_pages<T>(
        &self,
        file: usize,
        call: PagesCall,
        work: impl AsyncFnOnce() -> client::Result<T>,
    ) -> Option<T> {
        let what = format!("file{file} {call:?}");
        let grows = !matches!(call, PagesCall::Truncate { .. });
        self.wants_room.set(grows.then_some(TargetKind::Ost));
        self.begins(what.clone());
        let ticket: Ticket = self.board.borrow_mut().pages_change(self.who, file, call);
        let answer = self.answered(&what, work().await);
        if answer.is_some() {
            self.board.borrow_mut().pages_done(file, ticket);
        }
        self.ended();
        answer
    }

    pub(super) async fn open(&mut self, file: usize, cut: bool) {
        let shared = self.shared(file);
        let append = if shared.usage == Use::Log { O_APPEND } else { 0 };
        let open = async |flags| self.client.open(&self.ctx, shared.fid, O_RDWR | flags).await;
        let opened = match cut {
            true => {
                let call = PagesCall::Truncate { to: 0 };
                self.change_pages(file, call, async || open(append | O_TRUNC).await).await
            }
            false => self.answered("open", open(append).await),
        };
        self.open.extend(opened.map(|opened| (file, opened)));
    }

    pub(super) async fn close(&mut self, file: usize) {
        if let Some(open) = self.open.remove(&file) {
            self.begins(format!("close of file{file}"));
            self.answered("close", open.close().await);
            self.ended();
        }
    }

    pub(super) async fn close_all(&mut self) {
        for file in 0..self.files().len() {
            self.close(file).await;
        }
    }

    pub(super) async fn fsync(&self, file: usize) {
        self.begins(format!("fsync of file{file}"));
        self.answered("fsync", self.handle(file).fsync(false).await);
        self.ended();
    }

    pub(super) async fn write(&self, file: usize, at: usize, count: usize) {
        let shared = self.shared(file);
        let id = self.board.borrow_mut().next_id();
        let data = cells(id, count * shared.cell_bytes);
        let write = async || self.write_all(file, at * shared.cell_bytes, data).await;
        if shared.usage != Use::Wide {
            self.change_pages(file, PagesCall::Write { at, count, id }, write).await;
            return;
        }
        let what = format!("file{file} write of {id} to {at}, {count}");
        self.wants_room.set(Some(TargetKind::Ost));
        self.begins(what.clone());
        let wide = self.board.borrow_mut().wide_write(self.who, (at, count, id));
        if self.answered(&what, write().await).is_some() {
            self.board.borrow_mut().wide_done(&wide);
        }
        self.ended();
    }

    pub(super) async fn append(&self, file: usize, count: usize) {
        let shared = self.shared(file);
        let id = self.board.borrow_mut().next_id();
        let data = cells(id, count * shared.cell_bytes);
        let call = PagesCall::Append(Append { count, id });
        self.change_pages(file, call, async || self.write_all(file, 0, data).await).await;
    }

    async fn write_all(&self, file: usize, offset: usize, data: Bytes) -> client::Result<()> {
        let len = data.len();
        let written = self.handle(file).write(offset as u64, data).await?;
        match written == len {
            true => Ok(()),
            false => Err(client::Error::local(Errno::ENOSPC, "short write")),
        }
    }

    pub(super) async fn truncate(&self, file: usize, to: usize) {
        let (shared, open) = (self.shared(file), self.handle(file));
        let size = Some((to * shared.cell_bytes) as u64);
        let set = SetAttr { size, ..SetAttr::default() };
        self.change_pages(file, PagesCall::Truncate { to }, async || {
            self.client.setattr(&self.ctx, shared.fid, &set, Some(&open)).await
        })
        .await;
    }

    pub(super) async fn punch(&self, file: usize, at: usize, count: usize) {
        let (cell_bytes, open) = (self.shared(file).cell_bytes as u64, self.handle(file));
        let (offset, len) = (at as u64 * cell_bytes, count as u64 * cell_bytes);
        self.change_pages(file, PagesCall::Punch { at, count }, async || {
            open.fallocate(PUNCH, offset, len).await
        })
        .await;
    }

    pub(super) async fn read(&self, file: usize, at: usize, count: usize) {
        let shared = self.shared(file);
        let begin = self.begins(format!("file{file} read of {at}, {count}"));
        let (offset, len) = (at * shared.cell_bytes, count * shared.cell_bytes);
        let data = self.handle(file).read(offset as u64, len).await;
        if let Some(data) = self.answered("read", data) {
            match ids(&data, shared.cell_bytes) {
                Err(_) if self.are_half_written(file, begin, offset, &data) => {}
                Err(what) => self.fail(format!("file{file}, read from cell {at}: {what}")),
                Ok(found) => {
                    let mut board = self.board.borrow_mut();
                    if shared.usage == Use::Wide {
                        board.wide_read(self.who, begin, (at, count), &found);
                    } else {
                        let call = PagesCall::Read { at, count, found };
                        board.pages_read(self.who, file, begin, call);
                    }
                }
            }
        }
        self.ended();
    }

    /// Whether all cells that are not of one write are explained by a power cut.
    fn are_half_written(&self, file: usize, begin: u64, offset: usize, data: &[u8]) -> bool {
        let (cell_bytes, board) = (self.shared(file).cell_bytes, self.board.borrow());
        let mut cells = (offset..).step_by(cell_bytes).zip(data.chunks(cell_bytes));
        cells.all(|(at, cell)| {
            ids(cell, cell_bytes).is_ok() || board.is_half_written(file, begin, at, cell)
        })
    }

    /// Through the open file or by name.
    pub(super) async fn size(&self, file: usize, by_handle: bool) {
        let (shared, open) = (self.shared(file), self.handle(file));
        let begin = self.begins(format!("file{file} size"));
        let open = by_handle.then_some(&open);
        let attr = self.client.getattr(&self.ctx, shared.fid, open).await;
        if let Some(attr) = self.answered("stat", attr) {
            let found = attr.size as usize / shared.cell_bytes;
            let mut board = self.board.borrow_mut();
            let looked = PagesCall::Size { found };
            if !(attr.size as usize).is_multiple_of(shared.cell_bytes)
                && !board.sees_half(file, begin, &looked)
            {
                board.fail(format!("file{file} has {} bytes", attr.size));
            } else if shared.usage == Use::Wide {
                board.wide_saw(self.who, begin, found, found);
            } else {
                board.pages_read(self.who, file, begin, looked);
            }
        }
        self.ended();
    }
}

/// The lengths of the names in a directory are powers of two, so that its size tells which are
/// there.
fn name_of(place: u8) -> String {
    "n".repeat(1 << (place % PLACES))
}

fn seen(attr: &Attr) -> Seen {
    Seen { links: attr.nlink, mode: attr.mode & PERMISSIONS }
}

/// Bytes of which each word names the write.
fn cells(id: u32, len: usize) -> Bytes {
    id.to_le_bytes().into_iter().cycle().take(len).collect()
}

/// Which write each cell is of.
fn ids(data: &[u8], cell_bytes: usize) -> Result<Vec<u32>, String> {
    if !data.len().is_multiple_of(cell_bytes) {
        return Err(format!("{} bytes are not whole cells of {cell_bytes}", data.len()));
    }
    let id = |(index, cell): (usize, &[u8])| {
        let words: Vec<u32> = cell
            .chunks_exact(4)
            .map(|word| u32::from_le_bytes(word.try_into().expect("four bytes")))
            .collect();
        match words.iter().all(|word| *word == words[0]) {
            true => Ok(words[0]),
            false => Err(format!("cell {index} is of several writes: {words:?}")),
        }
    };
    data.chunks_exact(cell_bytes).enumerate().map(id).collect()
}
