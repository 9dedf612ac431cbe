//! Tasks as clients of the native library, many in this process. Each has a session of its own at
//! every target.

use std::rc::Rc;
use std::time::Instant;

use anyhow::{Context, Result, anyhow, ensure};
use bytes::Bytes;
use client::{Client, Ctx, File, MountConfig};
use env::Env;
use layout::Template;
use types::{ClientId, Fid, Nid, NidAddr};

use super::{IorArgs, Phase, Sample, Took, sample, settle};
use crate::stats;
use crate::steps::Steps;

const O_CREATE: u32 = (libc::O_RDWR | libc::O_CREAT) as u32;
const O_RDWR: u32 = libc::O_RDWR as u32;
const O_DIRECT: u32 = libc::O_DIRECT as u32;

/// One run: the phases that are wanted.
pub(super) fn run(args: &IorArgs, address: &str, steps: &Steps) -> Result<Vec<Sample>> {
    ensure!(
        !args.read_only,
        "native files are made and removed by each run: -r alone has nothing to read"
    );
    let (mgs, fsname) =
        address.split_once(":/").ok_or_else(|| anyhow!("'{address}' is not a NID:/fsname"))?;
    let mgs: NidAddr = mgs.parse()?;
    let fsname = fsname.parse()?;
    let args = args.clone();
    env_os::run(env_os::OsConfig::default(), move |env| async move {
        let mut clients = Vec::new();
        for task in 0..args.tasks {
            let id = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
            let mut config = MountConfig::new(vec![mgs], fsname, id);
            config.endpoint.nid = args.nid.map(|first| nth(first, task)).transpose()?;
            clients.push(Client::mount(&env, config).await.context("cannot mount")?);
        }
        let outcome = phases(&env, &clients, &Rc::new(args), steps).await;
        for client in clients {
            client.unmount().await;
        }
        outcome
    })
}

/// The address `index` behind the first.
fn nth(first: Nid, index: u32) -> Result<Nid> {
    let text = first.to_string();
    let (addr, net) = text.split_once('@').context("a NID has a network")?;
    let addr: std::net::Ipv4Addr = addr.parse().context("native clients have IPv4 addresses")?;
    let next = u32::from(addr).checked_add(index).context("no address is left")?;
    Ok(format!("{}@{net}", std::net::Ipv4Addr::from(next)).parse()?)
}

async fn phases(
    env: &Env,
    clients: &[Client],
    args: &Rc<IorArgs>,
    steps: &Steps,
) -> Result<Vec<Sample>> {
    let ctx = Ctx::root();
    let stripe_count = if args.stripes == 0 { -1 } else { i32::from(args.stripes) };
    let striping = Template { stripe_count, ..Template::default() }.into();
    let prefix = format!("ior-native.{:x}", env.random());
    let name = |task: usize| {
        if args.file_per_task { format!("{prefix}.{task:08}") } else { prefix.clone() }
    };
    let direct = if args.direct { O_DIRECT } else { 0 };
    let mut files: Vec<File> = Vec::new();
    for (task, client) in clients.iter().enumerate() {
        let file = if task == 0 || args.file_per_task {
            client
                .create(
                    &ctx,
                    Fid::ROOT,
                    name(task).as_bytes(),
                    0o644,
                    O_CREATE | direct,
                    Some(&striping),
                )
                .await?
                .1
        } else {
            client.open(&ctx, files[0].fid(), O_RDWR | direct).await?
        };
        files.push(file);
    }
    let mut samples = Vec::new();
    for phase in args.phases() {
        steps.begin(phase);
        samples.push(one_phase(env, args, phase, &files).await?);
    }
    for file in &files {
        file.close().await?;
    }
    for task in 0..if args.file_per_task { clients.len() } else { 1 } {
        clients[0].unlink(&ctx, Fid::ROOT, name(task).as_bytes()).await?;
    }
    Ok(samples)
}

async fn one_phase(env: &Env, args: &Rc<IorArgs>, phase: Phase, files: &[File]) -> Result<Sample> {
    settle(args, phase)?;
    let cpu = stats::cpu_of_machine();
    let start = Instant::now();
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    for (task, file) in files.iter().enumerate() {
        let (args, file, done) = (args.clone(), file.clone(), done.clone());
        let at = if args.file_per_task { 0 } else { task as u64 * args.block };
        let env2 = env.clone();
        env.spawn("ior", async move {
            let outcome = one_task(&env2, &args, phase, &file, at).await;
            let took = Took { seconds: start.elapsed().as_secs_f64(), bytes: args.block };
            let _ = done.send(outcome.map(|()| took));
        });
    }
    drop(done);
    let mut tasks = Vec::new();
    while let Some(outcome) = finished.recv().await {
        tasks.push(outcome?);
    }
    ensure!(tasks.len() == files.len(), "a task came to no end");
    Ok(sample(phase, start.elapsed().as_secs_f64(), &tasks, cpu))
}

/// Calls of one client, some in flight at once.
async fn one_task(
    env: &Env,
    args: &Rc<IorArgs>,
    phase: Phase,
    file: &File,
    start: u64,
) -> Result<()> {
    let next = Rc::new(std::cell::Cell::new(0));
    let (done, mut finished) = tokio::sync::mpsc::unbounded_channel();
    for _ in 0..args.in_flight {
        let (args, file, next, done) = (args.clone(), file.clone(), next.clone(), done.clone());
        env.spawn("ior calls", async move {
            let _ = done.send(calls(&args, phase, &file, start, &next).await);
        });
    }
    drop(done);
    while let Some(outcome) = finished.recv().await {
        outcome?;
    }
    if phase == Phase::Write && args.fsync {
        file.fsync(false).await?;
    }
    Ok(())
}

async fn calls(
    args: &IorArgs,
    phase: Phase,
    file: &File,
    start: u64,
    next: &std::cell::Cell<u64>,
) -> Result<()> {
    let data = Bytes::from(vec![0x5a; args.transfer as usize]);
    loop {
        let index = next.get();
        if index >= args.calls() {
            return Ok(());
        }
        next.set(index + 1);
        let offset = start + args.place(index);
        match phase {
            Phase::Write => {
                let written = file.write(offset, data.clone()).await?;
                ensure!(written == data.len(), "a short write at {offset}");
            }
            Phase::Read => {
                let got = file.read(offset, data.len()).await?;
                ensure!(got == data, "other bytes than were written at {offset}");
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_client_has_the_next_address() {
        let first: Nid = "127.0.0.250@tcp".parse().expect("a NID");
        assert_eq!(nth(first, 0).map(|nid| nid.to_string()).expect("room"), "127.0.0.250@tcp");
        assert_eq!(nth(first, 10).map(|nid| nid.to_string()).expect("room"), "127.0.1.4@tcp");
    }
}
