//! A client that takes no answers: the bytes read for it are bounded, and other clients continue.

mod common;

use std::rc::Rc;

use bytes::Bytes;
use common::raw::Client;
use common::{Disk, ON_DISK, Rules, TARGET, Toy, addr, client, increment, node, read, serve};
use env::{Env, Task};
use env_sim::{Sim, SimConfig};
use types::{NidAddr, Span};
use wire::{Opcode, Reply, RequestFlags};

const BYTES: u64 = 1 << 20;
const READS: u64 = 512;

/// What may stand in the queue of a link, and be put together beside it.
const BYTES_MAX: u64 = (8 << 20) + service::limits::ANSWER_BYTES_MAX;

struct World {
    env: Env,
    other: Env,
    at: NidAddr,
    toy: Rc<Toy>,
    /// Ends all links of the client that takes nothing.
    reset: Box<dyn Fn()>,
}

/// Runs `test` on the node of the client that takes nothing, beside another one.
fn check<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F) {
    let sim = Sim::new(11, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (_up, toy) =
        sim.block_on(&server, async move { serve(env, at, disk, &Rules::default()).await });
    toy.running.borrow_mut().data.insert(ON_DISK, Bytes::from(vec![7; BYTES as usize]));
    let (mute, other) = (node(&sim, "mute", 2), node(&sim, "other", 3));
    let (net, ends) = (sim.clone(), [mute.clone(), server]);
    let reset = Box::new(move || net.reset_links(&ends[0], &ends[1]));
    let future = test(World { env: mute.env(), other: other.env(), at, toy, reset });
    sim.block_on(&mute, future);
}

impl World {
    /// A client that has asked for all reads, and has had the time to be answered.
    async fn mute(&self) -> Client {
        let client = Client::connect(&self.env, self.at, None).await;
        for xid in 2..2 + READS {
            let mut request = client.request(Opcode::OstRead, xid, ON_DISK, RequestFlags::empty());
            request.header.bulk_len = BYTES as u32;
            client.link.tx.send_message(&request).expect("open");
        }
        self.env.sleep(Span::secs(1)).await;
        client
    }

    /// Another client that reads and changes something, each within a moment.
    fn works(&self) -> Task {
        let (env, at) = (self.other.clone(), self.at);
        self.other.spawn("other", async move {
            let endpoint = client(&env, 9, at);
            let remote = endpoint.remote(TARGET);
            remote.call(increment(3)).await.expect("connected");
            for _ in 0..100 {
                let begin = env.now();
                let answer = remote.call(read(ON_DISK)).await.expect("answered");
                assert_eq!(answer.data.len() as u64, BYTES);
                remote.call(increment(3)).await.expect("answered");
                let took = env.now() - begin;
                assert!(took < Span::millis(100), "{} ms", took.as_millis());
            }
        })
    }
}

#[test]
fn what_is_read_for_a_client_that_takes_nothing_is_bounded_in_bytes() {
    check(|world| async move {
        let _mute = world.mute().await;
        let read = world.toy.reads.get() * BYTES;
        assert!(read <= BYTES_MAX + BYTES, "{} MiB", read >> 20);
        world.env.sleep(Span::secs(60)).await;
        assert_eq!(world.toy.reads.get() * BYTES, read, "no more with time");
    });
}

#[test]
fn others_read_and_change_while_a_client_takes_nothing() {
    check(|world| async move {
        let _mute = world.mute().await;
        let before = world.toy.executed.get();
        let _task = world.works();
        world.env.sleep(Span::secs(30)).await;
        assert_eq!(world.toy.executed.get() - before, 101);
    });
}

#[test]
fn who_takes_answers_again_gets_all_of_them() {
    check(|world| async move {
        let mut mute = world.mute().await;
        let mut got = 0;
        while got < READS {
            let frame = mute.link.rx.recv().await.expect("open");
            let reply = Reply::take(frame.into_payload()).expect("well formed");
            if reply.has(wire::ReplyFlags::EARLY) {
                continue;
            }
            assert_eq!(reply.errno(), None);
            got += u64::from(reply.buf(1).len() as u64 == BYTES);
        }
        assert_eq!(world.toy.reads.get(), READS);
    });
}

/// What waits for a link that is gone is not read for nobody, and stands in nobody's way.
#[test]
fn a_link_that_ends_frees_what_waited_for_it() {
    check(|world| async move {
        let _mute = world.mute().await;
        let read = world.toy.reads.get();
        (world.reset)();
        world.env.sleep(Span::secs(1)).await;
        assert_eq!(world.toy.reads.get(), read);
        let mut again = Client::connect_as(&world.env, world.at, None, "again").await;
        assert_eq!(again.change(2 << 20, 3, RequestFlags::empty()).await.errno(), None);
    });
}
