//! The lister: the native library, or a program on a mount.

use std::fmt;

use anyhow::{Result, bail};

use super::LsArgs;

/// One of them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Through {
    Library,
    /// `ls -lU`.
    Ls,
    /// `find -size`.
    Find,
    /// `du -s`.
    Du,
}

impl fmt::Display for Through {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Through::Library => "library",
            Through::Ls => "ls -lU",
            Through::Find => "find -size",
            Through::Du => "du -s",
        })
    }
}

impl Through {
    /// Those that are asked for.
    pub(super) fn all(args: &LsArgs) -> Result<Vec<Through>> {
        let one = |name: &String| {
            Ok(match &name[..] {
                "library" => Through::Library,
                "ls" => Through::Ls,
                "find" => Through::Find,
                "du" => Through::Du,
                other => bail!("nothing lists through '{other}': library, ls, find or du"),
            })
        };
        args.through.iter().map(one).collect()
    }

    /// The program that lists a directory on a mount, and its words. None: no program does.
    pub(super) fn command(self, dir: &str) -> Option<(&'static str, Vec<&str>)> {
        Some(match self {
            Through::Library => return None,
            Through::Ls => ("ls", vec!["-lU", dir]),
            Through::Find => ("find", vec![dir, "-size", "+1k"]),
            Through::Du => ("du", vec!["-s", dir]),
        })
    }

    /// Why it cannot list here.
    pub(super) fn obstacle(self) -> Option<String> {
        let (program, _) = self.command("")?;
        if !is_installed(program) {
            return Some(format!("{program} is not installed"));
        }
        let opened = std::fs::OpenOptions::new().read(true).write(true).open(FUSE);
        opened.err().map(|error| format!("nothing can be mounted here ({FUSE}: {error})"))
    }
}

/// What every mount opens.
const FUSE: &str = "/dev/fuse";

fn is_installed(program: &str) -> bool {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path).any(|dir| dir.join(program).is_file())
}

/// How often the kernel of a mount has looked a name up, by `llite.*.stats`.
pub(super) fn lookups(stats: &str) -> u64 {
    let row = stats.lines().find_map(|line| line.strip_prefix("lookup "));
    let count = row.and_then(|row| row.split_whitespace().next()?.parse().ok());
    count.unwrap_or(0)
}

/// Requests by operation, as `llite.*.rpcs` shows them.
pub(super) fn requests(text: &str) -> Vec<(String, u64)> {
    let row = |line: &str| {
        let (name, count) = line.split_once(' ')?;
        Some((name.to_owned(), count.trim().parse().ok()?))
    };
    text.lines().filter_map(row).collect()
}

/// What was sent between two looks: operations with a count above zero.
pub(super) fn sent(before: &[(String, u64)], after: &[(String, u64)]) -> Vec<(String, u64)> {
    let known = |name: &str| before.iter().find(|row| row.0 == name).map_or(0, |row| row.1);
    let new = after.iter().map(|(name, count)| (name.clone(), count - known(name).min(*count)));
    new.filter(|(_, count)| *count > 0).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counts_of_a_mount_are_read() {
        let stats = "snapshot_time             1700000000.5 secs.nsecs\n\
            lookup                    1500 samples [reqs]\nstatx 3 samples [reqs]\n";
        assert_eq!((lookups(stats), lookups("snapshot_time 1\n"), lookups("")), (1_500, 0, 0));
        let row = |name: &str, count: u64| (name.to_owned(), count);
        let before = requests("mds_getattr 4\nmds_statfs 1");
        assert_eq!(before, [row("mds_getattr", 4), row("mds_statfs", 1)]);
        let after = requests("mds_getattr 10\nmds_readpage 2\nmds_statfs 1\nbroken");
        assert_eq!(sent(&before, &after), [row("mds_getattr", 6), row("mds_readpage", 2)]);
        assert!(sent(&after, &before).is_empty(), "nothing is sent back");
    }

    #[test]
    fn programs_list_one_directory() {
        let words = |through: Through| {
            through.command("DIR").map(|(program, words)| format!("{program} {}", words.join(" ")))
        };
        let all = [Through::Library, Through::Ls, Through::Find, Through::Du].map(words);
        let lines = ["ls -lU DIR", "find DIR -size +1k", "du -s DIR"].map(str::to_owned);
        assert_eq!(all[0], None);
        assert!(all[1..].iter().flatten().eq(&lines));
        assert_eq!(Through::Library.obstacle(), None);
        assert!(is_installed("sh") && !is_installed("no-such-program"));
    }
}
