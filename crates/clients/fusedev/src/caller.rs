//! What `/proc` tells of the thread that waits for an answer.

/// Whether a signal that kills waits for this thread, or the thread is gone. The kernel marks every thread of a
/// process that a signal will end with SIGKILL, whatever the signal was. A caller in another PID namespace cannot be
/// looked up and counts as living.
#[must_use]
pub fn fatal_signal_pending(pid: u32) -> bool {
    const SIGKILL_BIT: u64 = 1 << 8;
    if pid == 0 {
        return false;
    }
    let status = match std::fs::read_to_string(format!("/proc/{pid}/status")) {
        Ok(status) => status,
        Err(error) => return error.kind() == std::io::ErrorKind::NotFound,
    };
    status
        .lines()
        .filter_map(|line| line.strip_prefix("SigPnd:").or_else(|| line.strip_prefix("ShdPnd:")))
        .filter_map(|mask| u64::from_str_radix(mask.trim(), 16).ok())
        .any(|mask| mask & SIGKILL_BIT != 0)
}

/// Supplementary groups of a thread; none where it cannot be looked up.
#[must_use]
pub fn supplementary_groups(pid: u32) -> Vec<u32> {
    if pid == 0 {
        return Vec::new();
    }
    std::fs::read_to_string(format!("/proc/{pid}/status")).map_or_else(|_| Vec::new(), |status| groups_of(&status))
}

fn groups_of(status: &str) -> Vec<u32> {
    let line = status.lines().find_map(|line| line.strip_prefix("Groups:")).unwrap_or_default();
    line.split_whitespace().filter_map(|gid| gid.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_living_thread_has_no_fatal_signal_and_a_dead_one_counts_as_killed() {
        assert!(!fatal_signal_pending(std::process::id()));
        assert!(fatal_signal_pending(u32::MAX / 2));
    }

    #[test]
    fn groups_are_read_from_their_line() {
        assert_eq!(groups_of("Name:\tx\nGroups:\t4 20 1000 \nSigPnd:\t0\n"), [4, 20, 1000]);
        assert_eq!(groups_of("Name:\tx\nGroups:\t \n"), []);
    }
}
