//! The parameters of servers and of a mount, and which of them can be set, compared with the stored
//! list. `cargo xtask tidy` compares that list with `docs/operations.md`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use mounted::Up;

/// Where services have their parameters: all have the same ones.
const SERVICES: &[&str] = &["ldlm.services", "mds.MDS", "mgs.MGS", "ost.OSS"];

/// Names of one file system with their instances taken out: `obdfilter.OST.stats`,
/// `llite.MOUNT.fstype`, `SERVICE.threads_max`.
fn general(name: &str) -> String {
    for at in SERVICES {
        let Some(rest) = name.strip_prefix(at) else { continue };
        // The MGS has parameters of its own beside those of its service.
        let Some((_, leaf)) = rest.trim_start_matches('.').split_once('.') else { break };
        return format!("SERVICE.{leaf}");
    }
    let parts = name.split('.').map(|part| {
        let Some(rest) = part.strip_prefix("testfs-") else { return part.to_owned() };
        let (target, more) = rest.split_once('-').unwrap_or((rest, ""));
        let more = more.split('-').next().unwrap_or_default();
        match target.get(..3) {
            Some(kind @ ("MDT" | "DOM" | "OST")) if more.is_empty() => kind.to_owned(),
            Some(kind @ ("MDT" | "DOM" | "OST")) => format!("{kind}-{more}"),
            _ => "MOUNT".to_owned(),
        }
    });
    parts.collect::<Vec<_>>().join(".")
}

#[test]
fn the_kept_list_names_every_parameter() {
    let mut up = Up::new("params");
    let listed = up.tool(&["lctl", "list_param", "-R", "-F", "*"]);
    up.stop();
    // A level ends in '/', and a parameter that can be set in '='.
    let leaves = listed.lines().map(str::trim).filter(|name| !name.ends_with('/'));
    let leaves: BTreeSet<String> = leaves.map(general).collect();
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("parameters.txt");
    if std::env::var_os("NACRE_UPDATE").is_some() {
        let text: String = leaves.iter().map(|name| format!("{name}\n")).collect();
        fs::write(&path, text).expect("the kept list can be written");
    }
    let kept = fs::read_to_string(&path).expect("the kept list");
    let kept: BTreeSet<String> = kept.lines().map(str::to_owned).collect();
    assert_eq!(leaves, kept, "NACRE_UPDATE=1 writes parameters.txt anew");
}
