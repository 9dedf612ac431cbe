//! Bounds of the FUSE client.

use types::Span;

/// What the kernel may take too long to stop believing: it counts in ticks of at most 10 ms and
/// rounds up twice, and it may be late to read an answer.
pub(crate) const KERNEL_SLACK: Span = Span::millis(30);

/// How late a thread may take in an answer, after which it believes what it was told for as long as
/// it was told.
pub(crate) const ANSWER_LATE: Span = KERNEL_SLACK;

/// Who was told so long ago has taken it in, however late, or does not believe it any more.
pub(crate) const BELIEF_MAX: Span = Span::secs(1);

/// How long the kernel may believe at most what it cannot be made to forget. A change by another
/// client waits for that.
pub(crate) const UNGUARDED_MAX: Span = Span::millis(50);

/// How long it may believe the rest, where nobody calls it back before.
pub(crate) const GUARDED_MAX: Span = Span::secs(10);

const _: () = assert!(GUARDED_MAX.0 <= client::limits::KERNEL_BELIEF_MAX.0);

/// A listing leaves out entries that the kernel still has for at least this long, because a caller
/// that lists a directory then looks at its files.
pub(crate) const FRESH_LEAST: Span = Span::secs(1);

/// How long a recall waits for pages that READs keep locked, as those of an OST that is away do.
/// Attributes of a directory wait so for kept names, which callers that read them keep locked.
pub(crate) const PAGES_WAIT: Span = Span::secs(1);

/// How old a page in doubt gets that a mapping or `sendfile` uses: the kernel asks for nothing
/// before.
pub(crate) const PAGES_LATE: Span = Span::millis(20);

/// Names of one file that it may believe for so long; further ones are believed for a moment.
pub(crate) const NAMES_MAX: usize = 8;

/// Names believed for a moment of which the node is known. More than there are callers between the
/// look at a name and its removal.
pub(crate) const BRIEF_NAMES: usize = 256;

/// How long a notification may wait for a directory's lock. Then the kernel is made to look up all
/// names again: whoever has the lock may wait for us, in a circle.
pub(crate) const STUCK_AFTER: Span = Span::millis(20);

/// How much longer for each name, where it is told of many.
pub(crate) const TELLING: Span = Span::micros(20);

/// How much longer at most, because a recovery waits for it.
pub(crate) const TELLING_MAX: Span = Span::millis(200);

/// How long names may be believed where they cannot be made old together: whoever wants one back
/// waits for that where the directory is locked.
pub(crate) const NAMED_MAX: Span = Span::secs(1);

/// How long names of a directory in which that happened are then believed for a moment only.
pub(crate) const STUCK_FOR: Span = Span::secs(30);

/// How soon the kernel is told again that does not know an inode yet; each time twice as late.
pub(crate) const TELL_AGAIN: Span = Span::millis(1);

/// How long a thread's supplementary groups are believed. A process that changes its groups changes
/// its user id with them as a rule, and that is part of the key; so this bounds only what a change
/// of the groups alone can miss.
pub(crate) const GROUPS_AGE: Span = Span::millis(100);

/// How long a process's job label is believed. An environment does not change once a process runs;
/// a process id may come to another process, and this bounds how long that one is taken for the
/// old.
pub(crate) const JOBID_AGE: Span = Span::secs(1);

/// Callers whose groups and job labels are remembered, and those that were told to look again; all
/// are forgotten when there are more.
pub(crate) const CALLERS_MAX: usize = 1_024;

/// Bytes of directory entries fetched at once: some thousands, so that a directory costs few round
/// trips.
pub(crate) const DIR_PAGE_BYTES: u32 = 1 << 20;

/// A directory's next page is asked for once fewer entries than this are left for the kernel: the
/// half of a page.
pub(crate) const AHEAD_ENTRIES: usize = 512;

/// And only if at most one in so many entries of the last page came without a grant. The client
/// asks again for a page with more of them.
pub(crate) const AHEAD_BARE_SHARE: usize = 8;

/// Such requests of a mount under way, one for each open directory. They leave most places to
/// requests for which a caller waits.
pub(crate) const AHEAD_MAX: u32 = 16;

/// Bytes that an entry with attributes takes at least, as the kernel counts them.
pub(crate) const ENTRY_BYTES_LEAST: usize = 152;

/// How often a caller that got a signal, yet goes on waiting, is looked at again for one that kills
/// it. The kernel tells only of the first.
pub(crate) const KILL_POLL: Span = Span::millis(100);

/// Preferred I/O size of files as `stat` shows it: a default stripe, so that tools that heed it ask
/// for whole ones.
pub(crate) const FILE_BLOCK_BYTES: u32 = 1 << 20;

/// The same for anything else.
pub(crate) const OTHER_BLOCK_BYTES: u32 = 4_096;

/// What a buffer that begins within a page takes from the length of a WRITE.
pub(crate) const PAGE_BYTES: u64 = 4_096;

/// Bytes of one write call: Linux cuts longer ones.
pub(crate) const CALL_BYTES_MAX: u64 = 0x7fff_f000;

/// How long an append that may go on keeps the file's lock from others between two pieces, where
/// its length is not known: far longer than the kernel takes to send the next one, and short enough
/// for others who append.
pub(crate) const APPEND_PAUSE: Span = Span::millis(250);

/// The same where it is known that more must come: the caller may have to read what it writes from
/// a disk first.
pub(crate) const APPEND_PAUSE_KNOWN: Span = Span::secs(5);

/// How long an end of the daemon waits for programs that still use the mount.
pub(crate) const USERS_WAIT: Span = Span::secs(2);

/// How long it then waits for requests under way, and for closes.
pub(crate) const REQUESTS_WAIT: Span = Span::secs(2);
