//! A client that takes no answers: the bytes read for it are bounded, and other clients continue.

use std::rc::Rc;

use crate::common::raw::{Client, ask};
use crate::common::{
    Disk, ON_DISK, Rules, TARGET, Toy, addr, client, increment, node, read, serve_with,
};
use bytes::Bytes;
use env::{Env, Task};
use env_sim::{Sim, SimConfig};
use types::{NidAddr, Span};
use wire::{Opcode, Reply, ReplyFlags, Request, RequestFlags};

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
    check_within(service::limits::ANSWER_BYTES_ALL_MAX, test);
}

/// The same, where the answers of all links may take so much.
fn check_within<F: Future<Output = ()> + 'static>(all: u64, test: impl FnOnce(World) -> F) {
    let sim = Sim::new(11, SimConfig::default());
    let server = node(&sim, "server", 1);
    let (disk, at, env) = (Rc::new(Disk::default()), addr(&server), server.env());
    let (_up, toy) = sim.block_on(&server, async move {
        let rules = Rules::default();
        serve_with(env, at, disk, &rules, |config| config.answer_bytes_max = all).await
    });
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
        self.mute_number(7).await
    }

    async fn mute_number(&self, number: u64) -> Client {
        let client = Client::connect_number(&self.env, self.at, None, number).await;
        for xid in 2..2 + READS {
            client.link.tx.send_message(&read_as(&client, xid)).expect("open");
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

fn read_as(client: &Client, xid: u64) -> Request {
    let mut request = client.request(Opcode::OstRead, xid, ON_DISK, RequestFlags::empty());
    request.header.bulk_len = BYTES as u32;
    request
}

/// The next answer that is not an early one.
async fn next(client: &mut Client) -> Reply {
    loop {
        let frame = client.link.rx.recv().await.expect("open");
        let reply = *Reply::take(frame.into_payload()).expect("well formed");
        if !reply.has(ReplyFlags::EARLY) {
            return reply;
        }
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
            let reply = next(&mut mute).await;
            assert_eq!(reply.errno(), None);
            got += u64::from(reply.buf(1).len() as u64 == BYTES);
        }
        assert_eq!(world.toy.reads.get(), READS);
    });
}

/// Each link has its bound, and a machine may have many.
#[test]
fn all_links_of_an_address_that_take_nothing_leave_room_for_others() {
    const ALL: u64 = 64 << 20;
    check_within(ALL, |world| async move {
        let mut first = world.mute_number(100).await;
        let mut others = Vec::new();
        for number in 101..120 {
            others.push(world.mute_number(number).await);
        }
        let read = world.toy.reads.get() * BYTES;
        assert!(read <= ALL / 4 * 3, "{} MiB", read >> 20);
        let task = world.works();
        world.env.sleep(Span::secs(30)).await;
        assert_eq!(world.toy.executed.get(), 101, "another client is served");
        drop(task);
        let mut busy = 0;
        for _ in 0..READS {
            busy += u64::from(next(&mut first).await.has(ReplyFlags::BUSY));
        }
        assert!(busy >= READS / 2, "{busy} are to come again");
        drop(others);
        for xid in 2 + READS.. {
            let again = read_as(&first, xid);
            let reply = ask(&mut first.link, &again).await;
            if !reply.has(ReplyFlags::BUSY) {
                assert_eq!((reply.errno(), reply.buf(1).len() as u64), (None, BYTES));
                break;
            }
            assert!(xid < 32 + READS, "who takes its answers gets more");
            world.env.sleep(Span::millis(100)).await;
        }
    });
}

#[test]
fn a_change_that_is_put_off_is_executed_once_when_it_comes_again() {
    check_within(3 * BYTES, |world| async move {
        let mut client = Client::connect(&world.env, world.at, None).await;
        for xid in [2, 3] {
            client.link.tx.send_message(&read_as(&client, xid)).expect("open");
        }
        world.env.sleep(Span::secs(1)).await;
        let change = client.request(Opcode::MdtSetattr, 4, 3, RequestFlags::MODIFIES);
        client.link.tx.send_message(&change).expect("open");
        world.env.sleep(Span::secs(1)).await;
        for _ in [2, 3] {
            assert_eq!(next(&mut client).await.errno(), None);
        }
        let put_off = next(&mut client).await;
        assert!(put_off.has(ReplyFlags::BUSY) && put_off.header.lease_ms > 0);
        assert_eq!(world.toy.executed.get(), 0);
        for _ in 0..2 {
            assert_eq!(client.change(4, 3, RequestFlags::RESENT).await.errno(), None);
            assert_eq!(world.toy.executed.get(), 1);
        }
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
