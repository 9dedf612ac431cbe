//! Asks all MDTs for their room and their states, as soon as a choice for a new directory used
//! figures older than `mdt_qos_maxage`. An idle MDT asks no other. An MDT that is away keeps its
//! last figures.

use std::rc::Rc;

use endpoint::Call;
use placement::Space;
use types::{Span, TargetId};
use wire::body::{FidReq, StatfsRep};
use wire::{Opcode, encode_body};

use crate::target::Mdt;

/// How long an MDT may think.
const PATIENCE: Span = Span::secs(5);

/// Keeps the figures fresh for as long as the instance runs.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    let wanted = mdt.engine.state.borrow().mdts.wanted.clone();
    loop {
        wanted.notified().await;
        if mdt.is_stopped() {
            return;
        }
        ask_all(&mdt).await;
        let maxage = mdt.engine.state.borrow().lod.mdt_policy.maxage_secs;
        mdt.env.sleep(Span::secs(maxage.into())).await;
    }
}

async fn ask_all(mdt: &Rc<Mdt>) {
    let here = mdt.engine.config.index;
    if let Ok(space) = mdt.engine.store.meta().space() {
        let state = mdt.engine.marks.all();
        let space = Space {
            bytes: space.bytes,
            bytes_avail: space.bytes_free,
            files_free: space.files_free,
        };
        mdt.engine.state.borrow_mut().mdts.told(here, space, state);
    }
    let others = (mdt.engine.mdt_list)().into_iter().filter(|other| *other != here);
    let asks: Vec<_> = others.map(|other| ask(mdt, other)).collect();
    for told in asks {
        let _away = told.await;
    }
}

fn ask(mdt: &Rc<Mdt>, index: u32) -> tokio::sync::oneshot::Receiver<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let mdt = mdt.clone();
    mdt.env.clone().spawn("mdt_statfs_mdt", async move {
        let Some(endpoint) = mdt.osts.clone() else { return };
        let mut call = Call::new(Opcode::MdtStatfs, vec![encode_body(&FidReq::default())]);
        call.patience = Some(PATIENCE);
        if let Ok(answer) = endpoint.remote(TargetId::mdt(index)).call(call).await {
            let body: StatfsRep = answer.reply.body();
            let space = super::spaces::space(&body);
            if body.blocks > 0 {
                mdt.engine.state.borrow_mut().mdts.told(index, space, body.state);
            }
        }
        let _gone = tell.send(());
    });
    told
}
