//! getattr of many files at once.
//!
//! ```text
//!  files --by MDT--> one request for up to 4,096 of them --> attributes, sizes, grants
//!  dirty ones --by OST--> one request for up to 1,024 objects --> their sizes
//! ```
//! A reply holds the first files that fit, and the client asks for the others again. A file that is
//! gone is an error of its own.

use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::CallError;
use env::LocalFuture;
use types::{Errno, Fid, TargetId, Transno};
use wire::attr::AttrFlags;
use wire::body::{GetattrsFlags, GetattrsRep, GetattrsReq, WireFid};
use wire::stats::{self, StatRecord};
use wire::{Attr, Opcode};
use zerocopy::IntoBytes;

use super::check_name;
use super::lookup::is_gone;
use crate::client::{Client, Inner, mdt_of};
use crate::data::{Question, flush, send_off, settle};
use crate::grants::Asking;
use crate::join::try_join;
use crate::stat::Stat;
use crate::{Ctx, DirPage, Error, Result, limits};

/// What an MDT says of each file that was asked for, or why it says nothing.
type Stats = Vec<Result<Stat>>;

impl Client {
    /// Fills in the sizes of the dirty ones among `attrs`, as [`Client::readdir`] gave them, at the
    /// cost of one request per MDT and OST for all of them together. A file that is gone meanwhile
    /// keeps what it had.
    ///
    /// # Errors
    /// Those of an MDT or OST, which the error names.
    pub async fn getattr_many(&self, ctx: &Ctx, attrs: &mut [Attr]) -> Result<()> {
        let is_asked = |attr: &&mut Attr| crate::needs_glimpse(attr);
        let mut asked: Vec<&mut Attr> = attrs.iter_mut().filter(is_asked).collect();
        let fids: Vec<Fid> = asked.iter().map(|attr| attr.fid()).collect();
        let found = self.0.whole_many(ctx, &fids).await?;
        for (attr, found) in asked.iter_mut().zip(found) {
            if let Some(found) = found {
                **attr = found;
            }
        }
        Ok(())
    }

    /// Completes a page: attributes of the entries that came without, because their files are at
    /// other MDTs, and the sizes of dirty ones. A file that is gone meanwhile stays as it was.
    ///
    /// # Errors
    /// Those of an MDT or OST, which the error names.
    pub async fn complete_page(&self, ctx: &Ctx, page: &mut DirPage) -> Result<()> {
        let is_asked = |has_attr: bool, attr: &Attr| !has_attr || crate::needs_glimpse(attr);
        let asked = page.entries.iter_mut();
        let mut asked: Vec<_> =
            asked.filter(|entry| is_asked(entry.has_attr, &entry.attr)).collect();
        let fids: Vec<Fid> = asked.iter().map(|entry| entry.attr.fid()).collect();
        let found = self.0.whole_many(ctx, &fids).await?;
        for (entry, found) in asked.iter_mut().zip(found) {
            if let Some(found) = found {
                (entry.attr, entry.has_attr) = (found, true);
            }
        }
        Ok(())
    }
}

impl Client {
    /// Asks for names of a directory together, and keeps what is granted of them: a later lookup
    /// for a kernel is then no request. Returns how many of the names there are.
    ///
    /// # Errors
    /// ENOTDIR, EACCES; those of an MDT. A name that is not there is none.
    pub async fn look_ahead(&self, ctx: &Ctx, dir: Fid, names: &[Vec<u8>]) -> Result<usize> {
        let stats = self.0.look_ahead(ctx, dir, names, GetattrsFlags::empty()).await?;
        Ok(stats.iter().filter(|stat| stat.is_ok()).count())
    }
}

impl Inner {
    /// The same, and what the MDTs say of each, in no order.
    async fn look_ahead(
        self: &Rc<Self>,
        ctx: &Ctx,
        dir: Fid,
        names: &[Vec<u8>],
        flags: GetattrsFlags,
    ) -> Result<Stats> {
        let mut by_holder: BTreeMap<Fid, Vec<Vec<u8>>> = BTreeMap::new();
        for name in names {
            check_name(name, Opcode::MdtGetattrs.name())?;
            let holder = self.holder(ctx, dir, name).await?;
            by_holder.entry(holder).or_default().push(name.clone());
        }
        let asks = by_holder.into_iter().map(|(holder, names)| {
            let ask: LocalFuture<'_, Result<Stats>> = Box::pin(async move {
                let named = Named::Names(holder, &names);
                self.ask_all(ctx, mdt_of(holder), named, flags).await
            });
            ask
        });
        let found = try_join(asks.collect(), limits::GETATTRS_IN_FLIGHT).await?;
        Ok(found.into_iter().flatten().collect())
    }

    /// Asks for names ahead of their use. Returns the files that there are, with `layouts` those of
    /// dirty ones.
    pub(crate) async fn ask_ahead(
        self: &Rc<Self>,
        ctx: &Ctx,
        (dir, names): (Fid, &[Vec<u8>]),
        layouts: bool,
    ) -> Result<Vec<Stat>> {
        let flags = GetattrsFlags::LAYOUTS.when(layouts);
        let stats = self.look_ahead(ctx, dir, names, flags).await?;
        Ok(stats.into_iter().flatten().collect())
    }

    /// Asks the objects of dirty files that look as if their writer has gone, so that the MDT knows
    /// their size again. Returns how many files these are.
    pub(crate) async fn settle_quiet(
        self: &Rc<Self>,
        ctx: &Ctx,
        stats: Vec<Stat>,
    ) -> Result<usize> {
        let now = self.env.wall().sec;
        let is_quiet = |stat: &Stat| {
            let last = stat.attr.mtime().sec.max(stat.attr.ctime().sec);
            let is_dirty = crate::needs_glimpse(&stat.attr) && !stat.is_kept_elsewhere;
            is_dirty && last + limits::QUIET_SECS <= now
        };
        let quiet = stats.into_iter().filter(is_quiet);
        let asked: Vec<(Stat, Question)> = quiet
            .filter_map(|stat| stat.layout.as_ref().map(Question::all).map(|all| (stat, all)))
            .collect();
        let (mut stats, questions): (Vec<Stat>, Vec<Question>) = asked.into_iter().unzip();
        let objects = self.glimpse(ctx, &questions).await?;
        for ((stat, question), objects) in stats.iter_mut().zip(&questions).zip(objects) {
            let layout = &question.layout;
            let settled = settle(&mut stat.attr, stat.mtime_set, &stat.stripes, layout, &objects);
            stat.stripes.add_all(&settled.there);
            stat.lost = !settled.lost.is_empty();
            if !settled.is_old_layout {
                self.offer_size(ctx, stat);
            }
        }
        Ok(stats.len())
    }

    /// Attributes of files as callers see them, in the order given. Nothing of files that are gone.
    async fn whole_many(self: &Rc<Self>, ctx: &Ctx, fids: &[Fid]) -> Result<Vec<Option<Attr>>> {
        // what this client keeps of them goes first, so that their objects have it
        let inodes = fids.iter().filter_map(|fid| self.inodes.get(*fid));
        let kept: Vec<_> = inodes.filter(|inode| self.has_kept(inode.fid)).collect();
        kept.iter().for_each(|inode| send_off(self, inode));
        for inode in kept {
            flush(self, &inode).await;
        }
        let stats = self.stat_many(ctx, fids).await?;
        self.resolve_many(ctx, stats).await
    }

    /// What the MDTs say of files, in the order given, with the layouts of those whose size is not
    /// known. What they grant is kept.
    pub(crate) async fn stat_many(self: &Rc<Self>, ctx: &Ctx, fids: &[Fid]) -> Result<Stats> {
        let mut by_mdt: BTreeMap<TargetId, Vec<usize>> = BTreeMap::new();
        for (index, fid) in fids.iter().enumerate() {
            by_mdt.entry(mdt_of(*fid)).or_default().push(index);
        }
        let mut asks: Vec<LocalFuture<'_, Result<Stats>>> = Vec::new();
        let mut order = Vec::new();
        let sizes = GetattrsFlags::SIZES.when(self.glimpse_batch.get() > 1);
        let flags = GetattrsFlags::LAYOUTS | sizes;
        for (mdt, files) in &by_mdt {
            for part in files.chunks(limits::GETATTRS_MAX) {
                let fids: Vec<Fid> = part.iter().map(|index| fids[*index]).collect();
                asks.push(Box::pin(async move {
                    self.ask_all(ctx, *mdt, Named::Fids(&fids), flags).await
                }));
                order.extend(part.iter().copied());
            }
        }
        let answers = try_join(asks, limits::GETATTRS_IN_FLIGHT).await?;
        let mut found: Vec<Option<Result<Stat>>> = fids.iter().map(|_| None).collect();
        for (index, stat) in order.into_iter().zip(answers.into_iter().flatten()) {
            found[index] = Some(stat);
        }
        Ok(found.into_iter().map(|stat| stat.expect("each file is in one part")).collect())
    }

    /// Files of one MDT, request after request until all are told. What is granted is kept.
    async fn ask_all(
        self: &Rc<Self>,
        ctx: &Ctx,
        mdt: TargetId,
        named: Named<'_>,
        flags: GetattrsFlags,
    ) -> Result<Stats> {
        let mut stats = Stats::with_capacity(named.len());
        while stats.len() < named.len() {
            let from = stats.len();
            let asking = self.grants.at(mdt.index).asking();
            let (records, as_of) = self.ask_many(ctx, mdt, named.rest(from), flags).await?;
            for (at, record) in (from..).zip(&records) {
                let stat = self.stat_in(mdt, record, as_of);
                stats.push(match (named, stat) {
                    (Named::Fids(fids), Ok(stat)) => {
                        self.take_one(&asking, fids[at], &stat)?;
                        Ok(stat)
                    }
                    (Named::Fids(fids), Err(error)) => Err(error.about(fids[at])),
                    (Named::Names(holder, names), Ok(stat)) => {
                        self.take_name(&asking, holder, &names[at], &stat);
                        Ok(stat)
                    }
                    (Named::Names(..), Err(error)) => Err(error),
                });
            }
        }
        self.shed_grants(mdt.index);
        Ok(stats)
    }

    /// Takes what is granted of one of several files.
    fn take_one(&self, asking: &Asking, fid: Fid, stat: &Stat) -> Result<()> {
        if stat.attr.fid() != fid {
            return Err(Error::local(Errno::EPROTO, Opcode::MdtGetattrs.name()).about(fid));
        }
        if let Some(inode) = self.inodes.get(fid).filter(|_| stat.layout.is_some()) {
            inode.see(stat);
        }
        asking.told_one(stat);
        Ok(())
    }

    /// The same of a name in a directory or shard.
    fn take_name(&self, asking: &Asking, holder: Fid, name: &[u8], stat: &Stat) {
        self.order.found(holder, name, stat.attr.fid());
        self.elsewhere.note(holder, stat.attr.fid());
        asking.told_one_name(holder, name, stat);
    }

    /// One request.
    async fn ask_many(
        self: &Rc<Self>,
        ctx: &Ctx,
        mdt: TargetId,
        named: Named<'_>,
        flags: GetattrsFlags,
    ) -> Result<(Vec<StatRecord>, Transno)> {
        let broken = || Error::local(Errno::EPROTO, Opcode::MdtGetattrs.name());
        let body = GetattrsReq {
            parent: named.parent().into(),
            count: named.len() as u32,
            flags,
            bytes_max: limits::READDIR_BYTES_MAX,
            ..GetattrsReq::default()
        };
        let call = self.call(ctx, Opcode::MdtGetattrs, &body).buf(named.encode());
        let reply = self.ask(mdt, call).await?.reply;
        let head: GetattrsRep = reply.body();
        let records = stats::decode(&reply.buf(1), named.len()).ok_or_else(broken)?;
        if records.is_empty() || records.len() != head.count as usize {
            return Err(broken());
        }
        Ok((records, Transno(reply.header.as_of)))
    }

    /// One file of an answer.
    fn stat_in(&self, mdt: TargetId, record: &StatRecord, as_of: Transno) -> Result<Stat> {
        let stage = Opcode::MdtGetattrs.name();
        if record.errno != 0 {
            let errno = Errno::from_raw(i32::try_from(record.errno).unwrap_or(0));
            return Err(Error::call(&CallError::Errno(errno), mdt, stage));
        }
        Ok(self.checked(mdt, Stat::told(&record.rep, &record.layout, as_of, stage)?))
    }

    /// Attributes as callers see them, sizes of dirty files included. Nothing of files that are
    /// gone.
    async fn resolve_many(self: &Rc<Self>, ctx: &Ctx, stats: Stats) -> Result<Vec<Option<Attr>>> {
        let mut found = Vec::with_capacity(stats.len());
        let (mut asked, mut questions, mut apart) = (Vec::new(), Vec::new(), Vec::new());
        for (index, stat) in stats.into_iter().enumerate() {
            let mut stat = match stat {
                Ok(stat) => stat,
                Err(error) if is_gone(&error) => {
                    found.push(None);
                    continue;
                }
                Err(error) => return Err(error),
            };
            let is_settled = self.settle_known(&mut stat);
            found.push(Some(stat.attr));
            if stat.attr.flags.contains(AttrFlags::STRIPED) {
                apart.push((index, stat.attr)); // its shards know more
                continue;
            }
            if is_settled || self.config.bugs.forget_glimpse() {
                continue;
            }
            if stat.is_kept_elsewhere || self.has_kept(stat.attr.fid()) {
                apart.push((index, stat.attr)); // its objects lack writes
                continue;
            }
            questions.extend(stat.layout.as_ref().map(Question::all));
            asked.push((index, stat));
        }
        let looks = apart.iter().map(|(index, attr)| {
            let look: LocalFuture<'_, Result<(usize, Option<Attr>)>> =
                Box::pin(async move { Ok((*index, self.look_at_one(ctx, attr).await?)) });
            look
        });
        for (index, attr) in try_join(looks.collect(), limits::BATCH_RPCS_MAX).await? {
            found[index] = attr;
        }
        let objects = self.glimpse(ctx, &questions).await?;
        for (((index, stat), question), objects) in asked.into_iter().zip(&questions).zip(objects) {
            let mut attr = stat.attr;
            let layout = &question.layout;
            let settled = settle(&mut attr, stat.mtime_set, &stat.stripes, layout, &objects);
            found[index] = Some(attr);
            if settled.is_old_layout {
                found[index] = self.look_at_one(ctx, &stat.attr).await?;
            }
        }
        Ok(found)
    }

    /// Attributes of a file whose objects or shards need another look. Nothing: it is gone.
    async fn look_at_one(self: &Rc<Self>, ctx: &Ctx, attr: &Attr) -> Result<Option<Attr>> {
        match Client(self.clone()).getattr(ctx, attr.fid(), None).await {
            Ok(now) => Ok(Some(now)),
            Err(error) if is_gone(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}

/// Files of one MDT, as a request names them.
#[derive(Clone, Copy)]
enum Named<'a> {
    Fids(&'a [Fid]),
    /// In a directory or shard.
    Names(Fid, &'a [Vec<u8>]),
}

impl<'a> Named<'a> {
    fn len(self) -> usize {
        match self {
            Named::Fids(fids) => fids.len(),
            Named::Names(_, names) => names.len(),
        }
    }

    /// Those of one request, from the first that is not told.
    fn rest(self, from: usize) -> Named<'a> {
        let end = |most: usize| self.len().min(from + most);
        match self {
            Named::Fids(fids) => Named::Fids(&fids[from..end(limits::GETATTRS_MAX)]),
            Named::Names(holder, names) => {
                Named::Names(holder, &names[from..end(limits::GETATTRS_NAMES_MAX)])
            }
        }
    }

    fn parent(self) -> Fid {
        match self {
            Named::Fids(_) => Fid::ZERO,
            Named::Names(holder, _) => holder,
        }
    }

    fn encode(self) -> Bytes {
        match self {
            Named::Fids(fids) => {
                let files: Vec<WireFid> = fids.iter().copied().map(WireFid::from).collect();
                Bytes::copy_from_slice(files.as_bytes())
            }
            Named::Names(_, names) => {
                names.iter().flat_map(|name| name.iter().copied().chain([0])).collect()
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_is_about_as_many_files_as_one_question_to_a_writer() {
        let fids = vec![Fid::ROOT; 5_000];
        let named = Named::Fids(&fids);
        assert_eq!((named.rest(0).len(), named.rest(4_096).len()), (4_096, 904));
        let names = vec![b"name".to_vec(); 1_500];
        let named = Named::Names(Fid::ROOT, &names);
        assert_eq!((named.rest(0).len(), named.rest(1_024).len()), (1_024, 476));
    }
}
