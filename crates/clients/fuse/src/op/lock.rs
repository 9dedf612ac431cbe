//! Application locks: `fcntl` and `flock`, held at the server.

use client::{LockKind, LockMode};
use fusedev::abi;
use fusedev::{Body, Header, Replier, Reply};
use futures_lite::future::pending;
use types::Errno;

use crate::convert;
use crate::error::errno;
use crate::fs::Fs;

impl Fs {
    pub(crate) async fn getlk(&self, header: &Header, args: abi::LkIn) -> Reply {
        let (fid, spec) = (self.fid(header.nodeid)?, convert::lock_spec(&args, false)?);
        if spec.mode == LockMode::Unlock {
            // which locks the open file has itself: a question that older kernels do not know
            return Err(Errno::EINVAL);
        }
        let mut ctx = self.ctx(header, 0);
        ctx.pid = args.lk.pid;
        let conflict = self.client.test_lock(&ctx, fid, spec).await.map_err(errno)?;
        Ok(Body::Lock(convert::lock_out(conflict)))
    }

    pub(crate) async fn setlk(&self, header: &Header, args: abi::LkIn) -> Reply {
        self.set_lock(header, args, false, pending()).await
    }

    /// Any signal ends the wait, as `fcntl` promises.
    pub(crate) async fn wait_for_lock(&self, header: &Header, args: abi::LkIn, replier: &Replier) {
        replier.reply(&self.set_lock(header, args, true, replier.interrupted()).await);
    }

    async fn set_lock(
        &self,
        header: &Header,
        args: abi::LkIn,
        wait: bool,
        given_up: impl Future<Output = ()>,
    ) -> Reply {
        let (fid, spec) = (self.fid(header.nodeid)?, convert::lock_spec(&args, wait)?);
        let mut ctx = self.ctx(header, 0);
        // The process, not the thread: what F_GETLK tells others.
        ctx.pid = args.lk.pid;
        let note = || {
            if spec.kind == LockKind::Posix && spec.mode != LockMode::Unlock {
                self.locked.borrow_mut().insert((fid, spec.owner), args.fh);
            }
        };
        note(); // before the answer: a lock may be held although the wait for it was given up
        self.client.lock_until(&ctx, fid, spec, given_up).await.map_err(errno)?;
        note(); // a close of another descriptor may have given back what was held meanwhile
        Ok(Body::Empty)
    }
}
