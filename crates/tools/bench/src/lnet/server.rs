//! The answering process: this program again, with hidden arguments.

use std::io::{BufRead, BufReader, Read, Write};
use std::process::{Child, Command, Stdio};

use anyhow::Context;
use rustix::thread::{CpuSet, sched_setaffinity};
use wire::CrcMode;

use super::Case;

/// A server; ends with the value.
pub(super) struct Server {
    child: Child,
    pub(super) port: u16,
}

impl Server {
    pub(super) fn start(side: &str, case: Case, cpu: Option<u32>) -> anyhow::Result<Server> {
        let mut command = Command::new(std::env::current_exe()?);
        command.args(prefix()).args(["--serve", side]);
        command.args(
            "--lnd-threads --peer-credits"
                .split(' ')
                .zip([case.tuning.lnd_threads, case.tuning.peer_credits])
                .flat_map(|(name, value)| [name.to_owned(), value.to_string()]),
        );
        if case.crc == CrcMode::NoBulk {
            command.arg("--no-bulk-crc");
        }
        if let Some(cpu) = cpu {
            command.args(["--cpu", &cpu.to_string()]);
        }
        let child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .context("cannot start the server")?;
        let mut server = Server { child, port: 0 };
        let mut line = String::new();
        BufReader::new(server.child.stdout.as_mut().context("its output is a pipe")?)
            .read_line(&mut line)?;
        server.port = line
            .trim()
            .parse()
            .with_context(|| format!("the server said '{}' in place of its port", line.trim()))?;
        Ok(server)
    }

    /// CPU time of its threads, which all live as long as it does.
    pub(super) fn cpu_ns(&self) -> anyhow::Result<u64> {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.child.id()))?;
        tasks.map(|task| cpu_ns(&task?.path().join("schedstat"))).sum()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        // It may have ended by itself; then there is nothing to kill.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The words that led to this command in our own command line.
fn prefix() -> Vec<String> {
    let words: Vec<_> = std::env::args().skip(1).collect();
    let end = words.iter().position(|word| word == "lnet").map_or(0, |at| at + 1);
    words[..end].to_vec()
}

/// CPUs of client and server as `--cpus` names them; none where the scheduler may choose.
pub(super) fn placement(text: &str) -> anyhow::Result<(Option<u32>, Option<u32>)> {
    if text == "free" {
        return Ok((None, None));
    }
    let (client, server) = text.split_once(',').context("--cpus is two CPUs, as 0,1, or 'free'")?;
    Ok((Some(client.parse()?), Some(server.parse()?)))
}

/// Binds the calling thread.
pub(super) fn pin(cpu: Option<u32>) -> anyhow::Result<()> {
    let Some(cpu) = cpu else { return Ok(()) };
    anyhow::ensure!((cpu as usize) < CpuSet::MAX_CPU, "there is no CPU {cpu}");
    let mut set = CpuSet::new();
    set.set(cpu as usize);
    sched_setaffinity(None, &set)
        .with_context(|| format!("cannot run on CPU {cpu}; --cpus free does without"))
}

/// CPU time of this process, threads that have ended included.
pub(super) fn own_cpu_ns() -> anyhow::Result<u64> {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    Ok(u64::try_from(time.tv_sec)? * 1_000_000_000 + u64::try_from(time.tv_nsec)?)
}

fn cpu_ns(path: &std::path::Path) -> anyhow::Result<u64> {
    let text =
        std::fs::read_to_string(path).with_context(|| format!("cannot read {}", path.display()))?;
    let first = text.split_whitespace().next().context("it has three numbers")?;
    Ok(first.parse()?)
}

/// Tells the parent where this server is, and ends the process with the parent.
pub(super) fn announce(port: u16) -> anyhow::Result<()> {
    let mut out = std::io::stdout().lock();
    writeln!(out, "{port}")?;
    out.flush()?;
    std::thread::spawn(|| {
        // ends when the parent does, whatever the result
        let _ = std::io::stdin().read_to_end(&mut Vec::new());
        std::process::exit(0);
    });
    Ok(())
}
