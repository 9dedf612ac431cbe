//! Operation codes, one row each: number, name, kind of target, way, and the least role of the peer
//! that asks. A row also says whether the operation is executed exactly once. A number is never
//! reused.

use types::{Role, TargetKind};

macro_rules! opcodes {
    ($(
        $(#[$doc:meta])*
        $name:ident = $value:literal, $text:literal,
            $whose:ident $once:ident $way:ident $least:ident;
    )*) => {
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

            /// The kind of target that executes it; none for what every target does.
            #[must_use]
            pub const fn target(self) -> Option<TargetKind> {
                match self { $(Opcode::$name => opcodes!(@target $whose),)* }
            }

            /// Whether it is executed exactly once: its requests carry a tag, and the reply is kept
            /// for a resend. What is safe to repeat does not need that.
            #[must_use]
            pub const fn modifies(self) -> bool {
                match self { $(Opcode::$name => opcodes!(@once $once),)* }
            }

            /// Whether it may open a file: then a restarted target repeats it for its handle.
            #[must_use]
            pub const fn opens(self) -> bool {
                matches!(self.way(), Way::Opens)
            }

            /// Whether a target sends it to its client: the callbacks.
            #[must_use]
            pub const fn calls_back(self) -> bool {
                matches!(self.way(), Way::CallsBack)
            }

            /// Whether MDTs ask each other this, and clients never do.
            #[must_use]
            pub const fn is_between_mdts(self) -> bool {
                matches!(self.way(), Way::Asks | Way::Delivers)
            }

            /// The least role of a peer that may ask for it.
            #[must_use]
            pub const fn least_role(self) -> Role {
                match self { $(Opcode::$name => opcodes!(@least $least),)* }
            }

            /// Whether it gives up what somebody else may wait for, whatever becomes of other
            /// requests: a client has a place for it when all others are taken.
            #[must_use]
            pub const fn gives_up(self) -> bool {
                matches!(self.way(), Way::GivesUp)
            }

            /// Whether a recovering target takes it from a server: what others wait for must not
            /// wait for the end of one more recovery.
            #[must_use]
            pub const fn passes_recovery(self) -> bool {
                matches!(self.way(), Way::Delivers | Way::Fences)
            }

            /// Whether a client may state again by it what it holds in memory, to a target that
            /// restarted: such a replay changes no records and has no place in history.
            #[must_use]
            pub const fn restates(self) -> bool {
                matches!(self.way(), Way::Restates)
            }

            const fn way(self) -> Way {
                match self { $(Opcode::$name => opcodes!(@way $way),)* }
            }
        }
    };
    (@target any) => { None };
    (@target mdt) => { Some(TargetKind::Mdt) };
    (@target ost) => { Some(TargetKind::Ost) };
    (@target mgs) => { Some(TargetKind::Mgt) };
    (@target lst) => { Some(TargetKind::Lst) };
    (@once modifies) => { true };
    (@once repeats) => { false };
    (@least client) => { Role::Client };
    (@least server) => { Role::Server };
    (@way plain) => { Way::Plain };
    (@way opens) => { Way::Opens };
    (@way restates) => { Way::Restates };
    (@way gives_up) => { Way::GivesUp };
    (@way calls_back) => { Way::CallsBack };
    (@way asks) => { Way::Asks };
    (@way delivers) => { Way::Delivers };
    (@way fences) => { Way::Fences };
}

/// What sets an operation apart from others, on its way and in recovery.
#[derive(Clone, Copy)]
enum Way {
    Plain,
    /// May open a file.
    Opens,
    /// May state again what its client holds in memory.
    Restates,
    /// Gives up what other clients may wait for.
    GivesUp,
    /// From a target to its client.
    CallsBack,
    /// From MDT to MDT, in the course of an operation.
    Asks,
    /// From MDT to MDT, to bring an operation to its end. It passes recovery.
    Delivers,
    /// Refuses clients that are given up. It passes recovery.
    Fences,
}

opcodes! {
    /// Open or resume a session with a target.
    Connect = 1, "connect", any repeats plain client;
    /// End a session: everything it holds is released.
    Disconnect = 2, "disconnect", any repeats plain client;
    /// Keep-alive; its reply tells `last_committed`.
    Ping = 3, "obd_ping", any repeats plain client;
    /// A recovering client has replayed everything it has.
    ReplayDone = 4, "replay_done", any repeats plain client;
    /// Drop a change whose caller is gone, unless it has begun.
    Cancel = 5, "cancel", any repeats plain client;

    /// From a target to its client: give grants back.
    CallRecall = 16, "ldlm_bl_callback", any repeats calls_back client;
    /// From a target to its client: locks are free that it waits for, and it is to ask again.
    CallComplete = 17, "ldlm_cp_callback", any repeats calls_back client;
    /// From a target to its client: sizes of files that the client writes.
    CallGlimpse = 18, "ldlm_gl_callback", any repeats calls_back client;

    /// Attributes and layout by FID.
    MdtGetattr = 32, "mds_getattr", mdt repeats plain client;
    /// Attributes and layout by parent and name.
    MdtLookup = 33, "mds_getattr_name", mdt repeats plain client;
    /// Make a file, directory, link, device; with an open flag also open it, existing or new.
    MdtCreate = 34, "mds_create", mdt modifies opens client;
    /// Open by FID.
    MdtOpen = 35, "mds_open", mdt modifies opens client;
    /// Close an open handle.
    MdtClose = 36, "mds_close", mdt modifies plain client;
    /// Hard link.
    MdtLink = 37, "mds_link", mdt modifies plain client;
    /// Remove a name (file or directory).
    MdtUnlink = 38, "mds_unlink", mdt modifies plain client;
    /// Rename or exchange.
    MdtRename = 39, "mds_rename", mdt modifies plain client;
    /// Change attributes.
    MdtSetattr = 40, "mds_setattr", mdt modifies plain client;
    /// A page of directory entries with attributes.
    MdtReaddir = 41, "mds_readpage", mdt repeats plain client;
    /// Target of a symbolic link.
    MdtReadlink = 42, "mds_readlink", mdt repeats plain client;
    /// One extended attribute.
    MdtGetxattr = 43, "mds_getxattr", mdt repeats plain client;
    /// Set one extended attribute.
    MdtSetxattr = 44, "mds_setxattr", mdt modifies plain client;
    /// Names of extended attributes.
    MdtListxattr = 45, "mds_listxattr", mdt repeats plain client;
    /// Remove one extended attribute.
    MdtRemovexattr = 46, "mds_removexattr", mdt modifies plain client;
    /// Space and inodes of the MDT.
    MdtStatfs = 47, "mds_statfs", mdt repeats plain client;
    /// Commit everything up to now.
    MdtSync = 48, "mds_sync", mdt repeats plain client;
    /// Paths of a FID.
    MdtFid2path = 49, "mds_fid2path", mdt repeats plain client;
    /// Ask for a flock, fcntl or file lock.
    MdtLock = 50, "ldlm_enqueue", mdt modifies restates client;
    /// Give a lock back, or stop waiting for it.
    MdtUnlock = 51, "ldlm_cancel", mdt modifies gives_up client;
    /// Grants that were recalled are given up.
    MdtAck = 52, "mds_grant_ack", mdt repeats gives_up client;
    /// Grants are given up that nobody has asked for.
    MdtShed = 53, "mds_grant_shed", mdt repeats gives_up client;
    /// Grants that a client holds, told to a target that restarted.
    MdtRestate = 54, "mds_grant_restate", mdt repeats restates client;
    /// Objects for the components of a file that a write needs.
    MdtLayout = 55, "mds_layout_intent", mdt modifies plain client;
    /// From MDT to MDT: the state of keys, which stays so until the operation ends.
    MdtPrepare = 56, "out_prepare", mdt repeats asks server;
    /// From MDT to MDT: an operation of several MDTs, of which the target executes its part, once.
    /// With a third buffer if the coordinator was forgotten.
    MdtUpdate = 57, "out_update", mdt repeats delivers server;
    /// From MDT to MDT: operations that the target takes part in, as the asked one knows them.
    MdtUpdates = 58, "out_updates", mdt repeats delivers server;
    /// From MDT to MDT: operations that are durable everywhere, or given up.
    MdtUpdatesDone = 59, "out_done", mdt repeats delivers server;
    /// From MDT to MDT: one operation of the target, if it is applied.
    MdtUpdateOf = 60, "out_update_of", mdt repeats delivers server;
    /// From MDT to MDT: a name that leaves a shard there is to move now.
    MdtMove = 61, "out_move", mdt repeats asks server;
    /// Attributes of many files, by FIDs or by names in one directory.
    MdtGetattrs = 62, "mds_batch", mdt repeats plain client;
    /// Close several open handles of different files.
    MdtCloses = 63, "mds_closes", mdt modifies plain client;

    /// Read from an object.
    OstRead = 64, "ost_read", ost repeats plain client;
    /// Write to an object.
    OstWrite = 65, "ost_write", ost modifies plain client;
    /// Set an object's size (truncate).
    OstPunch = 66, "ost_punch", ost modifies plain client;
    /// Size, blocks and times of a batch of objects.
    OstGlimpse = 67, "ost_glimpse", ost repeats plain client;
    /// Destroy a batch of objects.
    OstDestroy = 68, "ost_destroy", ost modifies plain server;
    /// Space and objects of the OST.
    OstStatfs = 69, "ost_statfs", ost repeats plain client;
    /// Commit objects, or everything.
    OstSync = 70, "ost_sync", ost repeats plain client;
    /// Allocate, punch or zero a range of an object.
    OstFallocate = 71, "ost_fallocate", ost modifies plain client;
    /// Where data or a hole begins in an object.
    OstSeek = 72, "ost_seek", ost repeats plain client;
    /// Refuse a client whose session with the MDT has ended. Only servers ask.
    OstFence = 73, "ost_fence", ost repeats fences server;
    /// Objects, and the files for which they were made. Only servers ask.
    OstList = 74, "ost_list", ost repeats plain server;
    /// Objects refuse older layouts of their file from now on.
    OstRaise = 75, "ost_layout_version", ost repeats plain client;
    /// Room for writes that its client acknowledges before it sends them.
    OstReserve = 76, "ost_reserve", ost repeats restates client;

    /// A server announces a target and where it is reached.
    MgsRegister = 96, "mgs_target_reg", mgs repeats plain server;
    /// The whole configuration of a file system.
    MgsConfig = 97, "mgs_config_read", mgs repeats plain client;
    /// Store a persistent parameter.
    MgsSetParam = 98, "mgs_set_info", mgs repeats plain server;

    /// Self-test: echo.
    LstPing = 112, "lst_ping", lst repeats plain client;
    /// Self-test: bulk read or write of a pattern.
    LstBrw = 113, "lst_brw", lst repeats plain client;
    /// Self-test: a console joins a node to its session, adds, starts, stops and asks
    /// ([`crate::lst`]).
    LstControl = 114, "lst_control", lst repeats plain client;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_target_has_the_opcodes_of_its_name() {
        for opcode in Opcode::ALL {
            let name = format!("{opcode:?}");
            let target = match &name[..3] {
                "Mdt" => Some(TargetKind::Mdt),
                "Ost" => Some(TargetKind::Ost),
                "Mgs" => Some(TargetKind::Mgt),
                "Lst" => Some(TargetKind::Lst),
                _ => None,
            };
            assert_eq!(opcode.target(), target, "{name}");
            let exactly_once = opcode.modifies();
            let can = matches!(target, Some(TargetKind::Mdt | TargetKind::Ost));
            assert!(can || !exactly_once, "{name}: only MDTs and OSTs keep replies");
        }
    }

    #[test]
    fn an_opcode_goes_the_way_of_its_target() {
        for opcode in Opcode::ALL {
            let name = format!("{opcode:?}");
            let target = opcode.target();
            assert!(!opcode.opens() || opcode.modifies(), "{name}: an open has a place in history");
            assert!(!opcode.is_between_mdts() || target == Some(TargetKind::Mdt), "{name}");
            assert!(!opcode.is_between_mdts() || !opcode.modifies(), "{name}: no client asks it");
            assert_eq!(opcode.calls_back(), name.starts_with("Call"), "{name}");
            assert!(!opcode.calls_back() || target.is_none(), "{name}: no target executes it");
        }
    }

    /// A new operation that is not for all stands here too.
    #[test]
    fn each_role_may_ask_for_these_operations() {
        let of = |role: Role| {
            let all = Opcode::ALL.iter().filter(move |opcode| opcode.least_role() == role);
            all.map(|opcode| format!("{opcode:?}")).collect::<Vec<_>>().join(" ")
        };
        assert_eq!(of(Role::Administrator), "", "MGS operations ask for it where addresses differ");
        assert_eq!(
            of(Role::Server),
            "MdtPrepare MdtUpdate MdtUpdates MdtUpdatesDone MdtUpdateOf MdtMove \
             OstDestroy OstFence OstList MgsRegister MgsSetParam"
        );
        let for_all = Opcode::ALL.iter().filter(|opcode| opcode.least_role() == Role::Client);
        assert_eq!(for_all.count(), Opcode::ALL.len() - 11);
        assert!(Role::Client < Role::Server && Role::Server < Role::Administrator);
    }
}
