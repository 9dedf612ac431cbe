//! `nacre unnamed`: lists objects of all OSTs that no file of a served MDT names, and removes them.
//!
//! It prints one line to stdout per object, with words separated by a space:
//! `unnamed OST OBJECT FILE BYTES`, or `removed ...` for a removed object.

use std::io::Write;
use std::path::Path;

use anyhow::{Context, Result, bail, ensure};
use ctl::progress::{Progress, Unit};
use ctl::{Ask, Reply, ask};
use types::{Fid, TargetId, TargetKind};

use crate::check_meta::DIFFERENT;
use crate::export_meta::server_of;
use crate::objects::behind;

const OSTS: Unit = Unit::Step("OST");

/// What to look at.
#[derive(Clone, Debug)]
pub struct Options {
    /// Name of the MDT.
    pub target: String,
    /// They are not only shown.
    pub remove: bool,
}

/// What was found.
#[derive(Clone, Copy, Debug, Default)]
struct Found {
    objects: u64,
    bytes: u64,
}

/// Where found objects are shown, and on a terminal how far the command is.
struct Screen<'a> {
    out: &'a mut dyn Write,
    progress: Progress,
    /// OSTs that were looked at, and all.
    osts: (u64, u64),
}

/// Shows or removes them; the exit status.
pub fn run(options: &Options, out: &mut dyn Write) -> Result<u8> {
    let name = &options.target;
    let target: TargetId = name.parse()?;
    ensure!(target.kind == TargetKind::Mdt, "{name} is not an MDT: name one, as testfs-MDT0000");
    let socket = server_of(name).with_context(|| crate::objects::not_here(name))?;
    let Reply::Who(who) = ask::ask(&socket, &Ask::Who)? else {
        bail!("the daemon answered another question: is it of another version?");
    };
    let (mut found, mut silent) = (Found::default(), 0);
    let progress = Progress::unless_piped(name, OSTS);
    let mut screen = Screen { out, progress, osts: (0, who.osts.len() as u64) };
    for ost in &who.osts {
        if let Err(error) = look_at(options, (&socket, ost), &mut found, &mut screen) {
            screen.progress.erase();
            ctl::say!("{ost}: not looked at to its end: {error:#}");
            silent += 1;
        }
        screen.osts.0 += 1;
    }
    screen.out.flush()?;
    drop(screen);
    let Found { objects, bytes } = found;
    let osts = who.osts.iter().filter(|name| name.parse().is_ok_and(TargetId::is_ost)).count();
    let done = if options.remove { "go" } else { "stay; --remove removes them" };
    ctl::say!("{objects} objects without a name, {bytes} bytes, on {osts} OSTs: they {done}");
    ensure!(silent == 0, "{silent} OSTs were not looked at to their end");
    Ok(if objects == 0 || options.remove { 0 } else { DIFFERENT })
}

/// All pages of one OST.
fn look_at(
    options: &Options,
    (socket, ost): (&Path, &str),
    found: &mut Found,
    screen: &mut Screen<'_>,
) -> Result<()> {
    let word = if options.remove { "removed" } else { "unnamed" };
    let ((done, all), mut from) = (screen.osts, Fid::ZERO);
    for page in 1_u64.. {
        screen.progress.show(done, all, &format!("{ost}, page {page}"));
        let question = Ask::Unnamed {
            target: options.target.clone(),
            ost: ost.to_owned(),
            from: from.to_string(),
            remove: options.remove,
        };
        let Reply::Unnamed(page) = ask::ask(socket, &question)? else {
            bail!("the daemon answered another question: is it of another version?");
        };
        if !page.objects.is_empty() {
            screen.progress.erase();
        }
        for (object, file, bytes) in page.objects {
            found.objects += 1;
            found.bytes += bytes;
            writeln!(screen.out, "{word} {ost} {object} {file} {bytes}")?;
        }
        let Some(last) = page.last else { return Ok(()) };
        let last: Fid = last.parse()?;
        ensure!(last >= from, "a list goes on from where it was");
        let Some(next) = behind(last) else { return Ok(()) };
        from = next;
    }
    Ok(())
}
