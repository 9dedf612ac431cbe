//! `lfs df`: space or inodes of each target and of the file system.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use ctl::{Ask, Reply, Room, Space};

use super::pool;
use crate::failure::First;
use crate::form::Form;
use crate::mountpoint::{self, Mount};
use crate::{Failed, size};

const COMMAND: &str = "lfs df";

/// Arguments of `lfs df`.
#[derive(Debug, clap::Args)]
#[command(disable_help_flag = true)]
pub(super) struct Args {
    /// Short numbers, in powers of 1024.
    #[arg(short = 'h', long = "human-readable")]
    human: bool,
    /// Short numbers, in powers of 1000.
    #[arg(short = 'H', long = "si", conflicts_with = "human")]
    si: bool,
    /// Inodes instead of space.
    #[arg(short = 'i', long)]
    inodes: bool,
    /// Only targets that answer now (all are asked at once, and given a few seconds).
    #[arg(short = 'l', long)]
    lazy: bool,
    /// Inactive targets with --lazy too; without it they are always shown.
    #[arg(short = 'v', long)]
    verbose: bool,
    /// Only MDTs and the OSTs of this pool, POOL or FSNAME.POOL.
    #[arg(short = 'p', long, value_name = "POOL")]
    pool: Option<String>,
    #[command(flatten)]
    form: Form,
    /// Any path in the file system; all mounts without it.
    path: Option<PathBuf>,
    /// Print help.
    #[arg(long, action = clap::ArgAction::Help)]
    help: Option<bool>,
}

pub(super) fn run(args: &Args) -> Result<(), Failed> {
    let mounts = mountpoint::near_or_every(args.path.as_deref(), COMMAND)?;
    let patience = mountpoint::servers_patience();
    let answers = mountpoint::ask_each(&mounts, &Ask::Df, patience, COMMAND);
    let of_pool = |mount: &Mount, all: Vec<Space>| -> Result<Vec<Space>, Failed> {
        let Some(pool) = &args.pool else { return Ok(all) };
        let members = pool::members(mount, pool, COMMAND)?;
        let is_shown =
            |space: &Space| space.target.kind != "OST" || members.contains(&space.target.index);
        Ok(all.into_iter().filter(is_shown).collect())
    };
    let found = mounts
        .iter()
        .zip(answers)
        .map(|(mount, answer)| (mount, answer.and_then(|reply| of_pool(mount, spaces(reply)))));
    each(found, |mount, spaces| {
        let shown: Vec<Space> = spaces.into_iter().filter(|space| is_shown(args, space)).collect();
        args.form.print(&shown, || render(&Unit::of(args), &mount.dir, &shown));
    })
}

fn is_shown(args: &Args, space: &Space) -> bool {
    !args.lazy || space.space.is_some() || (args.verbose && !space.target.is_active)
}

fn spaces(reply: Reply) -> Vec<Space> {
    match reply {
        Reply::Spaces(spaces) => spaces,
        _ => Vec::new(),
    }
}

/// Shows all mounts whose daemon has answered; fails where one did not.
fn each<'a>(
    found: impl Iterator<Item = (&'a Mount, Result<Vec<Space>, Failed>)>,
    mut show: impl FnMut(&Mount, Vec<Space>),
) -> Result<(), Failed> {
    let mut first = First::default();
    for (mount, spaces) in found {
        match spaces {
            Ok(spaces) => show(mount, spaces),
            Err(failed) => first.note(&failed),
        }
    }
    first.end()
}

/// How numbers are shown.
struct Unit {
    inodes: bool,
    /// 1024 or 1000 for short numbers.
    human: Option<u64>,
}

impl Unit {
    fn of(args: &Args) -> Unit {
        let human = if args.human { Some(1024) } else { args.si.then_some(1000) };
        Unit { inodes: args.inodes, human }
    }

    /// Total, used and available.
    fn columns(&self, room: &Room) -> [u64; 3] {
        if self.inodes {
            [room.files, room.files.saturating_sub(room.files_free), room.files_free]
        } else {
            [room.bytes, room.bytes.saturating_sub(room.bytes_free), room.bytes_avail]
        }
    }

    fn number(&self, value: u64) -> String {
        match self.human {
            Some(unit) => size::human(value, unit),
            None if self.inodes => value.to_string(),
            None => (value >> 10).to_string(),
        }
    }

    fn header(&self) -> String {
        let [total, used, free, percent] = match (self.inodes, self.human) {
            (true, _) => ["Inodes", "IUsed", "IFree", "IUse%"],
            (false, Some(_)) => ["bytes", "Used", "Available", "Use%"],
            (false, None) => ["1K-blocks", "Used", "Available", "Use%"],
        };
        format!("{:<20} {total:>11} {used:>11} {free:>11} {percent:>4} Mounted on\n", "UUID")
    }

    fn line(&self, name: &str, room: &Room, tail: &str) -> String {
        let [total, used, free] = self.columns(room);
        let [a, b, c] = [total, used, free].map(|value| self.number(value));
        format!("{name:<20} {a:>11} {b:>11} {c:>11} {:>3}% {tail}\n", percent(used, free))
    }
}

/// Rounded up.
fn percent(used: u64, free: u64) -> u64 {
    let whole = u128::from(used) + u128::from(free);
    let share = (u128::from(used) * 100).div_ceil(whole.max(1));
    u64::try_from(share).unwrap_or(100)
}

fn render(unit: &Unit, mount: &Path, spaces: &[Space]) -> String {
    let dir = mountpoint::show(mount);
    let mut out = unit.header();
    for Space { target, space, letters } in spaces {
        let uuid = format!("{}_UUID", target.name);
        match space {
            Some(room) => {
                let tail = format!("{dir}[{}:{}] {letters}", target.kind, target.index);
                out.push_str(&unit.line(&uuid, room, tail.trim_end()));
            }
            None => {
                let _ = writeln!(out, "{uuid:<20}: inactive device");
            }
        }
    }
    out.push('\n');
    out.push_str(&unit.line("filesystem_summary:", &summary(unit.inodes, spaces), &dir));
    out.push('\n');
    out
}

/// Space of the OSTs; inodes of the MDTs, limited by the objects that are free.
fn summary(inodes: bool, spaces: &[Space]) -> Room {
    let sum = |kind: &str| {
        let rooms =
            spaces.iter().filter(|space| space.target.kind == kind).filter_map(|space| space.space);
        rooms.fold(Room::default(), |sum, room| Room {
            bytes: sum.bytes + room.bytes,
            bytes_free: sum.bytes_free + room.bytes_free,
            bytes_avail: sum.bytes_avail + room.bytes_avail,
            files: sum.files + room.files,
            files_free: sum.files_free + room.files_free,
        })
    };
    let (mdts, osts) = (sum("MDT"), sum("OST"));
    if !inodes {
        return osts;
    }
    let used = mdts.files.saturating_sub(mdts.files_free);
    let free = mdts.files_free.min(osts.files_free);
    Room { files: used + free, files_free: free, ..mdts }
}

#[cfg(test)]
mod tests {
    use clap::Parser;
    use ctl::Target;

    use super::*;

    fn space(kind: &str, index: u32, kib: Option<[u64; 3]>) -> Space {
        let target = Target {
            kind: kind.into(),
            index,
            name: format!("testfs-{kind}{index:04x}"),
            state: "FULL".into(),
            is_active: true,
            nid: String::new(),
        };
        let room = |[total, free, files]: [u64; 3]| Room {
            bytes: total << 10,
            bytes_free: free << 10,
            bytes_avail: free << 10,
            files,
            files_free: files / 2,
        };
        Space { target, space: kib.map(room), letters: String::new() }
    }

    #[test]
    fn lazy_leaves_out_silent_targets_and_verbose_keeps_inactive_ones() {
        let mut inactive = space("OST", 3, None);
        inactive.target.is_active = false;
        let all = [&cluster()[..], &[inactive]].concat();
        let shown = |option: &str| {
            let lfs = super::super::Args::try_parse_from(["lfs", "df", option]).expect("fits");
            let super::super::Command::Df(args) = lfs.command else { panic!("another command") };
            all.iter().map(|space| is_shown(&args, space)).collect::<Vec<_>>()
        };
        assert_eq!(shown("-v"), [true; 5]);
        assert_eq!(shown("-l"), [true, true, true, false, false]);
        assert_eq!(shown("-lv"), [true, true, true, false, true]);
    }

    #[test]
    fn a_dead_mount_hides_no_other() {
        let mount = |dir: &str| Mount {
            dir: dir.into(),
            device: (0, 1),
            source: "127.0.0.2@tcp:/testfs".into(),
            options: Vec::new(),
        };
        let ask = |mount: &Mount| match mount.dir.to_str() {
            Some("/dead") => Err(Failed::new(types::Errno::ENOTCONN.raw(), "")),
            _ => Ok(cluster()),
        };
        let mut shown = Vec::new();
        let all = ["/a", "/dead", "/b"].map(mount);
        let found = all.iter().map(|mount| (mount, ask(mount)));
        let ended = each(found, |mount, _| shown.push(mount.dir.display().to_string()));
        assert_eq!(shown, ["/a", "/b"]);
        assert_eq!(
            ended.map_err(|failed| i32::from(failed.status)),
            Err(types::Errno::ENOTCONN.raw())
        );
    }

    fn cluster() -> Vec<Space> {
        vec![
            space("MDT", 0, Some([10_485_760, 10_280_960, 1000])),
            space("OST", 0, Some([104_857_600, 62_914_560, 500])),
            space("OST", 1, Some([104_857_600, 52_428_800, 500])),
            space("OST", 2, None),
        ]
    }

    #[test]
    fn the_table_is_the_one_that_scripts_parse() {
        let shown =
            render(&Unit { inodes: false, human: None }, Path::new("/mnt/testfs"), &cluster());
        let expected = "\
UUID                   1K-blocks        Used   Available Use% Mounted on
testfs-MDT0000_UUID     10485760      204800    10280960   2% /mnt/testfs[MDT:0]
testfs-OST0000_UUID    104857600    41943040    62914560  40% /mnt/testfs[OST:0]
testfs-OST0001_UUID    104857600    52428800    52428800  50% /mnt/testfs[OST:1]
testfs-OST0002_UUID : inactive device

filesystem_summary:    209715200    94371840   115343360  45% /mnt/testfs

";
        assert_eq!(shown, expected);
    }

    #[test]
    fn a_targets_states_are_letters_at_the_end_of_its_line() {
        let mut cluster = cluster();
        cluster[1].letters = "DN".to_owned();
        let shown = render(&Unit { inodes: true, human: None }, Path::new("/m"), &cluster);
        let ends: Vec<&str> =
            shown.lines().filter_map(|line| line.split_once("% ")).map(|at| at.1).collect();
        assert_eq!(ends, ["Mounted on", "/m[MDT:0]", "/m[OST:0] DN", "/m[OST:1]", "/m"]);
    }

    #[test]
    fn inodes_are_limited_by_free_objects() {
        let shown = render(&Unit { inodes: true, human: None }, Path::new("/m"), &cluster());
        assert!(
            shown.starts_with(
                "UUID                      Inodes       IUsed       IFree IUse% Mounted on\n"
            ),
            "{shown}"
        );
        assert!(
            shown.contains("filesystem_summary:         1000         500         500  50% /m\n"),
            "{shown}"
        );
    }

    #[test]
    fn short_numbers_carry_a_unit() {
        let shown = render(&Unit { inodes: false, human: Some(1024) }, Path::new("/m"), &cluster());
        assert!(
            shown.contains(
                "testfs-OST0000_UUID       100.0G       40.0G       60.0G  40% /m[OST:0]\n"
            ),
            "{shown}"
        );
        assert!(shown.starts_with("UUID                       bytes "), "{shown}");
    }
}
