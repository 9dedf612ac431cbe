//! LNet credits: how many messages may be under way to one peer, and from one interface to all of
//! them.
//!
//! A message takes a credit of its peer, then one of its interface. If there is none, it waits in
//! the queue of that stage. When the message is done, both credits come back in reverse order, each
//! to the head of its queue. So a peer that takes nothing holds `peer_credits` messages of an
//! interface and no more.
//!
//! Invariants
//! - Messages of a peer leave in the order in which they came.
//! - A peer has at most `peer_credits` messages under way, an interface at most its share of
//!   `credits`.
//! - A counter below zero is the length of its queue; a queue holds messages only while its counter
//!   is below zero. So nothing waits while there is a credit for it.
//!
//! Pure: no clock, no socket. Lustre: `lnet_post_send_locked`, `lnet_return_tx_credits_locked`.

use std::collections::{BTreeMap, VecDeque};

/// Counter of one stage.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Level {
    /// Credits while nothing is under way.
    pub max: i64,
    /// Credits now; below zero, how many messages wait.
    pub now: i64,
    /// Lowest value since the start; below zero it is the longest queue.
    pub min: i64,
}

impl Level {
    fn new(max: u32) -> Level {
        let max = i64::from(max.max(1));
        Level { max, now: max, min: max }
    }

    /// Takes a credit; whether there was one.
    fn take(&mut self) -> bool {
        self.now -= 1;
        self.min = self.min.min(self.now);
        self.now >= 0
    }

    /// Gives `count` back for which nobody waits.
    fn give_all(&mut self, count: usize) {
        self.now += i64::try_from(count).expect("messages of one queue are counted in memory");
        assert!(self.now <= self.max, "a credit comes back once");
    }

    /// Gives one back; whether somebody waits for it.
    fn give(&mut self) -> bool {
        self.now += 1;
        assert!(self.now <= self.max, "a credit comes back once");
        self.now <= 0
    }
}

struct Interface<K, M> {
    level: Level,
    waiting: VecDeque<(K, Message<M>)>,
}

struct Peer<M> {
    interface: usize,
    level: Level,
    waiting: VecDeque<Message<M>>,
    /// Of all messages that are not done.
    bytes: usize,
}

struct Message<M> {
    what: M,
    bytes: usize,
}

/// Credits of one node: its interface as seen from each CPT, and its peers.
pub struct Credits<K, M> {
    interfaces: Vec<Interface<K, M>>,
    peers: BTreeMap<K, Peer<M>>,
}

/// `credits` of an interface as each of `cpts` partitions sees them.
#[must_use]
pub fn share_of_cpt(credits: u32, peer_credits: u32, cpts: u32) -> u32 {
    credits.min((credits / cpts.max(1)).max(peer_credits.saturating_mul(8)))
}

impl<K: Copy + Ord, M> Credits<K, M> {
    /// Interfaces of `credits` each, one per partition; no peers yet.
    #[must_use]
    pub fn new(cpts: u32, credits: u32) -> Credits<K, M> {
        let interface = |_| Interface { level: Level::new(credits), waiting: VecDeque::new() };
        Credits { interfaces: (0..cpts.max(1)).map(interface).collect(), peers: BTreeMap::new() }
    }

    /// Makes a peer known, of partition `cpt`; one that is known keeps what it has.
    pub fn add_peer(&mut self, peer: K, cpt: u32, credits: u32) {
        let interface = cpt as usize % self.interfaces.len();
        let fresh =
            || Peer { interface, level: Level::new(credits), waiting: VecDeque::new(), bytes: 0 };
        self.peers.entry(peer).or_insert_with(fresh);
    }

    /// Forgets a peer that has nothing under way; whether it did.
    pub fn remove_peer(&mut self, peer: K) -> bool {
        let idle = self.peers.get(&peer).is_some_and(|peer| peer.level.now == peer.level.max);
        idle && self.peers.remove(&peer).is_some()
    }

    /// A message for `peer`: whether it goes now. If not, `what` names it while it waits.
    ///
    /// # Panics
    /// When the peer is not known.
    pub fn send(&mut self, peer: K, what: impl FnOnce() -> M, bytes: usize) -> bool {
        let state =
            self.peers.get_mut(&peer).expect("a peer is made known before messages go to it");
        state.bytes += bytes;
        if !state.level.take() {
            state.waiting.push_back(Message { what: what(), bytes });
            return false;
        }
        let interface = &mut self.interfaces[state.interface];
        let goes = interface.level.take();
        if !goes {
            interface.waiting.push_back((peer, Message { what: what(), bytes }));
        }
        goes
    }

    /// [`Credits::complete`] of each of `messages`, by its bytes: one step where nobody waits.
    pub fn complete_all(&mut self, peer: K, messages: &[usize], go: &mut Vec<M>) {
        let state = self.peers.get_mut(&peer).expect("a peer with messages under way is known");
        let interface = &mut self.interfaces[state.interface];
        if state.waiting.is_empty() && interface.waiting.is_empty() {
            state.bytes -= messages.iter().sum::<usize>();
            state.level.give_all(messages.len());
            interface.level.give_all(messages.len());
            return;
        }
        messages.iter().for_each(|bytes| self.complete(peer, *bytes, go));
    }

    /// A message of `bytes` that went to `peer` is done; those that go now in its place are added
    /// to `go`.
    pub fn complete(&mut self, peer: K, bytes: usize, go: &mut Vec<M>) {
        let state = self.peers.get_mut(&peer).expect("a peer with messages under way is known");
        state.bytes -= bytes;
        let interface = &mut self.interfaces[state.interface];
        if interface.level.give() {
            let (_, message) =
                interface.waiting.pop_front().expect("a level at or below zero has had waiters");
            go.push(message.what);
        }
        self.give_to_peer(peer, go);
    }

    /// Takes back waiting messages for `peer` that `is` says; how many, and their bytes. Others
    /// that go now, because they stood behind, are added to `go`.
    pub fn withdraw(
        &mut self,
        peer: K,
        is: impl Fn(&M) -> bool,
        go: &mut Vec<M>,
    ) -> (usize, usize) {
        let Some(state) = self.peers.get_mut(&peer) else { return (0, 0) };
        let (mut count, mut bytes) = (0, 0);
        state.waiting.retain(|message| {
            let goes = is(&message.what);
            if goes {
                state.level.now += 1;
                (count, bytes) = (count + 1, bytes + message.bytes);
            }
            !goes
        });
        let interface = &mut self.interfaces[state.interface];
        let mut held = 0;
        interface.waiting.retain(|(to, message)| {
            let goes = *to == peer && is(&message.what);
            if goes {
                interface.level.now += 1;
                held += 1;
                (count, bytes) = (count + 1, bytes + message.bytes);
            }
            !goes
        });
        state.bytes -= bytes;
        for _ in 0..held {
            self.give_to_peer(peer, go);
        }
        (count, bytes)
    }

    fn give_to_peer(&mut self, peer: K, go: &mut Vec<M>) {
        let state = self.peers.get_mut(&peer).expect("the caller has seen it");
        if !state.level.give() {
            return;
        }
        let message = state.waiting.pop_front().expect("a level at or below zero has had waiters");
        let interface = &mut self.interfaces[state.interface];
        if interface.level.take() {
            go.push(message.what);
        } else {
            interface.waiting.push_back((peer, message));
        }
    }

    /// Of the interface, by partition.
    pub fn interfaces(&self) -> impl Iterator<Item = Level> {
        self.interfaces.iter().map(|interface| interface.level)
    }

    /// Level of each peer, and the bytes of its messages that are not done.
    pub fn peers(&self) -> impl Iterator<Item = (K, Level, usize)> {
        self.peers.iter().map(|(peer, state)| (*peer, state.level, state.bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use types::SplitMix64;

    const PEERS: usize = 5;

    /// What a test sends: for whom, and the how manieth.
    type Sent = (usize, u64);

    struct Rig {
        credits: Credits<usize, Sent>,
        under_way: Vec<Sent>,
        next: [u64; PEERS],
        gone: [u64; PEERS],
    }

    impl Rig {
        fn new(interface: u32, peer_credits: u32) -> Rig {
            let mut credits = Credits::new(1, interface);
            for peer in 0..PEERS {
                credits.add_peer(peer, 0, peer_credits);
            }
            Rig { credits, under_way: Vec::new(), next: [0; PEERS], gone: [0; PEERS] }
        }

        fn send(&mut self, peer: usize) {
            let message = (peer, self.next[peer]);
            self.next[peer] += 1;
            let goes = self.credits.send(peer, || message, 10);
            self.leave(goes.then_some(message));
        }

        fn leave(&mut self, messages: impl IntoIterator<Item = Sent>) {
            for (peer, number) in messages {
                assert_eq!(
                    number, self.gone[peer],
                    "messages of a peer leave in the order they came"
                );
                self.gone[peer] += 1;
                self.under_way.push((peer, number));
            }
        }

        fn complete(&mut self, at: usize) {
            let (peer, _) = self.under_way.swap_remove(at);
            let mut go = Vec::new();
            self.credits.complete(peer, 10, &mut go);
            self.leave(go);
        }

        /// All of a peer's at once.
        fn complete_all(&mut self, peer: usize) {
            let (done, left) =
                self.under_way.drain(..).partition::<Vec<_>, _>(|(to, _)| *to == peer);
            self.under_way = left;
            let mut go = Vec::new();
            self.credits.complete_all(peer, &vec![10; done.len()], &mut go);
            self.leave(go);
        }

        fn check(&self, interface: u32, peer_credits: u32) {
            assert!(self.under_way.len() <= interface as usize);
            let mut waiting = 0;
            for (peer, level, bytes) in self.credits.peers() {
                let under_way = self.under_way.iter().filter(|(to, _)| *to == peer).count();
                assert!(under_way <= peer_credits as usize);
                let all = i64::try_from(self.next[peer] - self.gone[peer]).expect("few")
                    + under_way as i64;
                assert_eq!((level.max - level.now, bytes as i64), (all, all * 10));
                waiting += self.next[peer] - self.gone[peer];
            }
            let short = self.credits.interfaces().any(|level| level.now < 0)
                || self.credits.peers().any(|(_, level, _)| level.now < 0);
            assert!(
                waiting == 0 || (short && !self.under_way.is_empty()),
                "what waits, waits for a message under way"
            );
        }
    }

    #[test]
    fn order_is_kept_credits_are_never_exceeded_and_nothing_sticks() {
        for (seed, (interface, peer_credits)) in
            [(1, 1), (2, 8), (8, 2), (3, 3), (256, 8)].into_iter().enumerate()
        {
            let mut chance = SplitMix64::new(seed as u64);
            let mut rig = Rig::new(interface, peer_credits);
            for _ in 0..5_000 {
                if rig.under_way.is_empty() || chance.below(100) < 52 {
                    rig.send(chance.below(PEERS as u64) as usize);
                } else if chance.below(8) == 0 {
                    rig.complete_all(chance.below(PEERS as u64) as usize);
                } else {
                    let at = chance.below(rig.under_way.len() as u64) as usize;
                    rig.complete(at);
                }
                rig.check(interface, peer_credits);
            }
            while !rig.under_way.is_empty() {
                rig.complete(0);
                rig.check(interface, peer_credits);
            }
            assert_eq!(rig.next, rig.gone, "everything has left");
            assert!(
                rig.credits.peers().all(|(_, level, bytes)| level.now == level.max && bytes == 0)
            );
            assert!(
                rig.credits
                    .interfaces()
                    .all(|level| level.now == level.max && level.min <= level.max)
            );
        }
    }

    #[test]
    fn a_peer_that_takes_nothing_leaves_the_interface_to_the_others() {
        let mut rig = Rig::new(16, 8);
        for _ in 0..100 {
            rig.send(0);
        }
        for _ in 0..8 {
            rig.send(1);
        }
        assert_eq!(rig.gone[..2], [8, 8]);
        let levels: Vec<_> =
            rig.credits.peers().map(|(_, level, _)| (level.now, level.min)).collect();
        assert_eq!(levels[..3], [(-92, -92), (0, 0), (8, 8)]);
    }

    #[test]
    fn a_closing_link_gives_its_credits_back() {
        for (interface, peer_credits) in [(2, 8), (8, 2), (1, 1)] {
            let mut rig = Rig::new(interface, peer_credits);
            for _ in 0..20 {
                rig.send(0);
                rig.send(1);
            }
            let mut go = Vec::new();
            let (count, bytes) = rig.credits.withdraw(0, |_| true, &mut go);
            let under_way = rig.under_way.iter().filter(|(peer, _)| *peer == 0).count();
            assert_eq!((count + under_way, bytes), (20, count * 10));
            rig.leave(go);
            rig.gone[0] = 20;
            while let Some(at) = rig.under_way.iter().position(|(peer, _)| *peer == 0) {
                rig.complete(at);
            }
            assert!(
                rig.credits.remove_peer(0),
                "{interface} {peer_credits}: all its credits are back"
            );
            while !rig.under_way.is_empty() {
                rig.complete(0);
            }
            assert_eq!(rig.gone[1], 20, "the other peer goes on");
        }
    }

    #[test]
    fn an_interface_is_shared_out_over_partitions() {
        assert_eq!(
            [(1, 8), (4, 8), (8, 8), (64, 8), (4, 64)]
                .map(|(cpts, peer)| share_of_cpt(256, peer, cpts)),
            [256, 64, 64, 64, 256]
        );
    }
}
