//! The console process, and how it is started and asked.

use std::fs::{DirBuilder, OpenOptions};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::PathBuf;
use std::process::{Child, Command as Process, Stdio};
use std::rc::Rc;
use std::time::Duration;

use anyhow::{Context, Result, bail};
use env::Env;
use env_os::OsConfig;
use selftest::{Answer, Command, Console, ConsoleConfig};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream as AsyncStream};
use tracing::level_filters::LevelFilter;
use types::{Nid, Span};

use crate::rundir::Registered;
use crate::signals::Signals;
use crate::{log, rundir};

/// Longest command, bytes: NID lists of a thousand words.
const COMMAND_BYTES_MAX: u64 = 1 << 20;
/// Longest answer, bytes: counters of 4,096 nodes with full histograms.
const ANSWER_BYTES_MAX: u64 = 64 << 20;
/// A stop waits for requests that are not answered; everything else is faster.
const PATIENCE: Duration = Duration::from_secs(120);
/// An asker that does not say what it wants is hung up on.
const ASK_MAX: Span = Span::secs(10);
/// Askers served at once.
const ASKERS_MAX: usize = 64;

/// A session to be made.
#[derive(Clone, Debug)]
pub struct ConsoleOptions {
    /// `LST_SESSION`.
    pub key: u32,
    /// Its name.
    pub name: String,
    /// Seconds without a command after which it ends; 0 never.
    pub timeout_secs: u32,
    /// An older session of this key ends; nodes leave other sessions for it.
    pub force: bool,
    /// Port of the nodes.
    pub port: u16,
    /// Own address.
    pub nid: Option<Nid>,
}

fn place(key: u32) -> io::Result<(PathBuf, PathBuf)> {
    let dir = rundir::path()?.join("lst");
    match DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    Ok((dir.join(format!("{key}.sock")), dir.join(format!("{key}.log"))))
}

/// Asks the console of session `key`.
pub fn ask(key: u32, command: &Command) -> io::Result<Answer> {
    let (socket, _) = place(key)?;
    let mut stream = UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(PATIENCE))?;
    stream.set_write_timeout(Some(PATIENCE))?;
    let mut text = serde_json::to_string(command)?;
    text.push('\n');
    stream.write_all(text.as_bytes())?;
    let mut line = String::new();
    BufReader::new(stream).take(ANSWER_BYTES_MAX).read_line(&mut line)?;
    serde_json::from_str(&line).map_err(|_| {
        io::Error::new(io::ErrorKind::InvalidData, "an answer that is no JSON of ours")
    })
}

/// Starts a console in the background; what `lst new_session` prints.
pub fn new_session(options: &ConsoleOptions) -> Result<String> {
    let (socket, log) = place(options.key)?;
    if UnixStream::connect(&socket).is_ok() {
        if !options.force {
            bail!("session of LST_SESSION={} already exists", options.key);
        }
        ask(options.key, &Command::EndSession).context("the older session does not end")?;
    }
    let mut child = spawn(options, &log)?;
    let out = child.stdout.take().context("the console's stdout is a pipe")?;
    let mut line = String::new();
    BufReader::new(out).read_line(&mut line).context("the console's first line")?;
    if line.starts_with("SESSION: ") {
        return Ok(line);
    }
    let status = child.wait().context("the console's end")?;
    bail!("no session: the console ended ({status}):\n{}", crate::mount::log_tail(&log, 0, 5));
}

fn spawn(options: &ConsoleOptions, log: &std::path::Path) -> Result<Child> {
    let file = OpenOptions::new()
        .create(true)
        .write(true)
        .truncate(true)
        .open(log)
        .with_context(|| log.display().to_string())?;
    let mut command = Process::new(std::env::current_exe().context("own executable")?);
    command.arg0("nacre").arg("lst-console").args([
        "--key",
        &options.key.to_string(),
        "--name",
        &options.name,
    ]);
    command.args([
        "--timeout",
        &options.timeout_secs.to_string(),
        "--port",
        &options.port.to_string(),
    ]);
    if options.force {
        command.arg("--force");
    }
    if let Some(nid) = options.nid {
        command.args(["--nid", &nid.to_string()]);
    }
    command.current_dir("/").stdin(Stdio::null()).stdout(Stdio::piped()).stderr(file);
    command.spawn().context("the console does not start")
}

/// Is the console: until the session is over, or a signal ends it.
pub fn console(options: &ConsoleOptions) -> Result<u8> {
    log::init(LevelFilter::INFO);
    super::raise_descriptors();
    // a leader of its group already: then it has no terminal to leave
    let _ = rustix::process::setsid();
    // its nodes decide whom they accept
    let config = OsConfig { insecure: true, ..OsConfig::default() };
    env_os::run(config, |env| async move { live(&env, options).await })
}

async fn live(env: &Env, options: &ConsoleOptions) -> Result<u8> {
    let mut signals = Signals::new()?;
    let (socket, _) = place(options.key)?;
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    let registered = Registered::new(socket);
    let config = ConsoleConfig {
        name: options.name.clone(),
        key: options.key,
        timeout: Span::secs(u64::from(options.timeout_secs)),
        force: options.force,
        port: options.port,
        nid: options.nid,
    };
    let console = Console::start(env, config);
    let mut out = std::io::stdout();
    // nobody need listen
    let _ = out.write_all(console.banner().as_bytes()).and_then(|()| out.flush());
    let seats = Rc::new(tokio::sync::Semaphore::new(ASKERS_MAX));
    let (env1, served) = (env.clone(), Rc::clone(&console));
    let accepting = async move {
        // socket and listener go together, before the last answer does
        let _registered = registered;
        loop {
            let Ok((stream, _)) = listener.accept().await else {
                env1.sleep(Span::millis(100)).await; // out of descriptors: others give theirs back
                continue;
            };
            let (env2, console, seats) = (env1.clone(), Rc::clone(&served), Rc::clone(&seats));
            env1.spawn("lst.asker", async move {
                let Ok(_seat) = seats.try_acquire() else { return };
                let _ = answer(&env2, stream, &console).await; // the asker went away: its loss
            });
        }
    };
    tokio::select! {
        biased;
        signal = signals.next() => {
            tracing::info!("{signal}: the session ends");
            console.execute(Command::EndSession).await;
        }
        () = console.ended() => env.sleep(Span::millis(200)).await, // the last answer is on its way
        () = accepting => {}
    }
    Ok(0)
}

async fn answer(env: &Env, stream: AsyncStream, console: &Rc<Console>) -> io::Result<()> {
    let (uid, own) = (stream.peer_cred()?.uid(), rustix::process::geteuid().as_raw());
    let (read, mut write) = stream.into_split();
    let mut line = String::new();
    let mut bounded = tokio::io::BufReader::new(read).take(COMMAND_BYTES_MAX);
    let Some(got) = env.timeout(ASK_MAX, bounded.read_line(&mut line)).await else { return Ok(()) };
    got?;
    let refused = |text: String| Answer {
        err: text,
        status: types::Errno::EINVAL.raw(),
        ..Answer::default()
    };
    let answer = match serde_json::from_str::<Command>(&line) {
        _ if uid != 0 && uid != own => refused("Unmatched session key or not root\n".to_owned()),
        Ok(command) => console.execute(command).await,
        Err(error) => refused(format!("no command of ours: {error}\n")),
    };
    let mut text = serde_json::to_string(&answer).map_err(io::Error::other)?;
    text.push('\n');
    write.write_all(text.as_bytes()).await
}
