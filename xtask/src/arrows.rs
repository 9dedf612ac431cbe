//! The arrows of ARCHITECTURE.md, held against `cargo metadata`: who may depend on whom.

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

/// Only these folders may name a body of the environment or of the store outside tests.
const BODIES: &[(&str, &[&str])] =
    &[("env-os", &["tools"]), ("env-sim", &["sim"]), ("osd-disk", &["tools"])];

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
    let mut wrong = Vec::new();
    for package in packages {
        let Some((name, from)) = folder_of(package) else { continue };
        for dependency in
            package["dependencies"].as_array().context("a package lists dependencies")?
        {
            let (Some(to), kind) = (dependency["name"].as_str(), dependency["kind"].as_str())
            else {
                continue;
            };
            if let (Some(to_folder), None) = (folder(to), kind)
                && !allowed(&from, &name, to_folder, to)
            {
                wrong.push(format!("{from}/{name} -> {to_folder}/{to}"));
            }
        }
    }
    if wrong.is_empty() {
        Ok(())
    } else {
        bail!("arrows that ARCHITECTURE.md does not have:\n  {}", wrong.join("\n  "))
    }
}

fn allowed(from: &str, name: &str, to_folder: &str, to: &str) -> bool {
    if STRANGERS.contains(&from) && to_folder == from && name != to {
        return false;
    }
    if let Some((_, users)) = BODIES.iter().find(|(body, _)| *body == to)
        && !users.contains(&from)
    {
        return false;
    }
    let Some((_, may)) = ALLOWED.iter().find(|(folder, _)| *folder == from) else { return false };
    may.contains(&to_folder) || may.contains(&to)
}

/// Name of a package and the folder below `crates/` in which it lives.
fn folder_of(package: &Value) -> Option<(String, String)> {
    let manifest = package["manifest_path"].as_str()?;
    let inside = manifest.split("/crates/").nth(1)?;
    Some((package["name"].as_str()?.to_owned(), inside.split('/').next()?.to_owned()))
}

#[cfg(test)]
mod tests {
    use super::allowed;

    #[test]
    fn arrows_point_down_only() {
        assert!(allowed("rpc", "endpoint", "logic", "ptlrpc"));
        assert!(!allowed("logic", "nrs", "machine", "env"));
        assert!(!allowed("servers", "mdt", "servers", "ost"));
        assert!(!allowed("clients", "client", "servers", "mdt"));
        assert!(!allowed("clients", "client", "machine", "env-os"));
        assert!(!allowed("rpc", "service", "store", "osd"));
    }
}
