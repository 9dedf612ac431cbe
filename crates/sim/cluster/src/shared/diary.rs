//! Users that keep diaries. Each writes a file of its own while servers lose power and clients are
//! away for too long, so that acknowledged work is lost. [`oracle::diary`] defines what must hold.

use std::cell::RefCell;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File};
use env::Env;
use env_sim::Rng;
use layout::Template;
use oracle::diary::WriteId;
use oracle::test_ctx;
use types::{Errno, Fid, Span, TargetKind};

use super::board::{Board, STRIPE_BYTES};
use super::worker::{DISMAY, State, THINK};

const O_RDWR: u32 = 0o2;
const O_EXCL: u32 = 0o200;
/// Written whole, and lost whole or not at all: a block of a disk.
const PAGE_BYTES: usize = 4_096;
/// Over two stripes.
const PAGES: usize = 2 * STRIPE_BYTES / PAGE_BYTES;
/// Between two calls, when what was asked for is long done.
const SLOW: Span = Span::millis(150);
/// Read after an fsync, of the pages that it answered for.
const READ_BACK_MAX: usize = PAGES;
/// Open at the same time.
const HANDLES: usize = 2;
/// What calls may fail with.
const HARD: [Errno; 3] = [Errno::EIO, Errno::ESTALE, Errno::ENOENT];

/// An empty diary.
pub(super) async fn make(client: &Client, who: u32) -> client::Result<Fid> {
    let template =
        Template { stripe_size: STRIPE_BYTES as u32, stripe_count: 2, ..Template::default() };
    let (name, flags) = (format!("diary{who}"), O_RDWR | O_EXCL);
    let (attr, file) = client
        .create(&test_ctx(), Fid::ROOT, name.as_bytes(), 0o666, flags, Some(&template.into()))
        .await?;
    file.close().await?;
    Ok(attr.fid())
}

/// One user.
pub(super) struct Keeper {
    client: Client,
    ctx: Ctx,
    who: u32,
    board: Rc<RefCell<Board>>,
    open: [Option<File>; HANDLES],
}

impl Keeper {
    pub(super) fn new(client: Client, who: u32, board: Rc<RefCell<Board>>) -> Keeper {
        Keeper { client, ctx: test_ctx(), who, board, open: [None, None] }
    }

    pub(super) async fn keep(&mut self, env: &Env, mut rng: Rng, calls: u32, state: &State) {
        for call in 0.. {
            state.idle.set(call >= calls);
            if (state.may_rest.get() && state.idle.get()) || self.board.borrow().failure().is_some()
            {
                break;
            }
            // faults go on for longer than the work that was asked for
            let most = if call >= 2 * calls { SLOW } else { THINK.1 };
            env.sleep(rng.span(THINK.0, most)).await;
            if !self.act(&mut rng).await {
                env.sleep(rng.span(DISMAY.0, DISMAY.1)).await;
                self.sync_all().await;
            }
        }
        for handle in 0..HANDLES {
            self.close(handle).await;
        }
    }

    /// Whether it succeeded.
    async fn act(&mut self, rng: &mut Rng) -> bool {
        let (handle, page) = (rng.index(HANDLES), rng.index(PAGES));
        let Some(file) = self.open[handle].clone() else { return self.open(handle).await };
        match rng.below(100) {
            0..=69 => self.write(&file, page).await,
            // each makes durable what the others have written to the same OSTs
            70..=71 => self.fsync(handle, &file).await,
            72..=98 => self.read(&file, page).await,
            _ => self.close(handle).await,
        }
    }

    /// Looks at everything once.
    pub(super) async fn look(&mut self) {
        self.open(0).await;
        let pages: Vec<_> = self.board.borrow_mut().diary(self.who).1.pages().collect();
        for page in pages {
            if let Some(file) = self.open[0].clone() {
                self.read(&file, page).await;
            }
        }
        self.close(0).await;
    }

    fn begins(&self, what: String) {
        tracing::debug!("user {} {what}", self.who);
        self.board.borrow_mut().begins(self.who, what);
    }

    /// The answer; an error that no call may have is a failure.
    fn answered<T>(&self, what: &str, answer: client::Result<T>) -> Option<T> {
        let mut board = self.board.borrow_mut();
        let answer = match answer {
            Ok(answer) => Some(answer),
            Err(error) => {
                tracing::debug!("user {} {what}: {error}", self.who);
                let is_full = board.may_lack_room(self.who, TargetKind::Ost);
                let may_be = board.is_hard && HARD.contains(&error.errno())
                    || is_full && error.errno() == Errno::ENOSPC;
                if !may_be {
                    board.fail(format!("user {}: {what}: {error}", self.who));
                }
                None
            }
        };
        board.ended(self.who);
        answer
    }

    async fn open(&mut self, handle: usize) -> bool {
        let fid = self.board.borrow_mut().diary(self.who).0;
        self.begins(format!("opens its diary as {handle}"));
        let opened = self.client.open(&self.ctx, fid, O_RDWR).await;
        let Some(file) = self.answered("open", opened) else { return false };
        self.board.borrow_mut().diary(self.who).1.opened(handle as u32);
        self.open[handle] = Some(file);
        true
    }

    /// What is lost, if anything is?
    async fn sync_all(&self) {
        for (handle, file) in self.open.iter().enumerate() {
            if let Some(file) = file {
                self.fsync(handle, file).await;
            }
        }
    }

    async fn close(&mut self, handle: usize) -> bool {
        let Some(file) = self.open[handle].take() else { return true };
        self.board.borrow_mut().diary(self.who).1.closed(handle as u32);
        self.begins(format!("closes {handle}"));
        let closed = file.close().await;
        self.answered("close", closed).is_some()
    }

    async fn write(&self, file: &File, page: usize) -> bool {
        let id = self.board.borrow_mut().next_id();
        self.begins(format!("writes {id} to page {page}"));
        let begun = self.board.borrow_mut().diary(self.who).1.begins(page, id);
        let data: Bytes = id.to_le_bytes().into_iter().cycle().take(PAGE_BYTES).collect();
        let written = file.write((page * PAGE_BYTES) as u64, data).await;
        match self.answered("write", written) {
            Some(PAGE_BYTES) => {
                self.board.borrow_mut().diary(self.who).1.acknowledged(begun);
                true
            }
            _ => false,
        }
    }

    async fn fsync(&self, handle: usize, file: &File) -> bool {
        self.begins(format!("syncs {handle}"));
        let synced = file.fsync(false).await;
        let is_done = self.answered("fsync", synced).is_some();
        if !is_done && self.client.lost() > 0 {
            planted::reached("sim: an fsync told of lost work");
        }
        let pages = self.board.borrow_mut().diary(self.who).1.synced(handle as u32, is_done);
        for page in pages.into_iter().take(READ_BACK_MAX) {
            self.read(file, page).await;
        }
        is_done
    }

    async fn read(&self, file: &File, page: usize) -> bool {
        self.begins(format!("reads page {page}"));
        let data = file.read((page * PAGE_BYTES) as u64, PAGE_BYTES).await;
        let Some(data) = self.answered("read", data) else { return false };
        let mut board = self.board.borrow_mut();
        let seen = found(&data).and_then(|id| {
            let diary = &board.diary(self.who).1;
            diary.read(page, id)
        });
        if let Err(what) = seen {
            board.fail(format!("diary of user {}: {what}", self.who));
        }
        true
    }
}

/// The write that a page is of.
fn found(data: &[u8]) -> Result<WriteId, String> {
    let mut words = data
        .chunks_exact(4)
        .map(|word| WriteId::from_le_bytes(word.try_into().expect("four bytes")));
    let Some(first) = words.next() else { return Ok(0) };
    match data.len() == PAGE_BYTES && words.all(|word| word == first) {
        true => Ok(first),
        false => Err(format!("a page of {} bytes is of several writes", data.len())),
    }
}
