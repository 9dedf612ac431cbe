//! `lod.*`: where new files go. A change holds from the next file on.

use std::rc::Weak;

use mdt::Lod;
use params::{ParamTree, parse_within};

use super::super::{Body, Server};

/// Longest `qos_maxage`, seconds.
const MAXAGE_SECS_MAX: u64 = 3_600;

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
];

/// Registers those of the MDT at `index` below `base`.
pub(super) fn register(params: &ParamTree, server: &Weak<Server>, base: &str, index: usize) {
    for (name, read, put) in ALL {
        let (to_read, to_set) = (server.clone(), server.clone());
        let read = move || mdt_of(&to_read, index).map_or_else(String::new, |mdt| read(&mdt.lod()));
        let write = move |value: &str| {
            let Some(mdt) = mdt_of(&to_set, index) else { return Ok(()) };
            let mut lod = mdt.lod();
            put(&mut lod, value.trim())?;
            mdt.set_lod(lod)
        };
        params.register_rw(format!("{base}.{name}"), read, write);
    }
}

fn mdt_of(server: &Weak<Server>, index: usize) -> Option<std::rc::Rc<mdt::Mdt>> {
    match &server.upgrade()?.targets[index].body {
        Body::Mdt(mdt) => Some(mdt.clone()),
        _ => None,
    }
}

fn number(value: &str) -> Result<i32, String> {
    value.parse().map_err(|_| "expected a number".to_owned())
}

/// `17` and `17%` are the same.
fn percent(value: &str) -> Result<u8, String> {
    parse_within(value.strip_suffix('%').unwrap_or(value), 0, 100).map(|percent| percent as u8)
}

/// `4M`, `4194304`.
fn bytes(value: &str) -> Result<u32, String> {
    let digits = value.trim_end_matches(|c: char| !c.is_ascii_digit());
    let shift = match value[digits.len()..]
        .to_ascii_lowercase()
        .trim_end_matches('b')
        .trim_end_matches('i')
    {
        "" => 0,
        "k" => 10,
        "m" => 20,
        "g" => 30,
        _ => return Err("expected a size such as 1M".to_owned()),
    };
    let size = digits
        .parse::<u64>()
        .ok()
        .and_then(|size| size.checked_shl(shift))
        .and_then(|size| u32::try_from(size).ok());
    size.filter(|size| *size > 0)
        .ok_or_else(|| "expected a size such as 1M, below 4 GiB".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

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
        ] {
            assert_eq!(check(name, value), Ok(read.to_owned()), "{name}={value}");
        }
        for (name, value) in [
            ("stripecount", "2001"),
            ("stripesize", "1000"),
            ("stripesize", "4G"),
            ("qos_prio_free", "101%"),
            ("qos_maxage", "0"),
            ("stripeoffset", "x"),
        ] {
            assert!(check(name, value).is_err(), "{name}={value}");
        }
    }
}
