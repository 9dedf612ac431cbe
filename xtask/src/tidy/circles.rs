//! Circles of files: files of a crate that name each other can only be read together. So the
//! largest circle of a crate does not grow.
//!
//! A file names the files that define the items of its `use` lines and paths. A module that only
//! declares and re-exports its children names none of them. Calls of methods and the output of
//! macros are not seen.

mod uses;

use std::collections::{BTreeMap, BTreeSet};

use anyhow::Result;

use super::sizes::{is_test, lines_of_code};
use super::tree::Tree;
use uses::{Named, Path, Use, read};

/// Crates with a circle of files, and the files of their largest one.
const LARGEST: &[(&str, usize)] = &[
    ("crates/base/wire", 2),
    ("crates/clients/client", 7),
    ("crates/logic/device", 2),
    ("crates/logic/nrs", 3),
    ("crates/logic/ptlrpc", 2),
    ("crates/machine/env-sim", 3),
    ("crates/rpc/selftest", 2),
    ("crates/rpc/service", 4),
    ("crates/servers/mdt", 6),
    ("crates/sim/cluster", 3),
    ("crates/sim/kernel", 4),
    ("crates/sim/oracle", 2),
    ("crates/store/osd", 3),
    ("crates/tools/bench", 8),
    ("crates/tools/cli", 5),
    ("crates/tools/daemons", 9),
    ("crates/tools/doctor", 2),
    ("crates/tools/metrics", 3),
];

/// Re-exports of re-exports that are followed.
const REEXPORTS_MAX: usize = 8;

pub(super) fn look(tree: &Tree, wrong: &mut Vec<String>) -> Result<()> {
    let mut crates: BTreeMap<&str, Vec<(&str, &str)>> = BTreeMap::new();
    for file in tree.rust().filter(|file| file.name.starts_with("crates/")) {
        if let Some((name, inside)) = file.name.split_once("/src/") {
            crates.entry(name).or_default().push((inside, &file.text[..]));
        }
    }
    for (name, files) in crates {
        let max = LARGEST.iter().find(|(of, _)| *of == name).map_or(1, |(_, max)| *max);
        look_at(name, max, &files, wrong);
    }
    Ok(())
}

/// `files`: names below `src`, with their text.
fn look_at(name: &str, max: usize, files: &[(&str, &str)], wrong: &mut Vec<String>) {
    let modules = Crate::new(files);
    let largest = modules.largest_circle();
    if largest.len() > max {
        let shown = |path: &&Path| if path.is_empty() { "lib".to_owned() } else { path.join("/") };
        let files = largest.iter().map(shown).collect::<Vec<_>>().join(", ");
        let count = largest.len();
        wrong.push(format!("{name}: {count} files name each other, at most {max}: {files}"));
    }
}

/// The modules of a crate that have a file each, by their paths.
struct Crate(BTreeMap<Path, Named>);

impl Crate {
    fn new(files: &[(&str, &str)]) -> Crate {
        let mut modules = BTreeMap::new();
        let mut tests: Vec<Path> = Vec::new();
        for (name, text) in files.iter().filter(|(name, _)| !is_test(&format!("/{name}"))) {
            let path = module(name);
            let code: Vec<&str> = text.lines().take(lines_of_code(text)).collect();
            let named = read(&code.join("\n"));
            tests.extend(named.tests.iter().map(|test| child(&path, test)));
            modules.entry(path).or_insert(named); // a library's root comes before a program's
        }
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        Crate(modules)
    }

    /// A path from the root of the crate, if it leads into the crate.
    fn rooted(&self, module: &[String], path: &[String]) -> Option<Path> {
        let (first, rest) = path.split_first()?;
        match &first[..] {
            "crate" => Some(rest.to_vec()),
            "self" => Some([module, rest].concat()),
            "super" => {
                let above = path.iter().take_while(|word| *word == "super").count();
                let kept = module.len().checked_sub(above)?;
                Some([&module[..kept], &path[above..]].concat())
            }
            first => self.0.contains_key(&child(module, first)).then(|| [module, path].concat()),
        }
    }

    /// The module in whose file the item at the end of a path is defined. None: the path is that of
    /// a module.
    fn home(&self, path: &[String], reexports: usize) -> Option<&Path> {
        let length = (0..=path.len()).rev().find(|length| self.0.contains_key(&path[..*length]))?;
        let (module, named) = self.0.get_key_value(&path[..length])?;
        let (name, behind) = path[length..].split_first()?;
        if name == "*" || reexports == REEXPORTS_MAX {
            return Some(module);
        }
        let lead = |line: &Use| self.rooted(module, &line.path).filter(|lead| lead[..] != *path);
        let brought = named.uses.iter().rev().filter(|line| line.alias == *name).find_map(lead);
        if let Some(brought) = brought {
            return self.home(&[&brought[..], behind].concat(), reexports + 1);
        }
        let globs = named.uses.iter().filter(|line| line.alias == "*").filter_map(lead);
        for glob in globs {
            let (_, module) = glob.split_last()?;
            if let Some((module, _)) =
                self.0.get_key_value(module).filter(|(_, named)| named.items.contains(name))
            {
                return Some(module);
            }
        }
        Some(module)
    }

    /// The modules that a module names.
    fn named_by(&self, module: &Path, named: &Named) -> BTreeSet<&Path> {
        let is_reexport = |line: &Use, path: &Path| line.is_public && path.starts_with(module);
        let used = named.uses.iter().filter_map(|line| {
            self.rooted(module, &line.path).filter(|path| !is_reexport(line, path))
        });
        let written = named.paths.iter().filter_map(|path| {
            let (first, rest) = path.split_first()?;
            let line = named.uses.iter().rev().find(|line| line.alias == *first);
            match line.and_then(|line| self.rooted(module, &line.path)) {
                Some(brought) => Some([&brought[..], rest].concat()),
                None => self.rooted(module, path),
            }
        });
        let homes = used.chain(written).filter_map(|path| self.home(&path, 0));
        homes.filter(|home| *home != module).collect()
    }

    fn largest_circle(&self) -> Vec<&Path> {
        let edges: BTreeMap<&Path, BTreeSet<&Path>> =
            self.0.iter().map(|(module, named)| (module, self.named_by(module, named))).collect();
        let reached: BTreeMap<&Path, BTreeSet<&Path>> =
            edges.keys().map(|module| (*module, reached(&edges, module))).collect();
        let mut largest: Vec<&Path> = Vec::new();
        for (module, below) in &reached {
            let leads_back = |other: &&Path| reached[*other].contains(*module);
            let circle: Vec<&Path> = below.iter().copied().filter(leads_back).collect();
            if circle.len() > largest.len() {
                largest = circle;
            }
        }
        largest
    }
}

/// The modules that are reached from one, which is among them only if a way leads back.
fn reached<'a>(edges: &BTreeMap<&'a Path, BTreeSet<&'a Path>>, from: &Path) -> BTreeSet<&'a Path> {
    let mut reached = BTreeSet::new();
    let mut next: Vec<&Path> = edges.get(from).into_iter().flatten().copied().collect();
    while let Some(module) = next.pop() {
        if reached.insert(module) {
            next.extend(edges.get(module).into_iter().flatten().copied());
        }
    }
    reached
}

/// The path of the module that a file below `src` is.
fn module(name: &str) -> Path {
    let name = name.strip_suffix(".rs").unwrap_or(name);
    let name = name.strip_suffix("/mod").unwrap_or(name);
    let is_root = ["lib", "main"].contains(&name);
    name.split('/').filter(|_| !is_root).map(str::to_owned).collect()
}

fn child(module: &[String], name: &str) -> Path {
    module.iter().cloned().chain([name.to_owned()]).collect()
}

#[cfg(test)]
mod tests {
    use super::look_at;

    fn check(max: usize, files: &[(&str, &str)]) -> Vec<String> {
        let mut wrong = Vec::new();
        look_at("crates/a", max, files, &mut wrong);
        wrong
    }

    #[test]
    fn files_that_name_each_other_are_counted() {
        let files = [
            ("lib.rs", "mod b;\nmod c;\nmod d;\npub use b::B;\n"),
            ("b.rs", "use crate::c::C;\npub struct B;\n"),
            ("c.rs", "use crate::d;\npub struct C;\nfn e() { d::e() }\n"),
            ("d.rs", "pub(crate) fn e() -> super::B {}\n"),
        ];
        assert_eq!(check(2, &files), ["crates/a: 3 files name each other, at most 2: b, c, d"]);
        assert_eq!(check(3, &files), [""; 0]);
    }

    #[test]
    fn a_module_that_only_re_exports_names_no_child() {
        let child = ("b/c.rs", "use super::D;\npub struct C;\n");
        let root = ("lib.rs", "mod b;\n");
        let below = ("b/d.rs", "pub struct D;\n");
        let plain = ("b/mod.rs", "mod c;\nmod d;\npub use c::C;\npub use d::D;\n");
        assert_eq!(check(1, &[root, plain, child, below]), [""; 0]);
        let own = ("b/mod.rs", "mod c;\nuse c::C;\npub struct D(C);\n");
        assert_eq!(check(1, &[root, own, child]).len(), 1);
    }

    #[test]
    fn what_tests_name_does_not_count() {
        let files = [
            ("lib.rs", "mod b;\n#[cfg(test)]\nmod c;\n"),
            ("b.rs", "pub struct B;\n#[cfg(test)]\nmod tests {\n    use crate::c::C;\n}\n"),
            ("c.rs", "use crate::b::B;\nuse crate::tests::D;\n"),
            ("tests.rs", "use crate::c::C;\npub struct D;\n"),
        ];
        assert_eq!(check(1, &files), [""; 0]);
    }
}
