//! Bodies: the fixed struct in buffer 0 of each request and reply, and the contents of the other
//! buffers.
//!
//! Every struct is little-endian, has no padding, and grows only at its end. Each set of flags has
//! a type of its own; numbered values are constants beside the struct that they belong to.
//!
//! # Buffers of an MDT's replies
//!
//! Buffer 0 is the body, buffer 1 the data that belongs to it:
//!
//! | operation | buffer 0 | buffer 1 |
//! |---|---|---|
//! | getattr, lookup, create, open, setattr, link, close, setxattr, removexattr, layout | [`AttrRep`] of the file | layout record (file), default template (directory), or empty |
//! | unlink, rename | [`AttrRep`] of the file that lost or changed its name | empty |
//!
//! The reply to a create or an unlink may also have buffer 2, [`DirRep`]: the directory after the
//! operation, if it is leased. The reply to an open may have all bytes of the file there
//! ([`OpenReq::room`]). They hold for as long as the grant of the attributes that comes with them,
//! and belong to the first reply alone ([`crate::Reply::lasting`]).
//!
//! | operation | buffer 0 | buffer 1 |
//! |---|---|---|
//! | readdir | `ReaddirRep` | [`crate::dirent`] records |
//! | getattrs | `GetattrsRep` | [`crate::stats`] records |
//! | closes | `ClosesRep` | [`crate::stats`] records |
//! | readlink | empty | target of the link |
//! | getxattr | empty | value |
//! | listxattr | empty | names, each with a NUL behind it |
//! | fid2path | empty | paths from the root (no leading slash; empty for the root), each with a NUL behind it |
//! | statfs | `StatfsRep` | |
//! | sync | `SyncRep` | of a file that has names at other MDTs: `Vec` of their indexes (`u32`) |
//! | prepare, updates | empty | `Vec` of [`crate::updates::Fact`], of [`crate::updates::Record`] |
//! | update | empty | |
//! | move | empty | [`crate::updates::Moved`] |
//! | lock, unlock | `LockRep` | |
//!
//! The reply to a change that several MDTs make has one more buffer at its end: the whole change,
//! sealed ([`crate::updates::RECORD_MAGIC`]). A replay repeats it.
//!
//! `listxattr` lists `lustre.lov` if there is a layout or a default. `getxattr` and `setxattr`
//! accept it, and `trusted.lov` of root, with the binary value of `lustre.lov`.

mod fid;
#[macro_use]
mod layout;
mod grants;
mod many;

use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout};

pub use self::fid::WireFid;
pub use self::grants::{
    BODIES as GRANT_BODIES, CallbackRep, GrantAck, GrantSize, GrantWord, GrantsReq,
};
pub use self::many::{
    BODIES as MANY_BODIES, CLOSES_MAX, ClosesRep, ClosesReq, GetattrsRep, GetattrsReq, OpenWord,
    STATED_OPENS_MAX, closes, encode_opens, stated_opens,
};
use crate::Attr;
pub use crate::flags::{
    BatchFlags, CloseFlags, CreateFlags, Disposition, GetattrFlags, GetattrsFlags, GrantBits,
    GrantsFlags, IoFlags, LockFlags, PunchFlags, ReaddirFlags, ReaddirState, ReserveFlags,
    SetattrFlags, StatfsState,
};
pub use crate::values::{cancel, connect, fallocate, lock};

/// A grant that lasts until it is called back, in place of its milliseconds.
pub const CALLED_BACK: u32 = u32::MAX;

bodies! {
    /// [`crate::Opcode::Connect`]. Buffer 1: name of the client (host and mount) as text.
    ConnectReq (80) {
        /// [`types::ClientId`], low half.
        client_low: u64,
        /// [`types::ClientId`], high half.
        client_high: u64,
        /// Highest tag that the client will use.
        tags: u32,
        /// 1: an earlier session of this client id is to be resumed; 0: the client starts anew.
        resume: u32,
        /// Session to resume, zero if none.
        session: u64,
        /// Instance of the target that the client last talked to, zero if none.
        instance: u64,
        /// Lowest transno that the client can replay, zero if none.
        replay_from: u64,
        /// Highest transno that the client can replay, zero if none.
        replay_to: u64,
        /// 1: a server's own connection (an MDT to its OSTs): nothing waits for its recovery.
        is_server: u32,
        /// Zero.
        reserved: u32,
        /// Identity of the target's storage as the MGS told it, low half; zero: not known.
        uuid_low: u64,
        /// The upper 64 bits of the UUID.
        uuid_high: u64,
    }
    /// Reply to Connect.
    ConnectRep (64) {
        /// Session for the request headers.
        session: u64,
        /// Instance of the target.
        instance: u64,
        /// Everything up to here is durable.
        last_committed: u64,
        /// [`connect`]: NEW, RESUMED, RECOVER or EVICTED.
        outcome: u32,
        /// Count for the request headers.
        epoch: u32,
        /// Modifying requests that may be in flight.
        tags: u32,
        /// Requests of any kind that may be in flight.
        rpcs_in_flight: u32,
        /// Most data that may ride inside a request or reply, bytes.
        inline_bytes: u32,
        /// Most data of one bulk transfer, bytes.
        bulk_bytes: u32,
        /// Seconds of silence after which the session may be evicted.
        lease_secs: u32,
        /// Milliseconds left of the recovery window, with RECOVER.
        window_ms: u32,
        /// Of an MDT: the number drawn when its store was made, for [`Claim::store`]; zero of
        /// others.
        store: u64,
    }

    /// Names a file: getattr, readlink, listxattr, getxattr (buffer 1: name), removexattr (buffer
    /// 1: name), fid2path, sync.
    FidReq (32) {
        /// The file. Zero in a sync: everything.
        fid: WireFid,
        /// Open handle of the asker, zero if none: an unlinked open file is found by it too.
        handle: u64,
        /// In a getattr: how it is answered.
        flags: GetattrFlags,
        /// Zero.
        reserved: u32,
    }
    /// Buffer 1: name.
    LookupReq (24) {
        /// FID of the directory that holds the name.
        parent: WireFid,
        /// Zero.
        flags: u32,
        /// Zero.
        reserved: u32,
    }
    /// Reply to getattr, lookup, create, open, setattr, link. Buffer 1: layout record (regular
    /// files; default of a directory), may be empty.
    AttrRep (184) {
        /// Attributes after the operation.
        attr: Attr,
        /// Open handle, zero if none was opened.
        handle: u64,
        /// What an open or a truncate did.
        disposition: Disposition,
        /// Milliseconds, from when it was asked, for which nobody else changes the attributes;
        /// zero: they may be old already; [`CALLED_BACK`]: until they are called back.
        lease_ms: u32,
        /// Count of the opens-for-write that this file has seen in this instance: guards a late
        /// size.
        write_epoch: u64,
        /// When the MDT's modification time was set by hand or by a truncate, seconds: only a later
        /// write counts.
        mtime_set: i64,
        /// Nanoseconds of that time.
        mtime_set_nsec: u32,
        /// The same for the name by which it was found or made.
        name_lease_ms: u32,
        /// Bit i: stripe i (of the first 64) has an object: where its OST has none, it is lost.
        /// Bits not set say nothing. Those from 64 on follow the layout record in buffer 1. In the
        /// reply to an open of a directory: the seal of its handle, 32 bits ([`OpenWord::seal`]).
        stripes: u64,
        /// Names all that this reply grants: it rises.
        grant: u64,
    }
    /// Buffer 1: name; 2: symbolic link target; 3: layout record wanted, may be empty; 4: of a
    /// directory, the MDTs wanted (`layout::dir::Asked`), empty: as the parent's default says; of a
    /// file with [`CreateFlags::DATA`], its bytes.
    CreateReq (72) {
        /// FID of the directory that holds the name.
        parent: WireFid,
        /// Type and permission bits, before umask.
        mode: u32,
        /// Permission bits that the caller's umask takes away.
        umask: u32,
        /// Device number, of device nodes only.
        rdev: u64,
        /// O_* flags: O_EXCL, O_TRUNC, access mode.
        open_flags: u32,
        /// What to make, and whether to open it.
        flags: CreateFlags,
        /// Open handle for a replay of an open that was answered before (zero: draw one).
        handle: u64,
        /// Seconds of the operation's time at the client (used with mount option clientside times;
        /// zero: server's).
        time: i64,
        /// Nanoseconds of that time.
        time_nsec: u32,
        /// Project of the new file.
        projid: u32,
        /// Zero.
        reserved: u64,
    }
    /// Open by FID.
    OpenReq (32) {
        /// FID of the file.
        fid: WireFid,
        /// O_* flags.
        open_flags: u32,
        /// Bytes of the file that the reply may carry in buffer 2, which must be all that it has;
        /// zero: none.
        room: u32,
        /// Not zero: the caller can keep the data of the file until it is called back. Opened for
        /// writing, that is what it writes.
        caches: u32,
        /// Not zero: after a restart the caller states the handle again ([`OpenWord`]), so an open
        /// for reading needs no place in history.
        restates: u32,
    }
    /// Ends an open handle, and may hand size and times over. Buffer 1: with SIZE, the stripes from
    /// 64 on that have an object (`layout::StripeSet`), may be absent; with DATA, all bytes of the
    /// file. With ATTRS, buffer 2 is a [`SetattrReq`].
    CloseReq (96) {
        /// FID of the file.
        fid: WireFid,
        /// Handle to close.
        handle: u64,
        /// Which of the fields below count.
        flags: CloseFlags,
        /// Zero.
        reserved: u32,
        /// With SIZE: bytes.
        size: u64,
        /// With SIZE: units of 512 bytes.
        blocks: u64,
        /// With SIZE: last write.
        mtime: i64,
        /// With ATIME: last read.
        atime: i64,
        /// Nanoseconds of mtime.
        mtime_nsec: u32,
        /// Nanoseconds of atime.
        atime_nsec: u32,
        /// With SIZE: the open-for-write count under which the size was known.
        write_epoch: u64,
        /// With SIZE: bit i set: stripe i (of the first 64) has an object.
        stripes: u64,
        /// Zero.
        reserved2: u64,
    }
    /// Buffer 1: name.
    LinkReq (40) {
        /// FID of the file.
        fid: WireFid,
        /// Directory of the new name.
        parent: WireFid,
        /// Zero.
        reserved: u64,
    }
    /// Buffer 1: name.
    UnlinkReq (24) {
        /// FID of the directory that holds the name.
        parent: WireFid,
        /// Not zero: the name must be a directory (rmdir); zero: it must not. Read by
        /// [`UnlinkReq::wants_dir`].
        is_dir: u32,
        /// Zero.
        reserved: u32,
    }
    /// Buffer 1: old name; 2: new name.
    RenameReq (40) {
        /// Directory of the old name.
        parent: WireFid,
        /// Directory of the new name.
        new_parent: WireFid,
        /// RENAME_NOREPLACE 1, RENAME_EXCHANGE 2.
        flags: u32,
        /// Not zero: the client counts the change in both directories, at whatever MDT they are.
        keeps_dirs: u32,
    }
    /// Set the attributes named by `valid` to those in `attr` (its FID names the file). Buffer 1:
    /// with SIZE_KNOWN, the stripes from 64 on that have an object; may be absent.
    SetattrReq (160) {
        /// New values. With a time or a size to set, its birth time is the caller's clock: what is
        /// set counts as later than every write that the caller stamped before, whatever the
        /// server's clock says.
        attr: Attr,
        /// Which fields of the attributes count.
        valid: SetattrFlags,
        /// Zero.
        reserved: u32,
        /// Open handle of the caller, zero if none.
        handle: u64,
        /// With SIZE or SIZE_KNOWN: the open-for-write count under which it was known.
        write_epoch: u64,
        /// With SIZE_KNOWN: bit i set: stripe i (of the first 64) has an object.
        stripes: u64,
    }
    /// A page of entries.
    ReaddirReq (40) {
        /// FID of the directory to list.
        fid: WireFid,
        /// Entries behind this cookie (0: from the start).
        cookie: u64,
        /// Bytes of entries wanted at most.
        bytes_max: u32,
        /// Entries wanted at most.
        entries_max: u32,
        /// What its entries carry.
        flags: ReaddirFlags,
        /// Zero.
        reserved: u32,
    }
    /// Reply to readdir. Buffer 1: [`crate::dirent`] records.
    ReaddirRep (40) {
        /// Entries in buffer 1.
        count: u32,
        /// What is behind the entries, and where else the directory has names.
        at_end: ReaddirState,
        /// Parent of the directory, for "..".
        parent: WireFid,
        /// Milliseconds, from when it was asked, for which nobody else changes the entries that
        /// are marked as leased, as in [`AttrRep`].
        lease_ms: u32,
        /// The same for the names in the directory.
        name_lease_ms: u32,
        /// Names all that this reply grants: it rises.
        grant: u64,
    }
    /// Buffer 1: name; 2: value.
    SetxattrReq (32) {
        /// FID of the file.
        fid: WireFid,
        /// XATTR_CREATE 1, XATTR_REPLACE 2.
        flags: u32,
        /// `lustre.lov.del`: one more than the generation of the layout that the objects of what
        /// goes refuse already; 0: none. `lustre.inode.migrate`: the same of the layout whose
        /// objects are lent to files of the MDT that is named.
        refused: u32,
        /// Zero.
        reserved2: u64,
    }
    /// Value of `lustre.lov.swap`: a file and one without a name, which the caller has open for
    /// writing, take over each other's objects.
    SwapReq (48) {
        /// The file without a name.
        other: WireFid,
        /// Under which the caller has it open.
        handle: u64,
        /// Generation of the file's layout, else EAGAIN.
        generation: u32,
        /// The same of the other one.
        other_generation: u32,
        /// Generation of both afterwards.
        next: u32,
        /// Zero.
        reserved: u32,
        /// Zero.
        reserved2: u64,
    }
    /// Space; reply to MdtStatfs and OstStatfs.
    StatfsRep (64) {
        /// Unit of the counts of blocks below.
        block_bytes: u64,
        /// Blocks of the whole target.
        blocks: u64,
        /// Blocks that can still be written.
        blocks_free: u64,
        /// Blocks free for users.
        blocks_avail: u64,
        /// Inodes (MDT) or objects (OST) in all.
        files: u64,
        /// How many more files can be made.
        files_free: u64,
        /// What the target lacks, and what its administrator said of it.
        state: StatfsState,
        /// Zero.
        reserved: u64,
    }
    /// Reply that says only up to where history is durable (sync), or nothing.
    SyncRep (16) {
        /// Durable up to here.
        last_committed: u64,
        /// Zero.
        reserved: u64,
    }
    /// A lock on a file. Reply: [`LockRep`].
    LockReq (88) {
        /// FID of the file.
        fid: WireFid,
        /// One of the kinds in [`lock`].
        kind: u32,
        /// One of the modes in [`lock`].
        mode: u32,
        /// First byte (fcntl); 0 for the others.
        start: u64,
        /// First byte behind (fcntl); `u64::MAX` for the others.
        end: u64,
        /// Who holds it at that client (the kernel's lock owner).
        owner: u64,
        /// Process, as F_GETLK tells it.
        pid: u32,
        /// How to ask for the lock.
        flags: LockFlags,
        /// Names a wait: the same cookie keeps its place in the queue, and unlock with it ends the
        /// wait.
        cookie: u64,
        /// Zero.
        reserved: [u64; 2],
        /// How long the server may hold the answer back while the lock is not free, milliseconds.
        wait_ms: u32,
        /// Zero.
        reserved2: u32,
    }
    /// Reply to [`LockReq`].
    LockRep (40) {
        /// [`lock`] state.
        state: u32,
        /// With TEST and not granted: mode of the conflicting lock.
        mode: u32,
        /// First byte of the range in the way.
        start: u64,
        /// First byte behind it.
        end: u64,
        /// Process that holds it, on its own client.
        pid: u32,
        /// With WAITING, 1: the client is called when its turn comes. Older servers say 0.
        calls: u32,
        /// Zero.
        reserved2: u64,
    }

    /// Objects for what a file has none for yet, up to a byte (Lustre: a layout intent).
    LayoutReq (40) {
        /// File.
        fid: WireFid,
        /// Handle that is open for writing; 0: none.
        handle: u64,
        /// First byte behind those that are to be written.
        behind: u64,
        /// One more than the generation of a layout that an object refuses as old: only this is
        /// asked for, that the file has a later one. 0: none.
        refused: u32,
        /// 1: whether it has one already.
        look: u32,
    }

    /// On whose word a client uses an object.
    Claim (32) {
        /// The client's session with the MDT of the file.
        session: u64,
        /// The number drawn when that MDT's store was made: ids of another store mean other files.
        store: u64,
        /// Zero: room for a capability.
        capability: [u64; 2],
    }

    /// Read or write of one object. Write: data inline in buffer 1, or pulled if the header names a
    /// bulk. Read: data in the reply's buffer 1, or pushed if the header names a bulk.
    OstIoReq (112) {
        /// Object: base and stripe.
        object: WireFid,
        /// File that the object belongs to.
        parent: WireFid,
        /// First byte in the object.
        offset: u64,
        /// Bytes from the offset on.
        length: u32,
        /// How to move the data.
        flags: IoFlags,
        /// Bytes of its client's reservation that a write uses up.
        room: u64,
        /// Time of the write at the client.
        mtime: i64,
        /// Nanoseconds of mtime.
        mtime_nsec: u32,
        /// Layout version under which the client maps.
        layout_version: u32,
        /// Owner of the file.
        uid: u32,
        /// Group of the file.
        gid: u32,
        /// The MDT's word.
        claim: Claim,
    }
    /// Reply to read, write and punch; one element of a glimpse's reply (buffer 1: array).
    OstAttr (72) {
        /// 1: the object exists.
        exists: u32,
        /// Read: bytes returned.
        length: u32,
        /// Bytes of the object.
        size: u64,
        /// Units of 512 bytes.
        blocks: u64,
        /// Time of the last write, seconds since 1970.
        mtime: i64,
        /// Time of the last read, seconds since 1970.
        atime: i64,
        /// Time of the last change, seconds since 1970.
        ctime: i64,
        /// Nanoseconds of mtime.
        mtime_nsec: u32,
        /// Nanoseconds of atime.
        atime_nsec: u32,
        /// Nanoseconds of ctime.
        ctime_nsec: u32,
        /// The lowest layout version under which it may be used; `u32::MAX`: it was destroyed.
        layout_version: u32,
        /// Answer to a glimpse or a read: transno of the last change of its bytes.
        changed: u64,
    }
    /// Set an object's size.
    OstPunchReq (96) {
        /// FID of the object: base and stripe.
        object: WireFid,
        /// File that it belongs to.
        parent: WireFid,
        /// Size that the object has afterwards, bytes.
        size: u64,
        /// Time of the truncate.
        mtime: i64,
        /// Nanoseconds of mtime.
        mtime_nsec: u32,
        /// How to cut.
        flags: PunchFlags,
        /// Layout version under which the client maps.
        layout_version: u32,
        /// Zero.
        reserved: u32,
        /// The MDT's word.
        claim: Claim,
    }
    /// Glimpse, destroy, sync: buffer 1 is an array of [`ObjectRange`] (sync: empty means
    /// everything).
    OstBatchReq (16) {
        /// Elements of buffer 1.
        count: u32,
        /// How to read buffer 1.
        flags: BatchFlags,
        /// Glimpse and destroy: as [`Claim::store`]; objects of another store are passed over.
        store: u64,
    }
    /// Objects `base` stripes `first .. first + count`. In glimpse one element is one object.
    ObjectRange (24) {
        /// Object base that the stripes share.
        base: WireFid,
        /// Index of the first stripe.
        first: u32,
        /// Stripes from there on.
        count: u32,
    }

    /// Self-test brw: data always in a bulk phase, whatever its size.
    LstBrwReq (64) {
        /// Bytes of the transfer.
        length: u32,
        /// 1 write (server pulls), 0 read (server pushes).
        write: u32,
        /// Zero.
        reserved0: u64,
        /// 0 none, 1 simple, 2 full, 3 crc, 4 discard.
        check: u32,
        /// Zero.
        reserved: u32,
        /// Zero.
        reserved2: u64,
        /// Stamp of the session; zero outside of one.
        session: u64,
        /// Who loads: seed of the content with crc.
        sender: u64,
        /// Number of this transfer at its sender: seed of the content with crc.
        sequence: u64,
        /// Offset of the first byte in its page.
        offset: u32,
        /// Zero.
        reserved3: u32,
    }
    /// Self-test ping, there and back.
    LstPing (24) {
        /// Stamp of the session; zero outside of one.
        session: u64,
        /// Number of this ping at its sender.
        sequence: u64,
        /// Zero.
        reserved: u64,
    }

    /// Allocate, punch or zero `offset .. offset + length` of one object. Reply: [`OstAttr`].
    OstFallocateReq (104) {
        /// FID of the object: base and stripe.
        object: WireFid,
        /// File that it belongs to.
        parent: WireFid,
        /// First byte in the object.
        offset: u64,
        /// Bytes from the offset on, not zero.
        length: u64,
        /// Time of the change at the client.
        mtime: i64,
        /// Nanoseconds of mtime.
        mtime_nsec: u32,
        /// [`fallocate`], as `fallocate(2)` has them.
        mode: u32,
        /// Layout version under which the client maps.
        layout_version: u32,
        /// Zero.
        reserved: u32,
        /// The MDT's word.
        claim: Claim,
    }
    /// A client whose session with an MDT has ended uses no object on that MDT's word any more.
    OstFenceReq (40) {
        /// As [`Claim::store`].
        store: u64,
        /// [`types::ClientId`], low half.
        client_low: u64,
        /// [`types::ClientId`], high half.
        client_high: u64,
        /// Lowest session that may.
        session: u64,
        /// The run of the OST that the MDT knew when the client had no later session; zero: it may
        /// have one. The recovery of that run does not wait for the client.
        instance: u64,
    }
    /// Answer to [`OstFenceReq`].
    OstFenceRep (8) {
        /// Not zero: the recovery of this run waits for the client.
        waits: u32,
        /// Zero.
        reserved: u32,
    }
    /// Asks for room for writes to come. Both sides count from the begin of the session.
    OstReserveReq (16) {
        /// Bytes in all that are wanted.
        total: u64,
        /// How it is counted.
        flags: ReserveFlags,
        /// Rises with each question of a session: one that comes after a later one has no effect.
        number: u32,
    }
    /// Answer to [`OstReserveReq`].
    OstReserveRep (8) {
        /// Bytes in all that are promised: at least as many as before, if nothing was given back.
        total: u64,
    }
    /// Objects in the order of their FIDs. Reply: [`OstListRep`], and in buffer 1 as many
    /// [`OstListed`]: none behind the last object.
    OstListReq (24) {
        /// The first that is wanted.
        from: WireFid,
        /// How many are wanted at most.
        count: u32,
        /// Zero.
        reserved: u32,
    }
    /// Answer to [`OstListReq`].
    OstListRep (8) {
        /// Entries in buffer 1.
        count: u32,
        /// Zero.
        reserved: u32,
    }
    /// An object.
    OstListed (48) {
        /// Its FID: base and stripe.
        object: WireFid,
        /// File for which it was made; zero where its record cannot be read.
        parent: WireFid,
        /// As [`Claim::store`]; zero where the record does not say it.
        store: u64,
        /// Where its last byte ends.
        size: u64,
    }
    /// Objects of a file (buffer 1, as in a destroy) are used under a layout version from this one
    /// on. Reply: [`OstBatchReq`].
    OstRaiseReq (56) {
        /// File that they belong to.
        parent: WireFid,
        /// The lowest version; 0: as before, if they are lent.
        layout_version: u32,
        /// Index of an MDT whose files may use them, too, and one; buffer 2 is the number of its
        /// store, little-endian. Zero: none.
        lent: u32,
        /// The MDT's word.
        claim: Claim,
    }
    /// Where data, or a hole, begins in one object.
    OstSeekReq (80) {
        /// FID of the object: base and stripe.
        object: WireFid,
        /// First byte to look at.
        offset: u64,
        /// 0 data, 1 hole.
        what: u32,
        /// Layout version under which the client maps.
        layout_version: u32,
        /// File that the object belongs to.
        parent: WireFid,
        /// The MDT's word.
        claim: Claim,
    }
    /// Reply to [`OstSeekReq`].
    OstSeekRep (32) {
        /// First byte of it at or behind the one asked for; `u64::MAX`: there is none.
        offset: u64,
        /// Bytes of the object.
        size: u64,
        /// 1: the object exists.
        exists: u32,
        /// Zero.
        reserved: u32,
        /// Zero.
        reserved2: u64,
    }
    /// Buffer 2 of the reply to a create or unlink, where it is there: the directory.
    DirRep (136) {
        /// Attributes after the operation.
        attr: Attr,
        /// Milliseconds, from when it was asked, for which nobody else changes directory and
        /// entries, as in [`AttrRep`].
        lease_ms: u32,
        /// Zero.
        reserved: u32,
    }
    /// [`crate::Opcode::Cancel`]: takes back a change of this session.
    CancelReq (16) {
        /// Number of the change.
        xid: u64,
        /// Tag that it was sent on.
        tag: u32,
        /// Zero.
        reserved: u32,
    }
    /// Reply to Cancel.
    CancelRep (8) {
        /// [`cancel`]: DROPPED or EXECUTED.
        outcome: u32,
        /// Zero.
        reserved: u32,
    }
}

#[cfg(test)]
mod tests;
