//! Sets of flags in messages. Each set is a type of its own, so that the bits of two sets do not
//! mix.
//!
//! Decoding keeps bits that this version does not know, and so does `!`, because a later version
//! may give them a meaning.

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

macro_rules! flags {
    ($(
        $(#[$doc:meta])*
        $name:ident: $bits:ty { $($(#[$($flag_doc:tt)*])* $flag:ident = $value:literal,)* }
    )*) => {$(
        $(#[$doc])*
        #[derive(Clone, Copy, Default, PartialEq, Eq, FromBytes, IntoBytes, Immutable, KnownLayout)]
        #[repr(transparent)]
        pub struct $name($bits);

        bitflags::bitflags! {
            impl $name: $bits {
                $($(#[$($flag_doc)*])* const $flag = $value;)*
                const _ = !0;
            }
        }

        impl $name {
            /// These flags where `condition` holds, else none.
            #[must_use]
            pub const fn when(self, condition: bool) -> Self {
                if condition { self } else { Self::empty() }
            }
        }

        impl std::fmt::Debug for $name {
            fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
                f.write_str(concat!(stringify!($name), "("))?;
                bitflags::parser::to_writer(self, &mut *f)?;
                f.write_str(")")
            }
        }
    )*};
}

flags! {
    /// Flags of a request.
    RequestFlags: u32 {
        /// Sent before with the same xid: the outcome is unknown to the client.
        RESENT = 1,
        /// Answered before by an earlier instance and not committed there: do it again with the
        /// same result. The buffers of the first reply follow the request's own; `replay_bufs`
        /// counts them.
        REPLAY = 2,
        /// May change state: its reply is kept until the client has acknowledged it.
        MODIFIES = 4,
        /// Answer only once the change is durable.
        SYNC = 8,
        /// With REPLAY: the change is durable, only its open handle is to be had again; no new
        /// transno. With RESENT: it opens, so that a restarted target that finds its answer makes
        /// the handle anew.
        OPEN = 16,
    }

    /// Flags of a reply.
    ReplyFlags: u32 {
        /// Not the answer yet: extend the deadline to `lease_ms` from now. Buffer 0 may name the
        /// clients that the request waits for.
        EARLY = 1,
        /// The server does not know the session: reconnect (and learn whether you were evicted).
        NO_SESSION = 2,
        /// The target is recovering and takes this request later: send it again after recovery.
        RECOVERING = 4,
        /// Data was pushed under the request's bulk id: wait for it too.
        BULK = 8,
        /// The server has no room for this request now, and has done nothing: send it again in
        /// `lease_ms`.
        BUSY = 16,
        /// The session's lease counts as before this request: its client leaves callbacks without
        /// an answer.
        UNLEASED = 32,
    }

    /// Flags of [`CreateReq`](crate::body::CreateReq).
    CreateFlags: u32 {
        /// Open the file as well (`open_flags` says how).
        OPEN = 1,
        /// Give the file no layout yet (setstripe comes first).
        NO_LAYOUT = 2,
        /// With OPEN: the file gets no name (O_TMPFILE); buffer 1 is empty. Without O_EXCL a link
        /// may give it one.
        TMPFILE = 4,
        /// With OPEN: the caller can keep what it writes until it is called back.
        KEEPS = 8,
        /// Of a file, without OPEN: buffer 4 is all of its bytes, 1 to [`PUT_BYTES_MAX`]. Where the
        /// first component at the MDT does not hold them, nothing is made (EOPNOTSUPP).
        ///
        /// [`PUT_BYTES_MAX`]: crate::PUT_BYTES_MAX
        DATA = 16,
    }

    /// What an operation did, in [`AttrRep`](crate::body::AttrRep).
    Disposition: u32 {
        /// The operation made the file.
        CREATED = 1,
        /// O_TRUNC took effect: the client must punch the objects under the file lock before it
        /// answers.
        TRUNCATE = 2,
        /// The file lives on another MDT, which its FID names. Of the attributes only the FID and
        /// the type bits of the mode count.
        REMOTE = 4,
        /// The caller may keep the data of the file until it is called back.
        CACHE = 8,
        /// The caller may keep what it writes for a while, until it is called back.
        WRITES = 16,
        /// Another client may keep what it has written: the objects may not have it yet. A getattr
        /// with [`GetattrFlags::EXACT`] calls it back first.
        KEPT = 32,
        /// The close of the handle may bring all bytes of the new file ([`CloseFlags::DATA`]), and
        /// a change of attributes with them.
        BYTES = 64,
    }

    /// Flags of [`FidReq`](crate::body::FidReq) in a getattr.
    GetattrFlags: u32 {
        /// Not answered before the objects have all that any client has written.
        EXACT = 1,
        /// The size of a file that one other client writes is asked of that client.
        SIZE = 2,
    }

    /// Flags of [`GetattrsReq`](crate::body::GetattrsReq).
    GetattrsFlags: u32 {
        /// Layouts of files whose size is not known come along.
        LAYOUTS = 1,
        /// Sizes are asked of the clients that write.
        SIZES = 2,
    }

    /// Flags of [`CloseReq`](crate::body::CloseReq).
    CloseFlags: u32 {
        /// `size`, `blocks`, `mtime` are exact, if nobody else opened for write meanwhile
        /// (`write_epoch`).
        SIZE = 1,
        /// The handle wrote something.
        WROTE = 2,
        /// `atime` is set.
        ATIME = 4,
        /// Without SIZE, in a close of one file: buffer 1 is all bytes of a file that has no object
        /// yet, 1 to [`PUT_BYTES_MAX`], and `size` is their number. `mtime` and `write_epoch` are
        /// as with SIZE. The MDT writes them and the file is CLEAN, or it closes nothing
        /// (EOPNOTSUPP, or ENOENT if the file has no name). Only for a handle of which the open
        /// said [`BYTES`](Disposition::BYTES): an older MDT would ignore them.
        ///
        /// [`PUT_BYTES_MAX`]: crate::PUT_BYTES_MAX
        DATA = 8,
        /// With DATA: buffer 2 is a [`SetattrReq`](crate::body::SetattrReq) for the file, of
        /// explicit times, mode and owner, which comes before the rest of the close.
        ATTRS = 16,
    }

    /// Which attributes a [`SetattrReq`](crate::body::SetattrReq) sets.
    SetattrFlags: u32 {
        /// Mode: permission bits, set-id bits and sticky.
        MODE = 1,
        /// User id.
        UID = 2,
        /// Group id.
        GID = 4,
        /// Truncate: the caller holds the file's EX lock; the MDT marks the file dirty at this
        /// size, the caller then punches the objects and ends with SIZE_KNOWN.
        SIZE = 8,
        /// Access time.
        ATIME = 16,
        /// Modification time.
        MTIME = 32,
        /// Access time := now of the server.
        ATIME_NOW = 64,
        /// Modification time := now of the server.
        MTIME_NOW = 128,
        /// `size`, `blocks`, `mtime` are exact (after a truncate or a glimpse), guarded by
        /// `write_epoch`; needs no permission beyond an open.
        SIZE_KNOWN = 256,
        /// Drop set-user-id and set-group-id (a write by somebody without CAP_FSETID).
        KILL_SUID = 512,
        /// Change time.
        CTIME = 1024,
        /// Project id.
        PROJID = 2048,
        /// Drop `security.capability` (a write by anybody).
        KILL_CAPABILITY = 4096,
        /// A directory or symbolic link was read at `atime`: the access time, unless it is later
        /// already. Needs leave to read, and changes nothing else.
        READ_AT = 8192,
    }

    /// What [`Attr`](crate::Attr) says of a file beside its fields. Inode records carry it too.
    AttrFlags: u32 {
        /// The file has extended attributes.
        HAS_XATTR = 1,
        /// `security.capability` is among them; a change of the content takes it away.
        HAS_CAPABILITY = 2,
        /// A directory whose names are spread over shards. `lustre.lmv` names them.
        STRIPED = 4,
        /// A shard of such a directory, which has no name of its own.
        SHARD = 8,
    }

    /// Flags of [`ReaddirReq`](crate::body::ReaddirReq).
    ReaddirFlags: u32 {
        /// Entries have no attributes.
        BARE = 1,
        /// Attributes and names come with leases.
        LEASES = 2,
    }

    /// What [`ReaddirRep`](crate::body::ReaddirRep) says of the directory.
    ReaddirState: u32 {
        /// No entry is behind those of the page.
        AT_END = 1,
        /// Names move between the shards of the directory. Nothing is granted then, because a name
        /// that is not listed may be in another shard.
        NAMES_MOVE = 2,
        /// It is striped, and its names are in its shards.
        STRIPED = 4,
    }

    /// Flags of a [`DirentHeader`](crate::dirent::DirentHeader).
    DirentFlags: u32 {
        /// The attributes are complete.
        HAS_ATTR = 1,
        /// Nobody else changes the file for the time that
        /// [`ReaddirRep::lease_ms`](crate::body::ReaddirRep::lease_ms) says.
        LEASED = 2,
    }

    /// Flags of [`LockReq`](crate::body::LockReq).
    LockFlags: u32 {
        /// Only return whether it could be granted (F_GETLK).
        TEST = 1,
        /// Wait until it is granted.
        WAIT = 2,
        /// Restated during recovery: granted without a question.
        RESTATE = 4,
        /// With WAIT: answer at once, and call the client when its turn comes.
        CALL = 8,
    }

    /// State of a target in [`StatfsRep`](crate::body::StatfsRep).
    StatfsState: u64 {
        /// Redundancy is lost.
        DEGRADED = 1,
        /// Nothing can be written.
        READ_ONLY = 2,
        /// No room is left.
        FULL = 4,
        /// Nothing new is placed here.
        NO_CREATE = 8,
        /// Hardly any inode or object is left.
        NO_INODES = 16,
    }

    /// Flags of [`OstPunchReq`](crate::body::OstPunchReq).
    PunchFlags: u32 {
        /// Create the object if it is not there and the size is above zero; else it stays missing.
        CREATE = 1,
    }

    /// Flags of [`OstBatchReq`](crate::body::OstBatchReq).
    BatchFlags: u32 {
        /// Destroy only: an element of buffer 1 names the `count` ids from `base` on (`first` is
        /// zero), of which everything that is there goes, all stripes.
        OIDS = 1,
    }

    /// What a grant lets its client keep, with the values of Lustre's inode bits.
    GrantBits: u16 {
        /// Names that lead to the file.
        LOOKUP = 0x01,
        /// Attributes; of a directory also its names.
        UPDATE = 0x02,
        /// Opening and closing it.
        OPEN = 0x04,
        /// Its layout.
        LAYOUT = 0x08,
        /// Owner, mode and access ACL.
        PERM = 0x10,
        /// Extended attributes.
        XATTR = 0x20,
        /// Its data.
        CACHE = 0x40,
        /// What its client writes, before that is sent to OSTs.
        WRITE = 0x80,
    }

    /// Flags of [`GrantsReq`](crate::body::GrantsReq).
    GrantsFlags: u32 {
        /// Restate: nothing follows this vector.
        LAST = 1,
    }

    /// Flags of [`OstIoReq`](crate::body::OstIoReq).
    IoFlags: u32 {
        /// Answer only once the data is durable (O_SYNC).
        SYNC = 1,
        /// Bypass the page cache of the OST.
        DIRECT = 2,
        /// Read: a missing object is an error (EIO), not zeros: the MDT says that it exists.
        MUST_EXIST = 4,
        /// Write: room was reserved for it before, and is used up by it.
        RESERVED = 8,
    }

    /// Flags of [`OstReserveReq`](crate::body::OstReserveReq).
    ReserveFlags: u32 {
        /// In a recovery: what the run before had promised, and is used by nothing so far.
        RESTATE = 1,
        /// Everything that is promised beyond this total is given back.
        RELEASE = 2,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::body::OstIoReq;
    use crate::{decode_body, encode_body};

    #[test]
    fn bits_of_a_later_version_survive_decoding() {
        let mut sent =
            encode_body(&OstIoReq { flags: IoFlags::SYNC, ..OstIoReq::default() }).to_vec();
        sent[std::mem::offset_of!(OstIoReq, flags) + 3] = 0x80;
        let body: OstIoReq = decode_body(&sent);
        assert_eq!(body.flags.bits(), 0x8000_0001);
        assert_eq!((body.flags & !IoFlags::SYNC).bits(), 0x8000_0000);
        assert_eq!(encode_body(&body), sent);
        assert_eq!(format!("{:?}", body.flags), "IoFlags(SYNC | 0x80000000)");
    }

    #[test]
    fn flags_are_set_where_the_condition_holds() {
        let flags = IoFlags::SYNC.when(true) | IoFlags::DIRECT.when(false);
        assert_eq!(flags, IoFlags::SYNC);
    }
}
