//! The console: one session, its nodes, and the commands of `lst`.
//!
//! The console asks all nodes at once. Each answer, or its absence, is the node's new state. A
//! session that gets no command for its timeout ends. A command that takes longer than that is not
//! silence. Until then the console pings nodes that it has not heard from.

mod run;
mod see;

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::rc::Rc;

use endpoint::Call;
use env::{Env, LocalFuture};
use lst::command::{Answer, Command, NewSession};
use lst::{Book, BookError, NodeState, limits};
use tokio::sync::{Notify, mpsc};
use types::{Errno, Instant, Net, Nid, NidAddr, NidList, Span};
use wire::Opcode;
use wire::lst::{Ask, Control, SessionId, Told};

use crate::peer::Peer;

/// The batch that is there from the start.
const BATCH_DEFAULT: &str = "batch";

pub struct Console {
    env: Env,
    config: NewSession,
    id: SessionId,
    book: RefCell<Book>,
    peers: RefCell<BTreeMap<Nid, Rc<Peer>>>,
    heard: RefCell<BTreeMap<Nid, Instant>>,
    /// When a command began or ended last.
    commanded: Cell<Instant>,
    /// Commands under way.
    working: Cell<usize>,
    over: Cell<bool>,
    ended: Notify,
}

/// What a node said, or why it said nothing.
type Heard = Result<Told, String>;

impl Console {
    /// A session without nodes.
    pub fn start(env: &Env, config: NewSession) -> Rc<Console> {
        let mut book = Book::default();
        book.add_batch(BATCH_DEFAULT).expect("the first batch of a session");
        let id = SessionId { console: config.nid.unwrap_or(Nid::LO).0, stamp: env.random() | 1 };
        let console = Rc::new(Console {
            env: env.clone(),
            config,
            id,
            book: RefCell::new(book),
            peers: RefCell::default(),
            heard: RefCell::default(),
            commanded: Cell::new(env.now()),
            working: Cell::new(0),
            over: Cell::new(false),
            ended: Notify::new(),
        });
        env.spawn("lst.pinger", Rc::clone(&console).keep_alive());
        console
    }

    /// Completes when the session is over.
    pub async fn ended(&self) {
        while !self.over.get() {
            self.ended.notified().await;
        }
    }

    /// What `lst new_session` prints.
    #[must_use]
    pub fn banner(&self) -> String {
        let Console { config, .. } = self;
        let (secs, force) =
            (config.timeout.as_millis() / 1_000, if config.force { "Yes" } else { "No" });
        format!("SESSION: {} FEATURES: 1 TIMEOUT: {secs} FORCE: {force}\n", config.name)
    }

    /// Does what a command says. Boxed here, so that it is compiled here and not in each crate that
    /// calls it.
    pub fn execute(self: &Rc<Self>, command: Command) -> LocalFuture<'_, Answer> {
        Box::pin(self.obey(command))
    }

    async fn obey(self: &Rc<Self>, command: Command) -> Answer {
        let _working = Working::begin(self);
        if self.over.get() {
            return failed(Errno::ESHUTDOWN, "Session is shutting down");
        }
        let done = match command {
            Command::ShowSession => Ok(self.show_session()),
            Command::EndSession => Ok(self.end_session().await),
            Command::AddGroup { name, nids } => self.add_group(&name, &nids).await,
            Command::DelGroup { name } => self.del_group(&name).await,
            Command::UpdateGroup { name, clean, refresh, remove } => {
                self.update_group(&name, &clean, refresh, remove.as_deref()).await
            }
            Command::ListGroup { groups, states } => self.list_group(&groups, &states),
            Command::AddBatch { name } => {
                self.book.borrow_mut().add_batch(&name).map(|()| Answer::default())
            }
            Command::ListBatch { name, test, all, server } => {
                self.list_batch(name.as_deref(), test, all, server)
            }
            Command::AddTest { batch, loops, concurrency, distribute, from, to, kind } => {
                let spec = wire::lst::TestSpec { kind, loops, concurrency };
                self.add_test(&batch, spec, &distribute, &from, &to).await
            }
            Command::Run { batch, timeout_secs } => self.run(&batch, secs(timeout_secs)).await,
            Command::Stop { batch, force } => self.stop(&batch, force).await,
            Command::Query { batch, test, server, all, timeout_secs } => {
                self.query(&batch, test, server, all, secs(timeout_secs)).await
            }
            Command::Sample { of, timeout_secs } => self.sample(&of, secs(timeout_secs)).await,
            Command::ShowError { of, session } => self.show_error(&of, session).await,
            Command::Ping { group, batch, nodes } => {
                self.ping(group.as_deref(), batch.as_deref(), nodes.as_deref()).await
            }
        };
        done.unwrap_or_else(|error| failed(error.errno, &error.text))
    }

    // ---- nodes
    // --------------------------------------------------------------------------------------------

    fn at(&self, nid: Nid) -> NidAddr {
        NidAddr { nid, port: self.config.port }
    }

    fn peer(&self, nid: Nid) -> Rc<Peer> {
        let mut peers = self.peers.borrow_mut();
        let made = || Peer::new(&self.env, self.config.nid, self.at(nid), limits::CONTROL_TIMEOUT);
        Rc::clone(peers.entry(nid).or_insert_with(made))
    }

    /// Asks one node; its state follows from the answer.
    async fn tell(self: &Rc<Self>, nid: Nid, ask: Ask, patience: Span) -> Heard {
        let control = Control { session: self.id, ask };
        let mut call = Call::new(Opcode::LstControl, vec![wire::config::encode(&control)]);
        call.patience = Some(patience);
        let remote = Rc::clone(&self.peer(nid).remote);
        let answered = remote.call(call).await.map_err(|error| error.to_string());
        let told = answered.and_then(|answer| {
            wire::config::decode(&answer.reply.buf(0))
                .ok_or_else(|| "an answer of another version".to_owned())
        });
        let state = match &told {
            Ok(Told::Busy { .. }) => NodeState::Busy,
            Ok(Told::NoSession) => NodeState::Unknown,
            Ok(_) => NodeState::Active,
            Err(_) => NodeState::Down,
        };
        if told.is_ok() {
            self.heard.borrow_mut().insert(nid, self.env.now());
        }
        self.book.borrow_mut().set_state(nid, state);
        told
    }

    /// Asks many at once; answers in the order asked.
    async fn tell_all(self: &Rc<Self>, asks: Vec<(Nid, Ask)>, patience: Span) -> Vec<(Nid, Heard)> {
        let (done, mut answers) = mpsc::unbounded_channel();
        let count = asks.len();
        for (index, (nid, ask)) in asks.into_iter().enumerate() {
            let (console, done) = (Rc::clone(self), done.clone());
            self.env.spawn("lst.tell", async move {
                let heard = console.tell(nid, ask, patience).await;
                // its receiver waits for all, or its asker went away
                let _ = done.send((index, nid, heard));
            });
        }
        drop(done);
        let mut all = BTreeMap::new();
        while all.len() < count {
            let Some((index, nid, heard)) = answers.recv().await else { break };
            all.insert(index, (nid, heard));
        }
        all.into_values().collect()
    }

    async fn ask_each(
        self: &Rc<Self>,
        nids: impl IntoIterator<Item = Nid>,
        ask: &Ask,
    ) -> Vec<(Nid, Heard)> {
        self.ask_within(nids, ask, limits::CONTROL_TIMEOUT).await
    }

    async fn ask_within(
        self: &Rc<Self>,
        nids: impl IntoIterator<Item = Nid>,
        ask: &Ask,
        patience: Span,
    ) -> Vec<(Nid, Heard)> {
        let asks = nids.into_iter().map(|nid| (nid, ask.clone())).collect();
        self.tell_all(asks, patience).await
    }

    /// Lines for stderr about nodes that did not do it, and how many those are.
    fn complaints(what: &str, heard: &[(Nid, Heard)]) -> (String, usize) {
        let (mut text, mut count) = (String::new(), 0);
        for (nid, heard) in heard {
            let why = match heard {
                Ok(Told::Done | Told::Running(_) | Told::Stat(_)) => continue,
                Ok(Told::Busy { name, .. }) => format!("{}: it is in session {name}", Errno::EBUSY),
                Ok(Told::NoSession) => "it is in no session".to_owned(),
                Ok(Told::Refused(raw)) => errno_text(*raw),
                Err(why) => {
                    let _ = writeln!(text, "{what} RPC failed on 12345-{nid}: {why}");
                    count += 1;
                    continue;
                }
            };
            let _ = writeln!(text, "operation {what} failed on 12345-{nid}: {why}");
            count += 1;
        }
        (text, count)
    }

    async fn join(self: &Rc<Self>, nids: &[Nid]) -> String {
        let ask = Ask::Join { name: self.config.name.clone(), force: self.config.force };
        let heard = self.ask_each(nids.iter().copied(), &ask).await;
        Console::complaints("create session", &heard).0
    }

    async fn let_go(self: &Rc<Self>, nids: &[Nid]) {
        // who does not hear it leaves by itself after a while
        self.ask_each(nids.iter().copied(), &Ask::Leave).await;
        for nid in nids {
            let peer = self.peers.borrow_mut().remove(nid);
            if let Some(peer) = peer {
                peer.shutdown().await;
            }
        }
    }

    async fn keep_alive(self: Rc<Self>) {
        while !self.over.get() {
            self.env.sleep(limits::PING_EVERY).await;
            let now = self.env.now();
            let (idle, timeout) = (now - self.commanded.get(), self.config.timeout);
            if timeout > Span::ZERO && self.working.get() == 0 && idle >= timeout {
                tracing::warn!("no command came for the session's timeout: it ends");
                self.end_session().await;
                return;
            }
            let quiet = |nid: &Nid| {
                self.heard.borrow().get(nid).is_none_or(|heard| now - *heard >= limits::PING_EVERY)
            };
            let nids: Vec<Nid> = self.book.borrow().nodes().keys().copied().filter(quiet).collect();
            self.ask_each(nids, &Ask::Ping).await;
        }
    }

    // ---- session and groups
    // -----------------------------------------------------------------------------------

    fn show_session(&self) -> Answer {
        let NewSession { name, key, .. } = &self.config;
        let (nid, nodes) = (Nid(self.id.console), self.book.borrow().nodes().len());
        said(format!("{name} ID: {}@{nid}, KEY: {key} FEATURES: 1 NODES: {nodes}\n", self.id.stamp))
    }

    async fn end_session(self: &Rc<Self>) -> Answer {
        let nids: Vec<Nid> = self.book.borrow().nodes().keys().copied().collect();
        self.over.set(true);
        self.let_go(&nids).await;
        self.ended.notify_waiters();
        Answer { ends: true, ..said("session is ended\n".to_owned()) }
    }

    async fn add_group(self: &Rc<Self>, name: &str, lists: &[String]) -> Result<Answer, BookError> {
        if self.book.borrow().has_group(name) {
            return Err(error(Errno::EEXIST, format!("{name} already exists")));
        }
        let parsed = lists.iter().map(|list| parse(list)).collect::<Result<Vec<_>, _>>()?;
        let mut answer = Answer::default();
        for (list, nids) in lists.iter().zip(parsed) {
            let fresh = self.book.borrow_mut().add_to_group(name, &nids)?;
            answer.err += &self.join(&fresh).await;
            let _ = writeln!(answer.out, "{list} are added to session");
        }
        Ok(answer)
    }

    async fn del_group(self: &Rc<Self>, name: &str) -> Result<Answer, BookError> {
        let gone = self.book.borrow_mut().delete_group(name)?;
        self.let_go(&gone).await;
        Ok(said("Group is deleted\n".to_owned()))
    }

    async fn update_group(
        self: &Rc<Self>,
        name: &str,
        clean: &[NodeState],
        refresh: bool,
        remove: Option<&str>,
    ) -> Result<Answer, BookError> {
        self.book.borrow().group(name)?;
        let mut answer = Answer::default();
        let mut out = self.book.borrow().members_in(name, clean)?;
        out.extend(remove.map(parse).transpose()?.unwrap_or_default());
        let gone = self.book.borrow_mut().remove_from_group(name, &out)?;
        self.let_go(&gone).await;
        if refresh {
            let lost = [NodeState::Busy, NodeState::Down, NodeState::Unknown];
            let nids = self.book.borrow().members_in(name, &lost)?;
            answer.err = self.join(&nids).await;
        }
        Ok(answer)
    }

    fn list_group(&self, groups: &[String], states: &[NodeState]) -> Result<Answer, BookError> {
        let book = self.book.borrow();
        if groups.is_empty() {
            return Ok(said(book.list_groups()));
        }
        let texts = groups
            .iter()
            .map(|group| book.list_group(group, states))
            .collect::<Result<String, _>>()?;
        Ok(said(if states.is_empty() { format!("{}{texts}", lst::COUNTS_TITLE) } else { texts }))
    }

    /// Nodes of a group, or of a list.
    fn nodes_of(&self, text: &str) -> Result<Vec<Nid>, BookError> {
        if let Ok(members) = self.book.borrow().group(text) {
            return Ok(members.to_vec());
        }
        if !text.contains('@') {
            return Err(error(Errno::ENOENT, format!("Can't find {text} in current session")));
        }
        let nids = parse(text)?;
        let book = self.book.borrow();
        match nids.iter().find(|nid| !book.nodes().contains_key(nid)) {
            Some(nid) => Err(error(Errno::ENOENT, format!("Can't find {nid} in current session"))),
            None => Ok(nids),
        }
    }
}

/// A command under way. It is over as well when its future is dropped.
struct Working<'a>(&'a Console);

impl Working<'_> {
    fn begin(console: &Console) -> Working<'_> {
        console.working.set(console.working.get() + 1);
        Working(console)
    }
}

impl Drop for Working<'_> {
    fn drop(&mut self) {
        self.0.working.set(self.0.working.get() - 1);
        self.0.commanded.set(self.0.env.now());
    }
}

fn parse(list: &str) -> Result<Vec<Nid>, BookError> {
    let invalid = |text: String| error(Errno::EINVAL, text);
    let list: NidList = list
        .parse()
        .map_err(|error: types::NidListError| invalid(format!("Invalid nid: {error}")))?;
    let nids = list.nids().map_err(|error| invalid(error.to_string()))?;
    match nids.iter().find(|nid| nid.net().lnd != Net::TCP.lnd && nid.net().lnd != Net::LO.lnd) {
        Some(nid) => {
            Err(invalid(format!("Invalid nid: there is no driver for the network of {nid}")))
        }
        None => Ok(nids),
    }
}

fn secs(secs: u32) -> Span {
    Span::secs(u64::from(secs))
}

fn errno_text(raw: i32) -> String {
    let known = [Errno::EINVAL, Errno::ENOENT, Errno::EBUSY, Errno::EEXIST, Errno::E2BIG];
    let found = known.into_iter().find(|errno| errno.raw() == raw);
    found.map_or_else(|| format!("error {raw}"), |errno| errno.to_string())
}

fn error(errno: Errno, text: String) -> BookError {
    BookError { errno, text }
}

fn said(out: String) -> Answer {
    Answer { out, ..Answer::default() }
}

fn failed(errno: Errno, text: &str) -> Answer {
    Answer { err: format!("{text}\n"), status: errno.raw(), ..Answer::default() }
}
