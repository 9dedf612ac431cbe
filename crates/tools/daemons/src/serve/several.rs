//! The executors of a `nacre serve` that listens at several addresses.
//!
//! Each executor is a node on a thread of its own: an address, an endpoint, targets. Nodes share
//! nothing but the process. A board shows the state of each, and the first executor decides from it
//! for the process. So one that fails, also before it serves, ends the others in order.

use std::path::PathBuf;
use std::rc::Rc;
use std::sync::Arc;
use std::thread::JoinHandle;

use anyhow::{Context, Result};
use env::Env;
use env_os::OsConfig;
use metrics::{SCRAPES_WAITING_MAX, Scrape};
use tokio::sync::{mpsc, watch};
use types::{NidAddr, Span, TargetId};

use super::ready::Ready;
use super::{Options, begin};
use crate::executors::assigned;
use crate::machine::MachineOptions;
use crate::server::{Among, Ended, Server, ServerOptions, check_reset};
use crate::targets;

/// What an executor serves and how.
pub(super) struct Executor {
    pub(super) options: ServerOptions,
    pub(super) config: OsConfig,
}

/// One for each address. The first one answers Prometheus.
pub(super) fn executors(options: &Options) -> Result<Vec<Executor>> {
    let at: Vec<NidAddr> = options.listen.iter().map(|listen| listen.at).collect();
    let (shares, mgs) = shares(options, &at)?;
    let count = u32::try_from(at.len()).context("too many addresses")?;
    let mut all = Vec::new();
    for ((listen, dirs), among) in options.listen.iter().zip(shares).zip(Among::all(&at)) {
        let machine = MachineOptions {
            link_cpts: listen.cpts.clone(),
            executors: count,
            ..options.machine.clone()
        };
        let machine = machine.on_this_machine()?;
        let config = OsConfig { insecure: options.insecure, ..machine.os_config() };
        let options = ServerOptions {
            dirs,
            listen: listen.at,
            mgs: match mgs {
                Some(mgs) if mgs != listen.at => vec![mgs], // the targets need not know it
                _ => options.mgs.clone(),
            },
            abort_recovery: options.abort_recovery,
            trust: options.trust,
            dead_clients: options.dead_clients.clone(),
            no_permanent: options.no_permanent,
            machine,
            metrics: options.metrics.filter(|_| among.index == 0),
            commit_interval: Span::millis(options.commit_interval_ms),
            devices: options.devices.clone(),
            awaited: options.awaited,
            among,
        };
        all.push(Executor { options, config });
    }
    Ok(all)
}

/// The directories of each executor, and where the MGT is, if it is known to be here.
fn shares(options: &Options, at: &[NidAddr]) -> Result<(Vec<Vec<PathBuf>>, Option<NidAddr>)> {
    if at.len() == 1 && options.assign.is_empty() {
        return Ok((vec![options.dirs.clone()], None)); // not looked into twice
    }
    let found = targets::find(&options.dirs)?;
    check_reset(&found, options.trust)?;
    let ids: Vec<TargetId> = found.iter().map(|target| target.superblock.target).collect();
    let dirs_of = |share: Vec<TargetId>| {
        let own = found.iter().filter(|target| share.contains(&target.superblock.target));
        own.map(|target| target.dir.clone()).collect()
    };
    let shares = assigned(&ids, at, &options.assign)?;
    let has_mgt = |share: &Vec<TargetId>| share.contains(&TargetId::MGT);
    let mgs = shares.iter().position(has_mgt).map(|place| at[place]);
    Ok((shares.into_iter().map(dirs_of).collect(), mgs))
}

/// The state of an executor.
#[derive(Clone, Debug, PartialEq, Eq)]
enum State {
    /// Its targets are opened, or are served.
    Alive,
    /// It did not start.
    Failed(String),
    /// It serves nothing any more, or the MGS refused a target.
    Ended(Ended),
    /// It was told to stop, and has committed everything.
    Stopped,
}

/// The states of all executors, in the order of their addresses.
type Board = watch::Sender<Vec<State>>;

/// The executors besides the first one.
pub(super) struct Others {
    board: Arc<Board>,
    stopping: watch::Sender<bool>,
    threads: Vec<JoinHandle<()>>,
    scrapes: Vec<mpsc::Sender<Scrape>>,
}

impl Others {
    /// Starts a thread for each.
    pub(super) fn start(
        executors: impl ExactSizeIterator<Item = Executor>,
        is_child: bool,
        ready: &Ready,
    ) -> Result<Others> {
        let board = Arc::new(watch::channel(vec![State::Alive; executors.len() + 1]).0);
        let stopping = watch::channel(false).0;
        let (mut threads, mut scrapes) = (Vec::new(), Vec::new());
        for Executor { options, config } in executors {
            let name = format!("executor-{}", options.among.index);
            let (asked, questions) = mpsc::channel(SCRAPES_WAITING_MAX);
            let (board, stopping) = (Arc::clone(&board), stopping.subscribe());
            let ready = ready.clone();
            let main = move |env: Env| async move {
                let index = options.among.index;
                let parent = (is_child, &ready);
                let state = live(&env, &options, parent, questions, (&board, stopping)).await;
                set(&board, index, state);
            };
            threads.push(env_os::spawn_thread(&name, config, main).context("an executor thread")?);
            scrapes.push(asked);
        }
        Ok(Others { board, stopping, threads, scrapes })
    }

    /// The ways to ask them for their parts of a scrape.
    pub(super) fn scrapes(&self) -> Vec<mpsc::Sender<Scrape>> {
        self.scrapes.clone()
    }

    /// From now on the board shows the end of `server`, the node of the first executor.
    pub(super) fn watch(&self, env: &Env, server: &Rc<Server>) {
        let (server, board) = (Rc::clone(server), Arc::clone(&self.board));
        env.spawn("executor-ended", async move {
            let reason = server.ended().await;
            set(&board, 0, State::Ended(reason));
        });
    }

    /// Completes with the reason when an executor could not start.
    pub(super) async fn not_started(&self) -> String {
        self.wait_for(not_started).await
    }

    /// Completes with the reason when the process must end.
    pub(super) async fn ended(&self) -> Ended {
        self.wait_for(ended).await
    }

    async fn wait_for<T>(&self, found: fn(&[State]) -> Option<T>) -> T {
        let mut board = self.board.subscribe();
        loop {
            if let Some(found) = found(&board.borrow_and_update()) {
                return found;
            }
            board.changed().await.expect("the board is ours");
        }
    }

    pub(super) fn tell_to_stop(&self) {
        self.stopping.send_replace(true);
    }

    /// Tells them to stop, and completes when all have.
    pub(super) async fn stop(&mut self) {
        self.tell_to_stop();
        self.wait_for(|all| all[1..].iter().all(is_over).then_some(())).await;
        for thread in self.threads.drain(..) {
            let _ = thread.join(); // a panic has ended the process already
        }
    }
}

fn set(board: &Board, index: usize, state: State) {
    board.send_modify(|all| all[index] = state);
}

fn is_over(state: &State) -> bool {
    matches!(state, State::Stopped | State::Failed(_))
}

fn not_started(all: &[State]) -> Option<String> {
    all.iter().find_map(|state| match state {
        State::Failed(why) => Some(why.clone()),
        _ => None,
    })
}

/// Why the process must end: the MGS refused a target, or the storage of all targets failed.
fn ended(all: &[State]) -> Option<Ended> {
    let reasons = || {
        all.iter().filter_map(|state| match state {
            State::Ended(reason) => Some(reason),
            _ => None,
        })
    };
    let refused = reasons().find(|reason| matches!(reason, Ended::Refused(..)));
    let last = || reasons().next_back().filter(|_| reasons().count() == all.len());
    refused.or_else(last).cloned()
}

/// The life of an executor besides the first one; its last state.
async fn live(
    env: &Env,
    options: &ServerOptions,
    (is_child, ready): (bool, &Ready),
    scrapes: mpsc::Receiver<Scrape>,
    (board, mut stopping): (&Arc<Board>, watch::Receiver<bool>),
) -> State {
    let started = tokio::select! {
        biased;
        // clients replay what it has not begun to serve
        _ = stopping.wait_for(|stopping| *stopping) => return State::Stopped,
        started = begin(env, options, is_child, ready) => started,
    };
    let server = match started {
        Ok(server) => server,
        Err(error) => return State::Failed(format!("{error:#}")),
    };
    server.answer_scrapes(scrapes);
    let ended = tokio::select! {
        biased;
        _ = stopping.wait_for(|stopping| *stopping) => None,
        reason = server.ended() => Some(reason),
    };
    if let Some(reason) = ended {
        set(board, options.among.index, State::Ended(reason));
        let _ = stopping.wait_for(|stopping| *stopping).await; // the others may go on
    }
    server.stop().await;
    State::Stopped
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::executors::Listen;
    use crate::format;
    use crate::server::{Awaited, Trust};

    fn options(dir: PathBuf) -> Options {
        let listen = ["127.0.62.1@tcp", "127.0.62.2@tcp"];
        Options {
            dirs: vec![dir],
            listen: listen.map(|at| at.parse::<Listen>().expect("a NID")).into(),
            assign: Vec::new(),
            mgs: Vec::new(),
            insecure: false,
            abort_recovery: false,
            no_permanent: false,
            machine: MachineOptions::default(),
            log: None,
            metrics: None,
            trust: Trust::Whole,
            dead_clients: Vec::new(),
            commit_interval_ms: 1_000,
            devices: Vec::new(),
            awaited: Awaited::default(),
            die_with_parent: false,
            tell_recovery: false,
        }
    }

    #[test]
    fn executors_without_the_mgt_know_where_it_is() {
        let dir = std::env::temp_dir().join(format!("nacre-several-{}", std::process::id()));
        let together = format::Options {
            fsname: "testfs".parse().expect("a name"),
            targets: vec![TargetId::MGT, TargetId::mdt(0), TargetId::ost(0)],
            mgs: Vec::new(), // it is among them
            reformat: false,
            dir: dir.clone(),
        };
        format::run(&together).expect("formats");
        let options = options(dir.clone());
        let all = executors(&options).expect("two");
        let mgs = all.iter().map(|executor| executor.options.mgs.clone());
        assert_eq!(mgs.collect::<Vec<_>>(), [vec![], vec![options.listen[0].at]]);
        let reset = Options { trust: Trust::ResetEmpty, ..options };
        assert!(executors(&reset).is_err(), "no target lacks a part");
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }

    #[test]
    fn the_process_ends_with_its_last_executor_or_where_one_is_refused() {
        let storage = |index| Ended::Storage(TargetId::ost(index), "an error".to_owned());
        let refused = Ended::Refused(TargetId::ost(7), "another one".to_owned());
        assert_eq!(ended(&[State::Alive]), None);
        assert_eq!(ended(&[State::Ended(storage(0))]), Some(storage(0)), "the only one");
        assert_eq!(ended(&[State::Ended(storage(0)), State::Alive]), None, "one goes on");
        let all = [0, 1].map(|index| State::Ended(storage(index)));
        assert_eq!(ended(&all), Some(storage(1)));
        assert_eq!(ended(&[State::Alive, State::Ended(refused.clone())]), Some(refused.clone()));
        assert_eq!(
            ended(&[State::Ended(storage(0)), State::Ended(refused.clone())]),
            Some(refused)
        );
    }

    #[test]
    fn an_executor_that_does_not_start_ends_the_others() {
        let failed = State::Failed("no such directory".to_owned());
        assert_eq!(not_started(&[State::Alive, State::Stopped]), None);
        assert_eq!(not_started(&[State::Alive, failed.clone()]), Some("no such directory".into()));
        assert!(is_over(&failed) && is_over(&State::Stopped) && !is_over(&State::Alive));
    }
}
