//! Two MDTs on two executors of one process, beside the same two in two processes: an echo to both
//! nodes, and creates of the native library in directories of both MDTs.

use std::fs;
use std::io::{BufRead as _, BufReader};
use std::path::Path;
use std::process::{Child, Command, Stdio};

use anyhow::{Context, Result, ensure};
use mounted::nodes::{CLIENT, Nodes, Shape};
use mounted::{kill, nacre_bin, wait_bounded};

use super::metadata::Output;
use crate::bed::{Bed, nacre};
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// What one process reaches of two processes.
const LEAST: f64 = 0.9;

/// Seconds of a phase at most: a turn starts and ends all servers twice.
const SECONDS_MAX: u32 = 3;

/// Turns, which take long for the same reason.
const TURNS_MAX: u32 = 5;

/// Pings under way to each node.
const ECHOES: &str = "64";

/// Ends a node in order.
const SIGTERM: i32 = 15;

const COMMAND: &str = "cargo xtask bench --only nodes";

pub(crate) fn executors(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let (dir, seconds) = (bed.fresh("nodes"), scale.seconds.min(SECONDS_MAX).to_string());
    fs::create_dir_all(&dir)?;
    let mut nodes = Nodes::format(&dir);
    nodes.start(Shape::TwoProcesses, &[]);
    spread(&mut nodes, &dir.join("mnt"))?;
    nodes.stop();
    let (mut echoes, mut creates) = ([Vec::new(), Vec::new()], [Vec::new(), Vec::new()]);
    for _ in 0..scale.pairs.min(TURNS_MAX) {
        for (side, shape) in [Shape::OneProcess, Shape::TwoProcesses].into_iter().enumerate() {
            nodes.start(shape, &[]);
            echoes[side].push(echo(&seconds)?);
            creates[side].push(create(&nodes, &seconds)?);
            nodes.stop();
        }
    }
    let title = "two executors of one process, of two processes";
    let bound = Some(Bound::Ratio(LEAST));
    Ok(vec![
        Row::of(
            "nodes/echo",
            &format!("{title}: pings, {ECHOES} under way to each"),
            "pings/s",
            echoes,
            bound,
            COMMAND,
        ),
        Row::of(
            "nodes/creates",
            &format!("{title}: native creates on both MDTs"),
            "files/s",
            creates,
            bound,
            COMMAND,
        ),
    ])
}

/// New directories near the root go to both MDTs in turn.
fn spread(nodes: &mut Nodes, mount: &Path) -> Result<()> {
    nodes.mount(mount);
    let words = ["lfs", "setdirstripe", "-D", "-c", "1", "-i", "-1", "--max-inherit-rr", "3", "."];
    let status = Command::new(nacre_bin()).args(words).current_dir(mount).status()?;
    ensure!(status.success(), "the root's default is not set: {status}");
    nodes.unmount();
    Ok(())
}

/// Files per second of one native client, in a directory for each create under way.
fn create(nodes: &Nodes, seconds: &str) -> Result<f64> {
    let address = nodes.address();
    let mut args = vec!["bench", "mdtest", "--native", &address];
    args.extend(["--in-flight", "64", "-u", "-F", "-C", "-W", seconds, "--json"]);
    let output: Output = nacre(&args)?;
    let phase = output.phases.iter().find(|phase| phase.phase == "File creation");
    Ok(phase.context("no creates were measured")?.rate)
}

/// Pings per second of one client to both nodes.
fn echo(seconds: &str) -> Result<f64> {
    let client = Node::start()?;
    let session = std::process::id().to_string();
    let lst = |line: &str| -> Result<String> {
        let words = line.split_whitespace();
        let mut command = Command::new(nacre_bin());
        command.arg("lst").args(words).env("LST_SESSION", &session);
        let output = command.stderr(Stdio::inherit()).output()?;
        ensure!(output.status.success(), "lst {line} ended with {}", output.status);
        Ok(String::from_utf8(output.stdout)?)
    };
    lst("new_session nodes")?;
    lst(&format!("add_group client {CLIENT}"))?;
    lst("add_group servers 127.0.248.[1-2]@tcp")?;
    lst(&format!(
        "add_test --concurrency {ECHOES} --distribute 1:2 --from client --to servers ping"
    ))?;
    lst("run")?;
    let shown = lst(&format!("stat --rpc --delay {seconds} --count 1 client"))?;
    lst("stop")?;
    lst("end_session")?;
    drop(client);
    pings(&shown).with_context(|| format!("no rate in:\n{shown}"))
}

/// Of `[ping] 81234 RPC/s 0.00 MiB/s latency us: p50 ...`.
fn pings(shown: &str) -> Option<f64> {
    let line = shown.lines().find_map(|line| line.strip_prefix("[ping] "))?;
    line.split_whitespace().next()?.parse().ok()
}

/// A node of the self-test; it ends with the value.
struct Node(Child);

impl Node {
    fn start() -> Result<Node> {
        let mut command = Command::new(nacre_bin());
        let child = command.args(["lst-node", "--nid", CLIENT]).stdout(Stdio::piped()).spawn()?;
        let mut node = Node(child);
        let mut line = String::new();
        BufReader::new(node.0.stdout.take().context("piped")?).read_line(&mut line)?;
        ensure!(line.trim() == "ready", "nacre lst-node: {line}");
        Ok(node)
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        kill(self.0.id(), SIGTERM);
        let _it_has_ended = wait_bounded(&mut self.0);
    }
}

#[cfg(test)]
mod tests_of_rates {
    use super::pings;

    #[test]
    fn the_rate_of_pings_is_read() {
        let shown = "[Test RPCs of client]\n[ping] 81234 RPC/s 0.00 MiB/s latency us: p50 700\n";
        assert_eq!(pings(shown), Some(81_234.0));
        assert_eq!(pings("[Test RPCs of client]\n"), None);
    }
}
