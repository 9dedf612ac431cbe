//! The run directory: control sockets of the daemons of this machine, and the daemon of each mount.
//!
//! It is `/run/nacre`, or `NACRE_RUN`. For users other than root it is `nacre-UID` in
//! `$XDG_RUNTIME_DIR`, or in the temporary directory if that variable is not set. That of a user is
//! refused if it belongs to another user.
//! A socket is called `PID-LABEL.sock`. A mount adds a link `dev-MAJOR:MINOR.sock` to its daemon's
//! socket, so that any file's `st_dev` leads to the daemon that serves it. A process that finds
//! files of a dead daemon removes them, unless they are young.

use std::fs;
use std::io;
use std::os::unix::fs::{DirBuilderExt, FileTypeExt, MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// Longest path of a Unix socket, bytes (`sun_path` without its NUL).
const SOCKET_PATH_BYTES_MAX: usize = 107;

/// A younger socket on which nobody listens may be that of a daemon which starts: a socket has its
/// name before it is listened on.
const STARTS_WITHIN: Duration = Duration::from_secs(10);

/// The run directory, made if it is not there.
pub fn path() -> io::Result<PathBuf> {
    if let Some(dir) = std::env::var_os("NACRE_RUN") {
        return made(PathBuf::from(dir));
    }
    let user = || {
        let base = std::env::var_os("XDG_RUNTIME_DIR").map(PathBuf::from);
        base.unwrap_or_else(std::env::temp_dir)
            .join(format!("nacre-{}", rustix::process::geteuid().as_raw()))
    };
    if rustix::process::geteuid().is_root() {
        made_for_all(PathBuf::from("/run/nacre"))
    } else {
        made_by_user(user())
    }
}

fn made(dir: PathBuf) -> io::Result<PathBuf> {
    match fs::create_dir_all(&dir) {
        Ok(()) => Ok(dir),
        Err(error) => Err(unfit(&dir, error.kind(), &error.to_string())),
    }
}

/// A new one lets every user enter, whatever the umask: each daemon decides who may do what.
fn made_for_all(dir: PathBuf) -> io::Result<PathBuf> {
    let is_new = !dir.exists();
    let dir = made(dir)?;
    if is_new {
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o755))?;
    }
    Ok(dir)
}

fn unfit(dir: &Path, kind: io::ErrorKind, why: &str) -> io::Error {
    let text = format!("run directory {}: {why}; NACRE_RUN names another one", dir.display());
    io::Error::new(kind, text)
}

/// The directory of a user, perhaps in one where everybody may make it first: who owns it answers
/// for daemons.
fn made_by_user(dir: PathBuf) -> io::Result<PathBuf> {
    let _is_made_below = dir.parent().map(fs::create_dir_all);
    match fs::DirBuilder::new().mode(0o755).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => {
            return Err(unfit(&dir, error.kind(), &error.to_string()));
        }
        _ => {}
    }
    check_owner(&dir, rustix::process::geteuid().as_raw())?;
    Ok(dir)
}

/// Whether this is a directory that `user` owns and that not everybody may change.
fn check_owner(dir: &Path, user: u32) -> io::Result<()> {
    let found =
        fs::symlink_metadata(dir).map_err(|error| unfit(dir, error.kind(), &error.to_string()))?;
    if found.is_dir() && found.uid() == user && found.mode() & 0o002 == 0 {
        return Ok(());
    }
    let why = "it must be a directory of this user, which others cannot change";
    Err(unfit(dir, io::ErrorKind::PermissionDenied, why))
}

/// Directories in which daemons may have registered: the own one, and the system's for a user.
fn all() -> Vec<PathBuf> {
    let system = PathBuf::from("/run/nacre");
    let own = path().ok();
    let with_system = std::env::var_os("NACRE_RUN").is_none() && own.as_ref() != Some(&system);
    own.into_iter().chain(with_system.then_some(system)).collect()
}

/// Where a daemon's control socket shall be; an older one of that name is gone.
pub fn socket_for(label: &str) -> io::Result<PathBuf> {
    let path = path()?.join(format!("{}-{label}.sock", std::process::id()));
    if path.as_os_str().len() > SOCKET_PATH_BYTES_MAX {
        let text = format!(
            "{}: a socket's path has at most {SOCKET_PATH_BYTES_MAX} bytes; set NACRE_RUN",
            path.display()
        );
        return Err(io::Error::new(io::ErrorKind::InvalidInput, text));
    }
    remove(&path)?;
    Ok(path)
}

/// Opens a socket to every user: who may do what is decided by the daemon, by the peer's uid.
pub fn open_to_all(socket: &Path) -> io::Result<()> {
    fs::set_permissions(socket, fs::Permissions::from_mode(0o666))
}

/// Socket and log of the console of a self-test session. Their directory is made, for its user
/// only.
pub fn console(key: u32) -> io::Result<(PathBuf, PathBuf)> {
    let dir = path()?.join("lst");
    match fs::DirBuilder::new().mode(0o700).create(&dir) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    Ok((dir.join(format!("{key}.sock")), dir.join(format!("{key}.log"))))
}

/// Ties a mount's device to its daemon's socket.
pub fn link_device(device: (u32, u32), socket: &Path) -> io::Result<PathBuf> {
    let link = path()?.join(device_name(device));
    remove(&link)?;
    std::os::unix::fs::symlink(socket.file_name().unwrap_or(socket.as_os_str()), &link)?;
    Ok(link)
}

/// The socket of the daemon that serves the mount with this device number.
#[must_use]
pub fn of_device(device: (u32, u32)) -> Option<PathBuf> {
    all().into_iter().map(|dir| dir.join(device_name(device))).find(|link| is_alive(link))
}

fn device_name((major, minor): (u32, u32)) -> String {
    format!("dev-{major}:{minor}.sock")
}

/// Sockets of all daemons that answer, in order of their names; stale ones are removed.
#[must_use]
pub fn daemons() -> Vec<PathBuf> {
    let listened_on = |dir: &PathBuf| sockets_in(dir, STARTS_WITHIN);
    let mut found: Vec<PathBuf> = all().iter().flat_map(listened_on).collect();
    found.sort();
    found
}

/// Those on which a daemon listens. Others are removed, and links to them, unless they are younger
/// than `starts_within`.
fn sockets_in(dir: &Path, starts_within: Duration) -> Vec<PathBuf> {
    let Ok(entries) = fs::read_dir(dir) else { return Vec::new() };
    let mut alive = Vec::new();
    for entry in entries.flatten() {
        let path = entry.path();
        let is_ours = path.extension().is_some_and(|ext| ext == "sock");
        let Ok(kind) = entry.file_type() else { continue };
        if !is_ours || !(kind.is_socket() || kind.is_symlink()) {
            continue;
        }
        if !is_alive(&path) {
            if !is_young(&entry, starts_within) {
                let _ = fs::remove_file(&path); // stale; another user's stays, which harms nobody
            }
        } else if kind.is_socket() {
            alive.push(path);
        }
    }
    alive
}

/// Whether a file was made a moment ago. One from the future stays: the clock has changed.
fn is_young(entry: &fs::DirEntry, within: Duration) -> bool {
    let made = entry.metadata().and_then(|metadata| metadata.modified());
    made.is_ok_and(|made| made.elapsed().map_or(true, |age| age < within))
}

/// Whether a daemon listens there. A daemon that is only too busy to accept counts as alive.
#[must_use]
pub fn is_alive(socket: &Path) -> bool {
    match connect(socket) {
        Ok(_) => true,
        Err(error) => {
            !matches!(error.kind(), io::ErrorKind::ConnectionRefused | io::ErrorKind::NotFound)
        }
    }
}

/// Connects without waiting. If a daemon accepts nothing and its queue is full, the error is
/// `WouldBlock`; a blocking connect would wait for ever.
pub(crate) fn connect(socket: &Path) -> io::Result<UnixStream> {
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let fd = rustix::net::socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    rustix::net::connect(&fd, &SocketAddrUnix::new(socket)?)?;
    let stream = UnixStream::from(fd);
    stream.set_nonblocking(false)?;
    Ok(stream)
}

fn remove(path: &Path) -> io::Result<()> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// Removes a socket and the link to it when its owner ends.
pub struct Registered {
    socket: PathBuf,
    link: Option<PathBuf>,
}

impl Registered {
    #[must_use]
    pub fn new(socket: PathBuf) -> Registered {
        Registered { socket, link: None }
    }

    #[must_use]
    pub fn socket(&self) -> &Path {
        &self.socket
    }

    /// Also ties a mount's device to it.
    pub fn add_device(&mut self, device: (u32, u32)) -> io::Result<()> {
        self.link = Some(link_device(device, self.socket())?);
        Ok(())
    }

    /// The mount has gone: its device number may soon be another mount's, whose link stays.
    pub fn drop_device(&mut self) {
        let Some(link) = self.link.take() else { return };
        let name = self.socket.file_name().map(Path::new);
        if fs::read_link(&link).ok().as_deref() == name {
            let _ = fs::remove_file(link);
        }
    }
}

impl Drop for Registered {
    fn drop(&mut self) {
        self.drop_device();
        let _ = fs::remove_file(&self.socket);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;
    use std::time::SystemTime;

    use super::*;

    #[test]
    fn every_user_may_enter_the_systems_directory() {
        let dir = std::env::temp_dir().join(format!("nacre-all-{}", std::process::id()));
        let mode = || fs::metadata(&dir).expect("it is there").permissions().mode() & 0o777;
        made_for_all(dir.clone()).expect("made");
        assert_eq!(mode(), 0o755);
        fs::set_permissions(&dir, fs::Permissions::from_mode(0o711)).expect("ours");
        made_for_all(dir.clone()).expect("it is there");
        assert_eq!(mode(), 0o711, "an administrator wants it so");
        fs::remove_dir(&dir).expect("cleaned up");
    }

    #[test]
    fn a_users_directory_is_the_users_own() {
        let dir = std::env::temp_dir().join(format!("nacre-own-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let user = fs::metadata(&dir).expect("it is there").uid();
        let own = dir.join("own");
        fs::DirBuilder::new().mode(0o755).create(&own).expect("a directory");
        assert!(check_owner(&own, user).is_ok());
        let refused = check_owner(&own, user + 1).expect_err("another user's").to_string();
        assert!(refused.contains("NACRE_RUN names another one"), "{refused}");
        let link = dir.join("link");
        std::os::unix::fs::symlink(&own, &link).expect("a link");
        assert!(check_owner(&link, user).is_err(), "it may lead anywhere");
        fs::set_permissions(&own, fs::Permissions::from_mode(0o777)).expect("ours");
        assert!(check_owner(&own, user).is_err(), "anybody may put sockets there");
        fs::remove_dir_all(&dir).expect("cleaned up");
    }

    #[test]
    fn a_socket_that_is_not_listened_on_stays_while_it_is_young() {
        let dir = std::env::temp_dir().join(format!("nacre-rundir-{}", std::process::id()));
        fs::create_dir_all(&dir).expect("a directory");
        let [living, dead] = ["1-server-a.sock", "2-server-b.sock"].map(|name| dir.join(name));
        let _listens = UnixListener::bind(&living).expect("a socket");
        drop(UnixListener::bind(&dead).expect("a socket"));
        assert_eq!(sockets_in(&dir, STARTS_WITHIN), std::slice::from_ref(&living));
        assert!(dead.exists(), "its daemon may be about to listen");
        let link = dir.join("dev-0:7.sock");
        std::os::unix::fs::symlink("2-server-b.sock", &link).expect("a link");
        let is_stale = |path: &Path| {
            let mut entries = fs::read_dir(&dir).expect("a directory").flatten();
            let entry = entries.find(|entry| entry.path() == path).expect("it is there");
            !is_young(&entry, STARTS_WITHIN)
        };
        assert!(!is_stale(&link) && !is_stale(&dead));
        let plain = dir.join("plain");
        let file = fs::File::create(&plain).expect("a file");
        file.set_modified(SystemTime::now() - 2 * STARTS_WITHIN).expect("ours");
        assert!(is_stale(&plain));
        assert_eq!(sockets_in(&dir, Duration::ZERO), std::slice::from_ref(&living));
        let is_there = |path: &PathBuf| fs::symlink_metadata(path).is_ok();
        let left = [&living, &plain, &dead, &link].map(is_there);
        assert_eq!(left, [true, true, false, false], "the daemon of the socket will not start");
        fs::remove_dir_all(&dir).expect("cleaned up");
    }
}
