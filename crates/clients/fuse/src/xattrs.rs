//! Names of extended attributes that a mount has.

use types::Errno;

/// Which names of extended attributes a mount has. Of those that it has not the callers hear
/// EOPNOTSUPP; `ls -l` does not ask for them again.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Xattrs {
    /// The kernel checks access lists.
    pub(crate) acls: bool,
    /// Security labels of SELinux.
    pub(crate) labels: bool,
}

impl Xattrs {
    pub(crate) fn has(self, name: &[u8]) -> bool {
        match name {
            b"security.selinux" => self.labels,
            b"system.posix_acl_access" | b"system.posix_acl_default" => self.acls,
            _ => true,
        }
    }

    pub(crate) fn check(self, name: &[u8]) -> Result<(), Errno> {
        if self.has(name) { Ok(()) } else { Err(Errno::EOPNOTSUPP) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_and_lists_are_there_where_the_mount_has_them() {
        let answers = |acls, labels| {
            let xattrs = Xattrs { acls, labels };
            ["security.selinux", "system.posix_acl_access", "security.capability", "user.a"]
                .map(|name| xattrs.check(name.as_bytes()).is_ok())
        };
        assert_eq!(answers(true, false), [false, true, true, true], "the usual mount");
        assert_eq!(answers(true, true), [true; 4], "seclabel");
        assert_eq!(answers(false, false), [false, false, true, true], "noacl");
    }
}
