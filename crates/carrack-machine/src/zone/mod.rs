//! Core zones (M3): the transfer's cores, kept from everybody else as far as the machine allows.
//!
//! A soft zone is what the seats already are: our threads stay on their cores, others may come too. A hard zone is a
//! partition of cgroup v2's cpuset controller: the process moves into a group of its own at the top of the hierarchy,
//! whose CPUs no other group has any more. It needs root, the top of the hierarchy (no container), and a CPU that is left for
//! the others. It is undone when dropped: the process goes back to its group, the zone's group goes. A process that is
//! killed leaves its group behind; the group's name says whose it was ([`stale_zones`]), and the next hard zone, `carrack doctor`
//! or [`repair_zones`] removes it. While the zone lasts the limits of the group that the process came from (memory, I/O)
//! don't hold for it. What may run nowhere else has to be known before: a placement that is applied inside a zone is planned on the
//! zone's CPUs only.
//!
//! On a machine with cgroup v2, four CPUs or more, and root (a QEMU guest, say):
//!
//! ```no_run
//! use carrack_machine::{CgroupTree, Zone, ZoneKind, repair_zones};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let zone = Zone::open(ZoneKind::Hard, &"2-3".parse()?, &"0".parse()?)?;
//! println!("{}", zone.note());
//! // Meanwhile, with P the number of this process:
//! //   cat /sys/fs/cgroup/cpuset.cpus.effective                          0-1
//! //   cat /sys/fs/cgroup/carrack-zone-P-*/cpuset.cpus.partition         root
//! //   cat /proc/P/cgroup                                                0::/carrack-zone-P-…
//! //   grep Cpus_allowed_list /proc/P/status /proc/1/status              2-3, 0-1
//! zone.close()?; // or drop it; or `kill -9 P`, and then, at the next start:
//! if let Some(tree) = CgroupTree::of_this_machine() {
//!     for gone in repair_zones(&tree)? {
//!         println!("{gone}");
//!     }
//! }
//! # Ok(())
//! # }
//! ```

mod stale;
mod tree;

use std::io;
use std::path::{Path, PathBuf};

use crate::id_set::{CpuSet, NodeSet};

pub use stale::{StaleZone, repair_zones, stale_zones};
pub use tree::CgroupTree;

/// How the transfer's cores are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum ZoneKind {
    /// Not at all.
    #[default]
    Off,
    /// Our threads stay on them.
    Soft,
    /// And others stay away.
    Hard,
    /// Hard where that is possible, else soft.
    Auto,
}

/// Why there is no zone.
#[derive(Debug, thiserror::Error)]
pub enum ZoneError {
    /// The placement binds no thread.
    #[error(
        "no core is planned for the transfer's threads; hint: --placement=mts, single or auto plans some"
    )]
    NoCpus,
    /// Nothing would be left for other programs.
    #[error(
        "CPU {0} would be all there are: one has to stay outside for everybody else; hint: fewer lanes, or --zone=soft"
    )]
    NoneLeft(CpuSet),
    /// No cgroup v2 is mounted.
    #[error("cgroup v2 is not mounted")]
    NoCgroup2,
    /// Its cpuset controller is not there.
    #[error("cgroup v2 has no cpuset controller here; a v1 hierarchy may have it")]
    NoController,
    /// The top of the hierarchy is out of sight.
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
        /// What.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

impl ZoneError {
    fn refused(step: &'static str, path: &Path, source: io::Error) -> ZoneError {
        ZoneError::Refused { step, path: path.to_path_buf(), source }
    }
}

/// Cores that are kept, until this is dropped.
pub struct Zone {
    hard: Option<Partition>,
    note: String,
}

impl Zone {
    /// Keeps `cpus` and the memory of `mems` (none: of all nodes) on this machine. Blocks for some milliseconds.
    pub fn open(kind: ZoneKind, cpus: &CpuSet, mems: &NodeSet) -> Result<Zone, ZoneError> {
        Zone::open_in(CgroupTree::of_this_machine(), kind, cpus, mems)
    }

    /// The same in a given hierarchy, or in none.
    pub fn open_in(
        tree: Option<CgroupTree>,
        kind: ZoneKind,
        cpus: &CpuSet,
        mems: &NodeSet,
    ) -> Result<Zone, ZoneError> {
        let hard = || tree.ok_or(ZoneError::NoCgroup2).and_then(|tree| Partition::open(tree, cpus, mems));
        match kind {
            ZoneKind::Off => Ok(Zone { hard: None, note: "no zone".to_string() }),
            _ if cpus.is_empty() && kind != ZoneKind::Auto => Err(ZoneError::NoCpus),
            ZoneKind::Soft => Ok(Zone::soft(cpus)),
            ZoneKind::Hard => Ok(Zone::hard(hard()?, cpus)),
            ZoneKind::Auto if cpus.is_empty() => {
                Ok(Zone { hard: None, note: "no zone: no thread is bound to cores".to_string() })
            }
            ZoneKind::Auto => Ok(match hard() {
                Ok(partition) => Zone::hard(partition, cpus),
                Err(error) => {
                    let Zone { hard, note } = Zone::soft(cpus);
                    Zone { hard, note: format!("{note} (a hard one is not possible: {error})") }
                }
            }),
        }
    }

    /// Whether others are kept away.
    pub fn is_hard(&self) -> bool {
        self.hard.is_some()
    }

    /// What is kept from whom, for people.
    pub fn note(&self) -> &str {
        &self.note
    }

    /// Ends it, and says what went wrong at that. Dropping does the same in silence.
    pub fn close(mut self) -> Result<(), ZoneError> {
        self.hard.take().map_or(Ok(()), |mut partition| partition.undo())
    }

    fn soft(cpus: &CpuSet) -> Zone {
        let note = format!("soft zone: our threads stay on CPU {cpus}, others may run there too");
        Zone { hard: None, note }
    }

    fn hard(partition: Partition, cpus: &CpuSet) -> Zone {
        let note = format!("hard zone: CPU {cpus} is for this process alone ({})", partition.group.display());
        Zone { hard: Some(partition), note }
    }
}

/// A group whose CPUs no other group has.
struct Partition {
    tree: CgroupTree,
    group: PathBuf,
    /// The group is there, and ours: not so where this process has another zone already.
    is_made: bool,
    /// Where the process was before, once it has moved.
    came_from: Option<PathBuf>,
    /// The top divides CPUs only since we came.
    divided_by_us: bool,
}

impl Partition {
    fn open(tree: CgroupTree, cpus: &CpuSet, mems: &NodeSet) -> Result<Partition, ZoneError> {
        if !tree.is_top() {
            return Err(ZoneError::InContainer);
        }
        if !tree.can_divide_cpus() {
            return Err(ZoneError::NoController);
        }
        // A killed predecessor's CPUs may be those that are wanted. What can't be repaired shows below, if it matters.
        let _ = repair_zones(&tree);
        if tree.cpus_for_all()?.is_subset(cpus) {
            return Err(ZoneError::NoneLeft(cpus.clone()));
        }
        let mut partition = Partition::make(tree)?;
        partition.fill(cpus, mems)?;
        Ok(partition)
    }

    /// From here on whatever fails is undone as the partition is dropped.
    fn make(tree: CgroupTree) -> Result<Partition, ZoneError> {
        let pid = std::process::id();
        let group = tree.group(&stale::name_of(pid, tree.own_start(pid)?));
        let divided_by_us = !tree.divides_cpus();
        if divided_by_us {
            tree.divide_cpus(true)?;
        }
        let mut partition = Partition { tree, group, is_made: false, came_from: None, divided_by_us };
        partition.tree.make(&partition.group)?;
        partition.is_made = true;
        Ok(partition)
    }

    fn fill(&mut self, cpus: &CpuSet, mems: &NodeSet) -> Result<(), ZoneError> {
        let (tree, group) = (&self.tree, &self.group);
        tree.set(group, "cpuset.cpus", &cpus.to_string())?;
        if !mems.is_empty() {
            tree.set(group, "cpuset.mems", &mems.to_string())?;
        }
        tree.set(group, "cpuset.cpus.partition", "root")?;
        let state = tree.get(group, "cpuset.cpus.partition")?;
        if state != "root" {
            return Err(ZoneError::Invalid(state));
        }
        let before = tree.own_group()?;
        tree.enter(std::process::id(), group)?;
        self.came_from = Some(before);
        Ok(())
    }

    /// The process, and what it has started meanwhile, goes back first: a group with members can't be removed. Each step
    /// is done once, however often this is called.
    fn undo(&mut self) -> Result<(), ZoneError> {
        if let Some(before) = self.came_from.take() {
            for pid in self.tree.members(&self.group) {
                self.tree.move_to(pid, &before)?;
            }
        }
        if std::mem::take(&mut self.is_made) {
            self.tree.remove(&self.group)?;
        }
        match std::mem::take(&mut self.divided_by_us) && !self.tree.has_divided_cpus() {
            true => self.tree.divide_cpus(false),
            false => Ok(()),
        }
    }
}

impl Drop for Partition {
    fn drop(&mut self) {
        let _ = self.undo();
    }
}

#[cfg(test)]
mod tests;
