//! Options of the commands that look at a running file system and at its machine.

use std::path::PathBuf;
use std::time::Duration;

use clap::Args;

/// Options of `nacre status`.
#[derive(Debug, Args)]
#[command(after_help = "\
Asks all daemons of this machine at once, and prints on one screen: troubles; targets with state,
space and sessions; services with the scheduler's policy and waiting requests; mounts with the
targets that they wait for; clients. A target of another machine is shown as a mount here sees it.
A daemon that does not answer within 2 s is named (NACRE_ANSWER_WAIT: seconds).

With --from the same of daemons on other machines, which were started with --metrics. Metrics have
no clients, no reasons and no states such as readonly. The policy is the one that has started most
requests.

Troubles are a daemon that is silent or not healthy, and a target that is in recovery, full or out
of use. A mount without its daemon, or without a connection to a target in use, is one too.

Examples:
  nacre status
  nacre status --watch 5
  nacre status --from mds1:9169,oss1:9169,oss2:9169
  nacre status --json | jq -r '.troubles[]'
  nacre status > /dev/null || echo 'look at nacre status'

Exit status: 0 all well; 3 degraded: there are troubles; 4 nothing runs here; 1 failure, reported on
stderr; 2 wrong usage.")]
pub(super) struct Status {
    /// As JSON; with --watch a line for each look.
    #[arg(long)]
    json: bool,
    /// Look again every SECONDS (2) until the command is interrupted.
    #[arg(long, value_name = "SECONDS", num_args = 0..=1, default_missing_value = "2", value_parser = clap::value_parser!(u64).range(1..=3_600))]
    watch: Option<u64>,
    /// Daemons of any machine, by the addresses of their --metrics.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = address)]
    from: Vec<String>,
}

/// Options of `nacre doctor`.
#[derive(Debug, Args)]
#[command(after_help = "\
Looks at the kernel, FUSE, limits, io_uring, the port of servers, the clock, memory and CPUs. With
--data it also looks at the file system below DIR: its kind, mount options, journal, space and
inodes, and whether direct I/O and fallocate work; it makes a file there and removes it. Each check
is ok, warn or bad, with the reason and the command to type. No setting is changed.

Limits are those of a process that is started here: run it as the user, and in the unit or
container, that will run Nacre.

Examples:
  nacre doctor
  nacre doctor --data /srv/ost0
  nacre doctor --json | jq -r '.checks[] | select(.verdict != \"ok\") | .change'

Exit status: 0 nothing is bad; 3 something is bad; 1 failure, reported on stderr; 2 wrong usage.")]
pub(super) struct Doctor {
    /// Look also at the file system below this directory, where targets are or will be.
    #[arg(long, value_name = "DIR")]
    data: Option<PathBuf>,
    /// Port of the servers.
    #[arg(long, value_name = "PORT", default_value_t = types::PORT_DEFAULT, value_parser = clap::value_parser!(u16).range(1..))]
    port: u16,
    /// As JSON.
    #[arg(long)]
    json: bool,
}

/// Options of `nacre top`.
#[derive(Debug, Args)]
#[command(after_help = "\
Shows the work of this machine's daemons by client, job and target: requests or operations per
second, bytes per second, and the mean wait of a request in the queue. Services of servers are
shown with requests per second, mean wait, requests that wait now, and the scheduler's policy. The
start page names the service whose requests wait most, the jobs and clients that load it, and those
that wait longest.

With --from the same of daemons on other machines, which were started with --metrics. Metrics have
the busiest clients and jobs of each target, and clients without the names of their mounts. The
policy is the one that has started most requests since the last sample.

Keys: 1 to 5 or Tab choose a page. o sorts by requests or operations, b by bytes, w by waits.
q or Ctrl-C ends.

Examples:
  nacre top
  nacre top --interval 5
  nacre top --from mds1:9169,oss1:9169,oss2:9169

Exit status: 0 ended by a key; 1 failure, reported on stderr: it needs a terminal; 2 wrong usage.")]
pub(super) struct Top {
    /// Seconds between two samples.
    #[arg(long, value_name = "SECONDS", default_value_t = 2, value_parser = clap::value_parser!(u64).range(1..=60))]
    interval: u64,
    /// Daemons of any machine, by the addresses of their --metrics.
    #[arg(long, value_name = "HOST:PORT", value_delimiter = ',', value_parser = address)]
    from: Vec<String>,
}

/// A host and a port; the host is looked up later.
fn address(text: &str) -> Result<String, String> {
    let port = text.rsplit_once(':').filter(|(host, _)| !host.is_empty());
    match port.map(|(_, port)| port.parse::<u16>()) {
        Some(Ok(_)) => Ok(text.to_owned()),
        _ => Err("expected HOST:PORT, as oss1:9169".to_owned()),
    }
}

impl Top {
    pub(super) fn pause(&self) -> Duration {
        Duration::from_secs(self.interval)
    }

    pub(super) fn addresses(&self) -> &[String] {
        &self.from
    }
}

impl Status {
    pub(super) fn options(&self) -> status::Options {
        status::Options {
            json: self.json,
            watch: self.watch.map(Duration::from_secs),
            from: self.from.clone(),
        }
    }
}

impl Doctor {
    pub(super) fn options(self) -> doctor::Options {
        doctor::Options { json: self.json, data: self.data, port: self.port }
    }
}
