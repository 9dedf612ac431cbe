//! Mounting and unmounting: the configuration from the MGS, and its background refresh.

use std::cell::{Cell, RefCell};
use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, Directory, Endpoint, Remote};
use env::{Env, LocalFuture};
use tokio::sync::Semaphore;
use types::{Errno, Fid, Span, TargetId, TargetKind};
use wire::body::{FidReq, OstBatchReq};
use wire::config::FsConfig;
use wire::{Opcode, encode_body};

use crate::client::{Client, Inner};
use crate::data::{Closes, Cuts, Keeper};
use crate::grants::AllGrants;
use crate::inode::Inodes;
use crate::limits;
use crate::locks::Held;
use crate::lost::Losses;
use crate::namespace::elsewhere::Elsewhere;
use crate::namespace::order::Order;
use crate::namespace::striped::Striped;
use crate::resting::AtRest;
use crate::statahead::Statahead;
use crate::{Ctx, Error, MountConfig, Result};

impl Client {
    /// Mounts: learns from the MGS where the targets are and reaches the root directory.
    ///
    /// # Errors
    /// EACCES if the MGS's machine refuses this one; ETIMEDOUT after `mount_wait`; ENOENT if the
    /// MGS answers that it knows no such file system, all of that time or for
    /// [`limits::UNKNOWN_WAIT`].
    ///
    /// Boxed here, so that it is compiled here and not in each crate that mounts.
    pub fn mount(env: &Env, config: MountConfig) -> LocalFuture<'_, Result<Client>> {
        Box::pin(Client::reached(env, config))
    }

    async fn reached(env: &Env, config: MountConfig) -> Result<Client> {
        let wait = config.mount_wait;
        let client = Client::prepare(env, config);
        let answered = Cell::new(false);
        let reach = client.reach(&answered);
        let reached = match wait {
            None => reach.await,
            Some(span) => env
                .timeout(span, reach)
                .await
                .unwrap_or_else(|| Err(client.unreached(answered.get()))),
        };
        if let Err(error) = reached {
            client.0.endpoint.shutdown().await;
            return Err(error);
        }
        let task = env.spawn("client refresh", refresh(Rc::downgrade(&client.0), env.clone()));
        client.0.background.borrow_mut().push(task);
        Ok(client)
    }

    /// Waits until all that was acknowledged is durable, for [`Client::unmount_wait`] at most, and
    /// leaves. What is given up is in the log.
    pub async fn unmount(self) {
        let _late = self.0.env.timeout(self.unmount_wait(), self.settle()).await;
        self.give_up().await;
        self.leave().await;
    }

    /// Ends the sessions. What is not durable by now is lost if its server dies before it is.
    pub async fn leave(self) {
        self.0.background.borrow_mut().drain(..).for_each(|task| task.abort());
        self.0.at_rest.clear();
        self.0.endpoint.shutdown().await;
    }

    /// One that has asked for nothing yet.
    pub(crate) fn prepare(env: &Env, config: MountConfig) -> Client {
        let directory = Rc::new(Directory::new(config.mgs.clone()));
        let striped: Rc<Striped> = Rc::default();
        let inner = Inner {
            env: env.clone(),
            endpoint: Endpoint::new(env, config.endpoint.clone(), directory.clone()),
            directory,
            inodes: Inodes::default(),
            at_rest: AtRest::default(),
            closes: Closes::default(),
            cuts: Cuts::default(),
            held: RefCell::new(Held::default()),
            lock_waits: Semaphore::new(limits::LOCK_WAITS_MAX),
            turns: Rc::default(),
            numbers: Cell::new(env.random() >> 1),
            written: RefCell::default(),
            spaces: RefCell::default(),
            hooked: RefCell::default(),
            inactive: RefCell::default(),
            offered: RefCell::default(),
            grants: AllGrants::new(env, config.bugs, &striped).with_bugs(config.grant_bugs),
            striped,
            has_mdts: Cell::new(false),
            elsewhere: Elsewhere::default(),
            order: Order::default(),
            losses: Losses::default(),
            asked: RefCell::default(),
            statahead: Statahead::default(),
            glimpse_batch: Cell::new(limits::GLIMPSE_BATCH_MAX),
            glimpse_in_flight: Cell::new(limits::BATCH_RPCS_MAX),
            som: Cell::new(true),
            put_refused: Default::default(),
            background: RefCell::default(),
            access_times: Cell::new(config.access_times),
            unmount_wait: Cell::new(config.unmount_wait),
            closing: Cell::new(0),
            read_on_open: Cell::new(true),
            page_cache: Cell::new(true),
            writeback: Cell::new(config.writeback),
            keeper: Keeper::default(),
            config,
        };
        Client(Rc::new(inner))
    }

    /// `answered` tells meanwhile whether the MGS did.
    async fn reach(&self, answered: &Cell<bool>) -> Result<()> {
        let gives_up = self.0.config.mount_wait.is_some();
        let (begin, mut unknown, mut is_logged) = (self.0.env.now(), None, false);
        loop {
            let fetched = self.0.fetch_config(Some(limits::REFUSED_LOOK)).await;
            answered.set(
                answered.get()
                    || !matches!(&fetched, Err(error) if error.errno() == Errno::ETIMEDOUT),
            );
            let now = self.0.env.now();
            match fetched {
                Ok(()) if !self.0.directory.targets(TargetKind::Mdt).is_empty() => break,
                Err(error) if error.errno() == Errno::ENOENT => {
                    let since = *unknown.get_or_insert(now);
                    if gives_up && now - since >= limits::UNKNOWN_WAIT {
                        return Err(self.unreached(true));
                    }
                }
                Err(error) if error.errno() != Errno::ETIMEDOUT => return Err(error),
                _ => {
                    if let Some(why) = self.0.remote(TargetId::MGT).refusal() {
                        return Err(self.refused(&why));
                    }
                }
            }
            if answered.get() && !is_logged && now - begin >= limits::UNKNOWN_QUIET {
                is_logged = true;
                let (mgs, fsname) = (self.mgs_at(), self.0.config.fsname);
                tracing::warn!("the MGS at {mgs} knows no MDT of {fsname} so far");
            }
            self.0.env.sleep(limits::MOUNT_RETRY).await;
        }
        self.getattr(&Ctx::root(), Fid::ROOT, None).await.map(|_| ())
    }

    /// Where the MGS is, for people.
    fn mgs_at(&self) -> String {
        self.0.config.mgs.iter().map(ToString::to_string).collect::<Vec<_>>().join(", ")
    }

    fn refused(&self, why: &str) -> Error {
        let text = format!("no way to the MGS at {}: {why}", self.mgs_at());
        Error::local(Errno::EACCES, "mount").saying(text)
    }

    fn unreached(&self, mgs_answered: bool) -> Error {
        let (mgs, fsname) = (self.mgs_at(), self.0.config.fsname);
        if !mgs_answered {
            Error::local(Errno::ETIMEDOUT, "mount")
                .saying(format!("no answer from the MGS at {mgs}"))
        } else if self.0.directory.targets(TargetKind::Mdt).is_empty() {
            Error::local(Errno::ENOENT, "mount")
                .saying(format!("the MGS at {mgs} knows no MDT of {fsname}"))
        } else {
            Error::local(Errno::ETIMEDOUT, "mount")
                .saying(format!("no answer from the MDT of {fsname}"))
        }
    }
}

impl Inner {
    /// Reads the configuration and applies what is new.
    pub(crate) async fn fetch_config(self: &Rc<Self>, patience: Option<Span>) -> Result<()> {
        let name = Bytes::copy_from_slice(self.config.fsname.as_str().as_bytes());
        let mut call = Call::new(Opcode::MgsConfig, vec![name]);
        call.patience = patience.or(self.patience());
        let answer = self.ask(TargetId::MGT, call).await?;
        let fetched = FsConfig::decode(&answer.reply.buf(1));
        let fetched = fetched.ok_or_else(|| Error::local(Errno::EPROTO, "mgs_config_read"))?;
        match self.directory.update(fetched) {
            Ok(true) => {
                self.has_mdts.set(self.directory.targets(TargetKind::Mdt).len() > 1);
                self.apply_active();
            }
            Ok(false) => {}
            Err(error) => tracing::warn!("ignoring configuration: {error}"),
        }
        Ok(())
    }

    /// `testfs-OST0002.osc.active=0` takes a target out of use, and so does `nacre forget` of an
    /// MDT.
    fn apply_active(self: &Rc<Self>) {
        let mut osts = self.directory.targets(TargetKind::Ost);
        osts.extend(self.directory.config().inactive_osts(self.config.fsname)); // forgotten ones too
        osts.extend(self.directory.config().inactive_mdts(self.config.fsname));
        osts.extend(self.inactive.borrow().iter().copied());
        osts.sort_unstable();
        osts.dedup();
        for id in osts {
            let off = self.directory.config().is_inactive(id, self.config.fsname);
            let changed = if off {
                self.inactive.borrow_mut().insert(id)
            } else {
                self.inactive.borrow_mut().remove(&id)
            };
            if changed {
                self.remote(id).set_active(!off);
            }
        }
    }

    /// What must happen when a target lost its memory of this client, or is recovering it.
    pub(crate) fn set_hooks(self: &Rc<Self>, remote: &Rc<Remote>) {
        let (id, weak) = (remote.id(), Rc::downgrade(self));
        let inner = weak.clone();
        remote.on_undone(Rc::new(move |changes, why| {
            if let Some(inner) = inner.upgrade() {
                inner.lose(id, changes, why);
            }
        }));
        match id.kind {
            TargetKind::Mgt | TargetKind::Lst => {}
            TargetKind::Ost => {
                let batch = OstBatchReq::default();
                remote.set_commit_call(Call::new(
                    Opcode::OstSync,
                    vec![encode_body(&batch), Bytes::new()],
                ));
                let restarted = weak.clone();
                remote.on_recovery(Rc::new(move || match restarted.upgrade() {
                    Some(inner) => {
                        inner.grants.doubt_pages();
                        inner.reserve_again(id)
                    }
                    None => Vec::new(),
                }));
                remote.on_evicted(Rc::new(move || {
                    if let Some(inner) = weak.upgrade() {
                        inner.forget_sizes();
                        inner.grants.doubt_pages();
                        let _nothing_is_promised = inner.reserve_again(id);
                    }
                }));
            }
            TargetKind::Mdt => {
                let mdt = id.index;
                self.grants.at(mdt).belong_to(remote);
                let called = weak.clone();
                remote.on_callback(Rc::new(move |callback| match called.upgrade() {
                    Some(inner) => inner.called_back(id, callback),
                    None => Box::pin(std::future::ready(Err(Errno::ESHUTDOWN))),
                }));
                remote.set_commit_call(Call::new(
                    Opcode::MdtSync,
                    vec![encode_body(&FidReq::default())],
                ));
                let evicted = weak.clone();
                remote.on_evicted(Rc::new(move || {
                    if let Some(inner) = evicted.upgrade() {
                        inner.lose_opens(mdt);
                    }
                }));
                let voided = weak.clone();
                remote.on_voided(Rc::new(move || {
                    if let Some(inner) = voided.upgrade() {
                        inner.lose_grants(mdt);
                    }
                }));
                let first = weak.clone();
                remote.before_restate(Rc::new(move || first.upgrade()?.grants.at(mdt).restart()));
                let last = weak.clone();
                remote.after_restate(Rc::new(move |replies| {
                    last.upgrade()?.grants.at(mdt).restated(replies)
                }));
                remote.on_recovery(Rc::new(move || {
                    weak.upgrade().map_or_else(Vec::new, |inner| inner.restate(mdt))
                }));
            }
        }
    }

    /// A server restarted: what it said of objects and opens is no ground for an exact size any
    /// more.
    pub(crate) fn forget_sizes(&self) {
        self.inodes.forget();
    }

    /// An MDT knows this client's opens and locks no more.
    fn lose_opens(self: &Rc<Self>, mdt: u32) {
        self.lose_kept_of(mdt);
        if let Some(forgetting) = self.grants.at(mdt).forget() {
            self.env.spawn("grants forgotten", forgetting);
        }
        self.held.borrow_mut().lose(mdt);
        self.turns.call_all(mdt);
        self.inodes.lose(mdt);
    }

    /// An MDT has given to others what this client may still hold by its own clock.
    fn lose_grants(&self, mdt: u32) {
        if let Some(forgetting) = self.grants.at(mdt).voided() {
            self.env.spawn("grants forgotten", forgetting);
        }
    }

    /// Calls that tell a recovering MDT which grants this client holds, in this order, and which
    /// locks.
    fn restate(&self, mdt: u32) -> Vec<Call> {
        self.inodes.forget_of(mdt);
        self.turns.call_all(mdt); // it knows of no wait
        let mut calls = self.grants.at(mdt).restate();
        if !self.config.bugs.restate_no_locks() {
            calls.extend(self.held.borrow().restate(mdt));
        }
        calls
    }
}

/// Reads the configuration every few seconds, and sooner when connects fail.
async fn refresh(weak: std::rc::Weak<Inner>, env: Env) {
    loop {
        let Some(inner) = weak.upgrade() else { return };
        let (every, directory) = (inner.config.refresh_every, inner.directory.clone());
        drop(inner); // a client that nobody holds must not be kept alive by its own refresh
        env.sleep(limits::REFRESH_MIN).await;
        env.timeout(every, directory.wait_stale()).await;
        let Some(inner) = weak.upgrade() else { return };
        if let Err(error) = inner.fetch_config(Some(limits::REFRESH_PATIENCE)).await {
            tracing::debug!("configuration not refreshed: {error}");
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_mgs_is_a_time_out_that_names_it() {
        let error = env_os::run(env_os::OsConfig::default(), |env| async move {
            let mgs = vec!["127.0.0.1:1@tcp".parse().expect("a NID")]; // nobody listens there
            let mut config =
                MountConfig::new(mgs, "testfs".parse().expect("a name"), types::ClientId(1));
            config.mount_wait = Some(Span::millis(300));
            Client::mount(&env, config).await.err().expect("nobody answers")
        });
        assert_eq!(error.errno(), Errno::ETIMEDOUT);
        assert!(error.to_string().contains("MGS at 127.0.0.1:1@tcp"), "{error}");
    }
}
