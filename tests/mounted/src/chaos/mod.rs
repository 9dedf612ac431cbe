//! Two mounts and five servers under drawn faults, with workers that remember their answers.
//!
//! ```text
//!   mount a   mount b            each a process with a network of its own
//!       \       /                (10.77.0.x on one bridge)
//!   MDS  OST0  OST1  OST2  OST3  each on an ext4 of its own, which can lose its power
//! ```
//!
//! `nemesis` kills, freezes, cuts links, moves clocks and cuts power as its seed says. `workers`
//! work through both mounts meanwhile. `times` records the time of each fault. It excuses errors of
//! mounts that may have lost their sessions, and subtracts the downtime of a call's servers from
//! the call's time. At the end everything restarts, and a third mount shows whether the histories
//! hold:
//!
//! - fsynced data is there, nothing is there twice, nothing is torn;
//! - a call failed only on a mount that was killed, or silent for longer than its lease allows;
//! - no call took more than `times::EXCESS_MAX` beyond the downtime of the servers that it needs. A
//!   server's restart or the other mount's death during the call added at most the wait that each
//!   of them is allowed.

mod chance;
mod found;
mod life;
mod machines;
mod nemesis;
mod net;
mod plan;
mod times;
mod verdict;
mod workers;

use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use self::found::{Kind, Wrong};
use self::life::Run;
use self::machines::Machines;
use self::nemesis::Nemesis;
use self::times::{MOUNTS, mount};
pub use self::verdict::Verdict;
use self::workers::{Crew, Worker};

/// What to run.
pub struct Options {
    pub time: Duration,
    pub seed: u64,
    /// Where logs and the verdict go.
    pub out: PathBuf,
    /// Set when a signal asks for an early end.
    pub interrupted: &'static AtomicBool,
}

/// What calls that are under way at the end have to come back, once every fault is healed.
const END_MAX: Duration = Duration::from_secs(60);
const LOOK: Duration = Duration::from_millis(20);

/// Runs it all.
#[must_use]
pub fn run(options: &Options) -> Verdict {
    assert!(net::is_alone(), "only in namespaces of its own: cargo xtask chaos");
    let mut machines = Machines::start(&options.out);
    let run = Run::new(machines.mount_dirs());
    let crew = workers::crew(&machines, options.seed);
    let mut nemesis = Nemesis::new(options.seed, options.time);
    let healed = std::thread::scope(|scope| {
        let threads: Vec<_> =
            crew.into_iter().map(|worker| scope.spawn(|| life::work(&run, worker))).collect();
        let start = Instant::now();
        while start.elapsed() < options.time && !options.interrupted.load(Ordering::SeqCst) {
            nemesis.step(&mut machines, &run);
            std::thread::sleep(LOOK);
        }
        nemesis.heal(&mut machines, &run);
        run.stop.store(true, Ordering::SeqCst);
        let healed = Instant::now();
        while threads.iter().any(|thread| !thread.is_finished()) && healed.elapsed() < END_MAX {
            machines.tend(&run);
            std::thread::sleep(LOOK);
        }
        run.report_hung();
        if threads.iter().any(|thread| !thread.is_finished()) {
            (0..MOUNTS).for_each(|index| machines.kill(mount(index), &run)); // their calls end
        }
        threads
            .into_iter()
            .map(|thread| thread.join().expect("a worker panicked"))
            .collect::<Crew>()
    });
    check(&mut machines, &run, &healed);
    let (clock, faults) = (machines.has_clocks(), nemesis.counts().clone());
    machines.look_at_logs(&run);
    machines.stop(&run);
    Verdict::of(&run, options, clock, &faults)
}

/// Everything stops in good order and starts again; a fresh mount is compared with what the workers
/// know.
fn check(machines: &mut Machines, run: &Run, crew: &[Box<dyn Worker>]) {
    machines.unmount_all(run);
    machines.restart_servers(run);
    match machines.fresh_mount() {
        Ok(fresh) => crew.iter().for_each(|worker| worker.verify(&fresh, &run.found)),
        Err(error) => run.found.add(Wrong::new(run.times.now(), Kind::Machine, error)),
    }
}
