//! The repairs of `carrack doctor --apply`: the affinity of the interrupts of interfaces' queues, and the
//! removal of stale core zones.
//!
//! No repair outlives a reboot or interrupts traffic. The plan is computed separately from its execution.

use std::collections::HashMap;
use std::io;

use super::nics::{self, HardwareNic};
use super::{CheckVerdict, KernelProbes, MachineFacts, cpu};
use crate::id_set::CpuSet;
use crate::sys_files::SysFiles;
use crate::zone::{CgroupTree, remove_stale_zones};

/// The command for these repairs.
pub(super) const COMMAND: &str = "carrack doctor --apply";

/// A new affinity of one interrupt.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IrqMove {
    /// The interface.
    pub nic: String,
    /// Interrupt number.
    pub irq: u32,
    /// The driver's name of the interrupt.
    pub action: String,
    /// Current CPUs.
    pub from: CpuSet,
    /// New CPU.
    pub to: u32,
}

/// Reasons why there is no plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum DoctorRepairRefusal {
    /// irqbalance would undo the changes.
    #[error("irqbalance is running and would move the interrupts again: systemctl disable --now irqbalance")]
    IrqBalance,
}

/// Plans the affinities; empty if all are good.
fn plan_irq_moves(files: &SysFiles, probes: &KernelProbes) -> Result<Vec<IrqMove>, DoctorRepairRefusal> {
    let machine = MachineFacts::read(files);
    let nics = nics::read(files, probes);
    let moves = spread_irqs(&nics, &machine, |cpu| is_first_thread(files, cpu));
    match cpu::has_irqbalance(files) {
        Some(true) if !moves.is_empty() => Err(DoctorRepairRefusal::IrqBalance),
        _ => Ok(moves),
    }
}

/// One repair, done or failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DoctorRepairResult {
    /// Description, for people.
    pub what: String,
    /// Result, or the reason of the failure.
    pub outcome: Result<(), String>,
}

/// Sets the planned affinities and removes stale zones in `tree`, if there is one. Returns all attempts;
/// empty if nothing needed a repair.
pub fn repair(files: &SysFiles, tree: Option<&CgroupTree>, probes: &KernelProbes) -> Vec<DoctorRepairResult> {
    let mut repairs = match plan_irq_moves(files, probes) {
        Ok(moves) => moves.iter().map(|step| repair_irq(files, step)).collect(),
        Err(refusal) => {
            vec![DoctorRepairResult { what: "interrupts".into(), outcome: Err(refusal.to_string()) }]
        }
    };
    repairs.extend(tree.map(repair_stale_zones).unwrap_or_default());
    repairs
}

fn repair_irq(files: &SysFiles, step: &IrqMove) -> DoctorRepairResult {
    let IrqMove { nic, irq, action, from, to } = step;
    let what = format!("interrupt {irq} of {nic} ({action}): from CPU {from} to {to}");
    DoctorRepairResult {
        what,
        outcome: write_irq_affinity(files, step).map_err(|error| irq_error_text(&error)),
    }
}

/// Some drivers leave the affinity to the kernel, which then refuses a change.
fn irq_error_text(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EIO) => "the kernel chooses the CPUs of this interrupt by itself".into(),
        _ => error.to_string(),
    }
}

fn repair_stale_zones(tree: &CgroupTree) -> Vec<DoctorRepairResult> {
    match remove_stale_zones(tree) {
        Ok(zones) => {
            let removed = zones.iter().map(|zone| format!("removed: {zone}"));
            removed.map(|what| DoctorRepairResult { what, outcome: Ok(()) }).collect()
        }
        Err(error) => {
            vec![DoctorRepairResult {
                what: "core zones left behind".into(),
                outcome: Err(error.to_string()),
            }]
        }
    }
}

fn write_irq_affinity(files: &SysFiles, step: &IrqMove) -> io::Result<()> {
    files.write(&format!("proc/irq/{}/smp_affinity_list", step.irq), &format!("{}\n", step.to))
}

/// Assigns the CPUs of an interface's node to the queues of each badly spread interface, in turn: each core
/// once before any gets a second queue. Interfaces of one node don't start at the same CPU.
fn spread_irqs(
    nics: &[HardwareNic],
    machine: &MachineFacts,
    is_first_thread: impl Fn(u32) -> bool,
) -> Vec<IrqMove> {
    let mut taken: HashMap<Option<u32>, usize> = HashMap::new();
    let mut moves = Vec::new();
    for nic in nics.iter().filter(|nic| is_badly_spread(nic, machine)) {
        let seats = preferred_irq_cpus(nic, machine, &is_first_thread);
        let next = taken.entry(nic.node).or_default();
        for queue in &nic.queues {
            let to = seats[*next % seats.len()];
            *next += 1;
            if queue.cpus().len() != 1 || !queue.cpus().contains(to) {
                let (nic, action, from) = (nic.name.clone(), queue.action.clone(), queue.cpus().clone());
                moves.push(IrqMove { nic, irq: queue.irq, action, from, to });
            }
        }
    }
    moves
}

fn is_badly_spread(nic: &HardwareNic, machine: &MachineFacts) -> bool {
    let findings = [nics::irq_spread(nic, machine), nics::irq_node(nic, machine)];
    findings.iter().any(|finding| finding.verdict == CheckVerdict::Improve)
}

/// The CPUs for an interface's queues, best first. Never empty for a badly spread interface.
fn preferred_irq_cpus(
    nic: &HardwareNic,
    machine: &MachineFacts,
    is_first_thread: impl Fn(u32) -> bool,
) -> Vec<u32> {
    let near = nics::cpus_for(nic, machine).intersection(&machine.online);
    let cpus = if near.is_empty() { &machine.online } else { &near };
    let (first, second): (Vec<u32>, Vec<u32>) = cpus.iter().partition(|&cpu| is_first_thread(cpu));
    [first, second].concat()
}

fn is_first_thread(files: &SysFiles, cpu: u32) -> bool {
    let siblings =
        files.read_value(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    siblings.is_none_or(|siblings: CpuSet| siblings.first() == Some(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::test_machines;
    use crate::nic::QueueIrq;

    /// Node 0 has 0, 1 and their second threads 4, 5; node 1 has 2, 3, 6, 7.
    fn machine() -> MachineFacts {
        let nodes = vec![(0, "0-1,4-5".parse().unwrap()), (1, "2-3,6-7".parse().unwrap())];
        MachineFacts { nodes, online: "0-7".parse().unwrap(), is_guest: Some(false) }
    }

    fn nic(name: &str, node: Option<u32>, first_irq: u32, cpus: &[u32]) -> HardwareNic {
        HardwareNic {
            name: name.into(),
            node,
            queues: cpus
                .iter()
                .enumerate()
                .map(|(index, cpu)| QueueIrq {
                    irq: first_irq + index as u32,
                    action: format!("{name}-{index}"),
                    allowed: "0-7".parse().unwrap(),
                    effective: [*cpu].into_iter().collect(),
                })
                .collect(),
            ..HardwareNic::default()
        }
    }

    fn planned(nics: &[HardwareNic]) -> Vec<(u32, u32)> {
        spread_irqs(nics, &machine(), |cpu| cpu < 4).iter().map(|step| (step.irq, step.to)).collect()
    }

    #[test]
    fn queues_get_the_cores_of_their_node_before_its_second_threads() {
        assert_eq!(planned(&[nic("a", Some(1), 10, &[0, 0, 0, 0])]), [(10, 2), (11, 3), (12, 6), (13, 7)]);
        let wrapped = planned(&[nic("a", Some(0), 10, &[0; 6])]);
        assert_eq!(wrapped, [(11, 1), (12, 4), (13, 5), (15, 1)]);
    }

    #[test]
    fn what_lies_well_stays() {
        assert_eq!(planned(&[nic("a", Some(1), 10, &[2, 3, 6, 7])]), []);
        assert_eq!(planned(&[nic("a", Some(1), 10, &[3, 2])]), []);
    }

    #[test]
    fn two_interfaces_share_their_node() {
        let nics = [nic("a", Some(1), 10, &[0, 0]), nic("b", Some(1), 20, &[0, 0])];
        assert_eq!(planned(&nics), [(10, 2), (11, 3), (20, 6), (21, 7)]);
    }

    #[test]
    fn an_interface_without_a_place_uses_all() {
        assert_eq!(planned(&[nic("a", None, 10, &[0, 0, 0])]), [(11, 1), (12, 2)]);
    }

    #[test]
    fn a_neglected_machine_is_mended_and_then_well() {
        let tree = test_machines::TestKernelFiles::neglected();
        let files = tree.files();
        assert_eq!(plan_irq_moves(&files, &KernelProbes::default()), Err(DoctorRepairRefusal::IrqBalance));
        tree.remove("proc/900/comm");
        let moves = plan_irq_moves(&files, &KernelProbes::default()).unwrap();
        let planned: Vec<_> = moves.iter().map(|step| (step.irq, step.to)).collect();
        assert_eq!(planned, [(101, 2), (102, 3), (103, 6), (104, 7)]);
        let repairs = repair(&files, None, &KernelProbes::default());
        assert!(repairs.len() == 4 && repairs.iter().all(|repair| repair.outcome.is_ok()), "{repairs:?}");
        assert_eq!(repairs[1].what, "interrupt 102 of eth0 (mlx5_comp1@pci:0000:81:00.0): from CPU 0 to 3");
        assert_eq!(files.read_text("proc/irq/102/smp_affinity_list").as_deref(), Some("3"));
        assert_eq!(plan_irq_moves(&files, &KernelProbes::default()), Ok(vec![]));
    }

    #[test]
    fn what_is_refused_is_told() {
        let tree = test_machines::TestKernelFiles::neglected();
        let repairs = repair(&tree.files(), None, &KernelProbes::default());
        assert!(
            matches!(&repairs[..], [DoctorRepairResult { outcome: Err(why), .. }] if why.contains("irqbalance"))
        );
        tree.remove("proc/900/comm");
        tree.remove("proc/irq/103/smp_affinity_list");
        let repairs = repair(&tree.files(), None, &KernelProbes::default());
        let failed: Vec<_> = repairs.iter().filter(|repair| repair.outcome.is_err()).collect();
        assert!(failed.len() == 1 && failed[0].what.starts_with("interrupt 103 "), "{repairs:?}");
    }

    #[test]
    fn a_zone_left_behind_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("cgroup/carrack-zone-4000000-1")).unwrap();
        let zones = CgroupTree::with_roots(&dir.path().join("cgroup"), &dir.path().join("proc"));
        let repairs =
            repair(&test_machines::TestKernelFiles::tuned().files(), Some(&zones), &KernelProbes::default());
        assert!(
            matches!(&repairs[..], [DoctorRepairResult { what, outcome: Ok(()) }] if what.contains("4000000")),
            "{repairs:?}"
        );
        assert!(
            repair(&test_machines::TestKernelFiles::tuned().files(), Some(&zones), &KernelProbes::default())
                .is_empty()
        );
    }

    #[test]
    fn where_nothing_is_seen_nothing_is_planned() {
        for tree in [test_machines::TestKernelFiles::container(), test_machines::TestKernelFiles::tuned()] {
            assert_eq!(plan_irq_moves(&tree.files(), &KernelProbes::default()), Ok(vec![]));
        }
    }
}
