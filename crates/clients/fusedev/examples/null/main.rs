//! A file system in memory that does next to nothing. It measures FUSE's own cost, as a limit for
//! benchmarks.
//!
//! `null MOUNTPOINT [classic|uring]` serves until it is unmounted. It always has a file `fixed` of
//! 1 GiB of zeros.

mod memory;

use std::rc::Rc;

use fusedev::{Channel, Connection, MountOptions};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let mountpoint = args.next().ok_or("usage: null MOUNTPOINT [classic|uring]")?;
    let transport = match args.next().as_deref().and_then(|text| text.to_str()) {
        None => Channel::Auto,
        Some("classic") => Channel::Classic,
        Some("uring") => Channel::Uring,
        Some(_) => return Err("usage: null MOUNTPOINT [classic|uring]".into()),
    };
    let connection = Connection::mount(&MountOptions {
        transport,
        allow_other: true,
        ..memory::options(mountpoint.as_ref())
    })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new()
        .block_on(&runtime, connection.serve(Rc::new(memory::Memory::new())))?;
    Ok(())
}
