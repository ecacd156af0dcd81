//! `carrack doctor`: finds settings that slow a data transfer node.
//!
//! Facts are read relative to a root ([`SysFiles`]) or queried from the kernel ([`KernelProbes`]), judged by
//! pure functions, one file for each group, and reported as [`CheckFinding`]s. An invisible fact is never an
//! alarm. [`repair`] makes the changes that take effect at once.

mod clock;
mod cpu;
mod finding;
mod kernel_limits;
mod memory;
mod network;
mod nics;
mod probes;
pub mod repair;
mod storage;
#[cfg(test)]
mod test_machines;

use std::path::PathBuf;

use crate::sys_files::SysFiles;

pub use finding::{CheckFinding, CheckGroup, CheckVerdict, MachineCheck};
pub use probes::{KernelProbes, RingSizes};

/// Default round-trip time of the path to size buffers for, in milliseconds: the longest usual one, from
/// Europe to the west of America. fasterdata.es.net uses the same.
pub const RTT_MS_DEFAULT: u32 = 100;

/// Default link speed if no interface reports one, in Mbit/s: typical for data transfer nodes.
pub const SPEED_MBITS_DEFAULT: u32 = 100_000;

/// Purpose of the machine.
#[derive(Clone, Debug)]
pub struct DoctorTransferParameters {
    /// Round-trip time of the longest path, in milliseconds.
    pub rtt_ms: u32,
    /// Speed of the path in Mbit/s; `None` for the fastest interface's.
    pub speed_mbits: Option<u32>,
    /// Bytes of payload memory that a transfer locks.
    pub pool_bytes: u64,
    /// Source and destination paths.
    pub paths: Vec<DoctorPath>,
}

/// One source or destination path.
#[derive(Clone, Debug)]
pub struct DoctorPath {
    /// Path as typed.
    pub shown: String,
    /// Absolute path without links, or the reason why it is not accessible.
    pub real: Result<PathBuf, String>,
}

/// All checks, by group.
pub fn checks() -> impl Iterator<Item = &'static MachineCheck> {
    let groups = [
        network::CHECKS,
        nics::CHECKS,
        cpu::CHECKS,
        memory::CHECKS,
        storage::CHECKS,
        clock::CHECKS,
        kernel_limits::CHECKS,
    ];
    groups.into_iter().flatten().copied()
}

/// Runs all checks.
pub fn run_checks(
    files: &SysFiles,
    probes: &KernelProbes,
    purpose: &DoctorTransferParameters,
) -> Vec<CheckFinding> {
    let machine = MachineFacts::read(files);
    let nics = nics::read(files, probes);
    [
        network::evaluate(&network::read(files), &nics, purpose),
        nics::evaluate(&nics, &machine),
        cpu::evaluate(&cpu::read(files, probes), &nics, &machine),
        memory::evaluate(&memory::read(files), &machine, purpose),
        storage::evaluate(&storage::read(files), &nics, &machine, purpose),
        clock::evaluate(&clock::read(files, probes), &machine),
        kernel_limits::evaluate(&kernel_limits::read(files, probes), &machine),
    ]
    .concat()
}

/// Facts about the machine for several groups.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct MachineFacts {
    /// NUMA nodes with their CPUs; empty if not visible.
    nodes: Vec<(u32, crate::CpuSet)>,
    /// Online CPUs; empty if not visible.
    online: crate::CpuSet,
    /// True in a virtual machine; `None` if the processor does not report it.
    is_guest: Option<bool>,
}

impl MachineFacts {
    /// Reads the facts.
    fn read(files: &SysFiles) -> MachineFacts {
        let nodes: crate::NodeSet = files.read_value("sys/devices/system/node/online").unwrap_or_default();
        let nodes = nodes.iter().map(|node| {
            let cpus = files.read_value(&format!("sys/devices/system/node/node{node}/cpulist"));
            (node, cpus.unwrap_or_default())
        });
        MachineFacts {
            nodes: nodes.collect(),
            online: files.read_value("sys/devices/system/cpu/online").unwrap_or_default(),
            is_guest: files.read_text("proc/cpuinfo").and_then(|text| is_guest(&text)),
        }
    }

    /// Returns true if there are several nodes.
    fn is_numa(&self) -> bool {
        self.nodes.len() > 1
    }

    /// The CPUs of `node`.
    fn cpus_of(&self, node: u32) -> Option<&crate::CpuSet> {
        let (_, cpus) = self.nodes.iter().find(|(id, _)| *id == node)?;
        Some(cpus)
    }
}

/// x86 has a flag for it (cpuid leaf 1, ECX bit 31); other architectures don't.
fn is_guest(cpuinfo: &str) -> Option<bool> {
    let flags = cpuinfo.lines().find(|line| line.starts_with("flags"))?;
    Some(flags.split_whitespace().any(|flag| flag == "hypervisor"))
}
