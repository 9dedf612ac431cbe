//! `lctl set_param -P`: the MGS stores the value, and all nodes apply it.

use ctl::ask::{self, AskError};
use ctl::{Ask, Reply, everywhere};
use types::{Errno, FsName};

use super::{Set, pairs};
use crate::Failed;
use crate::failure::First;

pub(super) fn set(args: &Set) -> Result<(), Failed> {
    let mut first = First::default();
    for (name, value) in settings(args)? {
        match store(args.fsname, &name, value.as_deref(), "set_param") {
            Ok(_) if args.value_only => {}
            Ok(filesystems) => crate::out::print(&told(&name, value.as_deref(), &filesystems)),
            Err(failed) => first.note(&failed),
        }
    }
    first.end()
}

/// Names with their values; with -d names alone, of which a value is ignored.
fn settings(args: &Set) -> Result<Vec<(String, Option<String>)>, Failed> {
    if args.delete {
        let name =
            |word: &String| word.split_once('=').map_or(word.as_str(), |(name, _)| name).to_owned();
        return Ok(args.settings.iter().map(|word| (name(word), None)).collect());
    }
    let pairs = pairs(&args.settings)?;
    match pairs.iter().find(|(_, value)| value.is_empty()) {
        Some((name, _)) => Err(Failed::of(
            Errno::EINVAL,
            "error: set_param",
            &format!("'{name}' has no value: write NAME=VALUE (-P -d deletes it)"),
        )),
        None => Ok(pairs.into_iter().map(|(name, value)| (name, Some(value))).collect()),
    }
}

/// Has the MGS keep or, without a value, delete it: the first daemon of this machine that is one
/// answers with the file systems.
pub(in crate::lctl) fn store(
    fsname: Option<FsName>,
    name: &str,
    value: Option<&str>,
    command: &str,
) -> Result<Vec<String>, Failed> {
    let fsname = fsname.map(|name| name.to_string());
    let question =
        Ask::SetPermanent { fsname, name: name.to_owned(), value: value.map(str::to_owned) };
    let mut silent = None;
    for daemon in everywhere::daemons() {
        match ask::ask_within(&daemon.socket, &question, everywhere::patience()) {
            Ok(Reply::Lines(filesystems)) => return Ok(filesystems),
            Ok(_) => {}
            Err(AskError::Refused(failure)) if is_no_mgs(failure.errno) => {}
            Err(error) => {
                let text = format!("error: {command}: {daemon}: {error}");
                silent.get_or_insert(Failed::new(error.errno(), text));
            }
        }
    }
    if let Some(failed) = silent {
        return Err(failed);
    }
    Err(Failed::new(
        Errno::ENODEV.raw(),
        format!(
            "error: {command}: this runs on the machine that serves the MGS, and no MGS is served here"
        ),
    ))
}

fn is_no_mgs(errno: i32) -> bool {
    [Errno::ENODEV.raw(), Errno::ENOTTY.raw()].contains(&errno)
}

fn told(name: &str, value: Option<&str>, filesystems: &[String]) -> String {
    let line = |fsname: &String| match value {
        Some(value) => format!("{fsname}: {name}={value}\n"),
        None => format!("{fsname}: {name} is deleted\n"),
    };
    filesystems.iter().map(line).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::parse;

    fn check(line: &str) -> Result<Vec<(String, Option<String>)>, String> {
        let set: Set = parse(line.split_whitespace()).map_err(|error| error.to_string())?;
        settings(&set).map_err(|failed| failed.text)
    }

    #[test]
    fn a_value_is_set_or_its_name_deleted() {
        let pair = |name: &str, value: Option<&str>| (name.to_owned(), value.map(str::to_owned));
        assert_eq!(
            check("x -P lod.*.stripecount=2"),
            Ok(vec![pair("lod.*.stripecount", Some("2"))])
        );
        assert_eq!(check("x -P -d a.b c.d=1"), Ok(vec![pair("a.b", None), pair("c.d", None)]));
        assert!(check("x -P a.b=").is_err_and(|error| error.contains("has no value")));
        assert!(check("x -d a.b").is_err_and(|error| error.contains("--permanent")));
    }

    #[test]
    fn what_was_done_is_told_for_each_file_system() {
        assert_eq!(told("a", Some("1"), &["x".into(), "y".into()]), "x: a=1\ny: a=1\n");
        assert_eq!(told("a", None, &["x".into()]), "x: a is deleted\n");
    }
}
