//! File handles, as NFS servers store them, across mounts (docs/posix.md).

use std::fs;
use std::io;
use std::path::Path;
use std::process::Command;

use mounted::posix::FileHandle;
use mounted::{Up, nacre_bin};

fn of(path: &Path) -> FileHandle {
    FileHandle::of(path).expect("name_to_handle_at")
}

/// The file's bytes, or the number of the error.
fn read(mount: &Path, handle: &FileHandle) -> Result<String, Option<i32>> {
    let opened = handle.open(mount).and_then(io::read_to_string);
    opened.map_err(|error| error.raw_os_error())
}

#[test]
fn a_file_handle_names_its_file_on_every_mount_or_none() {
    let mut up = Up::new("handles");
    fs::create_dir_all(up.at("dir/sub")).expect("mkdir");
    for name in ["a", "b", "dir/sub/c"] {
        fs::write(up.at(name), name).expect("write");
    }
    let mount = up.second_mount(21);
    let handles = ["a", "b", "dir/sub/c"].map(|name| (name, of(&mount.join(name))));
    let sub = of(&mount.join("dir/sub"));
    let hold = |mount: &Path, why: &str| {
        for (name, handle) in &handles {
            assert_eq!(read(mount, handle).as_deref(), Ok(*name), "{why}: {name}");
        }
    };
    hold(&mount, "this mount");
    hold(&up.at(""), "the mount beside");

    // the kernel forgets what nobody has open
    fs::write("/proc/sys/vm/drop_caches", "2").expect("root may");
    hold(&mount, "caches dropped");

    let status = Command::new(nacre_bin()).arg("umount").arg(&mount).status();
    assert!(status.expect("nacre starts").success(), "nacre umount");
    assert_eq!(up.second_mount(21), mount);
    hold(&mount, "the mount after");
    // the way up is found from a directory that no path has led to
    let place = sub.open(&mount).expect("a directory");
    let path = fs::read_link(format!("/proc/self/fd/{}", std::os::fd::AsRawFd::as_raw_fd(&place)));
    assert_eq!(path.expect("a path"), mount.join("dir/sub"));

    fs::remove_file(up.at("a")).expect("unlink");
    let gone = &handles[0].1;
    for at in [&mount, &up.at("")] {
        assert_eq!(read(at, gone), Err(Some(libc::ESTALE)), "removed, asked at {at:?}");
    }
    drop(place);
    up.stop();
}
