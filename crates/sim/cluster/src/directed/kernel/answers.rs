//! Part of **kernel**, where grants are called back: answers that reach a daemon late.
//!
//! - **Overtaken**: a program asks for attributes, and another one on the same mount changes them.
//!   The first answer comes last. It does not bring the old attributes back.
//! - **Behind a stop**: daemons stop while an answer is on its way to them, and are cut off from
//!   the MDT then. Their leases count from when they asked. A change by another mount waits for
//!   these leases, and no call that begins later sees what was before.

use std::cell::RefCell;
use std::rc::Rc;

use client::Client;
use env_sim::{Cut, Faults};
use kernel::{Found, Kernel, Stat, Who};
use types::{Errno, Span};

use super::{Mount, PERMISSIONS};
use crate::directed::Stage;
use crate::run::PEACE_MAX;

/// Directories whose attributes are asked for and changed. Of eight pairs of answers about one
/// comes in the wrong order.
const OVERTAKEN: u32 = 40;
/// So many messages of a million may overtake others.
const REORDER_PPM: u32 = 250_000;
/// A change begins this long after the question, at most.
const AFTER: Span = Span::micros(300);
/// A kernel believes the attributes in the answer to a change for less than this.
const TOLD: Span = Span::millis(100);
/// A kernel believes other attributes for less than this.
const GUARDED: Span = Span::secs(11);
/// Modes that a program sets.
const MODES: [u32; 4] = [0o700, 0o711, 0o750, 0o755];

/// The directory of which daemons have a grant while they stop.
const BELIEVED: &str = "believed";
/// Daemons that stop, one after the other. An answer takes 40 to 400 us.
const STOPPED: usize = 4;
/// Between two of them, at most.
const NEXT_STOP: Span = Span::micros(100);
/// How long they stop. It is less than an attempt of a request has, 10 s. It is more than the 4 s
/// by which an MDT counts a lease of 30 s for longer than a client uses it.
const STOP: (Span, Span) = (Span::secs(7), Span::secs(9));
const CHANGED: u32 = 0o711;

impl Stage<'_> {
    /// No clock of these mounts runs apart from the MDT's.
    pub(super) fn answer_late(&mut self) -> Result<(), String> {
        if !self.cluster.calls_back() {
            return Ok(());
        }
        let entered: Vec<_> = (0..=STOPPED).map(|_| self.enter_apart(0)).collect();
        let mounts = entered.iter().map(|entered| self.mount_kernel(entered, false));
        let mounts: Vec<_> = mounts.collect();
        let (changer, lookers) = mounts.split_first().expect("there are several");
        self.overtake(changer, &entered[0].client)?;
        self.stop_before_answers(lookers, changer)
    }

    /// What a program on a mount is answered.
    fn on<T: 'static>(
        &mut self,
        mount: &Mount,
        what: &str,
        work: impl AsyncFnOnce(&Kernel) -> Result<T, Errno> + 'static,
    ) -> Result<T, String> {
        self.ops += 1;
        let kernel = mount.kernel.clone();
        let work = async move { work(&kernel).await };
        match self.cluster.sim.block_on_for(&mount.machine, PEACE_MAX, work) {
            Some(answer) => answer.map_err(|errno| format!("{what}: {errno}")),
            None => Err(format!("{what}: never finished; {:?}", mount.kernel.waits())),
        }
    }

    fn overtake(&mut self, mount: &Mount, client: &Client) -> Result<(), String> {
        let dirs = self.on(mount, "making directories", async |kernel| {
            let mut dirs = Vec::new();
            for number in 0..OVERTAKEN {
                let path = format!("overtaken{number}");
                kernel.mkdir(Who::root(0), &path, 0o777).await?;
                dirs.push(kernel.path(Who::root(0), &path).await?);
            }
            Ok(dirs)
        })?;
        // neither the kernel nor the daemon knows attributes then, and no other client has a grant
        self.cluster.sim.run_for(GUARDED);
        client.drop_grants();
        self.cluster.sim.set_faults(Faults { reorder_ppm: REORDER_PPM, ..Faults::default() });
        let outcome = dirs.iter().try_for_each(|dir| self.overtake_one(mount, dir));
        self.cluster.sim.set_faults(Faults::default());
        outcome
    }

    fn overtake_one(&mut self, mount: &Mount, dir: &Found) -> Result<(), String> {
        let mode = *self.rng.pick(&MODES);
        let (asking, asked) = (mount.kernel.clone(), dir.clone());
        mount.machine.env().spawn("asks", async move {
            let _of_either_time = asking.stat(Who::root(1), &asked).await;
        });
        self.pause(AFTER);
        let changed = dir.clone();
        self.on(mount, "chmod", async move |kernel| {
            kernel.chmod(Who::root(2), &changed, mode).await
        })?;
        self.cluster.sim.run_for(TOLD);
        let found = dir.clone();
        let looks = async move |kernel: &Kernel| kernel.stat(Who::root(3), &found).await;
        let seen = self.on(mount, "stat", looks)?.mode & PERMISSIONS;
        if seen == mode {
            return Ok(());
        }
        Err(format!("mode {seen:o} is seen after a chmod to {mode:o} was answered"))
    }

    fn stop_before_answers(&mut self, lookers: &[Mount], changer: &Mount) -> Result<(), String> {
        self.on(changer, "mkdir", async |kernel| {
            kernel.mkdir(Who::root(0), BELIEVED, 0o700).await
        })?;
        let mut dirs = Vec::new();
        for looker in lookers {
            let found =
                self.on(looker, "a path", async |kernel| kernel.path(Who::root(0), BELIEVED).await);
            dirs.push(found?);
        }
        self.stop_asking(lookers);
        self.on(changer, "chmod", async |kernel| {
            let dir = kernel.path(Who::root(0), BELIEVED).await?;
            kernel.chmod(Who::root(0), &dir, CHANGED).await
        })?;
        self.look_again(lookers, &dirs)
    }

    /// Each daemon asks the MDT, and stops before the answer if the moment is right. Then nothing
    /// passes between it and the MDT.
    fn stop_asking(&mut self, lookers: &[Mount]) {
        for looker in lookers {
            let kernel = looker.kernel.clone();
            looker.machine.env().spawn("asks", async move {
                let _none = kernel.path(Who::root(1), "absent").await;
            });
        }
        let stop = self.rng.span(STOP.0, STOP.1);
        for looker in lookers {
            self.pause(NEXT_STOP);
            looker.daemon.pause(stop);
        }
        let sim = &self.cluster.sim;
        sim.narrate(&format!("stops daemons for {:.3} s, and cuts them off", stop.as_secs_f64()));
        sim.run_for(Span::secs(1)); // the answers have come
        for looker in lookers {
            sim.partition(&looker.daemon, &self.mdt().node, Cut::BothWays);
        }
        sim.run_for(stop);
    }

    /// The change was answered. A daemon that believes its lease to last answers at once; the
    /// others ask the MDT when they can.
    fn look_again(&self, lookers: &[Mount], dirs: &[Found]) -> Result<(), String> {
        let seen = Rc::<RefCell<Vec<Result<Stat, Errno>>>>::default();
        for (looker, dir) in lookers.iter().zip(dirs) {
            let (kernel, dir, seen) = (looker.kernel.clone(), dir.clone(), seen.clone());
            looker.machine.env().spawn("looks", async move {
                let answer = kernel.stat(Who::root(2), &dir).await;
                seen.borrow_mut().push(answer);
            });
        }
        let sim = &self.cluster.sim;
        sim.run_for(TOLD);
        sim.heal_all();
        if !sim.run_until(PEACE_MAX, || seen.borrow().len() == lookers.len()) {
            return Err("a stat is never answered after a cut".to_owned());
        }
        // one whose session has ended meanwhile may have failed
        let seen = seen.take();
        let mut modes = seen.iter().flatten().map(|stat| stat.mode & PERMISSIONS);
        match modes.find(|mode| *mode != CHANGED) {
            None => Ok(()),
            Some(old) => Err(format!("mode {old:o} is seen after the lease of its daemon ended")),
        }
    }
}
