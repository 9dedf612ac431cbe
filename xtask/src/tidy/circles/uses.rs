//! The paths that a file of Rust names: those of its `use` lines, and those in its code.

use std::collections::BTreeSet;

/// Words of a path, as written or from the root of the crate.
pub(super) type Path = Vec<String>;

/// Words before the name of an item.
const ITEMS: &[&str] = &["struct", "enum", "union", "fn", "trait", "type", "const", "static"];

/// One name that a `use` line brings.
pub(super) struct Use {
    pub(super) path: Path,
    /// Its name in this file; `*`: all names of the path.
    pub(super) alias: String,
    pub(super) is_public: bool,
}

/// What a file names.
#[derive(Default)]
pub(super) struct Named {
    pub(super) uses: Vec<Use>,
    /// Paths of more than one word in the code.
    pub(super) paths: Vec<Path>,
    /// Names of items that it defines.
    pub(super) items: BTreeSet<String>,
    /// Modules of other files that are compiled for tests only.
    pub(super) tests: Vec<String>,
}

/// Reads the text of a file.
pub(super) fn read(text: &str) -> Named {
    let tokens = tokens(text);
    let mut named = Named::default();
    let mut at = 0;
    while let Some(token) = tokens.get(at) {
        let next = tokens.get(at + 1).copied().unwrap_or("");
        if *token == "#" && next == "[" {
            at = behind_attribute(&tokens, at, &mut named);
        } else if *token == "use" && is_path(next) {
            let end = end_of(&tokens, at, ";");
            let is_public = at > 0 && ["pub", ")"].contains(&tokens[at - 1]);
            expand(&tokens[at + 1..end], &[], is_public, &mut named.uses);
            at = end;
        } else if is_path(token) && next == "::" {
            let mut path = vec![(*token).to_owned()];
            while tokens.get(at + 1) == Some(&"::")
                && let Some(word) = tokens.get(at + 2).filter(|word| is_path(word))
            {
                path.push((*word).to_owned());
                at += 2;
            }
            named.paths.extend(Some(path).filter(|path| path.len() > 1));
            at += 1;
        } else {
            if ITEMS.contains(token) && is_path(next) {
                named.items.insert(next.to_owned());
            }
            at += 1;
        }
    }
    named
}

/// Where to read on behind an attribute. One that is for tests takes a `use` line with it, or a
/// module in another file.
fn behind_attribute(tokens: &[&str], from: usize, named: &mut Named) -> usize {
    let mut end = closing(tokens, from + 1);
    let inside = &tokens[from..end];
    let is_for_tests =
        inside.contains(&"cfg") && inside.contains(&"test") && !inside.contains(&"not");
    if !is_for_tests {
        return end;
    }
    while tokens.get(end) == Some(&"#") {
        end = closing(tokens, end + 1);
    }
    match tokens.get(end..end + 3) {
        Some(["mod", name, ";"]) => named.tests.push((*name).to_owned()),
        Some(["use", ..]) => return end_of(tokens, end, ";"),
        _ => {}
    }
    end
}

/// The index behind the bracket that closes the one at `from`.
fn closing(tokens: &[&str], from: usize) -> usize {
    let mut depth = 0;
    for (at, token) in tokens.iter().enumerate().skip(from) {
        match *token {
            "[" => depth += 1,
            "]" if depth == 1 => return at + 1,
            "]" => depth -= 1,
            _ => {}
        }
    }
    tokens.len()
}

fn end_of(tokens: &[&str], from: usize, end: &str) -> usize {
    let found = tokens[from..].iter().position(|token| *token == end);
    found.map_or(tokens.len(), |end| from + end)
}

/// Adds what one tree of a `use` line names.
fn expand(tree: &[&str], before: &[String], is_public: bool, uses: &mut Vec<Use>) {
    let mut path = before.to_vec();
    let mut alias = None;
    for (at, token) in tree.iter().enumerate() {
        match *token {
            "{" => {
                for branch in branches(&tree[at + 1..]) {
                    expand(branch, &path, is_public, uses);
                }
                return;
            }
            "as" => {
                alias = tree.get(at + 1).map(|alias| (*alias).to_owned());
                break;
            }
            "::" => {}
            word => path.push(word.to_owned()),
        }
    }
    if path.len() > 1 && path.last().is_some_and(|last| last == "self") {
        path.pop();
    }
    if let Some(alias) = alias.or_else(|| path.last().cloned()) {
        uses.push(Use { path, alias, is_public });
    }
}

/// The trees between braces, up to the closing one.
fn branches<'a, 't>(tree: &'a [&'t str]) -> Vec<&'a [&'t str]> {
    let (mut depth, mut from, mut all) = (0, 0, Vec::new());
    for (at, token) in tree.iter().enumerate() {
        match *token {
            "{" => depth += 1,
            "}" if depth == 0 => {
                all.push(&tree[from..at]);
                break;
            }
            "}" => depth -= 1,
            "," if depth == 0 => {
                all.push(&tree[from..at]);
                from = at + 1;
            }
            _ => {}
        }
    }
    all.retain(|branch| !branch.is_empty());
    all
}

fn is_path(token: &str) -> bool {
    token.starts_with(|char: char| char.is_alphabetic() || char == '_')
}

/// Words and signs, without comments and literals.
fn tokens(text: &str) -> Vec<&str> {
    let mut tokens = Vec::new();
    let mut rest = text;
    while let Some(first) = rest.chars().next() {
        let length = match first {
            '/' if rest.starts_with("//") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            '"' => string(rest),
            '\'' => character(rest),
            ':' if rest.starts_with("::") => {
                tokens.push("::");
                2
            }
            _ if is_word(first) => {
                let end = rest.find(|char: char| !is_word(char)).unwrap_or(rest.len());
                let literal = raw_string(&rest[..end], &rest[end..]);
                tokens.extend(Some(&rest[..end]).filter(|_| literal == 0));
                end + literal
            }
            _ => {
                let length = first.len_utf8();
                tokens.extend(Some(&rest[..length]).filter(|_| !first.is_whitespace()));
                length
            }
        };
        rest = &rest[length..];
    }
    tokens
}

fn is_word(char: char) -> bool {
    char.is_alphanumeric() || char == '_'
}

/// Bytes of the string that begins here.
fn string(rest: &str) -> usize {
    let mut is_escaped = false;
    for (at, char) in rest.char_indices().skip(1) {
        match char {
            _ if is_escaped => is_escaped = false,
            '\\' => is_escaped = true,
            '"' => return at + 1,
            _ => {}
        }
    }
    rest.len()
}

/// Bytes of the raw string that begins with this word; zero if none does.
fn raw_string(word: &str, behind: &str) -> usize {
    let hashes = behind.len() - behind.trim_start_matches('#').len();
    if !["r", "br", "cr"].contains(&word) || !behind[hashes..].starts_with('"') {
        return 0;
    }
    let end = format!("\"{}", "#".repeat(hashes));
    let text = &behind[hashes + 1..];
    text.find(&end).map_or(behind.len(), |at| hashes + 1 + at + end.len())
}

/// Bytes of the character that begins here; of a lifetime, its quote.
fn character(rest: &str) -> usize {
    let mut inside = rest.char_indices().skip(1);
    let Some((_, first)) = inside.next() else { return 1 };
    if first == '\\' {
        let _escaped = inside.next();
        return inside.find(|(_, char)| *char == '\'').map_or(1, |(at, _)| at + 1);
    }
    match inside.next() {
        Some((at, '\'')) => at + 1,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use super::{read, tokens};

    #[test]
    fn comments_and_literals_are_no_words() {
        let text = "a // b\n/* c */ \"d \\\" e\" r#\"f \" g\"# 'h' '\\'' &'i j::k";
        assert_eq!(tokens(text), ["a", "&", "i", "j", "::", "k"]);
    }

    #[test]
    fn a_tree_of_names_is_taken_apart() {
        let named = read("pub(crate) use crate::a::{self, B as C, d::{E, F}, g::*};");
        let uses: Vec<(String, &str)> =
            named.uses.iter().map(|line| (line.path.join("::"), &line.alias[..])).collect();
        let expected = [
            ("crate::a", "a"),
            ("crate::a::B", "C"),
            ("crate::a::d::E", "E"),
            ("crate::a::d::F", "F"),
            ("crate::a::g::*", "*"),
        ];
        assert_eq!(uses, expected.map(|(path, alias)| (path.to_owned(), alias)));
        assert!(named.uses.iter().all(|line| line.is_public) && named.paths.is_empty());
    }

    #[test]
    fn paths_items_and_tests_are_found_in_code() {
        let named = read("#[cfg(test)]\nmod b;\nmod c;\nfn d() { super::e::F::new(g::<H>(1)) }");
        assert_eq!(named.tests, ["b"]);
        assert!(named.items.contains("d"));
        assert_eq!(named.paths, [["super", "e", "F", "new"]]);
        assert!(read("#[cfg(test)]\nuse crate::a::B;").uses.is_empty());
    }
}
