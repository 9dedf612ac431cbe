//! Names and attributes that the kernel still has. A listing leaves them out (READDIRPLUS without a
//! node id), and the kernel keeps them as they are. An entry with attributes would make the kernel
//! drop its copy of the file's access list, and `ls -l` would then ask for each list again.
//!
//! The kernel also doubts attributes by itself, for example after a read or a write. This module
//! follows that. It may be wrong: then the kernel asks for one file with a request of its own.

use client::Dirent;
use fusedev::{Header, Op};
use types::Instant;

use crate::fs::Fs;
use crate::news;

const O_TRUNC: u32 = libc::O_TRUNC as u32;

impl Fs {
    /// Until when the kernel has the attributes of an entry, and its name in this directory.
    pub(crate) fn fresh_until(&self, dir: u64, entry: &Dirent) -> Instant {
        self.nodes.borrow().fresh_until(entry.attr.fid(), (dir, &entry.name))
    }

    /// A request arrives: the kernel doubts the attributes of these nodes once it is answered.
    /// Those that an answer carries come later, and are not doubted.
    pub(crate) fn note_doubts(&self, header: &Header, op: &Op) {
        let mut nodes = self.nodes.borrow_mut();
        for nodeid in news::changed_dirs(header, op).into_iter().flatten() {
            nodes.doubts(nodeid);
        }
        let doubted = match op {
            Op::Read(_)
            | Op::Readlink
            | Op::Write { .. }
            | Op::Fallocate(_)
            | Op::Setxattr { .. }
            | Op::Removexattr { .. } => [Some(header.nodeid), None],
            Op::Open(args) => [Some(header.nodeid).filter(|_| args.flags & O_TRUNC != 0), None],
            Op::CopyFileRange(args) => [Some(header.nodeid), Some(args.nodeid_out)],
            Op::Unlink { name } | Op::Rmdir { name } => {
                [nodes.names.node_of(header.nodeid, name), None]
            }
            Op::Rename { name, newdir, newname, .. } => {
                let (names, old) = (&nodes.names, header.nodeid);
                [names.node_of(old, name), names.node_of(*newdir, newname)]
            }
            Op::Readdir { .. } => {
                nodes.doubts_atime(header.nodeid);
                [None; 2]
            }
            _ => [None; 2],
        };
        for nodeid in doubted.into_iter().flatten() {
            nodes.doubts(nodeid);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::cell::RefCell;
    use std::rc::Rc;

    use bytes::Bytes;
    use cluster::{Cluster, Granted, Scenario};
    use fusedev::{Body, Direct, InitInfo, Reply, abi};
    use types::Span;
    use zerocopy::FromBytes;

    use super::*;
    use crate::fs::Setup;

    /// The node id that a listing tells of the only entry behind the dots.
    fn told(page: &[u8]) -> u64 {
        let dots = 2 * (size_of::<abi::EntryOut>() + size_of::<abi::Dirent>() + 8);
        let (entry, _) = abi::EntryOut::read_from_prefix(&page[dots..]).expect("an entry");
        entry.nodeid
    }

    #[test]
    fn a_listing_leaves_out_what_the_kernel_has_until_the_kernel_doubts_it() {
        let scenario = Scenario { granted: Granted::Recall, ..Scenario::calm() };
        let cluster = Cluster::new(1, &scenario);
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let (client, env) = (cluster.mount(&node), node.env());
        cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        let minor = abi::EPOCH_MINOR;
        let info = InitInfo { minor, capabilities: 0, max_write: 0, max_readahead: 0 };
        let device = Direct::new(Rc::new(Fs::new(&env, client, info, Setup::of_test())));
        let ask = |nodeid: u64, op: Op| {
            let last = Rc::new(RefCell::new(None));
            let keep = last.clone();
            let header = Header { opcode: 0, unique: 0, nodeid, uid: 0, gid: 0, pid: 1 << 30 };
            let work = device.ask(header, op, move |reply: &Reply| {
                *keep.borrow_mut() = Some(reply.clone());
            });
            cluster.sim.block_on_for(&node, Span::secs(1), work).expect("an answer at once");
            last.take().expect("an answer").expect("it is done")
        };
        let (mode, name) = (0o755, Bytes::from_static(b"dir"));
        let Body::Entry(dir) = ask(abi::ROOT_ID, Op::Mkdir { name, mode, umask: 0 }) else {
            panic!("it is made")
        };
        let (name, args) = (Bytes::from_static(b"file"), abi::CreateIn::default());
        let Body::Create(file, open) = ask(dir.nodeid, Op::Create { name, args }) else {
            panic!("it is made")
        };
        let close = |fh| {
            ask(file.nodeid, Op::Release(abi::ReleaseIn { fh, ..Default::default() }));
        };
        close(open.fh);
        let Body::Open(listing) = ask(dir.nodeid, Op::Opendir(abi::OpenIn::default())) else {
            panic!("it is opened")
        };
        let list = || {
            let args = abi::ReadIn { fh: listing.fh, size: 4_096, ..Default::default() };
            let Body::Dir(page) = ask(dir.nodeid, Op::Readdir { args, plus: true }) else {
                panic!("it is read")
            };
            told(page.as_bytes())
        };
        assert_eq!(list(), 0, "the answer to the create told it");
        let Body::Open(open) = ask(file.nodeid, Op::Open(abi::OpenIn::default())) else {
            panic!("it is opened")
        };
        let args = abi::ReadIn { fh: open.fh, size: 1, ..Default::default() };
        ask(file.nodeid, Op::Read(args));
        close(open.fh);
        assert_eq!([list(), list()], [file.nodeid, 0], "a read makes the kernel doubt");
        cluster.sim.run_for(Span::secs(9));
        assert_eq!(list(), file.nodeid, "its time is nearly over");
    }
}
