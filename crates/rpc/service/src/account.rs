//! The account of pulled bytes of one CPT: how much each client may pull, and which clients wait.
//!
//! Invariants
//! - The bytes held are at most the account. A bulk larger than the account takes all of it.
//! - A client that holds something takes at most the room that then remains free. So a client that
//!   takes all it can leaves half of the account, and two leave a third. Another client's first
//!   bulk finds room.
//! - Clients are served in the order in which they asked. Others pass a client that is at its
//!   share. That client has its turn at the latest when it holds nothing any more.
//!
//! A client that does not send its offered data holds its share until its pulls time out.

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::rc::Rc;

use tokio::sync::oneshot;
use types::ClientId;

/// See the head of the file. Counts in units, whatever they are.
#[derive(Clone)]
pub(crate) struct Account(Rc<RefCell<State>>);

/// A part of an account; dropping it gives it back.
pub(crate) struct Share {
    account: Account,
    client: ClientId,
    units: u32,
}

struct State {
    units: u32,
    free: u32,
    held: BTreeMap<ClientId, u32>,
    waiting: VecDeque<Waiter>,
}

struct Waiter {
    client: ClientId,
    units: u32,
    granted: oneshot::Sender<Share>,
}

impl Account {
    pub(crate) fn new(units: u32) -> Account {
        assert!(units > 0, "an account holds something");
        let (held, waiting) = (BTreeMap::new(), VecDeque::new());
        Account(Rc::new(RefCell::new(State { units, free: units, held, waiting })))
    }

    /// Waits until `client` may hold `units` more.
    pub(crate) async fn take(&self, client: ClientId, units: u32) -> Share {
        let units = units.min(self.0.borrow().units);
        if let Some(share) = self.take_at_once(client, units) {
            return share;
        }
        let (granted, wait) = oneshot::channel();
        self.0.borrow_mut().waiting.push_back(Waiter { client, units, granted });
        self.grant();
        wait.await.expect("a waiter stays in the line until it is granted or gives up")
    }

    /// What there is to be had while nobody waits.
    fn take_at_once(&self, client: ClientId, units: u32) -> Option<Share> {
        let mut state = self.0.borrow_mut();
        let may = state.waiting.is_empty()
            && units <= state.free
            && !state.is_at_its_share(client, units);
        may.then(|| {
            state.lend(client, units);
            Share { account: self.clone(), client, units }
        })
    }

    /// Gives out what is free.
    fn grant(&self) {
        while let Some((waiter, share)) = self.next() {
            // who gave up meanwhile gives its share back at once
            let _gave_up = waiter.send(share);
        }
    }

    fn next(&self) -> Option<(oneshot::Sender<Share>, Share)> {
        let mut state = self.0.borrow_mut();
        state.waiting.retain(|waiter| !waiter.granted.is_closed());
        let at = state
            .waiting
            .iter()
            .position(|waiter| !state.is_at_its_share(waiter.client, waiter.units))?;
        if state.waiting[at].units > state.free {
            return None; // it is next, and nobody passes it
        }
        let Waiter { client, units, granted } = state.waiting.remove(at)?;
        state.lend(client, units);
        Some((granted, Share { account: self.clone(), client, units }))
    }
}

impl State {
    fn is_at_its_share(&self, client: ClientId, units: u32) -> bool {
        let held = self.held.get(&client).copied().unwrap_or_default();
        held > 0 && held.saturating_add(units) > self.free
    }

    fn lend(&mut self, client: ClientId, units: u32) {
        self.free -= units;
        *self.held.entry(client).or_default() += units;
    }

    fn give_back(&mut self, client: ClientId, units: u32) {
        self.free += units;
        assert!(self.free <= self.units, "what is given back was taken");
        let held = self.held.get_mut(&client).expect("who holds a share is known");
        *held -= units;
        if *held == 0 {
            self.held.remove(&client);
        }
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.account.0.borrow_mut().give_back(self.client, self.units);
        self.account.grant();
    }
}

#[cfg(test)]
mod tests {
    use std::future::Future;
    use std::pin::Pin;
    use std::task::{Context, Poll, Waker};

    use super::*;

    type Asked = Pin<Box<dyn Future<Output = Share>>>;

    /// Asks; the share, or who waits for it.
    fn ask(account: &Account, client: u128, units: u32) -> Result<Share, Asked> {
        let account = account.clone();
        let mut asked: Asked = Box::pin(async move { account.take(ClientId(client), units).await });
        look(&mut asked).ok_or(asked)
    }

    fn look(asked: &mut Asked) -> Option<Share> {
        match asked.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
            Poll::Ready(share) => Some(share),
            Poll::Pending => None,
        }
    }

    /// Bulks of one unit that `client` gets, one after another.
    fn all(account: &Account, client: u128) -> (Vec<Share>, Asked) {
        let mut shares = Vec::new();
        loop {
            match ask(account, client, 1) {
                Ok(share) => shares.push(share),
                Err(asked) => return (shares, asked),
            }
        }
    }

    #[test]
    fn clients_that_take_all_they_get_leave_room_for_the_next_one() {
        let account = Account::new(64);
        let (first, _waits) = all(&account, 1);
        assert_eq!(first.len(), 32);
        let (second, _waits) = all(&account, 2);
        assert_eq!(second.len(), 16);
        let (third, _waits) = all(&account, 3);
        assert_eq!(third.len(), 8);
        assert!(ask(&account, 4, 4).is_ok());
    }

    #[test]
    fn what_is_given_back_goes_to_whoever_is_not_at_its_share() {
        let account = Account::new(8);
        let (mut first, gives_up) = all(&account, 1);
        drop(gives_up);
        let mut second = ask(&account, 2, 5).err().expect("four are free");
        let mut more = ask(&account, 1, 1).err().expect("it is at its share");
        let mut third = ask(&account, 3, 1).err().expect("the second is before it");
        drop(first.pop());
        let second = look(&mut second).expect("five are free");
        assert!(look(&mut third).is_none() && look(&mut more).is_none());
        drop(second);
        assert!(look(&mut third).is_some() && look(&mut more).is_some());
    }

    #[test]
    fn a_bulk_larger_than_the_account_takes_all_of_it_once_it_is_free() {
        let account = Account::new(4);
        let held = ask(&account, 1, 1).ok();
        let mut large = ask(&account, 2, 9).err().expect("one is taken");
        let mut behind = ask(&account, 3, 1).err().expect("the large one is before it");
        drop(held);
        let large = look(&mut large).expect("all is free");
        assert!(look(&mut behind).is_none());
        drop(large);
        assert!(look(&mut behind).is_some());
    }

    #[test]
    fn who_gives_up_holds_nothing_and_stands_in_nobodys_way() {
        let account = Account::new(4);
        let held = ask(&account, 1, 3).ok();
        let large = ask(&account, 2, 4).err().expect("one is free");
        let mut behind = ask(&account, 3, 1).err().expect("the large one is before it");
        drop(large);
        drop(ask(&account, 4, 4)); // and one that gives up before it is looked at
        let share = look(&mut behind);
        drop((held, share));
        assert!(ask(&account, 5, 4).is_ok());
    }
}
