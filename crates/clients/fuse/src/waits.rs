//! Requests under a directory's lock: the kernel gets their answers even if no OST answers.

use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use fusedev::{Body, Header, InitInfo, Reply, abi};
use types::{Errno, Fid, Span, TargetKind};
use zerocopy::FromBytes;

use crate::fs::Fs;

const NAME: &[u8] = b"written";
const O_RDWR: u32 = libc::O_RDWR as u32;
const O_TRUNC: u32 = libc::O_TRUNC as u32;
/// What a call takes at most that waits for the MDT alone.
const AT_ONCE: Span = Span::secs(1);

/// A file is being written by another client; this one has told its kernel of 3,000 bytes of it,
/// and is cut off from all OSTs.
struct World {
    cluster: Cluster,
    node: NodeHandle,
    fs: Rc<Fs>,
    _writer: (Client, File),
}

fn header(nodeid: u64) -> Header {
    Header { opcode: 0, unique: 1, nodeid, uid: 0, gid: 0, pid: 0 }
}

impl World {
    fn new() -> World {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let (far, node) = (cluster.client_node("far", 0), cluster.client_node("near", 1));
        let (writer, client, env) = (cluster.mount(&far), cluster.mount(&node), node.env());
        let info = InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 };
        let fs = Rc::new(Fs::new(&env, client, info, crate::fs::Setup::of_test()));
        let begun = writer.clone();
        let file = cluster.sim.block_on(&far, async move {
            let me = Ctx::root();
            let (_, file) =
                begun.create(&me, Fid::ROOT, NAME, 0o644, O_RDWR, None).await.expect("room");
            file.write(0, Bytes::from(vec![1; 3_000])).await.expect("write");
            file
        });
        let world = World { cluster, node, fs: fs.clone(), _writer: (writer, file.clone()) };
        let told = world.entry(async move { fs.lookup(&header(1), NAME).await });
        let fs = world.fs.clone();
        let attr = world.soon(async move { fs.getattr(&header(told.nodeid), None).await });
        let Some(Ok(Body::Attr(attr))) = attr else { panic!("{attr:?}") };
        assert_eq!(attr.attr.size, 3_000, "the OSTs are there");
        world.cluster.sim.block_on(&far, async move {
            file.write(3_000, Bytes::from(vec![2; 3_000])).await.expect("write")
        });
        world.cluster.cut_off(&world.node, TargetKind::Ost);
        world
    }

    fn soon(&self, call: impl Future<Output = Reply> + 'static) -> Option<Reply> {
        self.cluster.sim.block_on_for(&self.node, AT_ONCE, call)
    }

    fn entry(&self, call: impl Future<Output = Reply> + 'static) -> abi::EntryOut {
        match self.soon(call) {
            Some(Ok(Body::Entry(entry) | Body::Create(entry, _))) => entry,
            other => panic!("no entry at once: {other:?}"),
        }
    }

    fn look_up(&self) -> abi::EntryOut {
        let fs = self.fs.clone();
        self.entry(async move { fs.lookup(&header(1), NAME).await })
    }
}

/// Size, and for how long the kernel may believe it.
fn size(entry: &abi::EntryOut) -> (u64, u64, u32) {
    (entry.attr.size, entry.attr_valid, entry.attr_valid_nsec)
}

#[test]
fn a_name_is_found_and_its_size_is_the_one_told_last() {
    let world = World::new();
    let found = world.look_up();
    assert_eq!(size(&found), (3_000, 0, 0));
    let ask = || {
        let fs = world.fs.clone();
        world.soon(async move { fs.getattr(&header(found.nodeid), None).await })
    };
    let Some(Ok(Body::Attr(told))) = ask() else { panic!("its only writer tells the size") };
    assert_eq!((told.attr.size, told.attr_valid_nsec), (6_000, 0));
    let args = abi::CreateIn { flags: O_RDWR, ..Default::default() };
    let fs = world.fs.clone();
    world.entry(async move { fs.create(&header(1), NAME, args).await });
    let asked = ask();
    assert!(asked.is_none(), "only the OSTs know the size: {asked:?}");
}

#[test]
fn names_are_made_and_linked_and_modes_are_changed() {
    let world = World::new();
    let found = world.look_up();
    let args = abi::CreateIn { flags: O_RDWR, mode: 0o644, ..Default::default() };
    let fs = world.fs.clone();
    let made = world.entry(async move { fs.create(&header(1), b"new", args).await });
    assert_ne!(made.nodeid, found.nodeid);
    let fs = world.fs.clone();
    let linked = world.entry(async move { fs.link(&header(1), found.nodeid, b"link").await });
    assert_eq!((linked.nodeid, size(&linked)), (found.nodeid, (3_000, 0, 0)));
    let args = abi::SetattrIn { valid: abi::FATTR_MODE, mode: 0o600, ..Default::default() };
    let fs = world.fs.clone();
    let changed = world.soon(async move { fs.setattr(&header(found.nodeid), &args).await });
    let Some(Ok(Body::Attr(attr))) = changed else { panic!("{changed:?}") };
    assert_eq!((attr.attr.size, attr.attr_valid_nsec), (3_000, 0));
}

#[test]
fn a_create_that_finds_a_file_opens_it_and_cuts_it_only_with_nothing_locked() {
    let world = World::new();
    let create = |flags| {
        let (fs, args) = (world.fs.clone(), abi::CreateIn { flags, ..Default::default() });
        world.soon(async move { fs.create(&header(1), NAME, args).await })
    };
    let opened = create(O_RDWR);
    let Some(Ok(Body::Create(entry, _))) = opened else { panic!("{opened:?}") };
    assert_eq!(size(&entry), (3_000, 0, 0));
    let sent_back = create(O_RDWR | O_TRUNC);
    assert_eq!(sent_back.map(|reply| reply.err()), Some(Some(Errno::ESTALE)));
    assert!(create(O_RDWR | O_TRUNC).is_none(), "the kernel would not look a third time");
}

#[test]
fn a_create_that_finds_no_regular_file_lets_the_kernel_look_again() {
    let cluster = Cluster::new(1, &Scenario::calm());
    cluster.boot();
    let (far, near) = (cluster.client_node("far", 0), cluster.client_node("near", 1));
    let (other, client, env) = (cluster.mount(&far), cluster.mount(&near), near.env());
    let info = InitInfo { minor: 0, capabilities: 0, max_write: 0, max_readahead: 0 };
    let fs = Rc::new(Fs::new(&env, client, info, crate::fs::Setup::of_test()));
    let maker = other.clone();
    cluster.sim.block_on(&far, async move {
        let (me, root) = (Ctx::root(), Fid::ROOT);
        maker.mknod(&me, root, b"fifo", libc::S_IFIFO | 0o644, 0).await.expect("room");
        maker.mkdir(&me, root, b"dir", 0o755).await.expect("room");
        maker.symlink(&me, root, b"link", b"elsewhere").await.expect("room");
    });
    for (name, flags) in [("fifo", O_RDWR), ("dir", 0), ("link", O_RDWR)] {
        let (fs, args) = (fs.clone(), abi::CreateIn { flags, ..Default::default() });
        let create = async move { fs.create(&header(1), name.as_bytes(), args).await };
        let created = cluster.sim.block_on_for(&near, AT_ONCE, create);
        assert_eq!(created.map(|reply| reply.err()), Some(Some(Errno::ESTALE)), "{name}");
    }
}

#[test]
fn a_listing_has_names_and_no_size_that_is_not_known() {
    let world = World::new();
    let Ok(Body::Open(dir)) = world.fs.opendir(&header(1)) else { panic!("the root opens") };
    let args = abi::ReadIn { fh: dir.fh, size: 4_096, ..Default::default() };
    for plus in [false, true] {
        let fs = world.fs.clone();
        let listed = world.soon(async move { fs.readdir(&header(1), args, plus).await });
        let Some(Ok(Body::Dir(listed))) = listed else { panic!("{listed:?}") };
        let bytes = listed.as_bytes();
        assert!(bytes.windows(NAME.len()).any(|window| window == NAME));
        if plus {
            assert_eq!(nodeids(bytes), [0; 3], "two dots and a file that is being written");
        }
    }
}

/// Node ids of the entries of a READDIRPLUS.
fn nodeids(mut bytes: &[u8]) -> Vec<u64> {
    let mut ids = Vec::new();
    while !bytes.is_empty() {
        let (entry, rest) = abi::EntryOut::read_from_prefix(bytes).expect("an entry");
        let (name, _) = abi::Dirent::read_from_prefix(rest).expect("a name");
        ids.push(entry.nodeid);
        let len = size_of::<abi::EntryOut>() + size_of::<abi::Dirent>() + name.namelen as usize;
        bytes = &bytes[len.next_multiple_of(8)..];
    }
    ids
}
