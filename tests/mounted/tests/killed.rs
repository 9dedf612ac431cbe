//! Writers that are killed while their write waits at an OST.

use std::fs::{self, OpenOptions};
use std::io::{Seek, Write};
use std::os::unix::process::ExitStatusExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use mounted::Up;

/// Last byte of the slow mount's address.
const SLOW: u8 = 32;
const BYTES: usize = 16 << 20;
/// A killed process is gone well within this, also on a busy machine. Its write waits longer.
const DEATH_MAX: Duration = Duration::from_secs(12);
/// A request of the slow mount waits for twenty seconds behind the one before: what it had under
/// way when its writer was killed would have been made by then.
const LATER: Duration = Duration::from_secs(45);

#[test]
fn a_killed_writers_last_write_does_not_come_over_newer_bytes() {
    let mut up = Up::new("killed");
    let slow = up.second_mount(SLOW);
    let path = up.at("file");
    assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", "1", &path.to_string_lossy()]), "");
    fs::write(&path, vec![b'a'; BYTES]).expect("room");
    up.set("ost.OSS.ost_io.nrs_policies", "tbf nid");
    let rule = format!("start slow nid={{127.0.0.{SLOW}@tcp}} rate=0.05");
    up.set("ost.OSS.ost_io.nrs_tbf_rule", &rule);

    let mut writer = Command::new("dd")
        .args(["if=/dev/zero", "bs=1M", "conv=notrunc", "count=16"])
        .arg(format!("of={}", slow.join("file").display()))
        .stderr(Stdio::null())
        .spawn()
        .expect("dd starts");
    std::thread::sleep(Duration::from_secs(3));
    assert!(writer.try_wait().expect("wait").is_none(), "the rule holds nothing back");
    let start = Instant::now();
    writer.kill().expect("it lives");
    assert_eq!(writer.wait().expect("wait").signal(), Some(libc::SIGKILL));
    assert!(start.elapsed() < DEATH_MAX, "the killed writer is gone after {:?}", start.elapsed());

    let mut file = OpenOptions::new().write(true).open(&path).expect("open");
    let newer = vec![b'b'; BYTES + 4_096];
    file.write_all(&newer).expect("write");
    file.sync_all().expect("fsync");
    assert_eq!(file.stream_position().expect("it is known"), newer.len() as u64);
    drop(file);
    std::thread::sleep(LATER);
    for mount in [up.mount(), &slow] {
        let size = fs::metadata(mount.join("file")).expect("stat").len();
        assert_eq!(size, newer.len() as u64, "through {}", mount.display());
        if mount == slow {
            continue; // its reads wait for their turn, too
        }
        let read = fs::read(mount.join("file")).expect("read");
        let foreign = read.iter().position(|byte| *byte != b'b');
        assert_eq!((read.len(), foreign), (newer.len(), None), "through {}", mount.display());
    }
    up.set("ost.OSS.ost_io.nrs_tbf_rule", "stop slow");
    up.stop();
    up.fsck();
}
