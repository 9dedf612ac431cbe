//! The asking side of a control socket, blocking: for the command line.

use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::time::Duration;

use super::proto::REPLY_BYTES_MAX;
use super::{Ask, Failure, Reply};

/// How long a daemon may think. Its own calls give up earlier: this catches one that hangs.
const PATIENCE: Duration = Duration::from_secs(30);

/// Why there is no answer.
#[derive(Debug)]
pub enum AskError {
    /// The daemon could not be asked.
    Io(io::Error),
    /// It refused.
    Refused(Failure),
}

impl AskError {
    /// As an exit status.
    #[must_use]
    pub fn errno(&self) -> i32 {
        match self {
            AskError::Io(error) => types::Errno::from_io(error).raw(),
            AskError::Refused(failure) => failure.errno,
        }
    }
}

impl std::fmt::Display for AskError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            AskError::Io(error) => write!(f, "the daemon does not answer: {error}"),
            AskError::Refused(failure) => f.write_str(&failure.text),
        }
    }
}

impl std::error::Error for AskError {}

/// Asks the daemon behind `socket`.
pub fn ask(socket: &Path, question: &Ask) -> Result<Reply, AskError> {
    let line = exchange(socket, question).map_err(AskError::Io)?;
    let answer: Result<Reply, Failure> = super::server::decode(&line).ok_or_else(|| {
        AskError::Io(io::Error::new(
            io::ErrorKind::InvalidData,
            "an answer that is no JSON of ours",
        ))
    })?;
    answer.map_err(AskError::Refused)
}

fn exchange(socket: &Path, question: &Ask) -> io::Result<String> {
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(question)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).take(REPLY_BYTES_MAX as u64).read_line(&mut line)?;
    if line.ends_with('\n') { Ok(line) } else { Err(io::ErrorKind::UnexpectedEof.into()) }
}
