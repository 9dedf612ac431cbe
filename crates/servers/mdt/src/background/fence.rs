//! The end of a session that held something. The OSTs get the fence first. Then the MDT passes on
//! the locks and handles that the session held ([`crate::fences`]). An OST that is away holds up
//! the files that it has a part of, for as long as it is away.

use std::collections::BTreeSet;
use std::rc::Rc;

use endpoint::{Call, CallError};
use layout::Striping;
use osd::{Table, WriteSet};
use service::{Session, Target};
use types::{ClientId, Errno, Fid, Span, TargetId};
use wire::body::{OstFenceRep, OstFenceReq};
use wire::{Opcode, encode_body};

use crate::fences::Lapsed;
use crate::target::Mdt;

/// Before an OST that refused or was away is asked again.
const PAUSE: Span = Span::secs(1);

/// How long an OST may think; whether it is still in use is looked up in between.
const PATIENCE: Span = Span::secs(5);

/// Files of a session that are looked at before others have their turn.
const FILES_IN_A_TURN: usize = 64;

impl Mdt {
    /// What OSTs must hear of before the things that an ended session held are given on; nothing
    /// where it held nothing that they could see. `is_unsure`: it may have held anything.
    pub(crate) async fn lapsed(
        &self,
        session: &Session,
        is_unsure: bool,
    ) -> Result<Option<Lapsed>, Errno> {
        let is_blind = self.osts.is_none() || self.engine.config.bugs.skip_fence();
        if is_blind || session.is_server {
            return Ok(None);
        }
        let lapsed = Lapsed { client: session.client, session: session.id, osts: None };
        if is_unsure {
            return Ok(Some(lapsed));
        }
        let mut osts = BTreeSet::new();
        let held = self.held(session.client, session.id);
        for (at, fid) in held.into_iter().enumerate() {
            if at % FILES_IN_A_TURN == FILES_IN_A_TURN - 1 {
                env::yield_now().await;
            }
            match self.osts_of(fid).await {
                Ok(of_file) => osts.extend(of_file),
                Err(errno) => {
                    tracing::error!(target: "mdt", %fid, %errno, "it is not known which OSTs have objects of a file: all OSTs get the fence of its client");
                    return Ok(Some(lapsed));
                }
            }
        }
        Ok((!osts.is_empty()).then_some(Lapsed { osts: Some(osts), ..lapsed }))
    }

    /// Files that a session has locked or open for writing.
    fn held(&self, client: ClientId, session: u64) -> BTreeSet<Fid> {
        let opens = &self.engine.state.borrow().opens;
        let open = opens.of_session(client, session).into_iter();
        let written = open.filter_map(|handle| opens.get(handle)).filter(|open| open.write);
        written.map(|open| open.fid).chain(self.locks.files_of(session)).collect()
    }

    /// OSTs that hold a part of a file. EIO if its layout cannot be read.
    pub(crate) async fn osts_of(&self, fid: Fid) -> Result<Vec<u32>, Errno> {
        let stored =
            || Ok(self.engine.store.meta().running()?.get(Table::Layouts, &fid.to_key())?);
        let stored = self.persist(stored).await?;
        Ok(match stored.map(|stored| Striping::decode(fid, &stored)) {
            Some(Ok(Striping::Layout(layout))) => layout.osts().collect(),
            Some(Err(_)) => return Err(Errno::EIO),
            Some(Ok(Striping::None | Striping::Template(_))) | None => Vec::new(),
        })
    }

    /// Lets go of what a lapsed session held once its OSTs refuse it.
    pub(crate) fn let_go_later(self: &Rc<Self>, lapsed: Lapsed) {
        let mdt = self.clone();
        self.env.spawn("mdt_fence", async move {
            if !tell_all(&mdt, &lapsed).await {
                return; // it goes on with the next start
            }
            mdt.engine.state.borrow_mut().fences.end(lapsed.session);
            mdt.fences_fell.notify_waiters();
            mdt.let_go(lapsed.client, lapsed.session).await;
            let forget = || {
                let mut set = WriteSet::new();
                Lapsed::forget(lapsed.session, &mut set);
                Ok(mdt.engine.apply_own(&set)?)
            };
            if let Err(errno) = mdt.persist(forget).await {
                tracing::warn!(target: "mdt", %errno, "a fence is sent again after the next start");
            }
        });
    }

    /// Lets go of the files whose OSTs, all of `osts`, refuse the session by now.
    async fn let_go_of_told(self: &Rc<Self>, lapsed: &Lapsed, osts: &BTreeSet<u32>) {
        let left = self.engine.state.borrow().fences.left(lapsed.session);
        let held = self.held(lapsed.client, lapsed.session);
        for (at, fid) in held.into_iter().enumerate() {
            if at % FILES_IN_A_TURN == FILES_IN_A_TURN - 1 {
                env::yield_now().await;
            }
            let is_told = |ost: &u32| osts.contains(ost) && !left.contains(ost);
            if self.osts_of(fid).await.is_ok_and(|of| of.iter().all(is_told)) {
                self.let_go_of(lapsed.client, lapsed.session, fid).await;
            }
        }
        self.recalls.drive();
    }
}

/// Says whether every OST in use has it, and the data target; not so where the instance ends.
async fn tell_all(mdt: &Rc<Mdt>, lapsed: &Lapsed) -> bool {
    while (mdt.engine.ost_list)().is_empty() {
        mdt.env.sleep(PAUSE).await;
        if mdt.is_stopped() {
            return false;
        }
    }
    let osts = lapsed.osts.clone().unwrap_or_else(|| mdt.engine.holders());
    mdt.engine.state.borrow_mut().fences.found(lapsed.session, &osts);
    let osts = Rc::new(osts);
    let tellings: Vec<_> = osts.iter().map(|ost| tell_later(mdt, lapsed, &osts, *ost)).collect();
    for told in tellings {
        if told.await.is_err() {
            return false;
        }
    }
    planted::reached("mdt: a lapsed client was fenced");
    true
}

/// One of `osts`. Files of which it is the last one to hear are let go of.
fn tell_later(
    mdt: &Rc<Mdt>,
    lapsed: &Lapsed,
    osts: &Rc<BTreeSet<u32>>,
    ost: u32,
) -> tokio::sync::oneshot::Receiver<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let (mdt, lapsed, osts) = (mdt.clone(), lapsed.clone(), osts.clone());
    mdt.env.clone().spawn("mdt_fence_ost", async move {
        while is_used(&mdt, ost) && !tell_once(&mdt, &lapsed, ost).await {
            mdt.env.sleep(PAUSE).await;
            if mdt.is_stopped() {
                return;
            }
        }
        mdt.engine.state.borrow_mut().fences.told(lapsed.session, ost);
        mdt.fences_fell.notify_waiters();
        mdt.let_go_of_told(&lapsed, &osts).await;
        let _gone = tell.send(());
    });
    told
}

/// One that was taken out of use serves nobody, and may never come back.
fn is_used(mdt: &Mdt, ost: u32) -> bool {
    mdt.engine.holders().contains(&ost)
}

async fn tell_once(mdt: &Mdt, lapsed: &Lapsed, ost: u32) -> bool {
    let Some(endpoint) = &mdt.osts else { return true };
    let remote = endpoint.remote(TargetId::ost(ost));
    loop {
        let is_gone = mdt.engine.state.borrow().fences.is_gone(lapsed.session);
        let body = OstFenceReq {
            store: mdt.store_number(),
            client_low: lapsed.client.0 as u64,
            client_high: (lapsed.client.0 >> 64) as u64,
            session: lapsed.session + 1,
            instance: if is_gone { remote.instance().0 } else { 0 },
        };
        let mut call = Call::new(Opcode::OstFence, vec![encode_body(&body)]);
        call.patience = Some(PATIENCE);
        match remote.call(call).await {
            // it restarted meanwhile: that the client is gone must be known of its present run
            Ok(answer) if is_gone && answer.reply.body::<OstFenceRep>().waits != 0 => {}
            Ok(_) => return true,
            Err(CallError::Shutdown) => std::future::pending().await,
            Err(error) => {
                tracing::debug!(target: "mdt", target_id = %TargetId::ost(ost).name(mdt.engine.config.fsname), %error, "not fenced so far");
                return false;
            }
        }
    }
}
