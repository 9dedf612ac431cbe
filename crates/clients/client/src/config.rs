//! Configuration of a mount, and the context of a call.

use endpoint::{EndpointConfig, ImportConfig};
use ldlm::grants::Bugs as GrantBugs;
use types::{ClientId, Creds, FsName, NidAddr, Span};

use crate::AccessTimes;
use crate::limits::UNMOUNT_WAIT_DEFAULT;

/// Largest data of one RPC unless the configuration says otherwise.
pub const RPC_BYTES_DEFAULT: u32 = 1 << 20;

/// How to mount a file system.
#[derive(Clone, Debug)]
pub struct MountConfig {
    /// Where the MGS is: alternatives, tried in turn.
    pub mgs: Vec<NidAddr>,
    /// Name of the file system.
    pub fsname: FsName,
    /// This node's address (`-o nid=`), the client's name and identity, sizes of messages.
    pub endpoint: EndpointConfig,
    /// Operations fail with ETIMEDOUT when a server is away for `soft_wait`; else they wait for
    /// ever.
    pub soft: bool,
    /// Patience of a soft mount.
    pub soft_wait: Span,
    /// Largest data of one RPC, a multiple of 64 KiB.
    pub rpc_bytes: u32,
    /// Data RPCs that one call keeps in flight.
    pub data_rpcs_in_flight: u32,
    /// How long `statfs` waits for a target that is known to be away.
    pub statfs_wait: Span,
    /// How often the configuration is read again.
    pub refresh_every: Span,
    /// How long [`crate::Client::mount`] waits for the MGS and the first MDT; `None`: for ever. An
    /// MGS that does not know the file system is asked for [`crate::limits::UNKNOWN_WAIT`] at most.
    pub mount_wait: Option<Span>,
    /// How long [`crate::Client::unmount`] waits for what is not known to be durable.
    pub unmount_wait: Span,
    /// Small writes are acknowledged before they are sent, where no other client has the file open.
    pub writeback: bool,
    /// Which reads change access times.
    pub access_times: AccessTimes,
    /// Faults to plant, for tests of the tests.
    pub bugs: Bugs,
    /// The same in the caches of grants.
    pub grant_bugs: GrantBugs,
}

impl MountConfig {
    /// The defaults: `relatime`, and not `soft`. `client` is the identity of this mount, drawn at
    /// random once.
    #[must_use]
    pub fn new(mgs: Vec<NidAddr>, fsname: FsName, client: ClientId) -> MountConfig {
        let import =
            ImportConfig { client, name: String::from("client"), ..ImportConfig::default() };
        MountConfig {
            mgs,
            fsname,
            endpoint: EndpointConfig { import, ..EndpointConfig::default() },
            soft: false,
            soft_wait: Span::secs(60),
            rpc_bytes: RPC_BYTES_DEFAULT,
            data_rpcs_in_flight: 16,
            statfs_wait: Span::millis(500),
            refresh_every: Span::secs(5),
            mount_wait: None,
            unmount_wait: UNMOUNT_WAIT_DEFAULT,
            writeback: true,
            access_times: AccessTimes::default(),
            bugs: Bugs::default(),
            grant_bugs: GrantBugs::default(),
        }
    }
}

planted::bugs! {
    /// Switches that break a promise on purpose: the simulation must find each one.
    pub struct Bugs in "client" {
        /// A read takes it that nobody wrote where the file had no objects when it was opened.
        believe_holes,
        /// O_APPEND writes without the file's EX lock.
        skip_append_lock,
        /// The size of a dirty file is taken from the MDT without asking the OSTs.
        forget_glimpse,
        /// A missing object reads as zeros, whatever the MDT knows of it.
        forget_must_exist,
        /// A write whose caller is gone goes on.
        resend_abandoned,
        /// Nobody hears of acknowledged work that is lost.
        forget_lost_work,
        /// Of several handles only the first that asks hears of lost work.
        tell_one_handle,
        /// A restarted MDT is not told which locks this client holds.
        restate_no_locks,
        /// What is believed of a directory stays although this client has changed it.
        keep_old_beliefs,
        /// What is called back is acknowledged, and believed as before.
        keep_called_back,
        /// Small writes are acknowledged before they are sent, whoever else has the file open.
        keep_without_grant,
        /// Bytes that came with an open are read until the close, whatever was called back.
        keep_opened_bytes,
        /// What others write while a migration ends is left behind.
        migrate_without_last_pass,
        /// Truncate does not take the file's EX lock: appends are cut in two.
        cut_without_lock,
    }
}

/// Who calls: identity, umask, process and job of the application.
#[derive(Clone, Debug, Default)]
pub struct Ctx {
    /// Identity for permission checks, which the servers make.
    pub creds: Creds,
    /// Bits to clear in the mode of what is made.
    pub umask: u32,
    /// Process, as F_GETLK tells it.
    pub pid: u32,
    /// Label of the job, NUL padded.
    pub jobid: [u8; 32],
}

impl Ctx {
    /// The superuser, umask 022.
    #[must_use]
    pub fn root() -> Ctx {
        Ctx { umask: 0o022, ..Ctx::default() }
    }

    /// A user without supplementary groups, umask 022.
    #[must_use]
    pub fn user(uid: u32, gid: u32) -> Ctx {
        Ctx { creds: Creds { uid, gid, groups: Vec::new() }, ..Ctx::root() }
    }
}
