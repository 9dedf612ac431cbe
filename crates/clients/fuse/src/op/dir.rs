//! Directories: entries in directory order, resumed by cookies.
//!
//! Offsets as the kernel sees them: 0 is the start, 1 is behind ".", 2 is behind "..", then an
//! entry's cookie plus 2. They stay valid over any number of reads, closes and changes, because the
//! cookies do.
//!
//! The kernel keeps the directory locked while it reads, so no OST is asked. Attributes are
//! included (`readdirplus`) only under a lease that the client gives with the page. Attributes
//! without a lease are useless because they may change at once. The kernel looks up an entry
//! without attributes by its name, unless it still has the entry ([`crate::fresh`]).
//!
//! The kernel keeps names, and may list them again without a request ([`crate::kept_names`]).
//!
//! While the kernel reads a page with attributes, the next one is asked for. The client keeps that
//! page, and answers the kernel from it only while its grants hold. So a page that came early is
//! never older than one that is asked for now.

use std::cell::Cell;
use std::rc::Rc;

use client::{Ctx, DirPage, Dirent, Glance, Lease, Listing};
use fusedev::abi;
use fusedev::{Body, DirBuf, Header, Reply};
use types::{Errno, Fid, Instant, Span};

use crate::dirs::{Ahead, Dir, Page, Slot};
use crate::error::errno;
use crate::fs::Fs;
use crate::kept_dirs::Pass;
use crate::limits::{
    AHEAD_BARE_SHARE, AHEAD_ENTRIES, DIR_PAGE_BYTES, ENTRY_BYTES_LEAST, FRESH_LEAST,
};
use crate::news;

/// Offset behind "..": what the cookies are raised by.
const DOTS: u64 = 2;
/// By how much a page is late under the planted bug `fuse.tell_old_pages`.
const OLD_PAGE: Span = Span::millis(20);
/// `d_type` of a directory.
const DT_DIR: u32 = libc::S_IFDIR >> 12;

fn is_denied<T>(told: &client::Result<T>) -> bool {
    told.as_ref().is_err_and(|error| error.errno() == Errno::EACCES)
}

/// The kernel has let the opener in, and an open directory stays readable whatever its mode is
/// later.
fn as_mount(opener: &Ctx) -> Ctx {
    Ctx { jobid: opener.jobid, ..Ctx::root() }
}

impl Fs {
    pub(crate) fn opendir(&self, header: &Header) -> Reply {
        let fid = self.fid(header.nodeid)?;
        let dir = Rc::new(Dir::new(fid, self.ctx(header, 0), self.client.listen(fid)));
        let fh = self.dirs.borrow_mut().insert(fid, dir.clone());
        let open_flags = self.opened_dir(header, &dir, fh);
        Ok(Body::Open(abi::OpenOut { fh, open_flags, ..Default::default() }))
    }

    pub(crate) fn releasedir(&self, fh: u64) -> Reply {
        self.kept_dirs.borrow_mut().close(fh);
        self.dirs.borrow_mut().remove(fh).map(|_| Body::Empty).ok_or(Errno::EBADF)
    }

    pub(crate) async fn fsyncdir(&self, header: &Header, fh: u64) -> Reply {
        let dir = self.dirs.borrow().get(fh).ok_or(Errno::EBADF)?;
        let synced = self.client.fsync_dir(&self.ctx(header, 0), dir.fid, &dir.heard).await;
        synced.map(|()| Body::Empty).map_err(errno)
    }

    pub(crate) async fn readdir(&self, header: &Header, args: abi::ReadIn, plus: bool) -> Reply {
        let dir = self.dirs.borrow().get(args.fh).ok_or(Errno::EBADF)?;
        let ctx = dir.opener.clone();
        let cookie = args.offset.saturating_sub(DOTS);
        if args.offset == 0 {
            self.was_read(&ctx, header.nodeid);
            self.note_lost(header.nodeid); // what is lost from now on counts after this pass
            dir.pass.set(Pass::START);
        }
        let mut out = DirBuf::new(args.size);
        if plus {
            self.await_ahead(&dir, cookie, args.size).await;
            let (page, lease) = self.fetch_leased(&ctx, &dir.listing, cookie, args.size).await?;
            if self.bugs.tell_old_pages() {
                self.env.sleep(OLD_PAGE).await;
            }
            if args.offset == 0 {
                Box::pin(self.await_end_heard(header, args.fh)).await;
            }
            let (thread, of, pass) = (header.pid, header.nodeid, &dir.pass);
            let told = Telling { lease, thread, dir: of, pass };
            let reached = self.fill(&mut out, dir.fid, &page, args.offset, Some(told));
            self.tell_names_of(header, (&dir, &args), &page, &mut out);
            dir.next.set(reached.saturating_sub(DOTS));
            self.ask_ahead(&dir, &page);
            return Ok(Body::Dir(out));
        }
        let kept = dir.page.borrow_mut().take().filter(|_| args.offset != 0);
        let page = match kept {
            Some(page) if page.position(cookie).is_some() => page,
            _ => self.fetch(&ctx, &dir.listing, cookie).await?,
        };
        self.fill(&mut out, dir.fid, &page, args.offset, None);
        self.tell_names_of(header, (&dir, &args), &page, &mut out);
        *dir.page.borrow_mut() = Some(page);
        Ok(Body::Dir(out))
    }

    /// A page that is on its way is waited for if the kernel needs it now. It is of no use if the
    /// kernel reads elsewhere, or if a change of a name has ended the listing.
    async fn await_ahead(&self, dir: &Dir, cookie: u64, bytes: u32) {
        let Some(ahead) = dir.ahead.borrow_mut().take() else { return };
        if cookie != dir.next.get() {
            return;
        }
        // without a listing, what comes is not kept
        let Some(behind) = self.client.listed_behind(&dir.listing, cookie) else { return };
        if behind.entries > bytes as usize / ENTRY_BYTES_LEAST {
            *dir.ahead.borrow_mut() = Some(ahead);
            return;
        }
        ahead.over().await;
    }

    /// Asks for the next page, if the kernel is about to need it.
    fn ask_ahead(&self, dir: &Dir, page: &Page) {
        if dir.ahead.borrow().as_ref().is_some_and(|ahead| !ahead.is_over()) {
            return;
        }
        let entries = &page.page.entries;
        let bare = entries.iter().filter(|entry| !entry.leased).count();
        if bare * AHEAD_BARE_SHARE > entries.len() {
            return;
        }
        let behind = self.client.listed_behind(&dir.listing, dir.next.get());
        let Some(behind) = behind.filter(|behind| behind.entries < AHEAD_ENTRIES) else { return };
        let Some(slot) = Slot::take(&self.ahead) else { return };
        let (client, ctx) = (self.client.clone(), dir.opener.clone());
        let asking = async move { client.read_ahead(&ctx, behind, DIR_PAGE_BYTES).await };
        *dir.ahead.borrow_mut() = Some(Ahead::begin(&self.env, slot, asking));
    }

    async fn fetch(&self, ctx: &Ctx, dir: &Listing, after: u64) -> Result<Page, Errno> {
        let mut page = self.client.readdir_on(ctx, dir, after, DIR_PAGE_BYTES).await;
        if is_denied(&page) {
            page = self.client.readdir_on(&as_mount(ctx), dir, after, DIR_PAGE_BYTES).await;
        }
        Ok(behind(after, page.map_err(errno)?))
    }

    async fn fetch_leased(
        &self,
        ctx: &Ctx,
        dir: &Listing,
        after: u64,
        bytes: u32,
    ) -> Result<(Page, Lease), Errno> {
        let mut told = self.client.readdir_leased(ctx, dir, after, bytes).await;
        if is_denied(&told) {
            told = self.client.readdir_leased(&as_mount(ctx), dir, after, bytes).await;
        }
        let (page, lease) = told.map_err(errno)?;
        Ok((behind(after, page), lease))
    }

    /// Entries from `offset` on, as many as fit; with attributes where there is a lease, and a
    /// thread that hears them. Returns the offset behind the last of them.
    fn fill(
        &self,
        out: &mut DirBuf,
        dir: Fid,
        page: &Page,
        offset: u64,
        leased: Option<Telling<'_>>,
    ) -> u64 {
        let (plus, mut reached) = (leased.is_some(), offset);
        let up = if page.page.parent.is_zero() { dir } else { page.page.parent };
        for (at, name, fid) in [(0, &b"."[..], dir), (1, b"..", up)] {
            if offset <= at
                && !push(out, plus.then(Default::default), (self.ino)(fid), at + 1, DT_DIR, name)
            {
                return reached;
            }
            reached = reached.max(at + 1);
        }
        let start = page.position(offset.saturating_sub(DOTS)).unwrap_or(page.page.entries.len());
        for entry in &page.page.entries[start..] {
            // The kernel counts a reference for what it is told, so it is counted only once it is
            // sure to fit.
            if !out.fits(plus, entry.name.len()) {
                return reached;
            }
            let told = leased.map(|to| self.tell(entry, to));
            let (ino, kind) = ((self.ino)(entry.attr.fid()), entry.attr.file_type() >> 12);
            let at = entry.cookie.saturating_add(DOTS);
            let pushed = push(out, told, ino, at, kind, &entry.name);
            assert!(pushed, "an entry that fits is taken");
            reached = at;
        }
        reached
    }
}

impl Fs {
    /// What the kernel is told of an entry besides its name: nothing unless it is leased, or if the
    /// kernel still has it.
    fn tell(&self, entry: &Dirent, to: Telling<'_>) -> abi::EntryOut {
        let now = self.env.now();
        let until = self.fresh_until(to.dir, entry);
        if !entry.leased || until > now + FRESH_LEAST {
            to.note(until, now);
            return abi::EntryOut::default();
        }
        let glance = Glance { attr: entry.attr, lease: to.lease, size_known: true };
        let told = self.entry(&glance, Some((to.dir, &entry.name)));
        let (attrs, name) = (news::told(&told), news::named(&told));
        to.note(now + attrs.span().min(name.span()), now);
        self.note_told(told.nodeid, attrs, to.thread);
        told
    }
}

/// Who hears attributes along with names.
#[derive(Clone, Copy)]
struct Telling<'a> {
    lease: Lease,
    thread: u32,
    /// The directory's node id.
    dir: u64,
    pass: &'a Cell<Pass>,
}

impl Telling<'_> {
    /// The kernel has an entry until then.
    fn note(&self, until: Instant, now: Instant) {
        let mut pass = self.pass.get();
        pass.told(until, now);
        self.pass.set(pass);
    }
}

/// The page behind the cookie `after`.
fn behind(after: u64, page: DirPage) -> Page {
    // A server that sends nothing and yet more to come would have us ask for ever.
    let at_end = page.at_end || page.entries.is_empty();
    Page { after, page: DirPage { at_end, ..page } }
}

/// A node id of zero in `told` means: a name without attributes.
fn push(
    out: &mut DirBuf,
    told: Option<abi::EntryOut>,
    ino: u64,
    off: u64,
    kind: u32,
    name: &[u8],
) -> bool {
    match told {
        Some(entry) => out.push_plus(&entry, ino, off, kind, name),
        None => out.push(ino, off, kind, name),
    }
}
