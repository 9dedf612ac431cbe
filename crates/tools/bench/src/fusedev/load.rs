//! Processes that call a file as often as they can.

use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail, ensure};

/// Calls between two looks at the clock.
const BATCH: u64 = 16;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Call {
    Fstat,
    Read(usize),
    Write(usize),
}

impl Call {
    pub(super) fn parse(text: &str) -> Result<Call> {
        Ok(match text {
            "fstat" => Call::Fstat,
            "read4k" => Call::Read(4 << 10),
            "read1m" => Call::Read(1 << 20),
            "write1m" => Call::Write(1 << 20),
            _ => bail!("no call '{text}': fstat, read4k, read1m or write1m"),
        })
    }
}

impl fmt::Display for Call {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Call::Fstat => f.write_str("fstat"),
            Call::Read(4_096) => f.write_str("read4k"),
            Call::Read(_) => f.write_str("read1m"),
            Call::Write(_) => f.write_str("write1m"),
        }
    }
}

/// Calls of `processes` processes together within `seconds`.
pub(super) fn run(file: &Path, call: Call, processes: u32, seconds: f64) -> Result<f64> {
    let exe = std::env::current_exe()?;
    let start = || {
        let mut command = Command::new(&exe);
        command.args(["bench", "fusedev", "--load"]).arg(file);
        command
            .args(["--calls", &call.to_string(), "--seconds", &seconds.to_string()])
            .stdout(Stdio::piped())
            .spawn()
    };
    let mut children = (0..processes).map(|_| start()).collect::<std::io::Result<Vec<_>>>()?;
    let mut sum = 0;
    for child in &mut children {
        let mut text = String::new();
        child.stdout.take().context("a pipe")?.read_to_string(&mut text)?;
        ensure!(child.wait()?.success(), "a load failed");
        sum += text.trim().parse::<u64>().context("a load's count")?;
    }
    Ok(sum as f64)
}

/// The life of a load: prints how many calls it made.
pub(super) fn call(path: &Path, call: Call, seconds: f64) -> Result<()> {
    let file = File::options()
        .read(true)
        .write(true)
        .open(path)
        .with_context(|| path.display().to_string())?;
    let mut buffer = match call {
        Call::Fstat => Vec::new(),
        Call::Read(len) | Call::Write(len) => vec![1; len],
    };
    let end = Instant::now() + Duration::from_secs_f64(seconds);
    let mut count = 0_u64;
    while Instant::now() < end {
        for _ in 0..BATCH {
            match call {
                Call::Fstat => {
                    file.metadata()?;
                }
                Call::Read(_) => file.read_exact_at(&mut buffer, (count % 1024) << 12)?,
                Call::Write(_) => file.write_all_at(&buffer, 0)?,
            }
            count += 1;
        }
    }
    println!("{count}");
    Ok(())
}
