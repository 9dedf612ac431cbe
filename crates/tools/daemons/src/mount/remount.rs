//! `mount -o remount`: changes the flags of an existing mount.
//!
//! The kernel holds all flags except the access time mode, which it leaves to the file system. The
//! command sends that mode to the daemon. Other options keep their values from the first mount.
//! They may be repeated, because mount(8) repeats the options in fstab.

use std::path::Path;

use anyhow::{Context, Result, bail};
use ctl::mounts::Mount;
use ctl::{Ask, Outcome, Reply, ask, mounts, rundir};
use rustix::mount::MountFlags;

use super::{MountOptions, flags, params};
use crate::umount;

/// Whether these options ask for it.
#[must_use]
pub fn is_wanted(text: &str) -> bool {
    text.split(',').any(|word| word == "remount")
}

/// Changes the flags of the mount at `dir` to what `text` says.
pub fn run(dir: &Path, text: &str) -> Result<()> {
    let dir = umount::resolve(dir)?;
    let mount = find(&dir)?;
    let socket = rundir::of_device(mount.device)
        .with_context(|| format!("{}: its daemon does not answer", dir.display()))?;
    let running = MountOptions::parse(&running_options(&socket)?)?;
    let wanted = wanted_flags(&mount, &running, text)?;
    match rustix::mount::mount_remount(&dir, wanted, "") {
        Err(rustix::io::Errno::BUSY) => bail!("{}: files are open for writing", dir.display()),
        Err(rustix::io::Errno::PERM) => {
            bail!("{}: only root may change a mount: unmount it and mount it again", dir.display())
        }
        other => other.with_context(|| dir.display().to_string())?,
    }
    let now = flags::shown(&find(&dir)?.options);
    let question =
        Ask::Set { pattern: format!("llite.*.{}", params::ACCESS_TIMES), value: flags::text(now) };
    match ask::ask(&socket, &question)? {
        Reply::Set(outcomes) if matches!(outcomes[..], [Outcome::Done(_)]) => Ok(()),
        other => bail!(
            "{}: remounted, but its daemon keeps access times as before: {other:?}",
            dir.display()
        ),
    }
}

fn find(dir: &Path) -> Result<Mount> {
    mounts::at(dir)?.with_context(|| {
        format!("{} is not a Nacre mount: nacre status lists the mounts", dir.display())
    })
}

/// What the mount was told when it was made.
fn running_options(socket: &Path) -> Result<String> {
    let question = Ask::Get { pattern: format!("llite.*.{}", params::OPTIONS), recursive: false };
    match ask::ask(socket, &question)? {
        Reply::Values(values) => Ok(values.into_iter().map(|value| value.value).collect()),
        other => bail!("the daemon answers {other:?}"),
    }
}

/// The flags that `text` asks for; what is no flag must be so already.
fn wanted_flags(mount: &Mount, running: &MountOptions, text: &str) -> Result<MountFlags> {
    let mut wanted = MountFlags::empty();
    for word in text.split(',').filter(|word| !matches!(*word, "" | "remount")) {
        if flags::apply(&mut wanted, word) || mount.options.iter().any(|shown| shown == word) {
            continue;
        }
        if matches!(word, "user" | "users" | "owner" | "group") {
            wanted |= MountFlags::NOSUID | MountFlags::NODEV | MountFlags::NOEXEC;
        } else if !running.says(word)? {
            let dir = mount.dir.display();
            bail!("'{word}' cannot change while {dir} is mounted: unmount it and mount it again");
        }
    }
    Ok(wanted)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> Result<MountFlags, String> {
        let options = ["rw", "relatime", "user_id=0", "allow_other"].map(str::to_owned).to_vec();
        let mount =
            Mount { dir: "/m".into(), device: (0, 1), source: "127.0.0.2@tcp:/a".into(), options };
        let running = MountOptions::parse("nid=127.0.0.5@tcp,_netdev").expect("fits");
        wanted_flags(&mount, &running, text).map_err(|error| error.to_string())
    }

    #[test]
    fn flags_change_and_the_rest_may_only_be_said_again() {
        assert!(is_wanted("ro,remount") && !is_wanted("ro,remounted"));
        assert_eq!(check("remount,ro,noatime"), Ok(MountFlags::RDONLY | MountFlags::NOATIME));
        assert_eq!(
            check("rw,user_id=0,allow_other,_netdev,nid=127.0.0.5@tcp,remount"),
            Ok(MountFlags::empty())
        );
        assert_eq!(check("remount,user,exec"), Ok(MountFlags::NOSUID | MountFlags::NODEV));
        for word in ["nid=127.0.0.6@tcp", "soft", "transport=classic"] {
            let error = format!(
                "'{word}' cannot change while /m is mounted: unmount it and mount it again"
            );
            assert_eq!(check(&format!("remount,{word}")), Err(error));
        }
        assert!(check("remount,bogus").is_err());
    }
}
