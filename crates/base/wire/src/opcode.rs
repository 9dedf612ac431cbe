//! Operation codes. A number is never reused.

macro_rules! opcodes {
    ($($(#[$doc:meta])* $name:ident = $value:literal, $text:literal;)*) => {
        /// What a request asks for.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u16)]
        pub enum Opcode { $($(#[$doc])* $name = $value,)* }

        impl Opcode {
            /// All of them, in numerical order.
            pub const ALL: &[Opcode] = &[$(Opcode::$name,)*];

            /// The opcode of this number; none if it is unknown.
            #[must_use]
            pub fn from_u16(value: u16) -> Option<Opcode> {
                match value { $($value => Some(Opcode::$name),)* _ => None }
            }

            /// As statistics print it (Lustre's names where they exist).
            #[must_use]
            pub fn name(self) -> &'static str {
                match self { $(Opcode::$name => $text,)* }
            }
        }
    };
}

opcodes! {
    /// Open or resume a session with a target.
    Connect = 1, "connect";
    /// End a session: everything it holds is released.
    Disconnect = 2, "disconnect";
    /// Keep-alive; its reply tells `last_committed`.
    Ping = 3, "obd_ping";
    /// A recovering client has replayed everything it has.
    ReplayDone = 4, "replay_done";

    /// Attributes and layout by FID.
    MdtGetattr = 32, "mds_getattr";
    /// Attributes and layout by parent and name.
    MdtLookup = 33, "mds_getattr_name";
    /// Make a file, directory, link, device; with an open flag also open it, existing or new.
    MdtCreate = 34, "mds_create";
    /// Open by FID.
    MdtOpen = 35, "mds_open";
    /// Close an open handle.
    MdtClose = 36, "mds_close";
    /// Hard link.
    MdtLink = 37, "mds_link";
    /// Remove a name (file or directory).
    MdtUnlink = 38, "mds_unlink";
    /// Rename or exchange.
    MdtRename = 39, "mds_rename";
    /// Change attributes.
    MdtSetattr = 40, "mds_setattr";
    /// A page of directory entries with attributes.
    MdtReaddir = 41, "mds_readpage";
    /// Target of a symbolic link.
    MdtReadlink = 42, "mds_readlink";
    /// One extended attribute.
    MdtGetxattr = 43, "mds_getxattr";
    /// Set one extended attribute.
    MdtSetxattr = 44, "mds_setxattr";
    /// Names of extended attributes.
    MdtListxattr = 45, "mds_listxattr";
    /// Remove one extended attribute.
    MdtRemovexattr = 46, "mds_removexattr";
    /// Space and inodes of the MDT.
    MdtStatfs = 47, "mds_statfs";
    /// Commit everything up to now.
    MdtSync = 48, "mds_sync";
    /// Paths of a FID.
    MdtFid2path = 49, "mds_fid2path";
    /// Ask for a flock, fcntl or file lock.
    MdtLock = 50, "ldlm_enqueue";
    /// Give a lock back, or stop waiting for it.
    MdtUnlock = 51, "ldlm_cancel";

    /// Read from an object.
    OstRead = 64, "ost_read";
    /// Write to an object.
    OstWrite = 65, "ost_write";
    /// Set an object's size (truncate).
    OstPunch = 66, "ost_punch";
    /// Size, blocks and times of a batch of objects.
    OstGlimpse = 67, "ost_glimpse";
    /// Destroy a batch of objects.
    OstDestroy = 68, "ost_destroy";
    /// Space and objects of the OST.
    OstStatfs = 69, "ost_statfs";
    /// Commit objects, or everything.
    OstSync = 70, "ost_sync";
    /// Allocate, punch or zero a range of an object.
    OstFallocate = 71, "ost_fallocate";
    /// Where data or a hole begins in an object.
    OstSeek = 72, "ost_seek";

    /// A server announces a target and where it is reached.
    MgsRegister = 96, "mgs_target_reg";
    /// The whole configuration of a file system.
    MgsConfig = 97, "mgs_config_read";
    /// Store a persistent parameter.
    MgsSetParam = 98, "mgs_set_info";

    /// Self-test: echo.
    LstPing = 112, "lst_ping";
    /// Self-test: bulk read or write of a pattern.
    LstBrw = 113, "lst_brw";
    /// Self-test: a console joins a node to its session, adds, starts, stops and asks
    /// ([`crate::lst`]).
    LstControl = 114, "lst_control";
}
