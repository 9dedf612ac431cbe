//! The calls of the matrix: operations of the oracle, and some that it does not know.

use client::Client;
use env::Env;
use layout::dir::Asked;
use oracle::{Answer, Op, Path, Placing, Runner, test_ctx};
use types::{Errno, Fid, Span};

use crate::directed::O_RDWR;

/// A call that an MDT refuses because another one is away is repeated after this.
const AGAIN: Span = Span::millis(500);
/// Mode of a file that gets its first name from an open one.
const MODE: u32 = 0o600;

/// One call.
#[derive(Clone, Debug)]
pub(super) enum Call {
    Op(Op),
    /// The names of a directory move to shards on these MDTs; none: to the directory itself.
    Restripe(Path, &'static [u32]),
    /// The names of a directory move to this MDT.
    Migrate(Path, u32),
    /// A file, or a directory without names, moves to this MDT. One that has names stays.
    Move(Path, u32),
    /// The default striping of new directories below a directory.
    SetDefault(Path),
    /// A file without a name is made in a directory, and gets this name.
    LinkTmpfile(Path, Path),
    /// A file is opened, synced and closed.
    Fsync(Path),
}

impl Call {
    /// An operation of the oracle with the same answer, and the same effect on names, link counts,
    /// modes and owners.
    pub(super) fn op(&self) -> Op {
        match self {
            Call::Op(op) => op.clone(),
            Call::Restripe(path, _)
            | Call::Migrate(path, _)
            | Call::Move(path, _)
            | Call::SetDefault(path)
            | Call::Fsync(path) => Op::Stat { path: path.clone() },
            Call::LinkTmpfile(_, path) => Op::Create {
                path: path.clone(),
                slot: 0,
                excl: true,
                trunc: false,
                append: false,
                mode: MODE,
                stripe: None,
            },
        }
    }

    /// Carries it out, below the directory `base`.
    pub(super) async fn run(
        &self,
        env: &Env,
        client: &Client,
        base: Fid,
    ) -> client::Result<Answer> {
        let ctx = test_ctx();
        match self {
            Call::Op(op) => {
                let mut runner = Runner::new(client.clone(), base).placing(Placing::Named);
                return runner.call(op).await;
            }
            Call::Restripe(path, mdts) => {
                let dir = find(client, base, path).await?;
                let count = (mdts.len() as u32).max(1);
                let asked = Asked { count, mdts: mdts.to_vec(), ..Asked::default() };
                let begin = async || client.restripe(&ctx, dir, &asked).await;
                until_all_are_there(env, begin).await?;
            }
            Call::Migrate(path, mdt) => {
                let dir = find(client, base, path).await?;
                let asked = Asked { index: mdt.cast_signed(), ..Asked::default() };
                let begin = async || client.migrate_names(&ctx, dir, &asked).await;
                until_all_are_there(env, begin).await?;
            }
            Call::Move(path, mdt) => {
                let file = find(client, base, path).await?;
                let begin = async || client.migrate_inode(&ctx, file, *mdt).await;
                match until_all_are_there(env, begin).await {
                    Err(error) if error.errno() == Errno::ENOTEMPTY => {}
                    moved => moved?,
                }
            }
            Call::SetDefault(path) => {
                let dir = find(client, base, path).await?;
                let asked = Asked { count: 2, ..Asked::default() };
                client.set_dir_default(&ctx, dir, Some(&asked)).await?;
            }
            Call::LinkTmpfile(dir, to) => {
                let dir = find(client, base, dir).await?;
                let (name, parents) = to.0.split_last().expect("a case names a file");
                let parent = find(client, base, &Path(parents.to_vec())).await?;
                let (_, file) = client.tmpfile(&ctx, dir, MODE, O_RDWR).await?;
                let linked = client.link(&ctx, file.fid(), parent, name.as_bytes()).await;
                file.close().await?;
                linked?;
            }
            Call::Fsync(path) => {
                let file = client.open(&ctx, find(client, base, path).await?, O_RDWR).await?;
                let synced = file.fsync(false).await;
                file.close().await?;
                synced?;
            }
        }
        Ok(Answer::Done)
    }
}

async fn find(client: &Client, base: Fid, path: &Path) -> client::Result<Fid> {
    let mut fid = base;
    for name in &path.0 {
        fid = client.lookup(&test_ctx(), fid, name.as_bytes()).await?.fid();
    }
    Ok(fid)
}

/// Repeats a call that changes nothing while one of its MDTs is away or recovers.
async fn until_all_are_there(
    env: &Env,
    call: impl AsyncFn() -> client::Result<()>,
) -> client::Result<()> {
    let later = [Errno::ENODEV, Errno::EREMOTEIO, Errno::EBUSY];
    loop {
        match call().await {
            Err(error) if later.contains(&error.errno()) => env.sleep(AGAIN).await,
            answer => return answer,
        }
    }
}
