//! An attacker's share of a CPU. It pauses once it has used the share.

use std::rc::Rc;
use std::time::{Duration, Instant};

use env::Env;
use rustix::time::{ClockId, clock_gettime};
use tokio::sync::Semaphore;
use types::Span;

/// Part of a core that an attacker may use: one in so many.
const PART: u32 = 20;
/// Between two looks.
const TICK: Span = Span::millis(10);
/// Steps that may be taken from one look to the next.
const STEPS: usize = 50;

/// CPU time of this process.
fn used() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

/// Counts from when it was made.
#[derive(Clone)]
pub(crate) struct Budget {
    start: Instant,
    before: Duration,
    steps: Rc<Semaphore>,
}

impl Budget {
    pub(crate) fn start(env: &Env) -> Budget {
        let steps = Rc::new(Semaphore::new(0));
        let budget = Budget { start: Instant::now(), before: used(), steps };
        let (own, env_of_it) = (budget.clone(), env.clone());
        env.spawn("budget", async move {
            loop {
                if own.used() * PART <= own.start.elapsed() {
                    own.steps.add_permits(STEPS - own.steps.available_permits());
                }
                env_of_it.sleep(TICK).await;
            }
        });
        budget
    }

    fn used(&self) -> Duration {
        used() - self.before
    }

    /// Part of a core that was used.
    pub(crate) fn share(&self) -> f64 {
        self.used().as_secs_f64() / self.start.elapsed().as_secs_f64()
    }

    /// Completes when one more step may be taken.
    pub(crate) async fn step(&self) {
        self.steps.acquire().await.expect("it is never closed").forget();
    }
}
