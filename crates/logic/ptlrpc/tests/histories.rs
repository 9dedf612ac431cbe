//! Random histories of two clients and a server that restarts, without I/O. Messages are lost,
//! repeated and reordered, links break, the server forgets everything that it had not committed. In
//! every history
//! - every change takes effect once, and acknowledged changes stay,
//! - a tag names one unanswered request,
//! - the history after a restart is the history before it.

#[path = "histories/client.rs"]
mod client;
#[path = "histories/server.rs"]
mod server;

use client::Client;
use proptest::prelude::*;
use server::Server;
use types::{Instant, Span};
use wire::{Reply, Request};

/// Rounds in which a healed world must come to rest.
const ROUNDS_MAX: usize = 20_000;

#[derive(Clone, Copy, Debug)]
enum Step {
    Change(u8),
    Read(u8),
    Deliver(u8),
    Lose(u8),
    Repeat(u8),
    Break(u8),
    Wait(u16),
    Commit,
    Restart,
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        12 => any::<u8>().prop_map(Step::Change),
        2 => any::<u8>().prop_map(Step::Read),
        30 => any::<u8>().prop_map(Step::Deliver),
        3 => any::<u8>().prop_map(Step::Lose),
        3 => any::<u8>().prop_map(Step::Repeat),
        1 => any::<u8>().prop_map(Step::Break),
        5 => (0_u16..4_000).prop_map(Step::Wait),
        2 => Just(Step::Commit),
        1 => Just(Step::Restart),
    ]
}

/// A message under way, on the link that its client had at the time.
#[derive(Clone)]
enum Message {
    Asked { client: usize, link: u32, request: Request },
    Told { client: usize, link: u32, reply: Reply },
}

struct World {
    now: Instant,
    clients: Vec<Client>,
    server: Server,
    network: Vec<Message>,
    submitted: u64,
}

impl World {
    fn new() -> World {
        let now = Instant(1_000_000_000);
        let clients = (0..2).map(|id| Client::new(id, now)).collect();
        World { now, clients, server: Server::new(), network: Vec::new(), submitted: 0 }
    }

    fn pick(&self, pick: u8) -> Option<usize> {
        (!self.network.is_empty()).then(|| usize::from(pick) % self.network.len())
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Change(client) => {
                self.submitted += 1;
                self.clients[usize::from(client) % 2].change(self.submitted, self.now);
            }
            Step::Read(client) => self.clients[usize::from(client) % 2].read(self.now),
            Step::Deliver(pick) => {
                if let Some(at) = self.pick(pick) {
                    let message = self.network.remove(at);
                    self.deliver(message);
                }
            }
            Step::Lose(pick) => {
                if let Some(at) = self.pick(pick) {
                    self.network.remove(at);
                }
            }
            Step::Repeat(pick) => {
                if let Some(at) = self.pick(pick) {
                    let again = self.network[at].clone();
                    self.network.push(again);
                }
            }
            Step::Break(client) => self.break_link(usize::from(client) % 2),
            Step::Wait(millis) => self.now = self.now + Span::millis(millis.into()),
            Step::Commit => self.server.commit(),
            Step::Restart => self.restart(),
        }
        self.pump();
    }

    fn deliver(&mut self, message: Message) {
        match message {
            Message::Asked { client, link, request } => {
                self.server.handle(client, link, &request, self.now)
            }
            Message::Told { client, link, reply } => {
                self.clients[client].handle(link, reply, self.now)
            }
        }
    }

    /// What the server sent on it is lost; what the client sent may still arrive, late.
    fn break_link(&mut self, client: usize) {
        self.clients[client].break_link(self.now);
        self.server.break_link(client, self.now);
        self.network.retain(
            |message| !matches!(message, Message::Told { client: to, .. } if *to == client),
        );
    }

    fn restart(&mut self) {
        self.network.clear();
        self.server.restart();
        self.clients.iter_mut().for_each(|client| client.break_link(self.now));
    }

    fn pump(&mut self) {
        self.server.pump(self.now);
        for (id, client) in self.clients.iter_mut().enumerate() {
            let asked = client.pump(self.now);
            let link = client.link();
            self.network.extend(asked.into_iter().map(|request| Message::Asked {
                client: id,
                link,
                request,
            }));
        }
        let told = self.server.take_replies();
        self.network.extend(told.into_iter().map(|(client, link, reply)| Message::Told {
            client,
            link,
            reply,
        }));
    }

    /// Nothing is lost any more, until nobody waits and everything is durable.
    fn heal(&mut self) {
        for round in 0..ROUNDS_MAX {
            if let Some(message) = (!self.network.is_empty()).then(|| self.network.remove(0)) {
                self.deliver(message);
            } else if self.clients.iter().all(Client::is_idle) {
                return;
            } else {
                self.now = self.now + Span::millis(100);
                if round % 10 == 0 {
                    self.server.commit();
                }
            }
            self.pump();
        }
        panic!("the world does not come to rest");
    }

    fn check(&self) {
        let all: Vec<u64> = (1..=self.submitted).collect();
        let mut acknowledged: Vec<u64> =
            self.clients.iter().flat_map(Client::acknowledged).collect();
        acknowledged.sort_unstable();
        assert_eq!(acknowledged, all, "every change is acknowledged, once");
        let mut done = self.server.changes();
        done.sort_unstable();
        assert_eq!(done, all, "every change took effect, once");
    }
}

proptest! {
    #![proptest_config(ProptestConfig { max_shrink_iters: 20_000, ..ProptestConfig::default() })]

    #[test]
    fn every_change_takes_effect_once_whatever_happens(steps in prop::collection::vec(step(), 1..250)) {
        let mut world = World::new();
        for step in steps {
            world.step(step);
        }
        world.heal();
        world.check();
    }
}
