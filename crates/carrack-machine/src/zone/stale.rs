//! Zones whose process was killed: found by their names, and removed.

use std::fmt;

use super::{CgroupTree, ZoneError};

const PREFIX: &str = "carrack-zone-";

/// A zone's group without its process.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StaleZone {
    /// Its name at the top of the hierarchy.
    pub name: String,
    /// The process that made it.
    pub pid: u32,
    /// The CPUs that it keeps from everybody, as a list.
    pub cpus: String,
}

impl fmt::Display for StaleZone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} keeps CPU {} for process {}, which is gone", self.name, self.cpus, self.pid)
    }
}

/// The name of a process's zone.
pub(super) fn name_of(pid: u32, start: u64) -> String {
    format!("{PREFIX}{pid}-{start}")
}

/// The zones whose process is gone.
pub fn stale_zones(tree: &CgroupTree) -> Result<Vec<StaleZone>, ZoneError> {
    let found = tree.groups()?.into_iter().filter_map(|name| {
        let (pid, start) = owner(&name)?;
        let group = tree.group(&name);
        let cpus = tree.get(&group, "cpuset.cpus").unwrap_or_default();
        (!is_alive(tree, pid, start, &tree.members(&group))).then_some(StaleZone { name, pid, cpus })
    });
    Ok(found.collect())
}

/// Removes them, and says which. Processes that a killed one has left in its zone go to the top of the hierarchy.
pub fn repair_zones(tree: &CgroupTree) -> Result<Vec<StaleZone>, ZoneError> {
    let zones = stale_zones(tree)?;
    for zone in &zones {
        let group = tree.group(&zone.name);
        for pid in tree.members(&group) {
            tree.enter(pid, &tree.group(""))?;
        }
        tree.remove(&group)?;
    }
    Ok(zones)
}

fn owner(name: &str) -> Option<(u32, u64)> {
    let (pid, start) = name.strip_prefix(PREFIX)?.split_once('-')?;
    Some((pid.parse().ok()?, start.parse().ok()?))
}

/// In another PID namespace the owner has another number there than here, but the same start; a member that can't be seen
/// at all (0) may be it.
fn is_alive(tree: &CgroupTree, pid: u32, start: u64, members: &[u32]) -> bool {
    let is_it = |&pid: &u32| pid == 0 || tree.start_of(pid) == Some(start);
    is_it(&pid) || members.iter().any(is_it)
}
