//! Names of directories that the kernel keeps (`FOPEN_CACHE_DIR`). A listing that is repeated then
//! sends no request for names.
//!
//! ```text
//!  opened, nothing is kept --> told under one listing of the client --> whole --> opened again
//!       ^                          | another listing, or none             |
//!       |                          v                                      v the listing ends
//!       +----- all are closed -- mixed                         attributes are asked for: dropped
//! ```
//! - Through a handle of this kind, the kernel adds each name that it hears to those that it
//!   keeps, even if it hears late. It uses them once it has heard of their end. So it hears of the
//!   end only if all names that it may have belong to one listing of the client
//!   ([`client::Client::has_listed`]).
//! - An end that the kernel takes in late must not follow names that it does not end. So while one
//!   thread may still take in an end, no other one hears names from the start on. While one may
//!   still take in a start, no other one hears an end of this kind.
//! - An open without `FOPEN_KEEP_CACHE` drops the names of before. It happens only while no other
//!   handle of this kind is open. So no answer with names of before is on its way.
//! - Each open asks the client, which compares the listing. An open handle may begin again
//!   (`rewinddir`). Then the kernel asks for attributes, unless they are valid. When the listing
//!   has ended, a directory with such handles gets attributes that are valid for no time. Their
//!   answer comes after the names were dropped. [`crate::page_cache`] has the same rule.
//! - In the middle of a directory, the kernel asks for nothing. POSIX does not say whether a name
//!   is listed that comes or goes after the begin.
//! - Names come without attributes from the kernel. It would ask for each file whose attributes
//!   have ended, by time or because the file has changed. So it asks for names again if there are
//!   many of these ([`crate::kept_dirs::Pass`], [`crate::nodes::Nodes::take_lost`]).

use std::io;

use fusedev::abi::{self, cap};
use fusedev::{DirBuf, Header};
use types::{Errno, Fid};

use crate::dirs::{Dir, Page};
use crate::fs::Fs;
use crate::guard::Guard;
use crate::kept_dirs::{Opening, Part};
use crate::limits::PAGES_WAIT;

impl Fs {
    /// Whether this kernel keeps names of directories. It has to ask before it begins to read, and
    /// to keep names of files for long: it would look each up again otherwise.
    fn may_keep_names(&self) -> bool {
        let has_attrs = self.capabilities.get() & cap::DO_READDIRPLUS != 0;
        has_attrs && self.notifier.has_epochs() && self.client.may_cache(0)
    }

    /// How a directory is opened, as flags. Names are not kept while the kernel may still take in
    /// attributes that nothing guards, because it would not ask before it begins again.
    pub(crate) fn opened_dir(&self, header: &Header, dir: &Dir, fh: u64) -> u32 {
        if !self.may_keep_names() {
            return 0;
        }
        let now = self.env.now();
        let told = self.nodes.borrow().believed(dir.fid, now);
        if told.is_none_or(|told| told.attrs_until > now) {
            return abi::FOPEN_KEEP_CACHE;
        }
        self.note_lost(header.nodeid);
        let listed = self.client.listed_since(dir.fid);
        let handle = (header.nodeid, fh);
        let opening = self.kept_dirs.borrow_mut().open(handle, listed, header.pid, now);
        match opening {
            Opening::Aside => abi::FOPEN_KEEP_CACHE,
            Opening::New => abi::FOPEN_CACHE_DIR,
            Opening::Kept => {
                if self.was_read(&dir.opener, header.nodeid) {
                    self.make_old(header.nodeid); // the kernel does not count its own reads
                }
                abi::FOPEN_CACHE_DIR | abi::FOPEN_KEEP_CACHE
            }
        }
    }

    /// The kernel has to ask for entries of a directory that it had when it read them last.
    pub(crate) fn note_lost(&self, nodeid: u64) {
        let lost = self.nodes.borrow_mut().take_lost(nodeid);
        self.kept_dirs.borrow_mut().lost(nodeid, lost);
    }

    /// Another thread may still have to take in the end of a directory that this one wants to read
    /// from its start.
    pub(crate) async fn await_end_heard(&self, header: &Header, fh: u64) {
        let until = || self.kept_dirs.borrow().start_after(fh, header.pid, self.env.now());
        while let Some(until) = until() {
            self.env.sleep_until(until).await;
        }
    }

    /// The kernel is about to hear `out`, which is the begin of `page`. An end of which it may not
    /// hear is told in another way.
    pub(crate) fn tell_names_of(
        &self,
        header: &Header,
        (dir, args): (&Dir, &abi::ReadIn),
        page: &Page,
        out: &mut DirBuf,
    ) {
        let is_end = out.is_empty();
        let mut pass = dir.pass.get();
        pass.answered();
        dir.pass.set(pass);
        let mut kept = self.kept_dirs.borrow_mut();
        if is_end {
            kept.passed(header.nodeid, pass);
        }
        if !kept.has(args.fh) {
            return;
        }
        let listed = self.client.has_listed(&dir.listing, page.after, &page.page);
        let part = Part { listed, is_start: args.offset == 0, is_end };
        if !kept.told(args.fh, part, header.pid, self.env.now()) && is_end {
            out.end_aside();
        }
    }

    /// Whether the kernel has to ask for the attributes of a directory before it reads names.
    pub(crate) fn must_ask_for_dir(&self, nodeid: u64, fid: Fid, guard: Guard) -> bool {
        let is_open = self.kept_dirs.borrow().is_open(nodeid);
        is_open && (guard == Guard::None || self.has_stale_names(nodeid, fid))
    }

    /// Whether the kernel may read names through an open handle that are not those of now.
    pub(crate) fn has_stale_names(&self, nodeid: u64, fid: Fid) -> bool {
        self.kept_dirs.borrow().is_stale(nodeid, || self.client.listed_since(fid))
    }

    /// The kernel asks for attributes, perhaps before it begins to read names: it finds none of
    /// before.
    pub(crate) async fn drop_stale_names(&self, nodeid: u64) -> Result<(), Errno> {
        let state = self.kept_dirs.borrow().state(nodeid);
        let outcome = self.env.timeout(PAGES_WAIT, self.notifier.drop_names(nodeid)).await;
        let is_dropped = match &outcome {
            Some(Err(error)) => error.kind() == io::ErrorKind::NotFound,
            Some(Ok(())) => true,
            None => false,
        };
        if !is_dropped {
            tracing::warn!(nodeid, ?outcome, "the kernel does not drop names");
            return Err(Errno::EIO);
        }
        self.kept_dirs.borrow_mut().dropped(nodeid, state);
        Ok(())
    }

    /// A directory may have moved by a request of this kernel, which goes on to believe its
    /// attributes.
    pub(crate) fn doubt_kept_dirs(&self) {
        let used = self.kept_dirs.borrow().used();
        for nodeid in used {
            let Ok(fid) = self.fid(nodeid) else { continue };
            if self.has_stale_names(nodeid, fid) {
                self.make_old(nodeid);
            }
        }
    }
}
