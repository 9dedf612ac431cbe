//! Operations of several MDTs, each with a rival. The last digit of a directory's name is its MDT;
//! in `*21`, names are on 2 MDTs from the first on.

use oracle::{EXCHANGE, Op, Path};

use super::calls::Call;

/// A call under test, in a tree of its own.
pub(super) struct Case {
    pub(super) name: &'static str,
    /// Made before, a step a word: `x1/` is a directory, `x1/f` a file, `a=b` a link b to a.
    setup: &'static str,
    op: &'static str,
    rival: &'static str,
    /// Those that take part.
    pub(super) mdts: &'static [u32],
}

/// So many from the first on are in the first seeds, which known failures name.
pub(super) const FIRST_CASES: usize = 17;

/// All of them. The tree of each lies in a directory of MDT 0.
pub(super) const CASES: &[Case] = &[
    Case { name: "mkdir", setup: "", op: "mkdir new1", rival: "mkdir new2", mdts: &[0, 1] },
    Case {
        name: "mkdir of a name that another wants",
        setup: "x1/",
        op: "mkdir x1/new2",
        rival: "mkfifo x1/new2",
        mdts: &[1, 2],
    },
    Case {
        name: "rmdir",
        setup: "x1/ x1/old2/",
        op: "rmdir x1/old2",
        rival: "mkfifo x1/old2/p",
        mdts: &[1, 2],
    },
    Case {
        name: "unlink of one of two names",
        setup: "x1/ y2/ x1/f x1/f=y2/g",
        op: "unlink y2/g",
        rival: "unlink x1/f",
        mdts: &[1, 2],
    },
    Case {
        name: "unlink of the last name",
        setup: "x1/ y2/ x1/f x1/f=y2/g -x1/f",
        op: "unlink y2/g",
        rival: "link y2/g x1/f",
        mdts: &[1, 2],
    },
    Case {
        name: "link",
        setup: "x1/ y2/ x1/f",
        op: "link x1/f y2/g",
        rival: "unlink x1/f",
        mdts: &[1, 2],
    },
    Case {
        name: "rename of a file",
        setup: "x1/ y2/ x1/f",
        op: "rename x1/f y2/g",
        rival: "unlink x1/f",
        mdts: &[1, 2],
    },
    Case {
        name: "rename of a file over another",
        setup: "x1/ y2/ x1/f y2/g y2/g=y2/h",
        op: "rename x1/f y2/g",
        rival: "rename y2/g x1/k",
        mdts: &[1, 2],
    },
    Case {
        name: "rename of a third MDT's file over one of it",
        setup: "x1/ y2/ f g f=x1/f g=y2/g -f -g",
        op: "rename x1/f y2/g",
        rival: "link x1/f g",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "exchange",
        setup: "x1/ y2/ x1/f y2/d0/",
        op: "exchange x1/f y2/d0",
        rival: "rmdir y2/d0",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "rename of a directory",
        setup: "x1/ y2/ x1/d1/ x1/d1/f",
        op: "rename x1/d1 y2/e",
        rival: "mkdir y2/e",
        mdts: &[1, 2],
    },
    Case {
        name: "rename of a directory over another",
        setup: "x1/ y2/ x1/d1/ x1/d1/f y2/e0/",
        op: "rename x1/d1 y2/e0",
        rival: "mkfifo y2/e0/p",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "two renames that would make a loop",
        setup: "x1/ y2/ x1/d1/ y2/e2/",
        op: "rename x1/d1 y2/e2/d",
        rival: "rename y2/e2 x1/d1/e",
        mdts: &[1, 2],
    },
    Case {
        name: "mkdir of a striped directory",
        setup: "x1/",
        op: "mkdir x1/*30",
        rival: "mkfifo x1/*30",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "rmdir of a striped directory",
        setup: "x1/ x1/*30/",
        op: "rmdir x1/*30",
        rival: "mkfifo x1/*30/p",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "chmod of a striped directory",
        setup: "x1/ x1/*30/ x1/*30/f",
        op: "chmod x1/*30",
        rival: "rename x1/*30/f x1/*30/g",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "rename of a striped directory",
        setup: "x1/ y2/ x1/*30/ x1/*30/f",
        op: "rename x1/*30 y2/e",
        rival: "unlink x1/*30/f",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "names that spread over shards",
        setup: "x1/ x1/d1/ x1/d1/f x1/d1/g x1/d1/e2/",
        op: "spread x1/d1",
        rival: "rename x1/d1/f x1/d1/h",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "names that come back from shards",
        setup: "x1/ x1/*30/ x1/*30/f x1/*30/g x1/*30/e2/",
        op: "merge x1/*30",
        rival: "mkfifo x1/*30/p",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "names that migrate",
        setup: "x1/ x1/d1/ x1/d1/f x1/d1/g",
        op: "migrate x1/d1",
        rival: "unlink x1/d1/f",
        mdts: &[1, 2],
    },
    Case {
        name: "default of a striped directory",
        setup: "x1/ x1/*30/",
        op: "default x1/*30",
        rival: "chmod x1/*30",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "times of a striped directory",
        setup: "x1/ x1/*30/ x1/*30/f",
        op: "utimes x1/*30",
        rival: "unlink x1/*30/f",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "first name of an open file",
        setup: "x1/ y2/",
        op: "tmpfile x1 y2/g",
        rival: "mkfifo y2/g",
        mdts: &[1, 2],
    },
    Case {
        name: "fsync of a file with two names",
        setup: "x1/ y2/ x1/f x1/f=y2/g",
        op: "fsync y2/g",
        rival: "unlink x1/f",
        mdts: &[1, 2],
    },
    Case {
        name: "file with two names that moves",
        setup: "x1/ y2/ x1/f x1/f=y2/g",
        op: "move x1/f",
        rival: "unlink y2/g",
        mdts: &[0, 1, 2],
    },
    Case {
        name: "directory that moves",
        setup: "x1/ y2/ x1/d2/",
        op: "move x1/d2",
        rival: "mkfifo x1/d2/p",
        mdts: &[0, 1, 2],
    },
];

impl Case {
    /// What is made before.
    pub(super) fn setup(&self) -> Vec<Op> {
        self.setup.split_whitespace().flat_map(step).collect()
    }

    /// The two calls.
    pub(super) fn calls(&self) -> [Call; 2] {
        [call(self.op), call(self.rival)]
    }

    /// MDTs that have no part and are only asked. A directory that moves has the directories above
    /// its new parent reserved, and the tree of each case lies in a directory of MDT 0.
    pub(super) fn asked(&self) -> &'static [u32] {
        let is_directory_moved = self.op.starts_with("rename x1/d1 ");
        if is_directory_moved && !self.mdts.contains(&0) { &[0] } else { &[] }
    }
}

fn step(word: &str) -> Vec<Op> {
    if let Some((from, to)) = word.split_once('=') {
        return vec![Op::Link { from: Path::new(from), to: Path::new(to) }];
    }
    if let Some(gone) = word.strip_prefix('-') {
        return vec![Op::Unlink { path: Path::new(gone) }];
    }
    let path = Path::new(word);
    if word.ends_with('/') {
        return vec![Op::Mkdir { path, mode: 0o755 }];
    }
    let (slot, mode, stripe) = (0, 0o644, Some((64 << 10, 1)));
    let create = Op::Create { path, slot, excl: true, trunc: false, append: false, mode, stripe };
    vec![create, Op::Close { slot }]
}

fn call(text: &str) -> Call {
    let mut words = text.split(' ');
    let what = words.next().unwrap_or_default();
    let mut path = || Path::new(words.next().unwrap_or_default());
    let mode = 0o700;
    Call::Op(match what {
        "spread" => return Call::Restripe(path(), &[0, 1, 2]),
        "merge" => return Call::Restripe(path(), &[]),
        "migrate" => return Call::Migrate(path(), 2),
        "move" => return Call::Move(path(), 0),
        "default" => return Call::SetDefault(path()),
        "tmpfile" => return Call::LinkTmpfile(path(), path()),
        "fsync" => return Call::Fsync(path()),
        "mkdir" => Op::Mkdir { path: path(), mode },
        "mkfifo" => Op::Mkfifo { path: path(), mode },
        "chmod" => Op::Chmod { path: path(), mode },
        "rmdir" => Op::Rmdir { path: path() },
        "unlink" => Op::Unlink { path: path() },
        "link" => Op::Link { from: path(), to: path() },
        "rename" => Op::Rename { from: path(), to: path(), flags: 0 },
        "exchange" => Op::Rename { from: path(), to: path(), flags: EXCHANGE },
        "utimes" => Op::Utimens { path: path(), sec: 1_000_000_000, nsec: 1 },
        _ => unreachable!("no call is named {what}"),
    })
}

#[cfg(test)]
mod tests {
    use oracle::{Expect, Model};

    use super::*;

    #[test]
    fn both_calls_of_each_case_succeed_alone() {
        for case in CASES {
            let mut model = Model::new();
            for op in case.setup() {
                let expect = model.apply(&op);
                assert!(
                    !matches!(expect, Expect::Fails(_) | Expect::Skip),
                    "{}: {op:?}",
                    case.name
                );
            }
            for op in case.calls().map(|call| call.op()) {
                let expect = model.clone().apply(&op);
                assert!(
                    !matches!(expect, Expect::Fails(_) | Expect::Skip),
                    "{}: {op:?}",
                    case.name
                );
            }
        }
    }
}
