//! Sends one question to all daemons of this machine at once. A daemon that hangs delays its own
//! answer, and no other daemon's.

use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::ask::{self, AskError};
use crate::{Ask, Failure, Reply, rundir};

/// How long a daemon may take where others are asked too, unless `NACRE_ANSWER_WAIT` says so many
/// seconds.
const PATIENCE: Duration = Duration::from_secs(2);

/// A daemon of this machine, as its socket names it. Each executor of a process that serves targets
/// counts as one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Daemon {
    /// `testfs-OST0000`, the first target of a server; `client-testfs-INSTANCE`, a mount; `up`, the
    /// servers of an `up`, or the first executor of them.
    pub name: String,
    pub pid: u32,
    pub socket: PathBuf,
}

impl Daemon {
    /// The one behind this socket.
    #[must_use]
    pub fn of(socket: PathBuf) -> Daemon {
        let (pid, name) = name_of(&socket);
        Daemon { name, pid, socket }
    }
}

impl std::fmt::Display for Daemon {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        if self.pid == 0 {
            return f.write_str(&self.name);
        }
        write!(f, "{} (process {})", self.name, self.pid)
    }
}

/// From `PID-server-NAME.sock` or `PID-LABEL.sock`.
pub(crate) fn name_of(socket: &Path) -> (u32, String) {
    let stem = socket.file_stem().unwrap_or_default().to_string_lossy();
    let (pid, label) = stem.split_once('-').unwrap_or(("", &stem));
    let name = label.strip_prefix("server-").unwrap_or(label);
    (pid.parse().unwrap_or(0), name.to_owned())
}

/// All daemons, with what each has answered, in the order of their names.
#[must_use]
pub fn ask_all(question: &Ask) -> Vec<(Daemon, Result<Reply, AskError>)> {
    ask_some(question, &|_| true)
}

/// Those with a name that is `wanted`.
#[must_use]
pub fn ask_some(
    question: &Ask,
    wanted: &dyn Fn(&str) -> bool,
) -> Vec<(Daemon, Result<Reply, AskError>)> {
    let mut daemons = daemons();
    daemons.retain(|daemon| wanted(&daemon.name));
    ask_each(daemons, question, patience())
}

/// The answers to several questions, in their order; a refusal is an answer too.
pub type Answers = Result<Vec<Result<Reply, Failure>>, AskError>;

/// All daemons at once, each asked these questions one after the other. A daemon that leaves one
/// unanswered is asked no further, so that it costs one wait.
#[must_use]
pub fn ask_series(questions: &[Ask]) -> Vec<(Daemon, Answers)> {
    let patience = patience();
    at_once(daemons(), patience, |socket| series(socket, questions, patience))
}

fn series(socket: &Path, questions: &[Ask], patience: Duration) -> Answers {
    let answer = |question| match ask::ask_within(socket, question, patience) {
        Ok(reply) => Ok(Ok(reply)),
        Err(AskError::Refused(failure)) => Ok(Err(failure)),
        Err(error) => Err(error),
    };
    questions.iter().map(answer).collect()
}

/// All daemons, in the order of their names.
#[must_use]
pub fn daemons() -> Vec<Daemon> {
    let mut daemons: Vec<Daemon> = rundir::daemons().into_iter().map(Daemon::of).collect();
    daemons.sort();
    daemons
}

/// How long to wait for one of several.
#[must_use]
pub fn patience() -> Duration {
    let said = std::env::var("NACRE_ANSWER_WAIT").ok().and_then(|text| text.parse().ok());
    said.map_or(PATIENCE, Duration::from_secs)
}

fn ask_each(
    daemons: Vec<Daemon>,
    question: &Ask,
    patience: Duration,
) -> Vec<(Daemon, Result<Reply, AskError>)> {
    at_once(daemons, patience, |socket| ask::ask_within(socket, question, patience))
}

/// A thread for each daemon; a thread that panicked counts as silence.
fn at_once<T: Send>(
    daemons: Vec<Daemon>,
    patience: Duration,
    ask: impl Fn(&Path) -> Result<T, AskError> + Sync,
) -> Vec<(Daemon, Result<T, AskError>)> {
    let ask = &ask;
    std::thread::scope(|scope| {
        let asked: Vec<_> = daemons
            .into_iter()
            .map(|daemon| {
                let socket = daemon.socket.clone();
                (daemon, scope.spawn(move || ask(&socket)))
            })
            .collect();
        let answer = |(daemon, asked): (Daemon, std::thread::ScopedJoinHandle<'_, _>)| {
            let answer = asked.join().unwrap_or(Err(AskError::Silent(patience)));
            (daemon, answer)
        };
        asked.into_iter().map(answer).collect()
    })
}

#[cfg(test)]
mod tests {
    use std::io::{Read, Write};
    use std::os::unix::net::UnixListener;
    use std::time::Instant;

    use super::*;

    #[test]
    fn a_socket_names_its_daemon() {
        let of = |name: &str| name_of(Path::new(name));
        assert_eq!(of("/run/nacre/12-server-testfs-OST0001.sock"), (12, "testfs-OST0001".into()));
        assert_eq!(of("7-client-testfs-ff0a.sock"), (7, "client-testfs-ff0a".into()));
        assert_eq!(of("odd.sock"), (0, "odd".into()));
    }

    /// Takes an asker and reads its question.
    fn question(listener: &UnixListener) -> std::os::unix::net::UnixStream {
        let (mut stream, _) = listener.accept().expect("an asker");
        let mut byte = [0];
        while byte != *b"\n" {
            stream.read_exact(&mut byte).expect("a question");
        }
        stream
    }

    #[test]
    fn daemons_that_stand_still_cost_their_own_answers_and_one_wait() {
        let dir = std::env::temp_dir().join(format!("nacre-everywhere-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let names = ["1-server-a.sock", "2-server-b.sock", "3-server-c.sock", "4-client-d.sock"];
        let listeners: Vec<UnixListener> = names
            .iter()
            .map(|name| UnixListener::bind(dir.join(name)).expect("a socket"))
            .collect();
        let living = listeners[1].try_clone().expect("a descriptor");
        let answering = std::thread::spawn(move || {
            let mut stream = question(&living);
            stream.write_all(b"{\"ok\":{\"lines\":[\"here\"]}}\n").expect("an answer");
        });
        let daemons = names.iter().map(|name| Daemon::of(dir.join(name))).collect();
        let (start, patience) = (Instant::now(), Duration::from_secs(5));
        let answers = ask_each(daemons, &Ask::Nids, patience);
        assert!(start.elapsed() < 3 * patience, "one after the other");
        answering.join().expect("no panic");
        for (daemon, answer) in &answers {
            match (daemon.name.as_str(), answer) {
                ("b", Ok(Reply::Lines(lines))) => assert_eq!(lines, &["here"]),
                ("b", other) => panic!("{other:?}"),
                (_, Err(error @ AskError::Silent(_))) => {
                    assert_eq!(error.errno(), types::Errno::ETIMEDOUT.raw());
                }
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(answers.len(), 4);
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }

    #[test]
    fn a_series_goes_on_behind_a_refusal_and_ends_at_silence() {
        let dir = std::env::temp_dir().join(format!("nacre-series-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let socket = dir.join("1-server-a.sock");
        let listener = UnixListener::bind(&socket).expect("a socket");
        let answering = std::thread::spawn(move || {
            let answers =
                ["{\"err\":{\"errno\":2,\"text\":\"none\"}}\n", "{\"ok\":{\"lines\":[]}}\n"];
            for answer in answers {
                let mut stream = question(&listener);
                stream.write_all(answer.as_bytes()).expect("an answer");
            }
            drop(question(&listener));
        });
        let patience = Duration::from_secs(60);
        let answers = series(&socket, &[Ask::Nids, Ask::Nids], patience).expect("two answers");
        assert!(matches!(answers[0], Err(Failure { errno: 2, .. })), "{answers:?}");
        assert_eq!(answers[1], Ok(Reply::Lines(Vec::new())));
        assert!(series(&socket, &[Ask::Nids, Ask::Nids], patience).is_err(), "asked once");
        answering.join().expect("no panic");
        std::fs::remove_dir_all(&dir).expect("cleaned up");
    }
}
