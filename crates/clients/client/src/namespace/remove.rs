//! unlink, rmdir.

use types::Fid;
use wire::Opcode;
use wire::body::UnlinkReq;

use super::check_name;
use crate::client::{Client, mdt_of};
use crate::grants::Scope;
use crate::{Ctx, Result};

impl Client {
    /// Removes a name that is no directory's. The file lives on while a client has it open.
    ///
    /// # Errors
    /// ENOENT, EACCES, EPERM (sticky directory), EISDIR.
    pub async fn unlink(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<()> {
        self.remove(ctx, parent, name, false).await
    }

    /// Removes an empty directory.
    ///
    /// # Errors
    /// ENOTEMPTY, ENOENT, EACCES, ENOTDIR.
    pub async fn rmdir(&self, ctx: &Ctx, parent: Fid, name: &[u8]) -> Result<()> {
        self.remove(ctx, parent, name, true).await
    }

    async fn remove(&self, ctx: &Ctx, parent: Fid, name: &[u8], is_dir: bool) -> Result<()> {
        check_name(name, if is_dir { "rmdir" } else { "unlink" })?;
        if !is_dir {
            self.0.end_rest_of(parent, name);
        }
        let removed = self.0.at_holders(ctx, [(parent, name)], async |[parent]| {
            let is_dir = u32::from(is_dir);
            let body = UnlinkReq { parent: parent.into(), is_dir, ..UnlinkReq::default() };
            let call = self.0.call(ctx, Opcode::MdtUnlink, &body).name(name);
            self.0.change(Scope::removal(parent, name), mdt_of(parent), call).await
        });
        removed.await.map(drop)
    }
}
