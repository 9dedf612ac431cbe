//! CPUs, cores, sockets and NUMA nodes of this machine, as Linux reports them below `/sys`.

use std::fs;
use std::path::Path;

use env::{Cpu, Topology};

/// What is online here. A system that tells nothing has as many CPUs as this process may use, on
/// one node.
#[must_use]
pub fn topology() -> Topology {
    read(Path::new("/sys/devices/system")).unwrap_or_else(|| {
        let cpus = std::thread::available_parallelism().unwrap_or(std::num::NonZeroUsize::MIN);
        let cpus = u32::try_from(cpus.get())
            .ok()
            .and_then(std::num::NonZeroU32::new)
            .unwrap_or(std::num::NonZeroU32::MIN);
        Topology::even(cpus, std::num::NonZeroU32::MIN)
    })
}

fn read(system: &Path) -> Option<Topology> {
    let online = list(&system.join("cpu/online"))?;
    let nodes = list(&system.join("node/online")).unwrap_or_default();
    let node_cpus: Vec<(u32, Vec<u32>)> = nodes
        .iter()
        .filter_map(|node| Some((*node, list(&system.join(format!("node/node{node}/cpulist")))?)))
        .collect();
    let cpu = |id: u32| {
        let of = |name: &str| number(&system.join(format!("cpu/cpu{id}/topology/{name}")));
        let node =
            node_cpus.iter().find(|(_, cpus)| cpus.contains(&id)).map_or(0, |(node, _)| *node);
        Cpu {
            node,
            socket: of("physical_package_id").unwrap_or(0),
            core: of("core_id").unwrap_or(id),
            id,
        }
    };
    // A row has a column for each online node; those without CPUs are left out of both.
    let with_cpus: Vec<usize> = (0..nodes.len())
        .filter(|at| {
            node_cpus.iter().any(|(node, cpus)| {
                *node == nodes[*at] && cpus.iter().any(|cpu| online.contains(cpu))
            })
        })
        .collect();
    let row = |at: usize| -> Option<Vec<u32>> {
        let text =
            fs::read_to_string(system.join(format!("node/node{}/distance", nodes[at]))).ok()?;
        let row: Vec<u32> =
            text.split_whitespace().map(str::parse).collect::<Result<_, _>>().ok()?;
        with_cpus.iter().map(|to| row.get(*to).copied()).collect()
    };
    let distances: Option<Vec<_>> = with_cpus.iter().map(|at| row(*at)).collect();
    Topology::new(online.into_iter().map(cpu).collect(), distances.unwrap_or_default())
}

/// `0-3,8`, as the kernel writes it; an empty file is an empty list.
fn list(path: &Path) -> Option<Vec<u32>> {
    let text = fs::read_to_string(path).ok()?;
    let text = text.trim();
    if text.is_empty() {
        return Some(Vec::new());
    }
    env::parse_list(&format!("[{text}]"), u32::from(u16::MAX)).ok()
}

/// Some systems write -1 for what they do not know.
fn number(path: &Path) -> Option<u32> {
    fs::read_to_string(path).ok()?.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn this_machine_has_a_cpu_and_a_node() {
        let here = topology();
        assert!(!here.nodes().is_empty());
        assert!(here.nodes().iter().all(|node| !here.cpus_of(*node).is_empty()));
    }

    #[test]
    fn nodes_cores_and_distances_are_read() {
        let dir = std::env::temp_dir().join(format!("nacre-topology-{}", std::process::id()));
        let write = |name: &str, text: &str| {
            let path = dir.join(name);
            fs::create_dir_all(path.parent().expect("inside")).expect("made");
            fs::write(path, text).expect("written");
        };
        write("cpu/online", "0-3,6\n");
        write("node/online", "0-2\n");
        for (node, cpus, distance) in
            [(0, "0-1", "10 40 21"), (1, "\n", "40 10 40"), (2, "2-3,5-6", "21 40 10")]
        {
            write(&format!("node/node{node}/cpulist"), cpus);
            write(&format!("node/node{node}/distance"), distance);
        }
        for (cpu, core) in [(0, "0"), (1, "0"), (2, "0"), (3, "1"), (6, "-1")] {
            write(&format!("cpu/cpu{cpu}/topology/core_id"), core);
        }
        let read = read(&dir).expect("CPUs");
        fs::remove_dir_all(&dir).expect("removed");
        assert_eq!(read.nodes(), [0, 2]);
        assert_eq!(read.cpus_of(2), [2, 3, 6]);
        assert_eq!((read.distance(0, 2), read.distance(2, 2)), (21, 10));
        assert_eq!(read.cpu(6).map(|cpu| cpu.core), Some(6));
    }
}
