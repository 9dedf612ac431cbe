//! Names over several MDTs, as two clients see them: remote names, striped directories, and a
//! restart of one MDT.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::rc::Rc;

use client::{Attr, Client, Ctx, Kernel, Listing, SetAttr, flags};
use cluster::{Cluster, Granted, Scenario};
use env::LocalFuture;
use env_sim::NodeHandle;
use layout::dir::{Asked, UNLIMITED};
use types::{Errno, Fid, Span, TargetId};
use wire::Opcode;

/// Clients of a cluster of three MDTs on which nothing else happens.
struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
}

type Done<T> = client::Result<T>;

fn me() -> Ctx {
    Ctx::root()
}

impl World {
    fn new() -> World {
        let scenario = Scenario { granted: Granted::Recall, mdts: (3, 3), ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        World { cluster, clients }
    }

    /// Both have a kernel, which remembers what it was told to forget.
    fn with_kernels() -> (World, [Rc<Told>; 2]) {
        let world = World::new();
        let told = [(); 2].map(|()| Rc::<Told>::default());
        for ((_, client), told) in world.clients.iter().zip(&told) {
            client.serve_kernel(told.clone());
        }
        (world, told)
    }

    fn try_run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> Done<T> + 'static,
    ) -> Result<T, Errno> {
        let (node, client) = &self.clients[at];
        let own = client.clone();
        let done =
            self.cluster.sim.block_on_for(node, Span::secs(60), async move { work(&own).await });
        done.expect("it is answered").map_err(|error| error.errno())
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> Done<T> + 'static,
    ) -> T {
        self.try_run(at, work).expect("it is done")
    }

    /// The same, and whether a message was sent meanwhile.
    fn ask<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> Done<T> + 'static,
    ) -> (T, bool) {
        let before = self.cluster.sim.faults().delivered;
        let answer = self.run(at, work);
        (answer, self.cluster.sim.faults().delivered != before)
    }

    fn mkdir(&self, at: usize, parent: Fid, name: &'static str, asked: &Asked) -> Fid {
        let asked = asked.clone();
        let made = self.run(at, async move |client| {
            client.mkdir_spread(&me(), parent, name.as_bytes(), 0o755, Some(&asked)).await
        });
        made.fid()
    }

    /// A directory at an MDT.
    fn dir(&self, name: &'static str, mdt: i32) -> Fid {
        let dir = self.mkdir(0, Fid::ROOT, name, &Asked { index: mdt, ..Asked::default() });
        assert_eq!(dir.mdt_index(), mdt as u32);
        dir
    }

    /// A directory with a shard at each MDT.
    fn striped(&self, at: usize, name: &'static str) -> Fid {
        let asked = Asked { count: 3, mdts: vec![1, 2, 0], ..Asked::default() };
        self.mkdir(at, Fid::ROOT, name, &asked)
    }

    /// A file with its name in it.
    fn make(&self, at: usize, dir: Fid, name: &str) -> Fid {
        let name = name.as_bytes().to_vec();
        self.run(at, async move |client| {
            let made = client.create(&me(), dir, &name, 0o644, flags::O_RDWR, None).await;
            let (attr, file) = made?;
            file.write(0, name.into()).await?;
            file.close().await?;
            Ok(attr.fid())
        })
    }

    fn make_all(&self, dir: Fid, names: impl Iterator<Item = String>) {
        for name in names {
            self.make(0, dir, &name);
        }
    }

    fn find(&self, at: usize, dir: Fid, name: &str) -> Result<Attr, Errno> {
        let name = name.as_bytes().to_vec();
        self.try_run(at, async move |client| client.lookup(&me(), dir, &name).await)
    }

    fn read(&self, at: usize, dir: Fid, name: &str) -> Vec<u8> {
        let name = name.as_bytes().to_vec();
        self.run(at, async move |client| {
            let created = client.create(&me(), dir, &name, 0o644, flags::O_RDWR, None).await;
            let (_, file) = created?;
            assert!(!file.was_made(), "it is there");
            let bytes = file.read(0, 4_096).await?;
            file.close().await?;
            Ok(bytes.to_vec())
        })
    }

    fn rename(&self, at: usize, from: (Fid, &'static str), to: (Fid, &'static str)) {
        self.run(at, async move |client| {
            let ((dir, name), (new_dir, new)) = (from, to);
            client.rename(&me(), dir, name.as_bytes(), new_dir, new.as_bytes(), 0).await
        });
    }

    fn unlink(&self, at: usize, dir: Fid, name: &str) {
        let name = name.as_bytes().to_vec();
        self.run(at, async move |client| client.unlink(&me(), dir, &name).await);
    }

    fn rmdir(&self, at: usize, dir: Fid, name: &'static str) -> Result<(), Errno> {
        self.try_run(at, async move |client| client.rmdir(&me(), dir, name.as_bytes()).await)
    }

    fn look(&self, at: usize, fid: Fid) -> (Attr, bool) {
        self.ask(at, async move |client| client.getattr(&me(), fid, None).await)
    }

    /// Names of a page and the cookie behind it, nothing at the end.
    fn page(&self, at: usize, dir: Fid, cookie: u64) -> (Vec<String>, Option<u64>) {
        let page = self.run(at, async move |client| client.readdir(&me(), dir, cookie, 0).await);
        let text = |name: &[u8]| String::from_utf8_lossy(name).into_owned();
        let names = page.entries.iter().map(|entry| text(&entry.name)).collect();
        let last = page.entries.last().map(|entry| entry.cookie);
        (names, last.filter(|_| !page.at_end))
    }

    fn list(&self, at: usize, dir: Fid) -> Vec<String> {
        let (mut names, mut next) = self.page(at, dir, 0);
        while let Some(cookie) = next {
            let (more, behind) = self.page(at, dir, cookie);
            names.extend(more);
            next = behind;
        }
        names
    }
}

/// A kernel that forgets at once: which files, and of which their names too.
#[derive(Default)]
struct Told(RefCell<Vec<Fid>>, RefCell<Vec<Fid>>);

impl Kernel for Told {
    fn forget(&self, fid: Fid, names: bool) -> Option<LocalFuture<'static, ()>> {
        self.0.borrow_mut().push(fid);
        if names {
            self.1.borrow_mut().push(fid);
        }
        None
    }

    fn forget_all(&self) -> Option<LocalFuture<'static, ()>> {
        None
    }
}

#[test]
fn a_directory_of_another_mdt_is_used_by_both_clients() {
    let world = World::new();
    let dir = world.dir("far", 1);
    assert_eq!(world.find(1, Fid::ROOT, "far").map(|attr| (attr.fid(), attr.nlink)), Ok((dir, 2)));
    let file = world.make(0, dir, "file");
    assert_eq!(file.mdt_index(), 1, "files are where their directory is");
    assert_eq!(world.find(1, dir, "file").map(|attr| attr.size), Ok(4));
    assert_eq!(world.read(1, dir, "file"), b"file");
    assert_eq!(world.rmdir(1, Fid::ROOT, "far"), Err(Errno::ENOTEMPTY));
    let root = world.look(1, Fid::ROOT).0.nlink;
    world.unlink(1, dir, "file");
    assert_eq!(world.find(0, dir, "file").err(), Some(Errno::ENOENT));
    assert_eq!(world.rmdir(0, Fid::ROOT, "far"), Ok(()));
    assert_eq!(world.find(1, Fid::ROOT, "far").err(), Some(Errno::ENOENT));
    assert_eq!(world.look(1, Fid::ROOT).0.nlink, root - 1);
}

#[test]
fn a_rename_to_another_mdt_is_seen_by_a_client_that_knows_both_names() {
    let (world, _) = World::with_kernels();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    let file = world.make(0, near, "a");
    let replaced = world.make(0, far, "b");
    for (dir, name, fid) in [(near, "a", file), (far, "b", replaced)] {
        assert_eq!(world.find(1, dir, name).map(|attr| attr.fid()), Ok(fid));
    }
    world.rename(0, (near, "a"), (far, "b"));
    for at in [0, 1] {
        assert_eq!(world.find(at, near, "a").err(), Some(Errno::ENOENT), "client {at}");
        assert_eq!(world.find(at, far, "b").map(|attr| (attr.fid(), attr.nlink)), Ok((file, 1)));
        assert_eq!(world.read(at, far, "b"), b"a", "it is opened at its own MDT");
    }
    world.rename(1, (far, "b"), (near, "c"));
    assert_eq!(world.find(0, far, "b").err(), Some(Errno::ENOENT));
    assert_eq!(world.find(0, near, "c").map(|attr| attr.fid()), Ok(file));
}

#[test]
fn a_remote_name_that_is_granted_is_not_asked_for_until_it_goes() {
    let (world, told) = World::with_kernels();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    let file = world.make(0, near, "a");
    world.rename(0, (near, "a"), (far, "b"));
    world.cluster.sim.run_for(Span::secs(2)); // what was just changed is not granted
    let glance = |at: usize| {
        world.ask(at, async move |client| {
            client.lookup_glance(&me(), far, b"b").await.map(|glance| glance.attr)
        })
    };
    glance(1);
    let (attr, is_asked) = glance(1);
    assert_eq!((attr.fid(), is_asked), (file, false), "both MDTs have granted it");
    let set = SetAttr { mode: Some(0o600), ..SetAttr::default() };
    world.run(0, async move |client| client.setattr(&me(), file, &set, None).await);
    let (attr, is_asked) = glance(1);
    assert_eq!((attr.mode & 0o777, is_asked), (0o600, true));
    glance(1);
    world.clients[1].1.told_kernel(file, types::Instant(u64::MAX));
    told[1].0.borrow_mut().clear();
    world.unlink(0, far, "b");
    assert!(told[1].0.borrow().contains(&file), "the kernel forgets it");
    assert_eq!(world.find(1, far, "b").err(), Some(Errno::ENOENT));
    world.cluster.sim.run_for(Span::secs(1));
    assert_eq!(
        world.try_run(1, async move |client| client.getattr(&me(), file, None).await).err(),
        Some(Errno::ESTALE)
    );
}

#[test]
fn a_name_that_a_kernel_moves_to_another_mdt_is_called_back_there() {
    let (world, told) = World::with_kernels();
    let (near, far, third) = (world.dir("near", 0), world.dir("far", 1), world.dir("third", 2));
    let file = world.make(0, third, "a");
    world.rename(0, (third, "a"), (near, "a"));
    world.cluster.sim.run_for(Span::secs(2)); // what was just changed is not granted
    assert_eq!(world.find(0, near, "a").map(|attr| attr.fid()), Ok(file));
    let until = world.cluster.sim.now() + Span::secs(9);
    world.clients[0].1.told_kernel(file, until);
    world.rename(0, (near, "a"), (far, "b"));
    told[0].1.borrow_mut().clear();
    world.rename(1, (far, "b"), (far, "c"));
    assert_eq!(*told[0].1.borrow(), [file], "its kernel still believes the name");
}

#[test]
fn a_name_of_a_file_whose_mdt_grants_it_is_not_looked_up_after_a_move() {
    let moved = |world: &World| {
        let (near, far) = (world.dir("near", 0), world.dir("far", 1));
        let file = world.make(0, near, "a");
        world.cluster.sim.run_for(Span::secs(2));
        world.find(0, near, "a").expect("it is there");
        let before = world.cluster.sim.faults().delivered;
        world.rename(0, (near, "a"), (far, "b"));
        (far, file, world.cluster.sim.faults().delivered - before)
    };
    let (_, _, without_kernel) = moved(&World::new());
    let (world, told) = World::with_kernels();
    let (far, file, messages) = moved(&world);
    assert!(messages < without_kernel + 2, "{messages} messages, not {without_kernel}");
    world.clients[0].1.told_kernel(file, world.cluster.sim.now() + Span::secs(9));
    told[0].1.borrow_mut().clear();
    world.rename(1, (far, "b"), (far, "c"));
    assert_eq!(*told[0].1.borrow(), [file], "the MDT of the file has called its names back");
}

#[test]
fn a_mount_keeps_its_grant_of_a_directory_of_another_mdt_when_it_moves_files_there() {
    let (world, told) = World::with_kernels();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    world.make_all(near, ["a", "b"].into_iter().map(str::to_owned));
    world.cluster.sim.run_for(Span::secs(2));
    assert!(world.find(0, near, "a").is_ok() && world.find(0, near, "b").is_ok());
    let until = world.cluster.sim.now() + Span::secs(9);
    for at in [0, 1] {
        world.look(at, far);
        assert!(!world.look(at, far).1, "client {at} is granted it");
        world.clients[at].1.told_kernel(far, until);
        told[at].0.borrow_mut().clear();
    }
    let has_forgotten = |at: usize| told[at].0.borrow().contains(&far);
    world.rename(0, (near, "a"), (far, "a"));
    assert_eq!([0, 1].map(has_forgotten), [false, true], "the other client's is called back");
    assert_eq!(world.look(0, far).0.size, 1, "it is asked for after the change");
    assert!(!world.look(0, far).1, "once");
    assert!(!is_asked_for_absent(&world, far, "c"), "all names are known");
    world.rename(0, (near, "b"), (far, "c"));
    let found = world.run(0, async move |client| client.lookup_glance(&me(), far, b"c").await);
    assert!(found.attr.is_file() && !has_forgotten(0));
    world.unlink(1, far, "a");
    assert!(has_forgotten(0), "another client has changed it");
    assert_eq!(world.look(0, far).0.size, 1);
}

/// The other MDT may have made the change, and other clients see it.
#[test]
fn a_kernel_forgets_a_directory_of_another_mdt_when_a_move_there_is_not_answered() {
    let (world, told) = World::with_kernels();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    let wide = world.striped(0, "wide");
    let of_mdt_1 = |name: &&'static str| world.make(0, wide, name).mdt_index() == 1;
    let in_shard = ["b", "c", "d", "e", "f", "g", "h", "i"].into_iter().find(of_mdt_1);
    for (dir, name) in [(far, "a"), (wide, in_shard.expect("a shard is there"))] {
        world.make(0, near, "a");
        let before = world.look(0, dir).0.size;
        told.iter().for_each(|told| told.0.borrow_mut().clear());
        let (node, client) = &world.clients[0];
        world.cluster.cut_off_from(node, TargetId::mdt(0));
        let (client, done) = (client.clone(), Rc::new(Cell::new(false)));
        let is_done = Rc::clone(&done);
        node.env().spawn("a move", async move {
            client.rename(&me(), near, b"a", dir, name.as_bytes(), 0).await.expect("it is done");
            is_done.set(true);
        });
        world.cluster.sim.run_for(Span::millis(200));
        assert!(told[0].0.borrow().contains(&dir) && !done.get());
        assert!(!told[0].1.borrow().contains(&dir), "its names stay");
        world.cluster.sim.heal_all();
        world.cluster.sim.run_for(Span::secs(10));
        let grows = u64::from(dir == far);
        assert_eq!((done.get(), world.look(0, dir).0.size), (true, before + grows));
    }
}

#[test]
fn a_link_to_a_file_of_another_mdt_counts_there() {
    let world = World::new();
    let (near, far) = (world.dir("near", 0), world.dir("far", 2));
    let file = world.make(0, near, "a");
    let linked = world.run(1, async move |client| client.link(&me(), file, far, b"b").await);
    assert_eq!((linked.fid(), linked.nlink, linked.size), (file, 2, 1));
    assert_eq!(world.look(0, file).0.nlink, 2);
    world.unlink(0, near, "a");
    assert_eq!(world.find(1, far, "b").map(|attr| attr.nlink), Ok(1));
    assert_eq!(world.read(0, far, "b"), b"a");
}

#[test]
fn names_of_a_striped_directory_are_spread_and_found() {
    let world = World::new();
    let dir = world.striped(0, "wide");
    let names: BTreeSet<String> = (0..60).map(|number| format!("file.{number}")).collect();
    let mdts: BTreeSet<u32> =
        names.iter().map(|name| world.make(0, dir, name).mdt_index()).collect();
    assert_eq!(mdts, BTreeSet::from([0, 1, 2]));
    for name in &names {
        assert_eq!(world.find(1, dir, name).map(|attr| attr.size), Ok(name.len() as u64));
    }
    let listed = world.list(1, dir);
    assert_eq!((listed.len(), listed.into_iter().collect::<BTreeSet<_>>()), (60, names.clone()));
    let subdir = world.mkdir(1, dir, "sub", &Asked::default());
    let (attr, _) = world.look(0, dir);
    assert_eq!((attr.fid(), attr.nlink), (dir, 3), "one subdirectory");
    let up = world.run(0, async move |client| client.readdir(&me(), subdir, 0, 0).await).parent;
    assert_eq!(up, dir, "no shard is seen");
    let up = world.run(0, async move |client| client.readdir(&me(), dir, 0, 0).await).parent;
    assert_eq!(up, Fid::ROOT);
    assert_eq!(world.rmdir(1, Fid::ROOT, "wide"), Err(Errno::ENOTEMPTY));
    assert_eq!(world.rmdir(0, dir, "sub"), Ok(()));
    names.iter().for_each(|name| world.unlink(1, dir, name));
    assert_eq!(world.list(0, dir), [""; 0]);
    assert_eq!(world.rmdir(1, Fid::ROOT, "wide"), Ok(()));
    assert_eq!(world.find(0, Fid::ROOT, "wide").err(), Some(Errno::ENOENT));
}

#[test]
fn calls_that_wait_for_the_shards_of_a_directory_ask_for_them_once() {
    let world = World::new();
    let dir = world.striped(0, "wide");
    let names: Vec<String> = (0..8).map(|number| format!("file.{number}")).collect();
    world.make_all(dir, names.iter().cloned());
    let ((node, client), found) = (&world.clients[1], Rc::new(Cell::new(0)));
    for name in names {
        let (own, found) = (client.clone(), found.clone());
        node.env().spawn("look", async move {
            own.lookup(&me(), dir, name.as_bytes()).await.expect("it is there");
            found.set(found.get() + 1);
        });
    }
    assert!(world.cluster.sim.run_until(Span::secs(10), || found.get() == 8));
    assert_eq!(client.requests().get(&Opcode::MdtGetxattr), Some(&1));
}

#[test]
fn a_listing_of_shards_shows_each_lasting_name_once_whatever_changes() {
    let world = World::new();
    let dir = world.striped(0, "wide");
    let lasting: BTreeSet<String> = (0..80).map(|number| format!("stays.{number}")).collect();
    world.make_all(dir, lasting.iter().cloned());
    world.make_all(dir, (0..80).map(|number| format!("goes.{number}")));
    let (mut seen, mut next, mut number) = (Vec::new(), Some(0), 0);
    while let Some(cookie) = next {
        let (names, behind) = world.page(1, dir, cookie);
        seen.extend(names);
        next = behind;
        if number < 80 {
            world.unlink(0, dir, &format!("goes.{number}"));
            world.make(0, dir, &format!("comes.{number}"));
            number += 1;
        }
    }
    assert!(number > 5, "it takes several pages");
    let stays = |name: &&String| name.starts_with("stays");
    assert_eq!(seen.iter().filter(stays).count(), 80);
    assert_eq!(seen.iter().filter(stays).cloned().collect::<BTreeSet<_>>(), lasting);
    assert_eq!(seen.iter().collect::<BTreeSet<_>>().len(), seen.len(), "none is shown twice");
}

#[test]
fn a_striped_directory_that_is_granted_is_known_until_a_shard_changes() {
    let (world, told) = World::with_kernels();
    let dir = world.striped(0, "wide");
    world.make_all(dir, (0..20).map(|number| format!("file.{number}")));
    let list = |at: usize| {
        world.ask(at, async move |client| {
            let (mut names, mut cookie, listing) = (0, 0, Listing::new(dir));
            loop {
                let (page, _) = client.readdir_leased(&me(), &listing, cookie, 64 << 10).await?;
                names += page.entries.len();
                match page.entries.last() {
                    Some(last) if !page.at_end => cookie = last.cookie,
                    _ => return Ok(names),
                }
            }
        })
    };
    world.look(1, dir);
    list(1);
    assert_eq!((list(1), world.look(1, dir).1), ((20, false), false), "all is granted");
    let (is_absent, is_asked) = world.ask(1, async move |client| {
        let found = client.lookup_glance(&me(), dir, b"absent").await;
        Ok(found.is_err_and(|error| error.errno() == Errno::ENOENT))
    });
    assert!(is_absent && !is_asked, "all names are known");
    world.clients[1].1.told_kernel(dir, types::Instant(u64::MAX));
    world.make(0, dir, "absent");
    assert_eq!(*told[1].0.borrow(), [dir], "the kernel knows no shard");
    assert!(world.find(1, dir, "absent").is_ok());
    assert_eq!(list(1), (21, true));
    let (before, _) = world.look(1, dir);
    world.unlink(1, dir, "absent");
    assert!(world.look(0, dir).0.mtime() > before.mtime(), "times are the newest");
}

#[test]
fn of_a_striped_directory_only_the_shard_that_has_changed_is_asked() {
    let (world, _) = World::with_kernels();
    let dir = world.striped(0, "wide");
    world.look(0, dir);
    assert!(!world.look(0, dir).1, "all is granted");
    world.make(1, dir, "a");
    world.cluster.sim.run_for(Span::secs(2)); // the other client has closed the file
    let before = world.cluster.sim.faults().delivered;
    assert_eq!(world.look(0, dir).0.size, 1);
    let messages = world.cluster.sim.faults().delivered - before;
    assert!((2..4).contains(&messages), "a request and its answer, not {messages} messages");
    assert!(!world.look(0, dir).1, "it is granted again");
}

/// Whether a kernel's lookup of a name that is not there is a request.
fn is_asked_for_absent(world: &World, dir: Fid, name: &'static str) -> bool {
    let (found, is_asked) = world.ask(0, async move |client| {
        let found = client.lookup_glance(&me(), dir, name.as_bytes()).await;
        Ok(found.map(|glance| glance.attr.fid()).map_err(|error| error.errno()))
    });
    assert_eq!(found, Err(Errno::ENOENT), "{name}");
    is_asked
}

#[test]
fn names_that_are_absent_from_new_directories_of_other_mdts_are_not_asked_for() {
    let (world, _) = World::with_kernels();
    for (dir, name) in [(world.dir("far", 1), "far"), (world.striped(0, "wide"), "wide")] {
        let found = world.run(0, async move |client| {
            client.lookup_glance(&me(), Fid::ROOT, name.as_bytes()).await
        });
        assert_eq!(found.attr.fid(), dir);
        for absent in ["a", "b", "c", "d"] {
            assert!(!is_asked_for_absent(&world, dir, absent), "{name}/{absent}: it is empty");
            world.make(0, dir, absent);
        }
        world.unlink(0, dir, "b");
        assert!(!is_asked_for_absent(&world, dir, "b"), "this client has removed it");
        world.make(1, dir, "b");
        assert!(world.find(0, dir, "b").is_ok());
        let found = world.run(0, async move |client| client.lookup_glance(&me(), dir, b"b").await);
        assert!(found.attr.is_file(), "another client may make names");
    }
}

#[test]
fn a_change_of_a_striped_directory_reaches_its_shards() {
    let world = World::new();
    let dir = world.striped(0, "wide");
    let user = || {
        let mut ctx = Ctx::root();
        (ctx.creds.uid, ctx.creds.gid) = (1_000, 1_000);
        ctx
    };
    let make = |name: &'static str| {
        world.try_run(1, async move |client| {
            client.mknod(&user(), dir, name.as_bytes(), 0o644, 0).await.map(drop)
        })
    };
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(make(name), Err(Errno::EACCES));
    }
    let set = SetAttr { mode: Some(0o777), ..SetAttr::default() };
    let attr = world.run(0, async move |client| client.setattr(&me(), dir, &set, None).await);
    assert_eq!((attr.mode & 0o777, attr.nlink), (0o777, 2));
    for name in ["a", "b", "c", "d", "e", "f"] {
        assert_eq!(make(name), Ok(()));
    }
}

#[test]
fn a_default_decides_where_new_directories_go() {
    let world = World::new();
    let dir = world.dir("top", 0);
    let asked = Asked { index: 2, max_inherit: 2, ..Asked::default() };
    let (set, own) = (asked.clone(), asked.clone());
    world.run(0, async move |client| client.set_dir_default(&me(), dir, Some(&set)).await);
    let known = world.run(1, async move |client| client.dir_default(&me(), dir).await);
    assert_eq!(known, Some(asked));
    let made = world.run(1, async move |client| client.mkdir(&me(), dir, b"sub", 0o755).await);
    assert_eq!(made.fid().mdt_index(), 2);
    let sub = made.fid();
    let next = world.run(0, async move |client| client.dir_default(&me(), sub).await);
    assert_eq!(next, own.handed_on());
    world.run(0, async move |client| client.set_dir_default(&me(), dir, None).await);
    assert_eq!(world.run(1, async move |client| client.dir_default(&me(), dir).await), None);
    let made = world.run(1, async move |client| client.mkdir(&me(), dir, b"own", 0o755).await);
    assert_eq!(made.fid().mdt_index(), 0);
    let bad = Asked { index: 77, max_inherit: UNLIMITED, ..Asked::default() };
    let made = world.try_run(0, async move |client| {
        client.mkdir_spread(&me(), dir, b"bad", 0o755, Some(&bad)).await
    });
    assert_eq!(made.err(), Some(Errno::ENODEV));
    let names = world.run(0, async move |client| client.listxattr(&me(), sub).await);
    assert_eq!(names, [b""; 0], "no tool copies it");
}

#[test]
fn one_mdt_serves_while_another_one_restarts() {
    let world = World::new();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    world.make(0, near, "a");
    world.make(0, far, "b");
    let wide = world.striped(0, "wide");
    world.rename(0, (near, "a"), (far, "moved"));
    world.cluster.restart_mdt(1);
    let begun = world.cluster.sim.now();
    world.make(1, near, "c");
    assert!(world.find(0, near, "c").is_ok());
    assert!(world.cluster.sim.now() - begun < Span::millis(100), "it waits for nobody");
    assert_eq!(world.read(1, far, "moved"), b"a", "the rename is there again");
    assert_eq!(world.read(0, far, "b"), b"b");
    world.make_all(wide, (0..20).map(|number| format!("file.{number}")));
    assert_eq!(world.list(0, wide).len(), 20);
}

#[test]
fn a_name_that_was_synced_survives_its_client_and_all_mdts() {
    let world = World::new();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    let file = world.make(0, near, "a");
    world.rename(0, (near, "a"), (far, "moved"));
    world.run(0, async move |client| {
        let file = client.open(&me(), file, flags::O_RDWR).await?;
        file.fsync(false).await?;
        file.close().await
    });
    world.clients[0].0.kill();
    (0..3).for_each(|mdt| world.cluster.restart_mdt(mdt));
    world.cluster.sim.run_for(Span::secs(60)); // its session is over
    assert_eq!(world.find(1, far, "moved").map(|attr| attr.fid()), Ok(file));
    assert_eq!(world.find(1, near, "a").err(), Some(Errno::ENOENT));
}

#[test]
fn a_sync_covers_a_name_that_another_client_made_at_another_mdt() {
    let world = World::new();
    let (near, far) = (world.dir("near", 0), world.dir("far", 1));
    let file = world.make(1, near, "a");
    let sub = world.run(0, async move |client| client.mkdir(&me(), far, b"sub", 0o755).await);
    let sub = sub.fid();
    world.run(0, async move |client| client.link(&me(), file, sub, b"also").await);
    world.run(1, async move |client| {
        let file = client.open(&me(), file, flags::O_RDWR).await?;
        file.fsync(false).await?;
        file.close().await
    });
    world.clients[0].0.kill();
    (0..3).for_each(|mdt| world.cluster.restart_mdt(mdt));
    world.cluster.sim.run_for(Span::secs(60)); // its session is over
    assert_eq!(world.find(1, far, "sub").map(|attr| attr.fid()), Ok(sub));
    assert_eq!(world.find(1, sub, "also").map(|attr| attr.fid()), Ok(file));
}

#[test]
fn names_of_shards_that_were_forgotten_are_synced_with_their_directory() {
    let world = World::new();
    let asked = Asked { count: 3, mdts: vec![0, 1, 2], ..Asked::default() };
    let dir = world.mkdir(0, Fid::ROOT, "wide", &asked);
    world.cluster.sim.run_for(Span::secs(3));
    let names: Vec<String> = (0..12).map(|number| format!("file.{number}")).collect();
    world.make_all(dir, names.iter().cloned());
    world.run(0, async move |client| {
        let heard = client.listen(dir);
        client.setxattr(&me(), dir, b"user.a", "b".into(), 0).await?;
        // attributes of a newer version: its shards may be other ones by now
        client.readdir_leased(&me(), &Listing::new(Fid::ROOT), 0, 64 << 10).await?;
        client.fsync_dir(&me(), dir, &heard).await
    });
    world.clients[0].0.kill();
    (0..3).for_each(|mdt| world.cluster.restart_mdt(mdt));
    world.cluster.sim.run_for(Span::secs(60)); // its session is over
    for name in &names {
        assert!(world.find(1, dir, name).is_ok(), "{name}");
    }
}

#[test]
fn a_sync_of_a_striped_directory_waits_for_no_object_of_a_removed_file() {
    let world = World::new();
    let dir = world.striped(0, "wide");
    let names: Vec<String> = (0..12).map(|number| format!("file.{number}")).collect();
    world.make_all(dir, names.iter().cloned());
    world.cluster.sim.run_for(Span::secs(2)); // the files have objects
    world.cluster.cut_mdts_off_from_osts();
    names.iter().for_each(|name| world.unlink(1, dir, name));
    world.cluster.sim.run_for(Span::secs(1)); // handles at rest are closed
    let begun = world.cluster.sim.now();
    world.run(1, async move |client| {
        let heard = client.listen(dir);
        client.fsync_dir(&me(), dir, &heard).await
    });
    let took = world.cluster.sim.now() - begun;
    assert!(took < Span::secs(1), "{took:?}");
}

#[test]
fn a_fid_of_an_mdt_that_does_not_exist_is_stale() {
    let world = World::new();
    let per_mdt = 1 << types::FID_SEQUENCES_PER_MDT_BITS;
    let absent = Fid::new(types::FID_FIRST_NORMAL_SEQ + 9 * per_mdt, 7);
    let found = world.try_run(0, async move |client| client.getattr(&me(), absent, None).await);
    assert_eq!(found.err(), Some(Errno::ESTALE));
}
