//! The servers of an `up` in this process, on a thread of their own.
//!
//! A target whose storage failed takes the node with it; the node boots again as a process would,
//! and clients replay.

use std::collections::VecDeque;
use std::net::SocketAddr;
use std::thread::JoinHandle;

use anyhow::{Context, Result, anyhow};
use env::Env;
use osd_disk::DiskError;
use tokio::sync::watch;
use types::{ClientId, Span};

use super::address::{Block, MGS};
use super::options::Options;
use super::place::Place;
use crate::server::{Server, ServerOptions};

/// Pause before a node boots again.
const PAUSE: Span = Span::millis(200);
/// How long a target's lock may be held by servers of an `up` that was killed a moment ago.
const LOCK_WAIT: Span = Span::secs(10);
/// A stop that takes longer is given up: what was not durable is replayed by the clients.
const STOP_MAX: Span = Span::secs(30);
/// Failures within a minute after which the node stays down.
const FAILURES_MAX: usize = 5;
const MINUTE: Span = Span::secs(60);

/// How the thread is.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Life {
    Starting,
    Ready,
    GivenUp(String),
}

pub(super) struct Embedded {
    life: watch::Receiver<Life>,
    stop: watch::Sender<bool>,
    thread: Option<JoinHandle<()>>,
}

impl Embedded {
    /// Starts the thread.
    pub(super) fn start(
        options: &Options,
        place: &Place,
        block: &Block,
        dead: &[ClientId],
    ) -> Result<Embedded> {
        let machine = options.machine.on_this_machine()?;
        let config = machine.os_config();
        let server = ServerOptions {
            dirs: place.targets.iter().map(|target| target.dir.clone()).collect(),
            listen: block.mgs(),
            mgs: vec![block.mgs()],
            abort_recovery: false,
            dead_clients: dead.to_vec(),
            machine,
            metrics: options.metrics_port.map(|port| SocketAddr::from((block.ip(MGS), port))),
            commit_interval: Span::millis(options.commit_interval_ms),
            osts_awaited: place.osts(),
        };
        let (life_tx, life) = watch::channel(Life::Starting);
        let (stop, stopped) = watch::channel(false);
        let main = move |env: Env| async move { live(&env, &server, &life_tx, stopped).await };
        let thread =
            env_os::spawn_thread("servers", config, main).context("the servers' thread")?;
        Ok(Embedded { life, stop, thread: Some(thread) })
    }

    /// All targets are served and registered.
    pub(super) async fn ready(&self) -> Result<()> {
        let mut life = self.life.clone();
        let now = life.wait_for(|life| *life != Life::Starting).await;
        match now.map(|life| life.clone()) {
            Ok(Life::GivenUp(reason)) => Err(anyhow!(reason)),
            Ok(_) => Ok(()),
            Err(_) => Err(anyhow!("the servers' thread ended")),
        }
    }

    /// Completes with the reason when the node stays down.
    pub(super) async fn given_up(&self) -> String {
        let mut life = self.life.clone();
        match life.wait_for(|life| matches!(life, Life::GivenUp(_))).await.map(|life| life.clone())
        {
            Ok(Life::GivenUp(reason)) => reason,
            Ok(_) => unreachable!("waited for the other state"),
            Err(_) => std::future::pending().await,
        }
    }

    /// Commits and ends.
    pub(super) async fn stop(mut self) {
        self.stop.send_replace(true);
        while self.life.changed().await.is_ok() {} // closed: the thread is done
        if let Some(thread) = self.thread.take() {
            let _ = thread.join(); // a panic has ended the process already
        }
    }
}

/// Boots the node, again if it must be, until it is told to stop.
async fn live(
    env: &Env,
    options: &ServerOptions,
    life: &watch::Sender<Life>,
    mut stop: watch::Receiver<bool>,
) {
    let mut failures = VecDeque::new();
    while let Err(error) = once(env, options, life, &mut stop).await {
        tracing::error!("servers: {error:#}");
        failures.push_back(env.now());
        failures.retain(|at| env.now() - *at < MINUTE);
        if *life.borrow() == Life::Starting || failures.len() >= FAILURES_MAX {
            life.send_replace(Life::GivenUp(format!("servers: {error:#}")));
            return;
        }
        eprintln!("nacre up: servers stopped: {error:#}; starting them again");
        env.sleep(PAUSE).await;
    }
}

/// One life of the node; an error when it must boot again.
async fn once(
    env: &Env,
    options: &ServerOptions,
    life: &watch::Sender<Life>,
    stop: &mut watch::Receiver<bool>,
) -> Result<()> {
    let server = start(env, options).await?;
    if let Err(error) = server.control("up") {
        tracing::warn!("no control socket: {error:#}");
    }
    server.serve_metrics().await;
    let outcome = tokio::select! {
        biased;
        _ = stop.wait_for(|stop| *stop) => Ok(()),
        reason = server.failed() => Err(anyhow!(reason)),
        reason = server.degraded() => Err(anyhow!(reason)), // all start again: nobody else restarts it
        () = serve(&server, life) => unreachable!("serves until it is told otherwise"),
    };
    if outcome.is_ok() {
        if env.timeout(STOP_MAX, server.stop()).await.is_none() {
            tracing::error!("servers: not stopped within {} s", STOP_MAX.as_secs_f64());
        }
    } else {
        if env.timeout(STOP_MAX, server.abandon()).await.is_none() {
            tracing::error!("servers: not abandoned within {} s", STOP_MAX.as_secs_f64());
        }
    }
    outcome
}

async fn serve(server: &Server, life: &watch::Sender<Life>) {
    server.registered().await;
    life.send_replace(Life::Ready);
    std::future::pending::<()>().await;
}

/// Servers of an `up` that was killed may still be committing: their locks are waited for.
async fn start(env: &Env, options: &ServerOptions) -> Result<std::rc::Rc<Server>> {
    let until = env.now() + LOCK_WAIT;
    loop {
        match Server::start(env, options).await {
            Err(error) if is_in_use(&error) && env.now() < until => env.sleep(PAUSE).await,
            other => return other,
        }
    }
}

fn is_in_use(error: &anyhow::Error) -> bool {
    error
        .chain()
        .any(|cause| matches!(cause.downcast_ref::<DiskError>(), Some(DiskError::InUse(_))))
}
