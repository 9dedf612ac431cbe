//! The objects on OSTs that files name, for a comparison with the objects that OSTs have.

use layout::{FileLayout, Striping};
use osd::{Table, View};
use target::{Decided, OpError};
use types::Fid;

use crate::limits::DEPTH_MAX;
use crate::record::Inode;

/// A stripe that must have an object: a client that closed the file said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Stripe {
    pub ost: u32,
    pub object: Fid,
    pub file: Fid,
}

/// Whether `file` names `object` on this OST.
pub fn names_object(view: &dyn View, file: Fid, ost: u32, object: Fid) -> Decided<bool> {
    Ok(layout_of(view, file)?.is_some_and(|layout| layout.has_object(object, ost)))
}

/// Whether `file` has the objects of `base`, on whatever OSTs.
pub(crate) fn names_base(view: &dyn View, file: Fid, base: Fid) -> Decided<bool> {
    Ok(layout_of(view, file)?.is_some_and(|layout| layout.has_base(base)))
}

/// The layout of `file`, if there is such a file and it has one.
pub(crate) fn layout_of(view: &dyn View, file: Fid) -> Decided<Option<FileLayout>> {
    let stored = view.get(Table::Layouts, &file.to_key())?;
    stored.map_or(Ok(None), |stored| layout_in(file, &stored))
}

/// Stripes that must have an object, of at most `files_max` layouts from the key `from` on, and
/// the key to go on from.
pub fn stripes(
    view: &dyn View,
    from: &[u8],
    files_max: usize,
) -> Decided<(Vec<Stripe>, Option<Vec<u8>>)> {
    let (mut layouts, mut next) = (Vec::new(), None);
    view.scan(Table::Layouts, from, &mut |key, value| {
        if layouts.len() == files_max {
            next = Some(key.to_vec());
            return false;
        }
        layouts.push((key.to_vec(), value.to_vec()));
        true
    })?;
    let mut all = Vec::new();
    for (key, value) in layouts {
        let file = Fid::from_key(&key).ok_or(OpError::Broken("key of a layout"))?;
        let Some(layout) = layout_in(file, &value)? else { continue };
        let Some(stored) = view.get(Table::Inodes, &key)? else { continue };
        let inode = Inode::decode(&stored).ok_or(OpError::Broken("inode"))?;
        for (stripe, object, ost) in layout.objects() {
            if inode.stripes.contains(stripe) {
                all.push(Stripe { ost: ost.0, object, file });
            }
        }
    }
    Ok((all, next))
}

pub(crate) fn layout_in(file: Fid, stored: &[u8]) -> Decided<Option<FileLayout>> {
    match Striping::decode(file, stored) {
        Ok(Striping::Layout(layout)) => Ok(Some(layout)),
        Ok(Striping::Template(_) | Striping::None) => Ok(None),
        Err(_) => Err(OpError::Broken("layout")),
    }
}

/// One path of a file, without a leading slash; none where it has no name.
pub fn path(view: &dyn View, file: Fid) -> Decided<Option<Vec<u8>>> {
    let (mut at, mut parts) = (file, Vec::new());
    for _ in 0..DEPTH_MAX {
        if at == Fid::ROOT {
            parts.reverse();
            return Ok(Some(parts.join(&b'/')));
        }
        let Some((dir, name)) = link(view, at)? else { return Ok(None) };
        parts.push(name);
        at = dir;
    }
    Err(OpError::Broken("a directory does not lead to the root"))
}

/// Directory and name of the first link.
fn link(view: &dyn View, file: Fid) -> Decided<Option<(Fid, Vec<u8>)>> {
    let (prefix, mut found) = (file.to_key(), None);
    view.scan_within((Table::Links, &prefix), &prefix, &mut |key, name| {
        found = Some((Fid::from_key(&key[prefix.len()..]), name.to_vec()));
        false
    })?;
    match found {
        Some((Some(dir), name)) => Ok(Some((dir, name))),
        Some((None, _)) => Err(OpError::Broken("back-link")),
        None => Ok(None),
    }
}

#[cfg(test)]
mod tests {
    use layout::{Layout, StripeSet};
    use osd::{MetaStore, WriteSet};
    use wire::Attr;

    use super::*;
    use crate::keys;
    use crate::tests::store::TestStore;

    fn inode(fid: Fid, stripes: StripeSet) -> Vec<u8> {
        let attr = Attr { mode: 0o100_644, nlink: 1, ..Attr::default() }.with_fid(fid);
        let (parent, mtime_set) = (Fid::ROOT, types::Timespec::default());
        Inode { attr, flags: 1, parent, mtime_set, stripes, depth: 0, symlink: Vec::new() }.encode()
    }

    #[test]
    fn stripes_of_closed_files_are_named_and_found_again() {
        let meta = TestStore::default();
        let mut set = WriteSet::new();
        let (file, base) = (Fid::new(5, 6), Fid::new(7, 8));
        let layout = Layout { osts: vec![4, 2, 9], ..Layout::plain(base, 1 << 20, 3) };
        set.put(Table::Layouts, file.to_key(), layout.encode());
        set.put(Table::Inodes, file.to_key(), inode(file, StripeSet::from(0b101u64)));
        let never_written = Fid::new(5, 7);
        let other = Layout::plain(Fid::new(7, 9), 1 << 20, 1);
        set.put(Table::Layouts, never_written.to_key(), other.encode());
        set.put(Table::Inodes, never_written.to_key(), inode(never_written, StripeSet::default()));
        let dir = Fid::new(5, 1);
        set.put(Table::Links, keys::link(file, dir, 3), *b"name");
        set.put(Table::Links, keys::link(dir, Fid::ROOT, 3), *b"dir");
        meta.apply(&set).expect("room");
        let view = meta.running().expect("ready");
        let view = &*view;

        let (first, next) = stripes(view, &[], 1).expect("reads");
        let stripe = |ost, stripe| Stripe { ost, object: base.stripe(stripe), file };
        assert_eq!(first, [stripe(4, 0), stripe(9, 2)]);
        let next = next.expect("another file");
        assert_eq!(stripes(view, &next, 9), Ok((Vec::new(), None)), "it was never written");

        let names = |file, ost, object| names_object(view, file, ost, object).expect("reads");
        assert!(names(file, 2, base.stripe(1)), "whether it was written does not matter");
        assert!(!names(file, 4, base.stripe(1)), "another OST's");
        assert!(!names(file, 4, Fid::new(7, 9)), "another file's");
        assert!(!names(Fid::new(5, 99), 4, base), "a file that is gone");
        assert!(!names(file, 9, base.stripe(3)), "behind the last stripe");

        assert_eq!(path(view, file), Ok(Some(b"dir/name".to_vec())));
        assert_eq!(path(view, never_written), Ok(None));
    }
}
