//! Asks all daemons of this machine for parameters, and looks for the daemon of each mount.

use std::collections::BTreeMap;
use std::io::ErrorKind;

use ctl::ask::AskError;
use ctl::everywhere::{self, Daemon};
use ctl::{Ask, Failure, Reply, Who, mounts as table, rundir};

/// Values by name.
pub type Params = BTreeMap<String, String>;

/// The answers of a daemon.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Heard {
    pub who: Who,
    pub params: Params,
}

/// A daemon and its answer, or why it has given none.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Answered {
    pub daemon: Daemon,
    pub heard: Result<Heard, String>,
}

/// A mount of the kernel's table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountAt {
    /// Its directory.
    pub dir: String,
    pub fsname: String,
    /// The daemon that serves it, if it is alive.
    pub daemon: Option<Daemon>,
}

/// Asks all daemons at once for the parameters that match these patterns.
#[must_use]
pub fn ask(patterns: &[&str]) -> Vec<Answered> {
    let get = |pattern: &&str| Ask::Get { pattern: (*pattern).to_owned(), recursive: false };
    let questions: Vec<Ask> = std::iter::once(Ask::Who).chain(patterns.iter().map(get)).collect();
    let answered = |(daemon, answers): (Daemon, everywhere::Answers)| Answered {
        daemon,
        heard: answers.map(heard).map_err(|error| error.to_string()),
    };
    // a daemon that ended after it was found is none any more
    let is_there = |(_, answers): &(Daemon, everywhere::Answers)| {
        let Err(AskError::Io(error)) = answers else { return true };
        !matches!(error.kind(), ErrorKind::ConnectionRefused | ErrorKind::NotFound)
    };
    everywhere::ask_series(&questions).into_iter().filter(is_there).map(answered).collect()
}

/// A pattern that fits no parameter of a daemon is refused there, and adds nothing.
fn heard(answers: Vec<Result<Reply, Failure>>) -> Heard {
    let mut heard = Heard::default();
    for reply in answers.into_iter().flatten() {
        match reply {
            Reply::Who(who) => heard.who = who,
            Reply::Values(values) => {
                heard.params.extend(values.into_iter().map(|value| (value.name, value.value)));
            }
            _ => {}
        }
    }
    heard
}

/// All mounts of the kernel's table. No file of a mount is touched, because its server may be away.
#[must_use]
pub fn mounts() -> Vec<MountAt> {
    let mount = |mount: table::Mount| MountAt {
        dir: mount.dir.display().to_string(),
        fsname: mount.fsname().to_owned(),
        daemon: rundir::of_device(mount.device)
            .and_then(|link| link.canonicalize().ok())
            .map(Daemon::of),
    };
    table::all().unwrap_or_default().into_iter().map(mount).collect()
}

#[cfg(test)]
mod tests {
    use ctl::Value;

    use super::*;

    #[test]
    fn refusals_leave_the_other_answers() {
        let who = Who { kind: "server".into(), ..Who::default() };
        let value = |name: &str| Value { name: name.into(), value: "1".into(), is_writable: false };
        let refused = Failure::of(types::Errno::ENOENT);
        let answers = vec![
            Ok(Reply::Who(who.clone())),
            Err(refused),
            Ok(Reply::Values(vec![value("a"), value("b")])),
        ];
        let Heard { who: kept, params } = heard(answers);
        assert_eq!(
            (kept, params.into_keys().collect::<Vec<_>>()),
            (who, vec!["a".into(), "b".into()])
        );
    }
}
