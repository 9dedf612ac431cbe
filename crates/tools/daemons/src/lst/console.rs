//! The console process of a self-test session.

use std::io::{self, Write};
use std::rc::Rc;

use ::lst::command::{Answer, Command, NewSession};
use anyhow::{Context, Result};
use ctl::rundir::{self, Registered};
use env::Env;
use env_os::OsConfig;
use selftest::Console;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tracing::level_filters::LevelFilter;
use types::Span;

use crate::log;
use crate::signals::Signals;

/// Longest command, bytes: NID lists of a thousand words.
const COMMAND_BYTES_MAX: u64 = 1 << 20;
/// An asker that does not say what it wants is hung up on.
const ASK_MAX: Span = Span::secs(10);
/// Askers served at once.
const ASKERS_MAX: usize = 64;

/// Is the console: until the session is over, or a signal ends it.
pub fn console(session: &NewSession) -> Result<u8> {
    log::init(LevelFilter::INFO, log::LogFormat::Text);
    super::raise_descriptors();
    // a leader of its group already: then it has no terminal to leave
    let _ = rustix::process::setsid();
    // its nodes decide whom they accept
    let config = OsConfig { insecure: true, ..OsConfig::default() };
    env_os::run(config, |env| async move { live(&env, session).await })
}

async fn live(env: &Env, session: &NewSession) -> Result<u8> {
    let mut signals = Signals::new()?;
    let (socket, _) = rundir::console(session.key)?;
    match std::fs::remove_file(&socket) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error.into()),
        _ => {}
    }
    let listener = UnixListener::bind(&socket).with_context(|| socket.display().to_string())?;
    let registered = Registered::new(socket);
    let console = Console::start(env, session.clone());
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

async fn answer(env: &Env, stream: UnixStream, console: &Rc<Console>) -> io::Result<()> {
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
