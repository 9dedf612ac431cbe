//! Adds components to a file, or removes them from its end: `lustre.lov.add` and `lustre.lov.del`,
//! as Lustre's tools set them.
//!
//! Transaction: the layout and the inode; for components that go, a record of their objects each.
//! Replay: the same again.
//!
//! The data of removed components is lost. A client that has the file open continues with the
//! layout that it has, so the objects must refuse that layout beforehand. The caller has asked them
//! to do so, under the file's lock, and names the generation. Otherwise a file that is open is
//! EBUSY.

use layout::composite::Component;
use layout::lov;
use target::Decided;
use types::{Errno, Fid};
use wire::SizeState;
use wire::attr::S_IFREG;
use wire::body::Disposition;

use crate::effect::Effect;
use crate::op::{Answer, Op};
use crate::record::Inode;

/// Adds the components of a composite value behind the last one, which must have an end. They get
/// a pool as those of a new file do.
pub(super) fn add(op: &mut Op<'_, '_>, mut inode: Inode, value: &[u8]) -> Decided<Answer> {
    let more = lov::composite::decode_tail(value).map_err(|error| error.errno())?;
    let mut composite = composite_of(op, &inode)?;
    let more = op.pooled(&inode, more)?;
    let before = composite.clone();
    composite.add(&more, &op.state.lod.template()).map_err(|error| error.errno())?;
    if let Some(replayed) = op.replayed_components(&inode)? {
        if !replayed.was_added_to(&before) {
            return Err(Errno::EPROTO.into());
        }
        composite = replayed;
    }
    op.tx.grow_layout(&mut inode, composite);
    done(op, inode)
}

/// Takes away the component whose id the value names, and all behind it. `refused`: one more than
/// the generation that the objects refuse, or 0.
pub(super) fn delete(
    op: &mut Op<'_, '_>,
    mut inode: Inode,
    value: &[u8],
    refused: u32,
) -> Decided<Answer> {
    let shown = lov::composite::inspect(value).map_err(|error| error.errno())?;
    let [named] = &shown.entries[..] else { return Err(Errno::EINVAL.into()) };
    let mut composite = composite_of(op, &inode)?;
    let generation = composite.generation;
    let gone = composite.cut_from(named.id).map_err(|error| error.errno())?;
    if op.replay.is_none() {
        match refused {
            0 if op.state.opens.is_open(inode.fid()) => return Err(Errno::EBUSY.into()),
            0 => {}
            _ if generation.checked_add(1) == Some(refused) => {}
            _ => return Err(Errno::EAGAIN.into()),
        }
    }
    log(op, &gone);
    op.tx.shrink_layout(&mut inode, composite);
    if inode.attr.size_state() != SizeState::NeverWritten {
        op.dirty_size(&mut inode);
    }
    done(op, inode)
}

fn composite_of(op: &Op<'_, '_>, inode: &Inode) -> Decided<layout::composite::Composite> {
    if inode.attr.file_type() != S_IFREG {
        return Err(Errno::EINVAL.into());
    }
    let layout = op.tx.layout(inode)?.ok_or(Errno::ENODATA)?;
    Ok(layout.as_composite().ok_or(Errno::EINVAL)?.clone())
}

/// Objects of components that are gone go too.
fn log(op: &mut Op<'_, '_>, gone: &[Component]) {
    let objects = gone.iter().filter_map(Component::objects);
    for (objects, number) in objects.zip(op.state.destroy_next..) {
        op.tx.log_destroy(number, objects.base, objects.osts.clone());
        op.tx.effects.push(Effect::DestroyLogged);
    }
}

fn done(op: &mut Op<'_, '_>, mut inode: Inode) -> Decided<Answer> {
    let fid: Fid = inode.fid();
    inode.attr.set_ctime(op.tx.now);
    op.decides_on(fid);
    op.change(inode.clone());
    op.full_answer(&inode, 0, Disposition::empty())
}
