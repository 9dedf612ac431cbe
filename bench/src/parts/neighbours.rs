//! Service that clients get beside bad neighbours: a flood of throttled requests, and a siege by
//! unknown peers. The bad neighbours are the example `siege` of `crates/tools/bench`.

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use mounted::load::Load;
use mounted::{Scratch, Up, daemon_of};
use serde_json::Value;

use super::figures::example;
use crate::bed::Bed;
use crate::machine::{process_cpu, status_kib};
use crate::row::{Bound, Row};
use crate::scale::Scale;

/// Requests that one client has waiting in its class.
const FLOOD: &str = "18000";
/// A siege of a whole run, and what others do without it before: a rate, which needs less time.
const SIEGE: Duration = Duration::from_secs(60);
const ALONE: Duration = Duration::from_secs(10);
/// Before others are measured beside a bad neighbour.
const SETTLE: Duration = Duration::from_secs(2);
/// What they do at once, and how much.
const THREADS: u64 = 4;
const BLOCK: usize = 64 << 10;
/// Memory of a server that is asked by 16 clients which do not take the answers, 40 MiB each
/// (docs/security.md), and of one that has only strangers.
const SLOW_MIB: f64 = 704.0;
const REST_MIB: f64 = 64.0;
/// Turns of a flood and of a siege, which take long.
const FLOODS: u32 = 5;
const SIEGES: u32 = 3;
const SERVERS: [&str; 3] = ["OST0000", "MDT0000", "MGS"];
/// The process that works for the others, whose CPU is measured beside that of the servers.
const CLIENT: &str = "client";

/// One OST, and clients that work through a mount of their own.
struct Field {
    up: Up,
    mount: PathBuf,
    siege: PathBuf,
}

/// What the others saw in one window.
#[derive(Default)]
struct Window {
    rate: f64,
    slowest_ms: f64,
    df_ms: f64,
    memory_mib: Vec<f64>,
    /// Percent of a core that each server uses, and then the client.
    cpu: Vec<f64>,
}

impl Field {
    fn make(bed: &Bed, name: &str) -> Result<Field> {
        let siege = example("bench", "siege")?;
        let args = ["--osts", "1"];
        let mut up = Up::with(Scratch::new(name), Some(bed.fresh(name)), &args);
        let mount = up.second_mount(101);
        Ok(Field { up, mount, siege })
    }

    /// The address of a target, as the mount has it.
    fn at(&self, target: &str) -> Result<String> {
        let kind = if target.starts_with("MDT") { "mdc" } else { "osc" };
        let import = self.up.param(&format!("{kind}.*-{target}-*.import"));
        let line = import.lines().find_map(|line| line.split_once("current_connection:"));
        Ok(line.context("an import names its server")?.1.trim().to_owned())
    }

    fn bad(&self, what: &str, seconds: Duration, more: &[&str]) -> Result<Neighbour> {
        let child = Command::new(&self.siege)
            .args([what, &seconds.as_secs().to_string()])
            .args(more)
            .stdout(Stdio::piped())
            .spawn();
        Ok(Neighbour(child.context("the bad neighbour starts")?))
    }

    /// Others at work for so long.
    fn window(&self, span: Duration) -> Result<Window> {
        let load = Load::start(&self.mount, THREADS, BLOCK);
        load.see_progress();
        let _before = load.slowest();
        let (before, start) = (load.done(), Instant::now());
        let cpu_before = self.cpu()?;
        let over = AtomicBool::new(false);
        let mut seen = Window::default();
        std::thread::scope(|scope| {
            let df = scope.spawn(|| slowest_df(&self.mount, &over));
            seen.memory_mib = self.watched(start + span);
            over.store(true, Ordering::Relaxed);
            seen.df_ms = df.join().expect("no panic")?.as_secs_f64() * 1e3;
            anyhow::Ok(())
        })?;
        let seconds = start.elapsed().as_secs_f64();
        seen.rate = (load.done() - before) as f64 / seconds;
        let used = self.cpu()?.into_iter().zip(cpu_before).map(|(after, before)| after - before);
        seen.cpu = used.map(|used| used / seconds * 100.0).collect();
        seen.slowest_ms = load.slowest().as_secs_f64() * 1e3;
        load.finish();
        Ok(seen)
    }

    /// CPU seconds of each server, and of the client.
    fn cpu(&self) -> Result<Vec<f64>> {
        let servers = SERVERS.iter().map(|server| self.up.server(server));
        servers.chain([daemon_of(&self.mount)]).map(process_cpu).collect()
    }

    /// The most anonymous memory of each server until then.
    fn watched(&self, until: Instant) -> Vec<f64> {
        let mut most = vec![0.0_f64; SERVERS.len()];
        while Instant::now() < until {
            for (most, server) in most.iter_mut().zip(SERVERS) {
                let kib = status_kib(self.up.server(server), "RssAnon").unwrap_or(0);
                *most = most.max(kib as f64 / 1024.0);
            }
            std::thread::sleep(Duration::from_millis(500));
        }
        most
    }
}

/// A bad neighbour at work. It ends when its time is over, or with this.
struct Neighbour(Child);

impl Neighbour {
    fn end(mut self) -> Result<Value> {
        let out = self.0.stdout.take().context("piped")?;
        let text = std::io::read_to_string(out)?;
        let status = self.0.wait()?;
        ensure!(status.success(), "the bad neighbour ended with {status}");
        serde_json::from_str(&text).with_context(|| text.clone())
    }
}

impl Drop for Neighbour {
    fn drop(&mut self) {
        let _ended_before = self.0.kill();
        let _ended = self.0.wait();
    }
}

/// The slowest `statfs` of a mount, asked ten times a second.
fn slowest_df(mount: &Path, over: &AtomicBool) -> Result<Duration> {
    let mut most = Duration::ZERO;
    while !over.load(Ordering::Relaxed) {
        let start = Instant::now();
        mounted::posix::statvfs(mount)?;
        most = most.max(start.elapsed());
        std::thread::sleep(Duration::from_millis(100));
    }
    Ok(most)
}

/// One client has 18,000 requests in a class that lets 100 a second through.
pub(crate) fn flood(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let field = Field::make(bed, "flood")?;
    field.up.set("ost.OSS.ost_io.nrs_policies", "tbf nid");
    field.up.set("ost.OSS.ost_io.nrs_tbf_rule", "start flood nid={127.0.0.66@tcp} rate=100");
    let at = field.at("OST0000")?;
    let span = Duration::from_secs(scale.seconds.into());
    let (mut alone, mut beside, mut connects) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.pairs.min(FLOODS) {
        alone.push(field.window(span)?);
        let flood = field.bad("flood", 2 * SETTLE + span, &[&at, FLOOD])?;
        std::thread::sleep(SETTLE);
        let probe = field.bad("probe", span, &[&at])?;
        beside.push(field.window(span)?);
        let (flood, probe) = (flood.end()?, probe.end()?);
        eprintln!("flood: {flood}; connects: {probe}");
        ensure!(probe["failed"] == 0, "connects failed: {probe}");
        connects.push(probe["slowest_ms"].as_f64().context("it connected")?);
    }
    let most = Some(Bound::AtMost(50.0));
    let df = beside.iter().map(|window| window.df_ms).collect();
    Ok(vec![
        rate("flood", &alone, &beside, 0.95),
        value("flood/df", "slowest statfs of others beside it", "ms", df, most),
        value("flood/connect", "slowest connect beside it", "ms", connects, most),
    ])
}

/// Half-open connections, slow readers and garbage on every port.
pub(crate) fn siege(bed: &Bed, scale: Scale) -> Result<Vec<Row>> {
    let field = Field::make(bed, "siege")?;
    let mgs = field.up.address();
    let mgs = mgs.split(":/").next().context("an address")?.to_owned();
    let all = [field.at("OST0000")?, field.at("MDT0000")?, mgs];
    let all: Vec<&str> = all.iter().map(String::as_str).collect();
    let short = Duration::from_secs(scale.seconds.into());
    let span = if scale.is_quick() { short } else { SIEGE };
    let (mut alone, mut beside, mut attackers) = (Vec::new(), Vec::new(), Vec::new());
    for _ in 0..scale.pairs.min(SIEGES) {
        alone.push(field.window(span.min(ALONE))?);
        let attack = field.bad("attack", 2 * SETTLE + span, &all)?;
        std::thread::sleep(SETTLE);
        beside.push(field.window(span)?);
        let attack = attack.end()?;
        eprintln!("siege: {attack}");
        attackers.push(attack["cpu_share"].as_f64().context("it knows its share")? * 100.0);
    }
    let mut rows = vec![rate("siege", &alone, &beside, 0.9)];
    for (index, server) in SERVERS.iter().enumerate() {
        let most = beside.iter().map(|window| window.memory_mib[index]).collect();
        let title = format!("anonymous memory of {server} under siege, most");
        let bound = Some(Bound::AtMost(if *server == "OST0000" { SLOW_MIB } else { REST_MIB }));
        rows.push(value(&format!("siege/memory-{server}"), &title, "MiB", most, bound));
    }
    let slowest = beside.iter().map(|window| window.slowest_ms).collect();
    rows.push(value("siege/slowest", "slowest call of others under siege", "ms", slowest, None));
    rows.extend(work(&alone, &beside));
    let title = "CPU of the attackers";
    rows.push(value("siege/cpu-attackers", title, "% of a core", attackers, None));
    Ok(rows)
}

/// Rows without bounds that say which process works for a siege.
fn work(alone: &[Window], beside: &[Window]) -> Vec<Row> {
    let row = |(index, process): (usize, &str)| {
        let each = |windows: &[Window]| windows.iter().map(|window| window.cpu[index]).collect();
        let (id, title) =
            (format!("siege/cpu-{process}"), format!("CPU of {process}, under siege and without"));
        let beside = value(&id, &title, "% of a core", each(beside), None);
        Row { limit: each(alone), ..beside }
    };
    SERVERS.into_iter().chain([CLIENT]).enumerate().map(row).collect()
}

fn rate(part: &str, alone: &[Window], beside: &[Window], least: f64) -> Row {
    let rates = |windows: &[Window]| windows.iter().map(|window| window.rate).collect();
    let title = "64 KiB reads and writes of others, beside it and without";
    Row {
        limit: rates(alone),
        ..value(&format!("{part}/rate"), title, "calls/s", rates(beside), Some(Bound::Ratio(least)))
    }
}

fn value(id: &str, title: &str, unit: &str, ours: Vec<f64>, bound: Option<Bound>) -> Row {
    let part = id.split('/').next().unwrap_or(id);
    let command = format!("cargo xtask bench --only {part}");
    Row::of(id, title, unit, [ours, Vec::new()], bound, &command)
}
