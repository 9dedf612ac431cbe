//! Requests of other MDTs about operations of several MDTs.

use env::LocalFuture;
use service::Incoming;
use types::Errno;
use wire::Reply;

use crate::target::Mdt;

/// Serves [`wire::Opcode::MdtPrepare`].
pub(crate) fn prepare<'a>(_: &'a Mdt, _: &'a Incoming) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async { Err(Errno::EOPNOTSUPP) })
}

/// Serves [`wire::Opcode::MdtUpdate`].
pub(crate) fn update<'a>(_: &'a Mdt, _: &'a Incoming) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async { Err(Errno::EOPNOTSUPP) })
}

/// Serves [`wire::Opcode::MdtUpdates`].
pub(crate) fn list<'a>(_: &'a Mdt, _: &'a Incoming) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async { Err(Errno::EOPNOTSUPP) })
}

/// Serves [`wire::Opcode::MdtUpdatesDone`].
pub(crate) fn done<'a>(_: &'a Mdt, _: &'a Incoming) -> LocalFuture<'a, Result<Reply, Errno>> {
    Box::pin(async { Err(Errno::EOPNOTSUPP) })
}
