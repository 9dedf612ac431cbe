//! `cargo xtask newcomer`: runs the README's two commands on a clone of this tree, in a bare Debian
//! 12 in a directory. It has the packages that the README names. With `--trial` it runs the first
//! command, installs the README's package, and tries the README's session there. With `--trial
//! --container` it tries that session in the file system of the container image.
//!
//! The directory is made by `debootstrap`. The host lends its Rust toolchain, cargo's registry and
//! `/dev`, its settings for apt, and its network. Everything runs in a mount namespace and a
//! process namespace, so mounts and processes end with the command, however it ends. The directory
//! is removed.

mod container;
mod trial;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};
use std::time::Instant;

use anyhow::{Context, Result, bail, ensure};

use crate::readme;
use crate::run::{self, run};

/// The subcommand of the first process in the namespaces.
pub(crate) const INSIDE: &str = "inside-newcomer";

/// Its second argument if the new system has the host's Rust.
const WITH_RUST: &str = "with-rust";

/// Commands of a new system.
const SCRIPT: &str = "/newcomer.sh";

/// Within which a new user is to have tried the README's session.
const TRIAL_SECONDS: u64 = 900;

const SUITE: &str = "bookworm";
const MIRROR: &str = "http://deb.debian.org/debian";

/// Settings of the host that decide how packages and crates are reached.
const ENVIRONMENT: &[&str] = &[
    "http_proxy",
    "https_proxy",
    "no_proxy",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "NO_PROXY",
    "CARGO_HTTP_PROXY",
    "RUSTUP_TOOLCHAIN",
];

/// Whom the host trusts, a proxy of its own perhaps; the new system's own file is its package's.
const CERTIFICATES: &str = "/etc/ssl/certs/ca-certificates.crt";
const CERTIFICATES_INSIDE: &str = "/etc/host-certificates.crt";

/// A bare Debian 12 in a directory, which is removed at the end.
struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        // mounts in it were of another namespace, which has ended
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("xtask: {}: {error}", self.0.display());
        }
    }
}

impl Root {
    fn new(name: &str) -> Result<Root> {
        let dir = std::env::temp_dir().join(format!("nacre-{name}-{}", std::process::id()));
        fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
        let root = Root(dir);
        let place = root.0.display().to_string();
        run("debootstrap", &["--variant=minbase", SUITE, &place, &mirror()], &[])?;
        network_settings(&root.0)?;
        as_booted(&root.0)?;
        Ok(root)
    }

    /// The place of a path of the new system.
    fn at(&self, path: &str) -> PathBuf {
        self.0.join(path.trim_start_matches('/'))
    }

    /// Clones this tree.
    fn clone_tree(&self, to: &str) -> Result<()> {
        let here = format!("file://{}", run::root().display());
        run("git", &["clone", "--quiet", &here, &self.at(to).to_string_lossy()], &[])
    }

    /// Installs packages and runs commands, in namespaces of their own.
    fn run(&self, packages: &str, commands: &[String], rust: Rust) -> Result<()> {
        let script = format!(
            "set -eux\nexport DEBIAN_FRONTEND=noninteractive\napt-get update -q\napt-get install \
             -y -q --no-install-recommends {packages}\n{}\n",
            commands.join("\n")
        );
        fs::write(self.at(SCRIPT), script)?;
        let program = std::env::current_exe()?;
        let namespaces = ["--mount", "--pid", "--fork", "--kill-child"];
        let status = Command::new("unshare")
            .args(namespaces)
            .arg(program)
            .arg(INSIDE)
            .arg(&self.0)
            .args((rust == Rust::OfTheHost).then_some(WITH_RUST))
            .status()
            .context("unshare did not start")?;
        if status.success() {
            eprintln!("worked on a bare Debian 12: {}", commands.join("; "));
            return Ok(());
        }
        bail!("on a bare Debian 12: {status}: {}", commands.join("; "))
    }
}

/// Whether a new system has Rust.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rust {
    None,
    /// The host's toolchain and cargo's registry.
    OfTheHost,
}

/// Commands to run in the clone, and what they need.
struct Plan {
    commands: Vec<String>,
    packages: String,
    /// The script at [`trial::SCRIPT`].
    session: Option<String>,
}

/// The README's two commands, a command in their place, or with `--trial` the README's session.
fn plan(args: &[String]) -> Result<Plan> {
    let (both, packages) = (readme::commands()?, readme::packages()?);
    if args != ["--trial"] {
        let commands = if args.is_empty() { both } else { vec![args.join(" ")] };
        return Ok(Plan { commands, packages, session: None });
    }
    let text = fs::read_to_string(run::root().join("README.md"))?;
    let first = both.into_iter().take(1);
    let installation = trial::installation(&text)?.iter().map(|command| (*command).to_owned());
    Ok(Plan {
        commands: first.chain(installation).chain([trial::command()]).collect(),
        packages: format!("{packages} {} {}", trial::PACKAGES, trial::TO_PACK),
        session: Some(trial::script(&text)?),
    })
}

/// The whole proof, as `args` ask for it.
pub(crate) fn newcomer(args: &[String]) -> Result<()> {
    let is_image = args == ["--trial", "--container"];
    ensure!(
        is_image || !args.iter().any(|arg| arg == "--container"),
        "--container follows --trial"
    );
    if !Command::new("debootstrap").arg("--version").output().is_ok_and(|out| out.status.success())
    {
        run("apt-get", &["update", "-q"], &[])?;
        run("apt-get", &["install", "-y", "-q", "--no-install-recommends", "debootstrap"], &[])?;
    }
    let (begin, is_trial) = (Instant::now(), args.first().is_some_and(|arg| arg == "--trial"));
    let ended = if is_image { container::trial() } else { in_clone(plan(args)?) };
    if is_trial && ended.is_ok() {
        let took = begin.elapsed().as_secs();
        eprintln!("xtask: the trial took {took} s in all; a new user has {TRIAL_SECONDS} s");
    }
    ended
}

fn in_clone(plan: Plan) -> Result<()> {
    let root = Root::new("newcomer")?;
    root.clone_tree("/home/nacre")?;
    if let Some(session) = &plan.session {
        trial::put(&root, session)?;
        // the README's command asks for no consent, which a reader gives at a terminal
        let consent = root.at("/etc/apt/apt.conf.d/99consent");
        fs::write(consent, "APT::Get::Assume-Yes \"true\";\n")?;
    }
    let commands = [vec!["cd /home/nacre".to_owned()], plan.commands].concat();
    root.run(&plan.packages, &commands, Rust::OfTheHost)
}

/// Where the host's apt gets Debian from.
fn mirror() -> String {
    let read = |path: PathBuf| fs::read_to_string(path).unwrap_or_default();
    let more = fs::read_dir("/etc/apt/sources.list.d").into_iter().flatten().flatten();
    let texts = std::iter::once(read("/etc/apt/sources.list".into()))
        .chain(more.map(|entry| read(entry.path())));
    let words: Vec<String> = texts
        .flat_map(|text| text.split_whitespace().map(str::to_owned).collect::<Vec<_>>())
        .collect();
    let found = words
        .iter()
        .find(|word| word.contains("://") && word.trim_end_matches('/').ends_with("/debian"));
    found.cloned().unwrap_or_else(|| MIRROR.to_owned())
}

/// The host's way to packages and crates: proxy, names, certificates. Sources stay the new
/// system's.
fn network_settings(root: &Path) -> Result<()> {
    let at = |path: &str| format!("{}{path}", root.display());
    for path in ["/etc/apt/apt.conf.d", "/etc/apt/apt.conf", "/etc/resolv.conf", "/etc/hosts"] {
        if Path::new(path).exists() {
            run("cp", &["-rL", path, &at(&path[..path.rfind('/').unwrap_or_default() + 1])], &[])?;
        }
    }
    if Path::new(CERTIFICATES).exists() {
        fs::copy(CERTIFICATES, at(CERTIFICATES_INSIDE))?;
    }
    Ok(())
}

/// What every installed system has and debootstrap leaves to its first boot (`fusermount3` needs
/// it). Packages start no servers, as in an image.
fn as_booted(root: &Path) -> Result<()> {
    let mtab = root.join("etc/mtab");
    if !mtab.is_symlink() {
        std::os::unix::fs::symlink("../proc/self/mounts", mtab)?;
    }
    let policy = root.join("usr/sbin/policy-rc.d");
    fs::write(&policy, "#!/bin/sh\nexit 101\n")?;
    fs::set_permissions(policy, fs::Permissions::from_mode(0o755))?;
    Ok(())
}

/// The first process in the namespaces: mounts, changes its root, runs the script.
pub(crate) fn inside(args: &[String]) -> ExitCode {
    let entered = match args {
        [root] => enter(root, Rust::None),
        [root, word] if word == WITH_RUST => enter(root, Rust::OfTheHost),
        _ => return ExitCode::FAILURE,
    };
    entered.unwrap_or_else(|error| {
        eprintln!("xtask: newcomer: {error:#}");
        ExitCode::FAILURE
    })
}

fn enter(root: &str, rust: Rust) -> Result<ExitCode> {
    let mount = |args: &[&str]| run("mount", args, &[]);
    let at = |path: &str| format!("{root}{path}");
    // the root of a namespace whose mounts may be made private must be a mount
    mount(&["--bind", root, root])?;
    mount(&["-t", "proc", "proc", &at("/proc")])?;
    mount(&["-t", "sysfs", "sysfs", &at("/sys")])?;
    mount(&["--rbind", "/dev", &at("/dev")])?;
    let home = std::env::var("HOME").context("HOME")?;
    let of_user = |variable: &str, default: &str| {
        std::env::var(variable).unwrap_or_else(|_| format!("{home}/{default}"))
    };
    for dir in [of_user("CARGO_HOME", ".cargo"), of_user("RUSTUP_HOME", ".rustup")] {
        if rust == Rust::OfTheHost && Path::new(&dir).exists() {
            fs::create_dir_all(at(&dir))?;
            mount(&["--bind", &dir, &at(&dir)])?;
        }
    }
    let cargo = format!("{}/bin", of_user("CARGO_HOME", ".cargo"));
    let mut command = Command::new("chroot");
    command.args([root, "/usr/bin/env", "-i"]);
    command.arg(format!("HOME={home}"));
    command.arg(format!("PATH={cargo}:/usr/sbin:/usr/bin:/sbin:/bin"));
    for name in ENVIRONMENT.iter().chain(&["CARGO_HOME", "RUSTUP_HOME"]) {
        if let Ok(value) = std::env::var(name) {
            command.arg(format!("{name}={value}"));
        }
    }
    if Path::new(&at(CERTIFICATES_INSIDE)).exists() {
        command.arg(format!("CARGO_HTTP_CAINFO={CERTIFICATES_INSIDE}"));
    }
    let status = command.args(["bash", SCRIPT]).status().context("chroot")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
