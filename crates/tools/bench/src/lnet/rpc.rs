//! The whole way of a request: endpoint, link, service, target, and back.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Bulk, Call, Endpoint, EndpointConfig, Remote, Resolve};
use env::{CptTable, Env};
use service::{Node, NodeConfig};
use tokio::sync::mpsc;
use types::{ClientId, NidAddr, Span, TargetId};
use wire::body::LstBrwReq;
use wire::{CrcMode, Opcode, encode_body};

use super::link::{config, local};
use super::{BODY_BYTES, BULK_BYTES, Case, LstTarget, Test, server};

fn target() -> TargetId {
    TargetId::ost(0)
}

/// A node with one self-test target.
pub(super) fn serve(crc: CrcMode) -> anyhow::Result<()> {
    env_os::run(config(crc), |env| async move {
        let one = NonZeroU32::MIN;
        let node = Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, false)?));
        node.add_target(LstTarget::new(&env, target()));
        let listener = env.listen(local(0)).await?;
        let port = listener.addr().port;
        let _serving = node.serve(listener);
        server::announce(port)?;
        std::future::pending().await
    })
}

struct At(NidAddr);

impl Resolve for At {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

/// Calls per second.
pub(super) fn measure(case: Case, port: u16) -> anyhow::Result<f64> {
    env_os::run(config(case.crc), |env| async move {
        let identity = (u128::from(env.random()) << 64) | u128::from(env.random());
        let settings = EndpointConfig {
            client: ClientId(identity),
            name: "bench".to_owned(),
            rpcs_in_flight: case.inflight,
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(&env, settings, Rc::new(At(local(port))));
        let rate = load(&env, case, &endpoint.remote(target())).await;
        endpoint.shutdown().await;
        rate
    })
}

async fn load(env: &Env, case: Case, remote: &Rc<Remote>) -> anyhow::Result<f64> {
    let state = Rc::new(State { done: Cell::new(0), stop: Cell::new(false), call: call(case.test) });
    remote.call(state.call.clone()).await?;
    let (ended, mut end) = mpsc::unbounded_channel();
    for _ in 0..case.inflight {
        let (state, remote, ended) = (Rc::clone(&state), Rc::clone(remote), ended.clone());
        env.spawn("load", async move {
            // The receiver waits for every loop; it is gone only when the measurement failed.
            let _ = ended.send(repeat(&state, &remote).await);
        });
    }
    drop(ended);
    let span = Span(u64::try_from(case.span.as_nanos())?);
    env.sleep(Span(span.0 / 10)).await;
    let (before, started) = (state.done.get(), env.now());
    env.sleep(span).await;
    let rate = (state.done.get() - before) as f64 / (env.now() - started).as_secs_f64();
    state.stop.set(true);
    while let Some(result) = end.recv().await {
        result?;
    }
    Ok(rate)
}

struct State {
    done: Cell<u64>,
    stop: Cell<bool>,
    call: Call,
}

async fn repeat(state: &State, remote: &Rc<Remote>) -> anyhow::Result<()> {
    let sink = matches!(state.call.bulk, Bulk::Sink(_));
    while !state.stop.get() {
        let answer = remote.call(state.call.clone()).await?;
        anyhow::ensure!(!sink || answer.data.len() == BULK_BYTES, "{} bytes came", answer.data.len());
        state.done.set(state.done.get() + 1);
    }
    Ok(())
}

fn call(test: Test) -> Call {
    let brw = |write| {
        let mut body: LstBrwReq = wire::decode_body(&[]);
        (body.length, body.write) = (BULK_BYTES as u32, write);
        encode_body(&body)
    };
    match test {
        Test::Ping => Call::new(Opcode::LstPing, vec![Bytes::from(vec![7; BODY_BYTES])]),
        Test::Read => Call { bulk: Bulk::Sink(BULK_BYTES), ..Call::new(Opcode::LstBrw, vec![brw(0)]) },
        Test::Write => {
            let data = Bytes::from(vec![7; BULK_BYTES]);
            Call { bulk: Bulk::Source(vec![data]), ..Call::new(Opcode::LstBrw, vec![brw(1)]) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Errno;

    fn brw(write: u32, check: u32) -> Bytes {
        let mut body: LstBrwReq = wire::decode_body(&[]);
        (body.length, body.write, body.check) = (BULK_BYTES as u32, write, check);
        encode_body(&body)
    }

    #[test]
    fn a_target_answers_pings_and_sends_and_checks_patterns() {
        env_os::run(config(CrcMode::All), |env| async move {
            let listener = env.listen(NidAddr { nid: types::Nid::LO, port: 0 }).await.expect("free");
            let at = At(listener.addr());
            let one = NonZeroU32::MIN;
            let node = Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, false).expect("one")));
            node.add_target(LstTarget::new(&env, target()));
            let _serving = node.serve(listener);
            let settings = EndpointConfig { client: ClientId(9), ..EndpointConfig::default() };
            let endpoint = Endpoint::new(&env, settings, Rc::new(at));
            let remote = endpoint.remote(target());
            let call = |body, bulk| Call { bulk, ..Call::new(Opcode::LstBrw, vec![body]) };

            let pong = remote.call(super::call(Test::Ping)).await.expect("answered");
            assert_eq!(pong.reply.buf(0), vec![7; BODY_BYTES]);
            let read = remote.call(call(brw(0, 0), Bulk::Sink(BULK_BYTES))).await.expect("answered");
            assert_eq!(read.data.len(), BULK_BYTES);
            let good = Bulk::Source(vec![read.data.clone()]);
            remote.call(call(brw(1, 2), good)).await.expect("what was read is the pattern");
            let bad = Bulk::Source(vec![Bytes::from(vec![0; BULK_BYTES])]);
            let refused = remote.call(call(brw(1, 1), bad)).await.map(|_| ());
            assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::EIO));
        });
    }
}
