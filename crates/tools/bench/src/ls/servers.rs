//! Server processes of the benchmark, and clients of them.

use std::cell::Cell;
use std::io::{BufRead, BufReader};
use std::net::Ipv4Addr;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result};
use client::{Client, MountConfig};
use env::Env;
use env_os::OsConfig;
use types::{ClientId, FsName, Nid, NidAddr, Span};

use super::LsArgs;

const FSNAME: &str = "benchls";

/// Where the MGT and the MDT are. Clients have addresses of the same block.
const MDS: Ipv4Addr = Ipv4Addr::new(127, 0, 77, 2);
/// Blocks of servers with OSTs, and how many a block has.
const OSS_BLOCK: u8 = 78;
const OSS_OF_BLOCK: usize = 200;

/// Address of a server with OSTs.
fn of_oss(number: usize) -> Ipv4Addr {
    let [block, last] = [number / OSS_OF_BLOCK, number % OSS_OF_BLOCK];
    Ipv4Addr::new(127, 0, OSS_BLOCK.saturating_add(block as u8), 1 + last as u8)
}

/// All servers; they end with the value.
pub(super) struct Servers {
    mgs: NidAddr,
    _processes: Vec<Server>,
    mounts: Cell<u8>,
}

struct Server {
    child: Child,
    addr: NidAddr,
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Server {
    fn start(args: &LsArgs, at: Ipv4Addr, further: &[String]) -> Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["serve-memory", "--fsname", FSNAME]);
        command.args(["--listen", &format!("{at}:0@tcp")]);
        command.args(["--delay-us", &args.delay_us.to_string()]).args(further);
        let child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn();
        let mut child = child.context("cannot start a server")?;
        let mut line = String::new();
        let out = child.stdout.take().context("its output is a pipe")?;
        BufReader::new(out).read_line(&mut line)?;
        let addr = line.trim().parse();
        let addr = addr.with_context(|| format!("a server said '{}'", line.trim()))?;
        Ok(Server { child, addr })
    }
}

/// Settings of the node on which the clients are.
pub(super) fn node_config(args: &LsArgs) -> OsConfig {
    OsConfig { delay: Span::micros(args.delay_us), ..OsConfig::default() }
}

/// OSTs of the widest file.
fn osts(args: &LsArgs) -> u32 {
    args.stripes.iter().copied().max().unwrap_or(1).max(1)
}

/// Processes of [`Servers`].
pub(super) fn processes(args: &LsArgs) -> u32 {
    osts(args).div_ceil(args.osts_per_server) + 1
}

impl Servers {
    /// As many OSTs as the widest file has stripes, and an MDS.
    pub(super) fn start(args: &LsArgs) -> Result<Servers> {
        let osts = osts(args);
        let each = args.osts_per_server;
        let mut processes = Vec::new();
        let mut addrs = Vec::new();
        for (number, first) in (0..osts).step_by(each as usize).enumerate() {
            let count = each.min(osts - first);
            let further = ["--first", &first.to_string(), "--count", &count.to_string()];
            let server = Server::start(args, of_oss(number), &further.map(str::to_owned))?;
            addrs.extend((0..count).map(|_| server.addr.to_string()));
            processes.push(server);
        }
        let mds = Server::start(args, MDS, &["--osts".to_owned(), addrs.join(",")])?;
        let mgs = mds.addr;
        processes.push(mds);
        Ok(Servers { mgs, _processes: processes, mounts: Cell::new(0) })
    }

    /// A client that knows nothing yet, at an address of its own.
    pub(super) async fn mount(&self, env: &Env) -> Result<Client> {
        let id = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
        let fsname: FsName = FSNAME.parse()?;
        let mut config = MountConfig::new(vec![self.mgs], fsname, id);
        config.endpoint.nid = Some(self.client_nid());
        Client::mount(env, config).await.context("cannot mount")
    }

    /// An address for the next client.
    pub(super) fn client_nid(&self) -> Nid {
        let number = self.mounts.get();
        self.mounts.set((number + 1) % 100);
        Nid::tcp(Ipv4Addr::new(127, 0, 77, 100 + number))
    }

    /// What `nacre mount` mounts.
    pub(super) fn source(&self) -> String {
        format!("{}:/{FSNAME}", self.mgs)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn each_server_of_the_widest_files_has_an_address() {
        let most = usize::from(layout::STRIPE_COUNT_MAX);
        let all: BTreeSet<Ipv4Addr> = (0..most).map(of_oss).collect();
        assert_eq!(all.len(), most, "with one OST each");
        assert!(all.iter().all(|at| at.octets()[2] != MDS.octets()[2] && at.octets()[3] != 255));
    }
}
