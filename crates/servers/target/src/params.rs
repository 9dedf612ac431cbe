//! Parameters that every target has, under Lustre's names, and the way in which a target adds its
//! own.

use std::fmt::Display;
use std::rc::{Rc, Weak};

use device::Model;
use env::Env;
use osd::Space;
use params::{ParamTree, parse_within};
use service::{Exports, Session};
use types::CounterTable;

use crate::Device;
use crate::limits::DEVICE_MIBPS_MAX;

/// Where a target stands, as its node knows it.
pub struct Place {
    /// First part of its parameters' names (`obdfilter`).
    pub kind: &'static str,
    /// Its name (`testfs-OST0000`).
    pub name: String,
    /// Directory of its storage.
    pub dir: String,
    /// Room of its storage, where that can be asked.
    pub space: Rc<dyn Fn() -> Option<Space>>,
}

impl Place {
    /// What the names of its parameters begin with.
    #[must_use]
    pub fn base(&self) -> String {
        format!("{}.{}", self.kind, self.name)
    }
}

/// Parameters of one object below one name. They do not keep it alive: where it is gone, they are
/// empty, and setting them does nothing.
pub struct Leaves<'a, T> {
    tree: &'a ParamTree,
    base: String,
    of: Weak<T>,
}

impl<'a, T: 'static> Leaves<'a, T> {
    /// Parameters of `of`, with names that begin with `base`.
    #[must_use]
    pub fn new(tree: &'a ParamTree, base: String, of: &Rc<T>) -> Leaves<'a, T> {
        Leaves { tree, base, of: Rc::downgrade(of) }
    }

    /// Adds one that can be read.
    pub fn read(&self, name: &str, read: impl Fn(&T) -> String + 'static) {
        let of = self.of.clone();
        let read = move || of.upgrade().map_or_else(String::new, |of| read(&of));
        self.tree.register(format!("{}.{name}", self.base), read);
    }

    /// Adds one whose text is printed from a value that code of this process can take as it is.
    /// Where there is none now, the text is empty.
    pub fn typed<V: Display + 'static>(
        &self,
        name: &str,
        read: impl Fn(&T) -> Option<V> + 'static,
    ) {
        let of = self.of.clone();
        let read = move || Ok(of.upgrade().and_then(|of| read(&of)));
        self.tree.register_typed(format!("{}.{name}", self.base), read);
    }

    /// Adds a number that can be read.
    pub fn number(&self, name: &str, read: impl Fn(&T) -> u64 + 'static) {
        self.typed(name, move |of| Some(read(of)));
    }

    /// Adds one that can be set too. `write` says what is wrong with a value, and changes nothing
    /// then.
    pub fn set(
        &self,
        name: &str,
        read: impl Fn(&T) -> String + 'static,
        write: impl Fn(&T, &str) -> Result<(), String> + 'static,
    ) {
        let (to_read, to_set) = (self.of.clone(), self.of.clone());
        let read = move || to_read.upgrade().map_or_else(String::new, |of| read(&of));
        let write = move |value: &str| to_set.upgrade().map_or(Ok(()), |of| write(&of, value));
        self.tree.register_rw(format!("{}.{name}", self.base), read, write);
    }

    /// Adds one that shows counters; writing anything calls `clear`.
    pub fn table(
        &self,
        name: &str,
        read: impl Fn(&T) -> CounterTable + 'static,
        clear: impl Fn(&T) + 'static,
    ) {
        let (to_read, to_clear) = (self.of.clone(), self.of.clone());
        let read = move || Ok(to_read.upgrade().map_or_else(Default::default, |of| read(&of)));
        let clear = move || {
            if let Some(of) = to_clear.upgrade() {
                clear(&of);
            }
            Ok(())
        };
        self.tree.register_table(format!("{}.{name}", self.base), read, Some(Rc::new(clear)));
    }
}

/// What a parameter shows of a target's room.
type Shown = fn(&Space) -> u64;

/// Registers what every target shows.
pub fn register_params(tree: &ParamTree, place: &Place, exports: &Rc<Exports>) {
    let leaves = Leaves::new(tree, place.base(), exports);
    let (uuid, dir) = (format!("{}_UUID", place.name), place.dir.clone());
    leaves.read("uuid", move |_| uuid.clone());
    leaves.read("mntdev", move |_| dir.clone());
    leaves.typed("recovery_status", |exports| Some(exports.recovery_status()));
    leaves.number("num_exports", |exports| exports.sessions().len() as u64);
    leaves.read("exports", |exports| exports.sessions().iter().map(line).collect());
    leaves.number("evictions", |exports| exports.evicted());
    leaves.number("callback_timeouts", |exports| exports.callback_timeouts());
    leaves.read("instance", |exports| exports.instance().0.to_string());
    leaves.number("last_committed", |exports| exports.last_committed().0);
    const SHOWN: [(&str, Shown); 5] = [
        ("kbytestotal", |space| space.bytes >> 10),
        ("kbytesfree", |space| space.bytes_free >> 10),
        ("kbytesavail", |space| space.bytes_free >> 10),
        ("filestotal", |space| space.files),
        ("filesfree", |space| space.files_free),
    ];
    for (name, of) in SHOWN {
        let space = place.space.clone();
        leaves.typed(name, move |_| space().map(|space| of(&space)));
    }
}

/// Registers the device that a target pretends to be on.
pub fn register_device(tree: &ParamTree, place: &Place, env: &Env, device: &Rc<Device>) {
    let leaves = Leaves::new(tree, place.base(), device);
    let setter = || {
        let (env, space) = (env.clone(), place.space.clone());
        move |device: &Device, model| {
            device.set(&env, space().map_or(0, |space| space.bytes), model);
            Ok(())
        }
    };
    let set = setter();
    leaves.set("device", Device::told, move |device, value| {
        set(device, Model::parse(value).map_err(|error| error.to_string())?)
    });
    let set = setter();
    leaves.set(
        "device_mibps",
        |device| device.model().map_or(0, |model| model.read_mibps).to_string(),
        move |device, value| {
            let mibps = parse_within(value, 0, DEVICE_MIBPS_MAX)?;
            let model = Model { read_mibps: mibps, write_mibps: mibps, ..Model::free() };
            set(device, (mibps > 0).then_some(model))
        },
    );
    leaves.read("device_stats", |device| device.stats().map_or_else(String::new, stats));
}

/// What a device has done, as of this moment.
fn stats(stats: device::Stats) -> String {
    let ([reads, writes, syncs], [read, written]) = (stats.done, stats.bytes);
    let all = (reads + writes + syncs).max(1);
    format!(
        "reads: {reads}\nwrites: {writes}\nsyncs: {syncs}\nread_bytes: {read}\n\
         write_bytes: {written}\nseeks: {}\nbusy_usec: {}\nwait_usec_mean: {}\n\
         at_once_max: {}\n",
        stats.seeks,
        stats.busy.0 / 1_000,
        stats.waited.0 / 1_000 / all,
        stats.most
    )
}

/// A client with a session: its id as it may be shown, session, address and name.
fn line(session: &Rc<Session>) -> String {
    format!("{} {:#x} {} {}\n", session.client, session.id, session.address(), session.name)
}

#[cfg(test)]
mod tests {
    use std::cell::Cell;

    use env_sim::{Sim, SimConfig};
    use service::{ClientRecord, ExportsConfig};
    use types::{ClientId, Instance, Span, TargetId, Transno};

    use super::*;

    /// Any user of the machine reads parameters, and a peer that knows the number takes over.
    #[test]
    fn no_parameter_shows_the_number_of_a_client() {
        let sim = Sim::new(1, SimConfig::default());
        let node = sim.node("mds", "10.0.0.1@tcp".parse().expect("a NID"));
        let env = node.env();
        sim.block_on(&node, async move {
            let id = ClientId(0x9a80_1122_3344_5566_7788_99aa_bbcc_ddee);
            let config = ExportsConfig {
                target: TargetId::mdt(0),
                instance: Instance(2),
                known: vec![ClientRecord {
                    client: id,
                    session: 3,
                    name: "node1:/mnt".to_owned(),
                    is_server: false,
                    silent: false,
                    silent_secs: 0,
                    nid: types::Nid::default(),
                }],
                replies: Vec::new(),
                last_committed: Transno::NONE,
                recovery_window: Span::secs(30),
                recovery_window_max: Span::secs(120),
                abort_recovery: false,
                has_more_to_recover: false,
                lease: Span::secs(10),
                silence_max: Span::secs(150),
            };
            let exports = Exports::new(&env, config);
            let tree = ParamTree::new();
            let place = Place {
                kind: "mdt",
                name: "fs-MDT0000".to_owned(),
                dir: "/srv".to_owned(),
                space: Rc::new(|| None),
            };
            register_params(&tree, &place, &exports);
            let shown = tree.get("mdt.*.*").expect("they are there");
            let shown: String = shown.into_iter().map(|param| param.value + "\n").collect();
            assert!(shown.contains("9a801122 0x3 unknown node1:/mnt"), "{shown}");
            let (whole, decimal) = (format!("{id:x}"), id.0.to_string());
            for hidden in [&whole[8..16], &whole[16..24], &whole[24..], decimal.as_str()] {
                assert!(!shown.contains(hidden), "{hidden} is in {shown}");
            }
        });
    }

    #[test]
    fn parameters_do_not_keep_their_object_alive() {
        let (tree, of) = (ParamTree::new(), Rc::new(Cell::new(7)));
        let leaves = Leaves::new(&tree, "mdt.fs-MDT0000".to_owned(), &of);
        let write = |of: &Cell<u32>, value: &str| {
            value.parse().map(|value| of.set(value)).map_err(|_| "a number".to_owned())
        };
        leaves.set("depth", |of| of.get().to_string(), write);
        let value = || tree.get("mdt.*.depth").map(|found| found[0].value.clone());
        let set = |value| {
            let answers = tree.set_now("mdt.*.depth", value).expect("it is there");
            answers.into_iter().all(|answer| answer.is_ok())
        };
        assert!(set("9"));
        assert_eq!((value(), of.get()), (Ok("9".to_owned()), 9));
        assert!(!set("x"));
        let clear = |of: &Cell<u32>| of.set(0);
        let numbers = |of: &Cell<u32>| CounterTable::Numbers(vec![u64::from(of.get())]);
        leaves.table("stats", numbers, clear);
        let stats = || tree.typed::<CounterTable>("mdt.*.stats").pop().map(|(_, table)| table);
        assert_eq!(stats(), Some(CounterTable::Numbers(vec![9])));
        assert!(tree.set_now("mdt.*.stats", "").is_ok());
        assert_eq!(stats(), Some(CounterTable::Numbers(vec![0])));
        leaves.number("number", |of| u64::from(of.get()));
        let number = || tree.typed::<u64>("mdt.*.number").pop().map(|(_, number)| number);
        assert_eq!(number(), Some(0));
        drop(of);
        assert_eq!((number(), stats()), (None, Some(CounterTable::default())));
        assert_eq!(value(), Ok(String::new()));
        assert!(set("x"), "it does nothing");
    }
}
