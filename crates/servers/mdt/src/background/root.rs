//! The default layout of the root directory, which holds for all files of the file system. The
//! first MDT has the root. Every other MDT keeps a copy under the root's FID in its table of
//! layouts, and asks for it every few seconds. So a new default takes effect everywhere within
//! [`PAUSE`].

use std::rc::Rc;

use bytes::Bytes;
use endpoint::{Call, CallError};
use layout::lov;
use osd::{Table, WriteSet};
use types::{Errno, Fid, Span, TargetId};
use wire::body::FidReq;
use wire::{Opcode, encode_body};

use crate::target::Mdt;

/// Between two questions.
const PAUSE: Span = Span::secs(5);

/// How long the first MDT may think.
const PATIENCE: Span = Span::secs(5);

/// Keeps the copy fresh for as long as the instance runs.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    while !mdt.is_stopped() {
        if let Some(default) = ask(&mdt).await
            && let Err(errno) = keep(&mdt, &default).await
        {
            tracing::warn!(target: "mdt", %errno, "the root's default layout cannot be kept");
        }
        mdt.env.sleep(PAUSE).await;
    }
}

/// The default as a record, empty if there is none; nothing if the first MDT does not say.
async fn ask(mdt: &Mdt) -> Option<Vec<u8>> {
    let endpoint = mdt.osts.clone()?;
    let body = FidReq { fid: Fid::ROOT.into(), ..FidReq::default() };
    let name = Bytes::from_static(b"lustre.lov");
    let mut call = Call::new(Opcode::MdtGetxattr, vec![encode_body(&body), name]);
    call.patience = Some(PATIENCE);
    match endpoint.remote(TargetId::mdt(0)).call(call).await {
        Ok(answer) => lov::decode_any(&answer.reply.buf(1)).ok().map(|asked| asked.encode()),
        Err(CallError::Errno(Errno::ENODATA)) => Some(Vec::new()),
        Err(_) => None,
    }
}

async fn keep(mdt: &Mdt, default: &[u8]) -> Result<(), Errno> {
    let keep = || {
        let key = Fid::ROOT.to_key();
        let kept = mdt.engine.store.meta().running()?.get(Table::Layouts, &key)?;
        if kept.unwrap_or_default() == default {
            return Ok(());
        }
        let mut set = WriteSet::new();
        match default {
            [] => set.delete(Table::Layouts, key),
            default => set.put(Table::Layouts, key, default),
        }
        Ok(mdt.engine.apply_own(&set)?)
    };
    mdt.persist(keep).await
}
