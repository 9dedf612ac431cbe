//! The parts of a run.

use anyhow::Result;

use crate::bed::Bed;
use crate::parts::{
    before, borders, data, devices, dom, drivers, fio, fuse, instructions, layouts, listing, mdts,
    metadata, neighbours, nodes, pair, pauses, processes, programs, rpc, scheduler, talk, tests,
    trees, warm, wide, writes,
};
use crate::row::Row;
use crate::scale::Scale;

/// One step of a run.
pub(crate) struct Part {
    pub(crate) name: &'static str,
    pub(crate) about: &'static str,
    /// `--quick` runs it too.
    pub(crate) quick: bool,
    pub(crate) run: fn(&Bed, Scale) -> Result<Vec<Row>>,
}

impl Part {
    pub(crate) fn is_in(&self, names: &[String]) -> bool {
        names.iter().any(|name| name == self.name)
    }
}

/// Needs an older binary. A run without one leaves it out.
pub(crate) const BEFORE: &str = "before";

/// Needs a number of files. A run without one leaves it out.
pub(crate) const TALK: &str = "talk";

/// Needs public mdtest, IOR or fio. A machine without them leaves it out.
pub(crate) const DRIVERS: &str = "drivers";

/// Needs public mdtest and `passthrough_hp`. A machine without them leaves it out.
pub(crate) const MDTEST_FUSE: &str = "mdtest-fuse";

/// Needs valgrind. A machine without it leaves it out.
pub(crate) const INSTRUCTIONS: &str = "instructions";

/// Needs git and the headers of a C library. A machine without them leaves it out.
pub(crate) const PROGRAMS: &str = "programs";

/// In the order in which they run: what wants an empty file system comes first.
pub(crate) const PARTS: &[Part] = &[
    Part {
        name: "memory",
        about: "anonymous memory of idle processes",
        quick: false,
        run: processes::memory,
    },
    Part {
        name: "rpc",
        about: "ping and bulk of the RPC layer beside a bare epoll echo",
        quick: true,
        run: rpc::lnet,
    },
    Part {
        name: "native",
        about: "creates of the native library beside ext4",
        quick: true,
        run: metadata::native,
    },
    Part {
        name: "mdtest-own",
        about: "mdtest, four processes, a directory each, beside ext4",
        quick: true,
        run: metadata::own,
    },
    Part {
        name: MDTEST_FUSE,
        about: "mdtest with 4,500 files of each process, beside passthrough_hp",
        quick: true,
        run: metadata::beside_fuse,
    },
    Part {
        name: "mdtest-shared",
        about: "mdtest, four processes in one directory, beside ext4",
        quick: true,
        run: metadata::shared,
    },
    Part {
        name: "mdtest-32k",
        about: "mdtest with 32 KiB in each file, beside ext4",
        quick: true,
        run: metadata::small_files,
    },
    Part {
        name: "ior-4",
        about: "IOR, four processes, a file each, beside ext4",
        quick: true,
        run: data::four,
    },
    Part { name: "ior-1", about: "IOR, one process, beside ext4", quick: true, run: data::one },
    Part {
        name: "layouts",
        about: "IOR into files of several components beside files of one striping; cost of mapping",
        quick: false,
        run: layouts::stream,
    },
    Part {
        name: "dom",
        about: "small files with their bytes at the MDT beside files with objects",
        quick: false,
        run: dom::small_files,
    },
    Part {
        name: "wide",
        about: "unlink of 32 stripes beside one, and of small files; lfs migrate beside cp",
        quick: false,
        run: wide::objects,
    },
    Part {
        name: "devices",
        about: "streams on a simulated disk beside small files on flash and on the same disk",
        quick: false,
        run: devices::streams,
    },
    Part {
        name: "borders",
        about: "4 KiB at random by size of files: their first bytes at the MDT, on flash, on disk",
        quick: false,
        run: borders::by_size,
    },
    Part {
        name: "mdts",
        about: "directories over four MDTs beside a directory of one MDT",
        quick: false,
        run: mdts::spread,
    },
    Part {
        name: "nodes",
        about: "two MDTs on two executors of one process beside two processes",
        quick: false,
        run: nodes::executors,
    },
    Part {
        name: "mdt-pauses",
        about: "longest calls while an MDT is killed, also with clients, or a directory is split",
        quick: false,
        run: pauses::of_mdts,
    },
    Part {
        name: TALK,
        about: "mdtest as in the talk of 2018: one MDT and four, with DoM and without (--talk)",
        quick: false,
        run: talk::tables,
    },
    Part {
        name: "listing",
        about: "attributes of a directory's files against their stripes, beside older ways",
        quick: false,
        run: listing::stripes,
    },
    Part {
        name: PROGRAMS,
        about: "cp, tar, du, ls, grep, rm and git on small files, beside ext4 or passthrough_hp",
        quick: false,
        run: programs::everyday,
    },
    Part {
        name: "warm",
        about: "reads, programs and stats of what the kernel has already, beside ext4",
        quick: false,
        run: warm::again,
    },
    Part {
        name: "trees",
        about: "ls of 100,000 files, make of a generated tree and git status, beside ext4",
        quick: false,
        run: trees::beside_ext4,
    },
    Part {
        name: "pair",
        about: "two mounts in one directory beside one, and changes of what the other caches",
        quick: false,
        run: pair::two_mounts,
    },
    Part {
        name: "writes",
        about: "small writes: dd of 4 KiB with fsync, appends of a mount and of two in turn",
        quick: false,
        run: writes::small,
    },
    Part {
        name: "random",
        about: "4 KiB at random, four jobs, O_DIRECT, beside ext4 (fio where it is installed)",
        quick: true,
        run: fio::random,
    },
    Part {
        name: DRIVERS,
        about: "our drivers beside public mdtest, IOR and fio, on Nacre and on ext4, in turns",
        quick: false,
        run: drivers::beside_public,
    },
    Part {
        name: "fuse",
        about: "a FUSE file system that does nothing: io_uring beside the device",
        quick: false,
        run: fuse::null,
    },
    Part {
        name: "start",
        about: "`up --separate` with 100,000 files to mounted, clean and after kill -9",
        quick: false,
        run: processes::start,
    },
    Part {
        name: "scheduler",
        about: "policies alone: pairs per second, 10,000,000 queued",
        quick: false,
        run: scheduler::speed,
    },
    Part {
        name: INSTRUCTIONS,
        about: "instructions of a create and its close, at the client",
        quick: false,
        run: instructions::of_creates,
    },
    Part {
        name: "fairness",
        about: "shares of ten mounts with FIFO and with CRR-N (mounted test)",
        quick: false,
        run: tests::fairness,
    },
    Part {
        name: "swaps",
        about: "1,000 swaps of the policy, and rates of classes of TBF (mounted tests)",
        quick: false,
        run: tests::swaps,
    },
    Part {
        name: "kills",
        about: "pauses of programs while servers are killed (mounted tests)",
        quick: false,
        run: tests::kills,
    },
    Part {
        name: "flood",
        about: "others while one client has 18,000 requests in a class of TBF",
        quick: false,
        run: neighbours::flood,
    },
    Part {
        name: "siege",
        about: "others beside 2,000 half-open connections, slow readers and garbage",
        quick: false,
        run: neighbours::siege,
    },
    Part {
        name: BEFORE,
        about: "mdtest, IOR and lnet of this commit beside an older one (--against)",
        quick: false,
        run: before::older,
    },
];

/// Parts that one word of the command line names together.
const TOPICS: &[(&str, &[&str])] = &[
    ("layouts", &["layouts", "dom", "wide", "devices", "borders"]),
    ("mdts", &["mdts", "nodes", "mdt-pauses"]),
    ("servers", &["fairness", "swaps", "kills"]),
];

/// Names of the parts of these topics. A word that is not a topic stays as it is.
pub(crate) fn of_topics(words: &[String]) -> Vec<String> {
    let parts = |word: &String| match TOPICS.iter().find(|(topic, _)| topic == word) {
        Some((_, parts)) => parts.iter().map(|part| (*part).to_owned()).collect(),
        None => vec![word.clone()],
    };
    words.iter().flat_map(parts).collect()
}

pub(crate) fn find(name: &str) -> Option<&'static Part> {
    PARTS.iter().find(|part| part.name == name)
}

#[cfg(test)]
mod tests_of_the_plan {
    use super::*;

    #[test]
    fn parts_have_names_of_their_own() {
        for part in PARTS {
            assert_eq!(PARTS.iter().filter(|other| other.name == part.name).count(), 1);
        }
    }

    #[test]
    fn the_page_of_benchmarks_names_each_part() {
        let page = include_str!("../README.md");
        for Part { name, about, .. } in PARTS {
            assert!(page.contains(&format!("| `{name}` | {about} |")), "{name}: {about}");
        }
    }

    #[test]
    fn topics_name_parts() {
        for part in TOPICS.iter().flat_map(|(_, parts)| *parts) {
            assert!(find(part).is_some(), "{part}");
        }
        let words = ["mdts", "rpc"].map(str::to_owned);
        assert_eq!(of_topics(&words), ["mdts", "nodes", "mdt-pauses", "rpc"]);
    }

    #[test]
    fn parts_that_need_an_option_are_in_no_topic() {
        for name in [BEFORE, TALK] {
            assert!(find(name).is_some_and(|part| !part.quick), "{name}");
            assert!(TOPICS.iter().all(|(_, parts)| !parts.contains(&name)), "{name}");
        }
    }
}
