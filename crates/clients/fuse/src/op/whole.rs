//! The file system as a whole: statfs and sync.

use fusedev::{Body, Reply};

use crate::convert;
use crate::error::errno;
use crate::fs::Fs;

impl Fs {
    pub(crate) async fn statfs(&self) -> Reply {
        self.client
            .statfs()
            .await
            .map(|statfs| Body::Statfs(convert::statfs(&statfs)))
            .map_err(errno)
    }

    pub(crate) async fn syncfs(&self) -> Reply {
        self.client.sync().await.map(|()| Body::Empty).map_err(errno)
    }
}
