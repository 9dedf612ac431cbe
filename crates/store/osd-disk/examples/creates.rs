//! The rate at which the record store takes creates. A create is one set with an entry, an inode
//! and the parent's inode. There is a commit each second.
//!
//! `cargo run --release -p osd-disk --example creates -- DIR [COUNT [DIRTY_MIB]]`

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Wake, Waker};
use std::time::{Duration, Instant};

use bytes::Bytes;
use osd::{IoMode, MetaStore, ObjStore, StoreError, Table, WriteSet};
use osd_disk::{DiskMeta, DiskObjects, MetaOptions, ObjOptions};
use types::Fid;

struct Unpark(std::thread::Thread);

impl Wake for Unpark {
    fn wake(self: Arc<Self>) {
        self.0.unpark();
    }
}

fn wait<T>(future: impl Future<Output = T>) -> T {
    let waker = Waker::from(Arc::new(Unpark(std::thread::current())));
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut Context::from_waker(&waker)) {
            Poll::Ready(value) => return value,
            Poll::Pending => std::thread::park(),
        }
    }
}

fn main() {
    let dir = std::env::args().nth(1).expect("a directory");
    let count: u32 =
        std::env::args().nth(2).map_or(1_000_000, |count| count.parse().expect("a number"));
    let dirty_mib: u64 = std::env::args().nth(3).map_or(16, |mib| mib.parse().expect("a number"));
    records(Path::new(&dir), count, dirty_mib << 20);
    objects(Path::new(&dir));
}

fn create(number: u32) -> WriteSet {
    let parent = Fid::new(1, number % 64);
    let mut entry = parent.to_key().to_vec();
    entry.extend_from_slice(&number.wrapping_mul(0x9e37_79b1).to_be_bytes());
    entry.extend_from_slice(format!("file.{number}").as_bytes());
    let mut set = WriteSet::new();
    set.put(Table::Dirents, entry, [7; 24]);
    set.put(Table::Inodes, Fid::new(2, number).to_key(), [8; 160]);
    set.put(Table::Inodes, parent.to_key(), [9; 160]);
    set.put(Table::Replies, (number % 64).to_be_bytes(), [1; 200]);
    set
}

fn records(dir: &Path, count: u32, dirty_bytes: u64) {
    let meta = DiskMeta::open(dir, &MetaOptions::default()).expect("opens");
    let (start, mut last) = (Instant::now(), Instant::now());
    let (mut stall_max, mut commits, mut dirty_max) = (Duration::ZERO, 0, 0);
    for number in 0..count {
        loop {
            match meta.apply(&create(number)) {
                Ok(()) => break,
                Err(StoreError::Busy) => {
                    let begin = Instant::now();
                    wait(meta.ready());
                    stall_max = stall_max.max(begin.elapsed());
                }
                Err(error) => panic!("{error}"),
            }
        }
        if number % 64 == 0
            && (last.elapsed() > Duration::from_secs(1) || meta.dirty_bytes() > dirty_bytes)
        {
            dirty_max = dirty_max.max(meta.dirty_bytes());
            drop(meta.commit());
            (commits, last) = (commits + 1, Instant::now());
        }
    }
    wait(meta.commit()).expect("commits");
    let rate = f64::from(count) / start.elapsed().as_secs_f64();
    println!(
        "{count} creates: {rate:.0}/s with the last sync, {commits} commits, longest stall {stall_max:?}, {dirty_max} bytes dirty at most"
    );
    let view = meta.running().expect("ready");
    let start = Instant::now();
    for number in 0..count {
        view.get(Table::Inodes, &Fid::new(2, number).to_key()).expect("reads").expect("there");
    }
    println!("{:.0} gets/s", f64::from(count) / start.elapsed().as_secs_f64());
    drop(view);
    drop(meta);
    let data = dir.join("records/data.mdb");
    let mib = std::fs::metadata(data).expect("it is there").len() >> 20;
    let start = Instant::now();
    drop(DiskMeta::open(dir, &MetaOptions::default()).expect("opens"));
    println!("opened, with all pages checked, in {:?}: a file of {mib} MiB", start.elapsed());
}

fn objects(dir: &Path) {
    let objects = DiskObjects::open(dir, &ObjOptions::default()).expect("opens");
    let time = |what: &str, count: u32, call: &dyn Fn(u32)| {
        let start = Instant::now();
        (0..count).for_each(call);
        println!("{what}: {:.1} us each", start.elapsed().as_secs_f64() * 1e6 / f64::from(count));
    };
    let write = |fid, offset, data: &Bytes| {
        wait(objects.write(fid, offset, data.clone(), IoMode::Auto)).expect("writes");
    };
    let attr =
        |oid| assert_eq!(wait(objects.attr(Fid::new(4, oid))).expect("attr").is_some(), oid == 1);
    let small = Bytes::from(vec![1; 4_096]);
    let large = Bytes::from(vec![2; 1 << 20]);
    time("first write of 4 KiB", 20_000, &|number| write(Fid::new(3, number), 0, &small));
    time("sync of 20,000 objects", 1, &|_| wait(objects.sync()).expect("syncs"));
    time("write 4 KiB, open object", 100_000, &|number| {
        write(Fid::new(4, 1), u64::from(number % 1_024) * 4_096, &small)
    });
    time("read 4 KiB, cached", 100_000, &|number| {
        drop(
            wait(objects.read(
                Fid::new(4, 1),
                u64::from(number % 1_024) * 4_096,
                4_096,
                IoMode::Auto,
            ))
            .expect("reads"),
        );
    });
    time("write 1 MiB, one at a time", 512, &|number| {
        write(Fid::new(5, 1), u64::from(number) << 20, &large)
    });
    time("attr", 100_000, &|_| attr(1));
    time("attr of a missing object", 10_000, &|_| attr(2));
}
