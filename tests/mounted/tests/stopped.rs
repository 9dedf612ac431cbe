//! An OST that does not answer delays only calls that need it (docs/semantics.md).

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::mpsc;
use std::time::Duration;

use mounted::{PATIENCE, Stopped, Up, nacre_bin, shell, until, wait_bounded};

/// What a call may take that needs nothing of the stopped OST, on a busy machine. A call that waits
/// for a client or a server that is away waits for 11 s or longer.
const AT_ONCE: Duration = Duration::from_secs(10);

/// What the space may take that waits 5 s for a target whose connection is there.
const SILENT: Duration = Duration::from_secs(30);

/// Does `work` in `dir`, which must not take long.
fn at_once(dir: &Path, what: &str, work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static) {
    within(AT_ONCE, dir, what, work);
}

fn within(
    bound: Duration,
    dir: &Path,
    what: &str,
    work: impl FnOnce(&Path) -> io::Result<()> + Send + 'static,
) {
    let (dir, (told, hear)) = (dir.to_owned(), mpsc::channel());
    std::thread::spawn(move || told.send(work(&dir)));
    match hear.recv_timeout(bound) {
        Ok(done) => done.unwrap_or_else(|error| panic!("{what}: {error}")),
        Err(_) => panic!("to {what} waits for a server that it does not need"),
    }
}

/// What needs names only.
fn use_names(dir: &Path) {
    at_once(dir, "list", |dir| fs::read_dir(dir)?.try_for_each(|entry| entry.map(drop)));
    at_once(dir, "make", |dir| {
        fs::write(dir.join("new"), "")?;
        fs::create_dir(dir.join("sub"))
    });
    at_once(dir, "move and remove", |dir| {
        fs::rename(dir.join("new"), dir.join("sub/moved"))?;
        fs::remove_file(dir.join("sub/moved"))?;
        fs::remove_dir(dir.join("sub"))
    });
    at_once(dir, "rename", |dir| {
        fs::rename(dir.join("f"), dir.join("g"))?;
        fs::rename(dir.join("g"), dir.join("f"))
    });
    at_once(dir, "change the mode", |dir| {
        fs::set_permissions(dir.join("f"), fs::Permissions::from_mode(0o640))
    });
}

#[test]
fn a_stopped_ost_does_not_stop_the_directory_of_a_file_that_is_written_there() {
    let mut up = Up::new("stopped");
    let second = up.second_mount(21);
    let bare = up.second_mount_with(22, "noreaddirplus");
    let dir = up.at("d");
    fs::create_dir(&dir).expect("mkdir");
    let make = "lfs setstripe -o 0 f && $NACRE lfs setstripe -o 0 alone; echo gone > gone";
    shell(&dir, &format!("NACRE={0}; {0} {make}", nacre_bin().display()));
    let open = |path: PathBuf| OpenOptions::new().write(true).open(path).expect("open");
    let mut alone = open(second.join("d/alone"));
    alone.write_all(&[7; 300]).expect("write");
    let (mut writer, other) = (open(second.join("d/f")), open(bare.join("d/f")));
    writer.write_all(&[7; 5_000]).expect("write");
    let is_sent = || up.param("llite.*.writeback_bytes").lines().all(|bytes| bytes == "0");
    until("nothing is kept any more", is_sent);

    let stopped = Stopped::new(up.server("OST0000"));
    let mut asked: Vec<_> = [&dir, &bare.join("d")]
        .iter()
        .map(|dir| {
            let mut stat = Command::new("stat");
            stat.args(["-c", "%s", "f"]).current_dir(dir).stdout(Stdio::piped());
            stat.spawn().expect("stat starts")
        })
        .collect();
    std::thread::sleep(Duration::from_millis(500));
    for dir in [&dir, &bare.join("d")] {
        use_names(dir);
    }
    at_once(&dir, "remove", |dir| fs::remove_file(dir.join("gone")));
    at_once(&dir, "ask the only writer", |dir| {
        assert_eq!(fs::metadata(dir.join("alone"))?.len(), 300);
        Ok(())
    });
    for stat in &mut asked {
        assert!(stat.try_wait().expect("our child").is_none(), "who knows the size of f?");
    }
    drop(stopped);
    for mut stat in asked {
        assert!(wait_bounded(&mut stat).is_some_and(|status| status.success()), "stat of f");
        let size = io::read_to_string(stat.stdout.take().expect("a pipe")).expect("text");
        assert_eq!(size, "5000\n");
    }
    drop((writer, other, alone));
    up.stop();
}

#[test]
fn closed_files_that_wait_for_a_stopped_ost_hold_up_no_reader() {
    const FILES: usize = 600; // more than the kernel has places for releases
    let mut up = Up::new("stopped-closes");
    let make = "mkdir s && $NACRE lfs setstripe -i 0 -c 1 s && $NACRE lfs setstripe -i 1 -c 1 far";
    shell(up.mount(), &format!("NACRE={0}; {make}", nacre_bin().display()));
    fs::write(up.at("far"), vec![7; 8 << 20]).expect("write");
    up.set("llite.*.unmount_wait", "60");
    shell(up.mount(), "sync; echo 3 > /proc/sys/vm/drop_caches");
    // the OST reserves room behind the first write: it takes later ones before they are sent
    let kept = || up.param("llite.*.writeback_stats").lines().next().map(str::to_owned);
    until("a small write is kept", || {
        let (before, number) = (kept(), fs::read_dir(up.at("s")).expect("readdir").count());
        fs::write(up.at(&format!("s/before{number}")), "asks for room").expect("write");
        std::thread::sleep(Duration::from_millis(300));
        kept() != before
    });
    let stopped = Stopped::new(up.server("OST0000"));
    within(PATIENCE, &up.at("s"), "make files", |dir| {
        (0..FILES).try_for_each(|number| fs::write(dir.join(format!("f{number}")), "kept"))
    });
    at_once(up.mount(), "read from another OST", |dir| {
        assert_eq!(fs::read(dir.join("far"))?.len(), 8 << 20);
        Ok(())
    });
    drop(stopped);
    let read = |number: usize| fs::read(up.at(&format!("s/f{number}"))).expect("read");
    (0..FILES).for_each(|number| assert_eq!(read(number), b"kept", "{number}"));
    up.stop();
}

#[test]
fn the_space_of_a_file_system_is_told_while_its_mdt_is_away() {
    let mut up = Up::new("stopped-mdt");
    fs::write(up.at("f"), "x").expect("write");
    let told = up.tool(&["lfs", "df", "."]);
    assert_eq!(told.matches("[OST:").count(), 4, "{told}");
    let before = rustix::fs::statvfs(up.mount()).expect("the servers live");
    let mdt = up.server("MDT0000");
    let stopped = Stopped::new(mdt);
    within(SILENT, up.mount(), "tell the space", move |dir| {
        let now = rustix::fs::statvfs(dir)?;
        assert_eq!(now.f_blocks, before.f_blocks, "the OSTs live");
        assert!(now.f_files > 0, "the MDT's last word");
        Ok(())
    });
    drop(stopped);
    up.stop();
}
