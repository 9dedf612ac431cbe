//! The numbers of a device, and their text form.

use types::Span;

use crate::queue::time_for;

/// Bytes that one second moves at most: as much as any memory does.
const MIBPS_MAX: u64 = 1 << 20;
/// Requests that a device works on at once, at most (NVMe has queues of 65,536).
const DEPTH_MAX: u64 = 65_536;
/// Longest latency, seek or turn, microseconds.
const MICROS_MAX: u64 = 10_000_000;
/// Most requests in a second.
const IOPS_MAX: u64 = 1_000_000_000;
/// Largest device, GiB.
const SIZE_GIB_MAX: u64 = 1 << 24;

/// How long a device takes. A rate or a bound of zero is no bound.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Model {
    /// MiB a second that reads move, all together.
    pub read_mibps: u64,
    /// MiB a second that writes move, all together.
    pub write_mibps: u64,
    /// Reads begun in a second.
    pub read_iops: u64,
    /// Writes begun in a second.
    pub write_iops: u64,
    /// From a read's begin to its first byte, without an arm's movement.
    pub read_latency: Span,
    /// The same of a write.
    pub write_latency: Span,
    /// What it takes to make durable what was written.
    pub sync_latency: Span,
    /// Requests that it works on at once; with an arm, among which it chooses the nearest.
    pub depth: u32,
    /// To the next track; with `seek_max` zero there is no arm.
    pub seek_min: Span,
    /// From the first track to the last.
    pub seek_max: Span,
    /// One turn of the platters. Half of it is waited for on average.
    pub turn: Span,
    /// Distance over which the longest seek goes; zero: the store's own size.
    pub size_gib: u64,
}

/// What is wrong with a description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadModel {
    #[error("'{0}' is not a device: expected off, flash, disk, or NAME=VALUE with one of {NAMES}")]
    Unknown(String),
    #[error("{name} is a number from {min} to {max}, not '{value}'")]
    Value { name: &'static str, min: u64, max: u64, value: String },
    #[error("'{0}' comes first, before what differs from it")]
    Order(String),
}

/// Every number that a description can have.
const NAMES: &str = "read_mibps, write_mibps, read_iops, write_iops, read_us, write_us, sync_us, \
                     depth, seek_min_us, seek_max_us, turn_us, size_gib";

struct Field {
    name: &'static str,
    min: u64,
    max: u64,
    get: fn(&Model) -> u64,
    set: fn(&mut Model, u64),
}

macro_rules! field {
    ($name:literal, $min:expr, $max:expr, $field:ident) => {
        Field {
            name: $name,
            min: $min,
            max: $max,
            get: |model| model.$field.into(),
            set: |model, value| model.$field = value.try_into().expect("within its bound"),
        }
    };
    ($name:literal, time $field:ident) => {
        Field {
            name: $name,
            min: 0,
            max: MICROS_MAX,
            get: |model| model.$field.0 / 1_000,
            set: |model, value| model.$field = Span::micros(value),
        }
    };
}

const FIELDS: [Field; 12] = [
    field!("read_mibps", 0, MIBPS_MAX, read_mibps),
    field!("write_mibps", 0, MIBPS_MAX, write_mibps),
    field!("read_iops", 0, IOPS_MAX, read_iops),
    field!("write_iops", 0, IOPS_MAX, write_iops),
    field!("read_us", time read_latency),
    field!("write_us", time write_latency),
    field!("sync_us", time sync_latency),
    field!("depth", 1, DEPTH_MAX, depth),
    field!("seek_min_us", time seek_min),
    field!("seek_max_us", time seek_max),
    field!("turn_us", time turn),
    field!("size_gib", 0, SIZE_GIB_MAX, size_gib),
];

impl Model {
    /// Takes no time at all.
    #[must_use]
    pub fn free() -> Model {
        Model {
            read_mibps: 0,
            write_mibps: 0,
            read_iops: 0,
            write_iops: 0,
            read_latency: Span::ZERO,
            write_latency: Span::ZERO,
            sync_latency: Span::ZERO,
            depth: 1,
            seek_min: Span::ZERO,
            seek_max: Span::ZERO,
            turn: Span::ZERO,
            size_gib: 0,
        }
    }

    /// A small flash device: slow enough for a machine of two cores to stay idle for a third of
    /// the time while it is busy, and as far from [`Model::disk`] as flash is from disks.
    #[must_use]
    pub fn flash() -> Model {
        Model {
            read_mibps: 400,
            write_mibps: 300,
            read_iops: 8_000,
            write_iops: 6_000,
            read_latency: Span::micros(100),
            write_latency: Span::micros(40),
            sync_latency: Span::micros(200),
            depth: 32,
            ..Model::free()
        }
    }

    /// A disk of 7,200 turns a minute with a write cache that a sync empties.
    #[must_use]
    pub fn disk() -> Model {
        Model {
            read_mibps: 120,
            write_mibps: 120,
            read_latency: Span::micros(100),
            write_latency: Span::micros(100),
            sync_latency: Span::millis(8),
            depth: 32,
            seek_min: Span::micros(800),
            seek_max: Span::millis(16),
            turn: Span::micros(8_333),
            ..Model::free()
        }
    }

    /// Whether it has an arm, so that places matter.
    #[must_use]
    pub fn has_arm(&self) -> bool {
        self.seek_max > Span::ZERO
    }

    /// How long a page takes at most on an idle device: to read, or to write and make durable.
    #[must_use]
    pub fn slowest(&self) -> Span {
        const PAGE: u64 = 4_096;
        let of = |latency: Span, mibps: u64, iops: u64| {
            // the request before may just have begun
            let begins = if self.has_arm() { Span::ZERO } else { time_for(1, iops) };
            begins.0 + latency.0 + time_for(PAGE, mibps << 20).0
        };
        let arm =
            if self.has_arm() { self.seek_min.max(self.seek_max).0 + self.turn.0 / 2 } else { 0 };
        let read = of(self.read_latency, self.read_mibps, self.read_iops);
        let write = of(self.write_latency, self.write_mibps, self.write_iops);
        Span(arm + read.max(write + self.sync_latency.0))
    }

    /// Reads a description: `off` (`None`), `flash` or `disk`, and behind it or alone what differs,
    /// `NAME=VALUE`, separated by commas or lines. `#` begins a comment.
    pub fn parse(text: &str) -> Result<Option<Model>, BadModel> {
        let mut model: Option<Model> = None;
        let mut is_off = false;
        let words = text
            .lines()
            .map(|line| line.split_once('#').map_or(line, |(line, _)| line))
            .flat_map(|line| line.split(','))
            .map(str::trim)
            .filter(|word| !word.is_empty());
        for word in words {
            let base = match word {
                "off" => Some(None),
                "flash" => Some(Some(Model::flash())),
                "disk" => Some(Some(Model::disk())),
                _ => None,
            };
            if let Some(base) = base {
                if model.is_some() || is_off {
                    return Err(BadModel::Order(word.to_owned()));
                }
                is_off = base.is_none();
                model = base;
                continue;
            }
            if is_off {
                return Err(BadModel::Order("off".to_owned()));
            }
            let unknown = || BadModel::Unknown(word.to_owned());
            let (name, value) = word.split_once('=').ok_or_else(unknown)?;
            let field = FIELDS.iter().find(|field| field.name == name.trim());
            let Field { name, min, max, set, .. } = *field.ok_or_else(unknown)?;
            let bad = || BadModel::Value { name, min, max, value: value.trim().to_owned() };
            let number: u64 = value.trim().parse().map_err(|_| bad())?;
            if number < min || number > max {
                return Err(bad());
            }
            set(model.get_or_insert_with(Model::free), number);
        }
        if model.is_none() && !is_off {
            return Err(BadModel::Unknown(text.trim().to_owned()));
        }
        Ok(model)
    }
}

impl std::fmt::Display for Model {
    /// As [`Model::parse`] reads it.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let bases = [("flash", Model::flash()), ("disk", Model::disk()), ("", Model::free())];
        let differs = |base: &Model| {
            let differing = FIELDS.iter().filter(|field| (field.get)(self) != (field.get)(base));
            differing.map(|field| format!("{}={}", field.name, (field.get)(self))).collect()
        };
        let told = bases.iter().map(|(name, base)| {
            let mut words: Vec<String> = differs(base);
            if !name.is_empty() {
                words.insert(0, (*name).to_owned());
            }
            words
        });
        let shortest = told.min_by_key(Vec::len).expect("there are bases");
        let text = if shortest.is_empty() { "depth=1".to_owned() } else { shortest.join(",") };
        f.write_str(&text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn a_description_is_a_base_and_what_differs_from_it() {
        let slow = Model { read_mibps: 60, ..Model::disk() };
        assert_eq!(Model::parse("disk, read_mibps=60"), Ok(Some(slow.clone())));
        assert_eq!(Model::parse("# ours\ndisk\nread_mibps = 60 # old\n"), Ok(Some(slow)));
        assert_eq!(Model::parse(" off "), Ok(None));
        let rate = Model { read_mibps: 5, write_mibps: 6, ..Model::free() };
        assert_eq!(Model::parse("read_mibps=5,write_mibps=6"), Ok(Some(rate)));
    }

    #[test]
    fn the_slowest_page_is_read_or_written_and_synced() {
        assert_eq!(Model::free().slowest(), Span::ZERO);
        let read = Model { read_latency: Span::secs(1), ..Model::free() };
        assert_eq!(read.slowest(), Span::secs(1));
        let durable = Model { write_latency: Span::millis(3), ..Model::free() };
        let durable = Model { sync_latency: Span::millis(4), write_iops: 100, ..durable };
        assert_eq!(durable.slowest(), Span::millis(17));
        let arm = Model { seek_max: Span::millis(16), turn: Span::millis(8), ..durable };
        assert_eq!(arm.slowest(), Span::millis(27), "it has no bound of writes");
    }

    #[test]
    fn a_wrong_description_is_refused_in_words() {
        let told = |text| Model::parse(text).expect_err("refused").to_string();
        assert!(told("tape").starts_with("'tape' is not a device: expected off"));
        assert!(told("").contains("is not a device"));
        assert_eq!(told("flash,depth=0"), "depth is a number from 1 to 65536, not '0'");
        assert_eq!(told("turn_us=x"), "turn_us is a number from 0 to 10000000, not 'x'");
        assert_eq!(told("depth=2,flash"), "'flash' comes first, before what differs from it");
        assert_eq!(told("off,depth=2"), "'off' comes first, before what differs from it");
        assert_eq!(told("flash,disk"), "'disk' comes first, before what differs from it");
    }

    proptest! {
        #[test]
        fn what_is_printed_is_read_back(values in prop::collection::vec(any::<u64>(), FIELDS.len()), base in 0..3) {
            let mut model = [Model::flash(), Model::disk(), Model::free()][base as usize].clone();
            for (field, value) in FIELDS.iter().zip(values).filter(|(_, value)| value % 3 == 0) {
                (field.set)(&mut model, field.min + value % (field.max - field.min + 1));
            }
            prop_assert_eq!(Model::parse(&model.to_string()), Ok(Some(model)));
        }
    }
}
