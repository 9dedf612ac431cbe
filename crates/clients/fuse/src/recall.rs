//! What another client is about to change: the kernel is made to forget it.
//!
//! Attributes of an inode that the kernel knows are forgotten at once, and answers under way are
//! too old for it from then on (`NOTIFY_INVAL_INODE` without a range, which takes no lock that a
//! request may hold). Names, and the first answer about an inode, end with their short time.

use std::io;
use std::rc::Weak;

use types::{Fid, Instant};

use crate::fs::Fs;
use crate::limits::ANSWER_LATE;
use crate::nodes::Believed;

/// The kernel of a mount, as its client calls it.
pub(crate) struct Told(pub(crate) Weak<Fs>);

impl client::Kernel for Told {
    fn forget(&self, fid: Fid, names: bool, is_again: bool) -> Option<Instant> {
        self.0.upgrade()?.forget_told(fid, names, is_again)
    }

    fn forget_all(&self) {
        if let Some(fs) = self.0.upgrade() {
            fs.forget_all_told();
        }
    }
}

impl Fs {
    fn forget_told(&self, fid: Fid, names: bool, is_again: bool) -> Option<Instant> {
        if self.bugs.keep_called_back() {
            return None;
        }
        let now = self.env.now();
        let Believed { nodeid, is_kept, attrs_until, names_until } =
            self.nodes.borrow().believed(fid, now)?;
        let mut until = if names { attrs_until.max(names_until) } else { attrs_until };
        if is_kept && !self.is_told_to_forget(nodeid) && !is_again {
            // it has no such inode: one that it dropped and hears of anew may be on its way
            until = until.max(now + ANSWER_LATE);
        }
        (until > now && !self.bugs.acknowledge_early()).then_some(until)
    }

    fn forget_all_told(&self) {
        let believed = self.nodes.borrow().all_believed(self.env.now());
        for nodeid in believed {
            self.is_told_to_forget(nodeid);
        }
    }

    /// Whether the kernel knows the inode.
    fn is_told_to_forget(&self, nodeid: u64) -> bool {
        match self.notifier.inval_inode(nodeid, -1, 0) {
            Ok(()) => true,
            Err(error) => {
                if error.kind() != io::ErrorKind::NotFound {
                    tracing::warn!(nodeid, %error, "the kernel does not hear what is called back");
                }
                false
            }
        }
    }
}
