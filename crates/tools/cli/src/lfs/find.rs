//! `lfs find`: files below a path that meet all predicates.
//!
//! Predicates are evaluated in the order of their cost. Name and type are in the directory. Owner,
//! size and times cost a `stat`, which asks OSTs only for files that are being written. Layouts
//! cost one more request. Data that no predicate needs is not requested.

mod mode;
pub(super) mod number;
mod options;
mod predicate;
mod walk;

use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use ctl::progress::{Progress, Unit};
use serde_json::{Value, json};

use self::predicate::Predicate;
use self::walk::Found;
use crate::Failed;
use crate::failure::First;
use crate::form::Form;

pub(crate) use options::spelled;

const COMMAND: &str = "lfs find";
const NAMES: Unit = Unit::Count("names");

/// What to look for, where.
#[derive(Debug)]
pub(super) struct Args {
    paths: Vec<PathBuf>,
    predicates: Vec<Predicate>,
    /// Levels below a path that are looked at; the path itself is level 0.
    depth_max: usize,
    /// Levels above this are not shown.
    depth_min: usize,
    print0: bool,
    form: Form,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mut first = First::default();
    let mut rows = Vec::new();
    let (progress, mut seen) = (Progress::unless_piped(COMMAND, NAMES), 0);
    let mut fail = |failed: &Failed| {
        progress.erase();
        first.note(failed);
    };
    for path in &args.paths {
        walk::walk(path, args.depth_max, &mut |found| {
            seen += 1;
            progress.show(seen, 0, "");
            match found.and_then(|found| Ok((is_wanted(args, &found)?, found))) {
                Ok((true, found)) if args.form.is_data() => match row(&found) {
                    Ok(row) => rows.push(row),
                    Err(failed) => fail(&failed),
                },
                Ok((true, found)) => {
                    progress.erase();
                    crate::out::bytes(&line(&found, args.print0));
                }
                Ok((false, _)) => {}
                Err(failed) => fail(&failed),
            }
        });
    }
    drop(progress);
    if args.form.is_data() {
        args.form.print(&Value::Array(rows), String::new);
    }
    first.end()
}

/// The cheap predicates first; whatever one says no to is not asked further.
fn is_wanted(args: &Args, found: &Found) -> Result<bool, Failed> {
    if found.depth < args.depth_min {
        return Ok(false);
    }
    for predicate in &args.predicates {
        if !predicate.holds(found)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// The path as it is: a name need not be UTF-8, and what is printed here is opened elsewhere.
fn line(found: &Found, print0: bool) -> Vec<u8> {
    let end: &[u8] = if print0 { b"\0" } else { b"\n" };
    [found.path.as_os_str().as_bytes(), end].concat()
}

fn row(found: &Found) -> Result<Value, Failed> {
    use std::os::unix::fs::MetadataExt;
    let stat = found.stat()?;
    Ok(json!({
        "path": found.path.display().to_string(),
        "type": found.kind.to_string(),
        "mode": format!("{:o}", stat.mode() & 0o7777),
        "links": stat.nlink(),
        "uid": stat.uid(),
        "gid": stat.gid(),
        "size": stat.size(),
        "mtime": stat.mtime(),
    }))
}

#[cfg(test)]
mod tests {
    use std::ffi::OsStr;

    use super::*;

    #[test]
    fn a_name_is_printed_as_the_bytes_that_it_has() {
        let dir = std::env::temp_dir().join(format!("nacre-find-{}", std::process::id()));
        std::fs::create_dir_all(&dir).expect("a directory");
        let path = dir.join(OsStr::from_bytes(b"caf\xe9\n"));
        std::fs::write(&path, "").expect("a file");
        let mut lines = Vec::new();
        walk::walk(&path, 0, &mut |found| match found {
            Ok(found) => lines.push(line(&found, true)),
            Err(failed) => panic!("{}", failed.text),
        });
        assert_eq!(lines, [[path.as_os_str().as_bytes(), &b"\0"[..]].concat()]);
        std::fs::remove_dir_all(&dir).expect("removed");
    }
}
