//! The client side of a control socket, blocking, for the command line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::Path;
use std::time::Duration;

use lst::command::{Answer, Command};
use serde::Serialize;

use crate::proto::{self, REPLY_BYTES_MAX};
use crate::{Ask, Failure, Reply, rundir};

/// How long a daemon may think. Its own calls give up earlier: this catches one that hangs.
pub const PATIENCE: Duration = Duration::from_secs(30);

/// How long a self-test's console may think: a stop waits for requests that are not answered.
const CONSOLE_PATIENCE: Duration = Duration::from_secs(120);

/// Longest answer of a console, bytes: counters of 4,096 nodes with full histograms.
const CONSOLE_ANSWER_BYTES_MAX: u64 = 64 << 20;

/// Why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// The daemon could not be asked.
    Io(io::Error),
    /// It has taken the question and not answered for so long.
    Silent(Duration),
    Refused(Failure),
}

impl AskError {
    /// As an exit status.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            AskError::Io(error) => types::Errno::from_io(error).raw(),
            AskError::Silent(_) => types::Errno::ETIMEDOUT.raw(),
            AskError::Refused(failure) => failure.errno,
        }
    }
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AskError::Io(error) => write!(f, "the daemon does not answer: {error}"),
            AskError::Silent(wait) => {
                write!(f, "the daemon has not answered for {} s", wait.as_secs())
            }
            AskError::Refused(failure) => f.write_str(&failure.text),
        }
    }
}

impl std::error::Error for AskError {}

/// Asks the daemon behind `socket`.
pub fn ask(socket: &Path, question: &Ask) -> Result<Reply, AskError> {
    ask_within(socket, question, PATIENCE)
}

/// Asks it, and waits no longer than this.
pub fn ask_within(socket: &Path, question: &Ask, patience: Duration) -> Result<Reply, AskError> {
    let bounds = Bounds { patience, answer_bytes: REPLY_BYTES_MAX as u64 };
    let line = exchange(socket, question, bounds).map_err(|error| match error.kind() {
        io::ErrorKind::WouldBlock | io::ErrorKind::TimedOut => AskError::Silent(patience),
        _ => AskError::Io(error),
    })?;
    proto::decode(&line).ok_or_else(|| AskError::Io(foreign()))?.map_err(AskError::Refused)
}

/// Asks the console of self-test session `key`.
pub fn console(key: u32, command: &Command) -> io::Result<Answer> {
    let (socket, _) = rundir::console(key)?;
    let bounds = Bounds { patience: CONSOLE_PATIENCE, answer_bytes: CONSOLE_ANSWER_BYTES_MAX };
    serde_json::from_str(&exchange(&socket, command, bounds)?).map_err(|_| foreign())
}

fn foreign() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "the daemon's answer is not JSON of Nacre")
}

/// How long an asker waits, and for how much.
#[derive(Clone, Copy)]
struct Bounds {
    patience: Duration,
    answer_bytes: u64,
}

/// One line there, one line back.
fn exchange(socket: &Path, question: &impl Serialize, bounds: Bounds) -> io::Result<String> {
    let mut stream = rundir::connect(socket)?;
    stream.set_read_timeout(Some(bounds.patience))?;
    stream.set_write_timeout(Some(bounds.patience))?;
    let mut text = serde_json::to_string(question)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).take(bounds.answer_bytes).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
