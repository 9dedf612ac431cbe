//! Reports to systemd that the servers of this process are ready, as sd_notify(3) describes: one
//! datagram to the socket that `NOTIFY_SOCKET` names. This needs no library.

use std::ffi::OsStr;
use std::io;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::sync::Arc;

use env::Env;
use tokio::sync::watch;
use types::Span;

/// Set by systemd for a service with `Type=notify`.
const SOCKET: &str = "NOTIFY_SOCKET";

/// A server whose targets are known serves its clients while the MGS is away. So the service counts
/// as started after this time at the latest.
const WAIT_MAX: Span = Span::secs(60);

const REGISTERED: &str = "READY=1\nSTATUS=all targets have registered with the MGS";
const WAITS: &str = "READY=1\nSTATUS=not all targets have registered with the MGS yet";

/// Counts the executors of this process whose targets have not registered yet.
#[derive(Clone)]
pub(super) struct Ready(Arc<watch::Sender<usize>>);

impl Ready {
    pub(super) fn new(executors: usize) -> Ready {
        Ready(Arc::new(watch::channel(executors).0))
    }

    /// The targets of one more executor have registered.
    pub(super) fn one_registered(&self) {
        self.0.send_modify(|left| *left = left.saturating_sub(1));
    }

    /// Notifies systemd when all have, if it has started this process and waits for that.
    pub(super) fn notify_systemd(&self, env: &Env) {
        let Some(name) = std::env::var_os(SOCKET).filter(|name| !name.is_empty()) else { return };
        match address(&name) {
            Ok(to) => self.notify(env, to, WAIT_MAX),
            Err(error) => tracing::warn!("{SOCKET}: {error}"),
        }
    }

    fn notify(&self, env: &Env, to: SocketAddr, wait_max: Span) {
        let (ready, own) = (self.clone(), env.clone());
        env.spawn("systemd notified", async move {
            if own.timeout(wait_max, ready.registered()).await.is_none() {
                say(&to, WAITS);
                ready.registered().await;
            }
            say(&to, REGISTERED);
        });
    }

    async fn registered(&self) {
        // the sender lives as long as we do
        let _ = self.0.subscribe().wait_for(|left| *left == 0).await;
    }
}

/// A name that begins with `@` is not in the file system.
fn address(name: &OsStr) -> io::Result<SocketAddr> {
    match name.as_bytes().strip_prefix(b"@") {
        Some(name) => SocketAddr::from_abstract_name(name),
        None => SocketAddr::from_pathname(name),
    }
}

fn say(to: &SocketAddr, state: &str) {
    let sent = UnixDatagram::unbound()
        .and_then(|socket| socket.send_to_addr(state.as_bytes(), to).map(|_| ()));
    if let Err(error) = sent {
        tracing::warn!("systemd cannot be notified that this server is ready ({SOCKET}): {error}");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A socket that does not wait for datagrams.
    fn bound(name: &str) -> (UnixDatagram, SocketAddr) {
        let name = format!("@nacre-ready-{name}-{}", std::process::id());
        let at = address(OsStr::new(&name)).expect("a short name");
        let socket = UnixDatagram::bind_addr(&at).expect("the name is ours");
        socket.set_nonblocking(true).expect("a socket");
        (socket, at)
    }

    fn received(socket: &UnixDatagram) -> Option<String> {
        let mut bytes = [0; 256];
        let length = socket.recv(&mut bytes).ok()?;
        Some(String::from_utf8_lossy(&bytes[..length]).into_owned())
    }

    async fn next(env: &Env, socket: &UnixDatagram) -> String {
        loop {
            if let Some(text) = received(socket) {
                return text;
            }
            env.sleep(Span::millis(1)).await;
        }
    }

    #[test]
    fn systemd_is_notified_when_the_last_executor_has_registered() {
        let (socket, at) = bound("last");
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let ready = Ready::new(2);
            ready.notify(&env, at, Span::secs(3_600));
            ready.one_registered();
            env.sleep(Span::millis(20)).await;
            assert_eq!(received(&socket), None, "one executor is left");
            ready.one_registered();
            assert_eq!(next(&env, &socket).await, REGISTERED);
        });
    }

    #[test]
    fn a_server_without_its_mgs_counts_as_started_after_a_time() {
        let (socket, at) = bound("late");
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let ready = Ready::new(1);
            ready.notify(&env, at, Span::millis(1));
            assert_eq!(next(&env, &socket).await, WAITS);
            ready.one_registered();
            assert_eq!(next(&env, &socket).await, REGISTERED);
        });
    }

    #[test]
    fn a_socket_has_a_path_or_an_abstract_name() {
        let path = address(OsStr::new("/run/systemd/notify")).expect("a short path");
        assert_eq!(path.as_pathname(), Some(std::path::Path::new("/run/systemd/notify")));
        let name = address(OsStr::new("@notify")).expect("a short name");
        assert_eq!(name.as_abstract_name(), Some(&b"notify"[..]));
        assert!(address(OsStr::new(&"x".repeat(200))).is_err());
    }
}
