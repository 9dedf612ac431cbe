//! Calls that a client answers from its grants, and calls that need a request, counted in messages
//! of a quiet world.

use bytes::Bytes;
use client::{Client, Ctx, Listing, SetAttr};
use cluster::{Cluster, Scenario};
use env_sim::NodeHandle;
use types::{Errno, Fid, Span};

/// One client of a cluster on which nothing else happens.
struct Quiet {
    cluster: Cluster,
    node: NodeHandle,
    client: Client,
}

impl Quiet {
    fn new() -> Quiet {
        let cluster = Cluster::new(1, &Scenario::calm());
        cluster.boot();
        let node = cluster.client_node("c", 0);
        let client = cluster.mount(&node);
        let quiet = Quiet { cluster, node, client };
        quiet.cluster.sim.run_for(Span::secs(1)); // grants of an instance before are over
        quiet
    }

    /// What `work` returns, and whether a message was sent for it.
    fn run<T: 'static, F: Future<Output = T> + 'static>(
        &self,
        work: impl FnOnce(Client) -> F,
    ) -> (T, bool) {
        let sim = &self.cluster.sim;
        let before = sim.faults().delivered;
        let done = sim.block_on_for(&self.node, Span::secs(1), work(self.client.clone()));
        (done.expect("it is answered"), sim.faults().delivered != before)
    }

    fn mkdir(&self, name: &'static [u8]) -> Fid {
        let made =
            self.run(async move |client| client.mkdir(&Ctx::root(), Fid::ROOT, name, 0o755).await);
        made.0.expect("it is made").fid()
    }

    fn create(&self, dir: Fid, name: &'static [u8]) -> Fid {
        let (made, _) = self.run(async move |client| {
            client.create(&Ctx::root(), dir, name, 0o644, 0, None).await.map(|(attr, _)| attr)
        });
        made.expect("it is made").fid()
    }

    /// Whether a getattr of a directory is a request, and how many names it has.
    fn is_asked(&self, dir: Fid) -> bool {
        let (attr, asked) =
            self.run(async move |client| client.getattr(&Ctx::root(), dir, None).await);
        assert!(attr.expect("it is there").is_dir());
        asked
    }

    fn is_asked_for_xattrs(&self, fid: Fid) -> bool {
        let (value, asked) = self.run(async move |client| {
            client.getxattr(&Ctx::root(), fid, b"security.capability").await
        });
        assert_eq!(value.map_err(|error| error.errno()), Err::<Bytes, _>(Errno::ENODATA));
        asked
    }
}

#[test]
fn a_directory_is_not_asked_for_after_a_change_in_it_by_the_same_client() {
    let quiet = Quiet::new();
    let dir = quiet.mkdir(b"dir");
    assert!(!quiet.is_asked(dir), "the answer of the mkdir told it");
    let file = quiet.create(dir, b"file");
    assert!(!quiet.is_asked(dir) && !quiet.is_asked_for_xattrs(file));
    quiet.cluster.sim.run_for(Span::millis(60));
    assert!(quiet.is_asked(dir), "grants end by time");
    assert!(!quiet.is_asked(dir));
    let (gone, _) = quiet.run(async move |client| client.unlink(&Ctx::root(), dir, b"file").await);
    assert!(gone.is_ok() && !quiet.is_asked(dir));
}

#[test]
fn after_a_rename_a_directory_is_asked_for_once() {
    let quiet = Quiet::new();
    let [from, to] = [b"from", b"dest"].map(|name| quiet.mkdir(name));
    quiet.create(from, b"file");
    let (moved, _) = quiet
        .run(async move |client| client.rename(&Ctx::root(), from, b"file", to, b"file", 0).await);
    assert!(moved.is_ok());
    assert_eq!([from, to, from, to].map(|dir| quiet.is_asked(dir)), [true, true, false, false]);
}

#[test]
fn what_a_page_told_of_its_files_is_not_asked_for() {
    let quiet = Quiet::new();
    let dir = quiet.mkdir(b"dir");
    let files = [b"a", b"b", b"c"].map(|name| quiet.create(dir, name));
    quiet.cluster.sim.run_for(Span::secs(2));
    assert!(quiet.is_asked_for_xattrs(files[0]));
    let listing = Listing::new(dir);
    let (page, _) = quiet
        .run(async move |client| client.readdir_leased(&Ctx::root(), &listing, 0, 1 << 16).await);
    assert_eq!(page.expect("it is read").0.entries.len(), 3);
    assert_eq!(files.map(|file| quiet.is_asked_for_xattrs(file)), [false; 3]);
}

#[test]
fn grants_that_are_dropped_are_asked_for_again() {
    let quiet = Quiet::new();
    let dir = quiet.mkdir(b"dir");
    let mode = SetAttr { mode: Some(0o700), ..SetAttr::default() };
    let (set, _) =
        quiet.run(async move |client| client.setattr(&Ctx::root(), dir, &mode, None).await);
    assert!(set.is_ok() && !quiet.is_asked(dir), "its answer told it");
    let held = (quiet.client.grants_held(), quiet.client.grant_hits());
    assert_eq!(held, (2, 1), "the root was told too");
    quiet.client.drop_grants();
    assert_eq!(quiet.client.grants_held(), 0);
    assert_eq!([(); 2].map(|()| quiet.is_asked(dir)), [true, false]);
}
