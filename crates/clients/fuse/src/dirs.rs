//! Open directories.
//!
//! A handle keeps the last page that it fetched, because the kernel requests less at a time than
//! one round trip should bring. A read from the start fetches a new page.

use std::cell::RefCell;

use client::{Ctx, DirPage, Heard, Listing};
use types::Fid;

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
}

impl Dir {
    /// Opened, nothing read yet.
    pub(crate) fn new(fid: Fid, opener: Ctx, heard: Heard) -> Dir {
        Dir { fid, opener, page: RefCell::new(None), listing: Listing::new(fid), heard }
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

    use super::*;

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
