//! The placement of a file's bytes: its layout, and the objects of its components.
//!
//! A file gets its layout when it is made, or when a client first wants to write. Only the first
//! component has objects then. The others get theirs before the first write into them or behind
//! them, and when a truncate makes the file that long. A replay takes the layout of the first
//! reply.
//!
//! An extendable component grows in steps while its OSTs have room. The figures behind that are
//! those that choose OSTs for new files. Where a component with objects grows, the reply waits for
//! the commit. Otherwise a client could write into the objects of a growth that a crash undoes.
//!
//! If an object refuses a layout as old, the layout gets its next generation here, unless another
//! client has changed it.

use layout::composite::extend::{Chosen, Supply};
use layout::composite::{Composite, CompositeTemplate, Place};
use layout::{Asked, ComponentError, FileLayout, Layout, Origin, Striping, Template};
use target::{Decided, OpError};
use types::{Errno, Fid, TargetId};
use wire::Request;
use wire::body::{Disposition, LayoutReq};

use crate::effect::Effect;
use crate::op::{Answer, Op};
use crate::perm::{R, W};
use crate::record::{INODE_HAS_LAYOUT, Inode};

/// Gives a file the objects that a write below `behind` needs.
pub(crate) fn layout_intent(op: &mut Op<'_, '_>) -> Decided<Answer> {
    let body: LayoutReq = op.request.body();
    let mut inode = op.tx.inode(Fid::from(body.fid))?;
    op.decides_on(inode.fid());
    if !inode.attr.is_file() {
        return Err(Errno::EINVAL.into());
    }
    if body.refused != 0 {
        return renew(op, inode, &body);
    }
    if !op.may_write_by(body.handle, &inode) {
        op.check_writable()?;
        op.access(&inode, W)?;
    }
    let before = inode.clone();
    if inode.has(INODE_HAS_LAYOUT) {
        op.extend_layout(&mut inode, body.behind)?;
    } else {
        op.place_late(&mut inode)?;
        op.extend_layout(&mut inode, body.behind)?;
    }
    if inode != before {
        op.change(inode.clone());
    }
    op.full_answer(&inode, 0, Disposition::empty())
}

/// The file that is to be written.
pub(crate) fn file(request: &Request) -> Fid {
    request.body::<LayoutReq>().fid.into()
}

/// An object refuses the layout of this generation, because a client was about to take bytes away
/// from it. Who asks for more than a look holds the file's lock, so that client has done it, which
/// raised the generation, or is gone: then the objects stay, under the next generation.
///
/// In both cases the answer waits for the commit of what another client has changed, as all that
/// decides on the file: nobody goes on with a layout that may be lost.
fn renew(op: &mut Op<'_, '_>, mut inode: Inode, body: &LayoutReq) -> Decided<Answer> {
    if !op.has_open(body.handle, &inode) && !op.may(&inode, W)? {
        op.access(&inode, R)?;
    }
    let layout = op.tx.layout(&inode)?.ok_or(Errno::ENODATA)?;
    if body.look == 0 && layout.generation().checked_add(1) == Some(body.refused) {
        let renewed = layout.renewed().ok_or(Errno::EOVERFLOW)?;
        op.tx.renew_layout(&mut inode, &renewed);
        op.change(inode.clone());
        planted::reached("mdt: a layout that was refused was renewed");
    }
    op.full_answer(&inode, 0, Disposition::empty())
}

impl Op<'_, '_> {
    /// Gives `inode` a layout: what is asked for, else its directory's default, the root's, the
    /// file system's. A replay takes the layout of the first reply.
    pub(crate) fn give_layout(
        &mut self,
        inode: &mut Inode,
        parent: Option<&Inode>,
        asked: &Asked,
    ) -> Decided<()> {
        if self.replay.is_some() {
            if let Some(layout) = self.replayed_layout(inode)? {
                self.tx.set_layout(inode, &layout);
            }
            return Ok(());
        }
        let (wanted, origin) = self.wanted(parent, asked)?;
        let layout = match &wanted {
            Asked::Plain(template) => FileLayout::from(self.objects_for(template)?),
            Asked::Composite(template) => {
                let template = self.at_mdt(template.clone())?;
                let made = template.resolve(&self.state.lod.template());
                let mut composite = made.map_err(|error| error.errno())?;
                self.fill(&mut composite, 1)?;
                FileLayout::composite(inode.fid(), composite)
            }
        };
        layout.check().map_err(|error| error.errno())?;
        let origin = origin.with(Origin::SPILLED, layout.origin().has(Origin::SPILLED));
        self.tx.set_layout(inode, &layout.with_origin(origin));
        Ok(())
    }

    /// What of a file may be at this MDT. One that is short of room takes nothing of a file that
    /// has other components.
    fn at_mdt(&mut self, template: CompositeTemplate) -> Decided<CompositeTemplate> {
        if !template.is_at_mdt() {
            return Ok(template);
        }
        let limit = if self.config.has_data { self.state.lod.dom_stripesize } else { 0 };
        let limited = |limit| template.clone().with_mdt_limit(limit);
        self.state.spaces.wanted.notify_one();
        let here = TargetId::dom(self.config.index).index;
        if limit > 0
            && self.state.spaces.is_closed(here)
            && let Ok(elsewhere) = limited(0)
        {
            return Ok(elsewhere);
        }
        Ok(limited(limit).map_err(|error| error.errno())?)
    }

    /// Gives the components of `inode` what bytes below `behind` need. A file that has it, or has
    /// no layout, stays as it is.
    pub(crate) fn extend_layout(&mut self, inode: &mut Inode, behind: u64) -> Decided<()> {
        let Some(layout) = self.tx.layout(inode)? else { return Ok(()) };
        if behind > layout.end() {
            return Err(Errno::ENODATA.into());
        }
        if self.config.bugs.give_objects_twice() {
            return self.give_twice(inode, &layout, behind);
        }
        let Some(composite) = layout.as_composite().filter(|_| layout.misses(behind)) else {
            return Ok(());
        };
        if self.replay.is_some() && !self.config.bugs.replay_draws_new_objects() {
            if let Some(grown) = self.replayed_layout(inode)? {
                let grown = grown.as_composite().ok_or(Errno::EPROTO)?;
                if !grown.grew_from(composite) {
                    return Err(Errno::EPROTO.into());
                }
                self.grow(inode, composite, grown.clone());
            }
            return Ok(());
        }
        let mut grown = composite.clone();
        self.fill(&mut grown, behind)?;
        self.grow(inode, composite, grown);
        Ok(())
    }

    /// More of the bytes of `inode` have a place.
    fn grow(&mut self, inode: &mut Inode, before: &Composite, grown: Composite) {
        if grown.stretches(before) {
            self.tx.effects.push(Effect::Stretched(inode.fid()));
            planted::reached("mdt: a component with objects grew");
        }
        self.tx.grow_layout(inode, grown);
    }

    /// A planted bug.
    fn give_twice(&mut self, inode: &mut Inode, layout: &FileLayout, behind: u64) -> Decided<()> {
        let Some(mut composite) = layout.as_composite().cloned() else { return Ok(()) };
        for component in composite.components.iter_mut().skip(1) {
            if let Place::Objects(objects) = &component.place {
                component.place = Place::Wanted(objects.template());
            }
        }
        self.fill(&mut composite, behind)?;
        self.tx.grow_layout(inode, composite);
        Ok(())
    }

    /// A file that was made without a layout gets one when somebody wants to write.
    pub(crate) fn place_late(&mut self, inode: &mut Inode) -> Decided<()> {
        let parent = self.tx.find_here(inode.parent)?.filter(|parent| parent.attr.is_dir());
        self.give_layout(inode, parent.as_ref(), &Asked::default())
    }

    /// Whether the caller has the file open by this handle.
    fn has_open(&self, handle: u64, inode: &Inode) -> bool {
        let open = self.state.opens.get(handle);
        open.is_some_and(|open| open.fid == inode.fid() && open.client == self.client)
    }

    /// Whether the caller has the file open for writing by this handle.
    pub(crate) fn may_write_by(&self, handle: u64, inode: &Inode) -> bool {
        let open = self.state.opens.get(handle);
        open.is_some_and(|open| open.fid == inode.fid() && open.client == self.client && open.write)
    }

    /// The layout of the first reply, if there was one that this MDT can have given.
    fn replayed_layout(&self, inode: &Inode) -> Decided<Option<FileLayout>> {
        let record = self.request.replay_buf(1).filter(|record| !record.is_empty());
        let Some(record) = record else { return Ok(None) };
        let Ok(Striping::Layout(layout)) = Striping::decode(inode.fid(), &record) else {
            return Err(Errno::EPROTO.into());
        };
        let given = layout.stripings().all(|one| self.state.objects.may_have_given(one.base));
        if given { Ok(Some(layout)) } else { Err(Errno::EPROTO.into()) }
    }

    /// The same of components; none where this is no replay.
    pub(super) fn replayed_components(&self, inode: &Inode) -> Decided<Option<Composite>> {
        if self.replay.is_none() {
            return Ok(None);
        }
        let layout = self.replayed_layout(inode)?;
        Ok(layout.and_then(|layout| layout.as_composite().cloned()))
    }

    /// Objects as a striping wants them.
    fn objects_for(&mut self, template: &Template) -> Decided<Layout> {
        let chosen = self.choose(template, 0)?;
        let origin = Origin::default().with(Origin::SPILLED, chosen.is_spilled(template));
        let Chosen { osts, pool } = chosen;
        Ok(Layout {
            stripe_size: template.stripe_size,
            stripe_count: u16::try_from(osts.len()).map_err(|_| Errno::EINVAL)?,
            pattern: layout::Raid0,
            generation: 0,
            base: self.state.draw_object()?,
            osts,
            pool,
            origin,
        })
    }

    /// Objects for every component that bytes below `behind` need.
    fn fill(&mut self, composite: &mut Composite, behind: u64) -> Decided<()> {
        composite.extend(behind, self)?;
        assert_eq!(composite.missing(behind).next(), None, "these bytes have a place now");
        Ok(())
    }

    /// Components for the file `inode` that get the pool of its directory, or else of the root,
    /// where they name none.
    pub(super) fn pooled(
        &mut self,
        inode: &Inode,
        more: CompositeTemplate,
    ) -> Decided<CompositeTemplate> {
        let parent = self.tx.find_here(inode.parent)?.filter(|parent| parent.attr.is_dir());
        match self.wanted(parent.as_ref(), &Asked::Composite(more.clone()))? {
            (Asked::Composite(pooled), _) => Ok(pooled),
            (Asked::Plain(_), _) => Ok(more),
        }
    }

    /// The request with what the defaults add to it, and which of them added something.
    fn wanted(&mut self, parent: Option<&Inode>, asked: &Asked) -> Decided<(Asked, Origin)> {
        let own = parent.map_or(Ok(None), |parent| self.tx.template(parent))?;
        let own = own.map(|default| (default, Origin::DIRECTORY));
        let root = self.tx.root_template()?.map(|default| (default, Origin::ROOT));
        let mut origin = Origin::default().with(Origin::ASKED, !asked.is_default());
        let mut wanted = asked.clone();
        for (default, layer) in own.into_iter().chain(root) {
            let more = match asked {
                Asked::Plain(_) => wanted.or(&default),
                // of their own they say all but the pool; a default is whole
                Asked::Composite(_) => wanted.clone().pooled(&default),
            };
            origin = origin.with(layer, more != wanted);
            wanted = more;
        }
        let system = self.state.lod.template();
        // components keep what they leave open until the layout is made of them
        let origin = origin.with(Origin::SYSTEM, wanted.needs(&system));
        Ok((wanted.or(&system.into()), origin))
    }
}

impl Supply for Op<'_, '_> {
    type Error = OpError;

    fn choose(&mut self, wanted: &Template, bytes: u64) -> Decided<Chosen> {
        wanted.check().map_err(|error| error.errno())?;
        self.state.place(wanted, &(self.osts)(), self.tx.now, bytes)
    }

    fn base(&mut self) -> Decided<Fid> {
        planted::reached("mdt: a component of a file got objects");
        self.state.draw_object()
    }

    fn fits(&self, osts: &[u32], bytes: u64) -> u64 {
        if self.config.bugs.grow_without_room() {
            return u64::MAX;
        }
        self.state.spaces.fits(osts, bytes, &(self.osts)())
    }

    fn promise(&mut self, osts: &[u32], bytes: u64, times: u64) {
        self.state.spaces.promise(osts, bytes, times);
    }

    /// All OSTs of the pool, or those of a list, are full or out of use.
    fn is_lack(error: &OpError) -> bool {
        let lacks = [Errno::ENOSPC, Errno::EREMOTEIO];
        matches!(error, OpError::Refused(errno) if lacks.contains(errno))
    }

    fn refuse(&self, error: ComponentError) -> OpError {
        error.errno().into()
    }
}
