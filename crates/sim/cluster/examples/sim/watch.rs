//! Real time, to limit the duration of a search. No run sees it.

use std::time::{Duration, SystemTime};

pub(crate) struct Watch(SystemTime);

impl Watch {
    #[expect(clippy::disallowed_methods, reason = "the search is outside of every simulated world")]
    fn now() -> SystemTime {
        SystemTime::now()
    }

    pub(crate) fn start() -> Watch {
        Watch(Watch::now())
    }

    pub(crate) fn has_run_for(&self, limit: Duration) -> bool {
        Watch::now().duration_since(self.0).is_ok_and(|elapsed| elapsed >= limit)
    }
}
