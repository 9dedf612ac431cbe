//! The administrator's settings that weigh free space against spreading (Lustre: `lod.*.qos_*`).

/// Settings of the allocator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Policy {
    /// OSTs are balanced while the emptiest has less than this share more room than the fullest;
    /// 100: always.
    pub threshold_rr_percent: u8,
    /// How much free space counts against spreading files evenly.
    pub prio_free_percent: u8,
    /// Seconds for which figures of free space are believed.
    pub maxage_secs: u32,
}

impl Default for Policy {
    /// Lustre's defaults.
    fn default() -> Policy {
        Policy { threshold_rr_percent: 17, prio_free_percent: 90, maxage_secs: 5 }
    }
}
