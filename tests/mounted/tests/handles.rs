//! File handles, as NFS servers keep them, over the life of mounts (docs/posix.md).

use std::fs;
use std::io;
use std::process::Command;

use mounted::posix::FileHandle;
use mounted::{Up, nacre_bin};

#[test]
fn a_file_handle_names_its_file_or_none() {
    let mut up = Up::new("handles");
    for name in ["a", "b"] {
        fs::write(up.at(name), name).expect("write");
    }
    let mount = up.second_mount(21);
    let handle = FileHandle::of(&mount.join("a")).expect("name_to_handle_at");
    let read = |handle: &FileHandle| io::read_to_string(handle.open(&mount)?);
    assert_eq!(read(&handle).expect("the handle of this mount"), "a");

    let status = Command::new(nacre_bin()).arg("umount").arg(&mount).status();
    assert!(status.expect("nacre starts").success(), "nacre umount");
    assert_eq!(up.second_mount(21), mount);
    // the first file that the new mount hears of
    let fresh = FileHandle::of(&mount.join("b")).expect("name_to_handle_at");
    let stale = read(&handle).map_err(|error| error.raw_os_error());
    assert_eq!(stale, Err(Some(libc::ESTALE)), "a handle of the mount before");
    assert_eq!(read(&fresh).expect("the handle of this mount"), "b");
    up.stop();
}
