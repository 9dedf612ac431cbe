//! A null file system in a process of its own.

use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::rc::Rc;

use anyhow::{Context, Result, ensure};
use fusedev::{Channel, Connection, MountOptions, UringOffer};

use super::memory;

/// Serves until it is unmounted; says so on stdout when it is there.
pub(super) fn serve(dir: &Path, transport: Channel) -> Result<()> {
    let connection = Connection::mount(&MountOptions { transport, ..memory::options(dir) })?;
    println!("ready");
    std::io::stdout().flush()?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().build()?;
    tokio::task::LocalSet::new()
        .block_on(&runtime, connection.serve(Rc::new(memory::Memory::new())))?;
    Ok(())
}

/// A process that serves; unmounted and waited for when dropped.
pub(super) struct Server {
    child: Child,
    dir: PathBuf,
}

impl Server {
    pub(super) fn start(transport: Channel) -> Result<Server> {
        let offer = match transport {
            Channel::Uring => {
                Some(UringOffer::make().context("io_uring cannot be offered to FUSE here")?)
            }
            _ => None,
        };
        let dir = std::env::temp_dir().join(format!(
            "nacre-null-{}-{}",
            super::name(transport),
            std::process::id()
        ));
        std::fs::create_dir_all(&dir)?;
        let mut command = Command::new(std::env::current_exe()?);
        command.args(["bench", "fusedev", "--serve"]).arg(&dir).stdout(Stdio::piped());
        if transport == Channel::Uring {
            command.arg("--uring");
        }
        let mut child = command.spawn()?;
        let mut line = String::new();
        BufReader::new(child.stdout.take().context("a pipe")?).read_line(&mut line)?;
        let server = Server { child, dir };
        ensure!(
            line.trim_end() == "ready",
            "the {} transport could not be mounted",
            super::name(transport)
        );
        drop(offer);
        Ok(server)
    }

    pub(super) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// The file that is called.
    pub(super) fn file(&self) -> PathBuf {
        self.dir.join("fixed")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        if fusedev::unmount_detached(&self.dir).is_err() {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
        let _ = std::fs::remove_dir(&self.dir);
    }
}
