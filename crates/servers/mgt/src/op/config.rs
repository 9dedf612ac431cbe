//! The whole configuration of a file system. ENOENT if no target has registered for it.

use service::Incoming;
use types::Errno;
use wire::Reply;

use super::{answer, fsname};
use crate::record;
use crate::target::Mgt;

pub(crate) async fn execute(mgt: &Mgt, incoming: &Incoming) -> Result<Reply, Errno> {
    let fsname = fsname(&incoming.request.buf(0))?;
    let config = mgt.look(|view| record::fs_config(view, fsname)).await?;
    if config.version == 0 { Err(Errno::ENOENT) } else { Ok(answer(incoming, &config)) }
}
