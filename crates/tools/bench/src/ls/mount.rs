//! A mount of the file system that is listed: a daemon of its own, which knows nothing yet.
//!
//! The clients of this process serve callbacks meanwhile, so nothing here waits without them.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};

use anyhow::{Context, Result, bail, ensure};
use ctl::ask::ask;
use ctl::{Ask, Outcome, Reply, mounts, rundir};
use env::Env;
use types::Span;

use super::LsArgs;
use super::files::Dir;
use super::servers::Servers;
use super::through::{self, Through};
use super::ways::Way;

/// How often it is looked whether a process has ended.
const LOOK_EVERY: Span = Span::millis(1);
/// How long a mount, or its end, may take.
const WAIT: Span = Span::secs(60);
/// Options of all mounts. Without ACLs no program asks for those of each file.
const OPTIONS: &str = "noatime,noacl";

/// Where mounts are. It is removed with the value.
pub(super) struct Place(PathBuf);

impl Place {
    pub(super) fn make() -> Result<Place> {
        let dir = std::env::temp_dir().canonicalize()?;
        let place = Place(dir.join(format!("nacre-bench-ls-{}", std::process::id())));
        fs::create_dir_all(place.mount()).with_context(|| place.0.display().to_string())?;
        Ok(place)
    }

    fn mount(&self) -> PathBuf {
        self.0.join("mnt")
    }

    /// Where a mount's daemon logs.
    fn log(&self) -> PathBuf {
        self.0.join("mount.log")
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        // never what is below a mount that has stayed
        let _ = fs::remove_dir(self.mount());
        let _ = fs::remove_file(self.log());
        let _ = fs::remove_dir(&self.0);
    }
}

/// A mount; it ends with the value.
pub(super) struct Mount {
    child: Child,
    dir: PathBuf,
    /// Of its daemon.
    socket: PathBuf,
}

/// What a program did.
pub(super) struct Listed {
    /// Files whose attributes it has got.
    pub(super) files: u64,
    pub(super) seconds: f64,
    /// Requests of the mount meanwhile.
    pub(super) sent: Vec<(String, u64)>,
}

impl Mount {
    /// Mounts, with the settings of a way.
    pub(super) async fn start(
        env: &Env,
        args: &LsArgs,
        (servers, place): (&Servers, &Place),
        way: Way,
    ) -> Result<Mount> {
        let settings = way.settings();
        let options = [OPTIONS, settings.options].into_iter().filter(|words| !words.is_empty());
        let options = options.collect::<Vec<_>>().join(",");
        let (dir, log) = (place.mount(), place.log());
        let errors = File::create(&log).with_context(|| log.display().to_string())?;
        let child = Command::new(std::env::current_exe()?)
            .args(["mount", &servers.source()])
            .arg(&dir)
            .args(["--foreground", "-o", &format!("{options},nid={}", servers.client_nid())])
            .args(["--delay-us", &args.delay_us.to_string()])
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(errors)
            .spawn();
        let child = child.context("cannot start a mount")?;
        let mut mount = Mount { child, dir, socket: PathBuf::new() };
        mount.come_up(env, &log).await?;
        for (name, value) in settings.params {
            mount.set(name, &value)?;
        }
        Ok(mount)
    }

    async fn come_up(&mut self, env: &Env, log: &Path) -> Result<()> {
        let until = env.now() + WAIT;
        loop {
            if let Some(status) = self.child.try_wait()? {
                let said = fs::read_to_string(log).unwrap_or_default();
                bail!("the mount ended ({status}):\n{}", said.trim_end());
            }
            let mount = mounts::at(&self.dir)?;
            if let Some(socket) = mount.and_then(|mount| rundir::of_device(mount.device)) {
                self.socket = socket;
                return Ok(());
            }
            ensure!(env.now() < until, "{} is not mounted for too long", self.dir.display());
            env.sleep(LOOK_EVERY).await;
        }
    }

    fn set(&self, name: &str, value: &str) -> Result<()> {
        let question = Ask::Set { pattern: format!("llite.*.{name}"), value: value.to_owned() };
        let Reply::Set(outcomes) = ask(&self.socket, &question)? else {
            bail!("the mount does not answer how {name} was set")
        };
        match &outcomes[..] {
            [Outcome::Done(_)] => Ok(()),
            [Outcome::Refused(failure)] => bail!("{name}={value}: {}", failure.text),
            _ => bail!("a mount has no parameter {name}"),
        }
    }

    fn get(&self, name: &str) -> Result<String> {
        let question = Ask::Get { pattern: format!("llite.*.{name}"), recursive: false };
        match ask(&self.socket, &question)? {
            Reply::Values(values) if values.len() == 1 => {
                Ok(values.into_iter().map(|value| value.value).collect())
            }
            _ => bail!("a mount has no parameter {name}"),
        }
    }

    /// Has a program list a directory, until the time is over if there is a limit.
    pub(super) async fn list(
        &self,
        env: &Env,
        dir: &Dir,
        through: Through,
        limit: Option<Span>,
    ) -> Result<Listed> {
        rustix::fs::statvfs(&self.dir)?; // connections to all OSTs are there
        let path = self.dir.join(&dir.name);
        let path = path.to_str().context("a path of text")?;
        let (program, words) = through.command(path).context("a program lists")?;
        let before = through::requests(&self.get("rpcs")?);
        let mut command = Command::new(program);
        command.args(words).env("LC_ALL", "C").stdin(Stdio::null()).stdout(Stdio::null());
        let start = env.now();
        let mut child = command.spawn().with_context(|| program.to_owned())?;
        let status = finished(env, &mut child, limit).await?;
        let seconds = (env.now() - start).as_secs_f64();
        let files = match status {
            Some(status) => {
                ensure!(status.success(), "{through} ended with {status}");
                u64::from(dir.files)
            }
            // the directory itself was looked up, too
            None => through::lookups(&self.get("stats")?).saturating_sub(1),
        };
        let sent = through::sent(&before, &through::requests(&self.get("rpcs")?));
        Ok(Listed { files, seconds, sent })
    }

    /// Unmounts.
    pub(super) async fn end(mut self, env: &Env) -> Result<()> {
        let mut umount = self.umount(&[])?;
        let status = finished(env, &mut umount, Some(WAIT)).await?;
        ensure!(status.is_some_and(|status| status.success()), "{} stays", self.dir.display());
        finished(env, &mut self.child, Some(WAIT)).await?.context("the mount's daemon stays")?;
        Ok(())
    }

    fn umount(&self, flags: &[&str]) -> Result<Child> {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg("umount").args(flags).arg(&self.dir);
        Ok(command.stdin(Stdio::null()).stdout(Stdio::null()).spawn()?)
    }
}

impl Drop for Mount {
    fn drop(&mut self) {
        if matches!(self.child.try_wait(), Ok(Some(_))) {
            return;
        }
        // A listing has failed: nothing of the mount is of use.
        let _ = self.child.kill();
        let _ = self.child.wait();
        let _ = self.umount(&["-l"]).map(|mut umount| umount.wait());
    }
}

/// How a process has ended; none where it was killed because its time was over.
async fn finished(env: &Env, child: &mut Child, limit: Option<Span>) -> Result<Option<ExitStatus>> {
    let (start, mut is_late) = (env.now(), false);
    loop {
        if let Some(status) = child.try_wait()? {
            return Ok((!is_late).then_some(status));
        }
        if !is_late && limit.is_some_and(|limit| env.now() - start >= limit) {
            child.kill()?;
            is_late = true;
        }
        env.sleep(LOOK_EVERY).await;
    }
}
