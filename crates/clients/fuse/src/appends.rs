//! Appends that the kernel cuts into pieces.
//!
//! The kernel sends a long O_APPEND write as several WRITEs, one after the other or all at once. It
//! does not report the length of the whole. The offsets start at the kernel's idea of the end of
//! the file. They give a piece's position relative to the first piece, and nothing else. The first
//! piece takes the file's lock and finds the end. The lock is released behind the last piece.
//!
//! Invariants
//! - The kernel locks a file for an append, so pieces that are under way together belong to one
//!   call.
//! - A piece is the last one if it is shorter than the kernel's piece size by more than a page. The
//!   margin is needed because a buffer that begins within a page fills a page less.
//! - Otherwise the length comes from the caller's system call, if it can be looked up. If it
//!   cannot, the lock is kept for a moment.
//! - A call whose caller was killed takes no more pieces.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use client::{Appending, File};
use env::Env;
use tokio::sync::OnceCell;
use types::{Errno, Fid};

use crate::error::errno;
use crate::limits::{APPEND_PAUSE, APPEND_PAUSE_KNOWN, CALL_BYTES_MAX, PAGE_BYTES};

/// A WRITE that appends.
pub(crate) struct Piece {
    pub(crate) fh: u64,
    pub(crate) flags: u32,
    pub(crate) offset: u64,
    pub(crate) data: Bytes,
    /// The calling thread.
    pub(crate) pid: u32,
}

/// The appends under way, by file.
pub(crate) struct Appends {
    env: Env,
    /// Bytes of the longest WRITE.
    piece_max: u64,
    /// How long the write call of a thread is, where that can be looked up.
    length_of: fn(u32) -> Option<u64>,
    calls: RefCell<BTreeMap<Fid, Rc<Call>>>,
}

/// One call of an application.
struct Call {
    fh: u64,
    pieces: RefCell<Pieces>,
    /// Whose lock is given back first.
    before: RefCell<Option<Rc<Call>>>,
    held: OnceCell<Appending>,
    /// Counts pieces, so that a pause ends the call only if none came meanwhile.
    count: Cell<u64>,
}

impl Appends {
    pub(crate) fn new(env: &Env, piece_max: u32, length_of: fn(u32) -> Option<u64>) -> Appends {
        Appends {
            env: env.clone(),
            piece_max: piece_max.into(),
            length_of,
            calls: RefCell::default(),
        }
    }

    /// Whether a piece of so many bytes is a whole call, and no other call is under way.
    pub(crate) fn is_whole(&self, fid: Fid, len: u64) -> bool {
        !is_long(len, self.piece_max) && !self.calls.borrow().contains_key(&fid)
    }

    /// Writes a piece behind the end of `file`; says how many bytes of it were written.
    pub(crate) async fn write(self: &Rc<Self>, file: &File, piece: Piece) -> Result<usize, Errno> {
        let (fid, len) = (file.fid(), piece.data.len() as u64);
        let call = self.call_of(fid, &piece);
        call.count.set(call.count.get() + 1);
        let goes_on = call.pieces.borrow_mut().begin(piece.offset, len);
        let written = self.put(file, &call, piece, goes_on).await;
        let full = written.as_ref().is_ok_and(|written| *written as u64 == len);
        let next = call.pieces.borrow_mut().end(full, self.piece_max);
        match next {
            Next::OthersUnderWay => return written,
            Next::MayCome => {
                self.pause(fid, &call);
                return written;
            }
            Next::Over => {}
        }
        self.part(fid, &call);
        match call.held.get() {
            Some(held) => held.finish().await.map_err(errno).and(written),
            None => written,
        }
    }

    /// The call that a piece belongs to: one under way, or a new one. A call that waited for more
    /// is over then.
    fn call_of(&self, fid: Fid, piece: &Piece) -> Rc<Call> {
        let known = self.calls.borrow().get(&fid).cloned();
        if let Some(call) = &known
            && call.fh == piece.fh
            && call.pieces.borrow().take(piece.offset)
        {
            return call.clone();
        }
        let before = known.filter(|call| self.is_idle(fid, call));
        let call = Rc::new(Call {
            fh: piece.fh,
            pieces: RefCell::new(Pieces::new(piece.offset)),
            before: RefCell::new(before),
            held: OnceCell::new(),
            count: Cell::new(0),
        });
        self.calls.borrow_mut().insert(fid, call.clone());
        call
    }

    /// Ends a call; whether its lock is left to be given back by this caller.
    fn is_idle(&self, fid: Fid, call: &Rc<Call>) -> bool {
        self.part(fid, call) && call.pieces.borrow().under_way == 0
    }

    async fn put(
        &self,
        file: &File,
        call: &Call,
        piece: Piece,
        goes_on: bool,
    ) -> Result<usize, Errno> {
        let is_long = is_long(piece.data.len() as u64, self.piece_max);
        let held = call
            .held
            .get_or_try_init(|| async {
                let before = call.before.borrow_mut().take();
                if let Some(before) = before {
                    finish(&before).await;
                }
                let held = file.begin_append().await?;
                // asked for this late because the caller must have gone to sleep
                let length = is_long.then(|| (self.length_of)(piece.pid)).flatten();
                call.pieces.borrow_mut().found(held.end(), length);
                Ok(held)
            })
            .await
            .map_err(errno)?;
        if goes_on {
            let end = held.find_end().await.map_err(errno)?;
            call.pieces.borrow_mut().found_longer(piece.offset, end);
        }
        let offset = call.pieces.borrow().place(piece.offset);
        held.write(piece.flags, offset, piece.data).await.map_err(errno)
    }

    /// Ends the call unless a piece comes within a moment.
    fn pause(self: &Rc<Self>, fid: Fid, call: &Rc<Call>) {
        let (appends, call, count) = (self.clone(), call.clone(), call.count.get());
        let pause =
            if call.pieces.borrow().length.is_some() { APPEND_PAUSE_KNOWN } else { APPEND_PAUSE };
        self.env.spawn("append", async move {
            appends.env.sleep(pause).await;
            if call.count.get() == count && appends.part(fid, &call) {
                finish(&call).await;
            }
        });
    }

    /// The file is changed by something that waits for an append to end, so the last one has.
    pub(crate) async fn finish(&self, fid: Fid) {
        let call = self.calls.borrow().get(&fid).cloned();
        if let Some(call) = call
            && self.is_idle(fid, &call)
        {
            finish(&call).await;
        }
    }

    /// The caller of a write was killed. What is under way is taken back unless its OST has begun
    /// it; the lock is kept until that is known.
    pub(crate) fn was_killed(&self, fid: Fid) {
        let call = self.calls.borrow_mut().remove(&fid);
        if let Some(call) = call {
            call.pieces.borrow_mut().cut_short = true;
            if let Some(held) = call.held.get() {
                held.give_up();
            }
        }
    }

    /// The call takes no more pieces; whether it did until now.
    fn part(&self, fid: Fid, call: &Rc<Call>) -> bool {
        let mut calls = self.calls.borrow_mut();
        let current = calls.get(&fid).is_some_and(|current| Rc::ptr_eq(current, call));
        if current {
            calls.remove(&fid);
        }
        call.pieces.borrow_mut().cut_short = true;
        current
    }
}

async fn finish(call: &Call) {
    if let Some(held) = call.held.get()
        && let Err(error) = held.finish().await
    {
        tracing::debug!("the lock of an append could not be given back: {error}");
    }
}

/// What follows a piece.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Next {
    OthersUnderWay,
    MayCome,
    Over,
}

/// The pieces of one call, by the kernel's offsets.
#[derive(Clone, Copy, Debug)]
struct Pieces {
    /// Of the first piece.
    first: u64,
    /// Behind the last one.
    last: u64,
    /// Where the first piece lies in the file, once that is known.
    base: Option<u64>,
    /// Bytes of the whole call, where they are known.
    length: Option<u64>,
    under_way: u32,
    /// Bytes of the last piece.
    last_len: u64,
    /// No more pieces are taken: one failed, or the caller is dead.
    cut_short: bool,
}

impl Pieces {
    fn new(offset: u64) -> Pieces {
        Pieces {
            first: offset,
            last: offset,
            base: None,
            length: None,
            under_way: 0,
            last_len: 0,
            cut_short: false,
        }
    }

    /// Whether a piece that comes now belongs to this call.
    fn take(&self, offset: u64) -> bool {
        let known = self.base.is_some();
        if self.cut_short || (known && offset < self.first) {
            return false;
        }
        let room = self.length.unwrap_or(CALL_BYTES_MAX);
        self.under_way > 0 || (offset == self.last && self.last - self.first < room)
    }

    /// A piece begins. Says whether it may as well be the first one of another call: then the end
    /// of the file must be looked at again.
    fn begin(&mut self, offset: u64, len: u64) -> bool {
        let goes_on = self.base.is_some() && self.under_way == 0 && self.length.is_none();
        self.under_way += 1;
        if self.base.is_none() {
            self.first = self.first.min(offset);
        }
        let end = offset.saturating_add(len);
        if end > self.last {
            (self.last, self.last_len) = (end, len);
        }
        goes_on
    }

    /// The file ends at `base`, and the call is of so many bytes.
    fn found(&mut self, base: u64, length: Option<u64>) {
        self.base = Some(base);
        self.length = length.filter(|length| self.last - self.first <= *length);
    }

    /// The file ends at `end` before a piece that goes on: what others wrote there stays.
    fn found_longer(&mut self, offset: u64, end: u64) {
        if self.under_way == 1 && end > self.place(offset) {
            self.first = offset;
            self.base = Some(end);
        }
    }

    fn place(&self, offset: u64) -> u64 {
        self.base.unwrap_or(0).saturating_add(offset.saturating_sub(self.first))
    }

    /// A piece has ended, fully written or not.
    fn end(&mut self, full: bool, piece_max: u64) -> Next {
        self.under_way -= 1;
        self.cut_short |= !full;
        let is_whole = match self.length {
            Some(length) => self.last - self.first >= length,
            None => !is_long(self.last_len, piece_max),
        };
        match self.under_way {
            0 if self.cut_short || is_whole => Next::Over,
            0 => Next::MayCome,
            _ => Next::OthersUnderWay,
        }
    }
}

/// Whether another piece of the same call may follow one of `len` bytes.
fn is_long(len: u64, piece_max: u64) -> bool {
    len.saturating_add(PAGE_BYTES) >= piece_max
}

#[cfg(test)]
mod tests;
