//! `nacre bench ls`: the cost of the attributes of all files of a directory, against the stripe
//! count of the files.
//!
//! ```text
//!  client that lists --[ delay ]-- MDS (MGT and an MDT)        a process each, in memory,
//!  client that writes --[ delay ]-- OSS, OSS, ..  8 OSTs each   on loopback addresses
//! ```
//! The ways to list are those that Lustre has had, and this client's own. Each measurement has a
//! client of its own, which knows nothing yet. The older ways ask the objects of every file, as
//! clients do whose MDT knows no sizes. They list as many files as fit into the time, and all
//! figures are per file. Each stripe count has servers of its own: files of the counts before would
//! fill the memory, and their removal would go on in the background.
//!
//! The native library lists, or a program does through a mount. There each way is a set of options
//! and parameters of the mount (`ways.rs`), and each measurement has a new mount.
//!
//! | state | files |
//! |---|---|
//! | clean | closed: the MDT knows their size |
//! | open | a share of them was made by another client, which has them open for writing |

mod files;
mod mount;
mod report;
mod servers;
mod svg;
mod through;
mod ways;

use std::path::PathBuf;

use anyhow::{Context, Result, ensure};
use client::Client;
use env::Env;
use serde::Serialize;
use types::Span;

use self::files::{Dir, Dirs};
use self::mount::{Listed, Mount, Place};
use self::servers::Servers;
use self::through::Through;
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

Lists through:
  library  the native library, in this process
  ls       `ls -lU DIR` on a mount
  find     `find DIR -size +1k` on a mount
  du       `du -s DIR` on a mount

On a mount each way is a set of options and parameters. The kernel looks a name up and then asks
for its attributes, so each older way asks the MDT twice for a file. Statahead needs names with a
rising number. ls looks names up in the order of the directory, which is another one; find and du
sort the names of directories with more than 10,000 files.

Everything takes about two hours. --stripes, --through and --seconds make it shorter.

Examples:
  nacre bench ls --stripes 1,32 --ways statahead+agl,nacre --through library
  nacre bench ls --stripes 1,8,64 --ways 1x-parallel,nacre --through ls,du --seconds 5 --svg ls.svg
  nacre bench ls --windows 8,32,128 --ways statahead,statahead+agl --states clean
  nacre bench ls --files 20000 --objects 50000 --delay-us 0 --json")]
pub struct LsArgs {
    /// Stripes of the files, one measurement each, 2,000 at most; 0: files without objects.
    #[arg(long, value_delimiter = ',', default_values_t = [0, 1, 2, 4, 8, 16, 32, 64, 160])]
    pub stripes: Vec<u32>,
    /// Ways to list.
    #[arg(long, value_delimiter = ',', default_values_t = ["2x-sync", "1x-parallel", "statahead", "statahead+agl", "nacre"].map(str::to_owned))]
    pub ways: Vec<String>,
    /// Readers of the directory: library, ls, find, du.
    #[arg(long, value_delimiter = ',', default_values_t = ["library", "ls", "find", "du"].map(str::to_owned))]
    pub through: Vec<String>,
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
    /// Draw time against stripes into this file, an SVG.
    #[arg(long, value_name = "FILE")]
    pub svg: Option<PathBuf>,
    /// Print JSON.
    #[arg(long)]
    pub json: bool,
}

/// One measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Sample {
    pub(crate) state: String,
    pub(crate) through: String,
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
    let most = u32::from(layout::STRIPE_COUNT_MAX);
    ensure!(args.stripes.iter().all(|stripes| *stripes <= most), "--stripes are {most} at most");
    let has_lines = args.stripes.iter().any(|stripes| *stripes > 0);
    ensure!(args.svg.is_none() || has_lines, "--svg draws files of one stripe or more");
    ensure!(args.windows.iter().all(|window| *window > 0), "--windows are above zero");
    for state in &args.states {
        ensure!(matches!(&state[..], "clean" | "open"), "no state '{state}': clean or open");
    }
    let ways = Way::all(args)?;
    let throughs = possible(Through::all(args)?)?;
    let setting = report::setting(args);
    if !args.json {
        println!("{setting}");
    }
    let all = args.stripes.len() * (1 + args.states.len() * ways.len() * throughs.len());
    let steps = Steps::new("ls", all);
    let bench = Bench { args: args.clone(), place: Place::make()?, steps };
    let config = servers::node_config(args);
    let samples =
        env_os::run(config, move |env| async move { bench.measure(&env, &ways, &throughs).await })?;
    if let Some(file) = &args.svg {
        let svg = svg::draw(&samples).context("there is nothing to draw")?;
        std::fs::write(file, svg).with_context(|| file.display().to_string())?;
    }
    report::print(args, &setting, &samples)
}

/// Those that can list here. The others are named.
fn possible(wanted: Vec<Through>) -> Result<Vec<Through>> {
    let mut possible = Vec::new();
    for through in wanted {
        match through.obstacle() {
            Some(why) => ctl::say!("nacre bench ls: {through} is left out: {why}"),
            None => possible.push(through),
        }
    }
    ensure!(!possible.is_empty(), "nothing is left that lists: --through library needs no mount");
    Ok(possible)
}

/// What all measurements share.
struct Bench {
    args: LsArgs,
    place: Place,
    steps: Steps,
}

impl Bench {
    async fn measure(&self, env: &Env, ways: &[Way], throughs: &[Through]) -> Result<Vec<Sample>> {
        let mut samples = Vec::new();
        for stripes in &self.args.stripes {
            self.steps.begin(format!("files of {stripes} stripes"));
            let servers = Servers::start(&self.args)?;
            let [maker, writer] = [servers.mount(env).await?, servers.mount(env).await?];
            let dirs = Dirs::make(env, &self.args, *stripes, [&maker, &writer]).await?;
            for state in &self.args.states {
                for through in throughs {
                    for way in ways {
                        self.steps.begin(format!("{state}, {through}, {way}, {stripes} stripes"));
                        let case = (&state[..], *through, *way);
                        samples.push(self.one(env, &servers, &dirs, case).await?);
                    }
                }
            }
            dirs.close().await;
            maker.leave().await;
            writer.leave().await;
        }
        Ok(samples)
    }

    async fn one(
        &self,
        env: &Env,
        servers: &Servers,
        dirs: &Dirs,
        (state, through, way): (&str, Through, Way),
    ) -> Result<Sample> {
        let dir = dirs.of(state, way);
        let limit = Span((self.args.seconds * 1e9) as u64);
        let listed = if through == Through::Library {
            let lister = servers.mount(env).await?;
            let listed = by_library(env, &lister, dir, (way, limit)).await?;
            lister.leave().await;
            listed
        } else {
            let places = (servers, &self.place);
            let mount = Mount::start(env, &self.args, places, way).await?;
            let limit = (way != Way::Nacre).then_some(limit);
            let listed = mount.list(env, dir, through, limit).await?;
            mount.end(env).await?;
            listed
        };
        Ok(sample((state, through, way), dirs.stripes, listed))
    }
}

async fn by_library(
    env: &Env,
    lister: &Client,
    dir: &Dir,
    (way, limit): (Way, Span),
) -> Result<Listed> {
    lister.statfs().await?; // connections to all OSTs are there
    let requests = || -> Vec<(String, u64)> {
        let all = lister.requests().into_iter();
        all.map(|(opcode, count)| (opcode.name().to_owned(), count)).collect()
    };
    let (before, start) = (requests(), env.now());
    let files = way.list(env, lister, dir.fid, limit).await?;
    let seconds = (env.now() - start).as_secs_f64();
    Ok(Listed { files, seconds, sent: through::sent(&before, &requests()) })
}

/// Figures of a listing, per file.
fn sample(
    (state, through, way): (&str, Through, Way),
    stripes: u32,
    Listed { files, seconds, sent }: Listed,
) -> Sample {
    let each = |count: u64| count as f64 / files.max(1) as f64;
    Sample {
        state: state.to_owned(),
        through: through.to_string(),
        way: way.to_string(),
        stripes,
        files,
        seconds,
        us_per_file: seconds * 1e6 / files.max(1) as f64,
        rpcs_per_file: each(sent.iter().map(|(_, count)| count).sum()),
        requests: sent.into_iter().map(|(name, count)| (name, each(count))).collect(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_per_file() {
        let sent = vec![("mds_getattr".to_owned(), 20), ("ost_glimpse".to_owned(), 40)];
        let listed = Listed { files: 10, seconds: 0.5, sent };
        let way = Way::Statahead { window: 8, agl: true };
        let sample = sample(("open", Through::Du, way), 4, listed);
        assert_eq!((sample.through.as_str(), sample.way.as_str()), ("du -s", "statahead+agl 8"));
        assert_eq!((sample.us_per_file, sample.rpcs_per_file), (50_000.0, 6.0));
        assert_eq!(sample.requests[1], ("ost_glimpse".to_owned(), 4.0));
    }
}
