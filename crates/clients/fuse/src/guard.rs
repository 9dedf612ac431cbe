//! The kernel's treatment of an answer that it takes in after a notification.

/// What keeps an answer that the kernel takes in late from undoing a notification.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Guard {
    /// Nothing: the answer to a change of an inode that it knows, and, before Linux 6.14, one that
    /// may be the first about an inode, or about one that it has dropped meanwhile.
    None,
    /// Nothing: what a name stands for, where the kernel cannot be notified of it.
    Name,
    /// Attributes have a version; of an inode that the kernel does not know yet it is told again.
    Version,
}
