//! The remaining calls of a local file system. Every case runs on the local file system, which
//! defines the right result. Then it runs on a mount: on striped files, in directories of another
//! MDT and over four MDTs. It also runs on a mount that behaves as on Linux 6.1. All must give the
//! same result.

use std::fs::{self, File, OpenOptions};
use std::io::{Read, Write};
use std::os::unix::fs::{
    FileExt, FileTypeExt, MetadataExt, OpenOptionsExt, PermissionsExt, symlink,
};
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::Path;
use std::process::Command;
use std::time::{Duration, SystemTime};

use fusedev::Channel;
use mounted::posix::{self, Mapping};
use mounted::range::{self, Kind};
use mounted::{PATIENCE, Scratch, Up};
use rustix::fs::StatxFlags;

/// Capabilities that kernels after 6.1 brought (FUSE 7.38 and up): masked, the mount behaves as
/// there.
const AFTER_6_1: u64 = !((1 << 34) - 1);
const KEEP: i32 = libc::FALLOC_FL_KEEP_SIZE;
const PUNCH: i32 = libc::FALLOC_FL_PUNCH_HOLE | KEEP;
const ZERO: i32 = libc::FALLOC_FL_ZERO_RANGE;
const NOBODY: u32 = 65_534;

/// What a case saw, line by line.
#[derive(Default)]
struct Seen(Vec<String>);

impl Seen {
    fn note(&mut self, what: &str, value: impl std::fmt::Debug) {
        self.0.push(format!("{what}: {value:?}"));
    }

    /// Success, or the error's name.
    fn outcome<T>(&mut self, what: &str, outcome: std::io::Result<T>) {
        let number =
            outcome.err().map(|error| error.raw_os_error().expect("an error of the system"));
        self.0.push(format!("{what}: {number:?}"));
    }

    /// What a script prints, run as somebody without privileges.
    fn nobody(&mut self, dir: &Path, script: &str) {
        let words = ["--reuid=65534", "--regid=65534", "--clear-groups", "sh", "-c", script];
        let output =
            Command::new("setpriv").args(words).current_dir(dir).output().expect("setpriv starts");
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        self.note(script, (output.status.code(), text));
    }
}

type Case = (&'static str, fn(&Path, &mut Seen));

const CASES: &[Case] = &[
    ("allocate", room_holes_and_zeros),
    ("seek", data_and_holes),
    ("copy", copies_within_the_file_system),
    ("nameless", files_without_names),
    ("kinds", fifos_sockets_and_devices),
    ("far", files_beyond_4_tib),
    ("mapped", mappings_and_calls_agree),
    ("acl", access_lists),
    ("spaces", attribute_name_spaces),
    ("setid", set_id_bits_fall),
    ("setgid", set_group_id_falls_by_outsiders),
    ("ofd", locks_of_open_files),
    ("sticky", sticky_and_inherited_groups),
    ("times", times_to_the_nanosecond),
    ("statx", what_statx_knows),
    ("flags", flags_that_change_while_open),
    ("exchange", names_are_exchanged),
    ("direct", direct_transfers),
    ("rlimit", the_file_size_limit_holds),
    ("unlinked", what_is_open_works_without_a_name),
    ("opendir", directories_that_are_open_stay_readable),
];

fn see(root: &Path, name: &str, case: fn(&Path, &mut Seen)) -> Vec<String> {
    let dir = root.join(name);
    fs::create_dir(&dir).expect("a directory for the case");
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o755)).expect("chmod");
    let mut seen = Seen::default();
    case(&dir, &mut seen);
    assert!(seen.0.len() > 3, "{name} looks at too little");
    seen.0
}

#[test]
fn a_mount_shows_what_a_local_file_system_shows() {
    let local = Scratch::new("posix-local");
    fs::set_permissions(local.path(), fs::Permissions::from_mode(0o755)).expect("chmod");
    let expected: Vec<_> =
        CASES.iter().map(|(name, case)| see(local.path(), name, *case)).collect();
    for transport in mounted::transports() {
        shows(transport, &expected);
    }
}

fn shows(transport: Channel, expected: &[Vec<String>]) {
    let mut up = Up::over_with(transport, "posix", &["--mdts", "4"]);
    let bare = up.second_mount_with(23, "noreaddirplus");
    let mut roots = vec![
        ("a mount", up.at("plain")),
        ("striped", up.at("striped")),
        ("noreaddirplus", bare.join("p")),
        ("of another MDT", up.at("remote")),
        ("over MDTs", up.at("spread")),
    ];
    if transport == Channel::Classic {
        roots.push(("6.1", up.second_mount_with(24, &format!("caps={AFTER_6_1:#x}")).join("o")));
    }
    let lfs = |line: &str| {
        let words = line.split_whitespace();
        let done = Command::new(mounted::nacre_bin())
            .arg("lfs")
            .args(words)
            .current_dir(up.mount())
            .status();
        assert!(done.expect("lfs starts").success(), "lfs {line}");
    };
    lfs("mkdir -i 1 remote");
    lfs("mkdir -c 4 spread");
    lfs("setdirstripe -D -c 4 spread"); // each case's directory is striped as well
    for (_, root) in roots.iter().filter(|(_, root)| !root.exists()) {
        fs::create_dir(root).expect("mkdir");
    }
    lfs("setstripe -c 4 -S 64k striped");
    for ((name, case), expected) in CASES.iter().zip(expected) {
        eprintln!("case {name} over {transport:?}");
        for (what, root) in &roots {
            let seen = see(root, name, *case);
            assert_eq!(
                &seen, expected,
                "{name} on {what} (left) and on the local file system (right)"
            );
        }
    }
    up.stop();
}

fn create(path: &Path) -> File {
    OpenOptions::new().read(true).write(true).create_new(true).open(path).expect("create")
}

fn size(file: &File) -> u64 {
    file.metadata().expect("fstat").len()
}

/// Digest of the content, and its length.
fn content(path: &Path) -> (usize, u64) {
    let bytes = fs::read(path).expect("read");
    (
        bytes.len(),
        bytes
            .iter()
            .fold(7, |hash: u64, byte| hash.wrapping_mul(1_099_511_628_211) ^ u64::from(*byte)),
    )
}

fn pattern(len: usize) -> Vec<u8> {
    (0..len).map(|at| (at % 251) as u8 | 1).collect()
}

fn room_holes_and_zeros(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    let file = create(&path);
    let blocks = |file: &File| file.metadata().expect("fstat").blocks();
    seen.outcome("keep", range::fallocate(&file, KEEP, 0, 1 << 20));
    seen.note("size, room", (size(&file), blocks(&file) >= 2_048));
    seen.outcome("grow", range::fallocate(&file, 0, 100, 300_000));
    seen.note("size, content", (size(&file), content(&path)));
    file.write_all_at(&pattern(1 << 20), 0).expect("write");
    let before = blocks(&file);
    seen.outcome("punch", range::fallocate(&file, PUNCH, 70_000, 400_000));
    seen.note("content, less room", (content(&path), blocks(&file) < before));
    seen.outcome("punch behind the end", range::fallocate(&file, PUNCH, 5 << 20, 1 << 20));
    seen.outcome("zero", range::fallocate(&file, ZERO | KEEP, 900_000, 1 << 20));
    seen.note("content", content(&path));
    seen.outcome("zero and grow", range::fallocate(&file, ZERO, 1_000_000, 1 << 20));
    seen.note("size, content", (size(&file), content(&path)));
    seen.outcome("nothing", range::fallocate(&file, 0, 0, 0));
    seen.outcome("too far", range::fallocate(&file, 0, i64::MAX.cast_unsigned() - 5, 100));
    seen.outcome("hole without keep", range::fallocate(&file, libc::FALLOC_FL_PUNCH_HOLE, 0, 10));
    seen.outcome("read only", range::fallocate(&File::open(&path).expect("open"), 0, 0, 10));
    seen.outcome("cut", file.set_len(150_000));
    seen.outcome("grow again", range::fallocate(&file, 0, 0, 400_000));
    drop(file);
    seen.note("content", content(&path));
}

fn data_and_holes(dir: &Path, seen: &mut Seen) {
    let file = create(&dir.join("f"));
    seen.outcome("data in nothing", range::seek_data(&file, 0));
    seen.outcome("hole in nothing", range::seek_hole(&file, 0));
    file.write_all_at(&pattern(128 << 10), 1 << 20).expect("write");
    file.write_all_at(&pattern(64 << 10), 3 << 20).expect("write");
    file.set_len(8 << 20).expect("extend");
    for offset in [
        0,
        1 << 20,
        (1 << 20) + 5_000,
        (1 << 20) + (128 << 10),
        3 << 20,
        (3 << 20) + (64 << 10),
        (8 << 20) - 1,
        8 << 20,
        9 << 20,
        u64::MAX,
    ] {
        seen.note("from", offset);
        seen.note("data", range::seek_data(&file, offset).map_err(|error| error.raw_os_error()));
        seen.note("hole", range::seek_hole(&file, offset).map_err(|error| error.raw_os_error()));
    }
    range::fallocate(&file, PUNCH, 1 << 20, 128 << 10).expect("punch");
    seen.note(
        "data after a hole was made",
        range::seek_data(&file, 0).map_err(|error| error.raw_os_error()),
    );
}

fn copies_within_the_file_system(dir: &Path, seen: &mut Seen) {
    let (from, to) = (create(&dir.join("from")), create(&dir.join("to")));
    from.write_all_at(&pattern(3 << 20), 0).expect("write");
    let mut done = 0;
    while done < 3 << 20 {
        let copied = range::copy_range(&from, done, &to, 1_000 + done, (3 << 20) - done as usize)
            .expect("copy");
        assert!(copied > 0, "a copy stands still");
        done += copied as u64;
    }
    seen.note("content", content(&dir.join("to")));
    seen.note(
        "at the end",
        range::copy_range(&from, 3 << 20, &to, 0, 10).map_err(|error| error.raw_os_error()),
    );
    seen.note(
        "short",
        range::copy_range(&from, (3 << 20) - 7, &to, 0, 100).map_err(|error| error.raw_os_error()),
    );
    seen.outcome("onto itself", range::copy_range(&from, 0, &from, 5, 100));
    seen.note(
        "within one",
        range::copy_range(&from, 0, &from, 4 << 20, 100).map_err(|error| error.raw_os_error()),
    );
    let appends = OpenOptions::new().append(true).open(dir.join("to")).expect("open");
    seen.outcome("to one that appends", range::copy_range(&from, 0, &appends, 0, 10));
    seen.outcome("from one for writing", range::copy_range(&appends, 0, &from, 0, 10));
    seen.note("content", (content(&dir.join("from")), content(&dir.join("to"))));
}

fn files_without_names(dir: &Path, seen: &mut Seen) {
    let mut file = range::tmpfile(dir, 0).expect("O_TMPFILE");
    file.write_all(b"nameless").expect("write");
    let meta = file.metadata().expect("fstat");
    seen.note("links, size, mode", (meta.nlink(), meta.len(), meta.mode()));
    seen.note("entries", fs::read_dir(dir).expect("readdir").count());
    range::link_open(&file, &dir.join("named")).expect("a name");
    seen.note(
        "content, links",
        (content(&dir.join("named")), file.metadata().expect("fstat").nlink()),
    );
    seen.outcome("taken", range::link_open(&file, &dir.join("named")));
    seen.outcome("a second name", range::link_open(&file, &dir.join("again")));
    let closed = range::tmpfile(dir, libc::O_EXCL).expect("O_TMPFILE with O_EXCL");
    seen.outcome(
        "a name for one that shall have none",
        range::link_open(&closed, &dir.join("never")),
    );
    let gone = create(&dir.join("gone"));
    fs::remove_file(dir.join("gone")).expect("unlink");
    seen.outcome("a name for one that had one", range::link_open(&gone, &dir.join("never")));
    seen.outcome("in a file", range::tmpfile(&dir.join("named"), 0));
    seen.nobody(dir, "touch x 2>/dev/null");
    seen.note("entries", fs::read_dir(dir).expect("readdir").count());
}

fn fifos_sockets_and_devices(dir: &Path, seen: &mut Seen) {
    for (name, kind, device) in [
        ("null", Kind::CharacterDevice, (1, 3)),
        ("far", Kind::CharacterDevice, (4_095, 1_048_575)),
        ("disk", Kind::BlockDevice, (259, 70_000)),
        ("pipe", Kind::Fifo, (0, 0)),
        ("socket", Kind::Socket, (0, 0)),
        ("plain", Kind::RegularFile, (0, 0)),
    ] {
        seen.outcome(name, range::mknod(&dir.join(name), kind, 0o640, device));
        let meta = fs::symlink_metadata(dir.join(name)).expect("stat");
        seen.note("mode, device", (meta.mode(), meta.rdev(), meta.len()));
    }
    seen.outcome("a taken name", range::mknod(&dir.join("pipe"), Kind::Fifo, 0o600, (0, 0)));
    let pipe = dir.join("pipe");
    let text = std::thread::scope(|scope| {
        let writer = scope.spawn(|| fs::write(&pipe, b"through the pipe"));
        let text = fs::read(&pipe).expect("read");
        writer.join().expect("writer").expect("write");
        text
    });
    seen.note("pipe", String::from_utf8(text));
    let here = dir.parent().and_then(Path::parent).expect("deep enough");
    let short = Scratch::new("s");
    let link = short.path().join("l");
    symlink(dir, &link).expect("a path that is short enough for a socket");
    let listener = UnixListener::bind(link.join("live")).expect("bind");
    seen.note(
        "a socket",
        fs::symlink_metadata(dir.join("live")).expect("stat").file_type().is_socket(),
    );
    let mut stream = UnixStream::connect(link.join("live")).expect("connect");
    stream.write_all(b"hello").expect("send");
    drop(stream);
    let mut text = String::new();
    listener.accept().expect("accept").0.read_to_string(&mut text).expect("receive");
    seen.note("received", text);
    fs::write(dir.join("null"), b"swallowed").expect("the null device");
    seen.note("null", fs::read(dir.join("null")).expect("read").len());
    assert!(here.is_dir());
}

fn files_beyond_4_tib(dir: &Path, seen: &mut Seen) {
    const TIB: u64 = 1 << 40;
    let file = create(&dir.join("f"));
    for place in [1, 4, 5, 12] {
        file.write_all_at(b"far away", place * TIB - 3).expect("a sparse file may be large");
    }
    let meta = file.metadata().expect("fstat");
    seen.note("size, little room", (meta.len(), meta.blocks() < 2_000));
    let mut bytes = [1; 20];
    file.read_exact_at(&mut bytes, 5 * TIB - 10).expect("read over the edge of a hole");
    seen.note("read", bytes);
    seen.note(
        "data",
        range::seek_data(&file, 6 * TIB).map(|at| at / TIB).map_err(|error| error.raw_os_error()),
    );
    seen.outcome("cut", file.set_len(4 * TIB + 1));
    seen.note("size", size(&file));
    seen.outcome("extend", file.set_len(9 * TIB));
    seen.note("size", size(&file));
    seen.outcome("beyond all offsets", file.write_at(b"x", i64::MAX.cast_unsigned()));
}

fn mappings_and_calls_agree(dir: &Path, seen: &mut Seen) {
    let file = create(&dir.join("f"));
    file.write_all_at(&[b'.'; 20_000], 0).expect("write");
    let mut mapping = Mapping::new(&file, 20_000).expect("mmap");
    seen.note("mapped", mapping.bytes()[19_999]);
    mapping.bytes()[8_000..8_005].copy_from_slice(b"store");
    mapping.sync().expect("msync");
    let mut text = [0; 9];
    file.read_exact_at(&mut text, 7_998).expect("read");
    seen.note("a store, read", text);
    file.write_all_at(b"write", 12_000).expect("write");
    seen.note("a write, mapped", mapping.bytes()[11_999..12_006].to_vec());
    let mut second = Mapping::new(&file, 20_000).expect("mmap");
    second.bytes()[0] = b'2';
    seen.note("two mappings", mapping.bytes()[0]);
    drop((mapping, second));
    seen.note("size, content", (size(&file), content(&dir.join("f"))));
    let reader = File::open(dir.join("f")).expect("open");
    seen.outcome("a writable mapping of a read-only file", Mapping::new(&reader, 4_096));
    fs::copy("/bin/true", dir.join("program")).expect("copy");
    fs::set_permissions(dir.join("program"), fs::Permissions::from_mode(0o755)).expect("chmod");
    seen.note("a program", Command::new(dir.join("program")).status().expect("it runs").code());
}

/// Version 2 of the attribute: (tag, permissions, id).
fn acl(entries: &[(u16, u16, u32)]) -> Vec<u8> {
    let mut value = 2_u32.to_le_bytes().to_vec();
    for (tag, perm, id) in entries {
        value.extend_from_slice(&tag.to_le_bytes());
        value.extend_from_slice(&perm.to_le_bytes());
        value.extend_from_slice(&id.to_le_bytes());
    }
    value
}

fn access_lists(dir: &Path, seen: &mut Seen) {
    const NONE: u32 = u32::MAX;
    let (access, default) = ("system.posix_acl_access", "system.posix_acl_default");
    let get =
        |path: &Path, name: &str| posix::getxattr(path, name).map_err(|error| error.raw_os_error());
    let path = dir.join("f");
    fs::write(&path, b"listed").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
    let list = acl(&[(1, 6, NONE), (2, 4, NOBODY), (4, 4, NONE), (16, 4, NONE), (32, 0, NONE)]);
    seen.outcome("set", posix::setxattr(&path, access, &list, 0));
    seen.note("get", get(&path, access));
    seen.nobody(dir, "cat f");
    seen.nobody(dir, "echo x 2>/dev/null >> f");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
    seen.note("after chmod", get(&path, access));
    seen.nobody(dir, "cat f 2>/dev/null");
    seen.outcome(
        "mode by list",
        posix::setxattr(&path, access, &acl(&[(1, 7, NONE), (4, 5, NONE), (32, 1, NONE)]), 0),
    );
    seen.note("mode", (fs::metadata(&path).expect("stat").mode(), get(&path, access)));
    seen.outcome("broken", posix::setxattr(&path, access, &list[..10], 0));
    seen.outcome(
        "no mask",
        posix::setxattr(
            &path,
            access,
            &acl(&[(1, 6, NONE), (2, 4, 5), (4, 4, NONE), (32, 0, NONE)]),
            0,
        ),
    );
    seen.outcome("default on a file", posix::setxattr(&path, default, &list, 0));
    let below = dir.join("d");
    fs::create_dir(&below).expect("mkdir");
    let list = acl(&[(1, 7, NONE), (2, 7, NOBODY), (4, 5, NONE), (16, 7, NONE), (32, 0, NONE)]);
    seen.outcome("default", posix::setxattr(&below, default, &list, 0));
    fs::create_dir(below.join("sub")).expect("mkdir");
    OpenOptions::new()
        .write(true)
        .create(true)
        .truncate(true)
        .mode(0o666)
        .open(below.join("file"))
        .expect("create");
    range::mknod(&below.join("pipe"), Kind::Fifo, 0o666, (0, 0)).expect("mkfifo");
    for name in ["sub", "file", "pipe"] {
        let path = below.join(name);
        seen.note(
            name,
            (fs::metadata(&path).expect("stat").mode(), get(&path, access), get(&path, default)),
        );
    }
    let nameless = range::tmpfile(&below, 0).expect("O_TMPFILE");
    seen.note("nameless", nameless.metadata().expect("fstat").mode());
    seen.outcome("none any more", posix::removexattr(&below, default));
    seen.note("default", get(&below, default));
    seen.nobody(dir, "echo y 2>/dev/null > d/file && cat d/file 2>/dev/null");
}

fn attribute_name_spaces(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    fs::write(&path, b"").expect("create");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o666)).expect("chmod");
    seen.outcome("trusted", posix::setxattr(&path, "trusted.mine", b"1", 0));
    seen.outcome("security", posix::setxattr(&path, "security.mine", b"2", 0));
    seen.outcome("user", posix::setxattr(&path, "user.mine", b"3", 0));
    seen.outcome("no space", posix::setxattr(&path, "mine", b"4", 0));
    seen.outcome("unknown space", posix::setxattr(&path, "odd.mine", b"4", 0));
    for name in ["trusted.mine", "security.mine", "user.mine", "user.none"] {
        seen.note(name, posix::getxattr(&path, name).map_err(|error| error.raw_os_error()));
    }
    seen.nobody(dir, "getfattr --absolute-names -d -m 'user|trusted' f 2>/dev/null");
    seen.nobody(dir, "setfattr -n trusted.a -v 1 f 2>/dev/null");
    seen.nobody(dir, "setfattr -n security.a -v 1 f 2>/dev/null");
    seen.nobody(dir, "setfattr -n user.a -v 1 f && getfattr --only-values -n user.a f");
    symlink("f", dir.join("link")).expect("symlink");
    range::mknod(&dir.join("pipe"), Kind::Fifo, 0o666, (0, 0)).expect("mkfifo");
    seen.outcome("user on a pipe", posix::setxattr(&dir.join("pipe"), "user.a", b"1", 0));
    seen.outcome("trusted on a pipe", posix::setxattr(&dir.join("pipe"), "trusted.a", b"1", 0));
    seen.outcome(
        "a long name",
        posix::setxattr(&path, &format!("user.{}", "n".repeat(251)), b"1", 0),
    );
    seen.outcome("an empty value", posix::setxattr(&path, "user.empty", b"", 0));
    seen.note("empty", posix::getxattr(&path, "user.empty").map_err(|error| error.raw_os_error()));
}

fn set_id_bits_fall(dir: &Path, seen: &mut Seen) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    let mode = |name: &str| fs::metadata(dir.join(name)).map(|meta| meta.mode() & 0o7777).ok();
    let make = |name: &str, mode: u32| {
        fs::write(dir.join(name), b"0123456789").expect("write");
        std::os::unix::fs::chown(dir.join(name), Some(NOBODY), Some(NOBODY)).expect("chown");
        fs::set_permissions(dir.join(name), fs::Permissions::from_mode(mode)).expect("chmod");
    };
    for (name, before, script) in [
        ("write", 0o6775, "echo x >> write"),
        ("nogroupx", 0o6765, "echo x >> nogroupx"),
        ("truncate", 0o6775, "truncate -s 3 truncate"),
        ("otrunc", 0o6775, "echo x > otrunc"),
        ("chmod", 0o6775, "chmod 2755 chmod"),
        ("alloc", 0o6775, "fallocate -l 100 alloc"),
        ("read", 0o6775, "cat read >/dev/null"),
        ("touch", 0o6775, "touch touch"),
    ] {
        make(name, before);
        seen.nobody(dir, script);
        seen.note("mode", mode(name));
    }
    make("root", 0o6775);
    OpenOptions::new()
        .append(true)
        .open(dir.join("root"))
        .expect("open")
        .write_all(b"x")
        .expect("write");
    seen.note("root writes", mode("root"));
    make("chown", 0o6775);
    std::os::unix::fs::chown(dir.join("chown"), Some(1), Some(1)).expect("chown");
    seen.note("chown by root", mode("chown"));
    make("capable", 0o755);
    let capability = [1_u8, 0, 0, 2, 0, 4, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0];
    seen.outcome(
        "a capability",
        posix::setxattr(&dir.join("capable"), "security.capability", &capability, 0),
    );
    seen.nobody(dir, "echo x >> capable");
    seen.note(
        "after a write",
        posix::getxattr(&dir.join("capable"), "security.capability").map_err(|e| e.raw_os_error()),
    );
    posix::setxattr(&dir.join("capable"), "security.capability", &capability, 0).expect("setxattr");
    std::os::unix::fs::chown(dir.join("capable"), Some(1), Some(1)).expect("chown");
    seen.note(
        "after chown",
        posix::getxattr(&dir.join("capable"), "security.capability").map_err(|e| e.raw_os_error()),
    );
}

type Way<'a> = (&'static str, &'a (dyn Fn(&File) + Sync));

/// Each way to change what a file holds; by a member of its group and by somebody else; through a
/// handle of one's own, and of root's.
fn set_group_id_falls_by_outsiders(dir: &Path, seen: &mut Seen) {
    const GROUP: u32 = 1_234;
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    let source = create(&dir.join("source"));
    source.write_all_at(b"copied", 0).expect("write");
    let path = dir.join("f");
    let open = || OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let ways: [Way<'_>; 8] = [
        ("write", &|file| file.write_all_at(b"x", 0).expect("write")),
        ("truncate", &|file| file.set_len(3).expect("truncate")),
        ("allocate", &|file| range::fallocate(file, 0, 0, 100).expect("fallocate")),
        ("punch", &|file| range::fallocate(file, PUNCH, 0, 5).expect("punch")),
        ("zero", &|file| range::fallocate(file, ZERO, 0, 5).expect("zero")),
        ("copy", &|file| assert_eq!(range::copy_range(&source, 0, file, 0, 6).expect("copy"), 6)),
        ("empty", &|_| {
            drop(OpenOptions::new().write(true).truncate(true).open(&path).expect("open"))
        }),
        ("read", &|file| file.read_exact_at(&mut [0; 5], 0).expect("read")),
    ];
    for (way, change) in ways {
        for mode in [0o6666, 0o6676, 0o2666, 0o4666] {
            for group in [GROUP, NOBODY] {
                for own in [true, false] {
                    fs::write(&path, b"0123456789").expect("write");
                    std::os::unix::fs::chown(&path, Some(1), Some(GROUP)).expect("chown");
                    fs::set_permissions(&path, fs::Permissions::from_mode(mode)).expect("chmod");
                    let roots = open();
                    posix::as_user(NOBODY, group, || {
                        if own { change(&open()) } else { change(&roots) }
                    });
                    let after = fs::metadata(&path).expect("stat").mode() & 0o7777;
                    seen.note(way, format!("{mode:o} by {group}, own handle {own}: {after:o}"));
                }
            }
        }
    }
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6666)).expect("chmod");
    posix::as_user(1, NOBODY, || std::os::unix::fs::chown(&path, None, Some(NOBODY)))
        .expect("the owner's own group");
    seen.note(
        "owner outside of the group gives it away",
        fs::metadata(&path).expect("stat").mode(),
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o6666)).expect("chmod");
    posix::as_user(1, NOBODY, || std::os::unix::fs::chown(&path, None, Some(NOBODY)))
        .expect("the same group again");
    seen.note("a member gives it to the same", fs::metadata(&path).expect("stat").mode());
}

/// Locks that belong to the open file: they stay while any descriptor of it is open, and go with
/// the last one.
fn locks_of_open_files(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    let first = create(&path);
    let second = OpenOptions::new().read(true).write(true).open(&path).expect("open");
    let lock =
        |file: &File, start| posix::fcntl_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK, start, 10);
    seen.outcome("lock", lock(&first, 0));
    seen.outcome("the same of another file", lock(&second, 5));
    seen.outcome("another of another file", lock(&second, 10));
    seen.outcome("by the process", posix::fcntl_lock(&second, libc::F_SETLK, libc::F_WRLCK, 0, 10));
    let _kernels_differ = posix::ask_for_own_locks(&first);
    seen.outcome("after a question about own locks", lock(&second, 5));
    let again = first.try_clone().expect("dup");
    drop(first);
    seen.outcome("while a descriptor is left", lock(&second, 5));
    drop(File::open(&path).expect("open"));
    seen.outcome("after a close of something else", lock(&second, 5));
    drop(again);
    let start = std::time::Instant::now();
    while lock(&second, 5).is_err() && start.elapsed() < PATIENCE {
        // the kernel tells of a last close when it comes to it
        std::thread::sleep(Duration::from_millis(5));
    }
    seen.outcome("when none is left", lock(&second, 5));
    seen.outcome("unlock", posix::fcntl_lock(&second, libc::F_OFD_SETLK, libc::F_UNLCK, 0, 0));
    seen.note("a conflict", posix::fcntl_conflict(&second).ok());
}

fn directories_that_are_open_stay_readable(dir: &Path, seen: &mut Seen) {
    fs::set_permissions(dir, fs::Permissions::from_mode(0o777)).expect("chmod");
    let names = |entries: fs::ReadDir| {
        let names = entries.map(|entry| Ok::<_, std::io::Error>(entry?.file_name()));
        names.collect::<Result<Vec<_>, _>>().map_err(|error| error.raw_os_error())
    };
    for (mode, user) in [(0o700, 65_534), (0, 65_534), (0, 0)] {
        let of_mode = dir.join(format!("{mode:o}-{user}"));
        let opened = posix::as_user(65_534, 65_534, || {
            fs::create_dir(&of_mode).expect("mkdir");
            fs::write(of_mode.join("entry"), b"").expect("write");
            let opened = fs::read_dir(&of_mode).expect("opens");
            fs::set_permissions(&of_mode, fs::Permissions::from_mode(mode)).expect("chmod");
            if user == 65_534 { Err(names(opened)) } else { Ok(opened) }
        });
        let found = opened.map_or_else(|found| found, names);
        seen.note(&format!("read by {user} after chmod {mode:o}"), found);
    }
    let secret = dir.join("secret");
    fs::create_dir(&secret).expect("mkdir");
    fs::write(secret.join("entry"), b"").expect("write");
    fs::set_permissions(&secret, fs::Permissions::from_mode(0o700)).expect("chmod");
    let opened = fs::read_dir(&secret).expect("opens");
    let found = posix::as_user(65_534, 65_534, || names(opened));
    seen.note("opened by root and read by another user", found);
}

fn sticky_and_inherited_groups(dir: &Path, seen: &mut Seen) {
    let tmp = dir.join("tmp");
    fs::create_dir(&tmp).expect("mkdir");
    fs::set_permissions(&tmp, fs::Permissions::from_mode(0o1777)).expect("chmod");
    fs::write(tmp.join("roots"), b"r").expect("write");
    fs::write(tmp.join("other"), b"r").expect("write");
    seen.nobody(dir, "rm -f tmp/roots 2>/dev/null");
    seen.nobody(dir, "mv tmp/roots tmp/mine 2>/dev/null");
    seen.nobody(dir, "echo 1 > tmp/mine && mv -T tmp/mine tmp/other 2>/dev/null; ls tmp");
    seen.nobody(dir, "rm tmp/mine && ls tmp");
    let shared = dir.join("shared");
    fs::create_dir(&shared).expect("mkdir");
    std::os::unix::fs::chown(&shared, None, Some(1_234)).expect("chown");
    fs::set_permissions(&shared, fs::Permissions::from_mode(0o2777)).expect("chmod");
    seen.nobody(dir, "umask 022; mkdir shared/d; touch shared/f; mkfifo shared/p; stat -c '%g %a' shared/d shared/f shared/p");
    seen.nobody(dir, "cd shared && touch g && chmod 2755 g && stat -c '%g %a' g");
    seen.nobody(dir, "chgrp 1234 shared/f 2>/dev/null");
}

fn times_to_the_nanosecond(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    let file = create(&path);
    let times =
        |meta: fs::Metadata| ((meta.atime(), meta.atime_nsec()), (meta.mtime(), meta.mtime_nsec()));
    let at = |seconds: i64, nanos: u32| {
        let span = Duration::new(seconds.unsigned_abs(), 0);
        let base =
            if seconds < 0 { SystemTime::UNIX_EPOCH - span } else { SystemTime::UNIX_EPOCH + span };
        base + Duration::new(0, nanos)
    };
    for (atime, mtime) in [
        ((1, 1), (2, 999_999_999)),
        ((-5, 500), (-1_000_000_000, 7)),
        ((4_294_967_296, 3), (8_589_934_592, 4)),
    ] {
        let set = fs::FileTimes::new()
            .set_accessed(at(atime.0, atime.1))
            .set_modified(at(mtime.0, mtime.1));
        seen.outcome("set", file.set_times(set));
        seen.note("times", times(fs::metadata(&path).expect("stat")));
    }
    seen.outcome("read", file.read_at(&mut [0], 0));
    seen.outcome("one of them", file.set_times(fs::FileTimes::new().set_accessed(at(77, 78))));
    seen.note("times", times(fs::metadata(&path).expect("stat")));
    drop(file);
    seen.note("after the close", times(fs::metadata(&path).expect("stat")));
    let before = fs::metadata(&path).expect("stat");
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&path, b"x").expect("write");
    let after = fs::metadata(&path).expect("stat");
    seen.note(
        "mtime and ctime move",
        after.modified().ok() > before.modified().ok() && after.ctime_nsec() != before.ctime_nsec(),
    );
    fs::set_permissions(&path, fs::Permissions::from_mode(0o600)).expect("chmod");
    let last = fs::metadata(&path).expect("stat");
    seen.note(
        "chmod moves ctime only",
        (last.mtime_nsec() == after.mtime_nsec(), last.ctime_nsec() != after.ctime_nsec()),
    );
}

fn what_statx_knows(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    fs::write(&path, b"12345").expect("create");
    symlink("f", dir.join("link")).expect("symlink");
    let first = range::statx(&path).expect("statx");
    let known = StatxFlags::BASIC_STATS | StatxFlags::BTIME;
    seen.note("known", StatxFlags::from_bits_retain(first.stx_mask).contains(known));
    let time = |time: rustix::fs::StatxTimestamp| (time.tv_sec, time.tv_nsec);
    seen.note(
        "born before it changed",
        time(first.stx_btime) <= time(first.stx_mtime) && first.stx_btime.tv_sec > 1_700_000_000,
    );
    std::thread::sleep(Duration::from_millis(20));
    fs::write(&path, b"123456789").expect("write");
    fs::set_permissions(&path, fs::Permissions::from_mode(0o640)).expect("chmod");
    let second = range::statx(&path).expect("statx");
    seen.note("the birth stays", time(first.stx_btime) == time(second.stx_btime));
    seen.note("the change moves", time(first.stx_ctime) < time(second.stx_ctime));
    let stat = fs::metadata(&path).expect("stat");
    let basic = (
        second.stx_size,
        u32::from(second.stx_mode),
        second.stx_nlink,
        second.stx_uid,
        second.stx_gid,
    );
    seen.note("as statx", basic);
    seen.note(
        "as stat",
        (stat.ino() == second.stx_ino, stat.mtime_nsec() == i64::from(second.stx_mtime.tv_nsec)),
    );
    seen.note(
        "a link",
        range::statx(&dir.join("link")).map(|link| (link.stx_size, link.stx_mode)).ok(),
    );
    seen.outcome("nothing", range::statx(&dir.join("none")));
}

fn flags_that_change_while_open(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    let file = OpenOptions::new().append(true).create_new(true).open(&path).expect("open");
    seen.note("appends", file.write_at(b"0123456789", 3).map_err(|error| error.raw_os_error()));
    seen.note("appends", file.write_at(b"abc", 0).map_err(|error| error.raw_os_error()));
    seen.outcome("off", range::set_append(&file, false));
    seen.note("in its place", file.write_at(b"X", 1).map_err(|error| error.raw_os_error()));
    seen.note("text", fs::read_to_string(&path).ok());
    seen.outcome("on", range::set_append(&file, true));
    seen.note("appends", file.write_at(b"end", 0).map_err(|error| error.raw_os_error()));
    seen.note(
        "durable",
        range::write_durable(&file, b"!", 0).map_err(|error| error.raw_os_error()),
    );
    seen.note("text", fs::read_to_string(&path).ok());
}

fn names_are_exchanged(dir: &Path, seen: &mut Seen) {
    fs::create_dir_all(dir.join("d/below")).expect("mkdir");
    fs::write(dir.join("f"), b"file").expect("write");
    seen.outcome(
        "a file and a directory",
        posix::rename2(&dir.join("f"), &dir.join("d"), libc::RENAME_EXCHANGE),
    );
    seen.note(
        "kinds",
        (dir.join("f").is_dir(), dir.join("d").is_file(), dir.join("f/below").is_dir()),
    );
    fs::create_dir(dir.join("e")).expect("mkdir");
    seen.outcome(
        "between directories",
        posix::rename2(&dir.join("f/below"), &dir.join("d"), libc::RENAME_EXCHANGE),
    );
    seen.note(
        "links",
        (
            fs::metadata(dir).expect("stat").nlink(),
            fs::metadata(dir.join("f")).expect("stat").nlink(),
        ),
    );
    seen.outcome(
        "with nothing",
        posix::rename2(&dir.join("e"), &dir.join("none"), libc::RENAME_EXCHANGE),
    );
    seen.outcome(
        "with what is above",
        posix::rename2(&dir.join("f"), &dir.join("f/below"), libc::RENAME_EXCHANGE),
    );
    seen.outcome(
        "both flags",
        posix::rename2(
            &dir.join("e"),
            &dir.join("d"),
            libc::RENAME_EXCHANGE | libc::RENAME_NOREPLACE,
        ),
    );
}

fn direct_transfers(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    let file = OpenOptions::new()
        .read(true)
        .write(true)
        .create_new(true)
        .custom_flags(libc::O_DIRECT)
        .open(&path)
        .expect("open");
    let mut space = vec![0_u8; (1 << 20) + 4_096];
    let start = space.as_ptr().align_offset(4_096);
    let buffer = &mut space[start..start + (1 << 20)];
    buffer.copy_from_slice(&pattern(1 << 20));
    for (offset, len) in [(0, 1 << 20), (1 << 20, 4_096), (4 << 20, 1 << 20), (512 << 10, 64 << 10)]
    {
        seen.note(
            "written",
            file.write_at(&buffer[..len], offset).map_err(|error| error.raw_os_error()),
        );
    }
    buffer.fill(0);
    seen.note(
        "read",
        file.read_at(&mut buffer[..8_192], (4 << 20) - 4_096).map_err(|error| error.raw_os_error()),
    );
    seen.note("a hole, then data", (buffer[4_095], buffer[4_096..4_100].to_vec()));
    seen.note(
        "read at the end",
        file.read_at(&mut buffer[..8_192], (5 << 20) - 4_096).map_err(|error| error.raw_os_error()),
    );
    seen.note("content", content(&path));
}

fn the_file_size_limit_holds(dir: &Path, seen: &mut Seen) {
    let script = "trap '' XFSZ; ulimit -f 8; head -c 20000 /dev/zero > f 2>/dev/null; stat -c %s f; truncate -s 20000 f 2>/dev/null || echo no; \
                  fallocate -l 20000 f 2>/dev/null || echo no; stat -c %s f; truncate -s 100 f && stat -c %s f; echo more >> f && stat -c %s f";
    let output = Command::new("bash").args(["-c", script]).current_dir(dir).output().expect("bash");
    for line in String::from_utf8_lossy(&output.stdout).lines() {
        seen.note("limited", line);
    }
}

fn what_is_open_works_without_a_name(dir: &Path, seen: &mut Seen) {
    let path = dir.join("f");
    let file = create(&path);
    fs::remove_file(&path).expect("unlink");
    file.write_all_at(b"still here", 0).expect("write");
    seen.note("links, size", (file.metadata().expect("fstat").nlink(), size(&file)));
    seen.outcome("chmod", file.set_permissions(fs::Permissions::from_mode(0o600)));
    seen.outcome("truncate", file.set_len(5));
    seen.outcome("allocate", range::fallocate(&file, 0, 0, 100));
    seen.outcome("sync", file.sync_all());
    seen.outcome("syncfs", range::syncfs(&file));
    // Space is told at any moment, also while the metadata server commits.
    let told = (0..200).filter(|round| {
        let _ = fs::write(dir.join("g"), [*round as u8]);
        posix::statvfs(dir).is_ok()
    });
    seen.note("statvfs", told.count());
    let mut text = [1; 8];
    seen.note("read", file.read_at(&mut text, 0).map_err(|error| error.raw_os_error()));
    seen.note("content", text);
    let reopened = File::open(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&file)));
    seen.note(
        "opened again",
        reopened.map(|file| size(&file)).map_err(|error| error.raw_os_error()),
    );
    let below = dir.join("d");
    fs::create_dir(&below).expect("mkdir");
    fs::create_dir(dir.join("e")).expect("mkdir");
    let open = File::open(&below).expect("open");
    fs::rename(dir.join("e"), &below).expect("rename over an empty directory");
    let meta = open.metadata().expect("fstat of a directory that was replaced");
    seen.note("a replaced directory", (meta.nlink(), meta.mode(), meta.uid()));
    fs::write(&path, b"another").expect("the name is free");
    seen.note("apart", (size(&file), content(&path).0));
}
