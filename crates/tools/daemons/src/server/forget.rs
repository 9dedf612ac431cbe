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

/// Why the MGS keeps a target that is not an OST.
fn why_kept(fsname: FsName, target: TargetId) -> String {
    let mdt = target.dom_of().unwrap_or(target);
    match (mdt.kind, mdt.index) {
        (TargetKind::Mdt, 0) => {
            "only an OST can be forgotten; this MDT has the root directory".to_owned()
        }
        (TargetKind::Mdt, _) => format!(
            "only an OST can be forgotten, because names on other MDTs may lead to an MDT; serve it, and keep new \
             directories away: nacre lctl set_param -P mdt.{}.no_create=1",
            mdt.name(fsname)
        ),
        _ => "only an OST can be forgotten".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_fits_the_target() {
        let fsname: FsName = "testfs".parse().expect("a name");
        let why = |target| why_kept(fsname, target);
        assert!(why(TargetId::mdt(0)).ends_with("has the root directory"));
        assert!(why(TargetId::mdt(10)).ends_with(" mdt.testfs-MDT000a.no_create=1"));
        assert_eq!(why(TargetId::MGT), "only an OST can be forgotten");
    }
}
