//! Files whose writer has died: the MDT asks their objects itself, so that a later `stat` asks no
//! OST. On a cluster on which nothing else happens.

use std::collections::BTreeMap;

use client::{Client, Ctx, DirPage, Listing, flags};
use cluster::{Cluster, Granted, Scenario};
use env_sim::NodeHandle;
use layout::Asked;
use layout::composite::{CompositeTemplate, END_OF_FILE, TemplateComponent, Wanted};
use types::{Fid, Span};
use wire::Opcode;

const FILES: u64 = 12;

/// Until a silent client is evicted, its fences are told, and the objects of its files are asked.
const REPAIRED_WITHIN: Span = Span::secs(300);

struct World {
    cluster: Cluster,
    clients: [(NodeHandle, Client); 2],
    dir: Fid,
}

impl World {
    /// The first client has files open, each with as many bytes as its number. With `dom` they are
    /// at the MDT.
    fn new(dom: bool) -> World {
        let scenario = Scenario { granted: Granted::Recall, dom, ..Scenario::calm() };
        let (cluster, clients) = Cluster::with_two_clients(&scenario);
        let mut world = World { cluster, clients, dir: Fid::ROOT };
        let asked = dom.then(at_mdt);
        world.dir = world.run(0, async move |client| {
            let me = Ctx::root();
            let dir = client.mkdir(&me, Fid::ROOT, b"dir", 0o755).await?.fid();
            for number in 1..=FILES {
                let name = format!("file{number}");
                let (name, asked) = (name.as_bytes(), asked.as_ref());
                let (_, file) = client.create(&me, dir, name, 0o644, flags::O_RDWR, asked).await?;
                file.write(0, vec![7; number as usize].into()).await?;
                std::mem::forget(file); // it stays open
            }
            Ok(dir)
        });
        world.cluster.sim.run_for(Span::secs(3)); // all is sent, and durable
        world
    }

    fn run<T: 'static>(
        &self,
        at: usize,
        work: impl AsyncFnOnce(&Client) -> client::Result<T> + 'static,
    ) -> T {
        self.cluster.run(&self.clients[at], work)
    }

    fn writer_dies(&self) {
        self.clients[0].0.kill_as(false);
    }

    /// Sizes as the second client lists them, and the requests that it sent for that.
    fn list(&self) -> (BTreeMap<String, u64>, BTreeMap<Opcode, u64>) {
        let dir = self.dir;
        let before = self.clients[1].1.requests();
        let sizes = self.run(1, async move |client| {
            let (me, listing) = (Ctx::root(), Listing::new(dir));
            let mut page: DirPage = client.readdir_on(&me, &listing, 0, 1 << 20).await?;
            client.complete_page(&me, &mut page).await?;
            assert!(page.at_end);
            let size = |name: &[u8], size| (String::from_utf8_lossy(name).into_owned(), size);
            Ok(page.entries.iter().map(|entry| size(&entry.name, entry.attr.size)).collect())
        });
        let mut sent = self.clients[1].1.requests();
        before.into_iter().for_each(|(opcode, count)| *sent.entry(opcode).or_default() -= count);
        sent.retain(|_, count| *count > 0);
        (sizes, sent)
    }

    /// What `lfs getsom` says of a file: 1, the size is exact; 2, it was.
    fn som(&self, name: &'static str) -> u8 {
        let dir = self.dir;
        self.run(1, async move |client| {
            let fid = client.lookup(&Ctx::root(), dir, name.as_bytes()).await?.fid();
            Ok(client.getxattr(&Ctx::root(), fid, b"lustre.som").await?[0])
        })
    }
}

/// A layout with the first bytes at the MDT.
fn at_mdt() -> Asked {
    let border = 64 << 10;
    let mut parts = CompositeTemplate::striped(0, [(border, 1), (END_OF_FILE, 1)]);
    parts.components[0] = TemplateComponent { end: border, wanted: Wanted::Mdt };
    Asked::Composite(parts)
}

fn expected() -> BTreeMap<String, u64> {
    (1..=FILES).map(|number| (format!("file{number}"), number)).collect()
}

#[test]
fn sizes_of_files_whose_writer_died_are_known_without_a_question_to_an_ost() {
    for dom in [false, true] {
        let world = World::new(dom);
        world.writer_dies();
        world.cluster.sim.run_for(REPAIRED_WITHIN);
        let (found, sent) = world.list();
        assert_eq!(found, expected());
        assert_eq!(sent, BTreeMap::from([(Opcode::MdtReaddir, 1)]), "data at the MDT: {dom}");
        assert_eq!(world.som("file7"), 1);
    }
}

#[test]
fn a_restarted_mdt_finds_files_whose_writer_died_before() {
    let world = World::new(false);
    world.writer_dies();
    world.cluster.restart_mdt(0);
    world.cluster.sim.run_for(REPAIRED_WITHIN);
    let (found, sent) = world.list();
    assert_eq!(found, expected());
    assert_eq!(sent.get(&Opcode::OstGlimpse), None, "{sent:?}");
    assert_eq!(world.som("file7"), 1);
}

#[test]
fn a_writer_that_opens_the_file_before_that_wins() {
    let world = World::new(false);
    let dir = world.dir;
    world.writer_dies();
    let opened = world.run(1, async move |client| {
        let me = Ctx::root();
        let fid = client.lookup(&me, dir, b"file7").await?.fid();
        let file = client.open(&me, fid, flags::O_RDWR).await?;
        file.write(7, b"x"[..].into()).await?;
        Ok(file)
    });
    world.cluster.sim.run_for(REPAIRED_WITHIN);
    assert_eq!((world.som("file7"), world.som("file8")), (2, 1), "one is being written");
    world.run(1, async move |_| {
        opened.write(39, b"x"[..].into()).await?;
        opened.close().await
    });
    let (found, sent) = world.list();
    let mut expected = expected();
    expected.insert("file7".to_owned(), 40);
    assert_eq!(found, expected);
    assert_eq!(sent.get(&Opcode::OstGlimpse), None, "{sent:?}");
}
