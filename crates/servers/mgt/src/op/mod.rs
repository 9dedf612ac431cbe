//! Operations of the MGT, one file each.

pub(crate) mod config;
pub(crate) mod forget;
pub(crate) mod pool;
pub(crate) mod register;
pub(crate) mod set_param;

use bytes::Bytes;
use service::Incoming;
use types::{Errno, FsName};
use wire::Reply;
use wire::config::FsConfig;

/// The name of a file system: plain text, or text as postcard writes it (its length in front, which
/// is no character of a name).
fn fsname(buffer: &[u8]) -> Result<FsName, Errno> {
    let text = match buffer.split_first() {
        Some((len, text)) if usize::from(*len) == text.len() => text,
        _ => buffer,
    };
    std::str::from_utf8(text).ok().and_then(|text| text.parse().ok()).ok_or(Errno::EINVAL)
}

/// Body empty, the configuration behind it.
fn answer(incoming: &Incoming, config: &FsConfig) -> Reply {
    let mut reply =
        Reply::ok(&incoming.request.header, vec![Bytes::new(), wire::config::encode(config)]);
    reply.header.config_version = config.version;
    reply
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_comes_plain_or_with_its_length() {
        let name: FsName = "testfs".parse().expect("a name");
        assert_eq!(fsname(b"testfs"), Ok(name));
        assert_eq!(fsname(&wire::config::encode(&"testfs".to_owned())), Ok(name));
        for bad in [&b""[..], b"\x06test", b"far too long", b"a/b", b"\xff"] {
            assert_eq!(fsname(bad), Err(Errno::EINVAL));
        }
    }
}
