//! `lctl ping`: connects and exchanges a HELLO.

use std::io;
use std::time::Duration;

use types::{Net, Nid, NidAddr};

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
            let errno = Failed::number(&error);
            // the peer's own words where it has given some
            let why = error.get_ref().map(|why| format!(": {why}")).unwrap_or_default();
            Err(Failed::new(errno.raw(), format!("failed to ping {}: {errno}{why}", args.nid)))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nid_without_a_net_is_of_tcp_and_other_nets_are_refused() {
        assert_eq!(nid("127.0.0.2").map(|nid| nid.to_string()), Ok("127.0.0.2@tcp".to_owned()));
        assert!(nid("127.0.0.2:1988@tcp").is_ok());
        assert_eq!(nid("localhost").map(|nid| nid.to_string()), Ok("127.0.0.1@tcp".to_owned()));
        assert!(nid("127.0.0.2@o2ib").is_err_and(|why| why.contains("tcp is the only net")));
    }
}
