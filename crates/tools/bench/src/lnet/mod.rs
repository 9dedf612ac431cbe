//! `nacre bench lnet`: the cost of an RPC over loopback TCP, compared with the sockets themselves.
//!
//! Three sides answer the same number of bytes with the same number in flight, each in a process of
//! its own. They are a bare epoll loop, links without RPCs, and the whole path through endpoint and
//! service. They are measured in turns (bare, link, rpc, bare, ..), so that a busy machine affects
//! all alike. The output has medians, ranges, and the median of the ratios within one turn. CPU
//! time is that of client and server together, from the kernel's own accounts.

mod bare;
#[cfg(test)]
mod cpts;
mod link;
mod report;
mod rpc;
mod server;

use std::time::Duration;

use anyhow::Context;
use wire::{CrcMode, FRAME_HEADER_BYTES, REPLY_HEADER_BYTES, REQUEST_HEADER_BYTES};

use crate::steps::Steps;

/// Arguments of `nacre bench lnet`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  nacre bench lnet\n  nacre bench lnet --tests ping --inflight 64 --pairs 9 --json"
)]
pub struct LnetArgs {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 1.0)]
    pub seconds: f64,
    /// Pings in flight, one measurement each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 8, 64])]
    pub inflight: Vec<u32>,
    /// Transfers of 1 MiB in flight.
    #[arg(long, default_value_t = 4)]
    pub bulk_inflight: u32,
    /// Transfers of 4 KiB in flight.
    #[arg(long, default_value_t = 64)]
    pub small_inflight: u32,
    /// Turns: how often each side is measured.
    #[arg(long, default_value_t = 5)]
    pub pairs: u32,
    /// Tests: ping, read4k, write4k, read, write. Transfers of every size have a bulk phase.
    #[arg(long, value_delimiter = ',', default_values_t = ["ping", "read4k", "write4k", "read", "write"].map(str::to_owned))]
    pub tests: Vec<String>,
    /// Sides to measure.
    #[arg(long, value_delimiter = ',', default_values_t = ["bare".to_owned(), "link".to_owned(), "rpc".to_owned()])]
    pub sides: Vec<String>,
    /// CPUs of client and server. The default pins them apart; `0,0` puts both on one; `free` lets
    /// the scheduler move them, and then a wakeup costs 3 or 30 microseconds as it pleases.
    #[arg(long, default_value = "0,1")]
    pub cpus: String,
    /// Threads that do the socket work on each side; 0: the executor does it itself. With --cpus
    /// they may run anywhere the side may, so `free` is the setting to compare with.
    #[arg(long, default_value_t = 0)]
    pub lnd_threads: u32,
    /// Messages under way to the peer (Lustre: peer_credits); 0: the default.
    #[arg(long, default_value_t = 0)]
    pub peer_credits: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Internal: be the server of this side.
    #[arg(long, hide = true)]
    pub serve: Option<String>,
    /// Internal: the server leaves bulk without checksum.
    #[arg(long, hide = true)]
    pub no_bulk_crc: bool,
    /// Internal: the server's CPU.
    #[arg(long, hide = true)]
    pub cpu: Option<u32>,
}

/// Bytes of a large transfer.
pub(crate) const BULK_BYTES: usize = 1 << 20;
/// Bytes of a small one.
pub(crate) const SMALL_BYTES: usize = 4 << 10;
/// Body of a ping, both ways.
pub(crate) const BODY_BYTES: usize = 24;
/// A ping on the wire.
pub(crate) const REQUEST_BYTES: usize = FRAME_HEADER_BYTES + REQUEST_HEADER_BYTES + BODY_BYTES;
/// Its answer on the wire.
pub(crate) const REPLY_BYTES: usize = FRAME_HEADER_BYTES + REPLY_HEADER_BYTES + BODY_BYTES;

/// How links are made.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Tuning {
    pub(crate) lnd_threads: u32,
    pub(crate) peer_credits: u32,
}

impl LnetArgs {
    fn tuning(&self) -> Tuning {
        Tuning { lnd_threads: self.lnd_threads, peer_credits: self.peer_credits }
    }
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Case {
    pub(crate) test: Test,
    pub(crate) inflight: u32,
    /// Of a transfer.
    pub(crate) bytes: usize,
    pub(crate) crc: CrcMode,
    pub(crate) tuning: Tuning,
    pub(crate) span: Duration,
}

/// What is exchanged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Test {
    Ping,
    Read,
    Write,
}

/// Who answers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Side {
    Bare,
    Link,
    Rpc,
}

impl Side {
    fn parse(text: &str) -> anyhow::Result<Side> {
        [Side::Bare, Side::Link, Side::Rpc]
            .into_iter()
            .find(|side| side.name() == text)
            .with_context(|| format!("no side '{text}': bare, link or rpc"))
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Side::Bare => "bare",
            Side::Link => "link",
            Side::Rpc => "rpc",
        }
    }

    fn serve(self, crc: CrcMode, tuning: Tuning) -> anyhow::Result<()> {
        match self {
            Side::Bare => bare::serve(),
            Side::Link => link::serve(crc, tuning),
            Side::Rpc => rpc::serve(crc, tuning),
        }
    }

    fn measure(self, case: Case, port: u16) -> anyhow::Result<f64> {
        match self {
            Side::Bare => bare::measure(case, port),
            Side::Link => link::measure(case, port),
            Side::Rpc => rpc::measure(case, port),
        }
    }
}

/// One side's result of one turn.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Finished exchanges per second.
    pub(crate) rate: f64,
    /// CPU of client and server per exchange, in microseconds.
    pub(crate) cpu_us: f64,
}

/// Measures, or serves a measuring process.
pub fn run(args: LnetArgs) -> anyhow::Result<()> {
    if let Some(side) = &args.serve {
        server::pin(args.cpu)?;
        let crc = if args.no_bulk_crc { CrcMode::NoBulk } else { CrcMode::All };
        return Side::parse(side)?.serve(crc, args.tuning());
    }
    anyhow::ensure!(args.seconds > 0.0 && args.pairs > 0, "--seconds and --pairs are above zero");
    let (client_cpu, server_cpu) = server::placement(&args.cpus)?;
    let sides =
        args.sides.iter().map(|side| Side::parse(side)).collect::<anyhow::Result<Vec<_>>>()?;
    let cases = cases(&args)?;
    // before the CPU is chosen, which the thread that draws would share
    let steps = Steps::new("lnet", cases.len() * sides.len() * args.pairs as usize);
    server::pin(client_cpu)?;
    let mut rows = Vec::new();
    for case in cases {
        rows.push(measure_case(args.pairs, server_cpu, &sides, case, &steps)?);
        if !args.json {
            steps.erase();
            report::print(rows.last().expect("pushed above"));
        }
    }
    drop(steps);
    if args.json {
        println!("{}", report::json(&rows)?);
    }
    Ok(())
}

fn cases(args: &LnetArgs) -> anyhow::Result<Vec<Case>> {
    let (span, tuning) = (Duration::from_secs_f64(args.seconds), args.tuning());
    let mut cases = Vec::new();
    for test in &args.tests {
        let of = |test, inflight, bytes| {
            [CrcMode::All, CrcMode::NoBulk].map(|crc| Case {
                test,
                inflight,
                bytes,
                crc,
                tuning,
                span,
            })
        };
        let bulk = |test| of(test, args.bulk_inflight, BULK_BYTES);
        let small = |test| of(test, args.small_inflight, SMALL_BYTES);
        match test.as_str() {
            "ping" => {
                let case = |inflight: &u32| Case {
                    test: Test::Ping,
                    inflight: *inflight,
                    bytes: 0,
                    crc: CrcMode::All,
                    tuning,
                    span,
                };
                cases.extend(args.inflight.iter().map(case));
            }
            "read4k" => cases.extend(small(Test::Read)),
            "write4k" => cases.extend(small(Test::Write)),
            "read" => cases.extend(bulk(Test::Read)),
            "write" => cases.extend(bulk(Test::Write)),
            other => anyhow::bail!("no test '{other}': ping, read4k, write4k, read or write"),
        }
    }
    Ok(cases)
}

/// All turns of one case.
fn measure_case(
    pairs: u32,
    cpu: Option<u32>,
    sides: &[Side],
    case: Case,
    steps: &Steps,
) -> anyhow::Result<report::Row> {
    let servers = sides
        .iter()
        .map(|side| server::Server::start(side.name(), case, cpu))
        .collect::<anyhow::Result<Vec<_>>>()?;
    let mut samples = vec![Vec::new(); sides.len()];
    for _ in 0..pairs {
        for (index, side) in sides.iter().enumerate() {
            steps.begin(format!("{}, {}", case.title(), side.name()));
            let server = &servers[index];
            let before = server.cpu_ns()? + server::own_cpu_ns()?;
            let started = std::time::Instant::now();
            let rate =
                side.measure(case, server.port).with_context(|| format!("side {}", side.name()))?;
            let cpu = server.cpu_ns()? + server::own_cpu_ns()? - before;
            let done = rate * started.elapsed().as_secs_f64();
            samples[index].push(Sample { rate, cpu_us: cpu as f64 / 1e3 / done.max(1.0) });
        }
    }
    Ok(report::Row { case, sides: sides.iter().copied().zip(samples).collect() })
}
