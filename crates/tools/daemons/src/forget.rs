//! `nacre forget`: removes a target from its file system's configuration at the MGS, which is
//! served here.

use anyhow::{Result, bail};
use ctl::ask::{self, AskError};
use ctl::{Ask, Reply, everywhere};
use types::Errno;

/// Has the MGS forget `target`, and says what that means.
pub fn run(target: &str) -> Result<()> {
    let question = Ask::Forget { target: target.to_owned() };
    for daemon in everywhere::daemons() {
        match ask::ask_within(&daemon.socket, &question, everywhere::patience()) {
            Ok(Reply::Lines(_)) => {
                ctl::say!(
                    "{target} is forgotten: nothing waits for it, and what files have there answers EIO; its storage is as \
                     it was"
                );
                return Ok(());
            }
            Err(AskError::Refused(failure))
                if [Errno::ENODEV.raw(), Errno::ENOTTY.raw()].contains(&failure.errno) => {}
            Err(AskError::Refused(failure)) => bail!(failure.text),
            Err(error) => ctl::say!("nacre forget: {daemon}: {error}"),
            Ok(_) => {}
        }
    }
    bail!("forget runs on the machine that serves the MGS, and no MGS is served here")
}
