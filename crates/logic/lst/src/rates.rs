//! The output of `lst stat`: rates over an interval; least, most and mean over the nodes.

use std::fmt::Write as _;

use types::Span;
use wire::lst::{Net, Stat};

use crate::{Histogram, Percentiles};

/// What of the rates is wanted; what is not narrowed down is all.
#[derive(Clone, Copy, Debug, Default)]
pub struct RateOptions {
    pub bandwidth: bool,
    /// Messages per second.
    pub rate: bool,
    /// Received.
    pub read: bool,
    /// Sent.
    pub write: bool,
    /// Mean over nodes.
    pub avg: bool,
    /// Slowest node.
    pub min: bool,
    /// Fastest node.
    pub max: bool,
    /// Decimal megabytes.
    pub mbs: bool,
}

/// What a node counted between two answers.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Interval {
    secs: f64,
    net: Net,
    done: [(u64, u64, Histogram); 3],
}

impl Interval {
    /// Nothing where the node was restarted or its session is another one: its counters went back.
    #[must_use]
    pub fn between(before: &Stat, now: &Stat) -> Option<Interval> {
        let ns = now.now_ns.checked_sub(before.now_ns).filter(|ns| *ns > 0)?;
        let net = Net {
            send_count: now.net.send_count.checked_sub(before.net.send_count)?,
            recv_count: now.net.recv_count.checked_sub(before.net.recv_count)?,
            send_bytes: now.net.send_bytes.checked_sub(before.net.send_bytes)?,
            recv_bytes: now.net.recv_bytes.checked_sub(before.net.recv_bytes)?,
        };
        let mut done: [(u64, u64, Histogram); 3] = Default::default();
        for ((out, before), now) in done.iter_mut().zip(&before.done).zip(&now.done) {
            let (mut old, mut new) = (Histogram::default(), Histogram::default());
            old.add_pairs(&before.latency);
            new.add_pairs(&now.latency);
            *out = (
                now.count.checked_sub(before.count)?,
                now.bytes.checked_sub(before.bytes)?,
                new.since(&old),
            );
        }
        Some(Interval { secs: Span(ns).as_secs_f64(), net, done })
    }
}

/// Mean, least and most.
#[derive(Clone, Copy)]
struct Spread {
    avg: f64,
    min: f64,
    max: f64,
}

impl Spread {
    fn of(values: impl Iterator<Item = f64>) -> Spread {
        let (mut sum, mut count, mut min, mut max) = (0.0, 0.0, f64::INFINITY, 0.0_f64);
        for value in values {
            (sum, count, min, max) = (sum + value, count + 1.0, min.min(value), max.max(value));
        }
        if count == 0.0 {
            Spread { avg: 0.0, min: 0.0, max: 0.0 }
        } else {
            Spread { avg: sum / count, min, max }
        }
    }
}

/// The two blocks of LNet's messages and bytes for group `name`.
#[must_use]
pub fn render_net(name: &str, nodes: &[Interval], options: RateOptions) -> String {
    let any = |wanted: bool, other: bool| wanted || !other;
    let mut out = String::new();
    let per_sec = |of: fn(&Net) -> u64, unit: f64| {
        Spread::of(nodes.iter().map(move |node| of(&node.net) as f64 / node.secs / unit))
    };
    if any(options.rate, options.bandwidth) {
        let _ = writeln!(out, "[LNet Rates of {name}]");
        let lines = [
            ('R', options.read, options.write, per_sec(|net| net.recv_count, 1.0)),
            ('W', options.write, options.read, per_sec(|net| net.send_count, 1.0)),
        ];
        for (letter, wanted, other, spread) in lines {
            if any(wanted, other) {
                write_line(&mut out, letter, spread, options, "RPC/s", 0);
            }
        }
    }
    if any(options.bandwidth, options.rate) {
        let (unit, bytes) = if options.mbs { ("MB/s", 1e6) } else { ("MiB/s", f64::from(1 << 20)) };
        let _ = writeln!(out, "[LNet Bandwidth of {name}]");
        let lines = [
            ('R', options.read, options.write, per_sec(|net| net.recv_bytes, bytes)),
            ('W', options.write, options.read, per_sec(|net| net.send_bytes, bytes)),
        ];
        for (letter, wanted, other, spread) in lines {
            if any(wanted, other) {
                write_line(&mut out, letter, spread, options, unit, 2);
            }
        }
    }
    out
}

fn write_line(
    out: &mut String,
    letter: char,
    spread: Spread,
    options: RateOptions,
    unit: &str,
    digits: usize,
) {
    let all = !(options.avg || options.min || options.max);
    let columns = [
        ("Avg", options.avg, spread.avg),
        ("Min", options.min, spread.min),
        ("Max", options.max, spread.max),
    ];
    let shown = columns.into_iter().filter(|(_, wanted, _)| all || *wanted);
    let words: Vec<_> =
        shown.map(|(title, _, value)| format!("{title}: {value:<8.digits$} {unit}")).collect();
    let _ = writeln!(out, "[{letter}] {}", words.join(" "));
}

/// Finished requests of the tests, and percentiles of how long they took, over all nodes of the
/// group.
#[must_use]
pub fn render_rpc(name: &str, nodes: &[Interval]) -> String {
    let mut out = format!("[Test RPCs of {name}]\n");
    for (index, title) in ["ping", "brw read", "brw write"].into_iter().enumerate() {
        let mut latency = Histogram::default();
        nodes.iter().for_each(|node| latency.merge(&node.done[index].2));
        if latency.count() == 0 {
            continue;
        }
        let rate: f64 = nodes.iter().map(|node| node.done[index].0 as f64 / node.secs).sum();
        let bytes: f64 = nodes.iter().map(|node| node.done[index].1 as f64 / node.secs).sum();
        let Percentiles { p50_us, p90_us, p99_us, p999_us, max_us } = latency.percentiles();
        let _ = writeln!(
            out,
            "[{title}] {rate:.0} RPC/s {:.2} MiB/s latency us: p50 {p50_us} p90 {p90_us} p99 {p99_us} p99.9 {p999_us} max {max_us}",
            bytes / f64::from(1 << 20)
        );
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;
    use wire::lst::Done;

    fn stat(secs: u64, count: u64, bytes: u64) -> Stat {
        let net = Net {
            send_count: count + 2 * secs,
            recv_count: count,
            send_bytes: bytes,
            recv_bytes: bytes / 1_024,
        };
        let done = Done { count, bytes, latency: vec![(5, count)] };
        Stat {
            now_ns: secs * 1_000_000_000,
            net,
            done: [Done::default(), done, Done::default()],
            ..Stat::default()
        }
    }

    fn nodes() -> Vec<Interval> {
        let one = |rate: u64| {
            Interval::between(&stat(10, 7, 0), &stat(12, 7 + 2 * rate, (2 * rate) << 20))
                .expect("rising")
        };
        vec![one(24_980), one(25_260)]
    }

    #[test]
    fn the_blocks_look_as_in_lustre() {
        let expected = "\
[LNet Rates of servers]
[R] Avg: 25120    RPC/s Min: 24980    RPC/s Max: 25260    RPC/s
[W] Avg: 25122    RPC/s Min: 24982    RPC/s Max: 25262    RPC/s
[LNet Bandwidth of servers]
[R] Avg: 24.53    MiB/s Min: 24.39    MiB/s Max: 24.67    MiB/s
[W] Avg: 25120.00 MiB/s Min: 24980.00 MiB/s Max: 25260.00 MiB/s
";
        assert_eq!(render_net("servers", &nodes(), RateOptions::default()), expected);
    }

    #[test]
    fn options_narrow_down() {
        let options = RateOptions {
            bandwidth: true,
            write: true,
            max: true,
            mbs: true,
            ..RateOptions::default()
        };
        assert_eq!(
            render_net("s", &nodes(), options),
            "[LNet Bandwidth of s]\n[W] Max: 26487.03 MB/s\n"
        );
        let options =
            RateOptions { rate: true, read: true, min: true, avg: true, ..RateOptions::default() };
        assert_eq!(
            render_net("s", &nodes(), options),
            "[LNet Rates of s]\n[R] Avg: 25120    RPC/s Min: 24980    RPC/s\n"
        );
        assert!(
            render_net("s", &[], RateOptions::default())
                .contains("[R] Avg: 0        RPC/s Min: 0        RPC/s")
        );
    }

    #[test]
    fn finished_requests_come_with_percentiles() {
        let expected = "[Test RPCs of s]\n[brw read] 50240 RPC/s 50240.00 MiB/s latency us: p50 5 p90 5 p99 5 p99.9 5 max 5\n";
        assert_eq!(render_rpc("s", &nodes()), expected);
    }

    #[test]
    fn counters_that_went_back_are_no_interval() {
        assert_eq!(Interval::between(&stat(10, 7, 0), &stat(12, 6, 0)), None);
        assert_eq!(Interval::between(&stat(10, 7, 0), &stat(10, 8, 0)), None);
    }
}
