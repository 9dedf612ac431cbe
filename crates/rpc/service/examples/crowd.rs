//! The cost of a server that holds 1,000,000 throttled requests of 20,000 sessions:
//! `cargo run --profile ci -p service --example crowd [SESSIONS [EACH]]`.
//!
//! Time is simulated, memory and CPU are not. The example prints a request's resident bytes, its
//! bytes according to `req_bytes`, and the CPU time of a minute with early replies to all.

#[path = "../tests/common/mod.rs"]
mod common;

use std::io::Write;
use std::rc::Rc;

use common::{Disk, Rules, TARGET, addr, client, increment, node, serve};
use env::{Env, LinkTx};
use env_sim::{Sim, SimConfig};
use params::ParamTree;
use service::spec;
use types::{NidAddr, Span};
use wire::body::{ConnectRep, ConnectReq};
use wire::{Opcode, Reply, Request, encode_body};

/// Sessions of one link.
const LINK_SESSIONS: u64 = 1_000;

fn resident() -> u64 {
    let text = std::fs::read_to_string("/proc/self/statm").expect("Linux");
    let pages = text.split(' ').nth(1).and_then(|pages| pages.parse::<u64>().ok());
    pages.expect("a number") * 4_096
}

fn cpu() -> Span {
    let text = std::fs::read_to_string("/proc/thread-self/schedstat").expect("Linux");
    Span(text.split_whitespace().next().and_then(|ns| ns.parse().ok()).expect("a number"))
}

fn say(line: &str) {
    writeln!(std::io::stdout(), "{line}").expect("stdout");
}

/// Opens sessions over one link and asks `each` of them for `each` reads; answers are thrown away.
async fn crowd(env: &Env, at: NidAddr, first: u64, sessions: u64, each: u64) -> LinkTx {
    let mut link = env.connect(None, at).await.expect("it listens");
    let mut opened = Vec::new();
    for client in first..first + sessions {
        let body =
            ConnectReq { client_low: client, client_high: 1, tags: 8, ..ConnectReq::default() };
        let mut request = Request::new(Opcode::Connect, vec![encode_body(&body)]);
        (request.header.xid, request.header.target) = (client, TARGET.to_u32());
        link.tx.send(request.to_frame()).expect("open");
        let frame = link.rx.recv().await.expect("an answer");
        opened.push(Reply::decode(&frame.into_payload()).expect("a reply").body::<ConnectRep>());
    }
    let tx = link.tx.clone();
    env.spawn("answers", async move { while link.rx.recv().await.is_some() {} });
    for xid in 1..=each {
        for session in &opened {
            let mut request = Request::new(Opcode::OstRead, vec![encode_body(&7_u64)]);
            let header = &mut request.header;
            (header.xid, header.target) = (xid << 20, TARGET.to_u32());
            (header.session, header.epoch) = (session.session, session.epoch);
            (header.instance, header.deadline_ms) = (session.instance, 30_000);
            tx.send(request.to_frame()).expect("open");
        }
        tx.room().await;
    }
    tx
}

fn main() {
    let mut args = std::env::args().skip(1).map(|arg| arg.parse::<u64>().expect("a number"));
    let (sessions, each) = (args.next().unwrap_or(20_000), args.next().unwrap_or(50));
    let sim = Sim::new(1, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (up, _toy) =
        sim.block_on(&server, async move { serve(env, at, disk, &Rules::default()).await });
    let params = ParamTree::new();
    up.register_params(&params, &[&spec::MDT]);
    let set = |name: &str, value: &str| drop(params.set_now(name, value).expect("it is there"));
    set("mds.MDS.mdt.nrs_policies", "tbf nid");
    set("mds.MDS.mdt.nrs_tbf_rule", "start slow nid={10.0.0.2@tcp} rate=1");
    let (flood, near) = (node(&sim, "flood", 2), node(&sim, "near", 3));
    let (env, before) = (flood.env(), resident());
    let _links = sim.block_on(&flood, async move {
        let mut links = Vec::new();
        for first in (0..sessions).step_by(LINK_SESSIONS as usize) {
            let some = LINK_SESSIONS.min(sessions - first);
            links.push(crowd(&env, at, 1 + first, some, each).await);
        }
        env.sleep(Span::secs(1)).await;
        links
    });
    let queued = up.stats()["mdt"].queued.max(1);
    let told = params.get("req_bytes").expect("it is there")[0].value.clone();
    say(&format!("{queued} requests of {sessions} sessions wait, req_bytes {told}"));
    say(&format!("{} resident bytes a request", (resident() - before) / queued));
    let (env, start) = (near.env(), cpu());
    let other = client(&env, 7, at);
    let remote = other.remote(TARGET);
    let slowest = sim.block_on(&near, async move {
        let (until, mut slowest) = (env.now() + Span::secs(60), Span::ZERO);
        while env.now() < until {
            let begin = env.now();
            remote.call(increment(3)).await.expect("answered");
            slowest = slowest.max(env.now() - begin);
            env.sleep(Span::millis(10)).await;
        }
        slowest
    });
    let spent = Span(cpu().0 - start.0);
    say(&format!("a minute with them takes {} ms of CPU", spent.as_millis()));
    say(&format!("another client's slowest change took {} us", slowest.0 / 1_000));
}
