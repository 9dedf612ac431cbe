//! `nacre forget`: removes a target from its file system's configuration at the MGS, which is
//! served here.

use anyhow::{Result, bail};
use ctl::ask::{self, AskError};
use ctl::{Ask, Reply, everywhere};
use types::Errno;

use crate::objects;

/// Has the MGS forget `target`, and says what that means.
///
/// # Errors
/// The target has objects, and `force` is not set. A target that nobody can ask counts as empty,
/// because it is gone. No MGS is here, or it refuses.
pub fn run(target: &str, force: bool) -> Result<()> {
    if !force && let Ok(count @ 1..) = objects::count_some(target) {
        bail!(
            "{target} is not empty: it has {count} or more objects. Move files away with `lfs migrate`; \
             objects of removed files go within seconds. --force forgets it, and its files return EIO"
        );
    }
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
