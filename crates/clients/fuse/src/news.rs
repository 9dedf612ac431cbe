//! Answers that the kernel applies late. The kernel applies attributes when the requesting thread
//! runs again. It does not treat a change that another thread has meanwhile made in the directory
//! as newer (`fuse_dir_changed`). If a thread may still have to apply old attributes of a
//! directory, the handler notifies the kernel before it answers the change. The notification makes
//! that thread's answer too old.
//!
//! The kernel does not hear the answer to a change whose caller was killed, so it keeps the old
//! attributes. The handler notifies it of all attributes that the change may have affected.
//!
//! `NOTIFY_INVAL_INODE` without a range takes no lock that a request may hold.

use std::io;
use std::rc::Rc;

use fusedev::{Body, Header, Name, Op, Reply, abi};

use crate::convert::Valid;
use crate::fs::Fs;
use crate::limits::ANSWER_LATE;

/// The directories, by node id, that an operation changes, and the file that gets a further name.
pub(crate) fn changed_dirs(header: &Header, op: &Op) -> [Option<u64>; 2] {
    match op {
        Op::Rename { newdir, .. } => {
            [Some(header.nodeid), Some(*newdir).filter(|newdir| *newdir != header.nodeid)]
        }
        Op::Link { oldnodeid, .. } => [Some(header.nodeid), Some(*oldnodeid)],
        Op::Create { .. }
        | Op::Mknod { .. }
        | Op::Mkdir { .. }
        | Op::Symlink { .. }
        | Op::Unlink { .. }
        | Op::Rmdir { .. } => [Some(header.nodeid), None],
        _ => [None; 2],
    }
}

/// The names that an operation takes away or replaces.
pub(crate) fn changed_names(header: &Header, op: &Op) -> Vec<Name> {
    let name = |parent: u64, name: &[u8]| (parent, Rc::from(name));
    match op {
        Op::Unlink { name: old } | Op::Rmdir { name: old } => vec![name(header.nodeid, old)],
        Op::Rename { name: old, newdir, newname, .. } => {
            vec![name(header.nodeid, old), name(*newdir, newname)]
        }
        _ => Vec::new(),
    }
}

/// The name that an operation leaves to no file.
fn removed_name<'a>(header: &Header, op: &'a Op) -> Option<(u64, &'a [u8])> {
    match op {
        Op::Unlink { name } | Op::Rmdir { name } => Some((header.nodeid, name)),
        Op::Rename { newdir, newname, flags, .. } if flags & libc::RENAME_EXCHANGE == 0 => {
            Some((*newdir, newname))
        }
        _ => None,
    }
}

/// A request that takes a name of a node away, until it is answered. Then the kernel lowers the
/// link count that it has of the node (`fuse_entry_unlinked`). It does so although an answer has
/// told it the new count meanwhile, and although the name stood for another file when it was
/// removed. So until then no answer with a link count may be believed.
pub(crate) struct Unlinking<'a> {
    fs: &'a Fs,
    node: Option<u64>,
}

impl Drop for Unlinking<'_> {
    fn drop(&mut self) {
        let Some(node) = self.node else { return };
        self.fs.nodes.borrow_mut().end_unlink(node, self.fs.env.now() + ANSWER_LATE);
    }
}

impl Fs {
    /// To be kept until the kernel has the answer.
    pub(crate) fn unlinking(&self, header: &Header, op: &Op) -> Unlinking<'_> {
        let mut nodes = self.nodes.borrow_mut();
        let name = removed_name(header, op);
        let node = name.and_then(|(dir, name)| nodes.names.node_of(dir, name));
        if let Some(node) = node {
            nodes.begin_unlink(node);
        }
        Unlinking { fs: self, node }
    }

    /// What other threads were told of these is old now, should they not have taken it in yet.
    pub(crate) fn outdate(&self, header: &Header, changes: [Option<u64>; 2]) {
        let now = self.env.now();
        for nodeid in changes.into_iter().flatten() {
            if self.nodes.borrow_mut().outdates(nodeid, header.pid, now) {
                self.make_old(nodeid);
            }
        }
    }

    /// The caller of an operation was killed, so the kernel does not learn whether it has changed
    /// anything: what any thread was told of the node, of `changes`, and of the files that had
    /// `names` is old. While the change may still be executed, the kernel is told nothing that it
    /// may believe ([`client::Client::may_be_told`]).
    pub(crate) fn disbelieve(&self, header: &Header, changes: [Option<u64>; 2], names: &[Name]) {
        let mut nodes = vec![header.nodeid];
        nodes.extend(changes.into_iter().flatten());
        nodes.extend(
            names.iter().filter_map(|name| self.nodes.borrow().names.node_of(name.0, &name.1)),
        );
        nodes.sort_unstable();
        nodes.dedup();
        nodes.into_iter().for_each(|nodeid| self.make_old(nodeid));
        self.doubt_kept_dirs();
    }

    /// The kernel forgets the attributes of a node, and believes no answer that is on its way.
    pub(crate) fn make_old(&self, nodeid: u64) {
        self.nodes.borrow_mut().doubts(nodeid);
        if let Err(error) = self.notifier.inval_inode(nodeid, -1, 0)
            && error.kind() != io::ErrorKind::NotFound
        {
            tracing::warn!(nodeid, %error, "the kernel cannot be notified of old entries");
        }
    }

    /// A thread is about to hear that it may believe attributes.
    pub(crate) fn note_belief(&self, header: &Header, reply: &Reply) {
        let (nodeid, valid) = match reply {
            Ok(Body::Entry(entry) | Body::Create(entry, _)) => (entry.nodeid, told(entry)),
            Ok(Body::Attr(attr)) => {
                (header.nodeid, Valid { secs: attr.attr_valid, nanos: attr.attr_valid_nsec })
            }
            Ok(Body::Statx(statx)) => {
                (header.nodeid, Valid { secs: statx.attr_valid, nanos: statx.attr_valid_nsec })
            }
            _ => return,
        };
        self.note_told(nodeid, valid, header.pid);
    }

    /// The same of one node and for how long.
    pub(crate) fn note_told(&self, nodeid: u64, valid: Valid, thread: u32) {
        if !valid.is_none() {
            self.nodes.borrow_mut().believes(nodeid, thread, self.env.now());
        }
    }
}

/// For how long the name of an entry may be believed.
pub(crate) fn named(entry: &abi::EntryOut) -> Valid {
    Valid { secs: entry.entry_valid, nanos: entry.entry_valid_nsec }
}

/// For how long the attributes of an entry may be believed.
pub(crate) fn told(entry: &abi::EntryOut) -> Valid {
    Valid { secs: entry.attr_valid, nanos: entry.attr_valid_nsec }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;

    use bytes::Bytes;
    use cluster::{Cluster, Granted, Scenario};
    use env::LocalFuture;
    use fusedev::{Direct, Hears, InitInfo, Notifier, abi};
    use types::{Errno, Span};

    use super::*;
    use crate::fs::Setup;

    /// No process has such a number.
    const THREAD: u32 = 1 << 30;

    /// What the kernel was told, in the order in which it heard.
    #[derive(Clone, Debug, PartialEq, Eq)]
    enum Heard {
        Answer,
        Outdated(u64),
    }

    struct Ear(Rc<RefCell<Vec<Heard>>>);

    impl Hears for Ear {
        fn inval_inode(&self, nodeid: u64, offset: i64, _: i64) -> io::Result<()> {
            assert_eq!(offset, -1, "pages are left alone");
            self.0.borrow_mut().push(Heard::Outdated(nodeid));
            Ok(())
        }

        fn inval_entry(&self, _: u64, _: &[u8]) -> LocalFuture<'static, io::Result<()>> {
            panic!("names are left alone")
        }

        fn inc_epoch(&self) -> io::Result<()> {
            panic!("names are left alone")
        }

        fn has_epochs(&self) -> bool {
            true
        }
    }

    /// A thread looks a directory up, and then `changer` makes a file or directory in it, or is
    /// killed meanwhile.
    fn hears(changer: u32, makes: fn() -> Op, is_killed: bool) -> Vec<Heard> {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, env) = (cluster.mount(&node), node.env());
        let heard = Rc::<RefCell<Vec<Heard>>>::default();
        let told = heard.clone();
        let notifier = Notifier::direct(Rc::new(Ear(told)));
        let info = InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 };
        let setup = Setup { notifier, ..Setup::of_test() };
        let device = Direct::new(Rc::new(Fs::new(&env, client, info, setup)));
        let (answered, sim) = (heard.clone(), &cluster.sim);
        let ask = |nodeid: u64, thread: u32, op: Op| {
            let (answered, last) = (answered.clone(), Rc::new(RefCell::new(None)));
            let keep = last.clone();
            let header = Header { opcode: 0, unique: 0, nodeid, uid: 0, gid: 0, pid: thread };
            let work = device.ask(header, op, move |reply: &Reply| {
                answered.borrow_mut().push(Heard::Answer);
                *keep.borrow_mut() = Some(reply.clone());
            });
            (work, last)
        };
        let finish = |(work, last): (LocalFuture<'static, ()>, Rc<RefCell<Option<Reply>>>)| {
            sim.block_on_for(&node, Span::secs(1), work).expect("an answer at once");
            last.take().expect("an answer")
        };
        let name = || Bytes::from_static(b"dir");
        let made = Op::Mkdir { name: name(), mode: 0o755, umask: 0 };
        finish(ask(abi::ROOT_ID, THREAD, made)).expect("there is room");
        let found = finish(ask(abi::ROOT_ID, THREAD, Op::Lookup { name: name() }));
        let Ok(Body::Entry(dir)) = found else { panic!("it is there") };
        assert!(dir.attr_valid_nsec > 0, "a directory that nobody changes is leased");
        heard.borrow_mut().clear();
        let change = ask(dir.nodeid, changer, makes());
        if is_killed {
            device.interrupt(); // there is no such thread, so it was killed
        }
        assert_eq!(finish(change).err(), is_killed.then_some(Errno::EINTR));
        assert!(!heard.borrow().contains(&Heard::Outdated(abi::ROOT_ID)));
        heard.take()
    }

    /// Makes a file. That goes on if its caller is killed.
    fn create() -> Op {
        Op::Create { name: Bytes::from_static(b"file"), args: abi::CreateIn::default() }
    }

    /// Makes a directory. That is given up if its caller is killed.
    fn mkdir() -> Op {
        Op::Mkdir { name: Bytes::from_static(b"sub"), mode: 0o755, umask: 0 }
    }

    #[test]
    fn what_another_thread_may_take_in_late_is_outdated_before_a_change_is_answered() {
        let heard = hears(THREAD + 1, create, false);
        assert!(matches!(heard[..], [Heard::Outdated(_), Heard::Answer]));
        let heard = hears(THREAD, create, false);
        assert_eq!(heard, [Heard::Answer], "it has taken in what it was told");
    }

    #[test]
    fn a_killed_change_makes_old_what_any_thread_was_told_of_its_directory() {
        let heard = hears(THREAD, mkdir, true);
        assert!(matches!(heard[..], [Heard::Outdated(_), Heard::Answer]), "{heard:?}");
        let heard = hears(THREAD, create, true);
        let is_late = matches!(heard[..], [Heard::Answer, Heard::Outdated(_)]);
        assert!(is_late, "it may be made after the answer: {heard:?}");
    }

    #[test]
    fn attributes_are_not_believed_while_the_kernel_lowers_a_link_count() {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let cluster = Cluster::new(1, &scenario);
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, env) = (cluster.mount(&node), node.env());
        cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        let info = InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 };
        let device = Direct::new(Rc::new(Fs::new(&env, client, info, Setup::of_test())));
        let ask = |nodeid: u64, op: Op| {
            let last = Rc::new(RefCell::new(None));
            let keep = last.clone();
            let header = Header { opcode: 0, unique: 0, nodeid, uid: 0, gid: 0, pid: THREAD };
            let work = device.ask(header, op, move |reply: &Reply| {
                *keep.borrow_mut() = Some(reply.clone());
            });
            (work, last)
        };
        let finish = |(work, last): (LocalFuture<'static, ()>, Rc<RefCell<Option<Reply>>>)| {
            cluster.sim.block_on_for(&node, Span::secs(1), work).expect("an answer at once");
            last.take().expect("an answer").expect("it is done")
        };
        let mknod = Op::Mknod {
            name: Bytes::from_static(b"a"),
            mode: libc::S_IFREG | 0o644,
            rdev: 0,
            umask: 0,
        };
        let Body::Entry(file) = finish(ask(abi::ROOT_ID, mknod)) else { panic!("it is made") };
        let newname = Bytes::from_static(b"b");
        finish(ask(abi::ROOT_ID, Op::Link { oldnodeid: file.nodeid, newname }));
        let links = || match finish(ask(file.nodeid, Op::Getattr { fh: None })) {
            Body::Attr(told) => (told.attr.nlink, told.attr_valid_nsec > 0 || told.attr_valid > 0),
            _ => panic!("attributes"),
        };
        assert_eq!(links(), (2, true));
        // the answers to a statx and to a change are believed too, the latter for a moment
        let told = finish(ask(file.nodeid, Op::Statx { fh: None }));
        let Body::Statx(statx) = told else { panic!("attributes") };
        assert!(statx.attr_valid > 0 || statx.attr_valid_nsec > 0);
        let args = abi::SetattrIn { valid: abi::FATTR_MODE, mode: 0o600, ..Default::default() };
        let told = finish(ask(file.nodeid, Op::Setattr(args)));
        let Body::Attr(changed) = told else { panic!("attributes") };
        assert!(changed.attr_valid == 0 && changed.attr_valid_nsec > 0);
        let (work, done) = ask(abi::ROOT_ID, Op::Unlink { name: Bytes::from_static(b"a") });
        env.spawn("unlink", work);
        assert!(!links().1, "the unlink is under way");
        assert!(cluster.sim.run_until(Span::secs(1), || done.borrow().is_some()));
        assert_eq!(links(), (1, false), "the kernel may lower the count now");
        cluster.sim.run_for(Span::secs(1));
        assert_eq!([links(), links()][1], (1, true), "with a grant again");
    }

    #[test]
    fn a_killed_removal_makes_old_what_was_told_of_the_file_that_had_the_name() {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, env) = (cluster.mount(&node), node.env());
        let heard = Rc::<RefCell<Vec<Heard>>>::default();
        let notifier = Notifier::direct(Rc::new(Ear(heard.clone())));
        let info = InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 };
        let fs = Fs::new(&env, client, info, Setup { notifier, ..Setup::of_test() });
        let now = env.now();
        fs.nodes.borrow_mut().names.told((5, b"n"), 7, now, now + Span::secs(1));
        let header = Header { opcode: 0, unique: 0, nodeid: 5, uid: 0, gid: 0, pid: THREAD };
        let name = Bytes::from_static(b"n");
        let op = Op::Rename { name: name.clone(), newdir: 6, newname: name, flags: 0 };
        fs.disbelieve(&header, changed_dirs(&header, &op), &changed_names(&header, &op));
        assert_eq!(heard.take(), [5, 6, 7].map(Heard::Outdated));
    }
}
