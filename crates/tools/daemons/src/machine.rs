//! Options of every daemon for CPU partitions, LND threads and credits, and the parameters that
//! show them.
//!
//! Lustre has these as module options (`libcfs`, `lnet`, `ksocklnd`, `mdt`, `ost`, `ptlrpc`). Here
//! they are flags of the same names, and `lctl get_param` shows them.
#![expect(rustdoc::broken_intra_doc_links, reason = "help texts show lists of CPUs in brackets")]

use std::collections::{BTreeMap, BTreeSet};
use std::num::NonZeroU32;

use anyhow::{Context, Result};
use env::{CptSettings, CptTable, PortalRotor};
use env_os::{Lnet, LnetSettings, OsConfig};
use params::ParamTree;
use types::{CptIndex, Span};

pub use crate::log::LogFormat;

/// A setting of the partitions of services: Lustre's name of it, where its value is, our services.
type ServiceSetting =
    (&'static str, fn(&MachineOptions) -> &Option<String>, &'static [&'static str]);

const SERVICE_CPTS: &[ServiceSetting] = &[
    ("mds_num_cpts", |options| &options.mds_num_cpts, &["mdt", "mdt_out"]),
    ("mds_rdpg_num_cpts", |options| &options.mds_rdpg_num_cpts, &["mdt_readpage"]),
    ("mds_io_num_cpts", |options| &options.mds_io_num_cpts, &["mdt_io"]),
    ("oss_cpts", |options| &options.oss_cpts, &["ost", "ost_create"]),
    ("oss_io_cpts", |options| &options.oss_io_cpts, &["ost_io"]),
    ("ldlm_cpts", |options| &options.ldlm_cpts, &["ldlm_canceld", "ldlm_cbd"]),
];

/// Threads of an LND per CPT at most.
const LND_THREADS_MAX: u32 = 64;

/// Microseconds of looking for work before sleep: less than a sleep and the wake after it take.
const LINGER_US: u64 = 50;

/// Microseconds of looking for work before sleep at most: beyond it is a poll, not a pause.
const LINGER_US_MAX: u64 = 1_000;

/// Seconds without news from a peer after which its links are closed.
const PEER_TIMEOUT_SECS: u64 = 180;

/// Credits at most: a counter of this size bounds nothing any more.
const CREDITS_MAX: u32 = 1 << 20;

/// CPU partitions and network: the same for every daemon, Lustre's names. And how it logs.
#[derive(Clone, Debug, PartialEq, Eq, clap::Args)]
#[command(next_help_heading = "CPU partitions and network")]
pub struct MachineOptions {
    /// CPU partitions; 0: by the number of CPUs and NUMA nodes, 1: off.
    #[arg(long, value_name = "N", default_value_t = 0)]
    pub cpu_npartitions: u32,
    /// CPUs of each partition: '0[0-3] 1[4,5,7]', 'N 0[0] 1[1]' (NUMA nodes), 'N', 'X[0-1]'
    /// (without these CPUs), 'C[0]' (without the first of each partition).
    #[arg(long, value_name = "PATTERN", default_value = "")]
    pub cpu_pattern: String,
    /// Partitions may share CPUs, and be more than there are CPUs.
    #[arg(long)]
    pub cpu_virtual: bool,
    /// Partitions of the metadata service, as [0,2] or [1-3].
    #[arg(long, value_name = "LIST")]
    pub mds_num_cpts: Option<String>,
    /// Partitions of readdir and close.
    #[arg(long, value_name = "LIST")]
    pub mds_rdpg_num_cpts: Option<String>,
    /// Partitions of data on the MDT.
    #[arg(long, value_name = "LIST")]
    pub mds_io_num_cpts: Option<String>,
    /// Partitions of attributes, statfs, sync and locks of OSTs.
    #[arg(long, value_name = "LIST")]
    pub oss_cpts: Option<String>,
    /// Partitions of reads and writes of OSTs.
    #[arg(long, value_name = "LIST")]
    pub oss_io_cpts: Option<String>,
    /// Partitions of lock cancels and callbacks.
    #[arg(long, value_name = "LIST")]
    pub ldlm_cpts: Option<String>,
    /// How a request finds its partition: OFF, ON, RR_RT or HASH_RT.
    #[arg(long, value_name = "MODE", default_value = "HASH_RT")]
    pub portal_rotor: PortalRotor,
    /// Threads per partition that do the socket work; 0: the daemon's one thread does it.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = up_to(LND_THREADS_MAX))]
    pub lnd_threads: u32,
    /// Microseconds for which the daemon's thread looks for more work before it sleeps, while the
    /// CPU is idle and such looks have found work lately; 0: it sleeps at once.
    #[arg(long, value_name = "US", default_value_t = LINGER_US, value_parser = clap::value_parser!(u64).range(0..=LINGER_US_MAX))]
    pub linger_us: u64,
    /// Every user of this machine may connect over loopback addresses. Otherwise only root and the
    /// daemon's own user may.
    #[arg(long)]
    pub trust_local_users: bool,
    /// Messages under way to all peers; 0: 8192.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = up_to(CREDITS_MAX))]
    pub credits: u32,
    /// Messages under way to one peer; 0: 256.
    #[arg(long, value_name = "N", default_value_t = 0, value_parser = up_to(CREDITS_MAX))]
    pub peer_credits: u32,
    /// Of routers, of which there are none: shown in `peers`.
    #[arg(long, value_name = "N", default_value_t = 0, hide = true)]
    pub peer_buffer_credits: u32,
    /// Seconds without news from a peer after which its links are closed; 0: never.
    #[arg(long, value_name = "S", default_value_t = PEER_TIMEOUT_SECS)]
    pub peer_timeout: u64,
    /// Microseconds by which everything that this process sends arrives later: for measurements.
    #[arg(long, value_name = "US", default_value_t = 0, hide = true)]
    pub delay_us: u64,
    /// Form of a line of the log.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub log_format: LogFormat,
    /// Partitions of the network interface, `[0,1]`; empty: all. Part of the address to listen at.
    #[arg(skip)]
    pub link_cpts: String,
    /// Executors of this process that serve targets; 0 is one. Known from the other options.
    #[arg(skip)]
    pub executors: u32,
}

fn up_to(max: u32) -> clap::builder::RangedI64ValueParser<u32> {
    clap::value_parser!(u32).range(0..=i64::from(max))
}

impl Default for MachineOptions {
    fn default() -> MachineOptions {
        MachineOptions {
            cpu_npartitions: 0,
            cpu_pattern: String::new(),
            cpu_virtual: false,
            mds_num_cpts: None,
            mds_rdpg_num_cpts: None,
            mds_io_num_cpts: None,
            oss_cpts: None,
            oss_io_cpts: None,
            ldlm_cpts: None,
            portal_rotor: PortalRotor::default(),
            lnd_threads: 0,
            linger_us: LINGER_US,
            trust_local_users: false,
            credits: 0,
            peer_credits: 0,
            peer_buffer_credits: 0,
            peer_timeout: PEER_TIMEOUT_SECS,
            delay_us: 0,
            log_format: LogFormat::Text,
            link_cpts: String::new(),
            executors: 0,
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
        let settings = CptSettings {
            npartitions: self.cpu_npartitions,
            pattern: self.cpu_pattern.clone(),
            is_virtual: self.cpu_virtual,
        };
        let cpts = CptTable::build(&env_os::topology(), &settings)?;
        if let Some(warning) = cpts.warning() {
            tracing::warn!("{warning}");
        }
        let list = |name: &str, text: &str| {
            cpts.parse_list(text).with_context(|| format!("{name}={text}"))
        };
        let link_cpts =
            if self.link_cpts.is_empty() { Vec::new() } else { list("listen", &self.link_cpts)? };
        let mut service_cpts = BTreeMap::new();
        for (name, value, services) in SERVICE_CPTS {
            if let Some(text) = value(self) {
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
            executors: NonZeroU32::new(self.executors).unwrap_or(NonZeroU32::MIN),
            ..defaults
        });
        Ok(Machine { cpts, link_cpts, service_cpts, options: self.clone(), lnet })
    }

    /// As words of a command line, for a daemon that is started with the same.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let defaults = MachineOptions::default();
        let mut args = Vec::new();
        let mut add = |name: &str, value: &dyn ToString, is_set: bool| {
            if is_set {
                args.push(format!("--{}={}", name.replace('_', "-"), value.to_string()));
            }
        };
        let count = self.cpu_npartitions;
        add("cpu_npartitions", &count, count != defaults.cpu_npartitions);
        add("cpu_pattern", &self.cpu_pattern, !self.cpu_pattern.is_empty());
        for (name, value, _) in SERVICE_CPTS {
            if let Some(list) = value(self) {
                add(name, list, true);
            }
        }
        let rotor = self.portal_rotor;
        add("portal_rotor", &rotor.as_str(), rotor != defaults.portal_rotor);
        add("lnd_threads", &self.lnd_threads, self.lnd_threads != 0);
        add("linger_us", &self.linger_us, self.linger_us != defaults.linger_us);
        add("credits", &self.credits, self.credits != 0);
        add("peer_credits", &self.peer_credits, self.peer_credits != 0);
        add("peer_buffer_credits", &self.peer_buffer_credits, self.peer_buffer_credits != 0);
        add("peer_timeout", &self.peer_timeout, self.peer_timeout != defaults.peer_timeout);
        add("delay_us", &self.delay_us, self.delay_us != 0);
        if self.trust_local_users {
            args.push("--trust-local-users".to_owned());
        }
        if self.log_format == LogFormat::Json {
            args.push("--log-format=json".to_owned());
        }
        if self.cpu_virtual {
            args.push("--cpu-virtual".to_owned());
        }
        args
    }
}

impl Machine {
    /// CPUs of the executor's thread: those of all partitions. Where the process has several
    /// executors, those of the partitions of its own address.
    fn own_cpus(&self) -> Vec<u32> {
        if self.options.executors < 2 || self.link_cpts.is_empty() {
            return self.cpts.all_cpus();
        }
        let cpus = self.link_cpts.iter().flat_map(|cpt| self.cpts.cpus(*cpt));
        cpus.copied().collect::<BTreeSet<u32>>().into_iter().collect()
    }

    /// Settings of an executor: bound to its CPUs where those are not all of the machine.
    pub(crate) fn os_config(&self) -> OsConfig {
        let own = self.own_cpus();
        let is_all = own.len() == env_os::topology().cpus().len();
        OsConfig {
            cpus: if is_all { Vec::new() } else { own },
            lnd_threads: self.options.lnd_threads,
            linger: Span::micros(self.options.linger_us),
            trust_local_users: self.options.trust_local_users,
            cpts: Some(self.cpts.clone()),
            link_cpts: self.link_cpts.clone(),
            lnet: self.lnet.clone(),
            peer_timeout: Span::secs(self.options.peer_timeout),
            delay: Span::micros(self.options.delay_us),
            ..OsConfig::default()
        }
    }

    /// Parameters that every daemon has. They are read only but where a server adds a writer.
    pub(crate) fn register(&self, params: &ParamTree) {
        let add = |name: &str, value: String| params.register(name, move || value.clone());
        add("cpu_partition_table", self.cpts.render());
        add("cpu_partition_distance", self.cpts.render_distance());
        add("cpu_npartitions", self.cpts.count().to_string());
        add("cpu_pattern", self.options.cpu_pattern.clone());
        add("lnd_threads", self.options.lnd_threads.to_string());
        add("linger_us", self.options.linger_us.to_string());
        for (name, _, services) in SERVICE_CPTS {
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
            cpu_npartitions: 4,
            cpu_virtual: true,
            mds_num_cpts: Some("[1-3]".to_owned()),
            portal_rotor: PortalRotor::On,
            peer_credits: 8,
            delay_us: 100,
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
    fn one_of_several_executors_has_the_cpus_of_its_address() {
        let cpus = |link_cpts: &str, executors| {
            let options = MachineOptions {
                cpu_npartitions: 0,
                cpu_pattern: "0[0] 1[0]".to_owned(),
                mds_num_cpts: None,
                link_cpts: link_cpts.to_owned(),
                executors,
                ..options()
            };
            options.on_this_machine().expect("CPU 0 is there").own_cpus()
        };
        assert_eq!(cpus("[1]", 2), [0]);
        assert_eq!(cpus("", 2), cpus("[1]", 1));
    }

    #[test]
    fn a_list_of_partitions_that_do_not_exist_is_refused_by_name() {
        let wrong = MachineOptions { oss_io_cpts: Some("[2-4]".to_owned()), ..options() };
        let error = format!("{:#}", wrong.on_this_machine().expect_err("there are four"));
        assert!(error.contains("oss_io_cpts=[2-4]") && error.contains("'4'"), "{error}");
    }

    #[derive(Debug, clap::Parser)]
    struct Line {
        #[command(flatten)]
        machine: MachineOptions,
    }

    #[test]
    fn a_daemon_is_started_with_the_same_words() {
        for options in [MachineOptions::default(), options()] {
            let words = ["nacre".to_owned()].into_iter().chain(options.to_args());
            assert_eq!(<Line as clap::Parser>::parse_from(words).machine, options);
        }
        assert_eq!(MachineOptions::default().to_args(), [""; 0]);
        assert_eq!(
            options().to_args(),
            [
                "--cpu-npartitions=4",
                "--mds-num-cpts=[1-3]",
                "--portal-rotor=ON",
                "--peer-credits=8",
                "--delay-us=100",
                "--cpu-virtual"
            ]
        );
    }
}
