//! Extended attributes.

use bytes::Bytes;
use fusedev::abi;
use fusedev::{Body, Header, Reply};
use types::Errno;

use crate::error::errno;
use crate::fs::Fs;

impl Fs {
    pub(crate) async fn setxattr(
        &self,
        header: &Header,
        name: &[u8],
        value: Bytes,
        flags: u32,
    ) -> Reply {
        self.xattrs().check(name)?;
        let fid = self.fid(header.nodeid)?;
        let done = self.client.setxattr(&self.ctx(header, 0), fid, name, value, flags).await;
        done.map(|()| Body::Empty).map_err(errno)
    }

    pub(crate) async fn getxattr(&self, header: &Header, name: &[u8], size: u32) -> Reply {
        self.xattrs().check(name)?;
        let fid = self.fid(header.nodeid)?;
        let value = self.client.getxattr(&self.ctx(header, 0), fid, name).await.map_err(errno)?;
        sized(value, size)
    }

    pub(crate) async fn listxattr(&self, header: &Header, size: u32) -> Reply {
        let fid = self.fid(header.nodeid)?;
        let mut names = self.client.listxattr(&self.ctx(header, 0), fid).await.map_err(errno)?;
        names.retain(|name| self.xattrs().has(name));
        sized(listed(&names, header.uid == 0).into(), size)
    }

    pub(crate) async fn removexattr(&self, header: &Header, name: &[u8]) -> Reply {
        self.xattrs().check(name)?;
        let fid = self.fid(header.nodeid)?;
        self.client
            .removexattr(&self.ctx(header, 0), fid, name)
            .await
            .map(|()| Body::Empty)
            .map_err(errno)
    }
}

/// The value where it fits, its length where that was asked.
fn sized(value: Bytes, size: u32) -> Reply {
    let len = u32::try_from(value.len()).map_err(|_| Errno::E2BIG)?;
    match size {
        0 => Ok(Body::Xattr(abi::GetxattrOut { size: len, padding: 0 })),
        size if size < len => Err(Errno::ERANGE),
        _ => Ok(Body::Data(value)),
    }
}

/// Names, each with its NUL. Trusted ones exist for the superuser only.
fn listed(names: &[Vec<u8>], superuser: bool) -> Vec<u8> {
    let visible = names.iter().filter(|name| superuser || !name.starts_with(b"trusted."));
    visible.flat_map(|name| name.iter().copied().chain([0])).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_value_larger_than_the_buffer_is_refused() {
        let value = Bytes::from_static(b"12345");
        assert!(matches!(sized(value.clone(), 0), Ok(Body::Xattr(out)) if out.size == 5));
        assert!(matches!(sized(value.clone(), 4), Err(Errno::ERANGE)));
        assert!(matches!(sized(value, 5), Ok(Body::Data(_))));
    }

    #[test]
    fn trusted_names_are_for_the_superuser() {
        let names = [b"user.a".to_vec(), b"trusted.lov".to_vec()];
        assert_eq!(listed(&names, false), b"user.a\0");
        assert_eq!(listed(&names, true), b"user.a\0trusted.lov\0");
    }
}
