//! Components that are added to or removed from a file, and layouts copied from other files.

use std::path::Path;

use layout::lov::composite::{LovComposite, inspect};
use types::Errno;

use super::COMMAND;
use crate::{Failed, lov};

const ADD: &str = "lustre.lov.add";
const DELETE: &str = "lustre.lov.del";

/// Flags of components that Lustre's users may set. All are about mirrors.
const FLAGS_OF_MIRRORS: [&str; 5] = ["prefer", "prefrd", "prefwr", "nosync", "stale"];

/// Why flags of a component are not set.
pub(super) fn no_flags(flags: Option<&str>) -> Failed {
    let name = |flag: &str| flag.strip_prefix('^').unwrap_or(flag).to_owned();
    let flags: Vec<String> = flags.unwrap_or_default().split(',').map(name).collect();
    let (errno, why) = match flags.iter().find(|flag| !FLAGS_OF_MIRRORS.contains(&flag.as_str())) {
        Some(flag) => {
            let known = FLAGS_OF_MIRRORS.join(", ");
            (Errno::EINVAL, format!("bad component flags '{flag}': expected [^]FLAG of {known}"))
        }
        None => {
            let why =
                "flags of components are about mirrors (not supported: one copy of each object)";
            (Errno::EOPNOTSUPP, why.to_owned())
        }
    };
    Failed::new(errno.raw(), format!("error: {COMMAND}: {why}"))
}

/// Adds the components of `value` behind those that the file has.
pub(super) fn add(path: &Path, value: &[u8]) -> Result<(), Failed> {
    put(path, ADD, value, "cannot add components to")
}

/// Takes the component `id`, or the first one without objects, and all behind it.
pub(super) fn delete(path: &Path, id: Option<u32>, flags: Option<&str>) -> Result<(), Failed> {
    let shown = path.display();
    let wrong = |text: String| {
        Failed::new(Errno::EINVAL.raw(), format!("error: {COMMAND}: '{shown}': {text}"))
    };
    let value = lov::read(path).map_err(|error| Failed::io(&error, COMMAND, &shown.to_string()))?;
    let value = value.ok_or_else(|| wrong("it has no layout".to_owned()))?;
    let layout = inspect(&value).map_err(|_| wrong("it has no components".to_owned()))?;
    let layout = only(layout, id, flags).map_err(wrong)?;
    put(path, DELETE, &layout.encode(), "cannot take components from")
}

/// The layout with nothing but the component that is to go first.
fn only(
    layout: LovComposite,
    id: Option<u32>,
    flags: Option<&str>,
) -> Result<LovComposite, String> {
    let mut entries = layout.entries.iter();
    let found = match (id, flags) {
        (Some(_), Some(_)) => return Err("say -I ID or ^init, not both".to_owned()),
        (Some(id), None) => entries.find(|entry| entry.id == id),
        (None, Some("^init")) => entries.find(|entry| !entry.is_instantiated()),
        (None, Some(other)) => return Err(format!("bad flags '{other}': ^init")),
        (None, None) => return Err("say which component: -I ID".to_owned()),
    };
    let entry = found.ok_or("it has no such component")?.clone();
    Ok(LovComposite { entries: vec![entry], ..layout })
}

/// The layout of `from`, as something to ask for.
pub(super) fn copied(from: &Path, command: &str) -> Result<Vec<u8>, Failed> {
    let shown = from.display().to_string();
    let wrong = |text: String| {
        Failed::new(Errno::EINVAL.raw(), format!("error: {command}: '{shown}': {text}"))
    };
    let value = lov::read(from).map_err(|error| Failed::path(&error, command, from))?;
    let value = value.ok_or_else(|| wrong("it has no layout".to_owned()))?;
    let asked = layout::lov::decode_any(&value).map_err(|error| wrong(error.to_string()))?;
    layout::lov::encode_any_dir(&asked).map_err(|error| wrong(error.to_string()))
}

/// The layout that is written in `from`.
pub(super) fn written(from: &Path, command: &str) -> Result<layout::Asked, Failed> {
    let shown = from.display().to_string();
    let text =
        std::fs::read_to_string(from).map_err(|error| Failed::path(&error, command, from))?;
    let asked = super::yaml::parse(&text)
        .and_then(|asked| asked.check().map(|()| asked).map_err(|error| error.to_string()));
    asked.map_err(|why| {
        Failed::new(Errno::EINVAL.raw(), format!("error: {command}: '{shown}': {why}"))
    })
}

fn put(path: &Path, name: &str, value: &[u8], what: &str) -> Result<(), Failed> {
    let set = rustix::fs::setxattr(path, name, value, rustix::fs::XattrFlags::empty());
    set.map_err(|error| {
        let about = format!("{what} '{}'", path.display());
        match error {
            rustix::io::Errno::BUSY => {
                let text = format!("error: {COMMAND}: {about}: its layout changes all the time");
                Failed::new(Errno::EBUSY.raw(), text)
            }
            error => Failed::io(&error.into(), COMMAND, &about),
        }
    })
}

#[cfg(test)]
mod tests {
    use layout::Template;
    use layout::composite::{CompositeTemplate, END_OF_FILE};
    use types::Fid;

    use super::*;

    #[test]
    fn a_component_is_named_by_its_id_or_by_what_it_lacks() {
        let template = CompositeTemplate::striped(0, [(1 << 20, 1), (END_OF_FILE, 2)]);
        let mut made = template.resolve(&Template::default()).expect("a layout");
        let objects = layout::Layout::plain(Fid::new(1, 1), 1 << 20, 1);
        made.instantiate(0, objects).expect("it had none");
        let layout = LovComposite::of_file(&made, Fid::new(2, 2));
        let ids = |id, flags| {
            let only = only(layout.clone(), id, flags)?;
            Ok::<_, String>(only.entries.iter().map(|entry| entry.id).collect::<Vec<_>>())
        };
        assert_eq!((ids(Some(1), None), ids(None, Some("^init"))), (Ok(vec![1]), Ok(vec![2])));
        for (id, flags) in
            [(Some(3), None), (None, Some("init")), (None, None), (Some(1), Some("^init"))]
        {
            assert!(ids(id, flags).is_err(), "{id:?} {flags:?}");
        }
    }

    #[test]
    fn flags_of_components_are_refused_by_name() {
        for (flags, part) in [
            (Some("prefer"), "flags of components are about mirrors"),
            (Some("^prefrd,nosync"), "flags of components are about mirrors"),
            (Some("prefer,init"), "bad component flags 'init'"),
            (None, "bad component flags ''"),
        ] {
            let text = no_flags(flags).text;
            assert!(text.contains(part), "{flags:?}: {text}");
        }
    }
}
