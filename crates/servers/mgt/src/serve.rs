//! Requests of clients and administrators: the MGT's part of the service's `Target` trait.

use std::rc::Rc;

use env::LocalFuture;
use service::spec::MGS;
use service::{Class, ClientRecord, Exports, Incoming, Session, Target};
use types::{Errno, FsName, MDTS_MAX, TargetId, TargetKind};
use wire::{Opcode, Reply, Request};

use crate::op::pool::PoolChange;
use crate::target::Mgt;
use crate::{op, record};

impl Mgt {
    /// Sets a permanent parameter of a file system, or of all that are known here; without a value
    /// it is deleted. Durable when it returns. Says which file systems there are.
    ///
    /// # Errors
    /// ENOENT where none is known (of that name), EINVAL for what is no text of a bounded length,
    /// E2BIG over the bound.
    pub async fn set_param(
        &self,
        fsname: Option<FsName>,
        name: &str,
        value: Option<&str>,
    ) -> Result<Vec<FsName>, Errno> {
        let names = match fsname {
            Some(name) => vec![name],
            None => self.look(record::fs_names).await?,
        };
        if names.is_empty() {
            return Err(Errno::ENOENT);
        }
        for fsname in &names {
            op::set_param::store(self, *fsname, name, value.unwrap_or_default()).await?;
        }
        Ok(names)
    }

    /// Takes a target out of the configuration of its file system, durably; it is out of use from
    /// then on. An OST is in no pool, and an MDT's data target goes with it. Its storage is not
    /// touched.
    ///
    /// # Errors
    /// ENOENT where it is not known, EPERM for what a file system cannot do without, E2BIG where a
    /// pool without it would be over the bounds.
    pub async fn forget(&self, fsname: FsName, target: TargetId) -> Result<(), Errno> {
        let mdt = target.dom_of().unwrap_or(target);
        let is_over = mdt.kind == TargetKind::Mdt && mdt.index >= MDTS_MAX;
        let has_no_root = target.kind == TargetKind::Mdt && target.index > 0;
        let is_spare = target.is_ost() || has_no_root || is_over;
        if !is_spare {
            return Err(Errno::EPERM);
        }
        op::forget::forget(self, fsname, target).await
    }

    /// Changes a pool of OSTs, durably.
    ///
    /// # Errors
    /// EINVAL for a name that no pool can have, EEXIST for a pool or member that is there, ENOENT
    /// where file system, pool or member is not, ENODEV for an OST that never registered,
    /// ENOTEMPTY where a pool with members is to go, E2BIG over the bounds.
    pub async fn pool(&self, fsname: FsName, pool: &str, change: PoolChange) -> Result<(), Errno> {
        op::pool::change(self, fsname, pool, change).await
    }

    async fn execute(self: Rc<Self>, incoming: Incoming) -> Reply {
        let done = match (incoming.check_role(), incoming.request.opcode()) {
            (Err(errno), _) => Err(errno),
            (_, Opcode::MgsRegister) => op::register::execute(&self, &incoming).await,
            (_, Opcode::MgsConfig) => op::config::execute(&self, &incoming).await,
            (_, Opcode::MgsSetParam) => op::set_param::execute(&self, &incoming).await,
            _ => Err(Errno::EOPNOTSUPP),
        };
        let reply = done.unwrap_or_else(|errno| Reply::error(&incoming.request.header, errno));
        self.store.failure().unless_over(reply).await
    }
}

impl Target for Mgt {
    fn id(&self) -> TargetId {
        TargetId::MGT
    }

    fn failed(&self) -> LocalFuture<'static, String> {
        self.store.failure().happened()
    }

    fn exports(&self) -> Rc<Exports> {
        self.exports.clone()
    }

    fn class(&self, _request: &Request) -> Class {
        Class::of(&MGS).answering(wire::config::CONFIG_BYTES_MAX as u64)
    }

    fn handle(self: Rc<Self>, incoming: Incoming) -> LocalFuture<'static, Reply> {
        Box::pin(self.execute(incoming))
    }

    fn remember_client(
        self: Rc<Self>,
        _record: ClientRecord,
    ) -> LocalFuture<'static, Result<(), Errno>> {
        // A session here holds nothing that would have to outlive this instance.
        Box::pin(async { Ok(()) })
    }

    fn sessions_ended(
        self: Rc<Self>,
        _sessions: Vec<Rc<Session>>,
        _evicted: bool,
    ) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }

    fn recovery_done(self: Rc<Self>) -> LocalFuture<'static, ()> {
        Box::pin(async {})
    }
}
