//! One condition on a file.

use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::time::{SystemTime, UNIX_EPOCH};

use layout::dir::{HASH_KIND, Stripes};
use layout::lov::composite::LovEntry;
use layout::lov::{Lov, LovAny};

use super::mode::Mode;
use super::number::Bound;
use super::walk::Found;
use crate::Failed;
use params::glob;

/// A condition, or its contrary.
#[derive(Debug)]
pub(super) struct Predicate {
    pub(super) test: Test,
    /// `!` stood before it.
    pub(super) negated: bool,
}

#[derive(Debug)]
pub(super) enum Test {
    /// Last part of the path, a shell pattern.
    Name(String),
    /// One of `bcdflps`.
    Type(char),
    Size(Bound),
    /// Of 512 bytes.
    Blocks(Bound),
    Links(Bound),
    Uid(Bound),
    Gid(Bound),
    Time(Stamp, Bound),
    /// Later than another file's last modification: seconds and nanoseconds.
    Newer(Stamp, (i64, i64)),
    Mode(Mode),
    /// A file without bytes, a directory without names.
    Empty,
    StripeCount(Bound),
    StripeSize(Bound),
    /// OST of the first stripe.
    StripeIndex(Bound),
    /// An object on one of these.
    Osts(Vec<u32>),
    Pool(String),
    /// `raid0`, `mdt`.
    Pattern(String),
    /// The MDT of the file, or of a shard of the directory, is one of these.
    Mdts(Vec<u32>),
    /// Shards of a directory.
    MdtCount(Bound),
    /// A striped directory with one of these hashes.
    MdtHash(Vec<u32>),
    /// None of a plain layout.
    Components(Bound),
    /// Of some component.
    ComponentStart(Bound),
    ComponentEnd(Bound),
    /// Some component has its objects, or some has not.
    ComponentInit(bool),
    /// Of some component that grows in steps.
    ExtensionSize(Bound),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stamp {
    Access,
    Modification,
    Change,
}

impl Stamp {
    /// Seconds and nanoseconds.
    pub(super) fn of(self, stat: &std::fs::Metadata) -> (i64, i64) {
        match self {
            Stamp::Access => (stat.atime(), stat.atime_nsec()),
            Stamp::Modification => (stat.mtime(), stat.mtime_nsec()),
            Stamp::Change => (stat.ctime(), stat.ctime_nsec()),
        }
    }
}

impl Predicate {
    /// What it costs to know: nothing, a `stat`, a layout, a question to the mount's daemon.
    pub(super) fn price(&self) -> u8 {
        match self.test {
            Test::Name(_) | Test::Type(_) => 0,
            Test::Size(_)
            | Test::Blocks(_)
            | Test::Links(_)
            | Test::Uid(_)
            | Test::Gid(_)
            | Test::Time(..) => 1,
            Test::Newer(..) | Test::Mode(_) => 1,
            Test::Mdts(_) => 3,
            _ => 2,
        }
    }

    /// Whether it holds for `found`.
    pub(super) fn holds(&self, found: &Found) -> Result<bool, Failed> {
        let holds = match self.price() {
            0 => self.test.by_name(found),
            1 => self.test.by_stat(found.stat()?),
            _ if matches!(self.test, Test::Empty) => found.is_empty()?,
            _ if matches!(self.test, Test::MdtCount(_) | Test::MdtHash(_)) => {
                found.kind == 'd' && self.test.by_stripes(found.stripes()?)
            }
            3 => self.test.by_mdt(found)?,
            _ => found.lov()?.is_some_and(|lov| self.test.by_layout(lov, found.kind == 'd')),
        };
        Ok(holds != self.negated)
    }
}

impl Test {
    fn by_name(&self, found: &Found) -> bool {
        match self {
            Test::Name(pattern) => {
                // A path such as `/` or `.` has no last part: it is its own name.
                let name = found.path.file_name().unwrap_or(found.path.as_os_str());
                glob::matches(pattern.as_bytes(), name.as_bytes())
            }
            Test::Type(kind) => found.kind == *kind,
            _ => false,
        }
    }

    fn by_stat(&self, stat: &std::fs::Metadata) -> bool {
        match self {
            Test::Size(bound) => bound.holds_up(stat.size()),
            Test::Blocks(bound) => bound.holds_up(stat.blocks()),
            Test::Links(bound) => bound.holds_up(stat.nlink()),
            Test::Uid(bound) => bound.holds_up(u64::from(stat.uid())),
            Test::Gid(bound) => bound.holds_up(u64::from(stat.gid())),
            Test::Time(stamp, bound) => bound.holds_down(age(stamp.of(stat).0)),
            Test::Newer(stamp, than) => stamp.of(stat) > *than,
            Test::Mode(mode) => mode.holds(stat.mode()),
            _ => false,
        }
    }

    /// Plain directories have no stripes.
    fn by_stripes(&self, stripes: Option<&Stripes>) -> bool {
        match self {
            Test::MdtCount(bound) => {
                bound.holds_up(stripes.map_or(0, |stripes| stripes.shards.len() as u64))
            }
            Test::MdtHash(kinds) => {
                stripes.is_some_and(|stripes| kinds.contains(&(stripes.hash & HASH_KIND)))
            }
            Test::Mdts(mdts) => stripes.is_some_and(|stripes| {
                stripes.shards.iter().any(|shard| mdts.contains(&shard.mdt_index()))
            }),
            _ => false,
        }
    }

    fn by_mdt(&self, found: &Found) -> Result<bool, Failed> {
        let Test::Mdts(mdts) = self else { return Ok(false) };
        let is_here = mdts.contains(&found.mdt()?);
        Ok(is_here || (found.kind == 'd' && self.by_stripes(found.stripes()?)))
    }

    /// Counts and sizes are those of the last component that has its objects, as in Lustre.
    fn by_layout(&self, layout: &LovAny, is_dir: bool) -> bool {
        let entries = || layout.components().into_iter().flat_map(|parts| &parts.entries);
        let some = |holds: &dyn Fn(&LovEntry) -> bool| entries().any(holds);
        match self {
            Test::Osts(osts) => {
                let has = |lov: &Lov| lov.stripes.iter().any(|stripe| osts.contains(&stripe.ost));
                !is_dir && layout.stripings().any(has)
            }
            Test::Pool(pool) => layout.stripings().any(|lov| lov.pool_name() == *pool),
            Test::Pattern(name) => {
                layout.stripings().any(|lov| lov.pattern_name().split(',').any(|one| one == name))
            }
            Test::Components(bound) => bound.holds_up(entries().count() as u64),
            Test::ComponentStart(bound) => some(&|entry| bound.holds_up(entry.start)),
            Test::ComponentEnd(bound) => some(&|entry| bound.holds_up(entry.end)),
            Test::ComponentInit(init) => some(&|entry| entry.is_instantiated() == *init),
            Test::ExtensionSize(bound) => {
                some(&|entry| entry.extension_size().is_some_and(|size| bound.holds_up(size)))
            }
            _ => layout.last().is_some_and(|lov| self.by_striping(lov, is_dir)),
        }
    }

    fn by_striping(&self, lov: &Lov, is_dir: bool) -> bool {
        let number =
            |value: Option<u64>, bound: &Bound| value.is_some_and(|value| bound.holds_up(value));
        match self {
            Test::StripeCount(bound) => number(u64::try_from(lov.count()).ok(), bound),
            Test::StripeSize(bound) => number(Some(u64::from(lov.stripe_size)), bound),
            Test::StripeIndex(bound) if is_dir => {
                number((lov.generation != u16::MAX).then_some(lov.generation.into()), bound)
            }
            Test::StripeIndex(bound) => {
                number(lov.stripes.first().map(|stripe| stripe.ost.into()), bound)
            }
            _ => false,
        }
    }
}

/// Seconds since `time`; none for one that is to come.
fn age(time: i64) -> u64 {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    u64::try_from(time).map_or(now, |time| now.saturating_sub(time))
}

#[cfg(test)]
mod tests {
    use layout::lov::Stripe;

    use super::*;

    fn lov() -> Lov {
        let stripe = |ost| Stripe { ost, object: types::Fid::new(1, 1) };
        Lov {
            magic: 0,
            pattern: 1,
            oid: 0,
            seq: 0,
            stripe_size: 1 << 20,
            stripe_count: 2,
            generation: 0,
            pool: *b"flash\0\0\0\0\0\0\0\0\0\0\0",
            stripes: vec![stripe(3), stripe(1)],
        }
    }

    #[test]
    fn layouts_are_told_apart() {
        let bound = |text| Bound::bytes(text).expect("a number");
        let yes = [
            Test::StripeCount(bound("2")),
            Test::StripeCount(bound("-3")),
            Test::StripeSize(bound("1M")),
            Test::StripeIndex(bound("3")),
            Test::Osts(vec![7, 1]),
            Test::Pool("flash".into()),
            Test::Pattern("raid0".into()),
        ];
        let no = [
            Test::StripeCount(bound("+2")),
            Test::StripeIndex(bound("1")),
            Test::Osts(vec![0]),
            Test::Pattern("mdt".into()),
        ];
        assert!(yes.iter().all(|test| test.by_layout(&LovAny::Plain(lov()), false)), "{yes:?}");
        assert!(!no.iter().any(|test| test.by_layout(&LovAny::Plain(lov()), false)), "{no:?}");
        let any = LovAny::Plain(Lov { generation: u16::MAX, stripe_count: u16::MAX, ..lov() });
        assert!(
            !Test::StripeIndex(bound("+0")).by_layout(&any, true)
                && !Test::StripeCount(bound("+0")).by_layout(&any, true)
        );
    }

    #[test]
    fn directories_are_told_apart_by_their_shards() {
        let bound = |text| Bound::plain(text).expect("a number");
        let on = |mdt: u64| types::Fid::new(0x2_0000_0400 + (mdt << 17), 5);
        let striped = Stripes {
            hash: 2 | 0x0200_0000,
            version: 0,
            master: 1,
            shards: vec![on(1), on(3)],
            leaving: None,
        };
        let holds = |test: &Test| test.by_stripes(Some(&striped));
        let yes = [Test::MdtCount(bound("2")), Test::MdtHash(vec![4, 2]), Test::Mdts(vec![3])];
        assert!(yes.iter().all(holds), "{yes:?}");
        let no = [Test::MdtCount(bound("+2")), Test::MdtHash(vec![4]), Test::Mdts(vec![0, 2])];
        assert!(!no.iter().any(holds), "{no:?}");
        assert!(Test::MdtCount(bound("0")).by_stripes(None), "a plain directory");
        assert!(!Test::MdtHash(vec![2]).by_stripes(None) && !yes[2].by_stripes(None));
    }

    #[test]
    fn components_are_told_apart() {
        let bound = |text| Bound::bytes(text).expect("a number");
        let entry = |id, flags, start, end, lov| LovEntry { id, flags, start, end, lov };
        let bare = Lov { stripe_count: 4, stripes: Vec::new(), pool: [0; 16], ..lov() };
        let first = entry(1, layout::lov::composite::FLAG_INIT, 0, 1 << 20, lov());
        let step = Lov { stripe_size: 64 << 10, ..bare.clone() };
        let extension = layout::lov::composite::FLAG_EXTENSION;
        let rest = entry(3, extension, 2 << 20, u64::MAX, step);
        let entries = vec![first, entry(2, 0, 1 << 20, 2 << 20, bare), rest];
        let file = LovAny::Composite(layout::lov::composite::LovComposite {
            generation: 2,
            flags: 0,
            mirrors: 0,
            entries,
        });
        let yes = [
            Test::Components(bound("3")),
            Test::StripeCount(bound("2")),
            Test::ExtensionSize(bound("64M")),
            Test::ComponentStart(bound("1M")),
            Test::ComponentEnd(bound("+1G")),
            Test::ComponentInit(true),
            Test::ComponentInit(false),
            Test::Osts(vec![1]),
            Test::Pool("flash".into()),
        ];
        let no = [
            Test::Components(bound("+3")),
            Test::StripeCount(bound("4")),
            Test::ExtensionSize(bound("+64M")),
            Test::ComponentEnd(bound("-1M")),
            Test::Pattern("mdt".into()),
        ];
        assert!(yes.iter().all(|test| test.by_layout(&file, false)), "{yes:?}");
        assert!(!no.iter().any(|test| test.by_layout(&file, false)), "{no:?}");
        let plain = LovAny::Plain(lov());
        assert!(Test::Components(bound("0")).by_layout(&plain, false));
        assert!(!Test::ComponentInit(true).by_layout(&plain, false));
    }
}
