//! Links in `*.md` lead to a file of the repository, and to a heading that is in it.

use anyhow::Result;

use super::tree::{File, Tree};

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    for file in tree.markdown() {
        for (number, line) in file.prose() {
            for target in targets(line).filter(|target| !leads(tree, file, target)) {
                wrong.push(format!("{}:{number}: link to '{target}' leads nowhere", file.name));
            }
        }
    }
    Ok(())
}

/// Targets of `[text](target)` on a line.
fn targets(line: &str) -> impl Iterator<Item = &str> {
    line.match_indices("](").filter_map(|(at, open)| {
        let rest = &line[at + open.len()..];
        rest.find(')').map(|end| &rest[..end])
    })
}

fn leads(tree: &Tree, from: &File, target: &str) -> bool {
    if target.contains("://") || target.starts_with("mailto:") {
        return true;
    }
    let (path, heading) = target.split_once('#').unwrap_or((target, ""));
    let name = if path.is_empty() { Some(from.name.clone()) } else { beside(&from.name, path) };
    let Some(name) = name.filter(|name| tree.has(name)) else { return false };
    heading.is_empty() || tree.get(&name).is_some_and(|file| has_heading(file, heading))
}

/// The path from the root that `path` means in the file `from`; none if it leaves the repository.
pub(super) fn beside(from: &str, path: &str) -> Option<String> {
    let mut parts: Vec<&str> = from.split('/').collect();
    parts.pop();
    for part in path.split('/').filter(|part| !matches!(*part, "" | ".")) {
        if part == ".." {
            parts.pop()?;
        } else {
            parts.push(part);
        }
    }
    Some(parts.join("/"))
}

fn has_heading(file: &File, wanted: &str) -> bool {
    let headings = file.prose().filter_map(|(_, line)| {
        let text = line.trim_start_matches('#');
        (text.len() < line.len()).then_some(text)
    });
    headings.into_iter().any(|text| anchor(text) == wanted)
}

/// The anchor of a heading: lower case, spaces as hyphens, without punctuation.
fn anchor(heading: &str) -> String {
    let letters = heading.trim().chars().filter_map(|letter| match letter {
        ' ' => Some('-'),
        '-' | '_' => Some(letter),
        _ if letter.is_alphanumeric() => Some(letter.to_ascii_lowercase()),
        _ => None,
    });
    letters.collect()
}

#[cfg(test)]
mod tests {
    use super::look;
    use crate::tidy::tree::{Tree, file};

    #[test]
    fn links_are_followed_to_file_and_heading() {
        let check = |text: &str| {
            let files = vec![file("docs/a.md", text), file("docs/b/c.md", "# One `two`, three!")];
            let tree = Tree::new(&["docs/a.md", "docs/b/c.md", "README.md", "src/d.rs"], files);
            let mut wrong = Vec::new();
            look(&tree, &mut wrong).expect("a rule that cannot fail");
            wrong.len()
        };
        for good in [
            "[c](b/c.md) and [readme](../README.md)",
            "[c](b/c.md#one-two-three)",
            "# Here\n[here](#here), [code](../src/d.rs), [directory](b)",
            "[web](https://example.com/x.md)",
        ] {
            assert_eq!(check(good), 0, "{good}");
        }
        for bad in ["[c](c.md)", "[c](b/c.md#four)", "[out](../../README.md)", "[here](#gone)"] {
            assert_eq!(check(bad), 1, "{bad}");
        }
    }
}
