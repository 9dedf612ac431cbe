//! Reads tables of the kernel. A line that is not understood is left out.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::path::Path;

/// State of a socket that listens, in `/proc/net/tcp`.
const LISTENS: &str = "0A";

/// A file system of the mount table.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Below {
    /// `ext4`, `xfs`, `tmpfs`, ...
    pub(crate) kind: String,
    /// `MAJOR:MINOR` of its device.
    pub(crate) device: String,
    /// Its device or share.
    pub(crate) source: String,
    /// Options of the mount point and of the file system.
    pub(crate) options: Vec<String>,
}

/// The file system at `dir`, from `/proc/self/mountinfo`: the innermost mount point, and the last
/// one where several are on top of each other. `dir` is a whole path without links.
pub(crate) fn below(table: &str, dir: &Path) -> Option<Below> {
    let found = table.lines().filter_map(line).filter(|(point, _)| dir.starts_with(point));
    found.max_by_key(|(point, _)| Path::new(point).components().count()).map(|(_, below)| below)
}

/// `36 35 8:1 / /srv rw,noatime shared:1 - ext4 /dev/sda1 rw,data=ordered`.
fn line(line: &str) -> Option<(String, Below)> {
    let (before, after) = line.split_once(" - ")?;
    let mut point = before.split(' ').skip(2);
    let (device, _root, at, own) = (point.next()?, point.next()?, point.next()?, point.next()?);
    let mut words = after.split(' ');
    let (kind, source, all) = (words.next()?, words.next()?, words.next().unwrap_or_default());
    let below = Below {
        kind: kind.to_owned(),
        device: device.to_owned(),
        source: source.to_owned(),
        options: own.split(',').chain(all.split(',')).map(str::to_owned).collect(),
    };
    Some((at.replace("\\040", " "), below))
}

/// Sockets that listen at `port`, from `/proc/net/tcp` and `/proc/net/tcp6`.
pub(crate) fn listeners(table: &str, port: u16) -> Vec<SocketAddr> {
    let listener = |line: &str| {
        let mut words = line.split_whitespace().skip(1);
        let (local, _remote, state) = (words.next()?, words.next()?, words.next()?);
        let at = address(local)?;
        (state == LISTENS && at.port() == port).then_some(at)
    };
    table.lines().filter_map(listener).collect()
}

/// `0200007F:03DC`: words of the address in the order of a little-endian machine, then the port.
fn address(text: &str) -> Option<SocketAddr> {
    let (words, port) = text.split_once(':')?;
    let port = u16::from_str_radix(port, 16).ok()?;
    let word = |at: usize| {
        let text = words.get(at * 8..at * 8 + 8)?;
        u32::from_str_radix(text, 16).ok().map(u32::to_le_bytes)
    };
    let ip = match words.len() {
        8 => IpAddr::V4(Ipv4Addr::from(word(0)?)),
        32 => {
            let mut bytes = [0; 16];
            for (at, four) in bytes.chunks_exact_mut(4).enumerate() {
                four.copy_from_slice(&word(at)?);
            }
            IpAddr::V6(Ipv6Addr::from(bytes))
        }
        _ => return None,
    };
    Some(SocketAddr::new(ip, port))
}

/// KiB of a line of `/proc/meminfo`.
pub(crate) fn memory_kib(table: &str, name: &str) -> Option<u64> {
    let of = |line: &str| line.strip_prefix(name)?.strip_prefix(':').map(str::to_owned);
    table.lines().find_map(of)?.split_whitespace().next()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &str = "22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw,errors=remount-ro\n\
        30 22 0:5 / /srv/a\\040b rw - tmpfs tmpfs rw,size=100k\n\
        odd\n\
        31 22 8:2 / /srv rw,noatime - xfs /dev/sda2 rw\n\
        32 22 8:3 / /srv rw,noatime - ext4 /dev/sda3 rw,nobarrier\n";

    #[test]
    fn the_innermost_and_last_mount_counts() {
        let kind = |dir: &str| below(TABLE, Path::new(dir)).map(|below| (below.kind, below.device));
        assert_eq!(kind("/home"), Some(("ext4".into(), "8:1".into())));
        assert_eq!(kind("/srv/ost0"), Some(("ext4".into(), "8:3".into())));
        assert_eq!(kind("/srvx"), Some(("ext4".into(), "8:1".into())));
        assert_eq!(kind("/srv/a b/c"), Some(("tmpfs".into(), "0:5".into())));
        let options = below(TABLE, Path::new("/srv")).expect("a mount").options;
        assert_eq!(options, ["rw", "noatime", "rw", "nobarrier"]);
        assert_eq!(below("", Path::new("/")), None);
    }

    #[test]
    fn a_port_shows_its_listeners() {
        let v4 = "  sl  local_address rem_address   st tx_queue\n   \
            0: 0200007F:03DC 00000000:0000 0A 00000000:00000000\n   \
            1: 0300007F:03DC 0200007F:8000 01 00000000:00000000\n   \
            2: 00000000:0016 00000000:0000 0A 00000000:00000000\n";
        let local: SocketAddr = "127.0.0.2:988".parse().expect("an address");
        assert_eq!(listeners(v4, 988), [local]);
        let v6 = "   0: 00000000000000000000000001000000:03DC 00000000000000000000000000000000:0000 0A 0\n";
        let local: SocketAddr = "[::1]:988".parse().expect("an address");
        assert_eq!(listeners(v6, 988), [local]);
        assert!(listeners("0: zz:03DC 0:0 0A\n0: \u{e9}000007F:03DC 0:0 0A\n", 988).is_empty());
    }

    #[test]
    fn memory_is_found_by_name() {
        let table = "MemTotal:       24648040 kB\nMemAvailable:   20000000 kB\n";
        assert_eq!(memory_kib(table, "MemAvailable"), Some(20_000_000));
        assert_eq!(memory_kib(table, "Mem"), None);
    }
}
