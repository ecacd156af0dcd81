//! `carrack doctor`: what makes a data transfer node slow.
//!
//! Facts are read relative to a root ([`SysFiles`]) or asked of the kernel ([`Probes`]), judged by pure functions, one
//! file for each group, and come out as [`Finding`]s. What can't be seen is never an alarm. [`repair`] mends what can be
//! set at once.

mod clock;
mod cpu;
mod finding;
mod memory;
mod network;
mod nics;
mod probes;
pub mod repair;
mod storage;
mod system;
#[cfg(test)]
mod trees;

use std::path::PathBuf;

use crate::sys_files::SysFiles;

pub use finding::{Check, Finding, Group, Verdict};
pub use probes::{Probes, Ring};

/// The path that buffers are meant to fill where nobody says: round the Earth's longest usual way, Europe to the west of
/// America, in milliseconds. fasterdata.es.net sizes for the same.
pub const RTT_MS_DEFAULT: u32 = 100;

/// The link that is meant where no interface tells its speed, in Mbit/s: what data transfer nodes have.
pub const SPEED_MBITS_DEFAULT: u32 = 100_000;

/// What the machine is meant for.
#[derive(Clone, Debug)]
pub struct Purpose {
    /// Round-trip time of the longest path, in milliseconds.
    pub rtt_ms: u32,
    /// Speed of the path in Mbit/s; the fastest interface's where nothing is said.
    pub speed_mbits: Option<u32>,
    /// Bytes of payload memory that a transfer locks.
    pub pool_bytes: u64,
    /// The paths that data comes from or goes to.
    pub paths: Vec<PurposePath>,
}

/// One path that data comes from or goes to.
#[derive(Clone, Debug)]
pub struct PurposePath {
    /// As the user named it.
    pub shown: String,
    /// Absolute and without links, or why it can't be looked at.
    pub real: Result<PathBuf, String>,
}

/// Every check that there is, by group.
pub fn checks() -> impl Iterator<Item = &'static Check> {
    let groups = [
        network::CHECKS,
        nics::CHECKS,
        cpu::CHECKS,
        memory::CHECKS,
        storage::CHECKS,
        clock::CHECKS,
        system::CHECKS,
    ];
    groups.into_iter().flatten().copied()
}

/// Looks at everything.
pub fn examine(files: &SysFiles, probes: &Probes, purpose: &Purpose) -> Vec<Finding> {
    let machine = Machine::read(files);
    let nics = nics::read(files, probes);
    [
        network::judge(&network::read(files), &nics, purpose),
        nics::judge(&nics, &machine),
        cpu::judge(&cpu::read(files, probes), &nics, &machine),
        memory::judge(&memory::read(files), &machine, purpose),
        storage::judge(&storage::read(files), &nics, &machine, purpose),
        clock::judge(&clock::read(files, probes), &machine),
        system::judge(&system::read(files, probes), &machine),
    ]
    .concat()
}

/// What several groups need to know of the machine.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Machine {
    /// Its NUMA nodes with their CPUs; empty where they can't be seen.
    nodes: Vec<(u32, crate::CpuSet)>,
    /// The CPUs that are on; empty where they can't be seen.
    online: crate::CpuSet,
    /// Whether a hypervisor runs it; nothing where the processor does not say.
    is_guest: Option<bool>,
}

impl Machine {
    /// Reads it.
    fn read(files: &SysFiles) -> Machine {
        let nodes: crate::NodeSet = files.value("sys/devices/system/node/online").unwrap_or_default();
        let cpus_of = |node: u32| {
            files.value(&format!("sys/devices/system/node/node{node}/cpulist")).unwrap_or_default()
        };
        Machine {
            nodes: nodes.iter().map(|node| (node, cpus_of(node))).collect(),
            online: files.value("sys/devices/system/cpu/online").unwrap_or_default(),
            is_guest: files.text("proc/cpuinfo").and_then(|text| is_guest(&text)),
        }
    }

    /// Whether memory may be near or far.
    fn is_numa(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The CPUs next to `node`.
    fn cpus_of(&self, node: u32) -> Option<&crate::CpuSet> {
        let (_, cpus) = self.nodes.iter().find(|(id, _)| *id == node)?;
        Some(cpus)
    }
}

/// x86 has a flag for it (cpuid leaf 1, ECX bit 31); others say nothing.
fn is_guest(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}
