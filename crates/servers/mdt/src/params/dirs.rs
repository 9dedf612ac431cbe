//! `mdt.*.{no_create,degraded,readonly}` and `mdt.*.enable_*`: what this MDT takes, new directories
//! on others, and the users who may name MDTs.

use std::rc::Rc;

use params::{ParamTree, parse_within};
use target::{Leaves, Place};
use wire::body::StatfsState;

use crate::config::Dirs;
use crate::target::Mdt;

/// States that an administrator may give an MDT, by parameter.
const MARKS: [(&str, StatfsState); 3] = [
    ("degraded", StatfsState::DEGRADED),
    ("no_create", StatfsState::NO_CREATE),
    ("readonly", StatfsState::READ_ONLY),
];

type Get = fn(&Dirs) -> String;

/// Takes a value, or says what is wrong with it.
type Put = fn(&mut Dirs, &str) -> Result<(), String>;

/// Name, as it is read, as it is set.
const ALL: [(&str, Get, Put); 4] = [
    (
        "enable_remote_dir",
        |dirs| u8::from(dirs.remote).to_string(),
        |dirs, value| on_off(value).map(|on| dirs.remote = on),
    ),
    (
        "enable_striped_dir",
        |dirs| u8::from(dirs.striped).to_string(),
        |dirs, value| on_off(value).map(|on| dirs.striped = on),
    ),
    (
        "enable_dir_restripe",
        |dirs| u8::from(dirs.restriped).to_string(),
        |dirs, value| on_off(value).map(|on| dirs.restriped = on),
    ),
    (
        "enable_remote_dir_gid",
        |dirs| dirs.remote_gid.to_string(),
        |dirs, value| {
            let gid = parse_within(value, -1, i64::from(u32::MAX) - 1);
            gid.map(|gid| dirs.remote_gid = gid)
        },
    ),
];

/// Registers those of `mdt`.
pub(super) fn register(mdt: &Rc<Mdt>, tree: &ParamTree, place: &Place) {
    let leaves = Leaves::new(tree, place.base(), mdt);
    target::register_marks(&leaves, &MARKS, |mdt| &mdt.engine.marks);
    leaves.read("commit_on_sharing", |_| "1".to_owned()); // no choice
    for (name, read, put) in ALL {
        let write =
            move |mdt: &Mdt, value: &str| put(&mut mdt.engine.state.borrow_mut().dirs, value);
        leaves.set(name, move |mdt| read(&mdt.engine.state.borrow().dirs), write);
    }
}

fn on_off(value: &str) -> Result<bool, String> {
    parse_within(value, 0, 1).map(|on| on == 1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_read_as_they_were_set() {
        let check = |name: &str, value: &str| {
            let (_, read, put) = ALL.into_iter().find(|(known, ..)| *known == name).expect("known");
            let mut dirs = Dirs::default();
            put(&mut dirs, value).map(|()| read(&dirs))
        };
        for (name, value) in [
            ("enable_remote_dir", "0"),
            ("enable_striped_dir", "1"),
            ("enable_dir_restripe", "0"),
            ("enable_remote_dir_gid", "-1"),
            ("enable_remote_dir_gid", "1000"),
        ] {
            assert_eq!(check(name, value), Ok(value.to_owned()), "{name}={value}");
        }
        assert!(check("enable_remote_dir", "2").is_err());
        assert!(check("enable_remote_dir_gid", "-2").is_err());
    }
}
