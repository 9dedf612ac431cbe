//! Lists the objects of OSTs, one page at a time, and finds objects that no file of an MDT here
//! names. An OST that is served here is read from its records; any other OST is asked.

use std::rc::Rc;

use ctl::{Failure, Object, Reply, Unnamed};
use osd::StoreError;
use types::{Errno, Fid, TargetId, TargetKind};
use wire::body::OstListed;

use super::{Body, Running, Server};

/// Objects of one answer: some 500 KiB.
const OBJECTS_AT_ONCE: usize = 4_096;

fn refused(errno: Errno, text: String) -> Failure {
    Failure { errno: errno.raw(), text }
}

fn fid(text: &str) -> Result<Fid, Failure> {
    text.parse().map_err(|error: types::ParseFidError| refused(Errno::EINVAL, error.to_string()))
}

impl Server {
    /// Names of all that has objects of its file system, as far as it knows: OSTs, and the data
    /// targets of MDTs.
    pub(super) fn osts(&self) -> Vec<String> {
        let Some(fsname) = self.peers.fsname() else { return Vec::new() };
        let osts = self.peers.osts().into_iter().map(|ost| TargetId::ost(ost.index));
        osts.chain(self.peers.data_targets()).map(|id| id.name(fsname)).collect()
    }

    /// One of them.
    fn ost(&self, name: &str) -> Result<u32, Failure> {
        let ost = name.parse::<TargetId>().ok().filter(|ost| ost.kind == TargetKind::Ost);
        ost.filter(|_| self.osts().iter().any(|known| known == name))
            .map(|ost| ost.index)
            .ok_or_else(|| refused(Errno::ENODEV, format!("{name}: this server knows no such OST")))
    }
}

/// The objects of OST `name` from `from` on.
pub(super) async fn list(
    server: Option<Rc<Server>>,
    name: &str,
    from: &str,
) -> Result<Reply, Failure> {
    let from = fid(from)?;
    let Some(server) = server else { return Err(gone()) };
    let is_here = |target: &&Running| target.name == name && matches!(target.body, Body::Ost(_));
    let Some(meta) = server.targets.iter().find(is_here).map(|ost| ost.store.meta.clone()) else {
        let listed = mdt::list_objects(&server.endpoint, server.ost(name)?, from).await;
        let listed = listed.map_err(|error| refused(error.errno(), format!("{name}: {error}")))?;
        return Ok(Reply::Objects(listed.iter().map(told_by_it).collect()));
    };
    loop {
        let listed = meta.running().and_then(|view| ost::objects(&*view, from, OBJECTS_AT_ONCE));
        match listed {
            Ok(listed) => return Ok(Reply::Objects(listed.iter().map(told).collect())),
            Err(StoreError::Busy) => meta.ready().await,
            Err(error) => return Err(refused(error.errno(), format!("{name}: {error}"))),
        }
    }
}

fn gone() -> Failure {
    refused(Errno::ENODEV, "no server is here".to_owned())
}

fn told(listed: &ost::Listed) -> Object {
    Object { object: listed.object.to_string(), file: listed.file.to_string(), store: listed.store }
}

fn told_by_it(listed: &OstListed) -> Object {
    let (object, file) = (Fid::from(listed.object), Fid::from(listed.parent));
    Object { object: object.to_string(), file: file.to_string(), store: listed.store }
}

/// Of the objects of an OST from a FID on those that no file of MDT `name` names; with `remove`
/// they go.
pub(super) async fn unnamed(
    server: Option<Rc<Server>>,
    name: &str,
    (ost, from): (&str, &str),
    remove: bool,
) -> Result<Reply, Failure> {
    let Some(server) = server else { return Err(gone()) };
    let mdt = server.targets.iter().find(|target| target.name == name).and_then(|target| {
        let Body::Mdt(mdt) = &target.body else { return None };
        Some(mdt.clone())
    });
    let mdt =
        mdt.ok_or_else(|| refused(Errno::ENODEV, format!("{name}: no such MDT is served here")))?;
    let page = mdt.unnamed(server.ost(ost)?, fid(from)?, remove).await;
    let page = page.map_err(|error| refused(error.errno(), format!("{ost}: {error}")))?;
    let told = |one: &mdt::Unnamed| (one.object.to_string(), one.file.to_string(), one.size);
    let objects = page.objects.iter().map(told).collect();
    Ok(Reply::Unnamed(Unnamed { objects, last: page.last.map(|last| last.to_string()) }))
}
