//! `cargo xtask newcomer`: runs the README's two commands on a clone of this tree, in a bare Debian
//! 12 in a directory. It has the packages that the README names. With `--trial` it runs the first
//! command, installs the README's package, and tries the README's session there.
//!
//! The directory is made by `debootstrap`. The host lends its Rust toolchain, cargo's registry and
//! `/dev`, its settings for apt, and its network. Everything runs in a mount namespace and a
//! process namespace, so mounts and processes end with the command, however it ends. The directory
//! is removed.

mod trial;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, bail};

use crate::readme;
use crate::run::{self, run};

/// The subcommand of the first process in the namespaces.
pub(crate) const INSIDE: &str = "inside-newcomer";

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

/// A directory that is removed at the end.
struct Root(PathBuf);

impl Drop for Root {
    fn drop(&mut self) {
        // mounts in it were of another namespace, which has ended
        if let Err(error) = fs::remove_dir_all(&self.0) {
            eprintln!("xtask: {}: {error}", self.0.display());
        }
    }
}

/// The session of a trial, and its place in the new system.
const TRIAL: &str = "/trial.sh";

/// Commands to run in the clone, and what they need.
struct Plan {
    commands: Vec<String>,
    packages: String,
    /// The script at [`TRIAL`].
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
    let session = format!("unshare --net bash {TRIAL}");
    Ok(Plan {
        commands: first.chain(installation).chain([session]).collect(),
        packages: format!("{packages} {}", trial::PACKAGES),
        session: Some(trial::script(&text)?),
    })
}

/// The whole proof, as `args` ask for it.
pub(crate) fn newcomer(args: &[String]) -> Result<()> {
    let Plan { commands, packages, session } = plan(args)?;
    if !Command::new("debootstrap").arg("--version").output().is_ok_and(|out| out.status.success())
    {
        run("apt-get", &["update", "-q"], &[])?;
        run("apt-get", &["install", "-y", "-q", "--no-install-recommends", "debootstrap"], &[])?;
    }
    let dir = std::env::temp_dir().join(format!("nacre-newcomer-{}", std::process::id()));
    fs::create_dir(&dir).with_context(|| dir.display().to_string())?;
    let root = Root(dir);
    let path = root.0.to_string_lossy();
    run("debootstrap", &["--variant=minbase", SUITE, &path, &mirror()], &[])?;
    network_settings(&root.0)?;
    as_booted(&root.0)?;
    fs::create_dir_all(root.0.join("home"))?;
    let clone = root.0.join("home/nacre");
    let here = format!("file://{}", run::root().display());
    run("git", &["clone", "--quiet", &here, &clone.to_string_lossy()], &[])?;
    let script = format!(
        "set -eux\nexport DEBIAN_FRONTEND=noninteractive\napt-get update -q\napt-get install -y -q \
         --no-install-recommends {packages}\ncd /home/nacre\n{}\n",
        commands.join("\n")
    );
    fs::write(root.0.join("newcomer.sh"), script)?;
    if let Some(session) = session {
        fs::write(root.0.join(TRIAL.trim_start_matches('/')), session)?;
        // the README's command asks for no consent, which a reader gives at a terminal
        let consent = root.0.join("etc/apt/apt.conf.d/99consent");
        fs::write(consent, "APT::Get::Assume-Yes \"true\";\n")?;
    }
    let program = std::env::current_exe()?;
    let namespaces = ["--mount", "--pid", "--fork", "--kill-child"];
    let status = Command::new("unshare")
        .args(namespaces)
        .arg(program)
        .arg(INSIDE)
        .arg(&root.0)
        .status()
        .context("unshare did not start")?;
    if status.success() {
        eprintln!("worked on a bare Debian 12: {}", commands.join("; "));
        return Ok(());
    }
    bail!("on a bare Debian 12: {status}: {}", commands.join("; "))
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
/// it).
fn as_booted(root: &Path) -> Result<()> {
    let mtab = root.join("etc/mtab");
    if !mtab.is_symlink() {
        std::os::unix::fs::symlink("../proc/self/mounts", mtab)?;
    }
    Ok(())
}

/// The first process in the namespaces: mounts, changes its root, runs the script.
pub(crate) fn inside(args: &[String]) -> ExitCode {
    match args {
        [root] => match enter(root) {
            Ok(code) => code,
            Err(error) => {
                eprintln!("xtask: newcomer: {error:#}");
                ExitCode::FAILURE
            }
        },
        _ => ExitCode::FAILURE,
    }
}

fn enter(root: &str) -> Result<ExitCode> {
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
        if Path::new(&dir).exists() {
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
    let status = command.args(["bash", "/newcomer.sh"]).status().context("chroot")?;
    Ok(if status.success() { ExitCode::SUCCESS } else { ExitCode::FAILURE })
}
