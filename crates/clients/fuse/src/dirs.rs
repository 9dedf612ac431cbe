//! Open directories.
//!
//! A handle keeps the last page that it fetched, because the kernel requests less at a time than
//! one round trip should bring. A read from the start fetches a new page.
//!
//! With attributes, the client keeps the fetched entries under grants. While the kernel reads, the
//! handle asks for the next page ([`Ahead`]).

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use client::{Ctx, DirPage, Heard, Listing};
use env::Env;
use tokio::sync::Notify;
use types::Fid;

use crate::kept_dirs::Pass;
use crate::limits::AHEAD_MAX;

/// An open directory.
pub(crate) struct Dir {
    pub(crate) fid: Fid,
    /// Who opened it. The kernel has checked that once: it may read on, whoever it is later.
    pub(crate) opener: Ctx,
    pub(crate) page: RefCell<Option<Page>>,
    /// What the reader has seen.
    pub(crate) listing: Listing,
    /// Lost work in it that its owner was told.
    pub(crate) heard: Heard,
    /// The cookie behind which the kernel reads next, if it reads on.
    pub(crate) next: Cell<u64>,
    pub(crate) ahead: RefCell<Option<Ahead>>,
    /// What it was told since the start.
    pub(crate) pass: Cell<Pass>,
}

impl Dir {
    /// Opened, nothing read yet.
    pub(crate) fn new(fid: Fid, opener: Ctx, heard: Heard) -> Dir {
        let listing = Listing::new(fid);
        let (page, next, ahead) = (RefCell::default(), Cell::new(0), RefCell::default());
        Dir { fid, opener, page, listing, heard, next, ahead, pass: Cell::new(Pass::START) }
    }
}

/// A page that is on its way before the kernel needs it. It comes even if this is dropped: the MDT
/// gives grants with it, and goes on holding them against other clients. So the client has to know
/// them.
pub(crate) struct Ahead(Rc<Coming>);

#[derive(Default)]
struct Coming {
    is_over: Cell<bool>,
    came: Notify,
}

impl Ahead {
    /// `asking` ends when the page is there.
    pub(crate) fn begin(
        env: &Env,
        slot: Slot,
        asking: impl Future<Output = ()> + 'static,
    ) -> Ahead {
        let coming = Rc::<Coming>::default();
        let to_tell = coming.clone();
        env.spawn("directory ahead", async move {
            asking.await;
            drop(slot);
            to_tell.is_over.set(true);
            to_tell.came.notify_waiters();
        });
        Ahead(coming)
    }

    pub(crate) fn is_over(&self) -> bool {
        self.0.is_over.get()
    }

    pub(crate) async fn over(&self) {
        let came = self.0.came.notified();
        if !self.is_over() {
            came.await;
        }
    }
}

/// One of the requests that a mount may have under way before a kernel needs their answers.
pub(crate) struct Slot(Rc<Cell<u32>>);

impl Slot {
    /// Nothing if all are taken. `taken` counts them.
    pub(crate) fn take(taken: &Rc<Cell<u32>>) -> Option<Slot> {
        if taken.get() >= AHEAD_MAX {
            return None;
        }
        taken.set(taken.get() + 1);
        Some(Slot(taken.clone()))
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        self.0.set(self.0.get() - 1);
    }
}

/// Entries behind a cookie.
pub(crate) struct Page {
    pub(crate) after: u64,
    pub(crate) page: DirPage,
}

impl Page {
    /// Index of the entry behind `cookie`, if this page can tell.
    pub(crate) fn position(&self, cookie: u64) -> Option<usize> {
        let entries = &self.page.entries;
        let index = if cookie == self.after {
            0
        } else {
            entries.binary_search_by_key(&cookie, |entry| entry.cookie).ok()? + 1
        };
        (index < entries.len() || self.page.at_end).then_some(index)
    }
}

#[cfg(test)]
mod tests {
    use client::{Attr, Dirent};
    use env::LocalFuture;
    use env_sim::{Sim, SimConfig};
    use types::Span;

    use super::*;

    #[test]
    fn pages_that_are_asked_ahead_are_bounded() {
        let taken = Rc::<Cell<u32>>::default();
        let mut slots: Vec<_> = (0..AHEAD_MAX).map(|_| Slot::take(&taken)).collect();
        assert!(slots.iter().all(Option::is_some) && Slot::take(&taken).is_none());
        slots.pop();
        assert!(Slot::take(&taken).is_some(), "a place that is free again");
    }

    #[test]
    fn a_page_that_is_not_waited_for_comes_and_frees_its_place_then() {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("client", "10.0.0.1@tcp".parse().expect("a NID"));
        let taken = Rc::<Cell<u32>>::default();
        let begin = |asking: LocalFuture<'static, ()>| {
            Ahead::begin(&node.env(), Slot::take(&taken).expect("one is free"), asking)
        };
        let came = begin(Box::pin(std::future::ready(())));
        let late = begin(node.env().sleep(Span::millis(5)));
        sim.run_for(Span::millis(1));
        assert_eq!((came.is_over(), late.is_over(), taken.get()), (true, false, 1));
        drop(late);
        sim.run_for(Span::millis(1));
        assert_eq!(taken.get(), 1, "its grants are to be taken");
        sim.run_for(Span::millis(5));
        assert_eq!(taken.get(), 0);
    }

    fn page(after: u64, cookies: &[u64], at_end: bool) -> Page {
        let mut bytes = Vec::new();
        for cookie in cookies {
            let entry = Dirent {
                cookie: *cookie,
                attr: Attr::default(),
                has_attr: true,
                leased: false,
                name: b"n".to_vec(),
            };
            wire::dirent::push(&mut bytes, &entry);
        }
        let entries = wire::dirent::decode(&bytes).expect("our own bytes");
        Page { after, page: DirPage { entries, at_end, parent: Fid::ROOT } }
    }

    #[test]
    fn a_page_continues_behind_any_of_its_entries() {
        let page = page(10, &[20, 30, 40], false);
        assert_eq!(page.position(10), Some(0));
        assert_eq!(page.position(20), Some(1));
        assert_eq!(page.position(30), Some(2));
    }

    #[test]
    fn what_a_page_does_not_hold_is_fetched() {
        let open = page(10, &[20, 30], false);
        assert_eq!((open.position(30), open.position(25), open.position(0)), (None, None, None));
        let last = page(10, &[20, 30], true);
        assert_eq!(last.position(30), Some(2));
    }
}
