//! Objects of burnt ids go: after recovery every OST destroys what it has of them, but for those
//! that a layout holds.
//!
//! Everything is committed first: an id that no layout holds then will never be held again, because
//! no id is given twice and nobody replays any more. So sending late, twice, or again after a
//! restart is harmless. The ranges stay in the store until every OST has committed the destroy.
//! OSTs are those of the configuration and those that any layout names.

use std::collections::BTreeSet;
use std::rc::Rc;

use layout::Striping;
use osd::{Table, WriteSet};
use service::Target;
use target::{Decided, OpError};
use types::{Fid, Span, TargetId};
use wire::body::{BatchFlags, ObjectRange};

use super::destroy::send;
use crate::burnt::Burnt;
use crate::keys;
use crate::target::Mdt;

/// Between looks at recovery, and before an OST that refused is asked again.
const PAUSE: Span = Span::secs(1);

/// Layouts read before others get their turn.
const LAYOUTS_AT_ONCE: usize = 1_024;

/// What the layouts say.
#[derive(Default)]
struct Held {
    /// Burnt ids that files hold.
    live: BTreeSet<(u64, u32)>,
    osts: BTreeSet<u32>,
}

/// Sweeps the ranges that were burnt before this run, once.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    if mdt.engine.config.bugs.skip_range_sweep() {
        return;
    }
    if let Err(error) = sweep(&mdt).await {
        tracing::error!(target: "mdt", %error, "objects of burnt ids stay until the next start");
    }
}

async fn sweep(mdt: &Rc<Mdt>) -> Decided<()> {
    let burnt = pending(mdt).await?;
    if burnt.0.is_empty() {
        return Ok(());
    }
    while mdt.exports().is_recovering() || (mdt.engine.ost_list)().is_empty() {
        mdt.env.sleep(PAUSE).await;
        if mdt.is_stopped() {
            return Ok(());
        }
    }
    planted::reached("mdt: ids that a restart burnt were swept");
    mdt.commit().await?;
    let held = held(mdt, &burnt).await?;
    let is_blind = mdt.engine.config.bugs.sweep_held_ranges();
    let spared = if is_blind { &BTreeSet::new() } else { &held.live };
    let gaps: Rc<[ObjectRange]> = burnt.without(spared).into();
    let mut done = BTreeSet::new();
    loop {
        let listed = (mdt.engine.ost_list)();
        let wanted: BTreeSet<u32> = held
            .osts
            .iter()
            .copied()
            .chain(listed.iter().map(|ost| ost.index))
            .filter(|ost| !done.contains(ost))
            .collect();
        if wanted.is_empty() {
            break;
        }
        // All at once: one that is away does not hold up the others.
        let tasks: Vec<_> = wanted.iter().map(|ost| ask(mdt, *ost, gaps.clone())).collect();
        for task in tasks {
            if task.await.is_err() || mdt.is_stopped() {
                return Ok(());
            }
        }
        done.extend(wanted);
    }
    let mut set = WriteSet::new();
    set.delete(Table::Meta, keys::META_BURNT_OBJECTS);
    mdt.engine.apply_when_ready(&set).await?;
    tracing::info!(target: "mdt", ranges = gaps.len(), kept = held.live.len(), osts = done.len(), "burnt object ids are swept");
    Ok(())
}

/// Tells one OST until it has committed it.
fn ask(mdt: &Rc<Mdt>, ost: u32, gaps: Rc<[ObjectRange]>) -> tokio::sync::oneshot::Receiver<()> {
    let (tell, told) = tokio::sync::oneshot::channel();
    let mdt = mdt.clone();
    mdt.env.clone().spawn("mdt_ranges_ost", async move {
        let Some(endpoint) = mdt.osts.clone() else { return };
        let remote = endpoint.remote(TargetId::ost(ost));
        while !gaps.is_empty() && !send(&mdt, &remote, &gaps, BatchFlags::OIDS).await {
            mdt.env.sleep(PAUSE).await;
            if mdt.is_stopped() {
                return;
            }
        }
        let _gone = tell.send(());
    });
    told
}

async fn pending(mdt: &Mdt) -> Decided<Burnt> {
    mdt.engine.store.meta().ready().await;
    let stored = mdt.engine.store.meta().running()?.get(Table::Meta, keys::META_BURNT_OBJECTS)?;
    stored.map_or(Ok(Burnt::default()), |stored| {
        Burnt::decode(&stored).ok_or(OpError::Broken("burnt ids"))
    })
}

/// Reads all layouts, a piece at a time. What comes meanwhile has ids of this run, what goes is
/// only kept for longer.
async fn held(mdt: &Mdt, burnt: &Burnt) -> Decided<Held> {
    let mut held = Held::default();
    let mut from = vec![0];
    loop {
        mdt.engine.store.meta().ready().await;
        let last = read_some(mdt, burnt, &from, &mut held)?;
        let Some(last) = last else { return Ok(held) };
        from = last;
        from.push(0);
        mdt.env.sleep(Span::micros(1)).await;
    }
}

/// The key of the last one, or none where there are no more.
fn read_some(mdt: &Mdt, burnt: &Burnt, from: &[u8], held: &mut Held) -> Decided<Option<Vec<u8>>> {
    let view = mdt.engine.store.meta().running()?;
    let (mut last, mut count, mut broken) = (None, 0, false);
    view.scan(Table::Layouts, from, &mut |key, value| {
        let file = Fid::from_key(key);
        match file.map(|file| Striping::decode(file, value)) {
            Some(Ok(Striping::Layout(layout))) => {
                let bases = layout.stripings().map(|one| one.base);
                let live = bases.filter(|base| burnt.holds(*base));
                held.live.extend(live.map(|base| (base.seq, base.oid)));
                held.osts.extend(layout.osts());
            }
            Some(Ok(Striping::Template(_) | Striping::None)) => {}
            None | Some(Err(_)) => broken = true,
        }
        count += 1;
        last = Some(key.to_vec());
        !broken && count < LAYOUTS_AT_ONCE
    })?;
    if broken { Err(OpError::Broken("layout")) } else { Ok(last) }
}
