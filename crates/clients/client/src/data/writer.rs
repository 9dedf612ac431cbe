//! This client's answers about the size of files that it writes. The MDT asks for them on behalf of
//! other clients.

use std::collections::BTreeMap;
use std::rc::Rc;

use types::Fid;
use wire::body::{GrantSize, GrantWord};

use super::keep::{flush, send_off};
use crate::client::Inner;
use crate::{limits, size};

impl Inner {
    /// [`Inner::told_sizes`] after what is kept was sent, because what others have seen is not to
    /// be lost with this client.
    pub(crate) async fn tell_sizes(self: &Rc<Self>, words: &[GrantWord]) -> Vec<GrantSize> {
        let inodes = words.iter().filter_map(|word| self.inodes.get(word.fid.into()));
        let kept: Vec<_> = inodes.filter(|inode| self.has_kept(inode.fid)).collect();
        kept.iter().for_each(|inode| send_off(self, inode));
        let sent = async {
            for inode in kept {
                flush(self, &inode).await;
            }
        };
        let _late = self.env.timeout(limits::TELL_WAIT, sent).await; // the objects are asked then
        self.told_sizes(words)
    }

    /// The sizes of files that the MDT asks for, in its order. A size is not known while a change
    /// is under way, because others may have seen a part of it, nor where this client would have to
    /// ask the objects itself.
    fn told_sizes(&self, words: &[GrantWord]) -> Vec<GrantSize> {
        let size = |word: &GrantWord| {
            let known = self.size_of_written(word.fid.into());
            GrantSize { fid: word.fid, ..known.unwrap_or_default() }
        };
        words.iter().map(size).collect()
    }

    fn size_of_written(&self, fid: Fid) -> Option<GrantSize> {
        let inode = self.inodes.get(fid)?;
        let layout = inode.layout()?;
        if !inode.under_way.is_empty() || self.has_kept(fid) {
            return None;
        }
        if inode.keeping.attrs.was_kept() {
            return None; // who asks may have older attributes, and asks again then
        }
        let known = inode.with_view(|view| {
            let is_whole = view.is_whole(&layout);
            is_whole.then(|| (view.complete(&layout, &BTreeMap::new()), view.epoch()))
        });
        let (objects, write_epoch) = known.flatten()?;
        if !inode.stripes_of(&layout).without(&size::existing(&objects)).is_empty() {
            return None; // an object is missing
        }
        let extents = size::add_up(&layout, &objects);
        let mtime = extents.mtime.unwrap_or_default();
        Some(GrantSize {
            known: 1,
            size: extents.size,
            blocks: extents.blocks,
            mtime: mtime.sec,
            mtime_nsec: mtime.nsec,
            write_epoch,
            ..GrantSize::default()
        })
    }
}
