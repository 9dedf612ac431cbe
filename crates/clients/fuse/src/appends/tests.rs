//! Tests of appends in pieces: calls stay whole between mounts, and a killed caller blocks none.

use client::{Client, Ctx};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use futures_lite::future::zip;
use types::Span;

use super::*;

const MIB: u64 = 1 << 20;
const O_RDWR: u32 = libc::O_RDWR as u32;
const O_APPEND: u32 = libc::O_APPEND as u32;

/// Runs `steps` over the pieces of one call whose file ends at 1,000 and that the kernel takes for
/// empty: `b3` begins a piece of 3 MiB (the longest is 1 MiB, less a page counts as long) behind
/// the ones before, `e` ends one. Says what followed the last end.
fn follow(length: Option<u64>, steps: &[(char, u64)]) -> Next {
    let mut pieces = Pieces::new(0);
    let mut next = Next::OthersUnderWay;
    for (step, len) in steps {
        match step {
            'b' => _ = pieces.begin(pieces.last, *len),
            'e' => next = pieces.end(true, MIB),
            'x' => next = pieces.end(false, MIB),
            _ => panic!("a step is b, e or x"),
        }
        if pieces.base.is_none() {
            pieces.found(1_000, length);
        }
    }
    next
}

#[test]
fn a_call_is_over_with_a_short_piece_or_with_its_length() {
    let long = ('b', MIB);
    assert_eq!(follow(None, &[('b', 100), ('e', 0)]), Next::Over);
    assert_eq!(follow(None, &[long, ('e', 0)]), Next::MayCome);
    assert_eq!(follow(None, &[('b', MIB - 4_096), ('e', 0)]), Next::MayCome, "not aligned");
    assert_eq!(follow(None, &[long, ('e', 0), ('b', 7), ('e', 0)]), Next::Over);
    assert_eq!(follow(None, &[long, ('b', 7), ('e', 0)]), Next::OthersUnderWay);
    assert_eq!(follow(None, &[long, ('x', 0)]), Next::Over, "the kernel ends it");
    assert_eq!(follow(Some(MIB), &[long, ('e', 0)]), Next::Over);
    assert_eq!(follow(Some(2 * MIB), &[long, ('e', 0)]), Next::MayCome);
    assert_eq!(follow(Some(2 * MIB), &[long, ('e', 0), long, ('e', 0)]), Next::Over);
}

#[test]
fn pieces_lie_relative_to_the_first_whatever_comes_first() {
    let mut pieces = Pieces::new(500 + MIB);
    pieces.begin(500 + MIB, MIB);
    assert!(pieces.take(500), "the end of the file is not known yet");
    pieces.begin(500, MIB);
    pieces.found(9_000, None);
    assert_eq!((pieces.place(500), pieces.place(500 + MIB)), (9_000, 9_000 + MIB));
    assert!(!pieces.take(0), "there is no room before the first one any more");
    assert!(pieces.take(500 + 2 * MIB));
    pieces.end(true, MIB);
    pieces.end(true, MIB);
    assert!(pieces.take(500 + 2 * MIB) && !pieces.take(0) && !pieces.take(500 + 3 * MIB));
    assert!(pieces.begin(500 + 2 * MIB, MIB), "it may be another call");
    pieces.found_longer(500 + 2 * MIB, 9_000 + 2 * MIB);
    assert_eq!(pieces.place(500 + 2 * MIB), 9_000 + 2 * MIB);
    pieces.found_longer(500 + 2 * MIB, 9_000 + 5 * MIB);
    assert_eq!(pieces.place(500 + 2 * MIB), 9_000 + 5 * MIB, "what others wrote stays");
}

/// A mount of its own, and its handle of the file that all append to.
struct Mount {
    node: NodeHandle,
    client: Client,
    appends: Rc<Appends>,
    file: File,
}

const PIECE: u32 = 16 << 10;
const PIECES_OF_A_CALL: u64 = 4;
const CALL: u64 = PIECES_OF_A_CALL * PIECE as u64;

impl Mount {
    fn new(cluster: &Cluster, index: u32, length_of: fn(u32) -> Option<u64>) -> Mount {
        let node = cluster.client_node(&format!("c{index}"), index);
        let client = cluster.mount(&node);
        let opening = client.clone();
        let opened = async move {
            let (root, flags) = (types::Fid::ROOT, O_RDWR | O_APPEND);
            opening.create(&Ctx::root(), root, b"log", 0o644, flags, None).await
        };
        let (_, file) = cluster.sim.block_on(&node, opened).expect("opened");
        let appends = Rc::new(Appends::new(&node.env(), PIECE, length_of));
        Mount { node, client, appends, file }
    }

    fn piece(&self, mark: u8, offset: u64) -> impl Future<Output = Result<usize, Errno>> + 'static {
        let data = Bytes::from(vec![mark; PIECE as usize]);
        let piece = Piece { fh: 1, flags: O_RDWR | O_APPEND, offset, data, pid: 0 };
        let (appends, file) = (self.appends.clone(), self.file.clone());
        async move { appends.write(&file, piece).await }
    }

    /// Calls of several pieces each, one piece after the other, as the kernel sends them.
    fn calls(&self, mark: u8, count: u64) -> impl Future<Output = ()> + 'static {
        let pieces = (0..count * PIECES_OF_A_CALL)
            .map(|index| self.piece(mark + (index / PIECES_OF_A_CALL) as u8, index * PIECE as u64));
        let pieces: Vec<_> = pieces.collect();
        async move {
            for piece in pieces {
                assert_eq!(piece.await, Ok(PIECE as usize));
            }
        }
    }

    fn content(&self, cluster: &Cluster) -> Bytes {
        let (file, client) = (self.file.clone(), self.client.clone());
        cluster.sim.block_on(&self.node, async move {
            let attr = client.getattr(&Ctx::root(), file.fid(), Some(&file)).await.expect("stat");
            file.read(0, attr.size as usize).await.expect("read")
        })
    }
}

fn cluster() -> Cluster {
    let cluster = Cluster::new(7, &Scenario::calm());
    cluster.boot();
    cluster
}

/// Two mounts append at once; in the file no call of one is cut by the other's.
fn calls_stay_whole(length_of: fn(u32) -> Option<u64>) {
    let cluster = cluster();
    let (one, two) = (Mount::new(&cluster, 0, length_of), Mount::new(&cluster, 1, length_of));
    let other = two.node.env().spawn("appends", two.calls(100, 3));
    cluster.sim.block_on(&one.node, one.calls(0, 3));
    cluster.sim.run_for(Span::secs(60));
    drop(other);
    let content = one.content(&cluster);
    assert_eq!(content.len() as u64, 6 * CALL);
    for call in content.chunks(CALL as usize) {
        assert!(call.iter().all(|byte| *byte == call[0]), "a call of {} was cut", call[0]);
    }
}

#[test]
fn calls_of_two_mounts_stay_whole_where_their_length_is_known() {
    calls_stay_whole(|_| Some(CALL));
}

#[test]
fn calls_of_two_mounts_stay_whole_where_their_length_is_not_known() {
    calls_stay_whole(|_| None);
}

#[test]
fn pieces_that_are_sent_at_once_keep_their_order() {
    let cluster = cluster();
    let mount = Mount::new(&cluster, 0, |_| None);
    cluster.sim.block_on(&mount.node, mount.calls(1, 1));
    // as the kernel takes it for the end of the file: it does not know what others appended
    let at = |index: u64| 77 + index * PIECE as u64;
    let (second, first, third) =
        (mount.piece(6, at(1)), mount.piece(5, at(0)), mount.piece(7, at(2)));
    let all = async move { zip(zip(second, first), third).await };
    let written = Ok(PIECE as usize);
    assert_eq!(cluster.sim.block_on(&mount.node, all), ((written, written), written));
    let content = mount.content(&cluster);
    let marks: Vec<_> = content.chunks(PIECE as usize).map(|piece| piece[0]).collect();
    assert_eq!(marks, [1, 1, 1, 1, 5, 6, 7]);
}

#[test]
fn a_killed_caller_and_one_that_stops_halfway_let_others_append() {
    let cluster = cluster();
    let (one, two) = (Mount::new(&cluster, 0, |_| Some(CALL)), Mount::new(&cluster, 1, |_| None));
    cluster.sim.block_on(&one.node, one.piece(1, 0)).expect("written");
    let waits = cluster.sim.block_on_for(&two.node, Span::secs(1), two.piece(2, 0));
    assert_eq!(waits, None, "three more pieces are to come");
    two.appends.was_killed(two.file.fid());
    let comes = cluster.sim.block_on_for(&two.node, Span::secs(60), two.piece(3, 0));
    assert_eq!(comes, Some(Ok(PIECE as usize)), "they did not");
    let piece = one.piece(4, 0);
    let killed = one.node.env().spawn("killed", async move { _ = piece.await });
    cluster.sim.run_for(Span::micros(1));
    one.appends.was_killed(one.file.fid());
    cluster.sim.run_for(Span::secs(10));
    drop(killed);
    let written = cluster.sim.block_on_for(&one.node, Span::secs(1), one.piece(5, 0));
    assert_eq!(written, Some(Ok(PIECE as usize)));
    assert!(one.appends.calls.borrow().len() <= 1);
}
