//! The whole path of a request: endpoint, link, service, target, and back.

use std::cell::Cell;
use std::num::NonZeroU32;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Bulk, Call, Endpoint, EndpointConfig, Remote, Resolve};
use env::{CptTable, Env};
use selftest::{SelfTest, SelfTestConfig};
use service::{Node, NodeConfig};
use tokio::sync::mpsc;
use types::{ClientId, NidAddr, Span, TargetId};
use wire::body::{LstBrwReq, LstPing};
use wire::{CrcMode, Opcode, encode_body};

use super::link::{config, local};
use super::{Case, Test, Tuning, server};

fn target() -> TargetId {
    TargetId::LST
}

/// A node with one self-test target.
pub(super) fn serve(crc: CrcMode, tuning: Tuning) -> anyhow::Result<()> {
    env_os::run(config(crc, tuning), |env| async move {
        let one = NonZeroU32::MIN;
        let node = Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, false)?));
        node.add_target(SelfTest::new(&env, SelfTestConfig { nid: None, is_open: true }));
        let listener = env.listen(local(0)).await?;
        let port = listener.addr().port;
        let _serving = node.serve(listener);
        server::announce(port)?;
        std::future::pending().await
    })
}

pub(super) struct At(pub(super) NidAddr);

impl Resolve for At {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        vec![self.0]
    }
}

/// Calls per second.
pub(super) fn measure(case: Case, port: u16) -> anyhow::Result<f64> {
    env_os::run(config(case.crc, case.tuning), |env| async move {
        let identity = (u128::from(env.random()) << 64) | u128::from(env.random());
        let settings = EndpointConfig {
            import: endpoint::ImportConfig {
                client: ClientId(identity),
                name: "bench".to_owned(),
                rpcs_in_flight: case.inflight,
                ..Default::default()
            },
            inline_bytes: 0,                  // every transfer has its bulk phase
            unstable_bytes_max: u64::MAX / 2, // nothing is kept once it is answered
            ..EndpointConfig::default()
        };
        let endpoint = Endpoint::new(&env, settings, Rc::new(At(local(port))));
        let rate = load(&env, case, &endpoint.remote(target())).await;
        endpoint.shutdown().await;
        rate
    })
}

async fn load(env: &Env, case: Case, remote: &Rc<Remote>) -> anyhow::Result<f64> {
    let state = Rc::new(State {
        done: Cell::new(0),
        stop: Cell::new(false),
        call: call(case.test, case.bytes),
    });
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
    let wanted = if let Bulk::Sink(len) = state.call.bulk { len } else { 0 };
    while !state.stop.get() {
        let answer = remote.call(state.call.clone()).await?;
        anyhow::ensure!(answer.data.len() == wanted, "{} bytes came", answer.data.len());
        state.done.set(state.done.get() + 1);
    }
    Ok(())
}

pub(super) fn call(test: Test, bytes: usize) -> Call {
    let brw =
        |write| encode_body(&LstBrwReq { length: bytes as u32, write, ..LstBrwReq::default() });
    match test {
        Test::Ping => Call::new(
            Opcode::LstPing,
            vec![encode_body(&LstPing { sequence: 7, ..LstPing::default() })],
        ),
        Test::Read => Call { bulk: Bulk::Sink(bytes), ..Call::new(Opcode::LstBrw, vec![brw(0)]) },
        Test::Write => {
            let data = Bytes::from(vec![7; bytes]);
            Call { bulk: Bulk::Source(vec![data]), ..Call::new(Opcode::LstBrw, vec![brw(1)]) }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::Errno;

    const BULK_BYTES: usize = crate::lnet::BULK_BYTES;

    fn brw(write: u32, check: u32) -> Bytes {
        encode_body(&LstBrwReq { length: BULK_BYTES as u32, write, check, ..LstBrwReq::default() })
    }

    #[test]
    fn a_target_answers_pings_and_sends_and_checks_patterns() {
        env_os::run(config(CrcMode::All, Tuning::default()), |env| async move {
            let listener =
                env.listen(NidAddr { nid: types::Nid::LO, port: 0 }).await.expect("free");
            let at = At(listener.addr());
            let one = NonZeroU32::MIN;
            let node =
                Node::new(&env, NodeConfig::new(CptTable::new(one, one, 1, false).expect("one")));
            node.add_target(SelfTest::new(&env, SelfTestConfig { nid: None, is_open: true }));
            let _serving = node.serve(listener);
            let settings = EndpointConfig {
                import: endpoint::ImportConfig { client: ClientId(9), ..Default::default() },
                ..EndpointConfig::default()
            };
            let endpoint = Endpoint::new(&env, settings, Rc::new(at));
            let remote = endpoint.remote(target());
            let call = |body, bulk| Call { bulk, ..Call::new(Opcode::LstBrw, vec![body]) };

            let pong = remote.call(super::call(Test::Ping, 0)).await.expect("answered");
            assert_eq!(pong.reply.body::<LstPing>().sequence, 7);
            let read =
                remote.call(call(brw(0, 0), Bulk::Sink(BULK_BYTES))).await.expect("answered");
            assert_eq!(read.data.len(), BULK_BYTES);
            let good = Bulk::Source(vec![read.data.clone()]);
            remote.call(call(brw(1, 2), good)).await.expect("what was read is the pattern");
            let bad = Bulk::Source(vec![Bytes::from(vec![0; BULK_BYTES])]);
            let refused = remote.call(call(brw(1, 1), bad)).await.map(|_| ());
            assert_eq!(refused.map_err(|error| error.errno()), Err(Errno::EBADMSG));
        });
    }
}
