//! `lctl ping`: connects and exchanges a HELLO.

use std::io;
use std::time::Duration;

use types::{Errno, Net, Nid, NidAddr};

use crate::Failed;

/// Connects to a node, lets both sides say HELLO and hangs up; the addresses that answered. It
/// speaks to the network, so the caller of [`run`](super::run) brings it.
pub type Ping = fn(NidAddr, Duration) -> io::Result<Vec<Nid>>;

/// Arguments of `lctl ping`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address of the node, e.g. 127.0.0.2@tcp or 127.0.0.2:1988@tcp; without a net @tcp.
    #[arg(value_parser = nid)]
    nid: NidAddr,
    /// Seconds to wait.
    #[arg(default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

/// A NID of the only net that there is. A host may be in the place of its address.
fn nid(text: &str) -> Result<NidAddr, String> {
    let whole = if text.contains('@') { text.to_owned() } else { format!("{text}@tcp") };
    let nid = ctl::names::nid_addr(&whole)?;
    match nid.nid.net() {
        Net::TCP | Net::LO => Ok(nid),
        _ => Err(format!("{text}: tcp is the only network here, as 10.0.0.1@tcp")),
    }
}

pub(super) fn run(args: &Args, ping: Ping) -> Result<(), Failed> {
    match ping(args.nid, Duration::from_secs(args.timeout)) {
        Ok(nids) => {
            for nid in nids {
                crate::out::line(format_args!("12345-{nid}"));
            }
            Ok(())
        }
        Err(error) => {
            let said = error.get_ref().map(ToString::to_string).unwrap_or_default();
            let errno = Failed::number(&error);
            Err(Failed::new(errno.raw(), failure(args.nid, errno, &said)))
        }
    }
}

/// `said` are the peer's own words, or an error with its address in front.
fn failure(nid: NidAddr, errno: Errno, said: &str) -> String {
    let said = said.strip_prefix(&format!("{nid}: ")).unwrap_or(said);
    let is_news = !said.is_empty() && !said.starts_with(errno.text());
    let why = if is_news { format!(": {said}") } else { String::new() };
    format!("failed to ping {nid}: {errno}{why}; lctl list_nids there lists its addresses")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_failure_is_printed_once() {
        let nid: NidAddr = "127.0.0.2@tcp".parse().expect("a NID");
        let said = "127.0.0.2@tcp: Connection refused (os error 111)";
        let text = failure(nid, Errno::ECONNREFUSED, said);
        assert!(text.starts_with("failed to ping 127.0.0.2@tcp: Connection refused; "), "{text}");
        let text = failure(nid, Errno::EIO, "another version");
        assert!(text.contains("Input/output error: another version; lctl "), "{text}");
    }

    #[test]
    fn a_nid_without_a_net_is_of_tcp_and_other_nets_are_refused() {
        assert_eq!(nid("127.0.0.2").map(|nid| nid.to_string()), Ok("127.0.0.2@tcp".to_owned()));
        assert!(nid("127.0.0.2:1988@tcp").is_ok());
        assert_eq!(nid("localhost").map(|nid| nid.to_string()), Ok("127.0.0.1@tcp".to_owned()));
        assert!(nid("127.0.0.2@o2ib").is_err_and(|why| why.contains("tcp is the only net")));
    }
}
