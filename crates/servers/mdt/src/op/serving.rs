//! The operations around the store: one that serves itself has its function here.

use std::rc::Rc;

use env::LocalFuture;
use service::Incoming;
use types::Errno;
use wire::{Opcode, Reply};

use super::{Row, Run, grants, lock, row, statfs, sync};
use crate::cross::{half, own, peer};
use crate::target::Mdt;

/// An operation around the store.
pub(crate) type Serving =
    for<'a> fn(&'a Rc<Mdt>, &'a Incoming) -> LocalFuture<'a, Result<Reply, Errno>>;

/// The function of an operation that serves itself.
pub(crate) const fn serving(opcode: Opcode) -> Option<Serving> {
    let serving: Serving = match opcode {
        Opcode::MdtStatfs => statfs::serve,
        Opcode::MdtSync => sync::serve,
        Opcode::MdtLock => lock::ask,
        Opcode::MdtUnlock => lock::give_back,
        Opcode::MdtAck => grants::ack,
        Opcode::MdtShed => grants::shed,
        Opcode::MdtRestate => grants::restate,
        Opcode::MdtPrepare => peer::prepare,
        Opcode::MdtUpdate => peer::update,
        Opcode::MdtUpdates => peer::list,
        Opcode::MdtUpdatesDone => peer::done,
        Opcode::MdtUpdateOf => half::find,
        Opcode::MdtMove => own::serve,
        _ => return None,
    };
    Some(serving)
}

// A row that says `Serve` without a function here does not compile, nor does a function without
// such a row.
const _: () = {
    let mut at = 0;
    while at < Opcode::ALL.len() {
        let opcode = Opcode::ALL[at];
        let serves = matches!(row(opcode), Some(Row { run: Run::Serve, .. }));
        assert!(serving(opcode).is_some() == serves, "an operation that serves itself is here");
        at += 1;
    }
};
