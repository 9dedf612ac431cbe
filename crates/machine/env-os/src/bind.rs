//! Binds threads to the CPUs of a partition, and their memory to its node. If the system refuses
//! (containers), the thread stays unbound and one log line says so.

use std::sync::atomic::{AtomicBool, Ordering};

use rustix::thread::{CpuSet, sched_setaffinity};

/// `MPOL_PREFERRED` of `linux/mempolicy.h`: pages come from this node while it has any.
const MPOL_PREFERRED: libc::c_int = 1;

/// Nodes of a mask; Linux knows 1,024 at most.
const NODES_MAX: usize = 1_024;

static COMPLAINED: AtomicBool = AtomicBool::new(false);

fn complain(what: &str, error: &std::io::Error) {
    if !COMPLAINED.swap(true, Ordering::Relaxed) {
        tracing::warn!(%error, "{what}; this is not repeated");
    }
}

/// Binds the calling thread to `cpus`; an empty list leaves it free.
pub(crate) fn to_cpus(cpus: &[u32]) {
    if cpus.is_empty() {
        return;
    }
    let mut set = CpuSet::new();
    for cpu in cpus.iter().filter(|cpu| (**cpu as usize) < CpuSet::MAX_CPU) {
        set.set(*cpu as usize);
    }
    if let Err(error) = sched_setaffinity(None, &set) {
        complain("threads stay unbound", &error.into());
    }
}

/// Memory of the calling thread comes from `node` from now on, where there is more than one node.
pub(crate) fn to_node(node: u32, node_count: u32) {
    if node_count < 2 || node as usize >= NODES_MAX {
        return;
    }
    const BITS: usize = libc::c_ulong::BITS as usize;
    let mut mask = [0 as libc::c_ulong; NODES_MAX / BITS];
    mask[node as usize / BITS] = 1 << (node as usize % BITS);
    // SAFETY: the mask is valid for reads of `NODES_MAX` bits for the length of the call, which
    // keeps no pointer.
    let done = unsafe {
        libc::syscall(libc::SYS_set_mempolicy, MPOL_PREFERRED, mask.as_ptr(), NODES_MAX + 1)
    };
    if done != 0 {
        complain("memory has no preferred node", &std::io::Error::last_os_error());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_thread_is_bound_and_a_refused_binding_does_no_harm() {
        let bound = std::thread::spawn(|| {
            to_cpus(&[0]);
            let set = rustix::thread::sched_getaffinity(None).expect("own affinity");
            to_cpus(&[1_000]);
            to_node(0, 2);
            to_node(900, 2);
            (set.count(), set.is_set(0))
        });
        assert_eq!(bound.join().expect("no panic"), (1, true));
    }
}
