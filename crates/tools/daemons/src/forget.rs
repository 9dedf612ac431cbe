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
/// The target has objects, or cannot be asked for them, and `force` is not set. No MGS is here, or
/// it refuses.
pub fn run(target: &str, force: bool) -> Result<()> {
    const NOT_HERE: &str =
        "forget runs on the machine that serves the MGS, and no MGS is served here";
    if everywhere::daemons().is_empty() {
        bail!(NOT_HERE);
    }
    if !force && objects::is_ost(target) {
        refuse_used(target)?;
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
    bail!(NOT_HERE)
}

/// A slow OST is not an empty one: the administrator says which of them are gone.
fn refuse_used(target: &str) -> Result<()> {
    match objects::count_some(target) {
        Ok(0) => Ok(()),
        Ok(count) => bail!(
            "{target} is not empty: it has {count} or more objects. Move files away with `lfs migrate`; \
             objects of removed files go within seconds. --force forgets it, and its files return EIO"
        ),
        Err(error) => bail!(
            "{target} cannot be asked whether it has objects: {error}. Start it; if it is gone for good, --force \
             forgets it, and its files return EIO"
        ),
    }
}
