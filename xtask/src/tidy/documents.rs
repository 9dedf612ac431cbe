//! Documents that readers look for first must exist.

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

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let missing = DOCUMENTS.iter().filter(|document| !tree.has(document));
    wrong.extend(missing.map(|document| format!("{document}: missing")));
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::{DOCUMENTS, look};
    use crate::tidy::tree::Tree;

    #[test]
    fn each_missing_document_is_named() {
        let mut wrong = Vec::new();
        look(&Tree::new(&DOCUMENTS[1..], Vec::new()), &mut wrong).expect("a rule that cannot fail");
        assert_eq!(wrong, ["README.md: missing"]);
    }
}
