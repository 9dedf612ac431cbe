//! The services of a node, with Lustre's names and sizes. A service is a deadlock firewall with its
//! own workers and queues.

use types::{TargetId, TargetKind};

/// One service.
#[derive(Debug, PartialEq, Eq)]
pub struct ServiceSpec {
    /// Its place among [`SERVICES`].
    pub(crate) index: usize,
    /// Its name in parameters and statistics.
    pub name: &'static str,
    /// Where its parameters stand.
    pub path: &'static str,
    /// Whether it has a high-priority head.
    pub has_hp: bool,
    /// Worker slots that a partition starts with.
    pub init: u32,
    /// Part of the limit that does not depend on the CPUs; zero: the limit is `max`.
    pub base: u32,
    /// Slots per CPU of a partition, falling by one for every four CPUs.
    pub factor: u32,
    /// Slots of all partitions together.
    pub max: u32,
}

impl ServiceSpec {
    /// Whether it runs on each CPT. One without affinity has a single partition, on CPT 0.
    #[must_use]
    pub fn has_affinity(&self) -> bool {
        self.index != MGS.index
    }

    /// Whether its requests wait for no policy and no slot: those that nothing hinders
    /// ([`ServiceSpec::is_unhindered`]), and those of the MGS, without which nothing can be mounted
    /// or set back.
    #[must_use]
    pub fn passes_policies(&self) -> bool {
        self.is_unhindered() || self.index == MGS.index
    }

    /// Whether its requests wait for no policy, slot or room: who waits for a lock waits for the
    /// unlock of another, which no policy may hold back.
    #[must_use]
    pub fn is_unhindered(&self) -> bool {
        self.index == LDLM_CANCELD.index
    }

    /// Whether requests for `target` come here as a rule: while each target has heads of its own,
    /// these targets have them from the beginning, others from their first request on.
    pub(crate) fn is_for(&self, target: TargetId) -> bool {
        match target.kind {
            TargetKind::Mgt => *self == MGS,
            TargetKind::Lst => *self == LST || *self == LST_CONTROL,
            TargetKind::Mdt => self.path.starts_with("mds.") && !self.is_for_data(),
            TargetKind::Ost if target.is_dom() => self.is_for_data(),
            TargetKind::Ost => self.path.starts_with("ost."),
        }
    }

    /// Whether it is for the data targets of MDTs.
    fn is_for_data(&self) -> bool {
        *self == MDT_IO || *self == MDT_OUT
    }
}

macro_rules! services {
    ($($(#[$doc:meta])* $name:ident = $text:literal, $path:literal, $hp:literal, $init:literal, $base:literal, $factor:literal, $max:literal;)*) => {
        #[allow(non_camel_case_types, clippy::upper_case_acronyms, reason = "names of statics")]
        enum Index { $($name,)* COUNT }

        /// How many there are.
        pub(crate) const COUNT: usize = Index::COUNT as usize;

        $($(#[$doc])* pub static $name: ServiceSpec = ServiceSpec {
            index: Index::$name as usize, name: $text, path: $path, has_hp: $hp, init: $init, base: $base, factor: $factor, max: $max,
        };)*

        /// All of them.
        pub static SERVICES: &[&ServiceSpec] = &[$(&$name,)*];
    };
}

services! {
    /// Attributes, statfs, sync and locks of OSTs.
    OST = "ost", "ost.OSS.ost", true, 3, 64, 8, 512;
    /// Reads, writes and punches of OSTs.
    OST_IO = "ost_io", "ost.OSS.ost_io", true, 3, 64, 8, 512;
    /// Destroys of objects (and creates, where there are any).
    OST_CREATE = "ost_create", "ost.OSS.ost_create", false, 2, 8, 1, 64;
    /// All metadata operations and lock enqueues.
    MDT = "mdt", "mds.MDS.mdt", true, 3, 64, 8, 1024;
    /// Pages of directories, closes.
    MDT_READPAGE = "mdt_readpage", "mds.MDS.mdt_readpage", false, 2, 48, 4, 256;
    /// Data on the MDT.
    MDT_IO = "mdt_io", "mds.MDS.mdt_io", true, 3, 64, 8, 512;
    /// Updates from other MDTs.
    MDT_OUT = "mdt_out", "mds.MDS.mdt_out", false, 2, 64, 8, 1024;
    /// Configuration.
    MGS = "mgs", "mgs.MGS.mgs", false, 3, 0, 0, 32;
    /// Cancels of locks from clients.
    LDLM_CANCELD = "ldlm_canceld", "ldlm.services.ldlm_canceld", true, 3, 24, 8, 128;
    /// Pings and transfers of the self-test (Lustre: `LST` tests, at least 256 mini-workers a CPT,
    /// at most 2,048).
    LST = "lst", "lst", false, 256, 2048, 0, 65_536;
    /// Its control requests: they pass whatever the tests have queued.
    LST_CONTROL = "lst_control", "lst_control", false, 2, 16, 0, 64;
    /// Lock callbacks.
    LDLM_CBD = "ldlm_cbd", "ldlm.services.ldlm_cbd", false, 2, 24, 8, 128;
}
