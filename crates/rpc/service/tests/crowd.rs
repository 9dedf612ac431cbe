//! One client asks for more than it is given, and others do not notice. The waiting requests are
//! bounded in bytes, links are read whatever waits, and a client that leaves gives its places back.

use std::cell::Cell;
use std::rc::Rc;

use crate::common::{Disk, Rules, Toy, addr, call, client, increment, node, serve};
use endpoint::Endpoint;
use env::Env;
use env_sim::{Sim, SimConfig};
use params::ParamTree;
use service::{Node, spec};
use types::{NidAddr, Span};
use wire::body::{ConnectRep, ConnectReq};
use wire::{Opcode, Reply, ReplyFlags, Request, encode_body};

use crate::common::TARGET;

/// How long the requests of a flood are worth an answer.
const DEADLINE_MS: u32 = 60_000;

struct World {
    env: Env,
    at: NidAddr,
    up: Rc<Node>,
    toy: Rc<Toy>,
    params: ParamTree,
    others: Vec<Rc<Endpoint>>,
}

/// Runs `test` on the node of the flood (10.0.0.2), beside two clients that go on with their work.
fn check<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F) {
    let sim = Sim::new(11, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (up, toy) =
        sim.block_on(&server, async move { serve(env, at, disk, &Rules::default()).await });
    let flood = node(&sim, "flood", 2);
    let nodes: Vec<_> = (3..5).map(|last| node(&sim, &format!("client{last}"), last)).collect();
    let others = nodes.iter().zip(3..).map(|(node, id)| client(&node.env(), id, at)).collect();
    let params = ParamTree::new();
    up.register_params(&params, &[&spec::MDT, &spec::LDLM_CANCELD, &spec::MGS]);
    let world = World { env: flood.env(), at, up, toy, params, others };
    let future = test(world);
    sim.block_on(&flood, future);
}

impl World {
    fn set(&self, name: &str, value: &str) {
        let answers = self.params.set_now(name, value).expect("it is there");
        answers.into_iter().for_each(|answer| drop(answer.expect("taken")));
    }

    /// Requests of 10.0.0.2 come one a second.
    fn throttle(&self) {
        self.set("mds.MDS.mdt.nrs_policies", "tbf nid");
        self.set("mds.MDS.mdt.nrs_tbf_rule", "start slow nid={10.0.0.2@tcp} rate=1");
    }

    /// How many changes the others make within a second, one after the other.
    async fn rate(&self) -> u64 {
        let (done, until) = (Rc::new(Cell::new(0)), self.env.now() + Span::secs(1));
        for other in &self.others {
            let (remote, done, env) = (other.remote(TARGET), Rc::clone(&done), self.env.clone());
            self.env.spawn("other", async move {
                while env.now() < until {
                    remote.call(increment(4)).await.expect("answered");
                    done.set(done.get() + 1);
                }
            });
        }
        self.env.sleep_until(until).await;
        done.get()
    }

    /// How long it takes to connect and to be answered once.
    async fn newcomer(&self, id: u128) -> Span {
        let begin = self.env.now();
        let other = self.others[0].remote(TARGET);
        other.call(call(Opcode::MdtSync, 0)).await.expect("answered");
        let fresh = client(&self.env, id, self.at);
        // its requests would be throttled: it unlocks
        fresh.remote(TARGET).call(call(Opcode::MdtUnlock, 0)).await.expect("answered");
        self.env.now() - begin
    }

    /// A link with `sessions` that ask for `each` reads, and how many were told to ask again.
    async fn flood(&self, first: u64, sessions: u64, each: u64) -> (env::LinkTx, Rc<Cell<u64>>) {
        let mut link = self.env.connect(None, self.at).await.expect("it listens");
        let mut opened = Vec::new();
        for client in first..first + sessions {
            let body =
                ConnectReq { client_low: client, client_high: 1, tags: 8, ..ConnectReq::default() };
            let mut request = Request::new(Opcode::Connect, vec![encode_body(&body)]);
            (request.header.xid, request.header.target) = (client, TARGET.to_u32());
            link.tx.send(request.to_frame()).expect("open");
            let frame = link.rx.recv().await.expect("an answer");
            let reply = Reply::decode(&frame.into_payload()).expect("a reply");
            opened.push(reply.body::<ConnectRep>());
        }
        let busy = Rc::new(Cell::new(0));
        let (tx, told) = (link.tx.clone(), Rc::clone(&busy));
        self.env.spawn("flood", async move {
            while let Some(frame) = link.rx.recv().await {
                let reply = Reply::decode(&frame.into_payload()).expect("a reply");
                if reply.has(ReplyFlags::BUSY) {
                    assert!(reply.header.lease_ms >= 100, "it says when");
                    told.set(told.get() + 1);
                }
            }
        });
        for xid in 1..=each {
            for session in &opened {
                let mut request = Request::new(Opcode::OstRead, vec![encode_body(&7_u64)]);
                let header = &mut request.header;
                (header.xid, header.target) = (xid << 20, TARGET.to_u32());
                (header.session, header.epoch) = (session.session, session.epoch);
                (header.instance, header.deadline_ms) = (session.instance, DEADLINE_MS);
                tx.send(request.to_frame()).expect("open");
            }
            tx.room().await;
        }
        (tx, busy)
    }

    fn queued(&self) -> u64 {
        self.up.stats()["mdt"].queued
    }

    fn held(&self) -> u64 {
        self.params.get("req_bytes").expect("it is there")[0].value.parse().expect("a number")
    }
}

#[test]
fn a_flood_of_throttled_requests_holds_up_nobody_else() {
    check(|world| async move {
        world.throttle();
        let before = world.rate().await;
        let (link, busy) = world.flood(1, 20, 900).await;
        world.env.sleep(Span::millis(100)).await;
        let queued = world.queued();
        assert!(queued > 17_000, "{queued} wait");
        let during = world.rate().await;
        assert!(during * 100 >= before * 95, "{during} of {before} a second");
        let took = world.newcomer(9).await;
        assert!(took <= Span::millis(50), "{took:?}");
        assert_eq!(busy.get(), 0, "there is room for all");
        assert!(world.held() > queued * 1_024);
        link.close();
        world.env.sleep(Span::millis(50)).await;
        assert_eq!((world.queued(), world.held()), (0, 0), "its places are free");
    });
}

/// What the queue for millions is for: 20 links of 1,000 sessions with 50 requests each.
#[test]
fn a_million_throttled_requests_of_20_000_sessions_hold_up_nobody_else() {
    const LINKS: u64 = 20;
    const SESSIONS: u64 = 1_000;
    const EACH: u64 = 50;
    const ALL: u64 = LINKS * SESSIONS * EACH;
    check(|world| async move {
        world.throttle();
        let before = world.rate().await;
        let mut links = Vec::new();
        for link in 0..LINKS {
            let (tx, busy) = world.flood(1 + link * SESSIONS, SESSIONS, EACH).await;
            links.push((tx, busy));
        }
        world.env.sleep(Span::millis(100)).await;
        let (queued, held) = (world.queued(), world.held());
        // one a second has left meanwhile
        assert!(queued > ALL / 1_000 * 999, "{queued} wait");
        let during = world.rate().await;
        assert!(during * 100 >= before * 95, "{during} of {before} a second");
        let took = world.newcomer(9).await;
        assert!(took <= Span::millis(50), "{took:?}");
        let told: u64 = links.iter().map(|(_, busy)| busy.get()).sum();
        assert_eq!(told, 0, "there is room for all");
        println!(
            "{queued} requests of {} sessions wait, {} MiB; others: {during} of {before} a second, \
             a connect {took:?}",
            LINKS * SESSIONS,
            held >> 20,
        );
        links.iter().for_each(|(link, _)| link.close());
        world.env.sleep(Span::secs(1)).await;
        assert_eq!((world.queued(), world.held()), (0, 0), "its places are free");
    });
}

/// Those that were held back leave in parts, and other tasks run in between.
#[test]
fn a_backlog_that_is_let_go_leaves_others_their_turn() {
    check(|world| async move {
        world.throttle();
        let (_link, _) = world.flood(1, 20, 900).await;
        world.env.sleep(Span::millis(100)).await;
        let (queued, before) = (world.queued(), world.toy.reads.get());
        assert!(queued > 17_000, "{queued} wait");
        let (up, longest) = (Rc::clone(&world.up), Rc::new(Cell::new(0)));
        let seen = Rc::clone(&longest);
        world.env.spawn("another", async move {
            let (mut last, mut turns) = (queued, 0);
            while last > 7_000 && turns < 100_000 {
                turns += 1;
                env::yield_now().await;
                let now = up.stats()["mdt"].queued;
                seen.set(last.saturating_sub(now).max(seen.get()));
                last = now;
            }
        });
        world.up.nrs_select(&spec::MDT, "fifo now").await.expect("fifo");
        world.env.sleep(Span::secs(1)).await;
        assert!(world.toy.reads.get() - before > 17_000, "they have left");
        // the simulator draws the next task: some parts may leave behind each other
        let parts = longest.get() / service::limits::STARTS_MAX as u64;
        assert!(longest.get() > 0 && parts <= 80, "{} in one go", longest.get());
    });
}

#[test]
fn who_asks_for_more_than_there_is_room_for_is_told_when_to_ask_again() {
    check(|world| async move {
        world.throttle();
        let max = 64 << 20;
        world.set("req_bytes_max", &max.to_string());
        let before = world.rate().await;
        let (one, busy) = world.flood(1, 1, 40_000).await;
        let mut links = vec![one];
        world.env.sleep(Span::millis(100)).await;
        let (alone, told) = (world.held(), busy.get());
        assert!(alone <= max / 250 && told + world.queued() >= 39_000, "{alone}, {told}");
        for link in 1..=3 {
            links.push(world.flood(100 * link, 100, 200).await.0);
        }
        assert!(world.held() > max / 4, "{}", world.held());
        assert!(world.held() <= max / 8 * 7, "{}", world.held());
        let during = world.rate().await;
        assert!(during * 100 >= before * 95, "{during} of {before} a second");
        let took = world.newcomer(9).await;
        assert!(took <= Span::millis(50), "{took:?}");
        assert!(world.up.stats()["mdt"].refused > told);
        links.iter().for_each(|link| link.close());
        world.env.sleep(Span::millis(50)).await;
        assert_eq!((world.queued(), world.held()), (0, 0), "its places are free");
    });
}

#[test]
fn a_client_without_room_goes_on_when_there_is_some() {
    check(|world| async move {
        world.set("mds.MDS.mdt.threads_max", "6");
        world.set("mds.MDS.mdt.req_buffers_max", "2");
        let done = Rc::new(Cell::new(0));
        for other in &world.others {
            for _ in 0..50 {
                let (remote, done) = (other.remote(TARGET), Rc::clone(&done));
                world.env.spawn("call", async move {
                    remote.call(increment(4)).await.expect("it is not a failure");
                    done.set(done.get() + 1);
                });
            }
        }
        while done.get() < 100 {
            world.env.sleep(Span::millis(100)).await;
        }
        assert!(world.up.stats()["mdt"].refused > 0);
        assert_eq!(world.toy.running.borrow().counters[&4], 100, "each once");
    });
}

#[test]
fn unlocks_and_the_mgs_pass_every_policy() {
    check(|world| async move {
        world.set("ldlm.services.ldlm_canceld.nrs_policies", "delay");
        world.set("ldlm.services.ldlm_canceld.req_buffers_max", "1");
        world.set("mgs.MGS.mgs.nrs_policies", "delay");
        let took = world.newcomer(9).await;
        assert!(took <= Span::millis(50), "{took:?}");
        let begin = world.env.now();
        let asked = world.others[0].remote(TARGET).call(call(Opcode::MgsConfig, 0)).await;
        assert!(asked.is_err(), "the toy is not an MGS");
        assert!(world.env.now() - begin <= Span::millis(50), "it was asked at once");
    });
}
