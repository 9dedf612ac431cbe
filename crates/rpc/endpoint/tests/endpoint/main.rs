//! An endpoint against a server that follows a script, over the simulated network.

mod callbacks;
mod calls;
mod data;
mod server;
mod sessions;

use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, Endpoint, EndpointConfig, Remote, Resolve};
use env::Env;
use env_sim::{Sim, SimConfig};
use server::Server;
use types::{ClientId, Nid, NidAddr, Span, TargetId, TargetKind};
use wire::Opcode;

const TARGET: TargetId = TargetId { kind: TargetKind::Mdt, index: 0 };

/// Deadline of an attempt.
const ATTEMPT: Span = Span::secs(3);

/// Data up to this size is inline.
const INLINE_BYTES: usize = 1_024;

/// Where the target is, as the configuration says at the moment.
struct Book {
    addrs: RefCell<Vec<NidAddr>>,
    uuid: Cell<u128>,
}

impl Resolve for Book {
    fn addrs(&self, _target: TargetId) -> Vec<NidAddr> {
        self.addrs.borrow().clone()
    }

    fn uuid(&self, _target: TargetId) -> u128 {
        self.uuid.get()
    }
}

struct World {
    env: Env,
    server: Rc<Server>,
    /// Starts another server at this port.
    other: Rc<dyn Fn(u16) -> Rc<Server>>,
    book: Rc<Book>,
    endpoint: Rc<Endpoint>,
    remote: Rc<Remote>,
}

/// Runs `test` as a client of a scripted server.
fn check<F: Future<Output = ()> + 'static>(test: impl FnOnce(World) -> F) {
    check_with(|_| {}, test);
}

/// The same with other settings.
fn check_with<F: Future<Output = ()> + 'static>(
    settings: impl FnOnce(&mut EndpointConfig),
    test: impl FnOnce(World) -> F,
) {
    let sim = Sim::new(5, SimConfig::default());
    let node = |name, last| sim.node(name, Nid::tcp(std::net::Ipv4Addr::new(10, 0, 0, last)));
    let (far, near) = (node("server", 1), node("client", 2));
    let at = NidAddr { nid: far.nid(), port: 988 };
    let server_env = far.env();
    let server = Server::start(&server_env, at);
    let mut config = EndpointConfig {
        import: endpoint::ImportConfig {
            client: ClientId(5),
            name: "client5".to_owned(),
            attempt: ATTEMPT,
            ..Default::default()
        },
        inline_bytes: INLINE_BYTES as u32,
        ..EndpointConfig::default()
    };
    settings(&mut config);
    let book = Rc::new(Book { addrs: RefCell::new(vec![at]), uuid: Cell::new(0) });
    let endpoint = Endpoint::new(&near.env(), config, Rc::clone(&book) as Rc<dyn Resolve>);
    let _lives_until_the_end = Rc::clone(&endpoint); // the future keeps the fields that it uses
    let world = World {
        env: near.env(),
        server,
        other: Rc::new(move |port| Server::start(&server_env, NidAddr { port, ..at })),
        book,
        remote: endpoint.remote(TARGET),
        endpoint,
    };
    sim.block_on(&near, test(world));
}

/// A question.
fn read(key: u64) -> Call {
    Call::new(Opcode::MdtGetattr, vec![Bytes::copy_from_slice(&key.to_le_bytes())])
}

fn change(key: u64) -> Call {
    let body = vec![Bytes::copy_from_slice(&key.to_le_bytes())];
    Call { modifies: true, ..Call::new(Opcode::MdtSetattr, body) }
}

impl World {
    /// Makes a call in a task of its own; its outcome is there once it has one.
    fn begin(
        &self,
        call: Call,
    ) -> Rc<RefCell<Option<Result<endpoint::Answer, endpoint::CallError>>>> {
        let (calling, outcome) = (self.remote.call(call), Rc::default());
        let told: Rc<RefCell<Option<_>>> = Rc::clone(&outcome);
        self.env.spawn("call", async move { *told.borrow_mut() = Some(calling.await) });
        outcome
    }

    async fn pause(&self, ms: u64) {
        self.env.sleep(Span::millis(ms)).await;
    }
}
