//! Zones of killed processes: found by their names, and removed.

use std::fmt;

use super::{CgroupTree, CoreZoneError};

const PREFIX: &str = "carrack-zone-";

/// A zone's group without its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleZoneCgroup {
    /// Name at the top of the hierarchy.
    pub name: String,
    /// Process that created it.
    pub pid: u32,
    /// CPUs that it withholds, as a list.
    pub cpus: String,
}

impl fmt::Display for StaleZoneCgroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keeps CPU {} for process {}, which is gone", self.name, self.cpus, self.pid)
    }
}

/// The name of a process's zone.
pub(super) fn name_of(pid: u32, start: u64) -> String {
    format!("{PREFIX}{pid}-{start}")
}

/// The zones whose process has ended.
pub fn stale_zones(tree: &CgroupTree) -> Result<Vec<StaleZoneCgroup>, CoreZoneError> {
    let found = tree.groups()?.into_iter().filter_map(|name| {
        let (pid, start) = parse_owner(&name)?;
        let group = tree.group(&name);
        let cpus = tree.get(&group, "cpuset.cpus").unwrap_or_default();
        (!is_alive(tree, pid, start, &tree.members(&group))).then_some(StaleZoneCgroup { name, pid, cpus })
    });
    Ok(found.collect())
}

/// Removes stale zones, and returns them. Processes that a killed one has left in its zone move to the top of
/// the hierarchy.
pub fn remove_stale_zones(tree: &CgroupTree) -> Result<Vec<StaleZoneCgroup>, CoreZoneError> {
    let zones = stale_zones(tree)?;
    for zone in &zones {
        let group = tree.group(&zone.name);
        for pid in tree.members(&group) {
            tree.add_process(pid, &tree.group(""))?;
        }
        tree.remove(&group)?;
    }
    Ok(zones)
}

fn parse_owner(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// In another PID namespace the owner has another ID there than here, but the same start time; an invisible
/// member (0) may be the owner.
fn is_alive(tree: &CgroupTree, pid: u32, start: u64, members: &[u32]) -> bool {
    std::iter::once(&pid).chain(members).any(|&pid| pid == 0 || tree.start_time_of(pid) == Some(start))
}
