//! `lctl conf_param`: the older form of `set_param -P`, keyed by target or file system.

use types::{Errno, FsName};

use super::param::permanent;
use crate::Failed;
use crate::failure::First;

/// Arguments of `lctl conf_param`.
#[derive(Debug, clap::Args)]
#[command(
    after_help = "Examples:\n  lctl conf_param testfs.lov.stripecount=2         lod.testfs-MDT*-mdtlov.stripecount\n  lctl conf_param testfs-MDT000[0-3].lod.qos_maxage=10\n  lctl conf_param testfs-OST0002.osc.active=0       the OST is taken out of use"
)]
pub(super) struct Args {
    /// Delete: nodes keep the value until they start again.
    #[arg(short = 'd', long = "delete")]
    delete: bool,
    /// TARGET.SUBSYSTEM.NAME=VALUE, or FSNAME instead of the target; with -d names.
    #[arg(required = true, value_name = "PARAM=VALUE")]
    settings: Vec<String>,
}

/// Silent on success.
pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mut first = First::default();
    for setting in &args.settings {
        if let Err(failed) = set(setting, args.delete) {
            first.note(&failed);
        }
    }
    first.end()
}

fn set(setting: &str, delete: bool) -> Result<(), Failed> {
    let wrong =
        |what: &str| Failed::of(Errno::EINVAL, "error: conf_param", &format!("'{setting}' {what}"));
    let (name, value) =
        setting.split_once('=').map_or((setting, None), |(name, value)| (name, Some(value)));
    if !delete && value.is_none_or(str::is_empty) {
        return Err(wrong("has no value: write NAME=VALUE"));
    }
    let (fsname, name) = modern(name).ok_or_else(|| wrong("is not TARGET.SUBSYSTEM.NAME"))?;
    permanent::store(Some(fsname), &name, value.filter(|_| !delete), "conf_param").map(drop)
}

/// File system and today's name of `TARGET.SUBSYSTEM.NAME`.
fn modern(name: &str) -> Option<(FsName, String)> {
    let mut parts = name.splitn(3, '.');
    let (target, subsystem, name) =
        (parts.next()?, parts.next()?, parts.next().filter(|name| !name.is_empty())?);
    let at = ["-MDT", "-OST"].iter().find_map(|mark| target.find(mark));
    let fsname: FsName = target[..at.unwrap_or(target.len())].parse().ok()?;
    let all =
        |kind: &str| if at.is_some() { target.to_owned() } else { format!("{target}-{kind}*") };
    let modern = match subsystem {
        "lod" | "lov" => format!("lod.{}-mdtlov.{name}", all("MDT")),
        "mdt" | "mdd" => format!("{subsystem}.{}.{name}", all("MDT")),
        "ost" | "obdfilter" => format!("obdfilter.{}.{name}", all("OST")),
        // Every node heeds it under this very name.
        "osc" if name == "active" && at.is_some() => format!("{target}.osc.active"),
        "osc" => format!("osc.{}-osc-*.{name}", all("OST")),
        "mdc" => format!("mdc.{}-mdc-*.{name}", all("MDT")),
        "llite" => format!("llite.{fsname}-*.{name}"),
        "sys" => name.to_owned(),
        _ => return None,
    };
    Some((fsname, modern))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_names_become_todays() {
        for (old, fsname, new) in [
            (
                "testfs-MDT000[0-3].lod.dom_stripesize",
                "testfs",
                "lod.testfs-MDT000[0-3]-mdtlov.dom_stripesize",
            ),
            ("testfs.lov.stripecount", "testfs", "lod.testfs-MDT*-mdtlov.stripecount"),
            ("testfs.ost.commit_interval_ms", "testfs", "obdfilter.testfs-OST*.commit_interval_ms"),
            ("a-b-OST0002.osc.active", "a-b", "a-b-OST0002.osc.active"),
            ("testfs.osc.checksums", "testfs", "osc.testfs-OST*-osc-*.checksums"),
            ("testfs.llite.statahead_max", "testfs", "llite.testfs-*.statahead_max"),
            ("testfs.sys.timeout", "testfs", "timeout"),
        ] {
            let (found, name) = modern(old).unwrap_or_else(|| panic!("{old}"));
            assert_eq!((found.to_string().as_str(), name.as_str()), (fsname, new), "{old}");
        }
        for wrong in
            ["testfs", "testfs.lov", "testfs.lov.", "testfs.nothing.x", "far-too-long-a-name.lov.x"]
        {
            assert_eq!(modern(wrong), None, "{wrong}");
        }
    }
}
