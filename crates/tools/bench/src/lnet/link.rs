//! Links alone: frames of a ping's size and bulk, without endpoint and service.
//!
//! The first byte of a request gives its kind, the second its size. A read's data comes as bulk
//! under the request's id; for a write the server pulls the data.

use bytes::Bytes;
use env::{BulkTicket, Env, Link, LinkTx};
use env_os::{Lnet, LnetSettings, OsConfig};
use types::{Instant, Nid, NidAddr, Span};
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame, FrameKind};

use super::{BULK_BYTES, Case, REPLY_BYTES, REQUEST_BYTES, SMALL_BYTES, Test, Tuning, server};

/// `port` of this machine.
pub(super) fn local(port: u16) -> NidAddr {
    NidAddr { nid: Nid::tcp(std::net::Ipv4Addr::LOCALHOST), port }
}

pub(super) fn config(crc: CrcMode, tuning: Tuning) -> OsConfig {
    let mut settings = LnetSettings::default();
    if tuning.peer_credits > 0 {
        settings.peer_credits = tuning.peer_credits;
        settings.credits = tuning.peer_credits.saturating_mul(32);
    }
    OsConfig {
        crc,
        lnd_threads: tuning.lnd_threads,
        lnet: Lnet::new(settings),
        ..OsConfig::default()
    }
}

/// Answers every request on every link.
pub(super) fn serve(crc: CrcMode, tuning: Tuning) -> anyhow::Result<()> {
    env_os::run(config(crc, tuning), |env| async move {
        let mut listener = env.listen(local(0)).await?;
        server::announce(listener.addr().port)?;
        let payloads = Payloads {
            reply: Bytes::from(vec![2; REPLY_BYTES - FRAME_HEADER_BYTES]),
            data: data(),
        };
        loop {
            let link = listener.accept().await?;
            env.spawn("echo", echo(env.clone(), link, payloads.clone()));
        }
    })
}

/// Second byte of a request for a small transfer.
const SMALL: u8 = b's';

fn data() -> Bytes {
    Bytes::from(vec![3; BULK_BYTES])
}

#[derive(Clone)]
struct Payloads {
    reply: Bytes,
    data: Bytes,
}

/// Ends with the link: an error of `send` says that it is down.
async fn echo(env: Env, mut link: Link, payloads: Payloads) {
    while let Some(frame) = link.rx.recv().await {
        let id = frame.id;
        let reply = Frame::new(FrameKind::Reply, id, payloads.reply.clone());
        let payload = frame.into_payload();
        let bytes = if payload.get(1) == Some(&SMALL) { SMALL_BYTES } else { BULK_BYTES };
        let sent = match payload.first() {
            Some(b'w') => {
                let ticket = link.tx.expect_bulk(id, BULK_BYTES);
                env.spawn("pull", receive(link.tx.clone(), ticket, reply));
                link.tx.send(Frame::new(FrameKind::BulkPull, id, Bytes::new()))
            }
            Some(b'r') => {
                let bulk =
                    link.tx.send(Frame::new(FrameKind::BulkData, id, payloads.data.slice(..bytes)));
                bulk.and_then(|()| link.tx.send(reply))
            }
            _ => link.tx.send(reply),
        };
        if sent.is_err() {
            return;
        }
    }
}

async fn receive(tx: LinkTx, ticket: BulkTicket, reply: Frame) {
    if ticket.await.is_some() {
        // The link may have gone meanwhile; its reader sees that too.
        let _ = tx.send(reply);
    }
}

/// Exchanges per second.
pub(super) fn measure(case: Case, port: u16) -> anyhow::Result<f64> {
    env_os::run(config(case.crc, case.tuning), |env| async move {
        let link = env.connect(None, local(port)).await?;
        let mut client = Client::new(&env, case, link);
        for _ in 0..case.inflight {
            client.request()?;
        }
        let span = Span(u64::try_from(case.span.as_nanos())?);
        let warm = env.now() + Span(span.0 / 10);
        client.exchange_until(warm).await?;
        let (before, started) = (client.done, env.now());
        client.exchange_until(started + span).await?;
        Ok((client.done - before) as f64 / (env.now() - started).as_secs_f64())
    })
}

struct Client {
    env: Env,
    link: Link,
    test: Test,
    request: Bytes,
    data: Bytes,
    arrived: (tokio::sync::mpsc::UnboundedSender<u64>, tokio::sync::mpsc::UnboundedReceiver<u64>),
    next: u64,
    done: u64,
}

impl Client {
    fn new(env: &Env, case: Case, link: Link) -> Client {
        let kind = match case.test {
            Test::Ping => b'p',
            Test::Read => b'r',
            Test::Write => b'w',
        };
        let mut request = vec![kind; REQUEST_BYTES - FRAME_HEADER_BYTES];
        if case.bytes == SMALL_BYTES {
            request[1] = SMALL;
        }
        let arrived = tokio::sync::mpsc::unbounded_channel();
        Client {
            env: env.clone(),
            link,
            test: case.test,
            request: request.into(),
            data: data().slice(..case.bytes),
            arrived,
            next: 0,
            done: 0,
        }
    }

    fn request(&mut self) -> anyhow::Result<()> {
        self.next += 1;
        let id = self.next;
        if self.test == Test::Read {
            let (ticket, arrived) =
                (self.link.tx.expect_bulk(id, BULK_BYTES), self.arrived.0.clone());
            self.env.spawn("read", async move {
                if ticket.await.is_some() {
                    let _ = arrived.send(id); // nobody waits any more at the end of a measurement
                }
            });
        }
        self.link.tx.send(Frame::new(FrameKind::Request, id, self.request.clone()))?;
        Ok(())
    }

    async fn exchange_until(&mut self, end: Instant) -> anyhow::Result<()> {
        let mut turn = 0_u32;
        loop {
            turn += 1;
            if (turn.is_multiple_of(16) || self.test != Test::Ping) && self.env.now() >= end {
                return Ok(());
            }
            let frame =
                self.link.rx.recv().await.ok_or_else(|| anyhow::anyhow!("the link went down"))?;
            if frame.kind == FrameKind::BulkPull {
                self.link.tx.send(Frame::new(FrameKind::BulkData, frame.id, self.data.clone()))?;
                continue;
            }
            if self.test == Test::Read {
                self.arrived.1.recv().await;
            }
            self.done += 1;
            self.request()?;
        }
    }
}
