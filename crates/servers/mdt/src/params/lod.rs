//! `lod.*`: the placement of new files. A change applies from the next file on.

use std::collections::BTreeMap;
use std::rc::Rc;

use params::{ParamTree, parse_within};
use target::Leaves;
use types::ByteSize;

use crate::Lod;
use crate::spaces::Spill;
use crate::target::Mdt;

/// Longest `qos_maxage`, seconds.
const MAXAGE_SECS_MAX: u64 = 3_600;

/// Most of a file that may be at an MDT.
const DOM_BYTES_MAX: u64 = 1 << 30;

type Get = fn(&Lod) -> String;

/// Takes a value, or says what is wrong with it.
type Put = fn(&mut Lod, &str) -> Result<(), String>;

/// Name, as it is read, as it is set.
const ALL: &[(&str, Get, Put)] = &[
    (
        "stripecount",
        |lod| lod.stripe_count.to_string(),
        |lod, value| number(value).map(|count| lod.stripe_count = count),
    ),
    (
        "stripesize",
        |lod| lod.stripe_size.to_string(),
        |lod, value| bytes(value).map(|size| lod.stripe_size = size),
    ),
    (
        "stripeoffset",
        |lod| lod.stripe_offset.to_string(),
        |lod, value| number(value).map(|start| lod.stripe_offset = start),
    ),
    (
        "dom_stripesize",
        |lod| lod.dom_stripesize.to_string(),
        |lod, value| dom_bytes(value).map(|bytes| lod.dom_stripesize = bytes),
    ),
    (
        "qos_threshold_rr",
        |lod| format!("{}%", lod.policy.threshold_rr_percent),
        |lod, value| percent(value).map(|percent| lod.policy.threshold_rr_percent = percent),
    ),
    (
        "qos_prio_free",
        |lod| format!("{}%", lod.policy.prio_free_percent),
        |lod, value| percent(value).map(|percent| lod.policy.prio_free_percent = percent),
    ),
    (
        "qos_maxage",
        |lod| lod.policy.maxage_secs.to_string(),
        |lod, value| {
            parse_within(value, 1, MAXAGE_SECS_MAX).map(|secs| lod.policy.maxage_secs = secs as u32)
        },
    ),
    (
        "mdt_qos_threshold_rr",
        |lod| format!("{}%", lod.mdt_policy.threshold_rr_percent),
        |lod, value| percent(value).map(|percent| lod.mdt_policy.threshold_rr_percent = percent),
    ),
    (
        "mdt_qos_prio_free",
        |lod| format!("{}%", lod.mdt_policy.prio_free_percent),
        |lod, value| percent(value).map(|percent| lod.mdt_policy.prio_free_percent = percent),
    ),
    (
        "mdt_qos_maxage",
        |lod| lod.mdt_policy.maxage_secs.to_string(),
        |lod, value| {
            let secs = parse_within(value, 1, MAXAGE_SECS_MAX)?;
            lod.mdt_policy.maxage_secs = secs as u32;
            Ok(())
        },
    ),
];

/// Registers those of `mdt`, whose name is `name`.
pub(super) fn register(mdt: &Rc<Mdt>, tree: &ParamTree, name: &str) {
    let leaves = Leaves::new(tree, format!("lod.{name}-mdtlov"), mdt);
    for (name, read, put) in ALL {
        let write = |mdt: &Mdt, value: &str| {
            let mut lod = mdt.engine.state.borrow().lod;
            put(&mut lod, value.trim())?;
            lod.template().check().map_err(|error| error.to_string())?;
            mdt.engine.state.borrow_mut().lod = lod;
            Ok(())
        };
        leaves.set(name, |mdt| read(&mdt.engine.state.borrow().lod), write);
    }
}

/// Takes over which pools there are, and registers what can be set of those that are new.
pub(super) fn set_pools(
    mdt: &Rc<Mdt>,
    tree: &ParamTree,
    name: &str,
    pools: &BTreeMap<String, Vec<u32>>,
) {
    let before: Vec<String> = {
        let mut state = mdt.engine.state.borrow_mut();
        let before = state.spaces.pools.keys().cloned().collect();
        state.spaces.set_pools(pools);
        before
    };
    let base = |pool: &str| format!("lod.{name}-mdtlov.pool.{pool}");
    for gone in before.iter().filter(|pool| !pools.contains_key(*pool)) {
        tree.remove(&base(gone));
    }
    for pool in pools.keys().filter(|pool| !before.contains(pool)) {
        register_spill(&Leaves::new(tree, base(pool), mdt), pool);
    }
}

/// Where files go when a pool fills up.
fn register_spill(leaves: &Leaves<'_, Mdt>, pool: &str) {
    let (of, to) = (pool.to_owned(), pool.to_owned());
    leaves.set(
        "spill_target",
        move |mdt| spill(mdt, &of, |spill| spill.target.clone()).unwrap_or_default(),
        move |mdt, value| {
            let target = value.trim();
            if target == to {
                return Err("a pool does not spill into itself".to_owned());
            }
            if !target.is_empty() {
                layout::pool::padded(target).map_err(|error| error.to_string())?;
            }
            spill(mdt, &to, |spill| target.clone_into(&mut spill.target));
            Ok(())
        },
    );
    let (of, to) = (pool.to_owned(), pool.to_owned());
    leaves.set(
        "spill_threshold_pct",
        move |mdt| spill(mdt, &of, |spill| spill.threshold_percent.to_string()).unwrap_or_default(),
        move |mdt, value| {
            let percent = parse_within(value, 0, 100)? as u8;
            spill(mdt, &to, |spill| spill.threshold_percent = percent);
            Ok(())
        },
    );
}

fn spill<T>(mdt: &Mdt, pool: &str, look: impl FnOnce(&mut Spill) -> T) -> Option<T> {
    let mut state = mdt.engine.state.borrow_mut();
    state.spaces.pools.get_mut(pool).map(|pool| look(&mut pool.spill))
}

fn number(value: &str) -> Result<i32, String> {
    value.parse().map_err(|_| "expected a number".to_owned())
}

/// `17` and `17%` are the same.
fn percent(value: &str) -> Result<u8, String> {
    parse_within(value.strip_suffix('%').unwrap_or(value), 0, 100).map(|percent| percent as u8)
}

/// Bytes of a file at the MDT: 0, or whole units of 64 KiB, at least one; a rest is dropped.
fn dom_bytes(value: &str) -> Result<u64, String> {
    let unit = u64::from(layout::STRIPE_SIZE_UNIT);
    if value == "0" {
        return Ok(0);
    }
    match u64::from(bytes(value)?) {
        more if more > DOM_BYTES_MAX => Err("at most 1G".to_owned()),
        more => Ok((more - more % unit).max(unit)),
    }
}

/// `4M`, `4194304`.
fn bytes(value: &str) -> Result<u32, String> {
    let size = value.parse::<ByteSize>().ok().and_then(|ByteSize(size)| u32::try_from(size).ok());
    size.filter(|size| *size > 0)
        .ok_or_else(|| "expected a size such as 1M, below 4 GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_mdt_takes_whole_units_of_a_file_up_to_a_gibibyte() {
        for (value, bytes) in
            [("0", 0), ("1", 65_536), ("100000", 65_536), ("4M", 4 << 20), ("1G", 1 << 30)]
        {
            assert_eq!(dom_bytes(value), Ok(bytes), "{value}");
        }
        for wrong in ["2G", "1073741825", "-1", "x", ""] {
            assert!(dom_bytes(wrong).is_err(), "{wrong}");
        }
    }

    fn check(name: &str, value: &str) -> Result<String, String> {
        let (_, read, put) = ALL.iter().find(|(known, ..)| *known == name).expect("a parameter");
        let mut lod = Lod::default();
        put(&mut lod, value)?;
        lod.template().check().map_err(|error| error.to_string())?;
        Ok(read(&lod))
    }

    #[test]
    fn values_read_as_they_were_set() {
        for (name, value, read) in [
            ("stripecount", "-1", "-1"),
            ("stripesize", "4M", "4194304"),
            ("stripesize", "65536", "65536"),
            ("stripesize", "2MiB", "2097152"),
            ("stripeoffset", "3", "3"),
            ("qos_threshold_rr", "30%", "30%"),
            ("qos_prio_free", "100", "100%"),
            ("qos_maxage", "60", "60"),
            ("mdt_qos_threshold_rr", "10", "10%"),
            ("mdt_qos_prio_free", "80%", "80%"),
            ("mdt_qos_maxage", "5", "5"),
        ] {
            assert_eq!(check(name, value), Ok(read.to_owned()), "{name}={value}");
        }
        for (name, value) in [
            ("stripecount", "2001"),
            ("stripesize", "1000"),
            ("stripesize", "4G"),
            ("stripesize", "0"),
            ("stripesize", "1x"),
            ("qos_prio_free", "101%"),
            ("qos_maxage", "0"),
            ("stripeoffset", "x"),
        ] {
            assert!(check(name, value).is_err(), "{name}={value}");
        }
    }
}
