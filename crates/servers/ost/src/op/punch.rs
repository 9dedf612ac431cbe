//! Punch: the size of one object. The whole object is locked.
//!
//! A missing object is made only if the request says so and the size is above zero. Otherwise there
//! is nothing to cut, and the answer says so. Replay: the same size with the same transno.

use service::Incoming;
use types::{Errno, Extent, Timespec};
use wire::Reply;
use wire::body::{OstPunchReq, PunchFlags};

use super::{Told, valid_object};
use crate::owners::claimed;
use crate::target::Ost;

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstPunchReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    let owner = claimed(body.parent, &body.claim)?;
    let create = body.flags.contains(PunchFlags::CREATE) && body.size > 0;

    let told = Told {
        object,
        extent: Extent::ALL,
        owner,
        claim: body.claim,
        layout_version: body.layout_version,
        mtime: Timespec::new(body.mtime, body.mtime_nsec),
    };
    ost.change(incoming, &told, async || ost.objects.truncate(object, body.size, create).await)
        .await
}
