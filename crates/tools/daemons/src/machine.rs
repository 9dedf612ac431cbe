//! What every daemon may be told of CPU partitions, LND threads and credits, and how its parameters
//! read.
//!
//! Lustre has these as module options (`libcfs`, `lnet`, `ksocklnd`, `mdt`, `ost`, `ptlrpc`); here
//! they are flags of the same names, read back with `lctl get_param`.

use std::collections::BTreeMap;

use anyhow::{Context, Result};
use env::{CptSettings, CptTable, PortalRotor};
use env_os::{Lnet, LnetSettings, OsConfig};
use params::ParamTree;
use types::{CptIndex, Span};

/// Which services each setting is for: Lustre's name of the setting, ours of the services.
pub const SERVICE_CPTS: &[(&str, &[&str])] = &[
    ("mds_num_cpts", &["mdt", "mdt_out"]),
    ("mds_rdpg_num_cpts", &["mdt_readpage"]),
    ("mds_io_num_cpts", &["mdt_io"]),
    ("oss_cpts", &["ost", "ost_create"]),
    ("oss_io_cpts", &["ost_io"]),
    ("ldlm_cpts", &["ldlm_canceld", "ldlm_cbd"]),
];

/// Threads of an LND per CPT at most.
pub const LND_THREADS_MAX: u32 = 64;

/// Microseconds of looking for work before sleep: less than a sleep and the wake after it take.
pub const LINGER_US: u64 = 50;

/// Microseconds of looking for work before sleep at most: beyond it is a poll, not a pause.
pub const LINGER_US_MAX: u64 = 1_000;

/// Credits at most: a counter of this size bounds nothing any more.
pub const CREDITS_MAX: u32 = 1 << 20;

/// Settings of a daemon's machine.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MachineOptions {
    pub cpts: CptSettings,
    /// Partitions of the network interface, `[0,1]`; empty: all.
    pub link_cpts: String,
    /// Partitions of services by the setting's name, `[1-3]`; a setting that is not there means
    /// all.
    pub service_cpts: BTreeMap<String, String>,
    /// How requests find their partition.
    pub portal_rotor: PortalRotor,
    /// Threads per partition that do the socket work; 0: the executor does it.
    pub lnd_threads: u32,
    /// The daemon's thread looks for more work for so many microseconds before it sleeps; 0: it
    /// sleeps at once.
    pub linger_us: u64,
    /// Messages under way to all peers; 0: the default.
    pub credits: u32,
    /// Messages under way to one peer; 0: the default.
    pub peer_credits: u32,
    /// Shown only: there are no routers.
    pub peer_buffer_credits: u32,
    /// No news from a peer for so long closes its links, seconds; 0 never does.
    pub peer_timeout_secs: u64,
}

impl Default for MachineOptions {
    fn default() -> MachineOptions {
        MachineOptions {
            cpts: CptSettings::default(),
            link_cpts: String::new(),
            service_cpts: BTreeMap::new(),
            portal_rotor: PortalRotor::default(),
            lnd_threads: 0,
            linger_us: LINGER_US,
            credits: 0,
            peer_credits: 0,
            peer_buffer_credits: 0,
            peer_timeout_secs: 180,
        }
    }
}

/// The same, held against this machine.
#[derive(Clone, Debug)]
pub struct Machine {
    pub cpts: CptTable,
    /// Partitions of the network interface; empty: all.
    pub link_cpts: Vec<CptIndex>,
    pub service_cpts: BTreeMap<&'static str, Vec<CptIndex>>,
    pub options: MachineOptions,
    /// Credits of this daemon.
    pub lnet: Lnet,
}

impl MachineOptions {
    /// Checked against the CPUs that are here. A doubtful wish is warned of.
    pub fn on_this_machine(&self) -> Result<Machine> {
        let cpts = CptTable::build(&env_os::topology(), &self.cpts)?;
        if let Some(warning) = cpts.warning() {
            tracing::warn!("{warning}");
        }
        let list = |name: &str, text: &str| {
            cpts.parse_list(text).with_context(|| format!("{name}={text}"))
        };
        let link_cpts =
            if self.link_cpts.is_empty() { Vec::new() } else { list("listen", &self.link_cpts)? };
        let mut service_cpts = BTreeMap::new();
        for (name, services) in SERVICE_CPTS {
            if let Some(text) = self.service_cpts.get(*name) {
                let cpts = list(name, text)?;
                service_cpts.extend(services.iter().map(|service| (*service, cpts.clone())));
            }
        }
        let defaults = LnetSettings::default();
        let or = |value, default| if value == 0 { default } else { value };
        let lnet = Lnet::new(LnetSettings {
            credits: or(self.credits, defaults.credits),
            peer_credits: or(self.peer_credits, defaults.peer_credits),
            peer_buffer_credits: self.peer_buffer_credits,
            cpts: cpts.count().get(),
        });
        Ok(Machine { cpts, link_cpts, service_cpts, options: self.clone(), lnet })
    }

    /// As words of a command line, for a daemon that is started with the same.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let defaults = MachineOptions::default();
        let mut args = Vec::new();
        let mut add = |name: &str, value: String, is_set: bool| {
            if is_set {
                args.push(format!("--{}={value}", name.replace('_', "-")));
            }
        };
        add("cpu_npartitions", self.cpts.npartitions.to_string(), self.cpts.npartitions != 0);
        add("cpu_pattern", self.cpts.pattern.clone(), !self.cpts.pattern.is_empty());
        for (name, list) in &self.service_cpts {
            add(name, list.clone(), true);
        }
        add(
            "portal_rotor",
            self.portal_rotor.as_str().to_owned(),
            self.portal_rotor != defaults.portal_rotor,
        );
        add("lnd_threads", self.lnd_threads.to_string(), self.lnd_threads != 0);
        add("linger_us", self.linger_us.to_string(), self.linger_us != defaults.linger_us);
        add("credits", self.credits.to_string(), self.credits != 0);
        add("peer_credits", self.peer_credits.to_string(), self.peer_credits != 0);
        add(
            "peer_buffer_credits",
            self.peer_buffer_credits.to_string(),
            self.peer_buffer_credits != 0,
        );
        add(
            "peer_timeout",
            self.peer_timeout_secs.to_string(),
            self.peer_timeout_secs != defaults.peer_timeout_secs,
        );
        if self.cpts.is_virtual {
            args.push("--cpu-virtual".to_owned());
        }
        args
    }
}

impl Machine {
    /// Settings of an executor: bound to the CPUs of all partitions where those are not all of the
    /// machine.
    pub(crate) fn os_config(&self) -> OsConfig {
        let own = self.cpts.all_cpus();
        let is_all = own.len() == env_os::topology().cpus().len();
        OsConfig {
            cpus: if is_all { Vec::new() } else { own },
            lnd_threads: self.options.lnd_threads,
            linger: Span::micros(self.options.linger_us),
            cpts: Some(self.cpts.clone()),
            link_cpts: self.link_cpts.clone(),
            lnet: self.lnet.clone(),
            peer_timeout: Span::secs(self.options.peer_timeout_secs),
            ..OsConfig::default()
        }
    }

    /// Parameters that every daemon has. They are read only but where a server adds a writer.
    pub(crate) fn register(&self, params: &ParamTree) {
        let add = |name: &str, value: String| params.register(name, move || value.clone());
        add("cpu_partition_table", self.cpts.render());
        add("cpu_partition_distance", self.cpts.render_distance());
        add("cpu_npartitions", self.cpts.count().to_string());
        add("cpu_pattern", self.options.cpts.pattern.clone());
        add("lnd_threads", self.options.lnd_threads.to_string());
        add("linger_us", self.options.linger_us.to_string());
        for (name, services) in SERVICE_CPTS {
            let cpts = services.first().and_then(|service| self.service_cpts.get(service));
            add(name, shown(&cpts.cloned().unwrap_or_else(|| self.cpts.all().collect())));
        }
        let lnet = self.lnet.clone();
        params.register("peers", move || lnet.peers());
        let lnet = self.lnet.clone();
        params.register("nis", move || lnet.nis());
    }
}

/// `[0,2]`.
fn shown(cpts: &[CptIndex]) -> String {
    let all: Vec<String> = cpts.iter().map(|cpt| cpt.0.to_string()).collect();
    format!("[{}]", all.join(","))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options() -> MachineOptions {
        MachineOptions {
            cpts: CptSettings { npartitions: 4, pattern: String::new(), is_virtual: true },
            service_cpts: BTreeMap::from([("mds_num_cpts".to_owned(), "[1-3]".to_owned())]),
            portal_rotor: PortalRotor::On,
            peer_credits: 8,
            ..MachineOptions::default()
        }
    }

    #[test]
    fn settings_are_held_against_the_machine_and_read_back() {
        let machine = options().on_this_machine().expect("virtual partitions fit anywhere");
        assert_eq!(machine.service_cpts["mdt_out"], [CptIndex(1), CptIndex(2), CptIndex(3)]);
        let params = ParamTree::new();
        machine.register(&params);
        let read = |name: &str| params.get(name).expect(name)[0].value.clone();
        assert_eq!(read("cpu_npartitions"), "4");
        assert_eq!(read("mds_num_cpts"), "[1,2,3]");
        assert_eq!(read("oss_io_cpts"), "[0,1,2,3]");
        assert_eq!(read("cpu_partition_table").lines().count(), 4);
        assert!(read("nis").starts_with("nid "));
    }

    #[test]
    fn a_list_of_partitions_that_do_not_exist_is_refused_by_name() {
        let mut wrong = options();
        wrong.service_cpts.insert("oss_io_cpts".to_owned(), "[2-4]".to_owned());
        let error = format!("{:#}", wrong.on_this_machine().expect_err("there are four"));
        assert!(error.contains("oss_io_cpts=[2-4]") && error.contains("'4'"), "{error}");
    }

    #[test]
    fn a_daemon_is_started_with_the_same_words() {
        assert_eq!(MachineOptions::default().to_args(), [""; 0]);
        assert_eq!(
            options().to_args(),
            [
                "--cpu-npartitions=4",
                "--mds-num-cpts=[1-3]",
                "--portal-rotor=ON",
                "--peer-credits=8",
                "--cpu-virtual"
            ]
        );
    }
}
