//! Durations of a run's phases.

/// How much of everything a run does.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    pub(crate) name: &'static str,
    /// Seconds of a phase.
    pub(crate) seconds: u32,
    /// Turns of both sides.
    pub(crate) pairs: u32,
    /// Size of the disk's image.
    pub(crate) disk_gib: u64,
}

impl Scale {
    pub(crate) const QUICK: Scale = Scale { name: "quick", seconds: 3, pairs: 3, disk_gib: 20 };
    /// The disk holds 10 s of ext4's writes and as many of ours.
    pub(crate) const FULL: Scale = Scale { name: "full", seconds: 10, pairs: 7, disk_gib: 48 };

    pub(crate) fn is_quick(self) -> bool {
        self.name == Scale::QUICK.name
    }
}
