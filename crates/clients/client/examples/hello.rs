//! A file system without a mount point: connects, creates, writes, reads, lists.
//!
//! ```text
//! cargo run -p client --example hello -- 127.0.0.2@tcp:/testfs
//! ```

use std::error::Error;
use std::process::ExitCode;

use client::{Client, Ctx, MountConfig, flags};
use env_os::OsConfig;
use types::{ClientId, Fid};

fn main() -> ExitCode {
    let Some(source) = std::env::args().nth(1) else {
        eprintln!("usage: hello NID[,NID...]:/FSNAME");
        return ExitCode::FAILURE;
    };
    match env_os::run(OsConfig::default(), |env| async move { hello(&env, &source).await }) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("hello: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn hello(env: &env::Env, source: &str) -> Result<(), Box<dyn Error>> {
    let (nids, fsname) = source.rsplit_once(":/").ok_or("expected NID:/FSNAME")?;
    let mgs = nids.split(',').map(str::parse).collect::<Result<Vec<_>, _>>()?;
    let id = ClientId((u128::from(env.random()) << 64) | u128::from(env.random()));
    let mut config = MountConfig::new(mgs, fsname.parse()?, id);
    config.endpoint.import.name = "hello".to_owned();
    let client = Client::mount(env, config).await?;

    let me = Ctx::root();
    let (_, file) = client
        .create(&me, Fid::ROOT, b"hello.txt", 0o644, flags::O_RDWR | flags::O_TRUNC, None)
        .await?;
    file.write(0, "hello, ".into()).await?;
    file.write(7, "world\n".into()).await?;
    print!("{}", String::from_utf8_lossy(&file.read(0, 1 << 20).await?));
    file.fsync(false).await?;
    file.close().await?;

    let mut cookie = 0;
    loop {
        let page = client.readdir(&me, Fid::ROOT, cookie, 64 << 10).await?;
        for entry in &page.entries {
            println!(
                "{:>8} {} {}",
                entry.attr.size,
                entry.attr.fid(),
                String::from_utf8_lossy(&entry.name)
            );
        }
        match page.entries.last() {
            Some(last) if !page.at_end => cookie = last.cookie,
            _ => break,
        }
    }
    client.unlink(&me, Fid::ROOT, b"hello.txt").await?;
    client.unmount().await;
    Ok(())
}
