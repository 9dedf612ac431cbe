//! Settings of an MDT, given at its start.

use layout::Template;
use ldlm::grants::{Bugs as GrantBugs, Mode};
use placement::Policy;
use types::{FsName, Span};

/// Configuration of one MDT.
#[derive(Clone)]
pub struct MdtConfig {
    pub fsname: FsName,
    pub index: u32,
    /// A change is durable after so long at most.
    pub commit_interval: Span,
    /// A commit starts as soon as so much is dirty.
    pub commit_dirty_bytes: u64,
    /// Strike every known client out at once instead of waiting for it.
    pub abort_recovery: bool,
    pub recovery_window: Span,
    /// Recovery window with extensions.
    pub recovery_window_max: Span,
    /// Told to clients: silence after which one in somebody's way is evicted, but for a tenth more.
    pub lease: Span,
    /// Silence after which any client is evicted.
    pub silence_max: Span,
    /// How clients' caches are kept coherent, at the start.
    pub grants: Mode,
    /// A lock request that nobody waits for keeps its place in line for so long.
    pub lock_place: Span,
    /// Where new files go, at the start.
    pub lod: Lod,
    /// New directories on other MDTs, at the start.
    pub dirs: Dirs,
    /// Whether and when directories are split by themselves, at the start.
    pub split: Split,
    /// Whether sizes of files without a writer are found out, at the start.
    pub som: SomConfig,
    /// Its data target is beside it.
    pub has_data: bool,
    /// Pretend to be on this device.
    pub device: Option<device::Model>,
    /// User and group of the root directory when it is made.
    pub root_owner: (u32, u32),
    /// Planted bugs, all off in use: the tests must find each of them.
    pub bugs: Bugs,
    /// The same in the table of grants.
    pub grant_bugs: GrantBugs,
}

impl MdtConfig {
    /// The defaults of a file system.
    #[must_use]
    pub fn new(fsname: FsName, index: u32) -> MdtConfig {
        MdtConfig {
            fsname,
            index,
            commit_interval: Span::secs(1),
            commit_dirty_bytes: 16 << 20,
            abort_recovery: false,
            recovery_window: Span::secs(12),
            recovery_window_max: Span::secs(120),
            lease: Span::secs(10),
            silence_max: Span::secs(150),
            grants: Mode::Recall,
            lock_place: Span::secs(10),
            lod: Lod::default(),
            dirs: Dirs::default(),
            split: Split::default(),
            som: SomConfig::default(),
            has_data: false,
            device: None,
            root_owner: (0, 0),
            bugs: Bugs::default(),
            grant_bugs: GrantBugs::default(),
        }
    }
}

impl MdtConfig {
    /// Records that a removed file leaves in the destroy log at most: without a planted bug, one
    /// for each component.
    pub(crate) fn destroys_of_file(&self) -> usize {
        match (self.bugs.forget_destroy_log(), self.bugs.destroy_one_component()) {
            (true, _) => 0,
            (false, true) => 1,
            (false, false) => usize::MAX,
        }
    }
}

/// Bytes of a file that an MDT takes at most, as Lustre has it.
const DOM_STRIPESIZE_DEFAULT: u64 = 1 << 20;

/// What an administrator may set while the MDT runs: where files go whose creator names no
/// place (Lustre: `lod.*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Lod {
    /// Stripe size, bytes.
    pub stripe_size: u32,
    /// Stripe count; -1: all OSTs.
    pub stripe_count: i32,
    /// OST of the first stripe; -1: any.
    pub stripe_offset: i32,
    /// Bytes of a file that this MDT takes at most; 0: none, files have all of theirs on OSTs.
    pub dom_stripesize: u64,
    /// Free space against spreading.
    pub policy: Policy,
    /// The same for the MDTs of new directories.
    pub mdt_policy: Policy,
}

/// Whether directories go to other MDTs, and who may say so (Lustre: `mdt.*.enable_*`).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirs {
    /// A directory may be on another MDT than its parent.
    pub remote: bool,
    /// The names of a directory may be spread over MDTs.
    pub striped: bool,
    /// The names of an existing directory may be moved to other MDTs.
    pub restriped: bool,
    /// Besides root, members of this group may name MDTs; 0: none, -1: all users.
    pub remote_gid: i64,
}

impl Default for Dirs {
    fn default() -> Dirs {
        Dirs { remote: true, striped: true, restriped: true, remote_gid: 0 }
    }
}

/// Room of MDTs that differs by less than this is balanced, per cent (Lustre's value).
const MDT_THRESHOLD_PERCENT: u8 = 5;

/// Seconds for which the room of other MDTs is not asked again (Lustre's value).
const MDT_MAXAGE_SECS: u32 = 60;

/// Whether and when directories are split over several MDTs by themselves, and merged again. May be
/// set while the MDT runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Split {
    /// They are.
    pub is_on: bool,
    /// Names in a directory, or in a shard of it, that split it.
    pub count: u64,
    /// Shards that it gets more each time.
    pub delta: u32,
}

impl Default for Split {
    fn default() -> Split {
        Split { is_on: false, count: 50_000, delta: 4 }
    }
}

/// Whether the MDT finds out the sizes of files that no client writes any more. May be set while it
/// runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SomConfig {
    /// It does.
    pub repair: bool,
    /// Inodes that it looks at for that in a second, while it has little to do; 0: none.
    pub scrub_rate: u64,
}

impl Default for SomConfig {
    fn default() -> SomConfig {
        SomConfig { repair: true, scrub_rate: 10_000 }
    }
}

impl Default for Lod {
    fn default() -> Lod {
        Lod {
            stripe_size: layout::STRIPE_SIZE_DEFAULT,
            stripe_count: i32::from(layout::STRIPE_COUNT_DEFAULT),
            stripe_offset: -1,
            dom_stripesize: DOM_STRIPESIZE_DEFAULT,
            policy: Policy::default(),
            mdt_policy: Policy {
                threshold_rr_percent: MDT_THRESHOLD_PERCENT,
                maxage_secs: MDT_MAXAGE_SECS,
                ..Policy::default()
            },
        }
    }
}

impl Lod {
    /// As a layout that asks for nothing falls back to.
    #[must_use]
    pub fn template(&self) -> Template {
        let Lod { stripe_size, stripe_count, stripe_offset: start, .. } = *self;
        Template { stripe_size, stripe_count, start, ..Template::default() }
    }
}

planted::bugs! {
    /// Planted bugs: each switch breaks one promise at a single place. Simulation turns them on one
    /// at a time and must notice; a switch that it does not notice is a promise without a test.
    pub struct Bugs in "mdt" {
        /// The reply record does not go into the operation's transaction: a resend after a crash is
        /// executed twice.
        skip_reply_record,
        /// Id ranges are handed out again after a crash instead of being burnt.
        reuse_id_range,
        /// A client's change that depends on another's uncommitted one does not commit that first.
        drop_commit_on_share,
        /// Opens that are replayed or stated do not come back into the table of open files.
        forget_open_replay,
        /// An open file that loses its last name gets no orphan record: its inode leaks after a
        /// crash.
        skip_orphan_record,
        /// Removed files leave no record of their objects: the objects leak.
        forget_destroy_log,
        /// A replayed create draws a fresh FID instead of the one that was answered.
        replay_draws_new_fid,
        /// An operation is answered although its changes were never applied, 1 time in 64.
        ack_before_apply,
        /// A close makes the size clean although others are writing.
        clean_size_despite_writers,
        /// Locks that clients restate after a restart are answered and forgotten.
        lose_lock_restate,
        /// A sync is answered before the commit.
        ack_sync_before_commit,
        /// A replayed operation takes the server's time instead of the one that was answered.
        replay_draws_new_time,
        /// A change does not wait for the leases of others: they go on believing what was.
        ignore_leases,
        /// A change does not wait until others have given up what is called back.
        ignore_recalls,
        /// A change calls back the grants of some holders only, and treats the others as if they
        /// had acknowledged.
        recall_skips_holder,
        /// An open by another client leaves the writes that a client keeps where they are.
        keep_writes_at_open,
        /// An open for writing leaves other clients what they keep of the file's data.
        forget_cached_data,
        /// A link does not wait for what other clients believe of its directory.
        link_passes_leases,
        /// Object ids that a restart burnt are not swept: objects of lost creates leak.
        skip_range_sweep,
        /// What an evicted client held is given on before the OSTs refuse it: its late writes land.
        skip_fence,
        /// Files without names go at the start, before the clients that have them open are back.
        sweep_orphans_early,
        /// The sweep of burnt object ids does not spare those that files hold.
        sweep_held_ranges,
        /// The same sweep does not spare files whose first bytes are at the MDT.
        sweep_held_files,
        /// What only changes what is there is refused by a full store.
        keep_no_reserve,
        /// A damaged extended attribute is said to be absent.
        damaged_is_absent,
        /// The locks of an evicted client stay.
        keep_lapsed_locks,
        /// Of a removed file's components only the first leaves a record of its objects.
        destroy_one_component,
        /// A replay gives a component other objects than the ones that were answered.
        replay_draws_new_objects,
        /// A component that has its objects gets others when a client asks that does not know.
        give_objects_twice,
        /// A file takes over another one's objects although one of the layouts has changed.
        swap_without_check,
        /// A component grows on OSTs without a look at their room.
        grow_without_room,
        /// Keys are told to another MDT although they are not durable.
        prepare_uncommitted,
        /// Records of operations of several MDTs go before all parts are durable.
        forget_records_early,
        /// A recovering MDT serves before it has asked the others.
        open_before_peers,
        /// A part of an operation of several MDTs is executed without its record.
        part_without_record,
        /// A part that was executed is executed again when it comes again.
        execute_part_twice,
        /// Keys that another MDT asks for are told, but not reserved.
        reserve_nothing,
        /// What is told to another MDT is not called back from clients that believe it.
        prepare_without_recall,
        /// Reads show one half of an operation of several MDTs.
        show_halves,
        /// A replay does not look at the record that the client brings back.
        ignore_sealed_record,
        /// A striped directory counts as empty when its first shard is.
        look_at_one_shard,
        /// An old shard takes names although they belong to a new one.
        take_names_astray,
        /// Old shards go before all of them were looked at for names.
        forget_old_shard,
        /// A truncate that extends a file gives the component of its last byte no objects.
        truncate_without_objects,
    }
}
