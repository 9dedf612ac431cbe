//! Boot: the next epoch made durable before anybody is served.

use osd::{MetaStore, Table, WriteSet};
use types::Instance;

use crate::StartError;
use crate::record::{self, FORMAT, META_EPOCH, META_FORMAT};

pub(crate) async fn boot(meta: &dyn MetaStore) -> Result<Instance, StartError> {
    meta.ready().await;
    let (format, epoch) = {
        let view = meta.running()?;
        (view.get(Table::Meta, META_FORMAT)?, view.get(Table::Meta, META_EPOCH)?)
    };
    let broken = |what: &str| StartError::Format(format!("{what} is broken"));
    if let Some(format) = format {
        let format =
            format.try_into().map(u16::from_le_bytes).map_err(|_| broken("the version"))?;
        if format > FORMAT {
            return Err(StartError::Format(format!(
                "format {format} is newer than {FORMAT}, the newest that is known here"
            )));
        }
    }
    let epoch = match epoch {
        Some(bytes) => record::decode_u64(&bytes).ok_or_else(|| broken("the epoch"))? + 1,
        None => 1,
    };
    let mut set = WriteSet::new();
    set.put(Table::Meta, META_FORMAT, FORMAT.to_le_bytes());
    set.put(Table::Meta, META_EPOCH, epoch.to_le_bytes());
    meta.apply(&set)?;
    meta.commit().await?;
    Ok(Instance(epoch))
}
