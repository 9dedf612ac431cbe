//! An administrator who has the names of directories move to other MDTs and back, all the time.

use std::cell::Cell;
use std::rc::Rc;

use client::Client;
use env_sim::{NodeHandle, Rng};
use layout::dir::{Asked, BY_SPACE, HASH_ALL_CHAR, HASH_CRUSH2};
use types::{Errno, Fid, Span};

use oracle::test_ctx;

/// Between two changes.
const PAUSE_LEAST: Span = Span::millis(50);
const PAUSE_MOST: Span = Span::secs(4);

/// See the head of the file.
pub(crate) struct Restriper {
    node: NodeHandle,
    may_stop: Rc<Cell<bool>>,
    is_over: Rc<Cell<bool>>,
}

impl Restriper {
    /// Begins with the names of these directories.
    pub(crate) fn start(
        node: &NodeHandle,
        client: Client,
        dirs: Vec<Fid>,
        mdts: u32,
        rng: Rng,
    ) -> Restriper {
        let restriper =
            Restriper { node: node.clone(), may_stop: Rc::default(), is_over: Rc::default() };
        let (may_stop, is_over) = (restriper.may_stop.clone(), restriper.is_over.clone());
        let own = node.clone();
        node.env().spawn("restriper", async move {
            work(&own, &client, &dirs, mdts, rng, &may_stop).await;
            is_over.set(true);
        });
        restriper
    }

    /// It ends after its next change.
    pub(crate) fn allow_rest(&self) {
        self.may_stop.set(true);
    }

    /// Whether it has ended; then its machine is gone.
    pub(crate) fn is_over(&self) -> bool {
        if self.is_over.get() {
            self.node.kill_as(false);
        }
        self.is_over.get()
    }
}

async fn work(
    node: &NodeHandle,
    client: &Client,
    dirs: &[Fid],
    mdts: u32,
    mut rng: Rng,
    may_stop: &Cell<bool>,
) {
    while !may_stop.get() {
        node.env().sleep(rng.span(PAUSE_LEAST, PAUSE_MOST)).await;
        let dir = dirs[rng.index(dirs.len())];
        let asked = draw(&mut rng, mdts);
        let begun = match asked.index == BY_SPACE {
            true => client.restripe(&test_ctx(), dir, &asked).await,
            false if dir == Fid::ROOT => continue, // it stays on its MDT
            false => client.migrate_names(&test_ctx(), dir, &asked).await,
        };
        match begun {
            Ok(()) => planted::reached("sim: names of a directory began to move"),
            Err(error) => {
                let is_known = matches!(
                    error.errno(),
                    Errno::EBUSY | Errno::ENODEV | Errno::EAGAIN | Errno::ENOSPC | Errno::EIO
                );
                assert!(is_known, "a directory is not striped anew: {error}");
            }
        }
    }
}

/// One to all MDTs, in any order. One is a plain directory, or names its MDT as [`Asked::index`].
fn draw(rng: &mut Rng, mdts: u32) -> Asked {
    let (count, first) = (rng.range(1, u64::from(mdts)) as u32, rng.below(u64::from(mdts)) as u32);
    let hash = if rng.chance(500_000) { HASH_CRUSH2 } else { HASH_ALL_CHAR };
    let on =
        if count > 1 { (0..count).map(|at| (first + at) % mdts).collect() } else { Vec::new() };
    let is_named = count == 1 && hash == HASH_ALL_CHAR;
    let index = if is_named { first.cast_signed() } else { BY_SPACE };
    Asked { count, hash, index, mdts: on, ..Asked::default() }
}
