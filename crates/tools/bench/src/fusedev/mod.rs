//! `nacre bench fusedev`: FUSE's own cost, over `/dev/fuse` and over io_uring, with a file system
//! that does nothing.
//!
//! Each transport is served by a process of its own, with the layer that serves a real mount: one
//! thread. Loads are processes too. Transports are measured in turns, so that a busy machine
//! affects both alike.

mod load;
#[path = "../../../../clients/fusedev/examples/null/memory.rs"]
mod memory;
mod server;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use fusedev::Channel;

use self::load::Call;
use self::server::Server;
use crate::stats::{self, Stats};
use crate::steps::Steps;

/// Arguments of `nacre bench fusedev`.
#[derive(Clone, Debug, clap::Args)]
#[command(
    after_help = "The kernel's parameter that offers io_uring is set while the mounts are made, and put back: root only.\n\n\
    Example:\n  nacre bench fusedev --calls fstat --processes 1,4 --pairs 7"
)]
pub struct FusedevArgs {
    /// Seconds of each measurement.
    #[arg(long, default_value_t = 0.8)]
    pub seconds: f64,
    /// Processes that call, one measurement each.
    #[arg(long, value_delimiter = ',', default_values_t = [1, 4])]
    pub processes: Vec<u32>,
    /// Calls to measure: fstat, read4k, read1m, write1m.
    #[arg(long, value_delimiter = ',', default_values_t = ["fstat".to_owned()])]
    pub calls: Vec<String>,
    /// Turns: how often each transport is measured.
    #[arg(long, default_value_t = 5)]
    pub pairs: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
    /// Internal: serve the null file system here.
    #[arg(long, hide = true, value_name = "DIR")]
    pub serve: Option<PathBuf>,
    /// Internal: by this transport.
    #[arg(long, hide = true)]
    pub uring: bool,
    /// Internal: call this file.
    #[arg(long, hide = true, value_name = "FILE")]
    pub load: Option<PathBuf>,
}

const SIDES: [Channel; 2] = [Channel::Classic, Channel::Uring];

fn name(side: Channel) -> &'static str {
    match side {
        Channel::Uring => "uring",
        _ => "classic",
    }
}

/// Rates of one side in calls per second, and its server's CPU per call in microseconds.
#[derive(Default)]
struct Samples {
    rates: Vec<f64>,
    cpu_us: Vec<f64>,
}

/// Measures, or is a process of a measurement.
pub fn run(args: &FusedevArgs) -> Result<()> {
    let transport = if args.uring { Channel::Uring } else { Channel::Classic };
    if let Some(dir) = &args.serve {
        return server::serve(dir, transport);
    }
    ensure!(args.seconds > 0.0 && args.pairs > 0, "--seconds and --pairs are above zero");
    let calls = args.calls.iter().map(|text| Call::parse(text)).collect::<Result<Vec<_>>>()?;
    if let Some(file) = &args.load {
        return load::call(file, calls[0], args.seconds);
    }
    let servers = SIDES
        .into_iter()
        .map(Server::start)
        .collect::<Result<Vec<_>>>()
        .context("a null file system")?;
    let runs = calls.len() * args.processes.len() * args.pairs as usize;
    let steps = Steps::new("fusedev", runs * SIDES.len());
    for call in calls {
        for processes in &args.processes {
            let samples = measure(args, &servers, call, *processes, &steps)?;
            steps.erase();
            print(args, call, *processes, &samples);
        }
    }
    Ok(())
}

fn measure(
    args: &FusedevArgs,
    servers: &[Server],
    call: Call,
    processes: u32,
    steps: &Steps,
) -> Result<[Samples; 2]> {
    let mut samples = [Samples::default(), Samples::default()];
    for _ in 0..args.pairs {
        for ((side, server), samples) in SIDES.into_iter().zip(servers).zip(&mut samples) {
            steps.begin(format!("{call}, {processes} process(es), {}", name(side)));
            let before = stats::cpu_of(server.pid())?;
            let count = load::run(&server.file(), call, processes, args.seconds)?;
            let cpu = stats::cpu_of(server.pid())? - before;
            ensure!(count > 0.0, "no call came to an end");
            samples.rates.push(count / args.seconds);
            samples.cpu_us.push(cpu * 1e6 / count);
        }
    }
    Ok(samples)
}

fn print(args: &FusedevArgs, call: Call, processes: u32, samples: &[Samples; 2]) {
    let ratio =
        Stats::of(&stats::ratios(&samples[1].rates, &samples[0].rates)).expect("at least one turn");
    if args.json {
        let side = |samples: &Samples| {
            let cpu = Stats::of(&samples.cpu_us).expect("at least one turn").median;
            serde_json::json!({ "rates": samples.rates, "server_cpu_us": cpu })
        };
        let [classic, uring] = samples;
        println!(
            "{}",
            serde_json::json!({
                "call": call.to_string(),
                "processes": processes,
                name(SIDES[0]): side(classic),
                name(SIDES[1]): side(uring),
                "ratio": ratio.median,
            })
        );
        return;
    }
    let each = SIDES.into_iter().zip(samples).map(|(side, samples)| {
        let rate = Stats::of(&samples.rates).expect("at least one turn");
        let cpu = Stats::of(&samples.cpu_us).expect("at least one turn");
        (name(side), rate, cpu)
    });
    println!("{call}, {processes} process(es)");
    for (name, rate, cpu) in each {
        println!(
            "   {name:<8} {:>9.0}/s ({:.0} .. {:.0}), server CPU {:.2} us a call",
            rate.median, rate.min, rate.max, cpu.median
        );
    }
    println!(
        "   uring against classic, median of {} turns: {:.2} ({:.2} .. {:.2})",
        args.pairs, ratio.median, ratio.min, ratio.max
    );
}
