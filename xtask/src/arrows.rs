//! The arrows of ARCHITECTURE.md, compared with `cargo metadata`: which crates may depend on which.

use std::collections::VecDeque;

use anyhow::{Context, Result, bail};
use serde_json::Value;

use crate::run;

/// Folder, and the folders (or crates) that its crates may name.
const ALLOWED: &[(&str, &[&str])] = &[
    ("base", &["base"]),
    ("logic", &["base"]),
    ("machine", &["base", "env"]),
    ("rpc", &["base", "logic", "env", "rpc"]),
    ("store", &["base", "env", "osd"]),
    ("servers", &["base", "logic", "env", "rpc", "store"]),
    ("clients", &["base", "logic", "env", "rpc", "clients"]),
    ("tools", &["base", "logic", "machine", "rpc", "store", "servers", "clients", "tools"]),
    ("sim", &["base", "logic", "machine", "rpc", "store", "servers", "clients", "sim"]),
];

/// Crates inside these folders do not know each other.
const STRANGERS: &[&str] = &["logic", "servers"];

/// What a folder's strangers share: a crate that all of them may know, and that knows none of them.
const SHARED: &[(&str, &str)] = &[("servers", "target")];

/// Only these folders (or crates) may name a body of the environment or of the store outside tests.
const BODIES: &[(&str, &[&str])] =
    &[("env-os", &["tools"]), ("env-sim", &["sim"]), ("osd-disk", &["tools", "cluster"])];

/// Crates, and the folders and crates that they reach by no chain of dependencies: a tool that
/// sends a line of JSON links no server, store or socket driver.
const UNREACHED: &[(&str, &[&str])] =
    &[("cli", HEAVY), ("ctl", HEAVY), ("status", HEAVY), ("bench", SERVERS)];

const HEAVY: &[&str] = &[
    "servers",
    "clients",
    "rpc",
    "osd-disk",
    "env-os",
    "env-sim",
    "daemons",
    "lmdb-master-sys",
    "io-uring",
];

const SERVERS: &[&str] = &["servers", "osd-disk", "daemons", "lmdb-master-sys"];

/// One dependency outside tests and build scripts.
struct Arrow {
    from: String,
    to: String,
}

pub(crate) fn check() -> Result<()> {
    let metadata: Value = serde_json::from_str(&run::output(
        "cargo",
        &["metadata", "--no-deps", "--format-version", "1"],
    )?)?;
    let packages = metadata["packages"].as_array().context("metadata lists packages")?;
    let folders: Vec<(String, String)> = packages.iter().filter_map(folder_of).collect();
    let folder = |name: &str| {
        folders.iter().find(|(package, _)| package == name).map(|(_, folder)| folder.as_str())
    };
    let arrows = arrows(packages)?;
    let mut wrong = Vec::new();
    for Arrow { from, to } in &arrows {
        if let (Some(from_folder), Some(to_folder)) = (folder(from), folder(to))
            && !allowed(from_folder, from, to_folder, to)
        {
            wrong.push(format!("{from_folder}/{from} -> {to_folder}/{to}"));
        }
    }
    for (from, unreached) in UNREACHED {
        let is_unreached = |name: &str| {
            unreached.contains(&name)
                || folder(name).is_some_and(|folder| unreached.contains(&folder))
        };
        wrong.extend(chain(from, &arrows, is_unreached).map(|chain| chain.join(" -> ")));
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("arrows that ARCHITECTURE.md does not have:\n  {}", wrong.join("\n  "))
    }
}

fn allowed(from: &str, name: &str, to_folder: &str, to: &str) -> bool {
    if STRANGERS.contains(&from) && to_folder == from && name != to {
        return SHARED.contains(&(from, to));
    }
    if let Some((_, users)) = BODIES.iter().find(|(body, _)| *body == to)
        && !users.contains(&from)
        && !users.contains(&name)
    {
        return false;
    }
    let Some((_, may)) = ALLOWED.iter().find(|(folder, _)| *folder == from) else { return false };
    may.contains(&to_folder) || may.contains(&to)
}

/// Normal dependencies of the workspace's packages.
fn arrows(packages: &[Value]) -> Result<Vec<Arrow>> {
    let mut arrows = Vec::new();
    for package in packages {
        let from = package["name"].as_str().context("a package has a name")?;
        let all = package["dependencies"].as_array().context("a package lists dependencies")?;
        for dependency in all.iter().filter(|dependency| dependency["kind"].is_null()) {
            let to = dependency["name"].as_str().context("a dependency has a name")?;
            arrows.push(Arrow { from: from.to_owned(), to: to.to_owned() });
        }
    }
    Ok(arrows)
}

/// A shortest chain of arrows from `from` to a name that `is_end` accepts.
fn chain<'a>(
    from: &'a str,
    arrows: &'a [Arrow],
    is_end: impl Fn(&str) -> bool,
) -> Option<Vec<&'a str>> {
    let mut chains = VecDeque::from([vec![from]]);
    let mut seen = vec![from];
    while let Some(chain) = chains.pop_front() {
        let last = *chain.last()?;
        for Arrow { to, .. } in arrows.iter().filter(|arrow| arrow.from == last) {
            let longer = || chain.iter().copied().chain([to.as_str()]).collect();
            if is_end(to) {
                return Some(longer());
            }
            if !seen.contains(&to.as_str()) {
                seen.push(to);
                chains.push_back(longer());
            }
        }
    }
    None
}

/// Name of a package and the folder below `crates/` in which it lives.
fn folder_of(package: &Value) -> Option<(String, String)> {
    let manifest = package["manifest_path"].as_str()?;
    let inside = manifest.split("/crates/").nth(1)?;
    Some((package["name"].as_str()?.to_owned(), inside.split('/').next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::{Arrow, allowed, chain};

    #[test]
    fn arrows_point_down_only() {
        assert!(allowed("rpc", "endpoint", "logic", "ptlrpc"));
        assert!(!allowed("logic", "nrs", "machine", "env"));
        assert!(!allowed("servers", "mdt", "servers", "ost"));
        assert!(allowed("servers", "mdt", "servers", "target"));
        assert!(!allowed("servers", "target", "servers", "mdt"));
        assert!(!allowed("clients", "client", "servers", "mdt"));
        assert!(!allowed("clients", "client", "machine", "env-os"));
        assert!(!allowed("rpc", "service", "store", "osd"));
        assert!(allowed("sim", "cluster", "store", "osd-disk"));
        assert!(!allowed("sim", "oracle", "store", "osd-disk"));
    }

    #[test]
    fn a_chain_of_dependencies_is_found_and_a_missing_one_is_not() {
        let arrow = |(from, to): (&str, &str)| Arrow { from: from.into(), to: to.into() };
        let arrows = [("cli", "ctl"), ("ctl", "env"), ("ctl", "cli"), ("daemons", "ctl")];
        let arrows: Vec<Arrow> = arrows.into_iter().map(arrow).collect();
        assert_eq!(chain("cli", &arrows, |name| name == "env"), Some(vec!["cli", "ctl", "env"]));
        assert_eq!(chain("cli", &arrows, |name| name == "daemons"), None);
    }
}
