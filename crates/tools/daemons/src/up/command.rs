//! `up --run CMD`: a command in the mount.

use std::os::unix::process::ExitStatusExt;
use std::path::Path;
use std::process::ExitStatus;

use anyhow::{Context, Result};
use env::Env;
use rustix::process::{Pid, Signal, kill_process};
use tokio::process::{Child, Command};
use types::Span;

use crate::signals::Signals;

/// How long a command may take to end after a signal.
const GRACE: Span = Span::secs(10);

/// Changes the directory after the shell has started: until a new process runs its own program, the
/// thread that would answer for the mount waits for it.
const SCRIPT: &str = r#"cd -- "$NACRE_MOUNT" && exec sh -c "$1""#;

/// Runs it; its exit status, or 128 and the signal's number.
pub(super) async fn run(
    env: &Env,
    command: &str,
    mount: &Path,
    signals: &mut Signals,
) -> Result<u8> {
    let mut shell = Command::new("sh");
    shell.arg("-c").arg(SCRIPT).arg("sh").arg(command).env("NACRE_MOUNT", mount).kill_on_drop(true);
    let mut child = shell.spawn().context("sh")?;
    let status = tokio::select! {
        biased;
        status = child.wait() => status.context("sh")?,
        signal = signals.next() => {
            ctl::say!("nacre up: {signal}: ending the command");
            end(env, &mut child, if signal == "SIGINT" { Signal::INT } else { Signal::TERM }).await?
        }
    };
    Ok(code(status))
}

async fn end(env: &Env, child: &mut Child, signal: Signal) -> Result<ExitStatus> {
    if let Some(pid) = child.id().and_then(|id| Pid::from_raw(id.cast_signed())) {
        let _ = kill_process(pid, signal); // it has gone: the wait tells
    }
    match env.timeout(GRACE, child.wait()).await {
        Some(status) => status.context("sh"),
        None => {
            child.kill().await.context("sh")?;
            child.wait().await.context("sh")
        }
    }
}

fn code(status: ExitStatus) -> u8 {
    let code = status.code().unwrap_or_else(|| 128 + status.signal().unwrap_or(0));
    u8::try_from(code & 0xff).unwrap_or(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(command: &str) -> u8 {
        let _alone = forks::one();
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let mut signals = Signals::new().expect("signals");
            run(&env, command, Path::new("/tmp"), &mut signals).await.expect("a shell")
        })
    }

    #[test]
    fn the_commands_status_is_ours() {
        assert_eq!(check("exit 7"), 7);
        assert_eq!(check("test \"$PWD\" = /tmp && test \"$NACRE_MOUNT\" = /tmp"), 0);
        assert_eq!(check("kill -9 $$"), 137);
    }
}
