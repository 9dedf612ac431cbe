//! Listening: queues of links that wait to be accepted.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::io;
use std::rc::Rc;
use std::task::{Poll, Waker};

use env::{Link, Listen, Listener, LocalFuture};
use types::{Nid, NidAddr};

use crate::net::Net;

/// Links that were made and not accepted yet.
pub(crate) struct ListenQueue {
    pub(crate) node: usize,
    open: Cell<bool>,
    links: RefCell<VecDeque<Link>>,
    acceptor: RefCell<Option<Waker>>,
}

impl ListenQueue {
    pub(crate) fn is_open(&self) -> bool {
        self.open.get()
    }

    pub(crate) fn push(&self, link: Link) {
        self.links.borrow_mut().push_back(link);
        self.wake();
    }

    /// Ends it; links that nobody accepted are closed.
    pub(crate) fn close(&self) {
        self.open.set(false);
        let links = std::mem::take(&mut *self.links.borrow_mut());
        drop(links);
        self.wake();
    }

    fn wake(&self) {
        if let Some(acceptor) = self.acceptor.borrow_mut().take() {
            acceptor.wake();
        }
    }
}

impl Net {
    pub(crate) fn listen(self: &Rc<Self>, node: usize, at: NidAddr) -> io::Result<Listener> {
        let nid = if at.nid == Nid::LO { self.nodes.borrow()[node].nid } else { at.nid };
        let owner = *self.nids.borrow_mut().entry(nid).or_insert(node);
        if owner != node {
            return Err(io::ErrorKind::AddrNotAvailable.into());
        }
        let port = if at.port == 0 { self.draw_port() } else { at.port };
        let addr = NidAddr { nid, port };
        if self.listeners.borrow().contains_key(&addr) {
            return Err(io::ErrorKind::AddrInUse.into());
        }
        let queue = ListenQueue {
            node,
            open: Cell::new(true),
            links: RefCell::default(),
            acceptor: RefCell::default(),
        };
        let queue = Rc::new(queue);
        self.listeners.borrow_mut().insert(addr, queue.clone());
        Ok(Listener::new(Box::new(Acceptor { net: self.clone(), queue, addr })))
    }

    fn draw_port(&self) -> u16 {
        let port = self.next_port.get();
        self.next_port.set(if port == u16::MAX { 40_000 } else { port + 1 });
        port
    }

    /// Ends all listeners of `node`.
    pub(crate) fn kill_listeners(&self, node: usize) {
        let mut dead = Vec::new();
        self.listeners.borrow_mut().retain(|_, queue| {
            if queue.node == node {
                dead.push(queue.clone());
            }
            queue.node != node
        });
        for queue in dead {
            queue.close();
        }
    }
}

struct Acceptor {
    net: Rc<Net>,
    queue: Rc<ListenQueue>,
    addr: NidAddr,
}

impl Listen for Acceptor {
    fn accept(&mut self) -> LocalFuture<'_, io::Result<Link>> {
        Box::pin(std::future::poll_fn(|cx| {
            if let Some(link) = self.queue.links.borrow_mut().pop_front() {
                return Poll::Ready(Ok(link));
            }
            if !self.queue.is_open() {
                return Poll::Ready(Err(io::ErrorKind::NotConnected.into()));
            }
            *self.queue.acceptor.borrow_mut() = Some(cx.waker().clone());
            Poll::Pending
        }))
    }

    fn addr(&self) -> NidAddr {
        self.addr
    }
}

impl Drop for Acceptor {
    fn drop(&mut self) {
        let mut listeners = self.net.listeners.borrow_mut();
        if listeners.get(&self.addr).is_some_and(|queue| Rc::ptr_eq(queue, &self.queue)) {
            listeners.remove(&self.addr);
        }
        drop(listeners);
        self.queue.close();
    }
}
