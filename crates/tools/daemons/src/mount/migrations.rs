//! Migrations that `lfs migrate` began. They run in the mount's daemon as long as the command polls
//! them.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use client::{Client, Ctx, Migration};
use ctl::{Failure, RawPath, Reply};
use layout::Asked;
use types::{Creds, Errno, Instant, Span};

/// A migration goes on so long after the last question: its command was killed.
const ASKED_WITHIN: Span = Span::secs(10);
/// Between looks whether somebody still asks.
const LOOK: Span = Span::secs(2);
/// Migrations at a time: each holds up to four pieces of 8 MiB in memory.
const MIGRATIONS_MAX: usize = 16;

/// The migrations of a mount, by number.
pub(super) struct Migrations {
    client: Client,
    jobs: RefCell<BTreeMap<u64, Rc<Job>>>,
    last: Cell<u64>,
}

struct Job {
    /// Who began it, and may ask for it.
    uid: u32,
    migration: Rc<Migration>,
    asked: Cell<Instant>,
    outcome: RefCell<Option<Result<(), Failure>>>,
}

impl Migrations {
    pub(super) fn new(client: Client) -> Rc<Migrations> {
        Rc::new(Migrations { client, jobs: RefCell::default(), last: Cell::new(0) })
    }

    /// Begins one.
    pub(super) fn begin(
        self: &Rc<Self>,
        ctx: Ctx,
        path: RawPath,
        striping: &[u8],
        gives_way: bool,
    ) -> Result<Reply, Failure> {
        let asked = layout::lov::decode_any(striping).map_err(|_| Failure::of(Errno::EINVAL))?;
        if self.jobs.borrow().len() >= MIGRATIONS_MAX {
            return Err(Failure::of(Errno::EBUSY));
        }
        let number = self.last.get() + 1;
        self.last.set(number);
        let env = self.client.env().clone();
        let job = Rc::new(Job {
            uid: ctx.creds.uid,
            migration: Rc::new(Migration { gives_way, ..Migration::default() }),
            asked: Cell::new(env.now()),
            outcome: RefCell::default(),
        });
        self.jobs.borrow_mut().insert(number, job.clone());
        let (client, moved) = (self.client.clone(), job.clone());
        env.spawn("migration", async move {
            let done = migrate(&client, &ctx, &path.0, &asked, &moved.migration).await;
            let failure = |error: client::Error| Failure {
                errno: error.errno().raw(),
                text: error.to_string(),
            };
            *moved.outcome.borrow_mut() = Some(done.map_err(failure));
        });
        let (migrations, watched) = (self.clone(), job.clone());
        self.client.env().spawn("migration is watched", async move {
            migrations.watch(number, &watched).await;
        });
        Ok(Reply::Migration(told(number, &job)))
    }

    /// Gives up what nobody asks for, and forgets it.
    async fn watch(&self, number: u64, job: &Job) {
        let env = self.client.env();
        loop {
            env.sleep(LOOK).await;
            let is_asked_for = env.now() - job.asked.get() < ASKED_WITHIN;
            job.migration.is_given_up.set(!is_asked_for);
            if !is_asked_for && job.outcome.borrow().is_some() {
                self.jobs.borrow_mut().remove(&number);
                return;
            }
        }
    }

    /// How far one is. Its end is told once.
    pub(super) fn state(&self, number: u64, creds: &Creds) -> Result<Reply, Failure> {
        let job = self.jobs.borrow().get(&number).cloned();
        let job = job.filter(|job| creds.uid == 0 || creds.uid == job.uid);
        let job = job.ok_or_else(|| Failure::of(Errno::ENOENT))?;
        job.asked.set(self.client.env().now());
        let told = told(number, &job);
        if told.is_done {
            self.jobs.borrow_mut().remove(&number);
            job.asked.set(Instant::default());
        }
        Ok(Reply::Migration(told))
    }
}

async fn migrate(
    client: &Client,
    ctx: &Ctx,
    path: &[u8],
    striping: &Asked,
    migration: &Rc<Migration>,
) -> client::Result<()> {
    let (dir, name) = of_dir(path);
    let dir = client.lookup_path(ctx, dir).await?.fid();
    let file = client.lookup(ctx, dir, name).await?.fid();
    client.migrate(ctx, file, dir, striping, migration).await
}

/// The directory of a path, and the name in it.
fn of_dir(path: &[u8]) -> (&[u8], &[u8]) {
    let name = path.iter().rposition(|byte| *byte == b'/').map_or(0, |slash| slash + 1);
    path.split_at(name)
}

fn told(number: u64, job: &Job) -> ctl::Migration {
    let Migration { copied, size, rounds, pause, .. } = &*job.migration;
    let outcome = job.outcome.borrow();
    ctl::Migration {
        number,
        copied: copied.get(),
        size: size.get(),
        rounds: rounds.get(),
        pause_ms: pause.get().as_millis(),
        is_done: outcome.is_some(),
        failure: outcome.as_ref().and_then(|outcome| outcome.as_ref().err().cloned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_is_a_directory_and_a_name() {
        let check = |path: &[u8], dir: &[u8], name: &[u8]| assert_eq!(of_dir(path), (dir, name));
        check(b"/a/caf\xe9", b"/a/", b"caf\xe9");
        check(b"/f", b"/", b"f");
        check(b"f", b"", b"f");
    }
}
