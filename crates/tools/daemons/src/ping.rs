//! `lctl ping`: checks whether a node answers and speaks our protocol.

use std::io;
use std::time::Duration;

use env_os::OsConfig;
use types::{Nid, NidAddr, Span};

/// Connects, lets both sides say HELLO, hangs up. The addresses that answered, `0@lo` first.
pub fn ping(to: NidAddr, patience: Duration) -> io::Result<Vec<Nid>> {
    let span = Span(u64::try_from(patience.as_nanos()).unwrap_or(u64::MAX));
    let config = OsConfig { handshake: span, insecure: true, ..OsConfig::default() };
    env_os::run(config, |env| async move {
        let timed_out = || io::Error::from_raw_os_error(types::Errno::ETIMEDOUT.raw());
        let link = env.timeout(span, env.connect(None, to)).await.ok_or_else(timed_out)??;
        link.tx.close();
        Ok(vec![Nid::LO, link.peer])
    })
}
