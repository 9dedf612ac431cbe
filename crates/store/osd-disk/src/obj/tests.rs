//! The object store on a real directory.

use super::*;
use crate::testdir::{TestDir, wait};

fn open(dir: &TestDir) -> Rc<DiskObjects> {
    DiskObjects::open(dir.path(), &ObjOptions::default()).expect("opens")
}

fn write(objects: &DiskObjects, fid: Fid, offset: u64, data: &[u8]) -> ObjAttr {
    wait(objects.write(fid, offset, Bytes::copy_from_slice(data), IoMode::Auto)).expect("writes")
}

fn read(objects: &DiskObjects, fid: Fid, offset: u64, len: usize) -> Option<Bytes> {
    wait(objects.read(fid, offset, len, IoMode::Auto)).expect("reads")
}

#[test]
fn sparse_objects_read_back_after_reopening() {
    let dir = TestDir::new();
    let fid = Fid::new(0x2_0000_0401, 1);
    let objects = open(&dir);
    assert_eq!(read(&objects, fid, 0, 10), None);
    assert_eq!(wait(objects.attr(fid)), Ok(None));
    assert_eq!(write(&objects, fid, 5, b"hello").size, 10);
    assert_eq!(read(&objects, fid, 0, 100).as_deref(), Some(&b"\0\0\0\0\0hello"[..]));
    assert_eq!(read(&objects, fid, 100, 5).as_deref(), Some(&[][..]));
    wait(objects.sync()).expect("syncs");
    drop(objects);
    let objects = open(&dir);
    assert_eq!(read(&objects, fid, 4, 3).as_deref(), Some(&b"\0he"[..]));
    assert_eq!(wait(objects.list(Fid::ZERO, 9)), Ok(vec![fid]));
}

#[test]
fn a_sync_covers_the_directories_of_new_objects_alone() {
    let dir = TestDir::new();
    let fid = Fid::new(1, 2);
    let objects = open(&dir);
    wait(objects.sync()).expect("syncs");
    let dirs = |objects: &DiskObjects| objects.files.take_dirty().dirs.count_ones();
    assert!(objects.files.find(fid, false).expect("looks").is_none());
    assert_eq!(dirs(&objects), 0);
    assert!(objects.files.find(fid, true).expect("is made").is_some());
    assert_eq!(dirs(&objects), 1);
    drop(objects);
    let objects = open(&dir); // it has no descriptor of the object
    wait(objects.sync()).expect("syncs");
    assert!(objects.files.find(fid, true).expect("opens").is_some());
    assert_eq!(dirs(&objects), 0, "its name is there");
}

/// The names are in memory after a kill, and a power cut may take them still.
#[test]
fn the_first_sync_covers_names_that_came_or_went_before_a_kill() {
    let dir = TestDir::new();
    let (made, gone) = (Fid::new(1, 2), Fid::new(1, 3));
    let objects = open(&dir);
    write(&objects, gone, 0, b"data");
    wait(objects.sync()).expect("syncs");
    assert_eq!(wait(objects.destroy(gone)), Ok(true));
    write(&objects, made, 0, b"data");
    drop(objects); // without a sync
    let objects = open(&dir);
    assert_eq!(wait(objects.destroy(gone)), Ok(false), "its replay finds nothing");
    assert!(objects.files.find(made, true).expect("opens").is_some());
    assert_eq!(objects.files.take_dirty().dirs.count_ones() as usize, DIRS);
}

#[test]
fn direct_and_cached_writes_agree() {
    let dir = TestDir::new();
    let objects = open(&dir);
    let fid = Fid::new(1, 2);
    let mut expected = vec![0; 5 << 20];
    for (round, (offset, len)) in
        [(0, 4 << 20), (4_096, 1 << 20), (100, 3), (3 << 20, 2 << 20), (1 << 20, (1 << 20) + 1)]
            .into_iter()
            .enumerate()
    {
        let data: Vec<u8> = (0..len).map(|at| (at * 7 + round) as u8).collect();
        let unaligned = Bytes::from([vec![0], data.clone()].concat()).slice(1..);
        wait(objects.write(fid, offset as u64, unaligned, IoMode::Auto)).expect("writes");
        expected[offset..offset + len].copy_from_slice(&data);
    }
    assert!(read(&objects, fid, 0, 8 << 20).as_deref() == Some(&expected[..]));
    let direct =
        wait(objects.read(fid, 4_096, 8 << 20, IoMode::Direct)).expect("reads").expect("there");
    assert!(direct == expected[4_096..]);
    assert!(wait(objects.attr(fid)).expect("attr").expect("there").blocks >= 10_240);
    wait(objects.sync()).expect("syncs");
}

/// Pages of the object that the page cache has.
fn cached_pages(objects: &DiskObjects, fid: Fid) -> usize {
    let open = objects.files.find(fid, false).expect("opens").expect("there");
    let len = usize::try_from(open.attr().expect("attr").size).expect("small");
    let mut pages = vec![0; len / 4_096];
    // SAFETY: a new mapping of an open file, which nobody touches, and a byte for each page of it.
    unsafe {
        let fd = std::os::fd::AsRawFd::as_raw_fd(&open.fd());
        let at = libc::mmap(std::ptr::null_mut(), len, libc::PROT_READ, libc::MAP_SHARED, fd, 0);
        assert_ne!(at, libc::MAP_FAILED);
        assert_eq!(libc::mincore(at, len, pages.as_mut_ptr()), 0);
        libc::munmap(at, len);
    }
    pages.iter().filter(|page| **page & 1 != 0).count()
}

#[test]
fn streamed_reads_leave_nothing_in_the_page_cache_and_take_what_is_there() {
    const MIB: usize = 1 << 20;
    let dir = TestDir::new();
    let objects = open(&dir);
    let fid = Fid::new(1, 9);
    let data: Vec<u8> = (0..8 * MIB).map(|at| (at / 4_096 + at) as u8).collect();
    write(&objects, fid, 0, &data);
    wait(objects.sync()).expect("syncs");
    let read_all = |mode| {
        for at in (0..8 * MIB).step_by(MIB) {
            let read = wait(objects.read(fid, at as u64, MIB, mode)).expect("reads");
            assert!(read.expect("there") == data[at..at + MIB], "{mode:?} {at}");
        }
        cached_pages(&objects, fid)
    };
    let before = cached_pages(&objects, fid);
    assert!(before < 2_048, "a large write goes around the page cache");
    assert!(read_all(IoMode::Stream { above: 0 }) <= before);
    let size = data.len() as u64;
    // the kernel may take pages back, where memory is short
    let is_kept = (0..10).any(|_| {
        let cached = read_all(IoMode::Stream { above: size });
        let still = read_all(IoMode::Stream { above: 0 });
        println!("{cached} pages, then {still}");
        (cached, still) == (2_048, 2_048)
    });
    assert!(is_kept, "it is not large, and what is there stays");
}

#[test]
fn truncate_and_destroy_of_absent_objects() {
    let dir = TestDir::new();
    let objects = open(&dir);
    let fid = Fid::new(1, 3).stripe(2);
    assert_eq!(wait(objects.truncate(fid, 7, false)), Ok(None));
    assert_eq!(wait(objects.truncate(fid, 7, true)).expect("makes").map(|attr| attr.size), Some(7));
    write(&objects, fid, 0, b"0123456789");
    assert_eq!(wait(objects.truncate(fid, 4, false)).expect("cuts").map(|attr| attr.size), Some(4));
    assert_eq!(read(&objects, fid, 0, 9).as_deref(), Some(&b"0123"[..]));
    assert_eq!(wait(objects.destroy(fid)), Ok(true));
    assert_eq!(wait(objects.destroy(fid)), Ok(false));
    assert_eq!(read(&objects, fid, 0, 9), None);
    wait(objects.sync()).expect("syncs");
}

#[test]
fn more_objects_than_descriptors_and_than_single_syncs() {
    let dir = TestDir::new();
    let objects =
        DiskObjects::open(dir.path(), &ObjOptions { threads: 2, fds_max: 20, ring_ops_max: 4 })
            .expect("opens");
    for oid in 0..600 {
        write(&objects, Fid::new(9, oid), 0, &oid.to_le_bytes());
    }
    wait(objects.sync()).expect("syncs");
    for oid in 0..600 {
        assert_eq!(read(&objects, Fid::new(9, oid), 0, 4).as_deref(), Some(&oid.to_le_bytes()[..]));
    }
    assert_eq!(wait(objects.list(Fid::ZERO, 1_000)).expect("lists").len(), 600);
    let open = std::fs::read_dir("/proc/self/fd").expect("proc").count();
    assert!(open < 2_000, "{open}");
}

#[test]
fn offsets_beyond_what_a_file_can_have_are_refused() {
    let dir = TestDir::new();
    let objects = open(&dir);
    let refused =
        wait(objects.write(Fid::new(1, 1), u64::MAX - 1, Bytes::from_static(b"xyz"), IoMode::Auto));
    assert_eq!(refused, Err(Errno::EFBIG));
    assert!(wait(objects.truncate(Fid::new(1, 1), u64::MAX, true)).is_err());
}

#[test]
fn a_missing_or_read_only_directory_is_told_clearly() {
    let text = DiskObjects::open(Path::new("/proc/no/such"), &ObjOptions::default())
        .err()
        .expect("refused")
        .to_string();
    assert!(text.contains("/proc/no/such"), "{text}");
}

#[test]
fn it_passes_the_suite_of_every_body() {
    let fresh = |_room: u64| {
        let dir = TestDir::new();
        let open = move || -> Rc<dyn ObjStore> { open(&dir) };
        osd::conformance::ObjBed { open: Box::new(open), crash: Box::new(|| {}), is_bounded: false }
    };
    osd::conformance::obj_suite(&|case| wait(case), &fresh);
}

#[test]
fn nobody_can_tell_that_large_writes_are_late() {
    const MIB: usize = 1 << 20;
    let dir = TestDir::new();
    let objects = open(&dir);
    let fid = Fid::new(1, 4);
    for round in 0..40_u8 {
        let offset = u64::from(round % 5) << 20;
        let written = write(&objects, fid, offset, &vec![round; MIB]);
        assert!(written.size >= offset + MIB as u64 && written.blocks >= 2_048);
        match round % 4 {
            0 => {
                assert!(read(&objects, fid, offset + 4_095, 9).as_deref() == Some(&[round; 9][..]))
            }
            1 => {
                write(&objects, fid, offset + 10, b"small");
                let around = read(&objects, fid, offset, 20).expect("there");
                assert_eq!(&around[..], [&[round; 10][..], b"small", &[round; 5]].concat());
            }
            2 => {
                let cut =
                    wait(objects.truncate(fid, offset + 7, false)).expect("cuts").expect("there");
                assert_eq!(cut.size, offset + 7);
                assert_eq!(read(&objects, fid, offset, 2 * MIB).as_deref(), Some(&[round; 7][..]));
            }
            _ => wait(objects.sync()).expect("syncs"),
        }
    }
    write(&objects, fid, 0, &vec![1; MIB]);
    assert_eq!(wait(objects.destroy(fid)), Ok(true));
    assert_eq!(read(&objects, fid, 0, 9), None);
}

#[test]
fn closing_waits_for_large_writes_under_way() {
    let dir = TestDir::new();
    let objects = open(&dir);
    for oid in 0..8 {
        write(&objects, Fid::new(2, oid), 0, &vec![oid as u8 + 1; 2 << 20]);
    }
    drop(objects);
    let objects = open(&dir);
    for oid in 0..8 {
        assert!(
            read(&objects, Fid::new(2, oid), 0, 4 << 20).as_deref()
                == Some(&vec![oid as u8 + 1; 2 << 20][..])
        );
    }
}

/// Runs `main` where a ring can be.
fn on_executor<T>(main: impl Future<Output = T>) -> T {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_io().build().expect("a runtime");
    tokio::task::LocalSet::new().block_on(&runtime, main)
}

/// Opens an object for direct transfers, which the pool does.
async fn direct(objects: &DiskObjects, fid: Fid, blocks: &[u8]) {
    for (block, byte) in blocks.iter().enumerate() {
        let data = Bytes::from(vec![*byte; 4_096]);
        objects.write(fid, block as u64 * 4_096, data, IoMode::Direct).await.expect("writes");
    }
}

#[test]
fn small_transfers_are_the_same_with_a_ring_and_without() {
    let dir = TestDir::new();
    on_executor(async {
        for ring_ops_max in [0, 2, 64] {
            let options = ObjOptions { ring_ops_max, ..ObjOptions::default() };
            let objects = DiskObjects::open(dir.path(), &options).expect("opens");
            let fid = Fid::new(3, ring_ops_max);
            direct(&objects, fid, &[1, 2, 3]).await;
            // A hole, then the end inside a block.
            let end = objects
                .write(fid, 5 * 4_096, Bytes::from_static(b"end"), IoMode::Direct)
                .await
                .expect("writes");
            assert_eq!(end.size, 5 * 4_096 + 3);
            let read = async |block: u64, len: usize| {
                let data = objects.read(fid, block * 4_096, len, IoMode::Direct).await;
                data.expect("reads").expect("there").to_vec()
            };
            assert_eq!(read(1, 8_192).await, [[2; 4_096], [3; 4_096]].concat());
            assert_eq!(read(4, 8_192).await, [&[0; 4_096][..], b"end"].concat());
            assert_eq!(
                (read(5, 4_096).await, read(6, 4_096).await, read(9, 65_536).await),
                (b"end".to_vec(), vec![], vec![])
            );
            assert_eq!(read(0, 65_536).await.len(), 5 * 4_096 + 3);
            let grown = objects
                .write(fid, 7 * 4_096, Bytes::from(vec![7; 8_192]), IoMode::Direct)
                .await
                .expect("writes");
            assert_eq!((grown.size, read(7, 16_384).await), (9 * 4_096, vec![7; 8_192]));
            let many =
                (0..40).map(|block| objects.read(fid, block % 3 * 4_096, 4_096, IoMode::Direct));
            for (block, data) in all(many.collect()).await.into_iter().enumerate() {
                assert_eq!(data.expect("reads").expect("there"), vec![block as u8 % 3 + 1; 4_096]);
            }
            objects.sync().await.expect("syncs");
            let file = objects.files.find_now(fid).expect("looks").expect("there");
            let forget = || {
                rustix::fs::fadvise(file.fd(), 0, None, rustix::fs::Advice::DontNeed)
                    .expect("drops pages")
            };
            for (offset, len, expected) in [
                (4_095, 4_098, [&[1][..], &[2; 4_096], &[3]].concat()),
                (9 * 4_096 - 1, 70_000, vec![7]),
            ] {
                forget();
                let cold = objects
                    .read(fid, offset, len, IoMode::Auto)
                    .await
                    .expect("reads")
                    .expect("there");
                assert_eq!(cold, expected);
            }
            assert_eq!(
                objects.ring.get().is_some_and(Option::is_some),
                ring_ops_max > 0 && ring_is_offered()
            );
        }
    });
}

fn ring_is_offered() -> bool {
    io_uring::IoUring::<io_uring::squeue::Entry>::builder()
        .setup_single_issuer()
        .setup_defer_taskrun()
        .build(1)
        .is_ok()
}

/// Polls all until each is ready.
async fn all<T>(mut futures: Vec<env::LocalFuture<'_, T>>) -> Vec<T> {
    let mut done: Vec<Option<T>> = futures.iter().map(|_| None).collect();
    std::future::poll_fn(move |cx| {
        for (future, done) in futures.iter_mut().zip(&mut done).filter(|(_, done)| done.is_none()) {
            if let std::task::Poll::Ready(value) = future.as_mut().poll(cx) {
                *done = Some(value);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(done.iter_mut().filter_map(Option::take).collect())
        } else {
            std::task::Poll::Pending
        }
    })
    .await
}

#[test]
fn direct_writes_are_waited_for_at_the_end() {
    let dir = TestDir::new();
    let fid = Fid::new(3, 9);
    let begin = async |objects: &DiskObjects, byte| {
        let mut writing = objects.write(fid, 4_096, Bytes::from(vec![byte; 4_096]), IoMode::Direct);
        std::future::poll_fn(|cx| {
            let _ends_now_or_later = writing.as_mut().poll(cx);
            std::task::Poll::Ready(())
        })
        .await;
    };
    on_executor(async {
        let objects = open(&dir);
        direct(&objects, fid, &[1, 2, 3]).await;
        objects.sync().await.expect("syncs");
        begin(&objects, 8).await;
        while !objects.files.has_dirty(fid) {
            tokio::task::yield_now().await;
        }
        let read =
            objects.read(fid, 0, 12_288, IoMode::Direct).await.expect("reads").expect("there");
        assert_eq!(read, [[1; 4_096], [8; 4_096], [3; 4_096]].concat());
        begin(&objects, 9).await;
        tokio::task::yield_now().await;
    });
    assert_eq!(read(&open(&dir), fid, 4_095, 3).as_deref(), Some(&[1, 9, 9][..]));
}

/// Calls that block, on as many threads as there are for them; how many ran at once. So many wait
/// for each other, and then for one too many.
fn at_once(objects: &DiskObjects, calls: usize, expected: usize) -> usize {
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    let end = Instant::now() + Duration::from_secs(60);
    let (now, most) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..calls {
        let (now, most) = (now.clone(), most.clone());
        objects.pool().post(move || {
            most.fetch_max(now.fetch_add(1, Ordering::SeqCst) + 1, Ordering::SeqCst);
            while most.load(Ordering::SeqCst) < expected && Instant::now() < end {
                std::thread::sleep(Duration::from_millis(5));
            }
            if expected < calls {
                std::thread::sleep(Duration::from_millis(500));
            }
            now.fetch_sub(1, Ordering::SeqCst);
        });
    }
    let all_done = || objects.pool.is_idle();
    while !all_done() {
        std::thread::sleep(Duration::from_millis(5));
    }
    most.load(Ordering::SeqCst)
}

#[test]
fn as_many_transfers_wait_for_the_device_as_requests_are_served_at_once() {
    let (dir, slots) = (TestDir::new(), Rc::new(Cell::new(16)));
    let objects = open(&dir);
    let of_it = slots.clone();
    objects.follow(move || of_it.get());
    assert_eq!((at_once(&objects, 40, 16), objects.flights_max()), (16, 8));
    slots.set(40);
    assert_eq!((at_once(&objects, 40, 40), objects.flights_max()), (40, 20));
    slots.set(100_000);
    assert_eq!(objects.flights_max(), THREADS_MAX / 2);
    slots.set(4);
    assert_eq!(objects.flights_max(), 2, "slots bound what comes to the threads");
}

#[test]
fn only_the_pool_makes_files() {
    let dir = TestDir::new();
    let objects =
        DiskObjects::open(dir.path(), &ObjOptions { threads: 1, ..ObjOptions::default() })
            .expect("opens");
    let (there, new) = (Fid::new(1, 10), Fid::new(1, 11));
    write(&objects, there, 0, b"it is there");
    let (go, blocked) = std::sync::mpsc::channel::<()>();
    objects.pool.post(move || _ = blocked.recv_timeout(std::time::Duration::from_secs(10)));
    let mut cx = std::task::Context::from_waker(std::task::Waker::noop());
    let small = |fid| objects.write(fid, 0, Bytes::from_static(b"small"), IoMode::Auto);
    let mut made = small(new);
    assert!(made.as_mut().poll(&mut cx).is_pending(), "a file is made on the caller's thread");
    assert!(small(there).as_mut().poll(&mut cx).is_ready(), "an open file needs no thread");
    drop(go);
    assert_eq!(wait(made).expect("writes").size, 5);
}

#[test]
fn where_an_object_lies_is_asked_past_transfers_that_wait_for_the_disk() {
    use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
    use std::time::Duration;

    let dir = TestDir::new();
    let objects = open(&dir);
    let fid = Fid::new(1, 9);
    write(&objects, fid, 0, &[7; 8_192]);
    let (go, ended) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    for _ in 0..ObjOptions::default().threads {
        let (go, ended) = (go.clone(), ended.clone());
        objects.pool.post(move || {
            // bounded, so that a lookup that waits behind these fails and does not hang
            for _ in 0..1_000 {
                if go.load(Ordering::SeqCst) {
                    break;
                }
                std::thread::sleep(Duration::from_millis(10));
            }
            ended.fetch_add(1, Ordering::SeqCst);
        });
    }
    let range = Extent::new(0, 4_096).expect("not empty");
    wait(objects.locate(fid, range)).expect("it can be asked, whether it is told or not");
    assert_eq!(ended.load(Ordering::SeqCst), 0, "the disk's threads are all taken meanwhile");
    go.store(true, Ordering::SeqCst);
}
