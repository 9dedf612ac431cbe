//! A persistent parameter of a file system: set, or with an empty value back to the default.
//! Durable before the answer. Only servers of the file system may ask; administrators use the MGS
//! daemon's own socket. Only the form of the value is checked here. Its meaning is checked where
//! the parameter lives.

use osd::{Table, WriteSet};
use service::Incoming;
use target::OpError;
use types::{Errno, FsName, Nid, Role};
use wire::Reply;

use super::{answer, fsname};
use crate::limits::{PARAM_NAME_BYTES_MAX, PARAM_VALUE_BYTES_MAX, PARAMS_MAX};
use crate::record;
use crate::target::Mgt;

pub(crate) async fn execute(mgt: &Mgt, incoming: &Incoming) -> Result<Reply, Errno> {
    let fsname = fsname(&incoming.request.buf(0))?;
    let known = mgt.look(|view| record::fs_config(view, fsname)).await?;
    let is_its = |peer: Nid| known.targets.iter().any(|info| Nid(info.nid) == peer);
    let may = incoming.session.role() == Role::Administrator || is_its(incoming.peer());
    if known.version != 0 && !may {
        return Err(Errno::EPERM);
    }
    let (name, value) = (incoming.request.buf(1), incoming.request.buf(2));
    let name = std::str::from_utf8(&name).map_err(|_| Errno::EINVAL)?;
    let value = std::str::from_utf8(&value).map_err(|_| Errno::EINVAL)?;
    store(mgt, fsname, name, value).await?;
    let config = mgt.look(|view| record::fs_config(view, fsname)).await?;
    Ok(answer(incoming, &config))
}

/// Sets or, without a value, deletes one.
pub(crate) async fn store(mgt: &Mgt, fsname: FsName, name: &str, value: &str) -> Result<(), Errno> {
    if name.is_empty()
        || !is_text(name, PARAM_NAME_BYTES_MAX)
        || !is_text(value, PARAM_VALUE_BYTES_MAX)
    {
        return Err(Errno::EINVAL);
    }
    let key = record::param_key(fsname, name);
    mgt.change(|view| {
        let mut set = WriteSet::new();
        let version = record::version(view, fsname)?;
        if version == 0 {
            return Err(OpError::Refused(Errno::ENOENT));
        }
        let known = view.get(Table::Config, &key)?;
        if known.as_deref().unwrap_or_default() == value.as_bytes() {
            return Ok((set, ()));
        }
        if known.is_none() && record::fs_config(view, fsname)?.params.len() >= PARAMS_MAX {
            return Err(OpError::Refused(Errno::E2BIG));
        }
        match value {
            "" => set.delete(Table::Config, key.clone()),
            _ => set.put(Table::Config, key.clone(), value),
        }
        set.put(Table::Config, record::version_key(fsname), (version + 1).to_le_bytes());
        Ok((set, ()))
    })
    .await
}

/// Printable text of a bounded length.
fn is_text(text: &str, max: usize) -> bool {
    text.len() <= max && !text.chars().any(char::is_control)
}
