//! Every bound of this crate, and where its value comes from.

/// Bytes that one read of a control connection asks for: some 250 requests of 240 bytes. Larger
/// buffers gain nothing and are held as a whole by the smallest message that somebody keeps.
pub(crate) const READ_BYTES: usize = 64 << 10;

/// Less room than this in a read buffer and the next one is taken: a request header and a short
/// name fit.
pub(crate) const READ_SPARE_MIN: usize = 2 << 10;

/// Payload parts up to this size are copied behind their header on sending; larger ones get an
/// entry of their own in the vector. Copying 4 KiB costs about what the kernel takes for one more
/// entry and a cache miss on its memory.
pub(crate) const COPY_BYTES_MAX: usize = 4 << 10;

/// A run of copied frames ends here and a new one starts.
pub(crate) const RUN_BYTES_MAX: usize = 64 << 10;

/// Entries of one vectored write.
pub(crate) const IOVECS_MAX: usize = 64;

/// Bytes that a writer hands to the kernel before other tasks get a turn.
pub(crate) const WRITE_TURN_BYTES: usize = 1 << 20;

/// A queue beyond this means that its owner ignores `room()`: the link is closed. 64 requests in
/// flight of 4 MiB, four times over.
pub(crate) const QUEUE_BYTES_HARD: usize = 1 << 30;

/// Connections that have not finished their HELLO, per listener. 340 nodes may arrive in the same
/// instant.
pub(crate) const HALF_OPEN_MAX: usize = 1_024;

/// Of those, from one address: 170 mounts of one machine in the same instant.
pub(crate) const HALF_OPEN_OF_ADDRESS_MAX: usize = HALF_OPEN_MAX / 2;

/// More of them, for addresses from which a link came before: as many nodes again.
pub(crate) const HALF_OPEN_RESERVE: usize = HALF_OPEN_MAX / 2;

/// A connection that says nothing is in nobody's way while no more than so many of these places are
/// taken, and as great a part of those of its address.
pub(crate) const HALF_OPEN_PLENTY: usize = HALF_OPEN_MAX / 4 * 3;
pub(crate) const HALF_OPEN_OF_ADDRESS_PLENTY: usize = HALF_OPEN_OF_ADDRESS_MAX / 4 * 3;

/// Then it lasts for so many times the handshake's time. Closing it invites it to come again: a new
/// connection costs the executor some 0.1 ms, one that waits on costs a timer.
pub(crate) const SILENT_TURNS_MAX: u32 = 6;

/// Connections that are refused in words at the same time; others are closed without.
pub(crate) const FAREWELLS_MAX: usize = 64;

/// How long one of them has to take the words.
pub(crate) const FAREWELL: std::time::Duration = std::time::Duration::from_secs(1);

/// Lines about refused connections that a listener writes within [`COMPLAINTS_PERIOD`]: as many as
/// it refuses in words at a time.
pub(crate) const COMPLAINTS_MAX: u32 = FAREWELLS_MAX as u32;

/// At 200 bytes a line, a flood writes 110 MB in a day.
pub(crate) const COMPLAINTS_PERIOD: types::Span = types::Span::secs(10);

/// Addresses that are remembered as such: four bytes each.
pub(crate) const KNOWN_MAX: usize = 4_096;

/// Links that wait for `accept`, per listener.
pub(crate) const ACCEPT_QUEUE_MAX: usize = 1_024;

/// Kernel's queue of connections to accept.
pub(crate) const BACKLOG: u32 = 1_024;

/// Bulk data up to this size share reads with what follows them, and the buffer of those reads;
/// data of more have a page-aligned buffer of their own. A client's own bulk is larger than this
/// (`inline_bytes`), so an OST always writes from aligned buffers.
pub(crate) const BULK_SMALL_BYTES: usize = 16 << 10;

/// Bytes that one such read asks for: four of the largest, fifteen of 4 KiB.
pub(crate) const BULK_AHEAD_BYTES: usize = 64 << 10;

/// Data for nobody is read into a scratch buffer of this size and dropped.
pub(crate) const SCRATCH_BYTES: usize = 64 << 10;

/// Bytes that the buffer pool keeps for the next user; beyond that they go back to the allocator.
/// 16 transfers of the largest size.
pub(crate) const POOL_BYTES_MAX: usize = 64 << 20;

/// Messages under way to one peer (`peer_credits`). Lustre's default is 8, of its o2iblnd, where
/// each is a buffer of the card; here one write takes what is queued, and fewer credits than
/// requests in flight (64) cost a write for each handful. Also what HELLO announces.
pub(crate) const PEER_CREDITS: u32 = 256;

/// Messages under way from the interface to all peers (`credits`): as many peers that take nothing
/// (32) as with Lustre's defaults leave it usable for the others.
pub(crate) const CREDITS: u32 = 32 * PEER_CREDITS;

/// Links of a process, where it may have descriptors enough: 20,000 clients three times over.
pub(crate) const LINKS_MAX: usize = 65_536;

/// A socket for requests, and one for each direction of bulk data.
pub(crate) const LINK_DESCRIPTORS: usize = 3;

/// One of so many places is kept for addresses with few links.
pub(crate) const LINKS_KEPT_SHARE: usize = 4;

/// That is fewer than so many: mounts and servers of one machine.
pub(crate) const LINKS_FEW: usize = 16;

/// Peers that `peers` remembers; beyond it those without links are forgotten.
pub(crate) const PEERS_MAX: usize = 4_096;

/// Frames that a thread of an LND hands over at once.
pub(crate) const HANDOVER_FRAMES_MAX: usize = 256;

/// How long a thread of an LND that is no longer needed writes what is queued.
pub(crate) const LND_LINGER: std::time::Duration = std::time::Duration::from_secs(1);

const _: () = assert!(COPY_BYTES_MAX + wire::FRAME_HEADER_BYTES < RUN_BYTES_MAX);
const _: () = assert!(READ_SPARE_MIN < READ_BYTES);
const _: () = assert!(BULK_SMALL_BYTES + wire::FRAME_HEADER_BYTES <= BULK_AHEAD_BYTES);
const _: () = assert!(BULK_SMALL_BYTES < wire::INLINE_BYTES_DEFAULT as usize);
const _: () = assert!(wire::BULK_BYTES_MAX as usize <= POOL_BYTES_MAX);
