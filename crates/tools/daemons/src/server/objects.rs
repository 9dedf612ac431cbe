//! Listings of the objects of an OST that is served here, a page at a time.

use std::rc::Rc;

use ctl::{Failure, Object, Reply};
use osd::StoreError;
use types::{Errno, Fid};

use super::{Body, Running, Server};

/// Objects of one answer: some 500 KiB.
const OBJECTS_AT_ONCE: usize = 4_096;

/// The objects of OST `name` from `from` on.
pub(super) async fn list(
    server: Option<Rc<Server>>,
    name: &str,
    from: &str,
) -> Result<Reply, Failure> {
    let refused = |errno: Errno, text: String| Failure { errno: errno.raw(), text };
    let from: Fid = from
        .parse()
        .map_err(|error: types::ParseFidError| refused(Errno::EINVAL, error.to_string()))?;
    let is_here = |target: &&Running| target.name == name && matches!(target.body, Body::Ost(_));
    let meta = server
        .and_then(|server| server.targets.iter().find(is_here).map(|ost| ost.store.meta.clone()))
        .ok_or_else(|| refused(Errno::ENODEV, format!("{name}: no such OST is served here")))?;
    loop {
        let listed = meta.running().and_then(|view| ost::objects(&*view, from, OBJECTS_AT_ONCE));
        match listed {
            Ok(listed) => return Ok(Reply::Objects(listed.iter().map(told).collect())),
            Err(StoreError::Busy) => meta.ready().await,
            Err(error) => return Err(refused(error.errno(), format!("{name}: {error}"))),
        }
    }
}

fn told(listed: &ost::Listed) -> Object {
    Object { object: listed.object.to_string(), file: listed.file.to_string(), store: listed.store }
}
