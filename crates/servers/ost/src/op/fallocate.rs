//! Fallocate: allocates room for a range of one object, punches a hole, or writes zeros. The range
//! is locked exclusively.
//!
//! A missing object is made, except by a hole. Replay: the same range with the same transno, which
//! changes nothing a second time. A failure before the record may leave allocated room that was
//! never reported, as after a failed `fallocate` anywhere. The size is unchanged.

use osd::Allocate;
use service::Incoming;
use types::{Errno, Extent, Timespec};
use wire::Reply;
use wire::body::{OstFallocateReq, fallocate};

use super::{Told, valid_object};
use crate::owners::claimed;
use crate::target::Ost;

fn what(mode: u32) -> Result<Allocate, Errno> {
    if !fallocate::is_known(mode) {
        return Err(Errno::EOPNOTSUPP);
    }
    let grow = mode & fallocate::KEEP_SIZE == 0;
    Ok(match mode & !fallocate::KEEP_SIZE {
        fallocate::PUNCH_HOLE => Allocate::Punch,
        fallocate::ZERO_RANGE => Allocate::Zero { grow },
        _ => Allocate::Reserve { grow },
    })
}

pub(crate) async fn execute(ost: &Ost, incoming: &Incoming) -> Result<Reply, Errno> {
    let body: OstFallocateReq = incoming.request.body();
    let object = valid_object(body.object.into())?;
    let owner = claimed(body.parent, &body.claim)?;
    let what = what(body.mode)?;
    let end = body.offset.checked_add(body.length).ok_or(Errno::EFBIG)?;
    let extent = Extent::new(body.offset, end).ok_or(Errno::EINVAL)?;

    let _taking = match what {
        Allocate::Reserve { .. } => ost.take_room(incoming, body.length).await?,
        Allocate::Punch | Allocate::Zero { .. } => None,
    };
    let told = Told {
        object,
        extent,
        owner,
        claim: body.claim,
        layout_version: body.layout_version,
        mtime: Timespec::new(body.mtime, body.mtime_nsec),
    };
    let allocate = async || ost.objects.allocate(object, what, body.offset, body.length).await;
    ost.change(incoming, &told, allocate).await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_are_those_of_fallocate_and_nothing_else() {
        assert_eq!(what(0), Ok(Allocate::Reserve { grow: true }));
        assert_eq!(what(1), Ok(Allocate::Reserve { grow: false }));
        assert_eq!(what(3), Ok(Allocate::Punch));
        assert_eq!(what(16), Ok(Allocate::Zero { grow: true }));
        assert_eq!(what(17), Ok(Allocate::Zero { grow: false }));
        for mode in [2, 4, 8, 18, 32, 64, u32::MAX] {
            assert_eq!(what(mode), Err(Errno::EOPNOTSUPP), "{mode}");
        }
    }
}
