//! `lctl ping`: a connection and its HELLO, no more.

use std::time::Duration;

use types::NidAddr;

use crate::Failed;

/// Arguments of `lctl ping`.
#[derive(Debug, clap::Args)]
pub(super) struct Args {
    /// Address of the node, e.g. 127.0.0.2@tcp or 127.0.0.2:1988@tcp.
    nid: NidAddr,
    /// Seconds to wait.
    #[arg(default_value_t = 10, value_parser = clap::value_parser!(u64).range(1..=600))]
    timeout: u64,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    match daemons::ping::ping(args.nid, Duration::from_secs(args.timeout)) {
        Ok(nids) => {
            for nid in nids {
                crate::out::line(format_args!("12345-{nid}"));
            }
            Ok(())
        }
        Err(error) => {
            let errno = Failed::number(&error);
            Err(Failed::new(errno.raw(), format!("failed to ping {}: {errno}", args.nid)))
        }
    }
}
