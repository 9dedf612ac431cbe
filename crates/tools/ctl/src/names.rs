//! NIDs with a host name in them: `mgs.example.org@tcp`. The name is looked up once, when the
//! command starts. The address is stored and shown.

use std::net::{Ipv4Addr, SocketAddr, ToSocketAddrs};

use types::{Nid, NidAddr, NidList};

/// Bytes of a host name at most (RFC 1035).
const HOST_BYTES_MAX: usize = 253;

/// `10.0.0.1@tcp`, `mgs:1988@tcp`.
///
/// # Errors
/// It is no NID, or its host has no IPv4 address.
pub fn nid_addr(text: &str) -> Result<NidAddr, String> {
    with(text, ipv4_of)
}

/// The same without a port, which is ignored.
///
/// # Errors
/// It is no NID, or its host has no IPv4 address.
pub fn nid(text: &str) -> Result<Nid, String> {
    nid_addr(text).map(|at| at.nid)
}

/// `10.0.0.[1-8]@tcp node9@tcp`: a list, in which an item may be a host.
///
/// # Errors
/// It is no list of NIDs, or a host has no IPv4 address.
pub fn nid_list(text: &str) -> Result<NidList, String> {
    with_addresses(text)?.parse().map_err(|error: types::NidListError| error.to_string())
}

/// A list with addresses in place of hosts. Items that name neither stay as they are.
///
/// # Errors
/// A host has no IPv4 address.
pub fn with_addresses(list: &str) -> Result<String, String> {
    let items = list.split_ascii_whitespace().map(|item| match item.split_once('@') {
        Some((host, _)) if is_host(host) => {
            let is_nid = with(item, |_| Ok(Ipv4Addr::LOCALHOST)).is_ok();
            if is_nid { nid(item).map(|nid| nid.to_string()) } else { Ok(item.to_owned()) }
        }
        _ => Ok(item.to_owned()),
    });
    items.collect::<Result<Vec<String>, String>>().map(|items| items.join(" "))
}

/// The same as `nid_addr`, with the lookup given.
///
/// # Errors
/// It is no NID, or the lookup fails.
pub fn with(
    text: &str,
    look_up: impl Fn(&str) -> Result<Ipv4Addr, String>,
) -> Result<NidAddr, String> {
    let wrong = match text.parse() {
        Ok(at) => return Ok(at),
        Err(wrong) => format!("{wrong} or mgs.example.org@tcp"),
    };
    let Some((place, net)) = text.split_once('@') else { return Err(wrong) };
    let (host, port) = place.split_at(place.find(':').unwrap_or(place.len()));
    // what is wrong apart from the host is told first
    let with_addr = |addr| format!("{addr}{port}@{net}").parse::<NidAddr>();
    if !is_host(host) || !net.starts_with("tcp") || with_addr(Ipv4Addr::LOCALHOST).is_err() {
        return Err(wrong);
    }
    with_addr(look_up(host)?).map_err(|error| error.to_string())
}

/// Letters, digits, hyphens and dots, and not an address with an error in it.
fn is_host(text: &str) -> bool {
    let is_part = |part: &str| {
        let bytes = part.as_bytes();
        !bytes.is_empty()
            && bytes.iter().all(|b| b.is_ascii_alphanumeric() || *b == b'-')
            && !part.starts_with('-')
    };
    text.len() <= HOST_BYTES_MAX
        && text.split('.').all(is_part)
        && text.bytes().any(|b| b.is_ascii_alphabetic())
}

fn ipv4_of(host: &str) -> Result<Ipv4Addr, String> {
    let found = (host, 0).to_socket_addrs().map_err(|error| {
        format!("host '{host}': {error}; name a host that this machine can look up, or its address")
    })?;
    found
        .into_iter()
        .find_map(|addr| match addr {
            SocketAddr::V4(addr) => Some(*addr.ip()),
            SocketAddr::V6(_) => None,
        })
        .ok_or_else(|| format!("host '{host}' has no IPv4 address"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_host_stands_where_its_address_would() {
        let look_up = |host: &str| match host {
            "mgs.example.org" => Ok(Ipv4Addr::new(192, 0, 2, 7)),
            other => Err(format!("host '{other}'")),
        };
        let shown = |text: &str| with(text, look_up).map(|at| at.to_string());
        assert_eq!(shown("mgs.example.org@tcp"), Ok("192.0.2.7@tcp".to_owned()));
        assert_eq!(shown("mgs.example.org:1988@tcp2"), Ok("192.0.2.7:1988@tcp2".to_owned()));
        assert_eq!(shown("192.0.2.1@tcp"), Ok("192.0.2.1@tcp".to_owned()));
        assert_eq!(shown("other@tcp"), Err("host 'other'".to_owned()));
        for text in ["10.0.0@tcp", "mgs", "mgs@ib", "mgs:x@tcp", "mgs@o2ib", "-a@tcp", "a..b@tcp"] {
            let error = shown(text).expect_err(text);
            assert!(error.contains("is not a NID"), "{text}: {error}");
        }
    }

    #[test]
    fn items_of_a_list_may_be_hosts() {
        let shown = |text: &str| nid_list(text).map(|list| list.to_string());
        let list = "10.0.0.[1-3]@tcp localhost@tcp1  0@lo";
        assert_eq!(shown(list), Ok("10.0.0.[1-3]@tcp 127.0.0.1@tcp1 0@lo".to_owned()));
        let same = "nonsense localhost@ib x@lo localhost:1988@tcp *@tcp";
        assert_eq!(with_addresses(same), Ok(same.to_owned()));
        let wrong = "'nonsense' names no network: expected ADDRESS@NET, e.g. 10.0.0.[1-16]@tcp";
        assert_eq!(shown("localhost@tcp nonsense"), Err(wrong.to_owned()));
    }

    #[test]
    fn the_own_machine_is_found_by_name() {
        assert_eq!(nid_addr("localhost@tcp").map(|at| at.to_string()), Ok("127.0.0.1@tcp".into()));
    }
}
