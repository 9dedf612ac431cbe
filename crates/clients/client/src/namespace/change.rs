//! A change of attributes in the words of the wire.

use types::{Fid, Timespec};
use wire::Attr;
use wire::attr::S_IFMT;
use wire::body::{SetattrFlags, SetattrReq};

use crate::{SetAttr, SetTime};

/// A setattr request in the words of the wire.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct AttrChange {
    pub(crate) valid: SetattrFlags,
    pub(crate) attr: Attr,
    pub(crate) handle: u64,
    pub(crate) epoch: u64,
    /// With SIZE_KNOWN: bit i: stripe i of the first 64 has an object.
    pub(crate) stripes: u64,
    /// A recall may wait for it.
    pub(crate) urgent: bool,
}

impl AttrChange {
    /// One of these kinds.
    pub(crate) fn of(valid: SetattrFlags) -> AttrChange {
        AttrChange { valid, ..AttrChange::default() }
    }

    pub(crate) fn new(set: &SetAttr, handle: u64) -> AttrChange {
        let mut change = AttrChange { handle, ..AttrChange::default() };
        let (valid, attr) = (&mut change.valid, &mut change.attr);
        put(set.mode, SetattrFlags::MODE, valid, &mut attr.mode);
        put(set.uid, SetattrFlags::UID, valid, &mut attr.uid);
        put(set.gid, SetattrFlags::GID, valid, &mut attr.gid);
        put(set.size, SetattrFlags::SIZE, valid, &mut attr.size);
        put(set.projid, SetattrFlags::PROJID, valid, &mut attr.projid);
        match set.atime {
            Some(SetTime::At(time)) => {
                *valid |= SetattrFlags::ATIME;
                attr.set_atime(time);
            }
            Some(SetTime::Now) => *valid |= SetattrFlags::ATIME_NOW,
            None => {}
        }
        match set.mtime {
            Some(SetTime::At(time)) => {
                *valid |= SetattrFlags::MTIME;
                attr.set_mtime(time);
            }
            Some(SetTime::Now) => *valid |= SetattrFlags::MTIME_NOW,
            None => {}
        }
        if let Some(time) = set.ctime {
            *valid |= SetattrFlags::CTIME;
            attr.set_ctime(time);
        }
        if set.kill_suid {
            *valid |= SetattrFlags::KILL_SUID;
        }
        change
    }

    /// What is sent for this file at `now`, by this client's clock.
    pub(crate) fn request(&self, fid: Fid, now: Timespec) -> SetattrReq {
        let mut attr = self.attr.with_fid(fid);
        attr.set_btime(now);
        SetattrReq {
            attr,
            valid: self.valid,
            handle: self.handle,
            write_epoch: self.epoch,
            stripes: self.stripes,
            ..SetattrReq::default()
        }
    }

    /// Both, one after the other.
    pub(crate) fn then(mut self, later: &AttrChange) -> AttrChange {
        later.put_into(&mut self.attr);
        self.valid |= later.valid;
        self.handle = later.handle;
        self
    }

    /// What becomes of attributes by it, but for the change time.
    pub(crate) fn show(&self, attr: &mut Attr) {
        let before = *attr;
        self.put_into(attr);
        attr.mode = before.mode & S_IFMT | attr.mode & !S_IFMT;
    }

    /// Mode, owner and times that it sets.
    fn put_into(&self, attr: &mut Attr) {
        let has = |flag| self.valid.contains(flag);
        if has(SetattrFlags::MODE) {
            attr.mode = self.attr.mode;
        }
        if has(SetattrFlags::UID) {
            attr.uid = self.attr.uid;
        }
        if has(SetattrFlags::GID) {
            attr.gid = self.attr.gid;
        }
        if has(SetattrFlags::ATIME) {
            attr.set_atime(self.attr.atime());
        }
        if has(SetattrFlags::MTIME) {
            attr.set_mtime(self.attr.mtime());
        }
    }
}

fn put<T>(value: Option<T>, flag: SetattrFlags, valid: &mut SetattrFlags, field: &mut T) {
    if let Some(value) = value {
        *valid |= flag;
        *field = value;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_is_asked_for_is_sent() {
        assert_eq!(AttrChange::new(&SetAttr::default(), 0).valid, SetattrFlags::empty());
        let set = SetAttr {
            size: Some(0),
            mtime: Some(SetTime::At(Timespec::new(5, 6))),
            atime: Some(SetTime::Now),
            ..SetAttr::default()
        };
        let change = AttrChange::new(&set, 9);
        assert_eq!(
            change.valid,
            SetattrFlags::SIZE | SetattrFlags::MTIME | SetattrFlags::ATIME_NOW
        );
        assert_eq!((change.handle, change.attr.mtime()), (9, Timespec::new(5, 6)));
    }
}
