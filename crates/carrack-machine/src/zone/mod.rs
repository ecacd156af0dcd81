//! Core zones (M3): the transfer's cores, kept from other programs as far as the machine allows.
//!
//! A soft zone is the effect of the seats: our threads stay on their cores, others may run there too. A hard
//! zone is a partition of cgroup v2's cpuset controller: the process moves into its own group at the top of
//! the hierarchy, whose CPUs no other group has. It needs root, the top of the hierarchy (no container), and
//! a CPU outside of the zone. Dropping it moves the process back to its group and removes the zone's group. A
//! killed process leaves its group behind; the group's name identifies its process ([`stale_zones`]), and the
//! next hard zone, `carrack doctor` or [`remove_stale_zones`] removes it. In a zone the limits of the
//! process's former group (memory, I/O) don't apply. A placement inside a zone must be planned on the zone's
//! CPUs only.
//!
//! On a machine with cgroup v2, four CPUs or more, and root (such as a QEMU guest):
//!
//! ```no_run
//! use carrack_machine::{CgroupTree, ProtectedCoresGuard, CoreIsolationMode, remove_stale_zones};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let zone = ProtectedCoresGuard::open(CoreIsolationMode::Hard, &"2-3".parse()?, &"0".parse()?)?;
//! println!("{}", zone.note());
//! // Meanwhile, with P the number of this process:
//! //   cat /sys/fs/cgroup/cpuset.cpus.effective                          0-1
//! //   cat /sys/fs/cgroup/carrack-zone-P-*/cpuset.cpus.partition         root
//! //   cat /proc/P/cgroup                                                0::/carrack-zone-P-…
//! //   grep Cpus_allowed_list /proc/P/status /proc/1/status              2-3, 0-1
//! zone.close()?; // or drop it; or `kill -9 P`, and then, at the next start:
//! if let Some(tree) = CgroupTree::of_this_machine() {
//!     for gone in remove_stale_zones(&tree)? {
//!         println!("{gone}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod cgroup_tree;
mod stale;

use std::io;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};

use crate::id_set::{CpuSet, NodeSet};

pub use cgroup_tree::CgroupTree;
pub use stale::{StaleZoneCgroup, remove_stale_zones, stale_zones};

/// Protection of the transfer's cores.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub enum CoreIsolationMode {
    /// No protection.
    #[default]
    Off,
    /// Our threads stay on the cores.
    Soft,
    /// Our threads stay on the cores, and others are kept out.
    Hard,
    /// Hard if possible, otherwise soft.
    Auto,
}

/// Reasons why there is no zone.
#[derive(Debug, thiserror::Error)]
pub enum CoreZoneError {
    /// The placement binds no thread.
    #[error(
        "no core is planned for the transfer's threads; hint: --placement=mts, single or auto plans some"
    )]
    NoCpus,
    /// No CPU would be left for other programs.
    #[error(
        "CPU {0} would be all there are: one has to stay outside for everybody else; hint: fewer lanes, or --zone=soft"
    )]
    NoneLeft(CpuSet),
    /// No cgroup v2 is mounted.
    #[error("cgroup v2 is not mounted")]
    NoCgroup2,
    /// The hierarchy has no cpuset controller.
    #[error("cgroup v2 has no cpuset controller here; a v1 hierarchy may have it")]
    NoController,
    /// The top of the hierarchy is not visible.
    #[error("only the top of the machine's cgroups can be divided, and this is a container")]
    InContainer,
    /// The kernel made no partition: its reason.
    #[error("the kernel keeps these CPUs for nobody: {0}")]
    Invalid(String),
    /// A step was refused.
    #[error("can't {step} {}: {source}", path.display())]
    Refused {
        /// "read", "write", "make" and so on.
        step: &'static str,
        /// The path concerned.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
}

impl CoreZoneError {
    fn refused(step: &'static str, path: &Path, source: io::Error) -> CoreZoneError {
        CoreZoneError::Refused { step, path: path.to_path_buf(), source }
    }
}

/// Protected cores, until this is dropped.
pub struct ProtectedCoresGuard {
    hard: Option<CpusetPartitionGuard>,
    note: String,
}

impl ProtectedCoresGuard {
    /// Protects `cpus` and the memory of `mems` (empty: all nodes) on this machine. Blocks for some
    /// milliseconds.
    pub fn open(
        kind: CoreIsolationMode,
        cpus: &CpuSet,
        mems: &NodeSet,
    ) -> Result<ProtectedCoresGuard, CoreZoneError> {
        ProtectedCoresGuard::open_in(CgroupTree::of_this_machine(), kind, cpus, mems)
    }

    /// Opens a zone in a given hierarchy, or without one.
    pub fn open_in(
        tree: Option<CgroupTree>,
        kind: CoreIsolationMode,
        cpus: &CpuSet,
        mems: &NodeSet,
    ) -> Result<ProtectedCoresGuard, CoreZoneError> {
        match kind {
            CoreIsolationMode::Off => Ok(ProtectedCoresGuard { hard: None, note: "no zone".to_string() }),
            _ if cpus.is_empty() && kind != CoreIsolationMode::Auto => Err(CoreZoneError::NoCpus),
            CoreIsolationMode::Soft => Ok(ProtectedCoresGuard::soft(cpus)),
            CoreIsolationMode::Hard => {
                Ok(ProtectedCoresGuard::hard(CpusetPartitionGuard::open_in(tree, cpus, mems)?, cpus))
            }
            CoreIsolationMode::Auto if cpus.is_empty() => Ok(ProtectedCoresGuard {
                hard: None,
                note: "no zone: no thread is bound to cores".to_string(),
            }),
            CoreIsolationMode::Auto => Ok(match CpusetPartitionGuard::open_in(tree, cpus, mems) {
                Ok(partition) => ProtectedCoresGuard::hard(partition, cpus),
                Err(error) => {
                    let ProtectedCoresGuard { hard, note } = ProtectedCoresGuard::soft(cpus);
                    ProtectedCoresGuard {
                        hard,
                        note: format!("{note} (a hard one is not possible: {error})"),
                    }
                }
            }),
        }
    }

    /// Returns true if others are kept out.
    pub fn is_hard(&self) -> bool {
        self.hard.is_some()
    }

    /// Description of the protection, for people.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Ends the zone and returns errors, which a drop ignores.
    pub fn close(mut self) -> Result<(), CoreZoneError> {
        self.hard.take().map_or(Ok(()), |mut partition| partition.undo())
    }

    fn soft(cpus: &CpuSet) -> ProtectedCoresGuard {
        let note = format!("soft zone: our threads stay on CPU {cpus}, others may run there too");
        ProtectedCoresGuard { hard: None, note }
    }

    fn hard(partition: CpusetPartitionGuard, cpus: &CpuSet) -> ProtectedCoresGuard {
        let note = format!("hard zone: CPU {cpus} is for this process alone ({})", partition.group.display());
        ProtectedCoresGuard { hard: Some(partition), note }
    }
}

/// A group whose CPUs no other group has.
struct CpusetPartitionGuard {
    tree: CgroupTree,
    group: PathBuf,
    /// True if the group was created by us: not if this process has another zone already.
    is_made: bool,
    /// The process's former group, once it has moved.
    came_from: Option<PathBuf>,
    /// True if we enabled the division of CPUs at the top.
    divided_by_us: bool,
}

impl CpusetPartitionGuard {
    fn open_in(
        tree: Option<CgroupTree>,
        cpus: &CpuSet,
        mems: &NodeSet,
    ) -> Result<CpusetPartitionGuard, CoreZoneError> {
        CpusetPartitionGuard::open(tree.ok_or(CoreZoneError::NoCgroup2)?, cpus, mems)
    }

    fn open(tree: CgroupTree, cpus: &CpuSet, mems: &NodeSet) -> Result<CpusetPartitionGuard, CoreZoneError> {
        if !tree.is_top() {
            return Err(CoreZoneError::InContainer);
        }
        if !tree.can_divide_cpus() {
            return Err(CoreZoneError::NoController);
        }
        // A killed predecessor's zone may hold the wanted CPUs. A failed repair shows below, if it matters.
        let _ = remove_stale_zones(&tree);
        if tree.unassigned_cpus()?.is_subset(cpus) {
            return Err(CoreZoneError::NoneLeft(cpus.clone()));
        }
        let mut partition = CpusetPartitionGuard::make(tree)?;
        partition.configure_and_enter(cpus, mems)?;
        Ok(partition)
    }

    /// From here on, dropping the partition undoes all steps.
    fn make(tree: CgroupTree) -> Result<CpusetPartitionGuard, CoreZoneError> {
        let pid = std::process::id();
        let group = tree.group(&stale::name_of(pid, tree.own_start_time(pid)?));
        let divided_by_us = !tree.divides_cpus();
        if divided_by_us {
            tree.set_cpu_division(true)?;
        }
        let mut partition =
            CpusetPartitionGuard { tree, group, is_made: false, came_from: None, divided_by_us };
        partition.tree.make(&partition.group)?;
        partition.is_made = true;
        Ok(partition)
    }

    fn configure_and_enter(&mut self, cpus: &CpuSet, mems: &NodeSet) -> Result<(), CoreZoneError> {
        let (tree, group) = (&self.tree, &self.group);
        tree.set(group, "cpuset.cpus", &cpus.to_string())?;
        if !mems.is_empty() {
            tree.set(group, "cpuset.mems", &mems.to_string())?;
        }
        tree.set(group, "cpuset.cpus.partition", "root")?;
        let state = tree.get(group, "cpuset.cpus.partition")?;
        if state != "root" {
            return Err(CoreZoneError::Invalid(state));
        }
        let before = tree.own_group()?;
        tree.add_process(std::process::id(), group)?;
        self.came_from = Some(before);
        Ok(())
    }

    /// Moves the process and its children back first: a group with members can't be removed. Each step is
    /// done once, even in repeated calls.
    fn undo(&mut self) -> Result<(), CoreZoneError> {
        if let Some(before) = self.came_from.take() {
            for pid in self.tree.members(&self.group) {
                self.tree.move_to(pid, &before)?;
            }
        }
        if std::mem::take(&mut self.is_made) {
            self.tree.remove(&self.group)?;
        }
        if std::mem::take(&mut self.divided_by_us) && !self.tree.has_group_with_cpus() {
            self.tree.set_cpu_division(false)?;
        }
        Ok(())
    }
}

impl Drop for CpusetPartitionGuard {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

#[cfg(test)]
mod tests;
