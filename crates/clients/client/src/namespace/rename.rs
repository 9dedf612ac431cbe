//! rename, within one directory or between two.

use types::Fid;
use wire::Opcode;
use wire::body::RenameReq;

use super::check_name;
use crate::client::{Client, mdt_of};
use crate::grants::Scope;
use crate::{Ctx, Result};

const RENAME_EXCHANGE: u32 = 2;

impl Client {
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
        let parent = self.0.holder(ctx, parent, name).await?;
        let new_parent = self.0.holder(ctx, new_parent, new_name).await?;
        let body = RenameReq {
            parent: parent.into(),
            new_parent: new_parent.into(),
            flags,
            ..RenameReq::default()
        };
        let call = self.0.call(ctx, Opcode::MdtRename, &body).name(name).name(new_name);
        let is_exchange = flags & RENAME_EXCHANGE != 0;
        let scope = Scope::rename((parent, name), (new_parent, new_name), is_exchange);
        self.0.change(scope, mdt_of(parent), call).await.map(|_| ())
    }
}
