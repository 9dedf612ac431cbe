//! A network for every node, on one bridge, with cuts between any two.

use std::collections::BTreeSet;
use std::process::{Command, Stdio};

/// Whether this process has a network of its own, without any interface to the world.
pub(super) fn is_alone() -> bool {
    let text = std::fs::read_to_string("/proc/self/net/dev").unwrap_or_default();
    let mut names = text.lines().skip(2).filter_map(|line| line.split(':').next());
    names.all(|name| name.trim() == "lo")
}

/// Runs a program that must succeed; what it printed.
pub(super) fn tool(program: &str, args: &[&str]) -> String {
    try_tool(program, args).unwrap_or_else(|error| panic!("{error}"))
}

pub(super) fn try_tool(program: &str, args: &[&str]) -> Result<String, String> {
    let mut command = Command::new(program);
    let output = command.args(args).stdin(Stdio::null()).output();
    let output = output.map_err(|error| format!("{program}: {error}"))?;
    if output.status.success() {
        return Ok(String::from_utf8_lossy(&output.stdout).into_owned());
    }
    Err(format!("{program} {}: {}", args.join(" "), String::from_utf8_lossy(&output.stderr)))
}

const BRIDGE: &str = "chaos";
/// What a node hears from and sends to.
const TABLE: &str = "add table ip cuts; \
    add set ip cuts heard { type ipv4_addr; }; add set ip cuts sent { type ipv4_addr; }; \
    add chain ip cuts input { type filter hook input priority 0; }; \
    add chain ip cuts output { type filter hook output priority 0; }; \
    add rule ip cuts input ip saddr @heard drop; add rule ip cuts output ip daddr @sent drop";

/// The networks of `0..nodes`.
pub(super) struct Net {
    nodes: usize,
    cuts: BTreeSet<(usize, usize, bool)>,
}

impl Net {
    pub(super) fn new(nodes: usize) -> Net {
        tool("ip", &["link", "add", BRIDGE, "type", "bridge"]);
        tool("ip", &["link", "set", BRIDGE, "up"]);
        let net = Net { nodes, cuts: BTreeSet::new() };
        (0..nodes).for_each(Net::add);
        net
    }

    fn add(node: usize) {
        let (space, port) = (space(node), format!("port{node}"));
        tool("ip", &["netns", "add", &space]);
        let peer = ["link", "add", &port, "type", "veth", "peer", "name", "eth0", "netns", &space];
        tool("ip", &peer);
        tool("ip", &["link", "set", &port, "master", BRIDGE, "up"]);
        let address = format!("{}/24", address(node));
        tool("ip", &["-n", &space, "addr", "add", &address, "dev", "eth0"]);
        tool("ip", &["-n", &space, "link", "set", "eth0", "up"]);
        tool("ip", &["-n", &space, "link", "set", "lo", "up"]);
        nft(node, TABLE);
    }

    /// A command that starts `program` in the network of `node`.
    pub(super) fn command(node: usize, program: &std::path::Path) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", space(node))).arg(program);
        command
    }

    /// `from` does not reach `to` any more, and where `both` not the other way either.
    pub(super) fn cut(&mut self, from: usize, to: usize, both: bool) {
        if self.cuts.insert((from, to, both)) {
            rules("add", from, to, both);
        }
    }

    pub(super) fn heal(&mut self, from: usize, to: usize, both: bool) {
        if self.cuts.remove(&(from, to, both)) {
            rules("delete", from, to, both);
        }
    }
}

impl Drop for Net {
    fn drop(&mut self) {
        for node in 0..self.nodes {
            let _said = try_tool("ip", &["netns", "del", &space(node)]);
        }
        let _said = try_tool("umount", &["/run/netns"]); // made by ip
        let _said = try_tool("ip", &["link", "del", BRIDGE]);
    }
}

fn rules(verb: &str, at: usize, peer: usize, both: bool) {
    let peer = address(peer);
    let sent = format!("{verb} element ip cuts sent {{ {peer} }}");
    let heard = format!("{verb} element ip cuts heard {{ {peer} }}");
    nft(at, &if both { format!("{sent}; {heard}") } else { sent });
}

fn nft(node: usize, commands: &str) {
    let net = format!("--net=/run/netns/{}", space(node));
    tool("nsenter", &[&net, "nft", commands]);
}

fn space(node: usize) -> String {
    format!("node{node}")
}

pub(super) fn address(node: usize) -> String {
    format!("10.77.0.{}", node + 1)
}

/// Where the node is reached.
pub(super) fn nid(node: usize) -> String {
    format!("{}@tcp", address(node))
}
