//! Asks all OSTs and the data target for their free space at once. It does so as soon as a choice
//! used figures older than `qos_maxage`. It also does so when a client has synced everything, as
//! clients do when a write finds no room. An idle MDT asks no target. An OST that is away, or
//! reports nothing, keeps its last figures.

use std::rc::Rc;

use endpoint::Call;
use placement::Space;
use types::{Span, TargetId};
use wire::body::{FidReq, StatfsRep, StatfsState};
use wire::{Opcode, encode_body};

use crate::spaces::Closed;
use crate::target::Mdt;

/// How long an OST may think.
const PATIENCE: Span = Span::secs(5);

/// OSTs are asked this often at most: while every OST is full, because room that was made is
/// wanted, and when clients meet full ones.
const PAUSE_MIN: Span = Span::secs(1);

/// Keeps the figures fresh for as long as the instance runs.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    let (wanted, doubted) = {
        let state = mdt.engine.state.borrow();
        (state.spaces.wanted.clone(), state.spaces.doubted.clone())
    };
    while !mdt.is_stopped() {
        ask_all(&mdt).await;
        let (maxage, any_open) = {
            let state = mdt.engine.state.borrow();
            (
                Span::secs(state.lod.policy.maxage_secs.into()),
                state.spaces.any_open(&(mdt.engine.ost_list)()),
            )
        };
        let least = maxage.min(PAUSE_MIN);
        mdt.env.sleep(least).await;
        if any_open {
            let rest = Span(maxage.0 - least.0);
            let _in_doubt = mdt.env.timeout(rest, doubted.notified()).await;
        }
        wanted.notified().await;
    }
}

async fn ask_all(mdt: &Rc<Mdt>) {
    let asks: Vec<_> = mdt.engine.holders().into_iter().map(|ost| ask(mdt, ost)).collect();
    for told in asks {
        let _away = told.await;
    }
}

fn ask(mdt: &Rc<Mdt>, index: u32) -> tokio::sync::oneshot::Receiver<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let mdt = mdt.clone();
    mdt.env.clone().spawn("mdt_statfs_ost", async move {
        let Some(endpoint) = mdt.osts.clone() else { return };
        let mut call = Call::new(Opcode::OstStatfs, vec![encode_body(&FidReq::default())]);
        call.patience = Some(PATIENCE);
        if let Ok(answer) = endpoint.remote(TargetId::ost(index)).call(call).await {
            let body: StatfsRep = answer.reply.body();
            if body.blocks > 0 {
                let spaces = &mut mdt.engine.state.borrow_mut().spaces;
                spaces.told(index, space(&body), closed(&body));
                spaces.told_degraded(index, body.state.contains(StatfsState::DEGRADED));
            }
        }
        let _gone = tell.send(());
    });
    told
}

/// Whether it gets no new files.
fn closed(body: &StatfsRep) -> Option<Closed> {
    match body.state {
        state if state.contains(StatfsState::READ_ONLY) => Some(Closed::ReadOnly),
        state if state.contains(StatfsState::NO_CREATE) => Some(Closed::Draining),
        state if state.contains(StatfsState::FULL) => Some(Closed::Full),
        _ => None,
    }
}

pub(super) fn space(body: &StatfsRep) -> Space {
    Space {
        bytes: body.blocks.saturating_mul(body.block_bytes),
        bytes_avail: body.blocks_avail.saturating_mul(body.block_bytes),
        files_free: body.files_free,
    }
}
