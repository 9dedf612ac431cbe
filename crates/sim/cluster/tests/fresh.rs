//! New small files whose bytes go to the MDT with their closes: how many requests they take, and
//! what restarts of the MDT leave of them.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::rc::Rc;

use bytes::Bytes;
use client::{Client, Ctx, File, Migration, SetAttr, SetTime, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use layout::lov::composite::{LovComposite, inspect};
use layout::{Asked, Template};
use types::{Errno, Fid, Span, Timespec};
use wire::Opcode;

/// Bytes of a file that are at the MDT.
const BORDER: u64 = 128 << 10;
const ACL: &[u8] = b"system.posix_acl_access";
const LOV: &[u8] = b"lustre.lov";
const FILE_BYTES: usize = 32 << 10;
/// Files that are made at a time.
const FILES: u8 = 40;

/// The first bytes of a file are at its MDT.
fn at_mdt() -> Asked {
    let mut parts = CompositeTemplate::striped(0, [(BORDER, 1), (END_OF_FILE, 1)]);
    parts.components[0] = TemplateComponent { end: BORDER, wanted: Wanted::Mdt };
    Asked::Composite(parts)
}

fn bytes_of(number: u8) -> Bytes {
    Bytes::from(vec![number + 1; FILE_BYTES])
}

fn name_of(number: u8) -> Vec<u8> {
    format!("file{number}").into_bytes()
}

async fn make(client: &Client, name: &[u8], data: Bytes) -> client::Result<File> {
    make_as(&Ctx::root(), client, name, data).await
}

async fn make_as(ctx: &Ctx, client: &Client, name: &[u8], data: Bytes) -> client::Result<File> {
    let (open_flags, striping) = (flags::O_WRONLY | flags::O_EXCL, at_mdt());
    let made = client.create(ctx, Fid::ROOT, name, 0o640, open_flags, Some(&striping)).await?;
    made.1.write(0, data).await?;
    Ok(made.1)
}

async fn read(client: &Client, name: &[u8]) -> client::Result<Bytes> {
    let ctx = Ctx::root();
    let attr = client.lookup(&ctx, Fid::ROOT, name).await?;
    let file = client.open(&ctx, attr.fid(), flags::O_RDONLY).await?;
    let data = file.read(0, 1 << 20).await?;
    file.close().await?;
    assert_eq!(attr.size, data.len() as u64);
    Ok(data)
}

struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

impl World {
    /// The first client has reserved room for what it keeps.
    fn new() -> World {
        let scenario = Scenario { granted: Granted::Recall, dom: true, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        let world = World { cluster, clients };
        world.run(0, async |client| {
            for name in [b"first", b"other"] {
                make(client, name, Bytes::from_static(b"reserves")).await?.close().await?;
            }
            Ok(())
        });
        world.cluster.sim.run_for(Span::millis(500));
        world
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.cluster.run(&self.clients[at], work)
    }

    /// The requests that a call of the first client sends, without those for room.
    fn count(
        &self,
        work: impl AsyncFnOnce(&Client) -> client::Result<()> + 'static,
    ) -> BTreeMap<Opcode, u64> {
        let before = self.clients[0].1.requests();
        self.run(0, work);
        let mut sent = self.clients[0].1.requests();
        for (opcode, count) in before {
            *sent.get_mut(&opcode).expect("counts do not go") -= count;
        }
        sent.retain(|opcode, count| *count > 0 && *opcode != Opcode::OstReserve);
        sent
    }

    fn check(&self, name: &'static [u8], want: Bytes) {
        assert_eq!(self.run(1, async move |client| read(client, name).await), want);
    }

    /// A file of the second client, which the first one has open.
    fn source(&self) -> File {
        self.run(1, async |client| make(client, b"from", bytes_of(6)).await?.close().await);
        self.open_source()
    }

    fn open_source(&self) -> File {
        self.run(0, async |client| {
            let ctx = Ctx::root();
            let attr = client.lookup(&ctx, Fid::ROOT, b"from").await?;
            client.open(&ctx, attr.fid(), flags::O_RDONLY).await
        })
    }

    /// The layout of a file, as a client shows it.
    fn layout(&self, at: usize, fid: Fid) -> Bytes {
        self.run(at, async move |client| client.getxattr(&Ctx::root(), fid, LOV).await)
    }
}

/// An access list as Linux writes it: entries of tag and permissions, and a user.
fn acl<const N: usize>(entries: [[u32; 2]; N]) -> Bytes {
    let words = [2].into_iter().chain(entries.into_iter().flatten());
    words.flat_map(u32::to_le_bytes).collect()
}

fn mtime() -> Timespec {
    Timespec::new(1_000, 5)
}

fn both() -> BTreeMap<Opcode, u64> {
    BTreeMap::from([(Opcode::MdtCreate, 1), (Opcode::MdtClose, 1)])
}

#[test]
fn a_new_small_file_takes_a_create_and_a_close() {
    let world = World::new();
    let sent = world.count(async |client| {
        let file = make(client, b"file", bytes_of(6)).await?;
        file.flush()?; // as a mount does for close(2)
        file.close().await?;
        assert_eq!(client.kept_bytes(), 0);
        Ok(())
    });
    assert_eq!(sent, both());
    world.check(b"file", bytes_of(6));
}

#[test]
fn attributes_that_are_kept_go_with_the_bytes() {
    let (world, mtime) = (World::new(), mtime());
    let sent = world.count(async move |client| {
        let file = make(client, b"file", bytes_of(6)).await?;
        let set =
            SetAttr { mode: Some(0o604), mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        client.setattr_glance(&Ctx::root(), file.fid(), &set, Some(&file)).await?;
        file.flush()?;
        file.close().await
    });
    assert_eq!(sent, both());
    let attr = world.run(1, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"file").await);
    assert_eq!((attr.mode & 0o7777, attr.mtime()), (0o604, mtime));
    world.check(b"file", bytes_of(6));
}

#[test]
fn a_copy_with_its_attributes_takes_a_create_and_a_close() {
    let world = World::new();
    let acl = acl([[1 | 6 << 16, u32::MAX], [4, u32::MAX], [32 | 4 << 16, u32::MAX]]); // rw----r--
    let sent = world.count(async move |client| {
        let ctx = Ctx::root();
        let file = make(client, b"file", bytes_of(6)).await?;
        assert_eq!(client.listxattr(&ctx, file.fid()).await?, [LOV]);
        let layout = client.getxattr(&ctx, file.fid(), LOV).await?;
        client.setxattr(&ctx, file.fid(), LOV, layout, 0).await?;
        client.setxattr(&ctx, file.fid(), ACL, acl, 0).await?;
        file.flush()?;
        file.close().await
    });
    let asked = [(Opcode::MdtGetxattr, 1)];
    assert_eq!(sent, both().into_iter().chain(asked).collect());
    let attr = world.run(1, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"file").await);
    assert_eq!(attr.mode & 0o7777, 0o604);
    world.check(b"file", bytes_of(6));
}

/// The calls of `cp -a` for a file, in their order. The kernel asks for attributes before it sets
/// the layout, because they may not permit that.
#[test]
fn a_copy_of_a_file_keeps_its_list_after_its_times_were_sent() {
    for (caller, name) in [(Ctx::root(), b"root"), (Ctx::user(7, 8), b"user")] {
        let world = World::new();
        world.run(0, async |client| {
            let open_to_all = SetAttr { mode: Some(0o777), ..SetAttr::default() };
            client.setattr(&Ctx::root(), Fid::ROOT, &open_to_all, None).await.map(drop)
        });
        let source = world.source();
        let (from, layout, mtime) = (source.fid(), world.layout(1, source.fid()), mtime());
        let list = acl([[1 | 6 << 16, u32::MAX], [4, u32::MAX], [32 | 4 << 16, u32::MAX]]);
        let sent = world.count(async move |client| {
            let to = make_as(&caller, client, name, bytes_of(6)).await?;
            let times = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
            client.setattr_glance(&caller, to.fid(), &times, Some(&to)).await?;
            assert_eq!(client.listxattr(&caller, from).await?, [LOV]);
            assert_eq!(client.getxattr(&caller, from, LOV).await?, layout);
            client.getattr(&caller, to.fid(), Some(&to)).await?;
            client.setxattr(&caller, to.fid(), LOV, layout, 0).await?;
            client.setxattr(&caller, to.fid(), ACL, list, 0).await?;
            to.flush()?;
            to.close().await
        });
        let count = |opcode| sent.get(&opcode).copied().unwrap_or(0);
        for opcode in [Opcode::MdtListxattr, Opcode::MdtGetxattr, Opcode::MdtSetxattr] {
            assert_eq!(count(opcode), 0, "{sent:?}");
        }
        assert!(count(Opcode::MdtSetattr) <= 2, "the times, then the mode: {sent:?}");
        let attr =
            world.run(1, async move |client| client.lookup(&Ctx::root(), Fid::ROOT, name).await);
        assert_eq!((attr.mode & 0o7777, attr.mtime()), (0o604, mtime));
        world.check(name, bytes_of(6));
    }
}

/// A question about the source does not send what is kept of the copy.
#[test]
fn a_question_about_another_file_leaves_kept_attributes_to_the_close() {
    let world = World::new();
    let source = world.source();
    let (from, mtime) = (source.fid(), mtime());
    let sent = world.count(async move |client| {
        let ctx = Ctx::root();
        let to = make(client, b"to", bytes_of(6)).await?;
        let times = SetAttr { mtime: Some(SetTime::At(mtime)), ..SetAttr::default() };
        client.setattr_glance(&ctx, to.fid(), &times, Some(&to)).await?;
        let found = client.getxattr(&ctx, from, b"user.none").await;
        assert_eq!(found.expect_err("it has none").errno(), Errno::ENODATA);
        to.flush()?;
        to.close().await
    });
    let asked = [(Opcode::MdtGetxattr, 1)];
    assert_eq!(sent, both().into_iter().chain(asked).collect());
    let attr = world.run(1, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"to").await);
    assert_eq!(attr.mtime(), mtime);
}

#[test]
fn a_layout_that_another_client_has_changed_is_asked_for() {
    let world = World::new();
    let source = world.source();
    let fid = source.fid();
    let before = world.layout(1, fid);
    assert_eq!(world.layout(0, fid), before);
    world.run(1, async move |client| {
        let file = client.open(&Ctx::root(), fid, flags::O_WRONLY).await?;
        file.write(BORDER, bytes_of(1)).await?;
        file.close().await
    });
    let after = world.layout(1, fid);
    assert_ne!(after, before, "bytes behind the border are in an object");
    assert_eq!(world.layout(0, fid), after);
    world.run(0, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"from").await);
    assert_eq!(world.layout(0, fid), after, "also with attributes that are granted again");
}

/// Components come and go, and the objects are replaced, without an open for writing.
#[test]
fn a_layout_that_another_client_has_reshaped_is_asked_for() {
    let world = World::new();
    world.run(1, async |client| {
        let parts = CompositeTemplate::striped(0, [(BORDER, 1), (2 * BORDER, 1)]);
        let (ctx, flags, parts) = (Ctx::root(), flags::O_WRONLY, Asked::Composite(parts));
        let made = client.create(&ctx, Fid::ROOT, b"from", 0o640, flags, Some(&parts)).await?;
        made.1.write(0, bytes_of(6)).await?;
        made.1.close().await
    });
    let source = world.open_source();
    let fid = source.fid();
    let look = || {
        let now = world.layout(1, fid);
        assert_eq!(world.layout(0, fid), now);
        world.run(0, async |client| client.lookup(&Ctx::root(), Fid::ROOT, b"from").await);
        assert_eq!(world.layout(0, fid), now, "also with attributes that are granted again");
        now
    };
    let made = look();
    world.run(1, async move |client| {
        let more = CompositeTemplate::striped(0, [(END_OF_FILE, 1)]);
        let more = LovComposite::of_dir(&more).expect("a layout").encode();
        client.setxattr(&Ctx::root(), fid, b"lustre.lov.add", more.into(), 0).await
    });
    let longer = look();
    world.run(1, async move |client| {
        let shown = client.getxattr(&Ctx::root(), fid, LOV).await?;
        let mut last = inspect(&shown).expect("components");
        last.entries = last.entries.split_off(2);
        client.setxattr(&Ctx::root(), fid, b"lustre.lov.del", last.encode().into(), 0).await
    });
    let shorter = look();
    world.run(1, async move |client| {
        let two = Asked::from(Template { stripe_count: 2, ..Template::default() });
        client.migrate(&Ctx::root(), fid, Fid::ROOT, &two, &Rc::<Migration>::default()).await
    });
    let moved = look();
    assert!(made != longer && longer != shorter && shorter != moved);
}

/// A list of three entries is a mode; it takes another list away, and does not change its mask.
#[test]
fn an_access_list_that_is_a_mode_takes_the_one_before_away() {
    let (user, owner, group) = ([2 | 6 << 16, 5], [1 | 6 << 16, u32::MAX], [4 | 4 << 16, u32::MAX]);
    let (mask, other) = ([16 | 6 << 16, u32::MAX], [32, u32::MAX]);
    for bytes in [Bytes::new(), bytes_of(6)] {
        let world = World::new();
        let kept = bytes.clone();
        let fid = world.run(0, async move |client| {
            let file = make(client, b"file", kept).await?;
            let [long, short] =
                [acl([owner, user, group, mask, other]), acl([owner, group, other])];
            client.setxattr(&Ctx::root(), file.fid(), ACL, long, 0).await?;
            client.setxattr(&Ctx::root(), file.fid(), ACL, short, 0).await?;
            file.flush()?;
            file.close().await?;
            Ok(file.fid())
        });
        let left =
            world.run(1, async move |client| Ok(client.getxattr(&Ctx::root(), fid, ACL).await));
        assert_eq!(left.expect_err("no list").errno(), Errno::ENODATA);
        world.check(b"file", bytes);
    }
}

/// What the maker knew when its times were sent says nothing of a list that another client has set
/// since.
#[test]
fn a_mode_takes_the_list_of_another_client_away_after_own_times_were_sent() {
    let world = World::new();
    let (user, owner, group) = ([2 | 6 << 16, 5], [1 | 6 << 16, u32::MAX], [4, u32::MAX]);
    let (mask, other) = ([16 | 6 << 16, u32::MAX], [32 | 4 << 16, u32::MAX]);
    let [long, short] = [acl([owner, user, group, mask, other]), acl([owner, group, other])];
    let file = world.run(0, async |client| {
        let (ctx, file) = (Ctx::root(), make(client, b"file", bytes_of(6)).await?);
        let times = SetAttr { mtime: Some(SetTime::At(mtime())), ..SetAttr::default() };
        client.setattr_glance(&ctx, file.fid(), &times, Some(&file)).await?;
        client.getattr(&ctx, file.fid(), Some(&file)).await?;
        Ok(file)
    });
    let fid = file.fid();
    world.run(1, async move |client| client.setxattr(&Ctx::root(), fid, ACL, long, 0).await);
    world.run(0, async move |client| {
        client.setxattr(&Ctx::root(), fid, ACL, short, 0).await?;
        file.flush()?;
        file.close().await
    });
    let (left, attr) = world.run(1, async move |client| {
        let left = client.getxattr(&Ctx::root(), fid, ACL).await;
        Ok((left, client.getattr(&Ctx::root(), fid, None).await?))
    });
    assert_eq!(left.expect_err("no list").errno(), Errno::ENODATA);
    assert_eq!(attr.mode & 0o7777, 0o604);
    world.check(b"file", bytes_of(6));
}

#[test]
fn a_layout_that_is_none_is_refused_for_a_file_that_has_one() {
    let world = World::new();
    let refused = world.run(0, async |client| {
        let file = make(client, b"file", bytes_of(6)).await?;
        let wrong = Bytes::from_static(&[0; 64]);
        let set = client.setxattr(&Ctx::root(), file.fid(), LOV, wrong, 0).await;
        file.close().await?;
        Ok(set)
    });
    assert_eq!(refused.expect_err("no layout").errno(), Errno::EINVAL);
}

#[test]
fn what_was_sent_before_the_close_is_not_sent_with_it() {
    let world = World::new();
    let synced = world.count(async |client| {
        let file = make(client, b"synced", bytes_of(1)).await?;
        file.fsync(false).await?;
        file.close().await
    });
    assert!(synced.contains_key(&Opcode::OstWrite), "{synced:?}");
    world.check(b"synced", bytes_of(1));
    let long = world.count(async |client| {
        make(client, b"long", Bytes::from(vec![5; 100_000])).await?.close().await
    });
    assert!(long.contains_key(&Opcode::OstWrite), "{long:?}");
    world.check(b"long", Bytes::from(vec![5; 100_000]));
}

#[test]
fn a_client_that_opens_its_new_files_again_writes_them_before_the_close() {
    let world = World::new();
    let file = |name: &'static [u8]| {
        world.count(async move |client| {
            make(client, name, bytes_of(2)).await?.close().await?;
            Ok(())
        })
    };
    assert_eq!(file(b"one"), both());
    world.run(0, async |client| read(client, b"one").await);
    assert!(file(b"two").contains_key(&Opcode::OstWrite), "an open had to wait");
    world.cluster.sim.run_for(Span::secs(15));
    file(b"three"); // it may find no room, which rests
    world.cluster.sim.run_for(Span::millis(500));
    assert_eq!(file(b"four"), both());
}

#[test]
fn a_file_that_is_removed_first_changes_nothing_for_others() {
    let world = World::new();
    world.run(0, async |client| {
        let file = make(client, b"gone", bytes_of(1)).await?;
        client.unlink(&Ctx::root(), Fid::ROOT, b"gone").await?;
        file.close().await
    });
    world.cluster.sim.run_for(Span::millis(500)); // its room is there again
    let sent = world.count(async |client| make(client, b"file", bytes_of(2)).await?.close().await);
    assert_eq!(sent, both());
}

/// Another client opens the file while its bytes are kept, or are under way with the close.
#[test]
fn another_client_sees_the_bytes_at_any_time() {
    for late in [0, 20, 50, 100, 150, 200, 300, 500] {
        let world = World::new();
        let file = world.run(0, async |client| make(client, b"file", bytes_of(3)).await);
        let closed = Rc::<Cell<bool>>::default();
        let done = closed.clone();
        world.clients[0].0.env().spawn("close", async move {
            file.close().await.expect("closed");
            done.set(true);
        });
        world.cluster.sim.run_for(Span::micros(late));
        let found = world.run(1, async |client| {
            let ctx = Ctx::root();
            let attr = client.lookup(&ctx, Fid::ROOT, b"file").await?;
            let file = client.open(&ctx, attr.fid(), flags::O_RDWR).await?;
            let found = file.read(0, 1 << 20).await?;
            file.close().await?;
            Ok(found)
        });
        assert_eq!(found, bytes_of(3), "{late} us later");
        assert!(world.cluster.sim.run_until(Span::secs(10), || closed.get()));
    }
}

#[test]
fn files_survive_power_cuts_of_the_mdt() {
    for seed in 1..=8 {
        let world = World::new();
        let closed = Rc::<Cell<u8>>::default();
        let (node, client) = &world.clients[0];
        for number in 0..FILES {
            let (client, closed) = (client.clone(), closed.clone());
            node.env().spawn("file", async move {
                let file = make(&client, &name_of(number), bytes_of(number)).await;
                file.expect("made").close().await.expect("closed");
                closed.set(closed.get() + 1);
            });
        }
        world.cluster.sim.run_for(Span::micros(seed * 150));
        world.cluster.cut_power_of_mdt(0, seed);
        world.cluster.sim.run_for(Span::secs(3));
        world.cluster.cut_power_of_mdt(0, seed + 100);
        world.cluster.sim.run_for(Span::secs(120));
        assert_eq!(closed.get(), FILES, "seed {seed}");
        world.run(1, async |client| {
            for number in 0..FILES {
                let found = read(client, &name_of(number)).await?;
                assert_eq!(found, bytes_of(number), "file {number}");
            }
            Ok(())
        });
    }
}

/// A close that is sent again with its bytes does not replace what was written afterwards.
#[test]
fn bytes_that_were_written_later_stay() {
    for step in 0..8 {
        let world = World::new();
        world.run(0, async |client| {
            make(client, b"file", bytes_of(1)).await?.close().await?;
            let ctx = Ctx::root();
            let attr = client.lookup(&ctx, Fid::ROOT, b"file").await?;
            let file = client.open(&ctx, attr.fid(), flags::O_WRONLY).await?;
            file.write(0, bytes_of(2)).await?;
            file.close().await
        });
        world.cluster.sim.run_for(Span::millis(step * 100));
        world.cluster.restart_mdt(0);
        world.cluster.sim.run_for(Span::secs(60));
        world.check(b"file", bytes_of(2));
    }
}
