//! Links alone: frames of a ping's size, without what endpoint and service do.

use bytes::Bytes;
use env_os::OsConfig;
use types::{Nid, NidAddr, Span};
use wire::{CrcMode, FRAME_HEADER_BYTES, Frame, FrameKind};

use super::{Case, REPLY_BYTES, REQUEST_BYTES, server};

/// `port` of this machine.
pub(super) fn local(port: u16) -> NidAddr {
    NidAddr { nid: Nid::tcp(std::net::Ipv4Addr::LOCALHOST), port }
}

pub(super) fn config(crc: CrcMode) -> OsConfig {
    OsConfig { crc, ..OsConfig::default() }
}

/// Answers every request on every link.
pub(super) fn serve(crc: CrcMode) -> anyhow::Result<()> {
    env_os::run(config(crc), |env| async move {
        let mut listener = env.listen(local(0)).await?;
        server::announce(listener.addr().port)?;
        loop {
            let mut link = listener.accept().await?;
            let payload = Bytes::from(vec![2; REPLY_BYTES - FRAME_HEADER_BYTES]);
            env.spawn("echo", async move {
                while let Some(frame) = link.rx.recv().await {
                    if link.tx.send(Frame::new(FrameKind::Reply, frame.id, payload.clone())).is_err() {
                        return;
                    }
                }
            });
        }
    })
}

/// Pings per second.
pub(super) fn measure(case: Case, port: u16) -> anyhow::Result<f64> {
    env_os::run(config(case.crc), |env| async move {
        let mut link = env.connect(None, local(port)).await?;
        let payload = Bytes::from(vec![1; REQUEST_BYTES - FRAME_HEADER_BYTES]);
        let ping = |id| link.tx.send(Frame::new(FrameKind::Request, id, payload.clone()));
        for id in 0..case.inflight {
            ping(u64::from(id))?;
        }
        let span = Span(u64::try_from(case.span.as_nanos())?);
        let warm = env.now() + Span(span.0 / 10);
        let end = warm + span;
        let (mut done, mut started) = (0_u64, env.now());
        loop {
            let frame = link.rx.recv().await.ok_or_else(|| anyhow::anyhow!("the link went down"))?;
            ping(frame.id)?;
            done += 1;
            if !done.is_multiple_of(16) {
                continue;
            }
            let now = env.now();
            if now >= end {
                return Ok(done as f64 / (now - started).as_secs_f64());
            }
            if started < warm && now >= warm {
                (done, started) = (0, now);
            }
        }
    })
}
