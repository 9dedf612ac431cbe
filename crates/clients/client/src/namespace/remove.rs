//! unlink, rmdir, rename.

use types::Fid;
use wire::Opcode;
use wire::body::{RenameReq, UnlinkReq};

use super::check_name;
use crate::client::Client;
use crate::lease::Scope;
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
        let body =
            UnlinkReq { parent: parent.into(), is_dir: u32::from(is_dir), ..UnlinkReq::default() };
        let call = self.0.call(ctx, Opcode::MdtUnlink, &body).name(name);
        self.0.change(Scope::removal(parent, is_dir), self.0.mdt_of(parent), call).await.map(|_| ())
    }

    /// Renames, atomically; an existing file at the new name is replaced. `flags`: RENAME_NOREPLACE
    /// 1, RENAME_EXCHANGE 2.
    ///
    /// # Errors
    /// ENOENT, EEXIST with NOREPLACE, ENOTEMPTY, EISDIR, ENOTDIR; EINVAL for a directory into
    /// itself.
    pub async fn rename(
        &self,
        ctx: &Ctx,
        parent: Fid,
        name: &[u8],
        new_parent: Fid,
        new_name: &[u8],
        flags: u32,
    ) -> Result<()> {
        check_name(name, "rename")?;
        check_name(new_name, "rename")?;
        let body = RenameReq {
            parent: parent.into(),
            new_parent: new_parent.into(),
            flags,
            ..RenameReq::default()
        };
        let call = self.0.call(ctx, Opcode::MdtRename, &body).name(name).name(new_name);
        self.0
            .change(Scope::rename(parent, new_parent), self.0.mdt_of(parent), call)
            .await
            .map(|_| ())
    }
}
