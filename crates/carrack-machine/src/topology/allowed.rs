//! The CPUs and nodes that this process may use: affinity and cpusets, as the kernel tells them.

use std::fs;

use crate::id_set::{CpuSet, NodeSet};

/// The kernel's table of the calling thread (proc(5)); its list of CPUs is what sched_getaffinity(2) gives, without that
/// call's limit of 1,024 of them.
const STATUS: &str = "/proc/thread-self/status";

/// What may be used; nothing is said of what could not be learnt.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Allowed {
    pub(super) cpus: Option<CpuSet>,
    pub(super) nodes: Option<NodeSet>,
}

impl Allowed {
    /// What the calling thread may use.
    pub(super) fn of_this_thread() -> Allowed {
        Allowed::parse(&fs::read_to_string(STATUS).unwrap_or_default())
    }

    fn parse(status: &str) -> Allowed {
        let list = |name: &str| status.lines().find_map(|line| line.strip_prefix(name)?.strip_prefix(':'));
        let cpus = list("Cpus_allowed_list").and_then(|list| list.parse().ok());
        let nodes = list("Mems_allowed_list").and_then(|list| list.parse().ok());
        Allowed {
            cpus: cpus.filter(|cpus: &CpuSet| !cpus.is_empty()),
            nodes: nodes.filter(|nodes: &NodeSet| !nodes.is_empty()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_kernels_table_is_read() {
        let status = "Name:\tx\nCpus_allowed:\tff\nCpus_allowed_list:\t0-3,8\nMems_allowed_list:\t0,2\n";
        let allowed = Allowed::parse(status);
        assert_eq!(allowed.cpus.unwrap().to_string(), "0-3,8");
        assert_eq!(allowed.nodes.unwrap().to_string(), "0,2");
        assert_eq!(Allowed::parse("Mems_allowed_list:\t\n"), Allowed::default());
    }

    #[test]
    fn this_thread_may_use_something() {
        let here = rustix::thread::sched_getaffinity(None).unwrap();
        let cpus = Allowed::of_this_thread().cpus.unwrap();
        assert_eq!(cpus.len() as u32, here.count());
        assert!(cpus.iter().all(|cpu| here.is_set(cpu as usize)));
    }
}
