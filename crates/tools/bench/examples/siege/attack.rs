//! A siege by unknown peers: connections that send nothing, garbage, and clients that send requests
//! and do not read the answers. They come from eight addresses, so that no per-address bound stops
//! them.

use std::cell::Cell;
use std::rc::Rc;

use bytes::Bytes;
use env::Env;
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpSocket, TcpStream};
use types::{Fid, NidAddr, Span};
use wire::{Frame, FrameKind};

use crate::budget::Budget;
use crate::peer;

/// Half-open connections in all.
const HALF_OPEN: usize = 2_000;
/// Clients of the OST that ask and do not take.
const SLOW: usize = 16;
/// What each has asked for and not taken, at most.
const ASKED_MAX: u64 = 4_096;
const AT_ONCE: u64 = 64;
/// They come from 127.0.0.70 and on.
const FIRST: u8 = 70;
const ADDRESSES: u8 = 8;
const PAUSE: Span = Span::millis(50);

#[derive(Clone)]
struct Attack {
    env: Env,
    budget: Budget,
    counts: Rc<Counts>,
}

#[derive(Default)]
struct Counts {
    open: Cell<usize>,
    open_most: Cell<usize>,
    opened: Cell<u64>,
    garbage: Cell<u64>,
    asked: Cell<u64>,
}

fn up(count: &Cell<u64>) {
    count.set(count.get() + 1);
}

pub(crate) fn run(all: Vec<NidAddr>, span: Span) -> Value {
    env_os::run(peer::config(), |env| async move {
        let attack =
            Attack { env: env.clone(), budget: Budget::start(&env), counts: Rc::default() };
        for index in 0..HALF_OPEN {
            env.spawn("half", attack.clone().half_open(all[index % all.len()], address(index)));
        }
        for (index, at) in all.iter().enumerate() {
            env.spawn("garbage", attack.clone().garbage(*at, address(index)));
        }
        for index in 0..SLOW {
            env.spawn("slow", attack.clone().slow(all[0], address(index)));
        }
        env.sleep(span).await;
        let Counts { open_most, opened, garbage, asked, .. } = &*attack.counts;
        json!({
            "half_open_most": open_most.get(), "opened": opened.get(), "garbage": garbage.get(),
            "asked": asked.get(), "cpu_share": attack.budget.share(),
        })
    })
}

fn address(index: usize) -> u8 {
    FIRST + (index % usize::from(ADDRESSES)) as u8
}

async fn stream(from: u8, at: NidAddr) -> Option<TcpStream> {
    let socket = TcpSocket::new_v4().ok()?;
    socket.bind((peer::local(from).addr(), 0).into()).ok()?;
    socket.connect((at.nid.addr(), at.port).into()).await.ok()
}

impl Attack {
    async fn rest(&self) {
        self.env.sleep(Span(PAUSE.0 + self.env.random() % PAUSE.0)).await;
        self.budget.step().await;
    }

    /// Says nothing for as long as it is let; then once more.
    async fn half_open(self, at: NidAddr, from: u8) {
        loop {
            self.rest().await;
            let Some(mut stream) = stream(from, at).await else { continue };
            let open = &self.counts.open;
            open.set(open.get() + 1);
            self.counts.open_most.set(self.counts.open_most.get().max(open.get()));
            up(&self.counts.opened);
            let _closed = stream.read(&mut [0; 64]).await;
            open.set(open.get() - 1);
        }
    }

    /// Bytes in place of a HELLO, and frames of nonsense after one.
    async fn garbage(self, at: NidAddr, from: u8) {
        loop {
            self.rest().await;
            up(&self.counts.garbage);
            let bytes: Vec<u8> = (0..40).flat_map(|_| self.env.random().to_le_bytes()).collect();
            if self.env.random().is_multiple_of(2) {
                if let Some(mut stream) = stream(from, at).await {
                    let _closed = stream.write_all(&bytes).await;
                }
            } else if let Ok(link) = self.env.connect(Some(peer::local(from)), at).await {
                let kinds = [FrameKind::Request, FrameKind::Reply, FrameKind::BulkPull];
                let kind = kinds[self.env.random() as usize % kinds.len()];
                let _closed = link.tx.send(Frame::new(kind, self.env.random(), Bytes::from(bytes)));
                self.env.sleep(PAUSE).await;
            }
        }
    }

    /// Asks much and takes little.
    async fn slow(self, at: NidAddr, from: u8) {
        loop {
            self.rest().await;
            let Some((mut link, joined)) = peer::meet(&self.env, peer::local(from), at).await
            else {
                continue;
            };
            let object = Fid::new(self.env.random(), 1);
            if link.tx.send(peer::write(&joined, 2, object).to_frame()).is_err() {
                continue;
            }
            let (mut xid, mut taken) = (2, 0);
            loop {
                self.rest().await;
                for _ in 0..AT_ONCE.min((taken + ASKED_MAX).saturating_sub(xid)) {
                    xid += 1;
                    if link.tx.send(peer::read(&joined, xid, object).to_frame()).is_err() {
                        break;
                    }
                    up(&self.counts.asked);
                }
                match self.env.timeout(PAUSE, link.rx.recv()).await {
                    Some(None) => break,
                    Some(Some(_)) => taken += 1,
                    None => {}
                }
            }
        }
    }
}
