//! What `carrack doctor --apply` sets at once: the CPUs that take the interrupts of an interface's queues, and the removal
//! of core zones whose process is gone.
//!
//! Nothing that outlives a restart, nothing that interrupts traffic. What to do is computed first, apart from
//! doing it.

use std::collections::HashMap;
use std::io;

use super::nics::{self, Nic};
use super::{Machine, Probes, Verdict, cpu};
use crate::id_set::CpuSet;
use crate::sys_files::SysFiles;
use crate::zone::{CgroupTree, StaleZone, repair_zones};

/// The command that asks for it.
pub(super) const COMMAND: &str = "carrack doctor --apply";

/// One interrupt that gets a CPU of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
struct IrqMove {
    /// The interface.
    pub nic: String,
    /// The interrupt's number.
    pub irq: u32,
    /// Its name.
    pub action: String,
    /// The CPUs that take it now.
    pub from: CpuSet,
    /// The CPU that shall.
    pub to: u32,
}

/// Why nothing is planned.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
enum Refusal {
    /// It would undo what is set.
    #[error("irqbalance is running and would move the interrupts again: systemctl disable --now irqbalance")]
    IrqBalance,
}

/// What is to be set on the machine with these files; nothing where all is well.
fn plan(files: &SysFiles, probes: &Probes) -> Result<Vec<IrqMove>, Refusal> {
    let machine = Machine::read(files);
    let nics = nics::read(files, probes);
    let moves = spread(&nics, &machine, |cpu| is_first_thread(files, cpu));
    match cpu::has_irqbalance(files) {
        Some(true) if !moves.is_empty() => Err(Refusal::IrqBalance),
        _ => Ok(moves),
    }
}

/// One thing that was to be set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Repair {
    /// What, for people.
    pub what: String,
    /// Nothing, or why it could not be.
    pub outcome: Result<(), String>,
}

/// Sets what is planned and removes what was left behind; `tree` is where zones are, if there is such a place. Says what
/// was done and what was refused; nothing where all is well.
pub fn repair(files: &SysFiles, tree: Option<&CgroupTree>, probes: &Probes) -> Vec<Repair> {
    let mut repairs = match plan(files, probes) {
        Ok(moves) => moves.iter().map(|step| repair_irq(files, step)).collect(),
        Err(refusal) => vec![Repair { what: "interrupts".into(), outcome: Err(refusal.to_string()) }],
    };
    repairs.extend(tree.map(repair_stale_zones).unwrap_or_default());
    repairs
}

fn repair_irq(files: &SysFiles, step: &IrqMove) -> Repair {
    let IrqMove { nic, irq, action, from, to } = step;
    let what = format!("interrupt {irq} of {nic} ({action}): from CPU {from} to {to}");
    Repair { what, outcome: apply(files, step).map_err(|error| words_of(&error)) }
}

/// Some drivers leave the choice to the kernel, which then takes no other.
fn words_of(error: &io::Error) -> String {
    match error.raw_os_error() {
        Some(libc::EIO) => "the kernel chooses the CPUs of this interrupt by itself".into(),
        _ => error.to_string(),
    }
}

fn repair_stale_zones(tree: &CgroupTree) -> Vec<Repair> {
    let removed = |zone: StaleZone| Repair { what: format!("removed: {zone}"), outcome: Ok(()) };
    match repair_zones(tree) {
        Ok(zones) => zones.into_iter().map(removed).collect(),
        Err(error) => vec![Repair { what: "core zones left behind".into(), outcome: Err(error.to_string()) }],
    }
}

fn apply(files: &SysFiles, step: &IrqMove) -> io::Result<()> {
    files.write(&format!("proc/irq/{}/smp_affinity_list", step.irq), &format!("{}\n", step.to))
}

/// Gives the queues of each interface whose interrupts lie badly the CPUs of its node, one after the other: each core
/// once before any gets a second one. Interfaces of one node don't begin with the same CPU.
fn spread(nics: &[Nic], machine: &Machine, is_first_thread: impl Fn(u32) -> bool) -> Vec<IrqMove> {
    let mut taken: HashMap<Option<u32>, usize> = HashMap::new();
    let mut moves = Vec::new();
    for nic in nics.iter().filter(|nic| is_badly_spread(nic, machine)) {
        let seats = seats(nic, machine, &is_first_thread);
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

fn is_badly_spread(nic: &Nic, machine: &Machine) -> bool {
    let findings = [nics::irq_spread(nic, machine), nics::irq_node(nic, machine)];
    findings.iter().any(|finding| finding.verdict == Verdict::Improve)
}

/// The CPUs for an interface's queues, the best first. Never empty where something is badly spread.
fn seats(nic: &Nic, machine: &Machine, is_first_thread: impl Fn(u32) -> bool) -> Vec<u32> {
    let near = nics::cpus_for(nic, machine).intersection(&machine.online);
    let cpus = if near.is_empty() { &machine.online } else { &near };
    let (first, second): (Vec<u32>, Vec<u32>) = cpus.iter().partition(|&cpu| is_first_thread(cpu));
    [first, second].concat()
}

fn is_first_thread(files: &SysFiles, cpu: u32) -> bool {
    let siblings = files.value(&format!("sys/devices/system/cpu/cpu{cpu}/topology/thread_siblings_list"));
    siblings.is_none_or(|siblings: CpuSet| siblings.first() == Some(cpu))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::trees;
    use crate::nic::QueueIrq;

    /// Node 0 has 0, 1 and their second threads 4, 5; node 1 has 2, 3, 6, 7.
    fn machine() -> Machine {
        let nodes = vec![(0, "0-1,4-5".parse().unwrap()), (1, "2-3,6-7".parse().unwrap())];
        Machine { nodes, online: "0-7".parse().unwrap(), is_guest: Some(false) }
    }

    fn nic(name: &str, node: Option<u32>, first_irq: u32, cpus: &[u32]) -> Nic {
        let queue = |(index, cpu): (usize, &u32)| QueueIrq {
            irq: first_irq + index as u32,
            action: format!("{name}-{index}"),
            allowed: "0-7".parse().unwrap(),
            effective: [*cpu].into_iter().collect(),
        };
        Nic {
            name: name.into(),
            node,
            queues: cpus.iter().enumerate().map(queue).collect(),
            ..Nic::default()
        }
    }

    fn planned(nics: &[Nic]) -> Vec<(u32, u32)> {
        spread(nics, &machine(), |cpu| cpu < 4).iter().map(|step| (step.irq, step.to)).collect()
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
        let tree = trees::Tree::neglected();
        let files = tree.files();
        assert_eq!(plan(&files, &Probes::default()), Err(Refusal::IrqBalance));
        tree.remove("proc/900/comm");
        let moves = plan(&files, &Probes::default()).unwrap();
        let planned: Vec<_> = moves.iter().map(|step| (step.irq, step.to)).collect();
        assert_eq!(planned, [(101, 2), (102, 3), (103, 6), (104, 7)]);
        let repairs = repair(&files, None, &Probes::default());
        assert!(repairs.len() == 4 && repairs.iter().all(|repair| repair.outcome.is_ok()), "{repairs:?}");
        assert_eq!(repairs[1].what, "interrupt 102 of eth0 (mlx5_comp1@pci:0000:81:00.0): from CPU 0 to 3");
        assert_eq!(files.text("proc/irq/102/smp_affinity_list").as_deref(), Some("3"));
        assert_eq!(plan(&files, &Probes::default()), Ok(vec![]));
    }

    #[test]
    fn what_is_refused_is_told() {
        let tree = trees::Tree::neglected();
        let repairs = repair(&tree.files(), None, &Probes::default());
        assert!(matches!(&repairs[..], [Repair { outcome: Err(why), .. }] if why.contains("irqbalance")));
        tree.remove("proc/900/comm");
        tree.remove("proc/irq/103/smp_affinity_list");
        let repairs = repair(&tree.files(), None, &Probes::default());
        let failed: Vec<_> = repairs.iter().filter(|repair| repair.outcome.is_err()).collect();
        assert!(failed.len() == 1 && failed[0].what.starts_with("interrupt 103 "), "{repairs:?}");
    }

    #[test]
    fn a_zone_left_behind_is_removed() {
        let dir = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(dir.path().join("cgroup/carrack-zone-4000000-1")).unwrap();
        let zones = CgroupTree::at(&dir.path().join("cgroup"), &dir.path().join("proc"));
        let repairs = repair(&trees::Tree::tuned().files(), Some(&zones), &Probes::default());
        assert!(
            matches!(&repairs[..], [Repair { what, outcome: Ok(()) }] if what.contains("4000000")),
            "{repairs:?}"
        );
        assert!(repair(&trees::Tree::tuned().files(), Some(&zones), &Probes::default()).is_empty());
    }

    #[test]
    fn where_nothing_is_seen_nothing_is_planned() {
        for tree in [trees::Tree::container(), trees::Tree::tuned()] {
            assert_eq!(plan(&tree.files(), &Probes::default()), Ok(vec![]));
        }
    }
}
