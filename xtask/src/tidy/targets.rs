//! Lines of logs name a target in full, in the field `target_id`. An index under a name of its own
//! is not found by a search for the target.

use anyhow::Result;

use super::tree::{File, Tree};

/// Fields that would be an index.
const FIELDS: &[&str] = &["mdt", "ost"];

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let is_logged = |file: &&File| file.name.starts_with("crates/");
    tree.rust().filter(is_logged).for_each(|file| look_at(file, wrong));
    Ok(())
}

fn look_at(file: &File, wrong: &mut Vec<String>) {
    for (at, path) in file.text.match_indices("tracing::") {
        let at = at + path.len();
        let Some((level, event)) = file.text[at..].split_once("!(") else { return };
        if !level.bytes().all(|byte| byte.is_ascii_lowercase()) {
            continue;
        }
        let number = file.text[..at].lines().count();
        for field in fields(event).filter(|field| FIELDS.contains(field)) {
            wrong.push(format!("{}:{number}: `{field}` in a log, not `target_id`", file.name));
        }
    }
}

/// Names of the fields of an event, which are in front of its message.
fn fields(event: &str) -> impl Iterator<Item = &str> {
    let mut code = event.split('"').step_by(2).skip_while(|code| code.trim() == "target:");
    let fields = code.next().unwrap_or_default().split(',');
    let names = fields.filter_map(|field| field.split('=').next());
    names.map(|name| name.trim().trim_start_matches(['%', '?']))
}

#[cfg(test)]
mod tests {
    use super::look_at;
    use crate::tidy::tree::file;

    #[test]
    fn a_target_is_not_named_by_its_index_alone() {
        let check = |event: &str| {
            let text = format!("use tracing::field;\n\n    tracing::info!({event});\n");
            let mut wrong = Vec::new();
            look_at(&file("a.rs", &text), &mut wrong);
            wrong
        };
        let refused = ["a.rs:3: `ost` in a log, not `target_id`"];
        for event in ["ost, \"x\"", "%error, ost = 3, \"x\"", "\n target: \"mdt\", %ost, \"x\""] {
            assert_eq!(check(event), refused, "{event}");
        }
        for event in ["\"mdt, ost\"", "target: \"mdt\", target_id = %ost.name(of), osts, \"x\""] {
            assert!(check(event).is_empty(), "{event}");
        }
    }
}
