//! CRR-N on a real system: ten mounts with NIDs of their own, `dd` writers on each, one OST slower
//! than the machine.
//!
//! With `NACRE_FULL=1` the windows are long enough for the figures published in `bench/README.md`.
//! Otherwise the direction is checked, and how far clients are apart with the default quantum, in
//! MiB. Every row is printed.

use std::collections::BTreeMap;
use std::fs;
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use mounted::{Scratch, Up, count, figure, full};

const CLIENTS: usize = 10;
/// Their NIDs are 127.0.0.100 and on.
const FIRST_NID: u8 = 100;
/// Size of the file that each writer goes over again and again, MiB.
const FILE_MIB: usize = 16;

/// Threads of the OST.
const SLOTS: usize = 4;
/// What a request moves at most, MiB.
const REQUEST_MIB: usize = 1;
/// RPCs of a client in a round of CRR-N: its default.
const QUANTUM: usize = 8;
/// What one client may be ahead of another in any window with the default quantum, MiB.
///
/// At any moment each client has had all rounds but the one being served and the one before it,
/// and no more than the one being served (`crates/logic/nrs/src/rounds.rs`). So two clients are at
/// most two quanta apart, and between two moments at most four. What is in a slot at the first or
/// the last moment counts when it is answered.
///
/// The bound does not depend on the speed of the machine. A round is 80 MiB, which takes 1.3 s on
/// the device of 60 MiB/s, and longer if the machine is busy. A client keeps its quantum if it asks
/// again within that. Clients are compared by bytes over whole rounds, not by percent of a time in
/// which a busy machine moves little.
const LEAD_MIB_MAX: usize = (4 * QUANTUM + 2 * SLOTS) * REQUEST_MIB;
/// What all clients move in a window in which the lead is looked at, MiB: with 5 to 14 requests in
/// flight, FIFO would leave 9/95 of it between the first and the last client.
const LEAD_WINDOW_MIB: usize = 480;
const _: () = assert!(LEAD_WINDOW_MIB * 9 / 95 > LEAD_MIB_MAX);
/// A window is over after this time, whatever has moved.
const WINDOW_MAX: Duration = Duration::from_secs(120);

struct Field {
    up: Up,
    mounts: Vec<PathBuf>,
}

/// What the clients moved in one window, MiB, by client.
struct Window {
    seconds: f64,
    mib: Vec<f64>,
}

impl Window {
    fn total(&self) -> f64 {
        self.moved() / self.seconds
    }

    fn moved(&self) -> f64 {
        self.mib.iter().sum()
    }

    /// What lies between the clients that moved most and least, MiB.
    fn lead(&self) -> f64 {
        let most = self.mib.iter().copied().fold(f64::MIN, f64::max);
        most - self.mib.iter().copied().fold(f64::MAX, f64::min)
    }
}

/// Standard deviation over mean.
fn variation(values: &[f64]) -> f64 {
    let mean = values.iter().sum::<f64>() / values.len() as f64;
    let square =
        values.iter().map(|value| (value - mean).powi(2)).sum::<f64>() / values.len() as f64;
    square.sqrt() / mean
}

impl Field {
    fn new() -> Field {
        let mut up = Up::with(Scratch::new("fair"), None, &["--osts", "1"]);
        let mounts: Vec<_> =
            (0..CLIENTS).map(|client| up.second_mount(FIRST_NID + client as u8)).collect();
        for client in 0..CLIENTS {
            fs::create_dir(up.at(&format!("c{client}"))).expect("a directory per client");
        }
        up.set("obdfilter.*-OST0000.device_mibps", &count(60, 200).to_string());
        up.set("ost.OSS.ost_io.threads_max", &SLOTS.to_string());
        Field { up, mounts }
    }

    fn set(&self, param: &str, value: &str) {
        self.up.set(param, value);
    }

    /// Bytes moved since the OST started, by client.
    fn moved(&self, kind: &str) -> Vec<f64> {
        let text = self.up.param("obdfilter.*-OST0000.export_stats");
        let mut sums = BTreeMap::new();
        let mut nid = "";
        for line in text.lines() {
            if let Some(rest) = line.strip_prefix("- nid:") {
                nid = rest.trim();
            } else if line.trim_start().starts_with(kind) {
                let sum = line
                    .rsplit("sum:")
                    .next()
                    .and_then(|rest| rest.trim().trim_end_matches('}').trim().parse::<u64>().ok());
                sums.insert(nid.to_owned(), sum.unwrap_or_else(|| panic!("no sum in '{line}'")));
            }
        }
        let of = |client: usize| {
            sums.get(&format!("127.0.0.{}@tcp", usize::from(FIRST_NID) + client))
                .copied()
                .unwrap_or(0)
        };
        (0..CLIENTS).map(|client| of(client) as f64 / f64::from(1 << 20)).collect()
    }

    /// `writers[i]` processes of client i run at once; the window begins when all are in full
    /// swing and lasts for a time.
    fn window(&self, reads: bool, writers: &[usize]) -> Window {
        let _running = self.run(reads, writers);
        let kind = kind(reads);
        let (before, start) = (self.moved(kind), Instant::now());
        std::thread::sleep(Duration::from_secs(count(4, 60) as u64));
        self.since(kind, &before, start)
    }

    /// The same, until `mib` have moved and as long as the other.
    fn window_of(&self, reads: bool, writers: &[usize], mib: usize) -> Window {
        let _running = self.run(reads, writers);
        let kind = kind(reads);
        let (before, start) = (self.moved(kind), Instant::now());
        std::thread::sleep(Duration::from_secs(count(4, 60) as u64));
        loop {
            let window = self.since(kind, &before, start);
            if window.moved() >= mib as f64 || start.elapsed() >= WINDOW_MAX {
                return window;
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    fn since(&self, kind: &str, before: &[f64], start: Instant) -> Window {
        let (after, seconds) = (self.moved(kind), start.elapsed().as_secs_f64());
        let mib = after.iter().zip(before).map(|(after, before)| after - before).collect();
        Window { seconds, mib }
    }

    /// Readers or writers, in full swing.
    fn run(&self, reads: bool, writers: &[usize]) -> Running {
        let mut running = Running(Vec::new());
        for (client, writers) in writers.iter().enumerate() {
            for writer in 0..*writers {
                let file = self.mounts[client].join(format!("c{client}/f{writer}"));
                let (from, to) =
                    if reads { (file, "/dev/null".into()) } else { ("/dev/zero".into(), file) };
                let dd = format!(
                    "while :; do dd if={} of={} bs=1M count={FILE_MIB} conv=notrunc 2>/dev/null || exit; done",
                    from.display(),
                    to.display()
                );
                let child =
                    Command::new("setsid").args(["sh", "-c", &dd]).stdin(Stdio::null()).spawn();
                running.0.push(child.expect("sh starts"));
            }
        }
        std::thread::sleep(Duration::from_secs(count(3, 5) as u64));
        running
    }
}

/// The counter of what moves.
fn kind(reads: bool) -> &'static str {
    if reads { "read_bytes" } else { "write_bytes" }
}

/// Shells and their `dd`s, ended with this.
struct Running(Vec<Child>);

impl Drop for Running {
    fn drop(&mut self) {
        for child in &self.0 {
            // setsid made each a group of its own
            let _ = Command::new("kill")
                .args(["-9", "--", &format!("-{}", child.id())])
                .stderr(Stdio::null())
                .status();
        }
        for child in &mut self.0 {
            let _ = child.wait();
        }
    }
}

fn print(what: &str, window: &Window, spread: f64) {
    let all: Vec<_> = window.mib.iter().map(|mib| format!("{:.1}", mib / window.seconds)).collect();
    println!(
        "{what}: total {:.1} MiB/s, spread {:.2} %, by client {}",
        window.total(),
        spread * 100.0,
        all.join(" ")
    );
}

#[test]
fn crrn_gives_every_client_its_share() {
    let mut field = Field::new();
    let unequal: Vec<usize> = (0..CLIENTS).map(|client| 5 + client).collect();
    let mut lone = vec![11; CLIENTS];
    lone[0] = 1;
    field.set("llite.*.page_cache", "0"); // otherwise each file is read from its OST once
    field.set("ost.OSS.ost_io.nrs_policies", "fifo");
    let fill = field.window(false, &[15; CLIENTS]); // every file is there for the reads
    print("all alike, fifo, write", &fill, variation(&fill.mib));
    for reads in [false, true] {
        let (kind, programs) = if reads { ("read", "readers") } else { ("write", "writers") };
        field.set("ost.OSS.ost_io.nrs_policies", "fifo");
        let fifo_unequal = field.window(reads, &unequal);
        let fifo_lone = field.window(reads, &lone);
        field.set("ost.OSS.ost_io.nrs_policies", "crrn");
        field.set("ost.OSS.ost_io.nrs_crrn_quantum", "1");
        let crrn_unequal = field.window(reads, &unequal);
        let crrn_lone = field.window(reads, &lone);
        field.set("ost.OSS.ost_io.nrs_crrn_quantum", &QUANTUM.to_string());
        let default_unequal = field.window_of(reads, &unequal, LEAD_WINDOW_MIB);
        let default_spread = variation(&default_unequal.mib);
        let (fifo_spread, crrn_spread) =
            (variation(&fifo_unequal.mib), variation(&crrn_unequal.mib));
        print(&format!("5 to 14 {programs}, fifo"), &fifo_unequal, fifo_spread);
        print(&format!("5 to 14 {programs}, crrn"), &crrn_unequal, crrn_spread);
        print(&format!("5 to 14 {programs}, crrn by eights"), &default_unequal, default_spread);
        print(
            &format!("1 and nine times 11 {programs}, fifo"),
            &fifo_lone,
            variation(&fifo_lone.mib[1..]),
        );
        print(
            &format!("1 and nine times 11 {programs}, crrn"),
            &crrn_lone,
            variation(&crrn_lone.mib[1..]),
        );
        let share = |window: &Window| window.mib[0] / window.mib.iter().sum::<f64>();
        let gain = share(&crrn_lone) / share(&fifo_lone);
        let totals =
            (crrn_unequal.total() / fifo_unequal.total(), crrn_lone.total() / fifo_lone.total());
        let told = |name: &str, title: &str, unit: &str, value: f64| {
            figure(&format!("fairness/{kind}/{name}"), &format!("{kind}s, {title}"), unit, value);
        };
        told("spread-fifo", "5 to 14 a mount, spread of FIFO", "%", fifo_spread * 100.0);
        told("spread-crrn", "5 to 14 a mount, spread of CRR-N", "%", crrn_spread * 100.0);
        told(
            "spread-default",
            "5 to 14 a mount, spread of CRR-N with its default quantum",
            "%",
            default_spread * 100.0,
        );
        told(
            "lead-default",
            "5 to 14 a mount, first ahead of last with the default quantum",
            "MiB",
            default_unequal.lead(),
        );
        told("unequal-total", "5 to 14 a mount, total of CRR-N to FIFO", "times", totals.0);
        told("lone-gain", "one beside nine times 11, the lone one to FIFO", "times", gain);
        told("lone-total", "one beside nine times 11, total to FIFO", "times", totals.1);
        assert!(
            crrn_spread < fifo_spread / 2.0,
            "CRR-N leaves {crrn_spread:.3} of FIFO's spread {fifo_spread:.3}"
        );
        assert!(
            default_unequal.lead() <= LEAD_MIB_MAX as f64,
            "{:.1} MiB between the first and the last of {:.1} MiB in all",
            default_unequal.lead(),
            default_unequal.moved()
        );
        assert!(gain > 1.5, "a lone client gets {gain:.2} times what FIFO gives it");
        assert!(totals.0 > 0.8 && totals.1 > 0.8, "CRR-N costs throughput: {totals:?}");
        if full() {
            assert!(default_spread <= 0.02, "{default_spread:.4} with the default quantum");
            assert!(
                crrn_spread <= 0.005 && fifo_spread >= 0.03,
                "spread {crrn_spread:.4}, FIFO {fifo_spread:.4}"
            );
            assert!(gain >= 3.4, "a lone client gets {gain:.2} times what FIFO gives it");
            assert!(totals.0 >= 0.995 && totals.1 >= 0.99, "CRR-N costs throughput: {totals:?}");
        }
    }
    field.up.stop();
}
