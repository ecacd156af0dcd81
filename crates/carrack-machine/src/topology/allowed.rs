//! The CPUs and nodes that this process may use: affinity and cpusets, as the kernel reports them.

use std::fs;

use crate::id_set::{CpuSet, IdSet, NodeSet};

/// The kernel's status of the calling thread (proc(5)); its CPU list equals sched_getaffinity(2), without
/// that call's limit of 1,024 CPUs.
const STATUS: &str = "/proc/thread-self/status";

/// The allowed CPUs and nodes; `None` if unknown.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct AllowedResources {
    pub(super) cpus: Option<CpuSet>,
    pub(super) nodes: Option<NodeSet>,
}

impl AllowedResources {
    /// The CPUs and nodes of the calling thread.
    pub(super) fn of_this_thread() -> AllowedResources {
        AllowedResources::parse(&fs::read_to_string(STATUS).unwrap_or_default())
    }

    fn parse(status: &str) -> AllowedResources {
        AllowedResources {
            cpus: parse_id_list(status, "Cpus_allowed_list:"),
            nodes: parse_id_list(status, "Mems_allowed_list:"),
        }
    }
}

/// The list of a line; `None` if it is missing, malformed or empty.
fn parse_id_list<K>(status: &str, name: &str) -> Option<IdSet<K>> {
    let list = status.lines().find_map(|line| line.strip_prefix(name))?;
    list.parse().ok().filter(|ids: &IdSet<K>| !ids.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0,2\n";
        let allowed = AllowedResources::parse(status);
        assert_eq!(allowed.cpus.unwrap().to_string(), "0-3,8");
        assert_eq!(allowed.nodes.unwrap().to_string(), "0,2");
        assert_eq!(AllowedResources::parse("Mems_allowed_list:\t\n"), AllowedResources::default());
    }

    #[test]
    fn this_thread_may_use_something() {
        let here = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus = AllowedResources::of_this_thread().cpus.unwrap();
        assert_eq!(cpus.len() as u32, here.count());
        assert!(cpus.iter().all(|cpu| here.is_set(cpu as usize)));
    }
}
