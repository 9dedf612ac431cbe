//! Options of `nacre mount`.

use std::net::SocketAddr;
use std::path::PathBuf;

use anyhow::{Context, Result, bail, ensure};
use client::MountConfig;
use ctl::names;
use fusedev::Channel;
use fusedev::abi::cap;
use rustix::mount::MountFlags;
use types::{ClientId, FsName, Nid, NidAddr, Span};

use super::{flags, params};
use crate::machine::MachineOptions;

/// How the text of a NID is read, with or without looking hosts up.
type ReadNid = fn(&str) -> Result<Nid, String>;

/// Descriptors of `/dev/fuse` at most.
const CLONES_MAX: usize = 64;

/// A mount to make.
#[derive(Clone, Debug)]
pub struct Options {
    /// Where the MGS is: alternatives.
    pub mgs: Vec<NidAddr>,
    pub fsname: FsName,
    pub dir: PathBuf,
    /// From `-o`.
    pub mount: MountOptions,
    /// The `-o` text, for the daemon.
    pub text: String,
    /// No daemon.
    pub foreground: bool,
    /// This is the daemon: leave the terminal.
    pub daemon: bool,
    /// Where the daemon logs.
    pub log: Option<PathBuf>,
    /// CPU partitions, their use, credits.
    pub machine: MachineOptions,
    /// Where to answer Prometheus.
    pub metrics: Option<SocketAddr>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MountOptions {
    /// Those of the kernel, but for the mount point and the source, and with locks that the kernel
    /// keeps only where it lacks them.
    pub(crate) kernel: fusedev::MountOptions,
    /// Own address.
    pub(crate) nid: Option<Nid>,
    /// Give up on servers that are away.
    pub(crate) soft: bool,
    /// File locks are coherent over all clients; else they stay on this machine.
    pub(crate) flock: bool,
    /// Seconds to wait for the servers; 0: for ever.
    pub(crate) wait_secs: u64,
    /// Seconds that an unmount waits for what is not known to be durable.
    pub(crate) unmount_wait_secs: u64,
    /// Small writes are acknowledged before they are sent.
    pub(crate) writeback: bool,
    /// Plaintext to addresses that are not loopback.
    pub(crate) insecure: bool,
    /// What it shows in one way or another.
    pub(crate) manner: fuse::Manner,
}

impl Default for MountOptions {
    fn default() -> MountOptions {
        let is_root = rustix::process::geteuid().is_root();
        let kernel = fuse::options("");
        MountOptions {
            kernel: fusedev::MountOptions { allow_other: is_root, suid_dev: is_root, ..kernel },
            nid: None,
            soft: false,
            flock: true,
            wait_secs: 60,
            unmount_wait_secs: client::limits::UNMOUNT_WAIT_DEFAULT.as_millis() / 1_000,
            writeback: true,
            insecure: false,
            manner: fuse::Manner::default(),
        }
    }
}

impl Options {
    /// From the words of the command line.
    pub fn parse(
        source: &str,
        dir: PathBuf,
        text: &str,
        foreground: bool,
        log: Option<PathBuf>,
    ) -> Result<Options> {
        let (mgs, fsname) = parse_source(source, names::nid_addr)?;
        Ok(Options {
            mgs,
            fsname,
            dir,
            mount: MountOptions::parse(text)?,
            text: text.to_owned(),
            foreground,
            daemon: false,
            log,
            machine: MachineOptions::default(),
            metrics: None,
        })
    }

    /// As the kernel mounts it.
    pub(crate) fn kernel(&self) -> fusedev::MountOptions {
        let mut kernel = self.mount.kernel.clone();
        kernel.mountpoint.clone_from(&self.dir);
        kernel.source = self.source();
        kernel.guard = vec!["nacre".into(), super::GUARD.into()];
        if !self.mount.flock {
            kernel.mask |= cap::FLOCK_LOCKS | cap::POSIX_LOCKS;
        }
        if kernel.atime.contains(MountFlags::STRICTATIME) {
            kernel.mask |= cap::CACHE_SYMLINKS; // each read counts
        }
        kernel
    }

    /// As the client mounts it.
    pub(crate) fn client(&self, id: ClientId) -> MountConfig {
        let MountOptions { nid, soft, wait_secs, unmount_wait_secs, writeback, .. } = self.mount;
        let mut config = MountConfig::new(self.mgs.clone(), self.fsname, id);
        config.endpoint.nid = nid;
        config.endpoint.import.name = format!("{}:{}", hostname(), self.dir.display());
        MountConfig {
            soft,
            access_times: self.mount.access_times(),
            mount_wait: (wait_secs > 0).then(|| Span::secs(wait_secs)),
            unmount_wait: Span::secs(unmount_wait_secs),
            writeback,
            ..config
        }
    }

    /// Refuses at once what every attempt to connect would be refused for.
    pub(super) fn check_plaintext(&self) -> Result<()> {
        let is_near = self.mgs.iter().any(|mgs| mgs.nid.addr().is_loopback());
        ensure!(
            is_near || self.mount.insecure,
            "{}: connections are not encrypted yet, so only loopback addresses are used without -o insecure; where the \
             network is your own, serve with --insecure and mount with -o insecure",
            self.source()
        );
        Ok(())
    }

    /// As the mount table shows it.
    pub(crate) fn source(&self) -> String {
        let nids: Vec<String> = self.mgs.iter().map(NidAddr::to_string).collect();
        format!("{}:/{}", nids.join(","), self.fsname)
    }
}

fn hostname() -> String {
    let uname = rustix::system::uname();
    uname.nodename().to_string_lossy().into_owned()
}

/// `127.0.0.2@tcp:/testfs`; several NIDs are separated by commas, or by colons behind the network.
pub(crate) fn parse_source(
    source: &str,
    nid_addr: impl Fn(&str) -> Result<NidAddr, String>,
) -> Result<(Vec<NidAddr>, FsName)> {
    let shape = || {
        format!(
            "'{source}' is not a file system: expected NID[,NID]:/FSNAME, e.g. 127.0.0.2@tcp:/testfs"
        )
    };
    let (nids, fsname) = source.split_once(":/").with_context(shape)?;
    let mgs = split_nids(nids)
        .into_iter()
        .map(|nid| nid_addr(nid).map_err(anyhow::Error::msg))
        .collect::<Result<Vec<NidAddr>>>()
        .with_context(|| format!("'{source}'"))?;
    ensure!(!mgs.is_empty(), shape());
    let fsname = fsname.trim_end_matches('/');
    if let Some((name, below)) = fsname.split_once('/') {
        bail!(
            "'{source}': a subdirectory cannot be mounted alone yet: mount {nids}:/{name} and use its directory {below}"
        );
    }
    Ok((mgs, fsname.parse().with_context(|| format!("'{source}'"))?))
}

/// A colon separates NIDs only behind a network: before it stands a port.
fn split_nids(text: &str) -> Vec<&str> {
    let mut out = Vec::new();
    for part in text.split(',') {
        let mut start = 0;
        let mut in_net = false;
        for (at, c) in part.char_indices() {
            if c == '@' {
                in_net = true;
            } else if c == ':' && in_net {
                out.push(&part[start..at]);
                (start, in_net) = (at + 1, false);
            }
        }
        out.push(&part[start..]);
    }
    out.retain(|nid| !nid.is_empty());
    out
}

impl MountOptions {
    /// How the mount keeps access times.
    pub(crate) fn access_times(&self) -> client::AccessTimes {
        let mut atime = self.kernel.atime;
        atime.set(MountFlags::RDONLY, self.kernel.read_only);
        flags::access_times(atime)
    }

    /// From `nid=127.0.0.11@tcp,soft`.
    pub fn parse(text: &str) -> Result<MountOptions> {
        MountOptions::parse_with(text, names::nid)
    }

    fn parse_with(text: &str, nid: ReadNid) -> Result<MountOptions> {
        let mut options = MountOptions::default();
        for word in text.split(',').filter(|word| !word.is_empty()) {
            let (name, value) =
                word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
            options.set(name, value, nid).with_context(|| format!("mount option '{word}'"))?;
        }
        Ok(options)
    }

    /// Whether `word` is so already.
    pub(super) fn says(&self, word: &str) -> Result<bool> {
        let mut after = self.clone();
        let (name, value) =
            word.split_once('=').map_or((word, None), |(name, value)| (name, Some(value)));
        after.set(name, value, names::nid).with_context(|| format!("mount option '{word}'"))?;
        Ok(after == *self)
    }

    fn set(&mut self, name: &str, value: Option<&str>, nid: ReadNid) -> Result<()> {
        let kernel = &mut self.kernel;
        match (name, value) {
            ("nid", Some(value)) => self.nid = Some(nid(value).map_err(anyhow::Error::msg)?),
            ("clones", Some(value)) => {
                kernel.clones = number(value)?;
                let is_possible = (1..=CLONES_MAX).contains(&kernel.clones);
                ensure!(is_possible, "expected 1 to {CLONES_MAX}");
            }
            ("transport", Some("auto")) => kernel.transport = Channel::Auto,
            ("transport", Some("classic")) => kernel.transport = Channel::Classic,
            ("transport", Some("uring")) => kernel.transport = Channel::Uring,
            ("caps", Some(value)) => kernel.mask = parse_mask(value)?,
            ("wait", Some(value)) => self.wait_secs = number(value)?,
            ("unmount_wait", Some(value)) => {
                self.unmount_wait_secs = number(value)?;
                let max = params::UNMOUNT_WAIT_SECS_MAX;
                ensure!(self.unmount_wait_secs <= max, "expected at most {max} seconds");
            }
            ("writeback", Some("1")) => self.writeback = true,
            ("writeback", Some("0")) => self.writeback = false,
            ("writeback", Some(_)) => bail!("expected 0 or 1"),
            ("soft", None) => self.soft = true,
            ("hard", None) => self.soft = false,
            ("ro", None) => kernel.read_only = true,
            ("rw", None) => kernel.read_only = false,
            ("flock", None) => self.flock = true,
            ("localflock", None) => self.flock = false,
            ("noflock", None) => bail!(
                "not supported: flock keeps locks between all clients, localflock on this machine"
            ),
            ("allow_other", None) => kernel.allow_other = true,
            ("noallow_other", None) => kernel.allow_other = false,
            ("nosuid" | "nodev", None) => kernel.suid_dev = false,
            // As mount(8) has it: what an ordinary user may mount shall neither give rights nor
            // run.
            ("user" | "users" | "owner" | "group", None) => {
                (kernel.suid_dev, kernel.no_exec) = (false, true)
            }
            ("noexec", None) => kernel.no_exec = true,
            ("exec", None) => kernel.no_exec = false,
            ("sync", None) => kernel.sync = true,
            ("async", None) => kernel.sync = false,
            ("suid" | "dev", None) => kernel.suid_dev = true,
            ("readdirplus", None) => kernel.want |= cap::DO_READDIRPLUS,
            ("noreaddirplus", None) => kernel.want &= !cap::DO_READDIRPLUS,
            ("acl", None) => kernel.want |= cap::POSIX_ACL,
            ("noacl", None) => kernel.want &= !cap::POSIX_ACL,
            ("seclabel", None) => self.manner.seclabel = true,
            ("noseclabel", None) => self.manner.seclabel = false,
            ("32bitapi", None) => self.manner.short_ino = true,
            ("no32bitapi", None) => self.manner.short_ino = false,
            ("insecure", None) => self.insecure = true,
            // What mount(8) passes on and what is so anyway.
            (
                "defaults" | "auto" | "noauto" | "user_xattr" | "_netdev" | "nouser" | "nofail"
                | "lazystatfs",
                None,
            ) => {}
            (word, None) if flags::apply_atime(&mut kernel.atime, word) => {}
            ("transport", Some(_)) => bail!("expected auto, classic or uring"),
            (
                "nid" | "clones" | "transport" | "caps" | "wait" | "unmount_wait" | "writeback",
                None,
            ) => {
                bail!("a value is missing: {name}=VALUE (nacre mount --help)")
            }
            (flag, Some(_)) if MountOptions::default().set(flag, None, nid).is_ok() => {
                bail!("the option takes no value: write {flag}")
            }
            _ => bail!("unknown; nacre mount --help lists the options"),
        }
        Ok(())
    }
}

fn number<T: std::str::FromStr>(text: &str) -> Result<T> {
    text.parse().map_err(|_| anyhow::anyhow!("'{text}' is not a whole number"))
}

fn parse_mask(text: &str) -> Result<u64> {
    let parsed = match text.strip_prefix("0x") {
        Some(hex) => u64::from_str_radix(hex, 16),
        None => text.parse(),
    };
    parsed.map_err(|_| {
        anyhow::anyhow!("expected a mask of FUSE capability bits, decimal or hexadecimal with 0x")
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Without asking anybody for names.
    fn parse(source: &str) -> Result<(Vec<NidAddr>, FsName)> {
        parse_source(source, |text| names::with(text, |host| Err(host.to_owned())))
    }

    #[test]
    fn a_source_names_the_mgs_and_the_file_system() {
        let shown = |text: &str| {
            parse(text)
                .map(|(mgs, fsname)| format!("{mgs:?} {fsname}"))
                .map_err(|error| error.to_string())
        };
        assert_eq!(shown("127.0.0.2@tcp:/testfs"), Ok("[127.0.0.2@tcp] testfs".into()));
        assert_eq!(
            shown("127.0.0.2:1988@tcp:127.0.0.3@tcp:/a/"),
            Ok("[127.0.0.2:1988@tcp, 127.0.0.3@tcp] a".into())
        );
        assert_eq!(
            shown("10.0.0.1@tcp,10.0.0.2@tcp:/a"),
            Ok("[10.0.0.1@tcp, 10.0.0.2@tcp] a".into())
        );
        for text in [
            "",
            "testfs",
            ":/testfs",
            "1.2.3.4@tcp:/",
            "1.2.3.4@tcp:/waytoolongname",
            "1.2.3.4:/a",
            "x@tcp:/a",
        ] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn the_own_address_may_be_a_host() {
        let options = MountOptions::parse("soft,nid=localhost@tcp").expect("fits");
        assert_eq!(options.nid, "127.0.0.1@tcp".parse().ok());
    }

    #[test]
    fn a_mount_over_a_network_must_say_that_it_is_insecure() {
        let check = |source: &str, text: &str| {
            let options = Options::parse(source, "/mnt/x".into(), text, true, None).expect("fits");
            options.check_plaintext().map_err(|error| error.to_string())
        };
        assert_eq!(check("127.0.0.2@tcp:/testfs", ""), Ok(()));
        assert_eq!(check("192.0.2.2:3988@tcp:/testfs", "insecure"), Ok(()));
        assert_eq!(check("192.0.2.2@tcp,127.0.0.2@tcp:/testfs", ""), Ok(()));
        let refused = check("192.0.2.2:3988@tcp,192.0.2.3@tcp:/testfs", "ro");
        assert!(refused.is_err_and(|why| why.contains("mount with -o insecure")));
    }

    #[test]
    fn the_kernel_and_the_client_mount_what_the_words_say() {
        let text = "caps=0x10,localflock,noreaddirplus,noacl,seclabel,32bitapi,ro,soft,wait=0,unmount_wait=7,nid=127.0.0.11@tcp";
        let dir = PathBuf::from("/mnt/x");
        let options = Options::parse("127.0.0.2@tcp:/testfs", dir, text, true, None).expect("fits");
        let kernel = options.kernel();
        assert_eq!(
            (kernel.mountpoint.as_path(), kernel.source.as_str()),
            (std::path::Path::new("/mnt/x"), "127.0.0.2@tcp:/testfs")
        );
        assert_eq!(kernel.mask, 0x10 | cap::FLOCK_LOCKS | cap::POSIX_LOCKS);
        let usual = fuse::options("").want;
        assert_eq!(usual & !kernel.want, cap::DO_READDIRPLUS | cap::POSIX_ACL);
        assert_eq!(usual & cap::READDIRPLUS_AUTO, 0, "listings bring attributes from the start");
        let manner = fuse::Manner { seclabel: true, short_ino: true };
        assert!(options.mount.manner == manner && kernel.want & !usual == 0);
        assert!(kernel.read_only && kernel.default_permissions);
        let client = options.client(ClientId(7));
        assert_eq!(
            (client.endpoint.import.client, client.endpoint.nid, client.soft),
            (ClientId(7), options.mount.nid, true)
        );
        assert_eq!(client.unmount_wait, Span::secs(7));
        assert!(client.mount_wait.is_none() && client.endpoint.import.name.ends_with(":/mnt/x"));
    }

    #[test]
    fn mount_options_are_understood_or_refused() {
        let options = MountOptions::parse(
            "nid=127.0.0.11@tcp,soft,,ro,clones=4,caps=0x10,localflock,transport=uring",
        )
        .expect("fits");
        assert_eq!(options.nid.map(|nid| nid.to_string()), Some("127.0.0.11@tcp".into()));
        assert!(options.soft && options.kernel.read_only && !options.flock);
        assert_eq!(
            (options.kernel.clones, options.kernel.mask, options.kernel.transport),
            (4, 16, Channel::Uring)
        );
        let user = MountOptions::parse("users,exec,noatime,nodiratime,_netdev,sync").expect("fits");
        let user = user.kernel;
        assert!(!user.suid_dev && !user.no_exec && user.sync);
        assert_eq!(user.atime, MountFlags::NOATIME | MountFlags::NODIRATIME);
        for text in [
            "dirsync",
            "nid",
            "nid=x",
            "clones=0",
            "clones=65",
            "transport=fast",
            "transport",
            "soft=1",
            "unmount_wait=-1",
            "unmount_wait=10000001",
            "caps=zz",
            "bogus",
        ] {
            assert!(MountOptions::parse(text).is_err(), "{text}");
        }
    }

    /// A text of words of the grammar.
    fn text(input: &[u8]) -> String {
        const WORDS: &[&str] = &[
            ",",
            ",",
            ",",
            "=",
            "nid=",
            "127.0.0.11@tcp",
            "clones=",
            "4",
            "65",
            "transport=",
            "uring",
            "caps=",
            "0x",
            "ff",
            "wait=",
            "unmount_wait=",
            "soft",
            "hard",
            "ro",
            "rw",
            "flock",
            "localflock",
            "allow_other",
            "nosuid",
            "user",
            "noexec",
            "exec",
            "sync",
            "suid",
            "readdirplus",
            "noreaddirplus",
            "noacl",
            "seclabel",
            "32bitapi",
            "insecure",
            "defaults",
            "noatime",
            "relatime",
            "strictatime",
            "nodiratime",
            ":",
            "/testfs",
            "@tcp",
            "10.0.0.1",
            ":988",
            "-1",
            "99999999999999999999",
        ];
        input.iter().map(|byte| WORDS[usize::from(*byte) % WORDS.len()]).collect()
    }

    /// Options that are accepted say the same twice, and a source that is accepted names the same
    /// as the mount table shows it.
    fn accepts(input: &[u8]) -> [bool; 2] {
        let text = text(input);
        let read = |text: &str| {
            let no_host = |text: &str| text.parse::<Nid>().map_err(|_| text.to_owned());
            MountOptions::parse_with(text, no_host).ok()
        };
        let options = read(&text);
        if options.is_some() {
            assert_eq!(read(&format!("{text},{text}")), options, "{text}");
        }
        let source = parse(&text).ok();
        if let Some((mgs, fsname)) = &source {
            let nids: Vec<String> = mgs.iter().map(NidAddr::to_string).collect();
            assert_eq!(parse(&format!("{}:/{fsname}", nids.join(","))).ok(), source, "{text}");
        }
        [options.is_some(), source.is_some()]
    }

    /// Fuzz target: options and sources mean one thing.
    #[test]
    fn mount_options() {
        assert_eq!(accepts(&[6, 7, 0, 20]), [true, false], "clones=4,flock are options");
        assert_eq!(accepts(&[5, 40, 41]), [false, true], "127.0.0.11@tcp:/testfs is a source");
        let inputs = bolero::produce::<Vec<u8>>().with().len(0..=16);
        bolero::check!()
            .with_iterations(20_000)
            .with_test_time(std::time::Duration::from_secs(1))
            .with_generator(inputs)
            .for_each(|input: &Vec<u8>| _ = accepts(input));
    }
}
