//! Sequential users: each works in a directory of its own and compares every answer with the model.

use std::cell::{Cell, RefCell};
use std::collections::VecDeque;
use std::rc::Rc;

use env_sim::{NodeHandle, Rng};
use oracle::{Mirror, Op, Runner, Taste, next_op};
use types::{Fid, Span};

use crate::schedule::Plan;

/// What a user is told, and what is seen of it from outside.
pub(crate) struct User {
    pub(crate) name: String,
    pub(crate) node: NodeHandle,
    pub(crate) base: Fid,
    pub(crate) mirror: Rc<RefCell<Mirror>>,
    progress: Rc<Progress>,
}

/// Shared with the task.
#[derive(Default)]
struct Progress {
    name: String,
    /// Operations that were compared with the model.
    ops: Cell<u64>,
    /// The users stop when they have done this many operations and may stop.
    wanted: Cell<u64>,
    may_stop: Cell<bool>,
    idle: Cell<bool>,
    failure: RefCell<Option<String>>,
    doing: RefCell<String>,
}

impl User {
    pub(crate) fn start(
        (number, name): (u32, &str),
        node: &NodeHandle,
        runner: Runner,
        rng: Rng,
        (ops, plan): (u64, &Rc<Plan>),
    ) -> User {
        let (mirror, base) = (runner.mirror(), runner.base());
        let progress = Rc::new(Progress { name: name.to_owned(), ..Progress::default() });
        progress.wanted.set(ops);
        node.env()
            .spawn("user", work(node.env(), runner, rng, (number, plan.clone()), progress.clone()));
        User { name: name.to_owned(), node: node.clone(), base, mirror, progress }
    }

    pub(crate) fn ops(&self) -> u64 {
        self.progress.ops.get()
    }

    /// It may rest once it has done what it was asked for.
    pub(crate) fn allow_rest(&self) {
        self.progress.may_stop.set(true);
    }

    /// Whether it rests (or has failed).
    pub(crate) fn is_idle(&self) -> bool {
        self.progress.idle.get()
    }

    pub(crate) fn work_on(&self, ops: u64) {
        self.progress.wanted.set(self.progress.ops.get() + ops);
        self.progress.idle.set(false);
    }

    pub(crate) fn failure(&self) -> Option<String> {
        self.progress.failure.borrow().as_ref().map(|failure| format!("{}: {failure}", self.name))
    }

    /// What it waits for.
    pub(crate) fn doing(&self) -> String {
        format!("{}: {}", self.name, self.progress.doing.borrow())
    }
}

async fn work(
    env: env::Env,
    mut runner: Runner,
    mut rng: Rng,
    (user, plan): (u32, Rc<Plan>),
    progress: Rc<Progress>,
) {
    let taste = Taste::default();
    let mut repeats = plan.ops_to_repeat(user);
    loop {
        let rested = match &repeats {
            Some(repeats) => repeats.is_empty(),
            None => progress.may_stop.get() && progress.ops.get() >= progress.wanted.get(),
        };
        if rested || progress.failure.borrow().is_some() {
            progress.idle.set(true);
            env.sleep(Span::millis(10)).await;
            continue;
        }
        progress.idle.set(false);
        let again = repeats.as_mut().and_then(VecDeque::pop_front);
        let op: Op = match &again {
            Some(again) => {
                env.sleep_until(again.at).await;
                again.op.clone()
            }
            None => runner.with_model(|model| next_op(&mut rng, model, &taste)),
        };
        plan.began_op(user, env.now(), &op);
        *progress.doing.borrow_mut() = format!(
            "operation {} {op:?} since {:.3} s",
            progress.ops.get(),
            env.now().0 as f64 / 1e9
        );
        tracing::debug!("{} operation {} {op:?}", progress.name, progress.ops.get());
        match runner.step(&op).await {
            Ok(compared) => progress.ops.set(progress.ops.get() + u64::from(compared)),
            Err(mismatch) => *progress.failure.borrow_mut() = Some(mismatch.to_string()),
        }
        if again.is_some() {
            continue;
        }
        let think = if rng.chance(100_000) { Span::millis(300) } else { Span::millis(40) };
        env.sleep(rng.span(Span::ZERO, think)).await;
    }
}
