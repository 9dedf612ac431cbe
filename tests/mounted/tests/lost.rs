//! Objects that an OST has lost (a disk replaced by an old copy): their files report it, and
//! nothing else is affected.

use std::fs::{self, OpenOptions};
use std::io::{self, Write};
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};
use std::process::Command;

use mounted::{Up, nacre_bin};

const OST: &str = "OST0001";

fn is_eio<T>(outcome: io::Result<T>) -> bool {
    outcome.is_err_and(|error| error.raw_os_error() == Some(libc::EIO))
}

/// All objects of the OST.
fn objects(up: &Up) -> Vec<PathBuf> {
    let dirs = fs::read_dir(up.target(OST).join("objects"))
        .expect("objects")
        .map(|dir| dir.expect("readdir").path());
    dirs.flat_map(|dir| {
        fs::read_dir(dir)
            .expect("a directory of objects")
            .map(|object| object.expect("readdir").path())
    })
    .collect()
}

/// Writes a file of one stripe on the OST; tells its object.
fn write(up: &Up, path: &Path, data: &[u8]) -> PathBuf {
    let known = objects(up);
    assert_eq!(up.tool(&["lfs", "setstripe", "-c", "1", "-i", "1", &path.to_string_lossy()]), "");
    let written = fs::File::create(path).and_then(|mut file| {
        file.write_all(data)?;
        file.sync_all()
    });
    written.expect("write");
    let mut made = objects(up).into_iter().filter(|object| !known.contains(object));
    let object = made.next().expect("the file has an object there");
    assert!(made.next().is_none(), "one stripe is one object");
    object
}

#[test]
fn a_lost_object_is_an_error_until_written_or_removed() {
    let mut up = Up::new("lost");
    let names = ["kept", "cut", "opened", "removed", "partly", "moved"];
    let [kept, cut, opened, removed, partly, moved] = names.map(|name| up.at(name));
    write(&up, &kept, b"kept");
    let lost =
        [&cut, &opened, &removed, &partly, &moved].map(|path| write(&up, path, &[7; 100_000]));
    up.stop();
    lost.iter().for_each(|object| fs::remove_file(object).expect("it was there"));
    up.start_again(&[]);

    assert_eq!(fs::read(&kept).expect("another object of this OST"), b"kept");
    for path in [&cut, &opened, &removed] {
        assert_eq!(
            fs::metadata(path).expect("stat").len(),
            100_000,
            "names and attributes are the MDT's"
        );
        assert!(is_eio(fs::read(path)), "{}", path.display());
        assert!(is_eio(
            OpenOptions::new().append(true).open(path).and_then(|mut file| file.write_all(b"more"))
        ));
        assert!(is_eio(
            OpenOptions::new().write(true).open(path).and_then(|file| file.set_len(50))
        ));
    }
    assert_eq!(up.tool(&["lfs", "getstripe", "-i", &cut.to_string_lossy()]).trim(), "1");
    fs::set_permissions(&opened, fs::Permissions::from_mode(0o600)).expect("chmod");
    fs::rename(&removed, up.at("renamed")).expect("rename");
    assert_eq!(fs::read_dir(up.mount()).expect("readdir").count(), 6);
    let text = fs::read_to_string(up.data().join("log").join(format!("testfs-{OST}.log")))
        .unwrap_or_else(|_| up.log_text());
    assert!(
        text.contains("an object that must be here is missing"),
        "nobody told the administrator:\n{text}"
    );

    let line = ["lfs", "migrate", "-c", "2", &moved.to_string_lossy()];
    let migrated = Command::new(nacre_bin()).args(line).output().expect("nacre starts");
    assert!(!migrated.status.success(), "a copy would lack the lost bytes: {migrated:?}");
    assert_eq!(fs::metadata(&moved).expect("stat").len(), 100_000);
    assert!(is_eio(fs::read(&moved)), "it is as it was");

    fs::write(&opened, b"written anew").expect("O_TRUNC");
    assert_eq!(fs::read(&opened).expect("it is whole again"), b"written anew");
    OpenOptions::new()
        .write(true)
        .open(&cut)
        .and_then(|file| file.set_len(0))
        .expect("nothing of it is needed");
    assert_eq!(fs::read(&cut).expect("an empty file"), b"");
    fs::remove_file(up.at("renamed")).expect("unlink");

    // what is not promised: made longer it is refused, and the size is told all the same
    let file = OpenOptions::new().read(true).write(true).open(&partly).expect("open");
    assert!(is_eio(file.set_len(200_000)));
    assert_eq!(fs::metadata(&partly).expect("stat").len(), 200_000);
    file.write_all_at(b"new", 50_000).expect("it is made anew");
    let data = fs::read(&partly).expect("it is there again");
    assert_eq!(&data[50_000..50_003], b"new");
    assert!(data[..50_000].iter().all(|byte| *byte == 0), "what was not written is zeros");
    up.stop();
}
