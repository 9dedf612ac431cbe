//! Targets whose storage has changed: parts of it are gone, or it is an older copy.

use std::fs;
use std::path::{Path, PathBuf};

use daemons::machine::MachineOptions;
use daemons::server::{Among, Awaited, Ended, Server, ServerOptions, Trust};
use daemons::{format, import_meta, server};
use types::{FsName, NidAddr, Span, TargetId};

const MDT: &str = "testfs-MDT0000";
const OST: &str = "testfs-OST0000";
/// A node that registers does so at once.
const PATIENCE: Span = Span::secs(60);

struct Node {
    dir: PathBuf,
    at: NidAddr,
}

impl Drop for Node {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.dir);
    }
}

impl Node {
    /// MGS, MDT and OST in one process, served once.
    fn new(name: &str, host: u8) -> Node {
        let dir = std::env::temp_dir().join(format!("nacre-{name}-{}", std::process::id()));
        let fsname: FsName = "testfs".parse().expect("a name");
        format::run(&format::Options {
            fsname,
            targets: vec![TargetId::MGT, TargetId::mdt(0), TargetId::ost(0)],
            mgs: Vec::new(),
            reformat: false,
            dir: dir.clone(),
        })
        .expect("formats");
        let at = format!("127.0.61.{host}:4988@tcp").parse().expect("an address");
        let node = Node { dir, at };
        node.serve(Trust::Whole).expect("a fresh file system starts");
        node
    }

    fn options(&self, trust: Trust) -> ServerOptions {
        ServerOptions {
            dirs: vec![self.dir.clone()],
            listen: self.at,
            mgs: vec![self.at],
            among: Among::default(),
            abort_recovery: false,
            trust,
            dead_clients: Vec::new(),
            no_permanent: false,
            machine: MachineOptions::default().on_this_machine().expect("any machine"),
            metrics: None,
            commit_interval: Span::secs(1),
            devices: Vec::new(),
            awaited: Awaited { mdts: 1, osts: 1 },
        }
    }

    /// Starts, registers and stops; why not.
    fn serve(&self, trust: Trust) -> Result<(), String> {
        Node::served(self.options(trust))
    }

    fn served(options: ServerOptions) -> Result<(), String> {
        env_os::run(env_os::OsConfig::default(), |env| async move {
            let server =
                Server::start(&env, &options).await.map_err(|error| format!("{error:#}"))?;
            let outcome = tokio::select! {
                biased;
                ended = server.ended() => Err(told(&ended)),
                done = env.timeout(PATIENCE, server.registered()) => done.ok_or_else(|| "silence".to_owned()),
            };
            server.stop().await;
            outcome
        })
    }

    fn part(&self, target: &str, part: &str) -> PathBuf {
        self.dir.join(target).join(part)
    }
}

/// The records of a node's MDT as they are, in a file.
fn export(node: &Node) -> PathBuf {
    let (dir, file) = (node.dir.join(MDT), node.dir.with_extension("export"));
    let superblock = osd_disk::superblock::open(&dir).expect("a target");
    let taken = superblock.created;
    let head = osd_disk::export::Head { superblock, instance: 1, store: 1, taken };
    env_os::run(env_os::OsConfig::default(), |_| async {
        let meta = osd_disk::DiskMeta::open(&dir, &osd_disk::MetaOptions::default());
        let meta = meta.expect("records");
        meta.copy(&file, &head, &std::rc::Rc::default(), async || {}).await.expect("a copy");
    });
    file
}

fn import(node: &Node, file: &Path, reformat: bool) -> Result<(), String> {
    let options = import_meta::Options {
        file: file.to_owned(),
        dir: node.dir.join(MDT),
        mgs: Vec::new(),
        objects: Vec::new(),
        reformat,
    };
    let mut out = Vec::new();
    let done = import_meta::run(&options, &mut out).map_err(|error| format!("{error:#}"));
    assert_eq!(String::from_utf8(out), Ok(String::new()), "nothing is compared");
    done
}

/// A full disk behind stdout.
struct Full;

impl std::io::Write for Full {
    fn write(&mut self, _bytes: &[u8]) -> std::io::Result<usize> {
        Err(std::io::ErrorKind::StorageFull.into())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Err(std::io::ErrorKind::StorageFull.into())
    }
}

#[test]
fn an_import_that_cannot_say_what_differs_has_made_an_mdt() {
    let node = Node::new("import-full", 7);
    let file = export(&node);
    fs::remove_dir_all(node.dir.join(MDT)).expect("removed");
    let list = node.dir.with_extension("list");
    fs::write(&list, format!("{OST} end 0\n")).expect("written");
    let dir = node.dir.join(MDT);
    let objects = vec![list.clone()];
    let options =
        import_meta::Options { file: file.clone(), dir, mgs: Vec::new(), objects, reformat: false };
    let error = import_meta::run(&options, &mut Full).expect_err("stdout is full");
    assert!(format!("{error:#}").contains("can be served"), "{error:#}");
    node.serve(Trust::Whole).expect("starts");
    for path in [file, list] {
        fs::remove_file(path).expect("removed");
    }
}

#[test]
fn an_mdt_is_made_of_an_export_and_never_over_another_one() {
    let node = Node::new("import", 6);
    let file = export(&node);
    node.serve(Trust::Whole).expect("starts");
    node.serve(Trust::Whole).expect("starts again");
    let refused = import(&node, &file, false).expect_err("it is there");
    assert!(refused.contains("holds testfs-MDT0000"), "{refused}");
    fs::remove_dir_all(node.dir.join(MDT)).expect("removed");
    import(&node, &file, false).expect("nothing is there");
    let records = osd_disk::DiskMeta::open(&node.dir.join(MDT), &osd_disk::MetaOptions::default());
    let records = records.expect("opens");
    let breaches = mdt::fsck::fsck(&*osd::MetaStore::running(&*records).expect("ready"));
    assert_eq!(breaches, Ok(Vec::new()));
    drop(records);
    node.serve(Trust::Whole).expect("the MGS takes its higher instance");
    let mut bytes = fs::read(&file).expect("there");
    let middle = bytes.len() / 2;
    bytes[middle] ^= 1;
    let damaged = node.dir.with_extension("damaged");
    fs::write(&damaged, bytes).expect("written");
    let refused = import(&node, &damaged, true).expect_err("damaged");
    assert!(refused.contains("damaged"), "{refused}");
    node.serve(Trust::Whole).expect("nothing was touched");
    // an instance is taken from the clock, and each start raises it by one
    std::thread::sleep(std::time::Duration::from_secs(5));
    import(&node, &file, true).expect("it was said to");
    node.serve(Trust::Whole).expect("starts");
    [file, damaged].iter().for_each(|file| fs::remove_file(file).expect("removed"));
}

fn told(ended: &server::Ended) -> String {
    match ended {
        Ended::Storage(_, text) => format!("storage: {text}"),
        Ended::Refused(_, text) => format!("refused: {text}"),
    }
}

/// Not by a program: between its fork and its exec it has the locks of all tests of this process.
fn copy(from: &Path, to: &Path) {
    if !from.is_dir() {
        fs::copy(from, to).expect("copied");
        return;
    }
    fs::create_dir(to).expect("created");
    for entry in fs::read_dir(from).expect("a directory").flatten() {
        copy(&entry.path(), &to.join(entry.file_name()));
    }
}

#[test]
fn a_target_that_was_served_does_not_start_without_a_part() {
    let node = Node::new("parts", 2);
    let parts = [
        ("MGS", "records/data.mdb"),
        (MDT, "records/data.mdb"),
        (MDT, "records"),
        (OST, "records/data.mdb"),
        (OST, "objects"),
        (OST, "objects/d05"),
    ];
    for (target, part) in parts {
        let (path, aside) = (node.part(target, part), node.dir.join("aside"));
        fs::rename(&path, &aside).expect("it was there");
        let text = node.serve(Trust::Whole).expect_err("a part is missing");
        let shown = path.display().to_string();
        assert!(
            text.contains(target) && text.contains(&shown) && text.contains("--reset-empty"),
            "{text}"
        );
        assert!(!path.exists(), "{shown} was made anew");
        fs::rename(&aside, &path).expect("back");
    }
    let records = node.part(MDT, "records/data.mdb");
    let whole = fs::read(&records).expect("records");
    fs::write(&records, "").expect("emptied");
    let text = node.serve(Trust::Whole).expect_err("an empty file holds no records");
    assert!(text.contains(&records.display().to_string()), "{text}");
    fs::write(&records, whole).expect("back");
    node.serve(Trust::Whole).expect("all parts are back");
}

#[test]
fn a_reset_starts_without_what_is_lost_and_only_then() {
    let node = Node::new("reset", 3);
    let text = node.serve(Trust::ResetEmpty).expect_err("nothing is lost");
    assert!(text.contains("no target here lacks a part"), "{text}");
    fs::remove_dir_all(node.part(MDT, "records")).expect("removed");
    fs::remove_dir_all(node.part(OST, "objects")).expect("removed");
    node.serve(Trust::ResetEmpty).expect("the MGS takes its higher instance");
    node.serve(Trust::Whole).expect("and the next one");
    fs::remove_dir_all(node.part("MGS", "records")).expect("removed");
    fs::remove_dir_all(node.part(OST, "records")).expect("removed");
    node.serve(Trust::ResetEmpty).expect("starts");
    let other = "127.0.61.203:4988@tcp".parse().expect("an address");
    let among = Among { index: 0, others: vec![other] };
    let beside = ServerOptions { among, ..node.options(Trust::ResetEmpty) };
    Node::served(beside).expect("what is lost may be another executor's");
}

#[test]
fn an_older_copy_is_refused_by_the_mgs_until_it_is_said_to_be_one() {
    for (name, host, target) in [("older-mdt", 4, MDT), ("older-ost", 5, OST)] {
        let node = Node::new(name, host);
        let (dir, kept) = (node.dir.join(target), node.dir.with_extension("kept"));
        copy(&dir, &kept);
        node.serve(Trust::Whole).expect("starts");
        node.serve(Trust::Whole).expect("starts again");
        fs::remove_dir_all(&dir).expect("removed");
        fs::rename(&kept, &dir).expect("the copy is put back");
        let text = node.serve(Trust::Whole).expect_err("the MGS knows a later start");
        assert!(text.starts_with("refused:") && text.contains("older copy"), "{text}");
        node.serve(Trust::OlderCopy).expect("it is an older copy");
        node.serve(Trust::Whole).expect("and goes on from there");
    }
}
