//! Mends by an MDT that is served here, for `nacre fsck --repair --live`.

use std::rc::Rc;

use ctl::{Failure, Reply};
use mdt::fsck::Suspect;
use types::{Errno, Fid, ParseFidError};

use super::{Body, Server};

fn refused(errno: Errno, text: String) -> Failure {
    Failure { errno: errno.raw(), text }
}

fn parsed(fid: &str) -> Result<Fid, Failure> {
    fid.parse().map_err(|error: ParseFidError| refused(Errno::EINVAL, error.to_string()))
}

/// MDT `target` looks again at a name in a directory, at a file and a name of it in `dir`, or at
/// the counts of a file.
pub(super) async fn mend(
    server: Option<Rc<Server>>,
    target: &str,
    fid: &str,
    (dir, name): (Option<String>, Option<Vec<u8>>),
) -> Result<Reply, Failure> {
    let (fid, dir) = (parsed(fid)?, dir.map(|dir| parsed(&dir)).transpose()?);
    let here =
        server.as_ref().and_then(|server| server.targets.iter().find(|it| it.name == target));
    let mdt = here.and_then(|it| {
        let Body::Mdt(mdt) = &it.body else { return None };
        Some(mdt.clone())
    });
    let mdt =
        mdt.ok_or_else(|| refused(Errno::ENODEV, format!("{target}: no such MDT is served here")))?;
    let suspect = match (dir, name) {
        (Some(dir), Some(name)) => Suspect::Pair { fid, dir, name },
        (None, Some(name)) => Suspect::Name { dir: fid, name },
        (None, None) => Suspect::Counts(fid),
        (Some(_), None) => {
            return Err(refused(Errno::EINVAL, "a directory without a name".to_owned()));
        }
    };
    let done = mdt.mend(&suspect).await.map_err(|errno| refused(errno, why(errno)))?;
    Ok(Reply::Lines(done.into_iter().map(str::to_owned).collect()))
}

fn why(errno: Errno) -> String {
    match errno {
        Errno::EAGAIN => {
            "an MDT is away, in recovery, or busy with this file: try again".to_owned()
        }
        Errno::E2BIG => "too many names to count while the MDT serves".to_owned(),
        errno => errno.text().to_owned(),
    }
}
