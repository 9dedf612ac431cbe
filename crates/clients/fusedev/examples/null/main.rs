//! A file system in memory that does next to nothing: what FUSE itself costs, as a limit for benchmarks.
//!
//! `null MOUNTPOINT [CLONES]` serves until it is unmounted. A file `fixed` of 1 GiB of zeros is there from the start.

mod memory;

use std::rc::Rc;

use fusedev::{MountOptions, Session};

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let mut args = std::env::args_os().skip(1);
    let mountpoint = args.next().ok_or("usage: null MOUNTPOINT [CLONES]")?;
    let clones = args.next().and_then(|text| text.to_str()?.parse().ok()).unwrap_or(1);
    let session = Session::mount(&MountOptions { clones, allow_other: true, ..memory::options(mountpoint.as_ref()) })?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new().block_on(&runtime, session.serve(Rc::new(memory::Memory::new())))?;
    Ok(())
}
