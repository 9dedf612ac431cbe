//! Moves the names of directories and shards of this MDT that are to leave them, while clients use
//! them ([`crate::op::moves`]). The store knows which these are, so a restart goes on.
//!
//! One operation moves at most [`MOVE_NAMES_MAX`] names to one new shard, and fewer if these keep
//! the thread for longer than [`MOVE_HOLD_MAX`]. Up to [`MOVES_AT_ONCE`] operations are under way,
//! each to another new shard. A pause as long as they took follows, so at most half of the MDT's
//! time goes into moves. Moves wait while half of what begins a commit is dirty. So a commit that
//! they fill is short, and leaves the room behind it to clients. The MDT of the directory finishes
//! when no old shard on any MDT has a name.

use std::collections::BTreeMap;
use std::rc::Rc;

use env::LocalFuture;
use layout::dir::Stripes;
use osd::{Table, View};
use target::Decided;
use types::{Errno, Fid, Instant, Span};
use wire::body::StatfsState;
use wire::updates::Move;

use crate::cross::own;
use crate::keys::{self, LMV};
use crate::limits::{
    COUNT_LOOK, COUNT_SLICE, MOVE_DIRTY_LOOK, MOVE_DIRTY_PART, MOVE_HOLD_MAX, MOVE_NAMES_FIRST,
    MOVE_NAMES_LEAST, MOVE_NAMES_MAX, MOVE_PAUSE, MOVES_AT_ONCE, MOVES_LOOK, MOVES_STUCK,
};
use crate::op::moves;
use crate::record::{DirentRecord, Inode};
use crate::target::Mdt;

/// Names by their new shards.
type ByHome = BTreeMap<Fid, Vec<Vec<u8>>>;

/// How many names one operation moves: as many as the thread executes in a moment, so that requests
/// get in between.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Size(usize);

impl Default for Size {
    fn default() -> Size {
        Size(MOVE_NAMES_FIRST)
    }
}

impl Size {
    /// After an operation that kept the thread for this long. One that keeps it for less than half
    /// of what it may can have twice as many names.
    fn after(self, held: Span) -> Size {
        let size = if held > MOVE_HOLD_MAX {
            self.0 / 2
        } else if held < Span(MOVE_HOLD_MAX.0 / 2) {
            self.0 * 2
        } else {
            self.0
        };
        Size(size.clamp(MOVE_NAMES_LEAST, MOVE_NAMES_MAX))
    }
}

/// What a step with several operations came to.
#[derive(Debug, Default)]
struct Step {
    /// A name stays, because it leads nowhere or is in its new shard already.
    is_stuck: bool,
    /// How long the quickest operation with many names kept the thread. The thread of the others
    /// may have waited for a processor.
    held: Option<Span>,
}

/// How far one pass over the names of a directory is.
#[derive(Clone, Debug, Default)]
struct Pass {
    /// Where the names begin that it has not tried.
    from: Option<Vec<u8>>,
    /// A name could not move, because of another operation or a damage.
    is_stuck: bool,
    /// Pause after the last pass in which one could not: longer each time.
    pause: Span,
    /// Nothing is done before.
    not_before: Instant,
    size: Size,
}

impl Pass {
    /// Where a scan of the names goes on.
    fn from(&self, dir: Fid) -> Vec<u8> {
        self.from.clone().unwrap_or_else(|| dir.to_key().to_vec())
    }

    /// All names were tried: how long to wait before the next pass over those that are left.
    fn end(&mut self) -> Option<Span> {
        self.from = None;
        self.pause = match std::mem::take(&mut self.is_stuck) {
            true => Span(self.pause.0.saturating_mul(2)).clamp(MOVES_LOOK, MOVES_STUCK),
            false => Span::ZERO,
        };
        (self.pause > Span::ZERO).then_some(self.pause)
    }
}

/// Moves names for as long as the instance runs.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    let wanted = mdt.engine.state.borrow().moves.wanted.clone();
    let mut passes = BTreeMap::<Fid, Pass>::new();
    while !mdt.is_stopped() {
        if mdt.exports.is_recovering() {
            mdt.env.sleep(MOVES_LOOK).await; // replays know directories as they were
            continue;
        }
        while let Some((dir, has_grown)) = next_look(&mdt) {
            if let Err(errno) = look(&mdt, dir, has_grown).await {
                tracing::debug!(target: "mdt", %dir, %errno, "a directory is not split or merged");
            }
        }
        let dirs = mdt.engine.state.borrow().moves.all();
        passes.retain(|dir, _| dirs.iter().any(|(moving, _)| moving == dir));
        if dirs.is_empty() {
            wanted.notified().await;
            continue;
        }
        let mut is_idle = true;
        for (dir, _) in dirs {
            let pass = passes.entry(dir).or_default();
            if mdt.is_stopped() {
                break;
            }
            if mdt.env.now() < pass.not_before {
                continue;
            }
            let pause = match step(&mdt, dir, pass).await {
                Ok(pause) => pause,
                Err(errno) => {
                    tracing::debug!(target: "mdt", %dir, %errno, "names of a directory move later");
                    Some(MOVES_LOOK)
                }
            };
            is_idle &= pause.is_some();
            pass.not_before = mdt.env.now() + pause.unwrap_or_default();
        }
        if is_idle {
            mdt.env.sleep(MOVES_LOOK).await;
        }
    }
}

fn next_look(mdt: &Mdt) -> Option<(Fid, bool)> {
    mdt.engine.state.borrow_mut().moves.next_look()
}

/// Counts a directory or shard, and splits or merges its directory if that is due.
async fn look(mdt: &Rc<Mdt>, dir: Fid, has_grown: bool) -> Result<(), Errno> {
    let names = names_in(mdt, dir).await?;
    let split = mdt.engine.state.borrow().split;
    let is_closed = mdt.engine.marks.has(StatfsState::READ_ONLY);
    let begins = match has_grown {
        _ if !split.is_on || is_closed => Ok(false),
        true if names < split.count => Ok(false),
        true => mdt.run_own(|op| moves::split(op, dir)).await,
        false => mdt.run_own(|op| moves::merge(op, dir, names)).await,
    };
    if begins == Ok(true) {
        planted::reached("mdt: a directory was split or merged by itself");
        tracing::info!(target: "mdt", %dir, names, "names of the directory move, because there are many or few");
    }
    let bytes = mdt.persist(|| {
        let record = mdt.engine.store.meta().running()?.get(Table::Inodes, &dir.to_key())?;
        Ok(record.and_then(|record| Inode::decode(&record)).map_or(0, |inode| inode.attr.size))
    });
    let bytes = bytes.await?;
    mdt.engine.state.borrow_mut().moves.looked(dir, names, bytes, split.count);
    begins.map(drop)
}

/// Moves some names of a directory. Returns after how long to look again, if names may be left that
/// can move at once: none.
async fn step(mdt: &Rc<Mdt>, dir: Fid, pass: &mut Pass) -> Result<Option<Span>, Errno> {
    let stripes = mdt.persist(|| stored(&*mdt.engine.store.meta().running()?, dir)).await?;
    let Some(stripes) = stripes.filter(|stripes| stripes.leaving.is_some()) else {
        return Ok(Some(MOVES_LOOK));
    };
    if stripes.is_left(dir) {
        count(mdt, dir).await?;
        let from = pass.from(dir);
        let most = pass.size.0;
        let look =
            || next_names(&*mdt.engine.store.meta().running()?, dir, &from, (&stripes, most));
        let (names, next) = mdt.persist(look).await?;
        if !names.is_empty() {
            let is_lasting = pass.pause == MOVES_STUCK;
            let pushed = push(mdt, dir, names, is_lasting).await;
            if pushed.as_ref().is_err_and(|errno| *errno == Errno::ENOSPC) {
                pass.size = Size(MOVE_NAMES_LEAST); // they fit into the reserve one after the other
            }
            let Step { is_stuck, held } = pushed?;
            pass.is_stuck |= is_stuck;
            pass.size = held.map_or(pass.size, |held| pass.size.after(held));
            pass.from = Some(next);
            return Ok(None);
        }
        if pass.from.is_some() {
            return Ok(pass.end()); // once more, because names may be left behind
        }
        let moves = &mut mdt.engine.state.borrow_mut().moves;
        let moved = moves.of(dir).unwrap_or_default().moved;
        moves.counted(dir, 0, moved);
    }
    let is_shard = stripes.is_left(dir) && !is_master(mdt, dir).await?;
    if !is_shard
        && is_empty_elsewhere(mdt, dir, &stripes).await?
        && mdt.run_step(|op| moves::finish(op, dir)).await?
    {
        tracing::info!(target: "mdt", %dir, "all names of the directory have moved");
        planted::reached("mdt: all names of a directory have moved to other shards");
    }
    Ok(Some(MOVES_LOOK))
}

/// One operation for each new shard, some of them at the same time.
async fn push(mdt: &Rc<Mdt>, dir: Fid, by_home: ByHome, is_lasting: bool) -> Result<Step, Errno> {
    let (mut failed, mut done) = (None, Step::default());
    let homes: Vec<Vec<Vec<u8>>> = by_home.into_values().collect();
    let most = homes.iter().map(Vec::len).max().unwrap_or(0);
    for some in homes.chunks(MOVES_AT_ONCE) {
        until_written(mdt).await;
        let began = mdt.env.now();
        let pushes = some.iter().map(|names| -> LocalFuture<'_, Result<Step, Errno>> {
            Box::pin(push_to_one(mdt, dir, names, is_lasting))
        });
        for (names, pushed) in some.iter().zip(env::join_all(pushes.collect()).await) {
            match pushed {
                Ok(Step { is_stuck, held }) => {
                    done.is_stuck |= is_stuck;
                    let held = held.filter(|_| 2 * names.len() > most); // few names take no time
                    done.held = done.held.into_iter().chain(held).min();
                }
                Err(errno) => failed = Some(errno), // another shard may take its names
            }
        }
        mdt.env.sleep((mdt.env.now() - began).max(MOVE_PAUSE)).await;
    }
    failed.map_or(Ok(done), Err)
}

/// Whether so many changed bytes are too many for moves to add to them: a commit writes them out
/// while nothing else is executed, and behind a commit only some may wait.
fn is_too_dirty(dirty: u64, commit_at: u64) -> bool {
    dirty > commit_at / MOVE_DIRTY_PART
}

/// Waits until a commit has begun that covers what moves have changed, if that is a lot.
async fn until_written(mdt: &Mdt) {
    let commit_at = mdt.engine.config.commit_dirty_bytes;
    let is_due = || is_too_dirty(mdt.engine.store.meta().dirty_bytes(), commit_at);
    if !is_due() {
        return;
    }
    mdt.engine.pace.wake();
    while is_due() && !mdt.is_stopped() {
        mdt.env.sleep(MOVE_DIRTY_LOOK).await;
    }
}

/// Names of one new shard: one operation, or one for each name if they cannot move together.
async fn push_to_one(
    mdt: &Rc<Mdt>,
    dir: Fid,
    names: &[Vec<u8>],
    is_lasting: bool,
) -> Result<Step, Errno> {
    match mdt.push_timed(dir, names).await {
        Ok((_, held)) => Ok(Step { is_stuck: false, held: Some(held) }),
        Err(errno) if is_of_name(errno) => {
            let is_stuck = push_each(mdt, dir, names, is_lasting).await?;
            Ok(Step { is_stuck, held: None })
        }
        Err(errno) => Err(errno),
    }
}

/// Moves names one by one, so that one which cannot move holds up no other. `is_lasting`: it could
/// not for a long time, and is logged.
async fn push_each(
    mdt: &Rc<Mdt>,
    dir: Fid,
    names: &[Vec<u8>],
    is_lasting: bool,
) -> Result<bool, Errno> {
    let mut is_stuck = false;
    for name in names {
        match mdt.push(dir, std::slice::from_ref(name)).await {
            Err(errno) if is_of_name(errno) => {
                is_stuck = true;
                let name = String::from_utf8_lossy(name);
                if is_lasting {
                    tracing::error!(
                        target: "mdt", %dir, ?name, %errno,
                        "a name cannot move to its new shard: run nacre fsck"
                    );
                }
            }
            pushed => drop(pushed?),
        }
    }
    Ok(is_stuck)
}

/// Whether a name cannot move because of what it leads to, or what is in its new shard. No MDT is
/// away. With E2BIG, only too many files with long access lists cannot move at once.
fn is_of_name(errno: Errno) -> bool {
    [Errno::ENOENT, Errno::ESTALE, Errno::EIO, Errno::E2BIG].contains(&errno)
}

/// Whether no old shard on another MDT has a name, as far as their MDTs say.
async fn is_empty_elsewhere(mdt: &Rc<Mdt>, dir: Fid, stripes: &Stripes) -> Result<bool, Errno> {
    let here = mdt.engine.config.index;
    let old = || stripes.leaving.iter().flat_map(|leaving| &leaving.shards);
    let (mut left, mut moved) = (0_u64, 0_u64);
    for shard in old().filter(|shard| shard.mdt_index() != here) {
        let endpoint = mdt.osts.clone().ok_or(Errno::ENODEV)?;
        let body = Move { dir: *shard, name: Vec::new() };
        let one = own::ask(&endpoint, &body).await.map_err(|error| error.errno())?;
        left = left.saturating_add(one.left);
        moved = moved.saturating_add(one.moved);
    }
    let beside = old().filter(|shard| shard.mdt_index() == here && **shard != dir);
    let moves = &mut mdt.engine.state.borrow_mut().moves;
    let (left_here, moved_here) = moves.sum(beside);
    moves.heard(dir, left.saturating_add(left_here), moved.saturating_add(moved_here));
    Ok(left == 0 || mdt.engine.config.bugs.forget_old_shard())
}

async fn is_master(mdt: &Rc<Mdt>, dir: Fid) -> Result<bool, Errno> {
    let look = || {
        let view = mdt.engine.store.meta().running()?;
        let record = view.get(Table::Inodes, &dir.to_key())?.unwrap_or_default();
        let inode = Inode::decode(&record);
        Ok(inode.is_some_and(|inode| inode.attr.flags.contains(wire::attr::AttrFlags::STRIPED)))
    };
    mdt.persist(look).await
}

fn stored(view: &dyn View, dir: Fid) -> Decided<Option<Stripes>> {
    let value = view.get(Table::Xattrs, &keys::xattr(dir, LMV))?;
    Ok(value.and_then(|value| Stripes::decode(&value).ok()))
}

/// Some names from a key on, at most so many for each new shard, and where those behind them begin.
fn next_names(
    view: &dyn View,
    dir: Fid,
    from: &[u8],
    (stripes, most): (&Stripes, usize),
) -> Decided<(ByHome, Vec<u8>)> {
    let (prefix, mut by_home, mut next) = (dir.to_key(), ByHome::new(), from.to_vec());
    let mut count = 0;
    view.scan_within((Table::Dirents, &prefix), from, &mut |key, value| {
        let mut is_full = false;
        if let Some(record) = DirentRecord::decode(value) {
            let names = by_home.entry(stripes.home(&record.name)).or_default();
            names.push(record.name);
            is_full = names.len() >= most;
            count += 1;
        }
        next = [key, &[0]].concat();
        !is_full && count < MOVES_AT_ONCE * MOVE_NAMES_MAX
    })?;
    assert!(by_home.values().all(|names| names.len() <= most), "others get their turn");
    Ok((by_home, next))
}

/// Counts the names of a directory once.
async fn count(mdt: &Rc<Mdt>, dir: Fid) -> Result<(), Errno> {
    let progress = mdt.engine.state.borrow().moves.of(dir);
    let Some(progress) = progress.filter(|progress| progress.left.is_none()) else { return Ok(()) };
    let names = names_in(mdt, dir).await?;
    mdt.engine.state.borrow_mut().moves.counted(dir, names, progress.moved);
    Ok(())
}

/// Names in a directory or shard. In slices, so that requests of clients get in between.
async fn names_in(mdt: &Rc<Mdt>, dir: Fid) -> Result<u64, Errno> {
    let (mut names, mut from) = (0, Some(dir.to_key().to_vec()));
    while let Some(start) = from {
        let slice = || {
            let begun = mdt.env.now();
            let is_long = || mdt.env.now() - begun >= MOVE_HOLD_MAX;
            count_slice(&*mdt.engine.store.meta().running()?, dir, &start, &is_long)
        };
        let (found, next) = mdt.persist(slice).await?;
        names += found;
        from = next;
        if from.is_some() {
            mdt.env.sleep(MOVE_PAUSE).await;
        }
    }
    Ok(names)
}

/// Some names from a key on: at most [`COUNT_SLICE`], and fewer if `is_long` says that it takes too
/// long, because the records come from the disk. Returns where those behind them begin, if there
/// may be more.
fn count_slice(
    view: &dyn View,
    dir: Fid,
    from: &[u8],
    is_long: &dyn Fn() -> bool,
) -> Decided<(u64, Option<Vec<u8>>)> {
    let (prefix, mut found, mut last) = (dir.to_key(), 0_usize, None);
    view.scan_within((Table::Dirents, &prefix), from, &mut |key, _| {
        found += 1;
        let ends = found == COUNT_SLICE || (found.is_multiple_of(COUNT_LOOK) && is_long());
        last = ends.then(|| [key, &[0]].concat());
        last.is_none()
    })?;
    assert!(found <= COUNT_SLICE, "others get their turn");
    Ok((found as u64, last))
}

#[cfg(test)]
mod tests {
    use osd::{MetaStore, WriteSet};

    use super::*;
    use crate::tests::store::TestStore;

    #[test]
    fn an_operation_has_as_many_names_as_the_thread_executes_in_a_moment() {
        let mut size = Size::default();
        for _ in 0..9 {
            size = size.after(Span::ZERO);
        }
        assert_eq!(size, Size(MOVE_NAMES_MAX));
        assert_eq!(size.after(MOVE_HOLD_MAX), size);
        assert_eq!(size.after(Span::millis(3)), Size(MOVE_NAMES_MAX / 2));
        for _ in 0..9 {
            size = size.after(Span::secs(1));
        }
        assert_eq!(size, Size(MOVE_NAMES_LEAST));
    }

    #[test]
    fn moves_leave_half_of_what_a_commit_takes_to_others() {
        let commit_at = 16 << 20;
        assert!(!is_too_dirty(0, 0), "after a commit has begun, they always go on");
        assert!(!is_too_dirty(commit_at / 2, commit_at));
        assert!(is_too_dirty(commit_at / 2 + 1, commit_at));
    }

    #[test]
    fn names_are_counted_in_shorter_slices_if_they_take_long() {
        let (dir, other) = (Fid::new(9, 1), Fid::new(9, 2));
        let (meta, mut set) = (TestStore::default(), WriteSet::new());
        let names = 2 * COUNT_SLICE + COUNT_LOOK / 2;
        for number in 0..names as u64 {
            set.put(Table::Dirents, keys::dirent(dir, number << 16), []);
        }
        set.put(Table::Dirents, keys::dirent(other, 0), []);
        meta.apply(&set).expect("room");
        let view = meta.running().expect("ready");
        for (is_long, slice) in [(false, COUNT_SLICE), (true, COUNT_LOOK)] {
            let (mut from, mut found, mut slices) = (Some(dir.to_key().to_vec()), 0, 0);
            while let Some(start) = from {
                let (some, next) = count_slice(&*view, dir, &start, &|| is_long).expect("readable");
                assert!(some <= slice as u64);
                (found, slices, from) = (found + some, slices + 1, next);
            }
            assert_eq!((found, slices), (names as u64, names.div_ceil(slice)));
        }
    }

    #[test]
    fn one_step_takes_names_of_each_new_shard_and_passes_none() {
        let (dir, other) = (Fid::new(9, 1), Fid::new(9, 2));
        let shards = [3, 4, 5].map(|oid| Fid::new(9, oid)).to_vec();
        let stripes = Stripes { hash: 0, version: 1, master: 0, shards, leaving: None };
        let (meta, mut set) = (TestStore::default(), WriteSet::new());
        for number in 0..200_u32 {
            let name = format!("file.{number}").into_bytes();
            let record = DirentRecord { fid: Fid::new(9, 100 + number), file_type: 0, name };
            let place = if number < 190 { dir } else { other };
            let cookie = u64::from(number) << 16;
            set.put(Table::Dirents, keys::dirent(place, cookie), record.encode());
        }
        meta.apply(&set).expect("room");
        let view = meta.running().expect("ready");
        let (mut from, mut steps, mut found) = (dir.to_key().to_vec(), 0, 0);
        loop {
            let step = next_names(&*view, dir, &from, (&stripes, 16)).expect("readable");
            let (by_home, next) = step;
            if by_home.is_empty() {
                break;
            }
            assert!(by_home.values().all(|names| names.len() <= 16));
            let is_home = |home: &Fid, name: &Vec<u8>| stripes.home(name) == *home;
            assert!(by_home.iter().all(|(home, names)| names.iter().all(|n| is_home(home, n))));
            found += by_home.values().map(Vec::len).sum::<usize>();
            (from, steps) = (next, steps + 1);
        }
        assert_eq!(found, 190, "those of another directory stay");
        assert!((4..12).contains(&steps), "{steps}: each has names of several shards");
    }
}
