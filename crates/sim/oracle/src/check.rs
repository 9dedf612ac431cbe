//! The rules for a correct answer.

use std::collections::BTreeSet;

use types::Errno;
use wire::Attr;

use crate::model::{Expect, Model, Node};
use crate::op::{Op, xattr_name};
use crate::run::Answer;

/// Whether `answer` is what the model expects; else what is wrong with it.
pub(crate) fn compare(
    model: &Model,
    expect: &Expect,
    answer: &Result<Answer, client::Error>,
) -> Result<(), String> {
    match (expect, answer) {
        (Expect::Fails(errors), Err(error)) if errors.contains(&error.errno()) => Ok(()),
        (Expect::Fails(errors), Err(error)) => {
            Err(format!("failed with '{error}', expected {errors:?}"))
        }
        (Expect::Fails(errors), Ok(answer)) => {
            Err(format!("succeeded with {answer:?}, expected {errors:?}"))
        }
        (_, Err(error)) => Err(format!("failed: {error}")),
        (Expect::Done, Ok(_)) | (Expect::Skip, _) => Ok(()),
        (Expect::Attr(ino), Ok(Answer::Attr(attr))) => compare_attr(model.node(*ino), attr),
        (Expect::Data(expected), Ok(Answer::Data(data))) => compare_data(expected, data),
        (Expect::Count(expected), Ok(Answer::Count(count))) => {
            same("number of bytes", count, expected)
        }
        (Expect::Names(expected), Ok(Answer::Names(names))) => {
            let found: BTreeSet<_> = names.iter().map(|(name, _)| name.as_str()).collect();
            let expected: BTreeSet<_> = expected.keys().map(String::as_str).collect();
            same("names", &found, &expected)?;
            same("number of entries", &names.len(), &expected.len())
        }
        (Expect::Xattrs(expected), Ok(Answer::Xattrs(names))) => {
            let users = names.iter().map(|name| String::from_utf8_lossy(name).into_owned());
            let found: Vec<_> = users
                .filter(|name| name.starts_with("user."))
                .collect::<BTreeSet<_>>()
                .into_iter()
                .collect();
            let expected: Vec<_> = expected.iter().map(|name| xattr_name(*name)).collect();
            same("extended attributes", &found, &expected)
        }
        (expect, Ok(answer)) => Err(format!("answered {answer:?}, expected {expect:?}")),
    }
}

/// Carries `op` out in the model. Says whether that explains the answer, if there is one.
/// Attributes in it do not count: those of a file on another MDT are asked for later.
///
/// # Errors
/// Where the answer is another one.
pub fn explains(
    model: &mut Model,
    op: &Op,
    answer: Option<&Result<Answer, client::Error>>,
) -> Result<(), String> {
    let expect = model.apply(op);
    let Some(answer) = answer else { return Ok(()) };
    match (expect, answer) {
        (Expect::Fails(errors), Ok(_)) => Err(format!("succeeded, expected {errors:?}")),
        (Expect::Fails(errors), Err(error)) => {
            // it has gone between the walk to it and the call
            let is_gone = error.errno() == Errno::ESTALE && errors.contains(&Errno::ENOENT);
            // between the two, the directory that it leads to has moved below what it moves
            let is_below = matches!(op, Op::Rename { .. })
                && error.errno() == Errno::EINVAL
                && errors.contains(&Errno::ENOENT);
            let is_one = is_gone || is_below || errors.contains(&error.errno());
            if is_one { Ok(()) } else { Err(format!("failed with '{error}', expected {errors:?}")) }
        }
        (_, Ok(_)) => Ok(()),
        (_, Err(error)) => Err(format!("failed: {error}")),
    }
}

fn same<T: PartialEq + std::fmt::Debug>(what: &str, found: &T, expected: &T) -> Result<(), String> {
    if found == expected { Ok(()) } else { Err(format!("{what} {found:?}, expected {expected:?}")) }
}

/// Attributes of a file against the model's.
pub(crate) fn compare_attr(node: &Node, attr: &Attr) -> Result<(), String> {
    if attr.mode != node.file_type() | node.perm {
        return Err(format!("mode {:o}, expected {:o}", attr.mode, node.file_type() | node.perm));
    }
    same("link count", &attr.nlink, &node.nlink)?;
    same("owner", &(attr.uid, attr.gid), &(node.uid, node.gid))?;
    if let Some(size) = node.size() {
        same("size", &attr.size, &size)?;
    }
    match node.mtime {
        Some(mtime) => same("modification time", &attr.mtime(), &mtime),
        None if node.mtime_before == Some(attr.mtime()) => {
            Err("a time that was set by hand outlives a later write".to_owned())
        }
        None => Ok(()),
    }
}

/// Bytes, told by length and first difference.
pub(crate) fn compare_data(expected: &[u8], data: &[u8]) -> Result<(), String> {
    same("number of bytes", &data.len(), &expected.len())?;
    match data.iter().zip(expected).position(|(found, expected)| found != expected) {
        None => Ok(()),
        Some(at) => {
            let wrong =
                data.iter().zip(expected).filter(|(found, expected)| found != expected).count();
            let zeros = data
                .iter()
                .zip(expected)
                .filter(|(found, expected)| found != expected && **found == 0)
                .count();
            Err(format!(
                "{wrong} of {} bytes are wrong, the first at {at}; {zeros} of them are zero",
                data.len()
            ))
        }
    }
}
