//! Documents that readers look for first must exist, and the index of decisions has all of them.

use anyhow::Result;

use super::tree::Tree;

const DOCUMENTS: &[&str] = &[
    "README.md",
    "ARCHITECTURE.md",
    "CONTRIBUTING.md",
    "LICENSE",
    "bench/README.md",
    "docs/semantics.md",
    "docs/operations.md",
    "docs/design/rpc.md",
    "docs/design/recovery.md",
    "docs/design/store.md",
    "docs/formats/README.md",
];

/// Folder of the decisions, which begin with their number.
const DECISIONS: &str = "docs/decisions/";
const INDEX: &str = "docs/decisions/README.md";

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let missing = DOCUMENTS.iter().filter(|document| !tree.has(document));
    wrong.extend(missing.map(|document| format!("{document}: missing")));
    unlisted(tree, wrong);
    Ok(())
}

/// Decisions that their index does not link.
fn unlisted(tree: &Tree, wrong: &mut Vec<String>) {
    let index = tree.get(INDEX).map_or("", |file| file.text.as_str());
    let decisions = tree.names().filter_map(|name| name.strip_prefix(DECISIONS));
    for decision in decisions.filter(|name| name.starts_with(|first: char| first.is_numeric())) {
        if !index.contains(&format!("({decision})")) {
            wrong.push(format!("{INDEX}: no link to {decision}"));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{DOCUMENTS, INDEX, look, unlisted};
    use crate::tidy::tree::{Tree, file};

    #[test]
    fn each_missing_document_is_named() {
        let mut wrong = Vec::new();
        look(&Tree::new(&DOCUMENTS[1..], Vec::new()), &mut wrong).expect("a rule that cannot fail");
        assert_eq!(wrong, ["README.md: missing"]);
    }

    #[test]
    fn each_decision_is_in_the_index() {
        let names = [INDEX, "docs/decisions/0001-a.md", "docs/decisions/0002-b.md"];
        let tree = Tree::new(&names, vec![file(INDEX, "| [0001](0001-a.md): a |")]);
        let mut wrong = Vec::new();
        unlisted(&tree, &mut wrong);
        assert_eq!(wrong, ["docs/decisions/README.md: no link to 0002-b.md"]);
    }
}
