//! Commits: `commit_interval` after the first change, at once when too much is dirty.

use std::rc::Rc;

use crate::target::Mdt;

/// Runs until the instance stops or fails. Sleeps without a timer while nothing is dirty.
pub(crate) async fn run(mdt: Rc<Mdt>) {
    let engine = mdt.engine.clone();
    loop {
        engine.dirtied.notified().await;
        mdt.env.timeout(engine.config.commit_interval, engine.pressed.notified()).await;
        if mdt.is_stopped() {
            return;
        }
        if engine.store.dirty_bytes() > 0 {
            mdt.commit().await;
        }
    }
}
