//! `lst stat`: polls counters and evaluates the time between two polls.

use std::time::Duration;

use lst::command::{Command as Ask, Sample};
use lst::{Interval, RateOptions, render_net, render_rpc};

use crate::Failed;

/// Arguments of `lst stat`.
#[derive(Debug, clap::Args)]
pub(super) struct Stat {
    /// Bandwidth.
    #[arg(short = 'b', long)]
    bw: bool,
    /// Messages per second.
    #[arg(short = 'r', long)]
    rate: bool,
    /// Received.
    #[arg(short = 'e', long)]
    read: bool,
    /// Sent.
    #[arg(short = 'w', long)]
    write: bool,
    /// The fastest node.
    #[arg(short = 'm', long)]
    max: bool,
    /// The slowest node.
    #[arg(short = 'i', long)]
    min: bool,
    /// The mean of the nodes.
    #[arg(short = 'g', long)]
    avg: bool,
    /// MB/s of a million bytes.
    #[arg(long)]
    mbs: bool,
    /// Finished requests of the tests and percentiles of their latency. Nodes count these as
    /// sources.
    #[arg(short = 'p', long)]
    rpc: bool,
    /// Seconds that a node has to answer.
    #[arg(short = 't', long, value_name = "SEC", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    timeout: u32,
    /// Seconds between two lines.
    #[arg(short = 'd', long, value_name = "SEC", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=3600))]
    delay: u32,
    /// Number of samples; without it there is no end.
    #[arg(short = 'c', long, value_name = "N")]
    count: Option<u32>,
    /// Groups or NIDs.
    #[arg(required = true, value_name = "GROUP|NIDS")]
    of: Vec<String>,
}

/// Prints until it is killed, the count is reached or the session is over.
pub(super) fn run(key: u32, args: &Stat) -> Result<(), Failed> {
    let mut before = sample(key, args)?;
    let mut left = args.count;
    while left != Some(0) {
        left = left.map(|left| left - 1);
        std::thread::sleep(Duration::from_secs(u64::from(args.delay)));
        let now = sample(key, args)?;
        for (before, now) in before.iter().zip(&now) {
            crate::out::print(&render(args, before, now));
        }
        before = now;
    }
    Ok(())
}

fn sample(key: u32, args: &Stat) -> Result<Vec<Sample>, Failed> {
    let answer = super::put(key, &Ask::Sample { of: args.of.clone(), timeout_secs: args.timeout })?;
    super::told(&answer)?;
    Ok(answer.samples)
}

fn render(args: &Stat, before: &Sample, now: &Sample) -> String {
    let options = RateOptions {
        bandwidth: args.bw,
        rate: args.rate,
        read: args.read,
        write: args.write,
        avg: args.avg,
        min: args.min,
        max: args.max,
        mbs: args.mbs,
    };
    let mut nodes = Vec::new();
    for (nid, stat) in &now.nodes {
        let old =
            before.nodes.iter().find(|(old, _)| old == nid).and_then(|(_, stat)| stat.as_ref());
        nodes.extend(old.zip(stat.as_ref()).and_then(|(old, new)| Interval::between(old, new)));
    }
    let lost = now.nodes.len() - nodes.len();
    let failed = if lost > 0 { format!("Failed to stat on {lost} nodes\n") } else { String::new() };
    let rpc = if args.rpc { render_rpc(&now.name, &nodes) } else { String::new() };
    let net = if args.rpc && !(args.bw || args.rate) {
        String::new()
    } else {
        render_net(&now.name, &nodes, options)
    };
    format!("{net}{rpc}{failed}")
}
