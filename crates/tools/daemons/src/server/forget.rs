//! `nacre forget` at the MGS: which targets it forgets, and why it keeps the others.

use ctl::{Failure, Reply};
use mgt::Mgt;
use types::{Errno, FsName, TargetId, TargetKind};

pub(super) async fn forget(mgt: &Mgt, name: &str) -> Result<Reply, Failure> {
    let failed =
        |errno: Errno, why: &str| Failure { errno: errno.raw(), text: format!("{name}: {why}") };
    let no_name =
        || failed(Errno::EINVAL, "expected a target, as testfs-OST0003 (lctl dl lists them)");
    let (fsname, _) = name.rsplit_once('-').ok_or_else(no_name)?;
    let (fsname, target) = (fsname.parse(), name.parse::<TargetId>());
    let (Ok(fsname), Ok(target)) = (fsname, target) else { return Err(no_name()) };
    match mgt.forget(fsname, target).await {
        Ok(()) => Ok(Reply::Lines(vec![target.name(fsname)])),
        Err(Errno::ENOENT) => Err(failed(Errno::ENOENT, "the MGS knows no such target")),
        Err(Errno::EPERM) => Err(failed(Errno::EPERM, &why_kept(fsname, target))),
        Err(errno) => Err(failed(errno, errno.text())),
    }
}

/// Why the MGS keeps a target.
fn why_kept(fsname: FsName, target: TargetId) -> String {
    match (target.kind, target.dom_of()) {
        (TargetKind::Mdt, _) => "it has the root directory and stays: name another MDT".to_owned(),
        (_, Some(mdt)) => format!("it goes with its MDT: nacre forget {}", mdt.name(fsname)),
        _ => "only OSTs and MDTs can be forgotten".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_fits_the_target() {
        let fsname: FsName = "testfs".parse().expect("a name");
        let why = |target| why_kept(fsname, target);
        assert!(why(TargetId::mdt(0)).contains("has the root directory"));
        assert!(why(TargetId::dom(10)).ends_with("nacre forget testfs-MDT000a"));
        assert_eq!(why(TargetId::MGT), "only OSTs and MDTs can be forgotten");
    }
}
