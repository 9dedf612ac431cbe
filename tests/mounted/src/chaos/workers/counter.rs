//! A number that all workers count up, each under an exclusive `flock` of the file.

use std::fs::File;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::{Worker, pause, with_ost};
use crate::chaos::chance::Chance;
use crate::chaos::found::{Found, Kind};
use crate::chaos::life::{Life, Over};
use crate::chaos::times::{Nodes, mount, name};
use crate::posix;

const FILE: &str = "counter/number";
const DIGITS: usize = 20;

/// A step that was fsynced under the lock.
#[derive(Clone, Debug)]
pub(super) struct Step {
    number: u64,
    by: String,
    begin: Duration,
    end: Duration,
}

impl Step {
    fn told(&self) -> String {
        let (begin, end) = (self.begin.as_secs_f64(), self.end.as_secs_f64());
        format!("{} by {} from {begin:.2} to {end:.2} s", self.number, self.by)
    }
}

/// All steps of all.
pub(super) type Steps = Arc<Mutex<Vec<Step>>>;

pub(super) struct Counter {
    index: usize,
    steps: Steps,
    chance: Chance,
}

impl Counter {
    pub(super) fn new(index: usize, steps: Steps, chance: Chance) -> Counter {
        Counter { index, steps, chance }
    }

    fn one(&self, life: &Life<'_>, file: &File) -> Result<(), Over> {
        let at = life.at(FILE);
        life.call("flock", &at, || posix::flock(file, libc::LOCK_EX))?;
        let begin = life.now();
        let mut digits = [0; DIGITS];
        let len = life.call("read of the counter", &at, || file.read_at(&mut digits, 0))?;
        let there = std::str::from_utf8(&digits[..len]).unwrap_or("no text");
        let number = if len == 0 { Ok(0) } else { there.parse::<u64>() };
        let Ok(number) = number else {
            return Err(life.wrong(Kind::Torn, format!("{FILE} holds {there:?}")));
        };
        let (number, by) = (number + 1, format!("{}{}", name(mount(self.index)), life.number));
        let next = format!("{number:0DIGITS$}");
        life.call("write of the counter", &at, || file.write_all_at(next.as_bytes(), 0))?;
        life.call("fsync of the counter", &at, || file.sync_all())?;
        let step = Step { number, by, begin, end: life.now() };
        self.steps.lock().expect("no panic holds it").push(step);
        life.call("unlock", &at, || posix::flock(file, libc::LOCK_UN))
    }
}

impl Worker for Counter {
    fn place(&self) -> (usize, Nodes) {
        (self.index, with_ost(2))
    }

    fn live(&mut self, life: &Life<'_>) -> Result<(), Over> {
        let at = life.at(FILE);
        let open = || File::options().read(true).write(true).create(true).truncate(false).open(&at);
        let file = life.call("open of the counter", &at, open)?;
        while life.goes_on() {
            self.one(life, &file)?;
            pause(&mut self.chance);
        }
        Ok(())
    }

    fn verify(&self, fresh: &Path, found: &Found) {
        let mut steps = std::mem::take(&mut *self.steps.lock().expect("no panic holds it"));
        if steps.is_empty() {
            return; // another one has looked
        }
        let there = std::fs::read_to_string(fresh.join(FILE)).map_err(|error| error.to_string());
        let last = there.and_then(|text| text.parse().map_err(|_| format!("{text:?}")));
        judge(&mut steps, last, found);
        found.count("counted under the lock", steps.len() as u64);
    }
}

fn judge(steps: &mut [Step], last: Result<u64, String>, found: &Found) {
    steps.sort_by_key(|step| (step.number, step.begin));
    for pair in steps.windows(2) {
        let [before, after] = pair else { continue };
        if before.number == after.number {
            let text = format!("{FILE}: two made one step: {}, {}", before.told(), after.told());
            found.at_the_end(Kind::Doubled, text);
        } else if after.end < before.begin {
            let text = format!("{FILE}: it went back: {}, then {}", after.told(), before.told());
            found.at_the_end(Kind::Lost, text);
        }
    }
    let top = steps.last().map_or(0, |step| step.number);
    match last {
        Ok(last) if last >= top => {}
        other => {
            let text = format!("{FILE}: {other:?} is there, and {top} was fsynced");
            found.at_the_end(Kind::Lost, text);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Duration, Found, Step, judge};

    #[test]
    fn a_step_that_two_made_or_that_is_gone_is_found() {
        let kinds = |numbers: &[u64], last| {
            let secs = Duration::from_secs;
            let step = |(at, number): (usize, &u64)| Step {
                number: *number,
                by: "a0".to_owned(),
                begin: secs(at as u64 * 2),
                end: secs(at as u64 * 2 + 1),
            };
            let mut steps: Vec<_> = numbers.iter().enumerate().map(step).collect();
            let found = Found::default();
            judge(&mut steps, last, &found);
            let wrong = found.wrong().1;
            wrong.into_iter().map(|wrong| format!("{:?}", wrong.kind)).collect::<Vec<_>>()
        };
        assert!(kinds(&[1, 2, 4, 5], Ok(6)).is_empty());
        assert_eq!(kinds(&[1, 2, 2, 3], Ok(3)), ["Doubled"]);
        assert_eq!(kinds(&[1, 2, 3], Ok(2)), ["Lost"]);
        assert_eq!(kinds(&[1, 3, 2], Ok(3)), ["Lost"]);
        assert_eq!(kinds(&[1], Err("no such file".to_owned())), ["Lost"]);
    }
}
