//! rename, within one directory or between two.

use std::rc::Rc;

use types::{Fid, TargetId};
use wire::Opcode;
use wire::body::RenameReq;

use super::check_name;
use crate::client::{Client, Inner, mdt_of};
use crate::grants::{Changing, Scope};
use crate::stat::Stat;
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
        let is_exchange = flags & RENAME_EXCHANGE != 0;
        let names = [(parent, name), (new_parent, new_name)];
        if !is_exchange {
            self.0.end_rest_of(new_parent, new_name);
        }
        let renamed = self.0.at_holders(ctx, names, async |[parent, new_parent]| {
            let beside = self.0.beside(mdt_of(parent), new_parent, new_name);
            let body = RenameReq {
                parent: parent.into(),
                new_parent: new_parent.into(),
                flags,
                keeps_dirs: beside.is_some().into(),
            };
            let call = self.0.call(ctx, Opcode::MdtRename, &body).name(name).name(new_name);
            let scope = Scope::rename((parent, name), (new_parent, new_name), is_exchange);
            let changed = self.0.change_beside(scope, mdt_of(parent), call, beside);
            let (stat, _) = changed.await?;
            Ok((stat, parent, new_parent))
        });
        let (stat, parent, new_parent) = renamed.await?;
        let grants = &self.0.grants;
        let is_held = || !is_exchange && grants.names_are_called_back(stat.attr.fid());
        if mdt_of(parent) != mdt_of(new_parent) && grants.has_kernel() && !is_held() {
            let names = [(new_parent, new_name), (parent, name)];
            let names = if is_exchange { &names[..] } else { &names[..1] };
            Box::pin(self.0.hold_moved(ctx, names, &stat)).await;
        }
        Ok(())
    }
}

impl Inner {
    /// The change of a directory in which a name comes, if another MDT than `target` has it: its
    /// grant stays. A native program uses no grants of names, and lets it be called back.
    fn beside(&self, target: TargetId, dir: Fid, name: &[u8]) -> Option<(Fid, Changing)> {
        let is_beside = mdt_of(dir) != target && self.grants.has_kernel();
        is_beside.then(|| (dir, self.grants.of(dir).changing(Scope::entry(dir, name))))
    }

    /// The kernel believes the names that it moves for as long as before. So the MDT that has them
    /// now must know, before the kernel hears that they have moved. This is not needed where the
    /// MDT of the file grants its names (`names_are_called_back`).
    async fn hold_moved(self: &Rc<Self>, ctx: &Ctx, names: &[(Fid, &[u8])], stat: &Stat) {
        let mut are_held = true;
        for (dir, name) in names {
            are_held &= match self.look_up_once(ctx, *dir, name).await {
                Ok((found, lease)) => self.grants.moved(*dir, found.attr.fid(), lease),
                Err(_) => false,
            };
        }
        if !are_held {
            self.grants.forget_names(stat.touched.as_deref().unwrap_or_default());
        }
    }
}
