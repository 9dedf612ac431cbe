//! An MDT without its network: clients call, crash it, and replay.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::future::Future;
use std::rc::Rc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ldlm::grants::ChangeId;
use osd::{MetaStore, StoreError};
use target::OpError;
use types::{ClientId, Creds, Errno, Fid, Instant, Timespec, Transno};
use wire::body::{AttrRep, CloseReq, CreateFlags, CreateReq, FidReq, LookupReq, OpenReq, closes};
use wire::{Attr, Opcode, Reply, Request, RequestFlags, encode_body};

use super::store::TestStore;
use crate::attempt::Attempted;
use crate::boot::{Seed, boot};
use crate::cross::Crossing;
use crate::engine::{Engine, History};
use crate::op::Caller;
use crate::puts::Written;
use crate::{Bugs, MdtConfig, OstAt};

/// Runs a future that never has to wait.
pub(super) fn now<T>(future: impl Future<Output = T>) -> T {
    let mut future = std::pin::pin!(future);
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => value,
        Poll::Pending => panic!("nothing here waits"),
    }
}

/// A request that was answered and may be replayed.
#[derive(Clone)]
pub(super) struct Done {
    pub(super) client: u128,
    pub(super) request: Request,
    pub(super) reply: Reply,
    pub(super) creds: Creds,
}

pub(super) struct Rig {
    pub(super) store: Rc<TestStore>,
    pub(super) engine: Engine,
    pub(super) osts: Rc<RefCell<Vec<u32>>>,
    pub(super) creds: Creds,
    pub(super) client: u128,
    pub(super) recovering: bool,
    /// Everything with a transno, in order.
    pub(super) history: Vec<Done>,
    pub(super) committed: Cell<u64>,
    pub(super) clock: Cell<i64>,
    /// The monotonic clock. It stands still, but for who waits for a lease.
    pub(super) instant: Cell<Instant>,
    /// Another session holds the own lock of every file.
    pub(super) locked: Cell<bool>,
    /// Each record takes as long as an answer may.
    pub(super) is_slow: Cell<bool>,
    transno: Cell<u64>,
    bugs: Bugs,
}

struct Next<'a>(&'a Cell<u64>, u64);

impl History for Next<'_> {
    fn next(&self) -> Transno {
        if self.1 != 0 {
            return Transno(self.1);
        }
        self.0.set(self.0.get() + 1);
        Transno(self.0.get())
    }

    fn record(&self, transno: Transno, reply: &mut Reply) -> (Vec<u8>, Vec<u8>) {
        reply.header.transno = transno.0;
        (b"client tag".to_vec(), b"reply".to_vec())
    }
}

impl Rig {
    pub(super) fn new() -> Rig {
        Rig::with_bugs(Bugs::default())
    }

    pub(super) fn with_bugs(bugs: Bugs) -> Rig {
        let store = Rc::new(TestStore::default());
        let osts = Rc::new(RefCell::new(vec![0, 1, 2, 3]));
        let (engine, epoch) = start(&store, &osts, bugs);
        Rig {
            store,
            engine,
            osts,
            creds: Creds::root(),
            client: 1,
            recovering: false,
            history: Vec::new(),
            committed: Cell::new(0),
            clock: Cell::new(1_000),
            instant: Cell::default(),
            locked: Cell::new(false),
            is_slow: Cell::new(false),
            transno: Cell::new(u64::from(epoch) << 32),
            bugs,
        }
    }

    pub(super) fn commit(&self) {
        let upto = now(self.engine.commit()).expect("the store works");
        self.committed.set(upto.0);
    }

    /// The place in history of a change of the MDT's own.
    pub(super) fn own_transno(&self) -> Transno {
        Next(&self.transno, 0).next()
    }

    /// The process dies and another one starts; nobody has replayed yet.
    pub(super) fn crash(&mut self) {
        self.store.crash();
        let (engine, epoch) = start(&self.store, &self.osts, self.bugs);
        self.engine = engine;
        self.transno.set(u64::from(epoch) << 32);
        self.recovering = true;
    }

    /// Replays what this client has to: everything above `last_committed`, and opens.
    pub(super) fn replay(
        &mut self,
        which: impl Fn(&Done) -> bool,
    ) -> Vec<(Done, Result<Reply, Errno>)> {
        let boot = self.engine.state.borrow().boot_committed.0;
        let durable = self.history.iter().filter(|done| done.reply.header.transno <= boot);
        let closed: Vec<u64> = durable.flat_map(|done| closed_by(&done.request)).collect();
        let todo: Vec<Done> = self.history.iter().filter(|done| which(done)).cloned().collect();
        let mut out = Vec::new();
        for done in todo {
            let mut request = done.request.clone();
            let handle = done.reply.body::<AttrRep>().handle;
            let is_open = handle != 0
                && !closed.contains(&handle)
                && done.request.opcode() != Opcode::MdtClose;
            if done.reply.header.transno <= boot && !is_open {
                continue;
            }
            request.header.flags |= RequestFlags::REPLAY;
            request.header.transno = done.reply.header.transno;
            request.header.replay_bufs = done.reply.bufs.len() as u8;
            request.bufs.extend(done.reply.bufs.iter().cloned());
            let (client, creds) = (self.client, self.creds.clone());
            (self.client, self.creds) = (done.client, done.creds.clone());
            let reply = self.run(&request);
            (self.client, self.creds) = (client, creds);
            out.push((done, reply));
        }
        out
    }

    /// Recovery is over: orphans that nobody re-opened go.
    pub(super) fn recovered(&mut self) {
        self.recovering = false;
        let orphans: Vec<Fid> = self
            .store
            .table(osd::Table::Orphans)
            .iter()
            .filter_map(|(key, _)| Fid::from_key(key))
            .collect();
        self.engine.sweep(&orphans).expect("the store works");
        self.commit();
    }

    fn run(&self, request: &Request) -> Result<Reply, Errno> {
        self.clock.set(self.clock.get() + 1);
        let replay = request.has(RequestFlags::REPLAY);
        let history = Next(&self.transno, if replay { request.header.transno } else { 0 });
        let crossing = Crossing::default();
        let mut put = None;
        for _ in 0..4 {
            let caller = Caller {
                request,
                client: ClientId(self.client),
                session: 1,
                creds: self.creds.clone(),
                replay,
                recovering: self.recovering,
                now: Timespec::new(self.clock.get(), 7),
                clock: self.instant.get(),
                change: ChangeId(1),
                crossing: &crossing,
                passed: &BTreeSet::new(),
                heard: &|_| None,
                locked: &|_| self.locked.get(),
                is_long: &|| self.is_slow.get(),
                put: put.as_ref(),
            };
            match self.engine.attempt(&caller, &history) {
                Ok(Attempted::Done(reply, _)) => return Ok(reply),
                Ok(Attempted::Needs(_)) => return Err(Errno::ENODEV), // there is no other MDT
                Ok(Attempted::Writes(fid)) => {
                    put = Some(Written { fid, blocks: 8, number: 0 });
                }
                Ok(_) => panic!("nothing is called back or reserved here"),
                Err(OpError::Refused(errno)) => return Err(errno),
                Err(OpError::CommitFirst) => self.commit(),
                Err(OpError::LeasedUntil(end)) => self.instant.set(end),
                Err(OpError::Store(error @ (StoreError::Full | StoreError::Damaged { .. }))) => {
                    return Err(error.errno());
                }
                Err(other) => panic!("{other}"),
            }
        }
        panic!("one commit is enough for one client at a time");
    }

    pub(super) fn call<T: zerocopy::IntoBytes + zerocopy::Immutable>(
        &mut self,
        opcode: Opcode,
        body: &T,
        bufs: &[&[u8]],
    ) -> Result<Reply, Errno> {
        let mut all = vec![encode_body(body)];
        all.extend(bufs.iter().map(|buf| Bytes::copy_from_slice(buf)));
        self.send(Request::new(opcode, all))
    }

    /// The place of a change that is in no client's history.
    pub(super) fn next_own(&self) -> Transno {
        Next(&self.transno, 0).next()
    }

    /// What changes something becomes part of the history.
    pub(super) fn send(&mut self, request: Request) -> Result<Reply, Errno> {
        let reply = self.run(&request)?;
        if reply.header.transno != 0 {
            self.history.push(Done {
                client: self.client,
                request,
                reply: reply.clone(),
                creds: self.creds.clone(),
            });
        }
        Ok(reply)
    }

    pub(super) fn lookup(&mut self, parent: Fid, name: &str) -> Result<Attr, Errno> {
        let body = LookupReq { parent: parent.into(), ..LookupReq::default() };
        Ok(self.call(Opcode::MdtLookup, &body, &[name.as_bytes()])?.body::<AttrRep>().attr)
    }

    pub(super) fn getattr(&mut self, fid: Fid) -> Result<(AttrRep, Bytes), Errno> {
        let body = FidReq { fid: fid.into(), ..FidReq::default() };
        let reply = self.call(Opcode::MdtGetattr, &body, &[])?;
        Ok((reply.body(), reply.buf(1)))
    }

    /// Creates; `open`: flags to open with.
    pub(super) fn create(
        &mut self,
        parent: Fid,
        name: &str,
        mode: u32,
        open: Option<u32>,
    ) -> Result<AttrRep, Errno> {
        let body = CreateReq {
            parent: parent.into(),
            mode,
            umask: 0o022,
            open_flags: open.unwrap_or(0),
            flags: CreateFlags::OPEN.when(open.is_some()),
            ..CreateReq::default()
        };
        Ok(self.call(Opcode::MdtCreate, &body, &[name.as_bytes()])?.body())
    }

    pub(super) fn tmpfile(
        &mut self,
        parent: Fid,
        mode: u32,
        open_flags: u32,
    ) -> Result<AttrRep, Errno> {
        let flags = CreateFlags::OPEN | CreateFlags::TMPFILE;
        let body =
            CreateReq { parent: parent.into(), mode, open_flags, flags, ..CreateReq::default() };
        Ok(self.call(Opcode::MdtCreate, &body, &[b""])?.body())
    }

    pub(super) fn open(&mut self, fid: Fid, flags: u32) -> Result<AttrRep, Errno> {
        let body = OpenReq { fid: fid.into(), open_flags: flags, ..OpenReq::default() };
        Ok(self.call(Opcode::MdtOpen, &body, &[])?.body())
    }
}

/// Handles that a request closes.
fn closed_by(request: &Request) -> Vec<u64> {
    match request.opcode() {
        Opcode::MdtClose => vec![request.body::<CloseReq>().handle],
        Opcode::MdtCloses => closes(request).iter().flatten().map(|close| close.handle).collect(),
        _ => Vec::new(),
    }
}

fn start(store: &Rc<TestStore>, osts: &Rc<RefCell<Vec<u32>>>, bugs: Bugs) -> (Engine, u32) {
    let mut config = MdtConfig::new("testfs".parse().expect("a name"), 0);
    config.has_data = true;
    config.grants = ldlm::grants::Mode::Timed; // whoever calls here hears no callbacks
    config.bugs = bugs;
    let store: Rc<dyn MetaStore> = store.clone();
    let seed = Seed {
        words: [1, 2],
        round_robin: 0,
        store: 3,
        now: Timespec::new(1, 0),
        clock: Instant::default(),
    };
    let booted = now(boot(&store, &config, &seed)).expect("a store that works");
    let osts = osts.clone();
    let list: Rc<dyn Fn() -> Vec<OstAt>> =
        Rc::new(move || osts.borrow().iter().copied().map(OstAt::from).collect());
    let epoch = u32::try_from(booted.instance.0).expect("few starts");
    (Engine::new(config, store, booted.state, list, Rc::new(Vec::new)), epoch)
}
