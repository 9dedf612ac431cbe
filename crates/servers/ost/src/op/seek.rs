//! Seek: where data or a hole begins in one object. Shared lock of the rest of the object; changes
//! nothing.

use ldlm::Mode;
use osd::{Found, Seek};
use service::Incoming;
use types::{Errno, Extent};
use wire::body::{OstSeekRep, OstSeekReq};
use wire::{Reply, encode_body};

use super::valid_object;
use crate::owners::claimed;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstSeekReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    let owner = claimed(body.parent, &body.claim)?;
    let what = match body.what {
        0 => Seek::Data,
        1 => Seek::Hole,
        _ => return Err(Errno::EINVAL),
    };
    let extent = Extent::new(body.offset, u64::MAX).ok_or(Errno::EINVAL)?;
    let held = ost.locks.lock(incoming, object, extent, Mode::Shared).await;
    ost.check_fence(incoming, &body.claim)?;
    ost.check_owner(incoming, object, owner, body.layout_version).await?;
    ost.check_there(object)?;
    let found = ost.objects.seek(object, what, body.offset).await?;
    drop(held);
    let body = match found {
        Some(Found { offset, size }) => OstSeekRep {
            offset: offset.unwrap_or(u64::MAX),
            size,
            exists: 1,
            ..OstSeekRep::default()
        },
        None => OstSeekRep { offset: u64::MAX, ..OstSeekRep::default() },
    };
    Ok(Reply::ok(&incoming.request.header, vec![encode_body(&body)]))
}
