//! Sweeps the objects of burnt ids. After recovery every OST destroys its objects of these ids,
//! except those that a layout holds.
//!
//! Everything is committed first. An id that no layout holds then will never be held again, because
//! no id is given twice and no client replays any more. So sending late, twice, or again after a
//! restart is harmless. The ranges stay in the store until every OST has committed the destroy. The
//! OSTs are those of the configuration and those that any layout names. The same applies to ids of
//! files at the data target of the MDT, because their objects have the files' ids.

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
use crate::record::{INODE_HAS_LAYOUT, Inode};
use crate::target::Mdt;

/// Between looks at recovery, and before an OST that refused is asked again.
const PAUSE: Span = Span::secs(1);

/// Layouts read before others get their turn.
const LAYOUTS_AT_ONCE: usize = 1_024;

/// Ids that were burnt before this run.
struct Pending {
    objects: Burnt,
    files: Burnt,
}

/// What the layouts say.
#[derive(Default)]
struct Held {
    /// Burnt ids that files hold, of objects and of files whose first bytes are at the MDT.
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
    let burnt = Pending {
        objects: pending(mdt, keys::META_BURNT_OBJECTS).await?,
        files: pending(mdt, keys::META_BURNT_FILES).await?,
    };
    if burnt.objects.0.is_empty() && burnt.files.0.is_empty() {
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
    let unplaced = unplaced(mdt, &burnt.files).await?; // before the layouts: they may get one
    let mut held = held(mdt, &burnt).await?;
    held.live.extend(unplaced);
    held.live.extend(mdt.engine.state.borrow().swapped.iter().copied());
    // a file that is gone by now must not come back after a crash without its objects
    mdt.commit().await?;
    let bugs = &mdt.engine.config.bugs;
    let spared = |is_blind| if is_blind { BTreeSet::new() } else { held.live.clone() };
    let objects: Rc<[ObjectRange]> =
        burnt.objects.without(&spared(bugs.sweep_held_ranges())).into();
    let files: Rc<[ObjectRange]> = burnt.files.without(&spared(bugs.sweep_held_files())).into();
    let mut done = BTreeSet::new();
    loop {
        let all = &held.osts | &mdt.engine.holders();
        let wanted: BTreeSet<u32> = &all - &done;
        if wanted.is_empty() {
            break;
        }
        // All at once: one that is away does not hold up the others.
        let gaps = |ost| if TargetId::ost(ost).is_dom() { &files } else { &objects };
        let tasks: Vec<_> = wanted.iter().map(|ost| ask(mdt, *ost, gaps(*ost).clone())).collect();
        for task in tasks {
            if task.await.is_err() || mdt.is_stopped() {
                return Ok(());
            }
        }
        done.extend(wanted);
    }
    let mut set = WriteSet::new();
    set.delete(Table::Meta, keys::META_BURNT_OBJECTS);
    set.delete(Table::Meta, keys::META_BURNT_FILES);
    mdt.engine.apply_when_ready(&set).await?;
    tracing::info!(target: "mdt", ranges = objects.len() + files.len(), kept = held.live.len(), osts = done.len(), "burnt object ids are swept");
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

async fn pending(mdt: &Mdt, key: &[u8]) -> Decided<Burnt> {
    mdt.engine.store.meta().ready().await;
    let stored = mdt.engine.store.meta().running()?.get(Table::Meta, key)?;
    stored.map_or(Ok(Burnt::default()), |stored| {
        Burnt::decode(&stored).ok_or(OpError::Broken("burnt ids"))
    })
}

/// Reads all layouts, a piece at a time. What comes meanwhile has ids of this run, or was swapped;
/// what goes is only kept for longer.
async fn held(mdt: &Mdt, burnt: &Pending) -> Decided<Held> {
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

/// Burnt ids of files that have no layout: they may get one, and be at the MDT then.
async fn unplaced(mdt: &Mdt, burnt: &Burnt) -> Decided<BTreeSet<(u64, u32)>> {
    let mut found = BTreeSet::new();
    for range in &burnt.0 {
        let end = Fid::new(range.seq, range.end);
        let mut from = Some(Fid::new(range.seq, range.first));
        while let Some(at) = from {
            mdt.engine.store.meta().ready().await;
            from = unplaced_some(mdt, at, end, &mut found)?;
            mdt.env.sleep(Span::micros(1)).await;
        }
    }
    Ok(found)
}

/// Where to go on, if there are more.
fn unplaced_some(
    mdt: &Mdt,
    from: Fid,
    end: Fid,
    found: &mut BTreeSet<(u64, u32)>,
) -> Decided<Option<Fid>> {
    let view = mdt.engine.store.meta().running()?;
    let (mut next, mut count, mut broken) = (None, 0, false);
    view.scan(Table::Inodes, &from.to_key(), &mut |key, value| {
        let Some(fid) = Fid::from_key(key).filter(|fid| *fid < end) else { return false };
        if count == LAYOUTS_AT_ONCE {
            next = Some(fid);
            return false;
        }
        count += 1;
        match Inode::decode(value) {
            Some(inode) if inode.attr.is_file() && !inode.has(INODE_HAS_LAYOUT) => {
                found.insert((fid.seq, fid.oid));
            }
            Some(_) => {}
            None => broken = true,
        }
        !broken
    })?;
    assert!(count <= LAYOUTS_AT_ONCE, "others get their turn");
    if broken { Err(OpError::Broken("inode")) } else { Ok(next) }
}

/// The key of the last one, or none where there are no more.
fn read_some(mdt: &Mdt, burnt: &Pending, from: &[u8], held: &mut Held) -> Decided<Option<Vec<u8>>> {
    let view = mdt.engine.store.meta().running()?;
    let (mut last, mut count, mut broken) = (None, 0, false);
    view.scan(Table::Layouts, from, &mut |key, value| {
        let file = Fid::from_key(key);
        match file.map(|file| (file, Striping::decode(file, value))) {
            Some((_, Ok(Striping::Layout(layout)))) => {
                let bases = layout.stripings().map(|one| one.base);
                let live = bases.filter(|base| burnt.objects.holds(*base));
                let data = layout.mdt_object().filter(|object| burnt.files.holds(*object));
                held.live.extend(live.chain(data).map(|id| (id.seq, id.oid)));
                held.osts.extend(layout.osts());
            }
            Some((_, Ok(Striping::Template(_) | Striping::None))) => {}
            None | Some((_, Err(_))) => broken = true,
        }
        count += 1;
        last = Some(key.to_vec());
        !broken && count < LAYOUTS_AT_ONCE
    })?;
    assert!(count <= LAYOUTS_AT_ONCE, "others get their turn");
    if broken { Err(OpError::Broken("layout")) } else { Ok(last) }
}
