//! readdir, readlink, fid2path.

use bytes::Bytes;
use ldlm::grants::Number;
use types::{Errno, Fid, Transno};
use wire::attr::AttrFlags;
use wire::body::{FidReq, ReaddirFlags, ReaddirRep, ReaddirReq, ReaddirState};
use wire::{Opcode, dirent};

use super::listing::Listing;
use super::lookup::is_gone;
use super::striped::cookie;
use crate::client::{Client, mdt_of};
use crate::grants::Gift;
use crate::{Ctx, DirPage, Error, Lease, Result, limits};

/// What this client keeps of a directory behind a reader's place, up to where more names may
/// follow.
#[derive(Clone, Copy, Debug)]
pub struct Behind {
    place: Fid,
    after: u64,
    /// Entries that are kept.
    pub entries: usize,
}

/// A page of one place.
struct Found {
    page: DirPage,
    lease: Lease,
    /// What the reply says of the directory's striping: nothing if the place has all names that it
    /// ever had.
    striping: ReaddirState,
}

impl Found {
    /// Of a place that is no more: its names are in other ones.
    fn gone() -> Found {
        let page = DirPage { at_end: true, ..DirPage::default() };
        Found { page, lease: Lease::default(), striping: ReaddirState::NAMES_MOVE }
    }
}

impl Client {
    /// The entries behind `cookie` (0: from the start), at most `bytes_max` bytes of them as they
    /// travel (about 150 plus the name each). Every entry that exists throughout is seen exactly
    /// once, whatever else changes, unless names move to other shards between two pages: for that
    /// there is [`Client::readdir_on`]. A cookie stays good while the directory keeps its shards.
    ///
    /// # Errors
    /// ENOTDIR, ENOENT, EACCES.
    pub async fn readdir(
        &self,
        ctx: &Ctx,
        dir: Fid,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<DirPage> {
        let listing = Listing::new(dir);
        self.read_dir(ctx, &listing, (cookie, bytes_max), false).await.map(|(page, _)| page)
    }

    /// The same for one reader of the directory, who sees each entry once also while names move to
    /// other shards.
    ///
    /// # Errors
    /// As [`Client::readdir`].
    pub async fn readdir_on(
        &self,
        ctx: &Ctx,
        listing: &Listing,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<DirPage> {
        self.read_dir(ctx, listing, (cookie, bytes_max), false).await.map(|(page, _)| page)
    }

    /// The same, and how long its names and the attributes of its leased entries hold. An entry is
    /// not leased of which this client may know something newer. For a kernel, a page that this
    /// client has read under a grant is not asked for again ([`Client::serve_kernel`]).
    ///
    /// # Errors
    /// As [`Client::readdir`].
    pub async fn readdir_leased(
        &self,
        ctx: &Ctx,
        listing: &Listing,
        cookie: u64,
        bytes_max: u32,
    ) -> Result<(DirPage, Lease)> {
        self.read_dir(ctx, listing, (cookie, bytes_max), true).await
    }

    /// What is kept of the directory behind `cookie` for [`Client::readdir_leased`]. Nothing if
    /// nothing is to be asked ahead: no names are kept, or all are.
    #[must_use]
    pub fn listed_behind(&self, listing: &Listing, cookie: u64) -> Option<Behind> {
        if self.0.is_moving(listing.dir()) {
            return None;
        }
        let (number, inside) = match listing.is_spread() {
            true => cookie::inside(cookie),
            false => (0, cookie),
        };
        let place = listing.place(number)?;
        let (after, entries) = self.0.grants.of(place).listed_behind(place, inside)?;
        Some(Behind { place, after, entries })
    }

    /// The number of the listing that this client keeps of a directory. While it stays the same,
    /// no name there has changed. Nothing: names may change unnoticed.
    #[must_use]
    pub fn listed_since(&self, dir: Fid) -> Option<u64> {
        self.0.grants.of(dir).listed_since(dir)
    }

    /// The same, if that listing has this page behind `cookie`. Nothing also if names of the
    /// directory are in other places.
    #[must_use]
    pub fn has_listed(&self, listing: &Listing, cookie: u64, page: &DirPage) -> Option<u64> {
        let dir = listing.dir();
        let is_spread = listing.is_spread();
        let (number, inside) = if is_spread { cookie::inside(cookie) } else { (0, cookie) };
        if number != 0 || !listing.is_plain() || self.0.is_moving(dir) {
            return None;
        }
        let shown = |own: u64| if is_spread { cookie::outside(0, own) } else { own };
        self.0.grants.of(dir).has_listed(dir, inside, page, &shown)
    }

    /// Asks for the page that follows, before a reader needs it. [`Client::readdir_leased`] returns
    /// it while it is granted. What fails is left to the reader.
    pub async fn read_ahead(&self, ctx: &Ctx, behind: Behind, bytes_max: u32) {
        if let Err(error) = self.list_leased(ctx, behind.place, behind.after, bytes_max).await {
            tracing::debug!(dir = %behind.place, %error, "a page does not come ahead");
        }
    }

    async fn read_dir(
        &self,
        ctx: &Ctx,
        listing: &Listing,
        (cookie, bytes_max): (u64, u32),
        is_leased: bool,
    ) -> Result<(DirPage, Lease)> {
        let dir = listing.dir();
        if cookie == 0 || !listing.has_begun() {
            let stripes = self.0.stripes(ctx, dir).await?;
            let places = stripes.map_or_else(|| vec![dir], |stripes| stripes.places().collect());
            listing.begin(places, self.0.has_mdts.get());
        }
        if listing.is_spread() {
            let read = self.read_places(ctx, listing, (cookie, bytes_max), is_leased);
            return Box::pin(read).await;
        }
        let place = (dir, cookie, bytes_max);
        let Found { mut page, lease, .. } = self.list_place(ctx, dir, place, is_leased).await?;
        self.show(&mut page);
        self.show_parent(ctx, (dir, cookie), &mut page).await?;
        Ok((page, lease))
    }

    /// The parent of a directory whose name is in a shard is the directory of that shard. Of later
    /// pages it does not count. A shard may end before its directory is known, because the name
    /// has moved on: then the directory has another parent by now. The parent of a directory that
    /// is removed may be gone for good, and stays as the page has it.
    async fn show_parent(
        &self,
        ctx: &Ctx,
        (dir, cookie): (Fid, u64),
        page: &mut DirPage,
    ) -> Result<()> {
        if cookie != 0 || page.parent.is_zero() || !self.0.has_mdts.get() {
            return Ok(());
        }
        for _ in 0..limits::MOVING_TRIES {
            match Box::pin(self.0.shown_dir(ctx, page.parent)).await {
                Err(error) if is_gone(&error) => self.0.env.sleep(limits::MOVING_PAUSE).await,
                shown => {
                    page.parent = shown?;
                    return Ok(());
                }
            }
            let head = (dir, 0, limits::READDIR_BYTES_MIN);
            match self.list_place(ctx, dir, head, false).await {
                Ok(found) => page.parent = found.page.parent,
                Err(error) if is_gone(&error) => return Ok(()),
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// A page of a directory whose names may be in several places: one place after the other. Of a
    /// place that ends empty the next. A place whose names move may have sent them to a later one.
    async fn read_places(
        &self,
        ctx: &Ctx,
        listing: &Listing,
        (cookie, bytes_max): (u64, u32),
        is_leased: bool,
    ) -> Result<(DirPage, Lease)> {
        let dir = listing.dir();
        let mut parent = match cookie {
            0 if !listing.is_plain() => {
                let own = (dir, 0, limits::READDIR_BYTES_MIN);
                let Found { page: mut own, .. } = self.list_place(ctx, dir, own, true).await?;
                self.show_parent(ctx, (dir, 0), &mut own).await?;
                own.parent
            }
            _ => Fid::ZERO,
        };
        listing.goes_on(cookie);
        let (mut number, mut inside) = cookie::inside(cookie);
        while let Some(place) = listing.place(number) {
            let found = self.list_place(ctx, dir, (place, inside, bytes_max), is_leased).await;
            let Found { mut page, lease, striping } = match found {
                Ok(found) => found,
                Err(error) if is_gone(&error) => Found::gone(),
                Err(error) => return Err(error),
            };
            if !striping.is_empty() && page.at_end {
                self.0.refresh(ctx, dir).await?;
                let stripes = self.0.stripes(ctx, dir).await?;
                let plain = || vec![dir];
                let places = stripes.map_or_else(plain, |stripes| stripes.places().collect());
                listing.extend(number, &places);
            }
            if cookie == 0 && parent.is_zero() && !page.parent.is_zero() {
                self.show_parent(ctx, (dir, 0), &mut page).await?;
                parent = page.parent;
            }
            let last = page.entries.last().map(|entry| entry.cookie);
            page.entries.retain_mut(|entry| {
                entry.cookie = cookie::outside(number, entry.cookie);
                listing.is_due(&entry.name, entry.cookie)
            });
            let is_last = number + 1 == listing.places();
            if page.entries.is_empty() && !(page.at_end && is_last) {
                (number, inside) = match last.filter(|_| !page.at_end) {
                    Some(last) => (number, last),
                    None => (number + 1, 0),
                };
                continue;
            }
            (page.at_end, page.parent) = (page.at_end && is_last, parent);
            self.show(&mut page);
            return Ok((page, lease));
        }
        Ok((DirPage { at_end: true, parent, ..DirPage::default() }, Lease::default()))
    }

    /// A page of a directory, or of one of its shards.
    async fn list_place(
        &self,
        ctx: &Ctx,
        dir: Fid,
        (place, cookie, bytes_max): (Fid, u64, u32),
        is_leased: bool,
    ) -> Result<Found> {
        if is_leased && !self.0.is_moving(dir) {
            return self.list_leased(ctx, place, cookie, bytes_max).await;
        }
        let flags = ReaddirFlags::empty();
        let (page, head, _) = self.list(ctx, place, cookie, bytes_max, flags).await?;
        let striping = head.at_end & !ReaddirState::AT_END;
        Ok(Found { page, lease: Lease::default(), striping })
    }

    /// Attributes of striped directories are not those that their MDT has.
    fn show(&self, page: &mut DirPage) {
        for entry in page.entries.iter_mut().filter(|entry| entry.has_attr) {
            self.0.note(&entry.attr);
            if entry.attr.flags.contains(AttrFlags::STRIPED) {
                (entry.has_attr, entry.leased) = (false, false);
            }
        }
    }

    /// A page of a directory or shard.
    async fn list_leased(&self, ctx: &Ctx, dir: Fid, cookie: u64, bytes_max: u32) -> Result<Found> {
        let bytes_max = clamped(bytes_max);
        let is_open = |fid: Fid| self.0.inodes.get(fid).is_some();
        let grants = self.0.grants.of(dir);
        if let Some((mut page, lease)) = grants.listed(dir, (cookie, bytes_max), &is_open) {
            self.show(&mut page);
            return Ok(Found { page, lease, striping: ReaddirState::empty() });
        }
        let reading = grants.reading(dir, cookie);
        let asking = grants.asking();
        let flags = ReaddirFlags::LEASES;
        let (mut page, head, as_of) = self.list(ctx, dir, cookie, bytes_max, flags).await?;
        let striping = head.at_end & !ReaddirState::AT_END;
        let moves = striping.contains(ReaddirState::NAMES_MOVE);
        if moves || (!striping.is_empty() && !self.0.is_striped(dir)) {
            page.entries.iter_mut().for_each(|entry| entry.leased = false);
            return Ok(Found { page, lease: Lease::default(), striping });
        }
        for entry in &mut page.entries {
            let fid = entry.attr.fid();
            let is_clean = !crate::needs_glimpse(&entry.attr) && self.0.trusts(&entry.attr);
            let is_exact = !is_open(fid) && is_clean;
            entry.has_attr &= fid.mdt_index() == dir.mdt_index();
            entry.leased &= entry.has_attr && is_exact;
        }
        let lease = asking.told_page(
            &mut page.entries,
            (Gift::of(head.lease_ms), Gift::of(head.name_lease_ms)),
            Number(head.grant),
            (dir, as_of),
        );
        grants.read(reading, &page);
        self.0.shed_grants(dir.mdt_index());
        self.show(&mut page);
        Ok(Found { page, lease, striping })
    }

    async fn list(
        &self,
        ctx: &Ctx,
        dir: Fid,
        cookie: u64,
        bytes_max: u32,
        flags: ReaddirFlags,
    ) -> Result<(DirPage, ReaddirRep, Transno)> {
        let body = ReaddirReq {
            fid: dir.into(),
            cookie,
            bytes_max: clamped(bytes_max),
            entries_max: u32::MAX,
            flags,
            ..ReaddirReq::default()
        };
        let call = self.0.call(ctx, Opcode::MdtReaddir, &body);
        let reply = self.0.ask(mdt_of(dir), call).await.map_err(|error| error.about(dir))?.reply;
        let head: ReaddirRep = reply.body();
        let entries = dirent::decode(&reply.buf(1))
            .ok_or_else(|| Error::local(Errno::EPROTO, "mds_readpage").about(dir))?;
        let at_end = head.at_end.contains(ReaddirState::AT_END);
        let page = DirPage { entries, at_end, parent: head.parent.into() };
        Ok((page, head, Transno(reply.header.as_of)))
    }

    /// Where a symbolic link points.
    ///
    /// # Errors
    /// EINVAL if it is none.
    pub async fn readlink(&self, ctx: &Ctx, fid: Fid) -> Result<Bytes> {
        let call =
            self.0.call(ctx, Opcode::MdtReadlink, &FidReq { fid: fid.into(), ..FidReq::default() });
        Ok(self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1))
    }

    /// All paths of a file, from the root, with a leading slash. Names need not be UTF-8.
    ///
    /// # Errors
    /// ENOENT if it has no name; EPERM if the caller may not ask.
    pub async fn fid2path(&self, ctx: &Ctx, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let mut paths = Vec::new();
        for path in self.paths_at_mdt(ctx, fid).await? {
            paths.push(self.whole_path(ctx, path).await?);
        }
        Ok(paths)
    }

    /// Paths without a leading slash, as far as the MDT of the file has them.
    async fn paths_at_mdt(&self, ctx: &Ctx, fid: Fid) -> Result<Vec<Vec<u8>>> {
        let call =
            self.0.call(ctx, Opcode::MdtFid2path, &FidReq { fid: fid.into(), ..FidReq::default() });
        let paths =
            self.0.ask(mdt_of(fid), call).await.map_err(|error| error.about(fid))?.reply.buf(1);
        Ok(split_nul(&paths).map(<[u8]>::to_vec).collect())
    }

    /// A path that begins with a directory of another MDT goes on there.
    async fn whole_path(&self, ctx: &Ctx, mut path: Vec<u8>) -> Result<Vec<u8>> {
        for _ in 0..limits::PATH_MDTS_MAX {
            let Some((dir, rest)) = elsewhere(&path) else { return Ok(joined(&[], &path)) };
            let above = self.paths_at_mdt(ctx, dir).await?;
            let above = above.into_iter().next().unwrap_or_default();
            path = match (above.is_empty(), rest.is_empty()) {
                (true, _) => rest,
                (_, true) => above,
                _ => joined(&above, &rest),
            };
        }
        Err(Error::local(Errno::ELOOP, "fid2path"))
    }
}

/// Directory and rest of a path that begins with a slash and a FID. That of a shard has no rest.
fn elsewhere(path: &[u8]) -> Option<(Fid, Vec<u8>)> {
    let path = path.strip_prefix(b"/")?;
    let end = path.iter().position(|byte| *byte == b'/').unwrap_or(path.len());
    let (dir, rest) = path.split_at(end);
    let dir = std::str::from_utf8(dir).ok()?.parse().ok()?;
    Some((dir, rest.strip_prefix(b"/").unwrap_or(rest).to_vec()))
}

/// With a slash in between.
fn joined(above: &[u8], below: &[u8]) -> Vec<u8> {
    [above, &b"/"[..], below].concat()
}

/// What a page may have, of what is wanted.
fn clamped(bytes_max: u32) -> u32 {
    bytes_max.clamp(limits::READDIR_BYTES_MIN, limits::READDIR_BYTES_MAX)
}

/// Strings with a NUL behind each.
pub(crate) fn split_nul(bytes: &[u8]) -> impl Iterator<Item = &[u8]> {
    bytes.split_inclusive(|byte| *byte == 0).map(|text| text.strip_suffix(&[0]).unwrap_or(text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_that_goes_on_elsewhere_is_told_from_a_name_like_it() {
        let fid = Fid::new(0x200020400, 7);
        let of = |path: String| elsewhere(path.as_bytes());
        assert_eq!(of(format!("/{fid}/a/b")), Some((fid, b"a/b".to_vec())));
        assert_eq!(of(format!("/{fid}")), Some((fid, Vec::new())), "of a shard");
        assert_eq!(of(format!("{fid}/a")), None, "a directory may have such a name");
        assert_eq!(elsewhere(b"a/b"), None);
        assert_eq!(elsewhere(b"/caf\xe9/b"), None);
        assert_eq!(joined(b"", b"caf\xe9"), b"/caf\xe9");
    }

    #[test]
    fn strings_end_at_their_nul() {
        let split = |bytes| split_nul(bytes).map(<[u8]>::to_vec).collect::<Vec<_>>();
        assert_eq!(split(b"a/b\0\0c\0"), [b"a/b".to_vec(), b"".to_vec(), b"c".to_vec()]);
        assert!(split(b"").is_empty());
    }
}
