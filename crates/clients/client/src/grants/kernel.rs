//! The kernel's side of a mount, as far as grants concern it.

use env::LocalFuture;
use types::Fid;

/// Completes when a kernel has forgotten a file.
pub(super) type Forgetting = LocalFuture<'static, ()>;

/// Who keeps what a mount was told of files.
pub trait Kernel {
    /// It is to believe no attributes of a file any more, nor that its `names` stand for it.
    /// Nothing: it does not. Else it does not once the future has completed.
    fn forget(&self, fid: Fid, names: bool) -> Option<Forgetting>;
    /// It is to keep no data of a file any more. Nothing: it keeps none. Else it keeps none once
    /// the future has completed.
    fn drop_pages(&self, _: Fid) -> Option<Forgetting> {
        None
    }
    /// The same of all files, or of those that one MDT has, in the background: it uses none without
    /// a question from now on.
    fn drop_all_pages(&self, _mdt: Option<u32>) {}
    /// Whether it can keep data of files and be told to drop it.
    fn keeps_pages(&self) -> bool {
        false
    }
    /// [`Kernel::forget`] of all files, but for what it believes for 50 ms at most. It may keep
    /// their data.
    fn forget_all(&self) -> Option<Forgetting>;
}
