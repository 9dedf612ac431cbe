//! `nacre bench ls`: what the attributes of all files of a directory cost, against the stripe count
//! of the files.
//!
//! ```text
//!  client that lists --[ delay ]-- MDS (MGT and an MDT)        a process each, in memory,
//!  client that writes --[ delay ]-- OSS, OSS, ..  8 OSTs each   on loopback addresses
//! ```
//! The ways to list are those that Lustre has had, and this client's own. Each measurement has a
//! client of its own, which knows nothing yet. The older ways ask the objects of every file, as
//! clients do whose MDT knows no sizes. They list as many files as fit into the time, and all
//! figures are per file.
//!
//! | state | files |
//! |---|---|
//! | clean | closed: the MDT knows their size |
//! | open | a share of them was made by another client, which has them open for writing |

mod files;
mod report;
mod servers;
mod ways;

use anyhow::{Result, ensure};
use client::Client;
use env::Env;
use serde::Serialize;
use types::Span;

use self::files::Dirs;
use self::servers::Servers;
use self::ways::Way;
use crate::steps::Steps;

/// Arguments of `nacre bench ls`.
#[derive(Clone, Debug, clap::Args)]
#[command(after_help = "\
Ways:
  2x-sync        one file after another: a getattr, then its objects one after another
  1x-parallel    one file after another: a getattr, then its objects at the same time
  statahead      getattrs of --windows files in flight; objects as in 1x-parallel
  statahead+agl  getattrs and objects of --windows files in flight
  nacre          pages with attributes; sizes that the MDT does not know are asked for together

Examples:
  nacre bench ls --stripes 1,32 --ways statahead+agl,nacre
  nacre bench ls --files 20000 --objects 50000 --delay-us 0 --json")]
pub struct LsArgs {
    /// Stripes of the files, one measurement each; 0: files without objects.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2, 4, 8, 16, 32, 64])]
    pub stripes: Vec<u32>,
    /// Ways to list.
    #[arg(long, value_delimiter = ',', default_values_t = ["2x-sync", "1x-parallel", "statahead", "statahead+agl", "nacre"].map(str::to_owned))]
    pub ways: Vec<String>,
    /// Windows of statahead, one measurement each (32: Lustre's in 2011).
    #[arg(long, value_delimiter = ',', default_values_t = [32])]
    pub windows: Vec<usize>,
    /// States of the files: clean, open.
    #[arg(long, value_delimiter = ',', default_values_t = ["clean", "open"].map(str::to_owned))]
    pub states: Vec<String>,
    /// Of 100 files, those that another client has open for writing in state `open`.
    #[arg(long, default_value_t = 50, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub open: u32,
    /// Files that `nacre` lists when all are clean. Each has a byte in its first object.
    #[arg(long, default_value_t = 400_000)]
    pub files: u32,
    /// Objects of the files that all ways list: each has a byte. The files are fewer with more
    /// stripes, 64 at least.
    #[arg(long, default_value_t = 100_000)]
    pub objects: u32,
    /// Seconds after which an older way stops.
    #[arg(long, default_value_t = 20.0)]
    pub seconds: f64,
    /// Microseconds from node to node, one way, which the network driver adds.
    #[arg(long, default_value_t = 100)]
    pub delay_us: u64,
    /// OSTs of a server process.
    #[arg(long, default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub osts_per_server: u32,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) state: String,
    pub(crate) way: String,
    pub(crate) stripes: u32,
    pub(crate) files: u64,
    pub(crate) seconds: f64,
    pub(crate) us_per_file: f64,
    pub(crate) rpcs_per_file: f64,
    /// The same by operation.
    pub(crate) requests: Vec<(String, f64)>,
}

/// Measures and prints.
pub fn run(args: &LsArgs) -> Result<()> {
    ensure!(
        !args.stripes.is_empty() && args.seconds > 0.0,
        "--stripes and --seconds are above zero"
    );
    ensure!(args.windows.iter().all(|window| *window > 0), "--windows are above zero");
    for state in &args.states {
        ensure!(matches!(&state[..], "clean" | "open"), "no state '{state}': clean or open");
    }
    let ways = Way::all(args)?;
    let servers = Servers::start(args)?;
    let setting = report::setting(args, &servers);
    if !args.json {
        println!("{setting}");
    }
    let all = args.stripes.len() * (1 + args.states.len() * ways.len());
    let steps = Steps::new("ls", all);
    let work = args.clone();
    let config = servers.node_config(args);
    let samples = env_os::run(config, move |env| async move {
        measure(&env, &work, &ways, &servers, &steps).await
    })?;
    report::print(args, &setting, &samples)
}

async fn measure(
    env: &Env,
    args: &LsArgs,
    ways: &[Way],
    servers: &Servers,
    steps: &Steps,
) -> Result<Vec<Sample>> {
    let [maker, writer] = [servers.mount(env).await?, servers.mount(env).await?];
    let mut samples = Vec::new();
    for stripes in &args.stripes {
        steps.begin(format!("files of {stripes} stripes"));
        let dirs = Dirs::make(env, args, *stripes, [&maker, &writer]).await?;
        for state in &args.states {
            for way in ways {
                steps.begin(format!("{state}, {way}, {stripes} stripes"));
                let lister = servers.mount(env).await?;
                samples.push(one(env, args, (&lister, &dirs), (way, state)).await?);
                lister.leave().await;
            }
        }
        dirs.close().await;
    }
    maker.leave().await;
    writer.leave().await;
    Ok(samples)
}

async fn one(
    env: &Env,
    args: &LsArgs,
    (lister, dirs): (&Client, &Dirs),
    (way, state): (&Way, &str),
) -> Result<Sample> {
    lister.statfs().await?; // connections to all OSTs are there
    let dir = match (state, way) {
        ("open", _) => dirs.open,
        (_, Way::Nacre) => dirs.many,
        _ => dirs.whole,
    };
    let before = lister.requests();
    let limit = Span((args.seconds * 1e9) as u64);
    let start = env.now();
    let files = way.list(env, lister, dir, limit).await?;
    let seconds = (env.now() - start).as_secs_f64();
    let each = |count: u64| count as f64 / files.max(1) as f64;
    let sent = lister.requests().into_iter().map(|(opcode, count)| {
        (opcode.name().to_owned(), count - before.get(&opcode).copied().unwrap_or(0))
    });
    let sent: Vec<(String, u64)> = sent.filter(|(_, count)| *count > 0).collect();
    Ok(Sample {
        state: state.to_owned(),
        way: way.to_string(),
        stripes: dirs.stripes,
        files,
        seconds,
        us_per_file: seconds * 1e6 / files.max(1) as f64,
        rpcs_per_file: each(sent.iter().map(|(_, count)| count).sum()),
        requests: sent.into_iter().map(|(name, count)| (name, each(count))).collect(),
    })
}
